"""Takes snapshots: reads the cluster and its brokers into the Delta tables.

The row in `snapshots` is written last and names the version of each table that belongs to the snapshot. A crash at any
point therefore leaves the last complete snapshot intact.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from jobs.adapters.clusters.interface import Cluster, ClusterMetadata
from jobs.adapters.delta.lock_files import VACUUM, holder, locked
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import SNAPSHOT, SnapshotLease, leased_snapshot
from jobs.adapters.spark.session import start_session, with_settings
from jobs.adapters.spark.spark_settings import ONE_TASK
from jobs.core.migration_refusal import migration_notice
from jobs.repositories.actor import this_process
from jobs.repositories.drained_brokers import drained_brokers, expired_drain_lines, remove_expired
from jobs.repositories.racks import mixed_racks
from jobs.repositories.snapshots import (
    find_snapshot,
    last_snapshot,
    names_of_cluster,
    refuse_other_cluster_id,
    with_readable_versions,
)
from jobs.repositories.vanished_topics import vanished_by
from jobs.runtime.console import CommandResult, Result, log
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.progress import Phases, progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from jobs.snapshots.fleet_health import FIGURES_SHOWN, WORST_BY, figures_of, health_at
from jobs.snapshots.reader import DriverMetadata, StagedMetadata, allow_any_cluster, read_driver_metadata, stage
from jobs.snapshots.writer import SnapshotCounts, SnapshotWriter
from schemas.enums import NO_CONTROLLER
from schemas.rows import Snapshot
from schemas.tables import SPARK_SCHEMAS
from schemas.text import pluralise

RESULT_FIELDS = ("snapshot_id", "controller_id", "controller_epoch", "zxid_before", "zxid_after", "seconds")

COUNT_FIELDS: Final = ("brokers", "topics", "partitions", "quarantined")

CONTROLLER_PLACEHOLDERS: Final = {NO_CONTROLLER: "no controller", None: "controller unreadable"}
"""Texts shown if there is no controller id."""


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """The row of a snapshot that was just taken, and where the time went."""

    row: Snapshot
    seconds_by_phase: dict[str, float]

    @property
    def json(self) -> Result:
        columns = {name: getattr(self.row, name) for name in (*RESULT_FIELDS, *COUNT_FIELDS)}
        return columns | {"seconds_by_phase": self.seconds_by_phase}


def take_snapshot(settings: Settings, refuse: Callable[[ClusterMetadata], None] = allow_any_cluster) -> TakenSnapshot:
    """Take one snapshot of the cluster, and log what the user should know of it.

    `refuse` may raise an error for the cluster's current state; nothing is written then.
    """
    with settings.connect() as cluster:
        return take_snapshot_of(settings, cluster, refuse)


def take_snapshot_of(
    settings: Settings,
    cluster: Cluster,
    refuse: Callable[[ClusterMetadata], None] = allow_any_cluster,
) -> TakenSnapshot:
    """Take one snapshot, of a cluster that the caller has opened."""
    began = _StartTime()
    phases = Phases()
    with phases.of("read", "reading brokers and the controller"):
        small = _read_driver_metadata(settings, cluster, refuse)
    with phases.of("start", "starting the engine"):
        settings.warehouse.ensure_tables()
        session = _session(settings, tiny=small.tiny)
        tables = SparkWarehouse(session, settings.warehouse, one_task=small.tiny)
    with _exclusive_snapshot(settings.warehouse) as turn:
        if turn.has_waited:  # read again, because ids must follow the order of reading
            began = _StartTime()
            small = _read_driver_metadata(settings, cluster, refuse)
        reading = stage(cluster, tables, small, phases)
        _end_drains(settings.warehouse, reading.metadata)
        row = _write_under_next_id(settings, tables, reading, phases, began=began, turn=turn)
    _warn(reading.metadata, row)
    if vanished := vanished_by(settings.warehouse, row):
        log(f"surveyor: {vanished.sentence}", logging.WARNING)
    if row.snapshot_id == 1 and (names := names_of_cluster(settings.warehouse, row.cluster_id)):
        log(
            f"surveyor: the warehouse has snapshots of this cluster, with id {row.cluster_id}, under another name, "
            f"too: {', '.join(names)}; check the address {settings.address} and --cluster",
            logging.WARNING,
        )
    return TakenSnapshot(row, phases.rounded)


def _read_driver_metadata(
    settings: Settings, cluster: Cluster, refuse: Callable[[ClusterMetadata], None]
) -> DriverMetadata:
    """Read the part for the driver; raise RefusedError if another cluster has the name."""
    small = read_driver_metadata(settings, cluster, refuse)
    refuse_other_cluster_id(settings.warehouse, small.metadata.cluster_id, settings.address)
    return small


@dataclass(frozen=True, slots=True)
class _Turn:
    """The right to write the next snapshot of a cluster."""

    has_waited: bool
    """Whether another process had it, or a vacuum ran, when this process requested it."""
    lease: SnapshotLease | None
    """None in a folder, where locks are held as long as the process exists."""

    def refuse_lost(self) -> None:
        """Raise SnapshotLeaseLostError if another process may be writing a snapshot of the cluster."""
        if self.lease is not None:
            self.lease.refuse_lost()


@contextmanager
def _exclusive_snapshot(warehouse: Warehouse) -> Iterator[_Turn]:
    """Lock out other snapshots of the cluster and, in a folder, vacuums.

    Each table is written as a whole, and the snapshot names the versions that belong together.
    """
    lock_name = f"snapshot of {warehouse.cluster}"
    waiting = f"waiting for another snapshot, started by {holder(warehouse.uri, lock_name)}, or for a vacuum"
    with progress(waiting), ExitStack() as stack:
        waited = [
            stack.enter_context(locked(warehouse.uri, VACUUM, shared=True)),
            stack.enter_context(locked(warehouse.uri, lock_name)),
        ]
        lease = stack.enter_context(leased_snapshot(warehouse, this_process(SNAPSHOT), log))
        held = stack.pop_all()
    with held:
        yield _Turn(any(waited) or (lease is not None and lease.has_waited), lease)


@dataclass(frozen=True, slots=True)
class _StartTime:
    """Start of a snapshot in wall-clock time and by the monotonic clock."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.monotonic)


