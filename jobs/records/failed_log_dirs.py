"""Replicas whose log dir failed: what live brokers answered last to LeaderAndIsr.

Corresponds to `ControllerContext.replicasOnOfflineDirs`: KAFKA_STORAGE_ERROR puts a replica there, NONE takes it out,
other codes say nothing, and a broker that restarts, under another epoch then, begins anew. Read as the table is now:
a plan says in its rows what it counts on. In: `answers`. Out: rows of it.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.lake import Lake, Row, as_rows
from jobs.adapters.delta.reads import Filter
from jobs.records.snapshots import as_of
from schemas.names import RequestKind

KAFKA_STORAGE_ERROR: Final = 56
_NONE: Final = 0
_TOLD: Final = ("api", "=", "LeaderAndIsr")
_COLUMNS: Final = ("broker_id", "topic", "partition", "broker_epoch", "leader_epoch", "at")


def failed_replicas(lake: Lake, snapshot: Row) -> list[Row]:
    """Return the last word of each live broker on each partition where that was error 56."""
    failed = _latest(_read(lake, KAFKA_STORAGE_ERROR))
    if not failed:  # as nearly always: nothing else is read
        return []
    epochs = {row["broker_id"]: row["broker_epoch"] for row in as_of(lake, snapshot, "brokers")}
    since = min(row["at"] for row in failed.values())
    topics = sorted({topic for _, topic, _ in failed})
    cleared = _latest(_read(lake, _NONE, ("at", ">", since), ("topic", "in", topics)))
    return [
        row
        for key, row in sorted(failed.items())
        if row["broker_epoch"] == epochs.get(key[0]) and not (key in cleared and cleared[key]["at"] > row["at"])
    ]


def event_lines(lake: Lake, snapshot: Row) -> Iterator[str]:
    """Say which brokers report a failed log dir, and wait for a controller to ask which replicas it held."""
    events = as_of(lake, snapshot, "requests", ("kind", "=", RequestKind.LOG_DIR.value))
    for broker in sorted({row["broker_id"] for row in events}):
        yield (
            f"broker {broker} reports a failed log dir, and no controller has asked it yet which replicas that "
            "concerns: what it is to lead may turn out to be among them; then snapshot and plan again"
        )


def _read(lake: Lake, error: int, *filters: Filter) -> pa.Table:
    return lake.read("answers", _TOLD, ("error", "=", error), *filters, columns=_COLUMNS)


def _latest(answers: pa.Table) -> dict[tuple[int, str, int], Row]:
    latest: dict[tuple[int, str, int], Row] = {}
    for row in as_rows(answers.sort_by("at")):
        latest[row["broker_id"], row["topic"], row["partition"]] = row
    return latest
