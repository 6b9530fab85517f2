"""Brokers, topics and partitions as people and programs are shown them: each with what the others say of it. No JVM.

What is counted is counted in Arrow and numpy: of a large cluster only the rows that are shown become objects.
"""

from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.lake import Row, as_rows
from jobs.basics.errors import UsageError
from jobs.basics.sensitive import masked
from jobs.records.snapshots import as_of, find_snapshot, table_as_of
from jobs.records.stored_rows import Bools, Ints, StoredRows
from jobs.runtime.console import show, stream
from jobs.runtime.settings import Settings
from jobs.views.tables import ROWS_SHOWN, age_line, give_as_of, laid_out, of_snapshot, refuse_unknown_topic
from schemas.columns import BROKERS
from schemas.names import NO_LEADER, PartitionState

PARTITION_COLUMNS: Final = (
    "topic",
    "partition",
    "replicas",
    "leader",
    "isr",
    "partition_state",
    "offline_replicas",
)
BROKER_COLUMNS: Final = (
    "broker_id",
    "live",
    "controller",
    "leaders",
    "replicas",
    "host",
    "port",
    "rack",
)
TOPIC_COLUMNS: Final = (
    "topic",
    "partitions",
    "replication_factor",
    "config",
    "deletion_requested",
    "understood",
)


@dataclass(frozen=True, slots=True)
class Those:
    """Which partitions are to be shown: all conditions must hold."""

    topic: str | None = None
    broker: int | None = None
    offline: bool = False
    under_replicated: bool = False
    under_min_isr: bool = False

    def of(self, rows: pa.Table) -> pa.Table:
        """Keep those; rows of PARTITIONS with `deletion_requested` in and out.

        What is in trouble is what `status` counts: not what is being deleted, nor what is not understood.
        """
        stored = StoredRows(rows)
        held: list[Bools] = [
            stored.equal(column, value) for flag, (column, value) in _CONDITIONS.items() if getattr(self, flag)
        ]
        if held:
            held += [~stored.equal("deletion_requested", True), ~stored.equal("understood", False)]  # noqa: FBT003 - values
        if self.broker is not None:
            held.append((stored.brokers("replicas") == self.broker).any(axis=1))
        return rows.filter(pa.array(np.logical_and.reduce(held))) if held else rows


_CONDITIONS: Final[dict[str, tuple[str, object]]] = {
    "offline": ("partition_state", PartitionState.OFFLINE.value),
    "under_replicated": ("under_replicated", True),
    "under_min_isr": ("under_min_isr", True),
}
"""The column that says so, and how."""


def show_partitions(settings: Settings, those: Those, snapshot_id: int | None) -> None:
    """Show the partitions that are asked for, as a snapshot left them."""
    refuse_unknown_topic(settings, those.topic, snapshot_id)
    snapshot = find_snapshot(settings.lake, snapshot_id)
    filters = [] if those.topic is None else [("topic", "=", those.topic)]
    kept = those.of(_with_deletions(settings, snapshot, table_as_of(settings.lake, snapshot, "partitions", *filters)))
    if those.broker is not None and not kept.num_rows:
        _refuse_unknown_broker(settings, snapshot, those.broker)
    rows = StoredRows(kept.sort_by([("topic", "ascending"), ("partition", "ascending")]).combine_chunks())
    stream(settings, of_snapshot(snapshot), {"rows": rows})
    if settings.for_people:
        first = [{**row, "partition_state": _state(row)} for row in rows.first(ROWS_SHOWN)]
        title = f"partitions of {settings.cluster}, snapshot {snapshot['snapshot_id']}"
        for part in (*laid_out(settings, title, PARTITION_COLUMNS, first, of=len(rows)), age_line(snapshot, len(rows))):
            show(part)


def _with_deletions(settings: Settings, snapshot: Row, partitions: pa.Table) -> pa.Table:
    """Add `deletion_requested`: whether the topic of each partition is queued for deletion."""
    queued = as_of(settings.lake, snapshot, "topics", ("deletion_requested", "=", True))
    names = pa.array([row["topic"] for row in queued], pa.string())
    return partitions.append_column("deletion_requested", pc.is_in(partitions["topic"], names))


def _state(partition: Row) -> str:
    return f"{partition['partition_state']}{', being deleted' * partition['deletion_requested']}"


