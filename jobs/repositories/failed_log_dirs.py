"""Replicas whose log dir failed: what live brokers answered last to LeaderAndIsr.

Corresponds to `ControllerContext.replicasOnOfflineDirs`: which answers put a replica there is said in
`schemas.response_codes`; a broker that restarts, under another epoch then, begins anew. Read as the table is now: a
plan says in its rows what it counts on. In: `answers`. Out: rows of it.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Row, Warehouse, as_rows
from jobs.repositories.broker_responses import latest_responses
from jobs.repositories.snapshots import as_of
from schemas.enums import RequestKind
from schemas.notices import LEADER_AND_ISR
from schemas.response_codes import KAFKA_STORAGE_ERROR

_TOLD: Final = ("api", "=", LEADER_AND_ISR)
_IN_ORDER: Final = [(name, "ascending") for name in ("broker_id", "topic", "partition")]


def failed_replicas(lake: Warehouse, snapshot: Row) -> list[Row]:
    """Return the last word of each live broker on each partition where that was a failed log dir."""
    topics = lake.read("answers", _TOLD, ("error", "=", KAFKA_STORAGE_ERROR), columns=["topic"])["topic"].unique()
    if not topics:  # as nearly always: nothing else is read
        return []
    epochs = {row["broker_id"]: row["broker_epoch"] for row in as_of(lake, snapshot, "brokers")}
    # a table that an older version appended to has earlier words, too, until the next commit writes to it
    answers = latest_responses(lake.read("answers", _TOLD, ("topic", "in", topics.to_pylist())))
    failed = as_rows(answers.filter(pc.field("error") == KAFKA_STORAGE_ERROR).sort_by(_IN_ORDER))
    return [row for row in failed if row["broker_epoch"] == epochs.get(row["broker_id"])]


def event_lines(lake: Warehouse, snapshot: Row) -> Iterator[str]:
    """Say which brokers report a failed log dir, and wait for a controller to ask which replicas it held."""
    events = as_of(lake, snapshot, "requests", ("kind", "=", RequestKind.LOG_DIR.value))
    for broker in sorted({row["broker_id"] for row in events}):
        yield (
            f"broker {broker} reports a failed log dir, and no controller has asked it yet which replicas that "
            "concerns: what it is to lead may turn out to be among them; then snapshot and plan again"
        )
