"""Writes a snapshot: compares what was read with the last complete snapshot and writes only the difference.

The history is written before the table `partitions`. After a crash in between, the next snapshot detects the history
rows of an id that was never completed. The snapshot names the versions that it wrote or found unchanged itself, and not
the newest ones, which another process may have written.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import AnyRow, columns_of
from jobs.adapters.spark.session import task_progress
from jobs.core.arrow_rows import as_rows, values_of
from jobs.repositories.brokers_last_seen import last_seen_after
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import as_of, table_as_of
from jobs.runtime.progress import Phases
from jobs.runtime.settings import Settings
from jobs.snapshots.reader import StagedMetadata
from planner.columns.derived_columns import absent_brokers, derive_partitions
from planner.columns.shape import with_schema
from planner.history.events import (
    as_events,
    broker_events,
    controller_events,
    partition_events,
    request_events,
    topic_events,
    topic_id_events,
)
from planner.history.snapshot_diff import (
    changed_cells,
    difference,
    filter_cells,
    has_changed,
    join_versions,
    keep_last_understood,
    resized_topics,
    with_snapshot_id,
)
from planner.leadership.imbalance import imbalance
from schemas.enums import RequestKind
from schemas.rows import LastSeenBroker, Row, Snapshot
from schemas.tables import PARTITION_KEY, PARTITIONS, SPARK_SCHEMAS, TOPICS

VANISHED = "vanished"

MAX_BROADCAST_ROWS = 500_000
"""Number of changed cells or partitions up to which their keys are broadcast instead of sorting all rows."""

MAX_MERGE_SHARE = 0.001
"""Share of changed partitions up to which a MERGE is used; above it most files contain a change anyway."""


class SnapshotCounts(NamedTuple):
    """Figures of a snapshot: columns of SNAPSHOTS."""

    brokers: int
    topics: int
    partitions: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """Changes since a snapshot: partitions before and now, the rows to write, and their number."""

    pairs: DataFrame
    rows: DataFrame
    count: int
    changed: int
    """Number of rows with a changed partition; in the others only the version of the topic znode changed."""

    def history(self, snapshot_id: int) -> DataFrame:
        """Return the rows with a changed partition, which go to the history."""
        return self.rows.where(F.col("snapshot_id") == snapshot_id)


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Writes the tables of one snapshot; `tables` refuse writes once another process may write a snapshot."""

    settings: Settings
    tables: SparkWarehouse
    reading: StagedMetadata
    last: Snapshot | None
    snapshot_id: int
    phases: Phases
    versions: dict[str, int] = field(default_factory=dict)
    """The version of each table that has the cluster's rows of this snapshot."""
    _rows_before: dict[str, list[Row]] = field(default_factory=dict)
    """Rows of small tables at the last complete snapshot, of those that were read."""

    @property
    def own_rows(self) -> str:
        return f"snapshot_id = {self.snapshot_id}"

    def write(self) -> SnapshotCounts:
        """Write every table except `snapshots`; return the counts."""
        tasks = partial(task_progress, self.tables.spark)
        with self.phases.of("difference", "comparing with the last snapshot", tasks):
            now = self.current()
            change = None if self.last is None else self.changed_since(self.before(), now)
        with self.phases.of("write", "writing", tasks):
            self.write_small()
            topics = self.write_topics(now.topics)
            partitions = self.count(now)
            self.write_partitions(now, change, partitions)
            self.write_imbalance(now)
            self.write_events(now, change, topics)
        return SnapshotCounts(
            brokers=len(self.reading.metadata.brokers),
            topics=self.reading.counts.get("topic", 0),
            partitions=partitions,
            quarantined=len(self.reading.metadata.quarantine) + len(self.reading.quarantine),
        )

    def count(self, now: "CurrentTables") -> int:
        """Count the partitions; those kept for topics in quarantine were not counted while reading."""
        return now.partitions.count() if self.reading.quarantine else self.reading.counts.get("partition", 0)

    def current(self) -> "CurrentTables":
        tables, reading = self.tables, self.reading
        brokers = tables.frame("brokers", reading.metadata.live_brokers)
        configs = tables.frame("broker_configs", reading.broker_configs)
        topics = self.topics().localCheckpoint()
        partitions = self.partitions_read(topics)
        return CurrentTables(partitions, topics, absent_brokers(partitions, brokers).localCheckpoint(), configs)

    def topics(self) -> DataFrame:
        queued = [row for row in self.reading.metadata.requests if row.kind == RequestKind.DELETE_TOPIC]
        deleting = self.tables.frame("requests", queued).select("topic", F.lit(True).alias("queued"))  # noqa: FBT003
        return (
            self.reading.rows_of_kind("topic")
            .join(F.broadcast(deleting), "topic", "left")
            .withColumns(
                {
                    "cluster": F.lit(self.tables.warehouse.cluster),
                    "snapshot_id": F.lit(self.snapshot_id).cast("bigint"),
                    "deletion_requested": F.coalesce("queued", F.lit(False)),  # noqa: FBT003
                },
            )
            .transform(with_schema, TOPICS)
        )

    def partitions_read(self, topics: DataFrame) -> DataFrame:
        """Return all partitions as read; those that cannot be decoded keep their last state."""
        cluster = {"cluster": F.lit(self.tables.warehouse.cluster)}
        partitions = self.reading.rows_of_kind("partition").withColumns(cluster).transform(with_schema, PARTITIONS)
        if not self.reading.quarantine:
            return partitions
        return partitions.transform(keep_last_understood, topics, self.before()).localCheckpoint()

    def before(self) -> DataFrame:
        """Return the partitions of the last complete snapshot."""
        if self.last is None:
            return self.tables.frame("partitions", [])
        return self.previous("partitions")

    def previous(self, table: str) -> DataFrame:
        """Return a table at the last complete snapshot."""
        assert self.last is not None  # noqa: S101 - for the type checker; callers ensure it
        return SnapshotTables(self.tables, self.last)[table]

    def written_since_last_snapshot(self, table: str) -> bool:
        """Return whether the cluster's rows were written after the last complete snapshot, as by a killed snapshot.

        OPTIMIZE also counts, although it changes no row; the comparison is then redundant. If no row was written, the
        new snapshot names the examined version, unless it writes the table after all. If it named the version of the
        last snapshot, the log of other clusters in a fleet could not be cleaned.
        """
        assert self.last is not None  # noqa: S101 - as above
        version = self.tables.warehouse.version_if_unchanged(table, self.last.versions[table])
        if version is not None:
            self.versions[table] = version
        return version is None

    def changed_since(self, before: DataFrame, now: "CurrentTables") -> PartitionDiff | None:
        """Return the changes relative to the partitions `before`, or None."""
        cells = changed_cells(now.derived(now.partitions), before).localCheckpoint()
        count = cells.count()
        if not count:
            return None
        few = F.broadcast(cells) if count <= MAX_BROADCAST_ROWS else cells
        old, new = (rows.transform(filter_cells, few) for rows in (before, now.partitions))
        # Sail 0.7 keeps no struct with a field that became nullable, so the rows are kept before they become structs
        pairs = join_versions(old, now.derived(new).localCheckpoint()).localCheckpoint()
        counts = pairs.agg(F.count("*").alias("all"), F.count_if(has_changed()).alias("changed")).collect()[0]
        return PartitionDiff(pairs, difference(pairs, self.snapshot_id), counts["all"], counts["changed"])

    def write_small(self) -> None:
        """Write the small tables that changed, so that snapshots without changes add no versions to keep."""
        state = self.reading.metadata
        quarantine = [*state.quarantine, *self.reading.quarantine]
        for name, rows in (
            ("brokers", state.brokers),
            ("broker_configs", self.reading.broker_configs),
            ("requests", state.requests),
            ("security", self.reading.security.entries),
            ("quarantine", quarantine),
        ):
            if self.last is None or self.has_changed(name, rows, self.last):
                stamped_rows = [{**columns_of(row), "snapshot_id": self.snapshot_id} for row in rows]
                self.versions[name] = self.tables.warehouse.replace(name, stamped_rows)
        self.write_last_seen()

    def has_changed(self, table: str, rows: Iterable[AnyRow], last: Snapshot) -> bool:
        """Return whether the rows of a small table differ, or may differ, from the last complete snapshot's rows."""
        if table not in last.versions or self.written_since_last_snapshot(table):
            return True
        return comparable(table, rows) != comparable(table, self.rows_before(table, last))

    def rows_before(self, table: str, last: Snapshot) -> list[Row]:
        """Return the rows of a small table at the last complete snapshot; each table is read once."""
        if table not in self._rows_before:
            self._rows_before[table] = as_of(self.tables.warehouse, last, table)
        return self._rows_before[table]

    def write_last_seen(self) -> None:
        """Write the last registration of brokers that are unregistered or cannot be decoded."""
        warehouse, last = self.tables.warehouse, self.last
        if last is None:
            return
        rows = last_seen_after(warehouse, last, self.reading.metadata.brokers)
        if self.has_changed(LastSeenBroker.TABLE, rows, last):
            self.versions[LastSeenBroker.TABLE] = warehouse.replace(LastSeenBroker.TABLE, rows)

    def write_topics(self, topics: DataFrame) -> pa.Table:
        """Write the topics if they changed; return them."""
        rows = self.tables.collect_arrow("topics", topics)
        if self.last is None or self.written_since_last_snapshot("topics") or self.topics_differ(self.last, rows):
            self.versions["topics"] = self.tables.warehouse.replace_by("topics", rows)
        return rows

    def topics_differ(self, last: Snapshot, new: pa.Table) -> bool:
        """Return whether any topic's row changed, apart from `snapshot_id`.

        Columns are compared one by one, because tables with the same rows differ if a column may be null in one only.
        """
        old = table_as_of(self.tables.warehouse, last, "topics")
        then, now = (rows.drop_columns("snapshot_id").sort_by("topic") for rows in (old, new))
        return not all(name in then.column_names and then[name].equals(now[name]) for name in now.column_names)

    def write_partitions(self, now: "CurrentTables", change: PartitionDiff | None, count: int) -> None:
        """Write the changes to the history, then to the table `partitions` of `count` rows."""
        tables = self.tables
        if self.last is None:
            rows = now.derived(now.partitions).transform(with_snapshot_id, self.snapshot_id)
            version = self.versions["partitions"] = tables.replace_counted("partitions", rows, count)
            tables.copy("partitions", version, "partition_history")
            return
        changed = change.changed if change else 0
        if changed or self.written_since_last_snapshot("partition_history"):
            rows = change.history(self.snapshot_id) if change else tables.frame("partitions", [])
            tables.replace_counted("partition_history", rows, changed, f"snapshot_id >= {self.snapshot_id}")
        if self.written_since_last_snapshot("partitions"):
            newest = self.versions["partitions"] = tables.warehouse.version("partitions")
            change = self.changed_since(tables.read("partitions", newest), now)
        if change:
            self.versions["partitions"] = self.update_partitions(change, count)

    def update_partitions(self, change: PartitionDiff, count: int) -> int:
        """Apply the changes to the table `partitions`; return the version that has them."""
        tables = self.tables
        if change.count <= count * MAX_MERGE_SHARE:
            return tables.merge("partitions", change.rows, PARTITION_KEY, VANISHED)
        rows = tables.collect_arrow("partitions", change.rows)
        kept = rows.filter(~pc.field("vanished"))
        return tables.warehouse.replace_streaming("partitions", rows, kept, PARTITION_KEY)

    def write_imbalance(self, now: "CurrentTables") -> None:
        skew = imbalance(now.partitions, now.topics, self.snapshot_id, self.settings.conf.imbalance_threshold)
        rows = [row.asDict() for row in skew.collect()]
        self.tables.warehouse.replace("imbalance", rows, self.own_rows)

    def write_events(self, now: "CurrentTables", change: PartitionDiff | None, topics: pa.Table) -> None:
        """Write the events since the last complete snapshot."""
        events: list[DataFrame] = []
        if self.last is not None:
            events += [*self.small_events(self.last), *self.topic_id_events(self.last, topics)]
            events += self.partition_events(now, change)
        if events:
            self.tables.replace_counted(
                "events", as_events(events, self.snapshot_id), change.count if change else 0, self.own_rows
            )
        else:
            self.tables.warehouse.replace("events", [], self.own_rows)

    def small_events(self, last: Snapshot) -> Iterator[DataFrame]:
        """Return events of brokers, requests and the controller; unchanged tables start no Spark job."""
        state, frame = self.reading.metadata, self.tables.frame
        for table, rows, events in (
            ("brokers", state.live_brokers, broker_events),
            ("requests", state.requests, request_events),
        ):
            old = [row for row in self.rows_before(table, last) if not row.get("fenced")]
            if comparable(table, old) != comparable(table, rows):
                yield events(frame(table, old), frame(table, rows))
        before = {name: last.columns()[name] for name in state.control}
        if before != state.control:
            yield controller_events(frame("snapshots", [before]), frame("snapshots", [state.control]))

    def topic_id_events(self, last: Snapshot, topics: pa.Table) -> Iterator[DataFrame]:
        """Return events of topics whose id changed."""
        columns = ["cluster", "topic", "topic_id", "understood"]
        tables = table_as_of(self.tables.warehouse, last, "topics", columns=columns), topics.select(columns)
        before, after = (dict(values_of(table, "topic", "topic_id")) for table in tables)
        names = [name for name in before.keys() & after.keys() if before[name] != after[name]]
        if names:
            changed = (table.filter(pc.is_in(table["topic"].cast(pa.string()), pa.array(names))) for table in tables)
            frames = (self.tables.frame("topics", as_rows(table.sort_by("topic"))) for table in changed)
            yield topic_id_events(*frames)

    def partition_events(self, now: "CurrentTables", change: PartitionDiff | None) -> Iterator[DataFrame]:
        if change is None:
            return
        yield partition_events(change.pairs)
        resized = resized_topics(change.pairs).localCheckpoint()
        if not resized.isEmpty():
            few = F.broadcast(resized)
            yield topic_events(*(rows.join(few, "topic", "left_semi") for rows in (self.before(), now.partitions)))


@dataclass(frozen=True, slots=True)
class CurrentTables:
    """The current cluster as DataFrames; `partitions` are as read, without derived columns."""

    partitions: DataFrame
    topics: DataFrame
    absent: DataFrame
    broker_configs: DataFrame

    def derived(self, partitions: DataFrame) -> DataFrame:
        return derive_partitions(partitions, self.topics, self.absent, self.broker_configs)


def comparable(table: str, rows: Iterable[AnyRow]) -> list[str]:
    """Return comparable texts of rows, without cluster and snapshot id, in sorted order."""
    names = [name for name in SPARK_SCHEMAS[table].names if name not in {"cluster", "snapshot_id"}]
    return sorted(repr([row.get(name) for name in names]) for row in map(columns_of, rows))
