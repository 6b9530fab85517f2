"""What a plan's id is a hash of: the text of its header and of each row, topic by topic.

`planner.plan` computes the id on Spark; the committer computes it again from the rows it reads, and refuses a plan
whose rows are not those that were planned. Both must agree to the byte on `cell`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.tables import CHANGES, OPERATIONS, REJECTIONS

NULL: Final = "null"
SEPARATOR: Final = "|"
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


def topic_digests(table: str, rows: Iterable[Row]) -> list[str]:
    """One line for each topic of a table: table, topic and the hash of its rows."""
    by_topic: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_topic[cell(row["topic"])].append(SEPARATOR.join(cell(row[column]) for column in HASHED[table]))
    return [SEPARATOR.join((table, topic, _sha256("\n".join(sorted(lines))))) for topic, lines in by_topic.items()]


def plan_header(plan: Row) -> str:
    """What a plan's id covers besides its rows: cluster, snapshot, kind, parameters and the brokers alive then."""
    brokers = ",".join(f"{broker['broker_id']}@{broker['broker_epoch']}" for broker in plan["brokers"])
    named = (plan[column] for column in ("cluster", "cluster_id", "snapshot_id", "kind", "parameters"))
    return SEPARATOR.join([*map(cell, named), brokers])


def plan_id(header: str, tables: Mapping[str, Iterable[Row]]) -> str:
    """Return the id of a plan: 16 hexadecimal digits."""
    lines = [line for table, rows in tables.items() for line in topic_digests(table, rows)]
    return _sha256("\n".join([header, *sorted(lines)]))[:ID_LENGTH]