def _refuse_unknown_broker(settings: Settings, snapshot: Row, broker: int) -> None:
    """Raise UsageError for a broker that is not registered in a snapshot, and that no partition of it names."""
    columns = ["replicas", "isr", "leader"]
    partitions = StoredRows(table_as_of(settings.lake, snapshot, "partitions", columns=columns))
    if any((partitions.brokers(name) == broker).any() for name in columns):
        return
    if not as_of(settings.lake, snapshot, "brokers", ("broker_id", "=", broker)):
        raise UsageError(
            f"no broker {broker} in snapshot {snapshot['snapshot_id']} of {settings.cluster}; "
            "`surveyor show brokers` lists them",
        )


def show_brokers(settings: Settings, snapshot_id: int | None) -> None:
    """Show brokers with what they lead and hold, those too that are only named: by an assignment, an ISR, a leader."""
    snapshot = find_snapshot(settings.lake, snapshot_id)
    columns = ["replicas", "isr", "leader"]
    partitions = StoredRows(table_as_of(settings.lake, snapshot, "partitions", columns=columns))
    leaders, replicas, in_sync = (_counted(partitions.brokers(name)) for name in ("leader", "replicas", "isr"))
    registered = as_of(settings.lake, snapshot, "brokers")
    gone = {*leaders, *replicas, *in_sync}.difference(row["broker_id"] for row in registered)
    known = [{**row, "live": True} for row in registered]
    named = [dict.fromkeys(BROKERS.names) | {"broker_id": broker, "live": False} for broker in gone]
    rows = [
        {
            **row,
            "controller": row["broker_id"] == snapshot["controller_id"],
            "leaders": leaders.get(row["broker_id"], 0),
            "replicas": replicas.get(row["broker_id"], 0),
        }
        for row in sorted([*known, *named], key=itemgetter("broker_id"))
    ]
    give_as_of(settings, snapshot, "brokers", BROKER_COLUMNS, rows)


def _counted(brokers: Ints) -> dict[int, int]:
    """How many partitions name each broker."""
    ids, counts = np.unique(brokers[brokers != NO_LEADER], return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def show_topics(settings: Settings, snapshot_id: int | None) -> None:
    """Show topics with their partitions, and the replication factors that these have, or are on their way to."""
    snapshot = find_snapshot(settings.lake, snapshot_id)
    shapes = _shapes(table_as_of(settings.lake, snapshot, "partitions", columns=_SHAPE))
    rows = [
        {**row, "config": masked(row["config"]), **shapes.get(row["topic"], _NO_PARTITIONS)}
        for row in sorted(as_of(settings.lake, snapshot, "topics"), key=itemgetter("topic"))
    ]
    for_people = [{**row, "replication_factor": _factors(row)} for row in rows]
    give_as_of(settings, snapshot, "topics", TOPIC_COLUMNS, rows, for_people=for_people)


def _factors(topic: Row) -> str | int | None:
    """The replication factor of a topic, or the least and the most where its partitions differ.

    >>> _factors({"replication_factor": 2, "most_replicas": 3})
    '2..3'
    """
    fewest, most = topic["replication_factor"], topic["most_replicas"]
    return fewest if fewest == most else f"{fewest}..{most}"


_SHAPE: Final = ("topic", "partition", "replicas", "removing_replicas")
_NO_PARTITIONS: Final[Row] = {"partitions": 0, "replication_factor": None, "most_replicas": None}


def _shapes(partitions: pa.Table) -> dict[str, Row]:
    """Partitions of each topic, the fewest replicas that one of them has, and the most.

    >>> lists = {"replicas": [[1, 2, 3], [1, 2]], "removing_replicas": [[1], None]}
    >>> _shapes(pa.table({"topic": ["t", "t"], "partition": [0, 1], **lists}))
    {'t': {'partitions': 2, 'replication_factor': 2, 'most_replicas': 2}}
    """
    replicas, removing = (
        pc.fill_null(pc.list_value_length(partitions[name]), 0) for name in ("replicas", "removing_replicas")
    )
    sized = partitions.select(["topic"]).append_column("factor", pc.subtract(replicas, removing))
    grouped = sized.group_by("topic").aggregate([("factor", "count"), ("factor", "min"), ("factor", "max")])
    named = grouped.select(["topic", "factor_count", "factor_min", "factor_max"]).rename_columns(
        ["topic", *_NO_PARTITIONS]
    )
    return {row.pop("topic"): row for row in as_rows(named)}