def _write_under_next_id(
    settings: Settings,
    tables: SparkWarehouse,
    reading: StagedMetadata,
    phases: Phases,
    *,
    began: _StartTime,
    turn: _Turn,
) -> Snapshot:
    """Write the snapshot under the next id; retry if another process that ignores the lock took that id."""
    warehouse = replace(settings.warehouse, refuse_write=turn.refuse_lost)
    tables = replace(tables, warehouse=warehouse)
    while True:
        last = last_snapshot(warehouse)
        last = None if last is None else with_readable_versions(warehouse, last)
        snapshot_id = 1 if last is None else last.snapshot_id + 1
        writer = SnapshotWriter(settings, tables, reading, last, snapshot_id, phases)
        counts = writer.write()
        row = _row(settings, reading, began, writer, counts)
        if warehouse.insert("snapshots", row.columns(), ("snapshot_id", "=", snapshot_id)) is None:
            return row
        log(f"surveyor: another process wrote snapshot {snapshot_id} in the meantime; writing this one again")


def _row(
    settings: Settings, reading: StagedMetadata, began: _StartTime, writer: SnapshotWriter, counts: SnapshotCounts
) -> Snapshot:
    """Return the row of `snapshots`.

    The writer has the versions of the tables that the snapshot wrote or found unchanged. The other tables keep the rows
    of earlier snapshots, so any newer version serves.
    """
    state, warehouse, written = reading.metadata, settings.warehouse, writer.versions
    newest = {name: warehouse.version(name) for name in SPARK_SCHEMAS if name not in written}
    return Snapshot(
        snapshot_id=writer.snapshot_id,
        taken_at=began.at,
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        controller_epoch_version=state.controller_epoch_version,
        zxid_before=state.position,
        zxid_after=reading.position_after,
        **reading.security.counts,
        **counts._asdict(),
        cluster_id=state.cluster_id,
        migration=state.migration,
        metadata_version=state.metadata_version,
        voters=state.voters,
        seconds=round(time.monotonic() - began.clock, 3),
        versions=newest | written,
    )


