"""The tables of a snapshot as plans read them, with drain modes, failed log dirs, pending requests and lost states.

In addition to the snapshot a plan reads the current drained brokers and the replicas whose log dir failed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.repositories.broker_responses import failed_replicas
from jobs.repositories.racks import Racks
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of, topics_before, with_age
from planner.columns.broker_sets import with_drained, with_failed
from planner.history.lost_states import filter_same_topic, last_known_states
from planner.reassignment.pending_requests import with_requests
from schemas.enums import RequestKind
from schemas.rows import Broker, DrainedBroker, LastSeenBroker, Partition, ZnodeRequest
from schemas.text import broker_list


class Registered(NamedTuple):
    """The brokers that are live now, and the name of the place that says so."""

    medium: str
    live: frozenset[int]


@dataclass(frozen=True, slots=True)
class PlanningTables(SnapshotTables):
    """The tables of a snapshot; brokers with their current drain mode, partitions with failed log dirs."""

    racks: Racks = field(default_factory=Racks)
    """The racks at the snapshot; the tables have their names too."""
    registered_now: Callable[[], Registered | None] = lambda: None
    """Reads which brokers are live now; returns None if that is unknown."""
    disk_limits: Callable[[Collection[int]], dict[int, float]] = lambda _: {}
    """Reads the bytes that brokers may hold, without those of unknown capacity."""

    def __getitem__(self, table: str) -> DataFrame:
        rows = SnapshotTables.__getitem__(self, table)
        if table in {Broker.TABLE, LastSeenBroker.TABLE} and self.racks.name_of:
            names = (F.when(F.col("rack") == rack, F.lit(name)) for rack, name in self.racks.name_of.items())
            rows = rows.withColumns({"rack": F.coalesce(*names, "rack")})
        if table == "brokers":
            drained = self.warehouse.typed_rows(DrainedBroker)
            return with_drained(rows, self.spark_warehouse.frame("drained", drained)) if drained else rows
        if table == "partitions":
            failed = failed_replicas(self.warehouse, self.snapshot)
            return with_failed(rows, self.spark_warehouse.frame("answers", failed)) if failed else rows
        return rows

    def live_brokers(self) -> list[Broker]:
        """Return the live brokers at the snapshot, with one name for each rack."""
        rows = live_brokers_as_of(self.warehouse, self.snapshot)
        return [replace(row, rack=self.racks.rack_of.get(row.broker_id)) for row in rows]


def since_snapshot(tables: PlanningTables, missing: Collection[int]) -> str:
    """Return the age of a snapshot in which brokers are not live, whether they are now, and what helps."""
    now = tables.registered_now()
    if now is None:
        return tables.age_hint
    if joined := now.live.intersection(missing):
        again = "plan again" if tables.is_new else "add --refresh"
        return f"{with_age(tables.snapshot)}, and {broker_list(sorted(joined))} joined since: {again}"
    absent = f"{broker_list(sorted(missing))} {'is' if len(missing) == 1 else 'are'}"
    return (
        f"{with_age(tables.snapshot)}, and {absent} not live now either ({now.medium}): start what is down, or correct "
        "the ids"
    )


def vanished_states(tables: SnapshotTables, stateless: DataFrame) -> DataFrame:
    """Return the last known states of these partitions, if they had one before under the same topic."""
    until = F.col("snapshot_id") <= tables.snapshot.snapshot_id
    last_states = last_known_states(
        stateless, tables.spark_warehouse.read("partition_history").where(until)
    ).localCheckpoint()
    turns = sorted(gone for (gone,) in last_states.select("gone").distinct().collect() if gone is not None)
    topics = [(turn, row) for turn in turns for row in topics_before(tables.warehouse, turn).values()]
    ids = tables.spark_warehouse.spark.createDataFrame(
        [(row.topic, turn, row.topic_id, row.topic_version) for turn, row in topics],
        "topic string, gone bigint, id_then string, version_then int",
    )
    return filter_same_topic(last_states, ids).localCheckpoint()


def requests_of(tables: SnapshotTables) -> list[ZnodeRequest]:
    """Return the reassignments requested in /admin of a snapshot, as rows of REQUESTS.

    A request for the replicas that a partition already has is left out; it remains in /admin until a controller starts.
    """
    requests = rows_as_of(tables.warehouse, tables.snapshot, ZnodeRequest, ("kind", "=", RequestKind.REASSIGN.value))
    if not requests:
        return []
    topics = ("topic", "in", sorted({row.key[0] for row in requests}))
    rows = rows_as_of(tables.warehouse, tables.snapshot, Partition, topics)
    held = {row.key: row.replicas for row in rows}
    return [row for row in requests if held.get(row.key) != row.replicas]


def partitions_with_requests(tables: SnapshotTables) -> DataFrame:
    """Return the partitions of a snapshot with the requested replicas of each."""
    requests = requests_of(tables)
    partitions = tables["partitions"]
    return (
        partitions.transform(with_requests, tables.spark_warehouse.frame("requests", requests))
        if requests
        else partitions
    )
