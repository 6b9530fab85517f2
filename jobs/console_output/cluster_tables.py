"""Output of `surveyor show brokers`, `topics` and `partitions`.

Counts are computed in Arrow and numpy, so that only displayed rows of a large cluster become Python objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.stored_tables import (
    ROWS_SHOWN,
    age_line,
    of_snapshot,
    refuse_unknown_topic,
    snapshot_shown,
    table_parts,
    warn_of_unread_topics,
    write_as_of,
)
from jobs.core.arrow_rows import Bools, Ints, StoredRows, as_rows
from jobs.core.errors import UsageError
from jobs.core.masking import mask
from jobs.repositories.brokers_last_seen import brokers_last_seen, last_seen_after
from jobs.repositories.snapshots import as_of, last_snapshot, other_cluster, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult, warn, warnings_in_json
from jobs.runtime.output import emit, show, stream
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import SOURCE_COLUMNS, ClusterView, view_now, with_last_known_replicas
from jobs.snapshots.health import with_derived_columns
from schemas.columns import TABLE_COLUMNS
from schemas.enums import NO_LEADER, PartitionState
from schemas.rows import Broker, LastSeenBroker, Row, Snapshot, Topic
from schemas.text import pluralise

PARTITION_COLUMNS: Final = (
    "topic",
    "partition",
    "replicas",
    "leader",
    "isr",
    "partition_state",
    "offline_replicas",
)
_BROKER_COLUMNS: Final = ("replicas", "isr", "leader")
"""Columns of partitions that contain broker ids."""

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
class PartitionFilter:
    """Filter of partitions; all given conditions must hold."""

    topic: str | None = None
    broker: int | None = None
    offline: bool = False
    under_replicated: bool = False
    under_min_isr: bool = False

    def of(self, rows: pa.Table) -> pa.Table:
        """Keep the matching rows of PARTITIONS, which have the column `deletion_requested` in addition.

        The health conditions count as in `status`: they exclude partitions that are being deleted or not understood.
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
"""Column and value of each health condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """A cluster at a snapshot, or live from ZooKeeper."""

    partitions: pa.Table
    registered: list[Broker]
    controller_id: int | None
    last_seen: Mapping[int, LastSeenBroker]
    """Last registrations of brokers that are not registered now."""
    about: Row
    """Snapshot id and time, for the JSON result."""
    where: str
    """Description of the source, for the text output."""
    medium: str = ""
    """Name of the store that holds the metadata of a live cluster."""

    def age_line(self, rows: int) -> str:
        if self.about["snapshot_id"] is not None:
            return age_line(self.about["taken_at"], rows)
        return f"{pluralise(rows, 'row')}, read from {self.medium} at {self.about['taken_at']:%Y-%m-%d %H:%M:%S} UTC"


def show_partitions(
    settings: Settings, selection: PartitionFilter, snapshot_id: int | None, *, now: bool = False
) -> None:
    """Show the selected partitions of a snapshot or of the live cluster."""
    _refuse_both(snapshot_id, now=now)
    cluster = (
        _live_partitions(settings, selection) if now else _partitions_at_snapshot(settings, selection, snapshot_id)
    )
    kept = selection.of(cluster.partitions)
    rows = StoredRows(kept.sort_by([("topic", "ascending"), ("partition", "ascending")]).combine_chunks())
    stream(settings, cluster.about | warnings_in_json(), {"rows": rows})
    if settings.for_people:
        first = [{**row, "partition_state": _state(row)} for row in rows.first(ROWS_SHOWN)]
        title = f"partitions of {settings.cluster}, {cluster.where}"
        table = table_parts(settings, title, PARTITION_COLUMNS, first, of=len(rows))
        for part in (*table, *_not_understood(kept, cluster.partitions), cluster.age_line(len(rows))):
            show(part)


def _not_understood(shown: pa.Table, partitions: pa.Table) -> Iterator[str]:
    """Report how many partitions a filter excludes because their znodes cannot be decoded."""
    left_out = _count_not_understood(partitions) - _count_not_understood(shown)
    if left_out:
        yield f"not understood, so of unknown health: {pluralise(left_out, 'partition')}"


def _count_not_understood(partitions: pa.Table) -> int:
    return int(StoredRows(partitions).equal("understood", False).sum())  # noqa: FBT003 - a value


def _refuse_both(snapshot_id: int | None, *, now: bool) -> None:
    if now and snapshot_id is not None:
        raise UsageError(f"--snapshot {snapshot_id} reads a snapshot, and --now reads the cluster; give one of the two")


def _partitions_at_snapshot(settings: Settings, selection: PartitionFilter, snapshot_id: int | None) -> _Cluster:
    snapshot = snapshot_shown(settings, snapshot_id, now="show partitions --now")
    refuse_unknown_topic(settings, selection.topic, snapshot)
    warn_of_unread_topics(settings.warehouse, selection.topic, snapshot, "partitions")
    filters = [] if selection.topic is None else [("topic", "=", selection.topic)]
    partitions = _with_deletions(
        settings.warehouse, snapshot, table_as_of(settings.warehouse, snapshot, "partitions", *filters)
    )
    if selection.broker is not None and not selection.of(partitions).num_rows:
        _refuse_unknown_broker(settings, snapshot, selection.broker)
    return _of_snapshot(snapshot, partitions, [], {})


def _of_snapshot(
    snapshot: Snapshot, partitions: pa.Table, registered: list[Broker], last_seen: Mapping[int, LastSeenBroker]
) -> _Cluster:
    return _Cluster(
        partitions=partitions,
        registered=registered,
        controller_id=snapshot.controller_id,
        last_seen=last_seen,
        about=of_snapshot(snapshot),
        where=f"snapshot {snapshot.snapshot_id}",
    )


def _live_partitions(settings: Settings, selection: PartitionFilter) -> _Cluster:
    cluster, view = _live_cluster(settings, selection.topic)
    topic, broker = selection.topic, selection.broker
    if topic is not None and topic not in view.configs:
        raise UsageError(f"no topic {topic!r} at {settings.address}; `surveyor show partitions --now` lists them")
    if broker is not None and not (_refers_to(cluster.partitions, broker) or broker in _ids(cluster.registered)):
        raise UsageError(f"no broker {broker} at {settings.address}; `surveyor show brokers --now` lists them")
    return cluster


def _live_cluster(settings: Settings, topic: str | None = None) -> tuple[_Cluster, ClusterView]:
    """Read the live cluster; min.insync.replicas and last registrations come from the warehouse.

    Nothing does if the snapshots there are of another cluster.
    """
    last = last_snapshot(settings.warehouse) if settings.warehouse.exists() else None
    with settings.connect(settings.pace.live) as cluster:
        view = view_now(cluster, topic=topic, columns=SOURCE_COLUMNS)
    if message := other_cluster(settings.warehouse, view.cluster_id, settings.address):
        warn(message)
        last = None
    view = with_last_known_replicas(view, settings.warehouse, last)
    shown = _Cluster(
        partitions=with_derived_columns(view, default_min_isr_of(settings.warehouse, last)),
        registered=view.brokers,
        controller_id=view.controller_id,
        last_seen={row.broker_id: row for row in last_seen_after(settings.warehouse, last, view.brokers)},
        about={"snapshot_id": None, "taken_at": datetime.now(UTC)},
        where=str(cluster),
        medium=cluster.medium,
    )
    return shown, view


def _refers_to(partitions: pa.Table, broker: int) -> bool:
    rows = StoredRows(partitions)
    return any((rows.brokers(name) == broker).any() for name in _BROKER_COLUMNS)


def _ids(brokers: Iterable[Broker]) -> set[int]:
    return {row.broker_id for row in brokers}


def _with_deletions(warehouse: Warehouse, snapshot: Snapshot, partitions: pa.Table) -> pa.Table:
    """Add the column `deletion_requested`: whether the topic is queued for deletion."""
    queued = rows_as_of(warehouse, snapshot, Topic, ("deletion_requested", "=", True))
    names = pa.array([row.topic for row in queued], pa.string())
    return partitions.append_column("deletion_requested", pc.is_in(partitions["topic"], names))


def _state(partition: Row) -> str:
    state = partition["partition_state"] if partition["understood"] is not False else None
    state = state or "not understood"
    return f"{state}{', being deleted' * partition['deletion_requested']}"


def _refuse_unknown_broker(settings: Settings, snapshot: Snapshot, broker: int) -> None:
    """Raise UsageError if a broker is not registered in a snapshot and no partition refers to it."""
    if _refers_to(table_as_of(settings.warehouse, snapshot, "partitions", columns=_BROKER_COLUMNS), broker):
        return
    if not rows_as_of(settings.warehouse, snapshot, Broker, ("broker_id", "=", broker)):
        raise UsageError(
            f"no broker {broker} in snapshot {snapshot.snapshot_id} of {settings.cluster}; "
            "`surveyor show brokers` lists them",
        )


def show_brokers(settings: Settings, snapshot_id: int | None, *, now: bool = False) -> None:
    """Show brokers with their numbers of leaders and replicas.

    Unregistered brokers that partitions refer to are included, with the host and rack of their last registration.
    """
    _refuse_both(snapshot_id, now=now)
    cluster = _live_cluster(settings)[0] if now else _brokers_at_snapshot(settings, snapshot_id)
    partitions = StoredRows(cluster.partitions)
    leaders, replicas, in_sync = (_count_by_broker(partitions.brokers(name)) for name in ("leader", "replicas", "isr"))
    gone = {*leaders, *replicas, *in_sync} - _ids(cluster.registered)
    last_seen = cluster.last_seen
    stored = {row.broker_id: _columns(row) | {"live": row.is_live} for row in cluster.registered}
    stored |= {broker: _columns(last_seen.get(broker)) | {"broker_id": broker, "live": False} for broker in gone}
    rows = [
        {
            **row,
            "controller": broker == cluster.controller_id,
            "leaders": leaders.get(broker, 0),
            "replicas": replicas.get(broker, 0),
        }
        for broker, row in sorted(stored.items())
    ]
    columns = [*BROKER_COLUMNS, *["last_seen_at"] * any(broker in last_seen for broker in gone)]
    table = table_parts(settings, f"brokers of {settings.cluster}, {cluster.where}", columns, rows)
    emit(settings, CommandResult(cluster.about | {"rows": rows}, *table, cluster.age_line(len(rows))))


def _columns(broker: Broker | LastSeenBroker | None) -> Row:
    """Return the columns of a broker; a row that is in no warehouse has no cluster."""
    values = {} if broker is None else broker.columns() | {"cluster": broker.cluster or None}
    return dict.fromkeys([*TABLE_COLUMNS["brokers"].names, "last_seen_at"]) | values


def _brokers_at_snapshot(settings: Settings, snapshot_id: int | None) -> _Cluster:
    snapshot = snapshot_shown(settings, snapshot_id, now="show brokers --now")
    partitions = table_as_of(settings.warehouse, snapshot, "partitions", columns=_BROKER_COLUMNS)
    registered = rows_as_of(settings.warehouse, snapshot, Broker)
    return _of_snapshot(snapshot, partitions, registered, brokers_last_seen(settings.warehouse, snapshot))


def _count_by_broker(brokers: Ints) -> dict[int, int]:
    """Count the occurrences of each broker id."""
    ids, counts = np.unique(brokers[brokers != NO_LEADER], return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def show_topics(settings: Settings, snapshot_id: int | None) -> None:
    """Show topics with their partitions and replication factors, after any running reassignment."""
    snapshot = snapshot_shown(settings, snapshot_id)
    shapes = _shapes(table_as_of(settings.warehouse, snapshot, "partitions", columns=_SHAPE))
    rows = [
        {**row, "config": mask(row["config"]), **shapes.get(row["topic"], _NO_PARTITIONS)}
        for row in sorted(as_of(settings.warehouse, snapshot, "topics"), key=itemgetter("topic"))
    ]
    for_people = [{**row, "replication_factor": _factors(row)} for row in rows]
    write_as_of(settings, snapshot, "topics", TOPIC_COLUMNS, rows, for_people=for_people)


def _factors(topic: Row) -> str | int | None:
    """Format the replication factor of a topic, as a range if its partitions differ.

    >>> _factors({"replication_factor": 2, "most_replicas": 3})
    '2..3'
    """
    fewest, most = topic["replication_factor"], topic["most_replicas"]
    return fewest if fewest == most else f"{fewest}..{most}"


_SHAPE: Final = ("topic", "partition", "replicas", "removing_replicas")
_NO_PARTITIONS: Final[Row] = {"partitions": 0, "replication_factor": None, "most_replicas": None}


def _shapes(partitions: pa.Table) -> dict[str, Row]:
    """Return the number of partitions of each topic, and the least and the most replicas of a partition.

    >>> lists = {"replicas": [[1, 2, 3], [1, 2]], "removing_replicas": [[1], None]}
    >>> _shapes(pa.table({"topic": ["t", "t"], "partition": [0, 1], **lists}))
    {'t': {'partitions': 2, 'replication_factor': 2, 'most_replicas': 2}}
    """
    replicas, removing = (
        pc.fill_null(pc.list_value_length(partitions[name]), 0) for name in ("replicas", "removing_replicas")
    )
    sized = partitions.select(["topic"]).append_column("factor", pc.subtract(replicas, removing))
    grouped = sized.group_by("topic").aggregate([("factor", "count"), ("factor", "min"), ("factor", "max")])
    renamed = grouped.select(["topic", "factor_count", "factor_min", "factor_max"]).rename_columns(
        ["topic", *_NO_PARTITIONS]
    )
    return {row.pop("topic"): row for row in as_rows(renamed)}