def _session(settings: Settings, *, tiny: bool) -> SparkSession:
    session = start_session("surveyor snapshot", place=settings.place)
    return with_settings(session, ONE_TASK) if tiny else session


def _end_drains(warehouse: Warehouse, state: ClusterMetadata) -> None:
    ended = remove_expired(warehouse, state.controller_epoch, state.live)
    for line in expired_drain_lines(ended):
        log(line)


def _warn(state: ClusterMetadata, row: Snapshot) -> None:
    if not state.brokers:
        log("surveyor: no broker is registered, so every partition counts as offline", logging.WARNING)
    if state.migration:
        log(f"surveyor: {migration_notice(state.migration)}", logging.WARNING)
    if mixed := mixed_racks(
        {broker.broker_id: broker.rack for broker in state.live_brokers if broker.understood}, state.names
    ):
        log(f"surveyor: {mixed}", logging.WARNING)
    if row.quarantined:
        log(
            f"surveyor: {pluralise(row.quarantined, state.names.entry)} not understood; run `surveyor show quarantine`",
            logging.WARNING,
        )


def snapshot_one(settings: Settings) -> CommandResult:
    """Take one cluster's snapshot, and return what that shows."""
    taken = take_snapshot(settings)
    steps = [suggestion(settings, "see what is due", "status")]
    return CommandResult(taken.json, snapshot_line(settings.cluster, taken), steps=steps)


def snapshot_fleet(settings: Settings, parallel: int | None) -> CommandResult:
    """Take a snapshot of each cluster; the summary has the health that each snapshot shows."""
    return run_on_fleet(settings, parallel, _snapshot_of_member, SNAPSHOT_SUMMARY)


def _snapshot_of_member(settings: Settings) -> CommandResult:
    taken = take_snapshot(settings)
    warehouse = settings.warehouse
    snapshot = find_snapshot(warehouse, taken.row.snapshot_id)
    health = health_at(warehouse, snapshot, settings.conf.imbalance_threshold, drained_brokers(warehouse))
    steps = [suggestion(settings, "see what is due", "status")]
    return CommandResult(taken.json | {"health": msgspec.structs.asdict(figures_of(health))}, steps=steps)


SNAPSHOT_SUMMARY: Final = FleetSummary(
    title="snapshot",
    figures=lambda result: {name: result[name] for name in ("snapshot_id", *COUNT_FIELDS)} | result["health"],
    shown=("snapshot_id", "brokers", "partitions", *FIGURES_SHOWN),
    worst_by=WORST_BY,
)


def snapshot_line(cluster: str, taken: TakenSnapshot) -> str:
    """Return a one-line summary of a snapshot.

    >>> counts = {"brokers": 3, "topics": 2, "partitions": 60, "quarantined": 0}
    >>> control = {"controller_id": -1, "controller_epoch": 7}
    >>> row = Snapshot(snapshot_id=4, taken_at=datetime.min, **counts, **control, seconds=5.04)
    >>> snapshot_line("east", TakenSnapshot(row, {"read": 0.71, "write": 1.23}))
    'snapshot 4 of east: 3 brokers, 2 topics, 60 partitions, 0 quarantined; no controller, epoch 7; 5.0 s (read 0.7, \
write 1.2)'
    """
    row = taken.row
    *counts, quarantined = (getattr(row, name) for name in COUNT_FIELDS)
    items = [pluralise(count, name.removesuffix("s")) for count, name in zip(counts, COUNT_FIELDS, strict=False)]
    phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in taken.seconds_by_phase.items())
    return (
        f"snapshot {row.snapshot_id} of {cluster}: {', '.join(items)}, {quarantined} quarantined; "
        f"{_controller(row.controller_id)}, epoch {row.controller_epoch}; {row.seconds:.1f} s ({phases})"
    )


def _controller(controller_id: int | None) -> str:
    """Format the controller id.

    >>> _controller(2), _controller(None)
    ('controller 2', 'controller unreadable')
    """
    return CONTROLLER_PLACEHOLDERS.get(controller_id, f"controller {controller_id}")
