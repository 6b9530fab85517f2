"""The content of a plan's id: the text of its header and of each row, hashed topic by topic.

Only this module defines what is hashed. `jobs.repositories.plans.arrow_digest` computes the texts in Arrow, for a plan
that is made and for a commit, which refuses a plan whose rows were changed. It must agree with `cell` to the byte.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.columns import TABLE_COLUMNS
from schemas.rows import PlanRecord

NULL: Final = "null"
SEPARATOR: Final = "|"
LINE_END: Final = "\n"
ID_LENGTH: Final = 16

HASHED: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(sorted(set(TABLE_COLUMNS[name].names) - {"cluster", "plan_id"}))
    for name in ("changes", "operations", "rejections")
}
"""The columns of each table that the id covers, in the order hashed."""


def cell(value: Any) -> str:  # noqa: ANN401 - any column value
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


def plan_header(plan: PlanRecord) -> str:
    """Return the part of a plan's id besides its rows: cluster, snapshot, kind, parameters and live brokers."""
    brokers = ",".join(f"{broker.broker_id}@{broker.broker_epoch}" for broker in plan.brokers)
    fields = (plan.cluster, plan.cluster_id, plan.snapshot_id, plan.kind, plan.parameters)
    return SEPARATOR.join([*map(cell, fields), brokers])


def plan_id_of(header: str, tables: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Return the id of a plan from the texts of its tables: per table, each topic with its sorted lines."""
    digests = [
        SEPARATOR.join((table, topic, _sha256(text))) for table, topics in tables.items() for topic, text in topics
    ]
    return _sha256(LINE_END.join([header, *sorted(digests)]))[:ID_LENGTH]
