"""Snapshot: the cluster as it is, read from ZooKeeper into the Delta tables.

What is small is read by the driver, topics and partitions by Spark's executors. The reading is staged once, compared
with the rows of the last complete snapshot, and only the difference is written. The row in `snapshots` comes last and
names the version of each table that belongs to it, so a crash anywhere leaves the last complete snapshot what it was.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.cluster import ClusterState, read_cluster
from jobs.adapters.delta import Tables
from jobs.adapters.lake import Row
from jobs.adapters.spark import start_session
from jobs.adapters.zookeeper import connected, sync
from jobs.adapters.zookeeper_source import ZooKeeperDataSource
from jobs.console import Result, finish, progress, say
from jobs.options import command, run_alone
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables, last_snapshot
from planner.derived import derive_partitions
from planner.events import (
    as_events,
    broker_events,
    controller_events,
    partition_events,
    request_events,
    topic_events,
)
from planner.imbalance import imbalance
from planner.survey import difference, keep_last_understood
from schemas.names import PartitionState, RequestKind
from schemas.tables import PARTITIONS, TABLES, TOPICS

VANISHED = f"partition_state = '{PartitionState.NON_EXISTENT}'"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: the driver's part, and the executors' staged rows."""

    before: ClusterState
    staged: DataFrame
    after_zxid: int

    def of(self, kind: str) -> DataFrame:
        return self.staged.where(F.col("kind") == kind)


def take_snapshot(settings: Settings) -> Result:
    """Take one snapshot of the cluster; return its id and counts."""
    started, taken_at = time.monotonic(), datetime.now(UTC)
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
    lake = settings.lake
    lake.ensure_tables()
    last = last_snapshot(lake)
    snapshot_id = 1 if last is None else last["snapshot_id"] + 1
    with progress("starting Spark"):
        tables = Tables(start_session("surveyor snapshot"), lake)
    with progress("reading topics and partitions"):
        reading = _read(settings, tables, state)
    with progress("writing"):
        counts = _write(settings, tables, reading, last, snapshot_id)
    row: Row = {
        "snapshot_id": snapshot_id,
        "taken_at": taken_at,
        "controller_id": state.controller.broker_id,
        "controller_epoch": state.epoch,
        "controller_epoch_version": state.epoch_version,
        "zxid_before": state.zxid,
        "zxid_after": reading.after_zxid,
        "cluster_id": state.cluster_id,
        "migration": state.migration,
        "seconds": round(time.monotonic() - started, 3),
        "versions": {name: lake.version(name) for name in TABLES},
        **counts,
    }
    lake.replace("snapshots", [row], f"snapshot_id = {snapshot_id}")
    _warn(state, counts)
    shown = ("snapshot_id", "controller_id", "controller_epoch", "zxid_before", "zxid_after", "seconds")
    return {name: row[name] for name in shown} | counts


def _read(settings: Settings, tables: Tables, state: ClusterState) -> Reading:
    tables.spark.dataSource.register(ZooKeeperDataSource)
    source = tables.spark.read.format("zookeeper").option("zookeeper", settings.zookeeper)
    staged = source.load().localCheckpoint()  # read once: a second reading would see another moment
    with connected(settings.zookeeper) as client:
        sync(client)
        return Reading(state, staged, client.last_zxid)


def _write(
    settings: Settings,
    tables: Tables,
    reading: Reading,
    last: Row | None,
    snapshot_id: int,
) -> dict[str, int]:
    lake, state = tables.lake, reading.before
    stamped = {"snapshot_id": snapshot_id}
    quarantine = [row.asDict() for row in reading.of("quarantine").select("path", "data", "reason").collect()]
    for name, rows in (
        ("brokers", state.brokers),
        ("requests", state.requests),
        ("quarantine", [*state.quarantine, *quarantine]),
    ):
        lake.replace(name, [{**row, **stamped} for row in rows])
    topics = _topics(tables, reading, snapshot_id).localCheckpoint()
    tables.replace("topics", topics)
    partitions = _write_partitions(tables, reading, topics, last, snapshot_id)
    mine = f"snapshot_id = {snapshot_id}"
    skew = imbalance(partitions, topics, snapshot_id, settings.conf.imbalance_threshold)
    lake.replace("imbalance", [row.asDict() for row in skew.collect()], mine)
    if last is not None:
        tables.replace("events", _events(tables, state, last, partitions, snapshot_id), mine)
    return {
        "brokers": len(state.brokers),
        "topics": topics.count(),
        "partitions": partitions.count(),
        "quarantined": len(state.quarantine) + len(quarantine),
    }


