"""What a plan's id is a hash of: the text of its header and of each row, topic by topic.

What is hashed is said here and nowhere else. `planner.columns.plan_digest` makes the texts on Spark, for plans whose
rows stay there; `jobs.repositories.plans.digest` in Arrow, for rows that are on the driver, and for a commit, which
refuses a plan whose rows are not those that were planned. Both must agree to the byte on `cell`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.columns import CHANGES, OPERATIONS, REJECTIONS

NULL: Final = "null"
SEPARATOR: Final = "|"
LINE_END: Final = "\n"
ID_LENGTH: Final = 16

HASHED: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(sorted(set(schema.names) - {"cluster", "plan_id"}))
    for name, schema in (("changes", CHANGES), ("operations", OPERATIONS), ("rejections", REJECTIONS))
}
"""The columns of each table that the id covers, in the order hashed."""

Row = Mapping[str, Any]


def cell(value: Any) -> str:  # noqa: ANN401 - whatever a column holds
    """Return a value as Spark's cast to string does.

    >>> [cell(value) for value in (None, True, -1, [2, 0], "t")]
    ['null', 'true', '-1', '[2, 0]', 't']
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(cell, value)) + "]"
    return str(value)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan_header(plan: Row) -> str:
    """What a plan's id covers besides its rows: cluster, snapshot, kind, parameters and the brokers alive then."""
    brokers = ",".join(f"{broker['broker_id']}@{broker['broker_epoch']}" for broker in plan["brokers"])
    named = (plan[column] for column in ("cluster", "cluster_id", "snapshot_id", "kind", "parameters"))
    return SEPARATOR.join([*map(cell, named), brokers])


def plan_id_of(header: str, tables: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Return the id of a plan of which each table's rows are put together: topics, each with its lines, sorted."""
    digests = [
        SEPARATOR.join((table, topic, _sha256(text))) for table, topics in tables.items() for topic, text in topics
    ]
    return _sha256(LINE_END.join([header, *sorted(digests)]))[:ID_LENGTH]