def _events(
    tables: Tables,
    state: ClusterState,
    last: Row,
    partitions: DataFrame,
    snapshot_id: int,
) -> DataFrame:
    """What happened since the last complete snapshot."""
    was = SnapshotTables(tables, last)
    control = {"controller_id": state.controller.broker_id, "controller_epoch": state.epoch}
    found = [
        broker_events(was["brokers"], tables.frame("brokers", state.brokers)),
        request_events(was["requests"], tables.frame("requests", state.requests)),
        topic_events(was["partitions"], partitions),
        partition_events(was["partitions"], partitions),
        controller_events(tables.frame("snapshots", [last]), tables.frame("snapshots", [control])),
    ]
    return as_events(found, snapshot_id)


def _topics(tables: Tables, reading: Reading, snapshot_id: int) -> DataFrame:
    queued = [row for row in reading.before.requests if row["kind"] == RequestKind.DELETE_TOPIC]
    deleting = tables.frame("requests", queued).select("topic", F.lit(True).alias("queued"))  # noqa: FBT003
    return (
        reading.of("topic")
        .join(F.broadcast(deleting), "topic", "left")
        .withColumns(
            {
                "cluster": F.lit(tables.lake.cluster),
                "snapshot_id": F.lit(snapshot_id).cast("bigint"),
                "deletion_requested": F.coalesce("queued", F.lit(False)),  # noqa: FBT003
            },
        )
        .to(TOPICS)
    )


def _write_partitions(
    tables: Tables,
    reading: Reading,
    topics: DataFrame,
    last: Row | None,
    snapshot_id: int,
) -> DataFrame:
    """Write what differs from the last complete snapshot to the history, and from the table to the table."""
    found = reading.of("partition").withColumns({"cluster": F.lit(tables.lake.cluster)}).to(PARTITIONS)
    newest = tables.lake.version("partitions")
    complete = newest if last is None else last["versions"]["partitions"]
    before = tables.read("partitions", complete)
    brokers, configs = tables.frame("brokers", reading.before.brokers), tables.read("broker_configs")
    now = (
        keep_last_understood(found, topics, before)
        .transform(derive_partitions, topics, brokers, configs)
        .localCheckpoint()
    )
    changed = difference(now, before, snapshot_id).localCheckpoint()
    tables.replace("partition_history", changed, f"snapshot_id = {snapshot_id}")
    if newest != complete:  # a crashed snapshot, or another cluster's, wrote since
        changed = difference(now, tables.read("partitions", newest), snapshot_id).localCheckpoint()
    tables.merge("partitions", changed, ("topic", "partition"), VANISHED)
    return now


def _warn(state: ClusterState, counts: dict[str, int]) -> None:
    if not state.brokers:
        say("surveyor: no broker is registered in /brokers/ids: every partition counts as offline")
    if state.migration:
        say(f"surveyor: a migration to KRaft is in sight ({state.migration}): plans and commits will be refused")
    if counts["quarantined"]:
        say(f"surveyor: {counts['quarantined']} znodes were not understood: `surveyor show quarantine`")


@command
def snapshot(settings: Settings) -> None:
    """Read the cluster from ZooKeeper into the Delta tables."""
    result = take_snapshot(settings)
    finish(settings, result, summary(settings.cluster, result))


def summary(cluster: str, result: Result) -> str:
    """Say in a line what was found."""
    counts = ", ".join(f"{result[name]} {name}" for name in ("brokers", "topics", "partitions", "quarantined"))
    who = "no controller" if result["controller_id"] < 0 else f"controller {result['controller_id']}"
    return (
        f"snapshot {result['snapshot_id']} of {cluster}: {counts}; "
        f"{who}, epoch {result['controller_epoch']}; {result['seconds']:.1f} s"
    )


if __name__ == "__main__":
    run_alone(snapshot)
