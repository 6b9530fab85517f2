"""The cluster as it is, read from ZooKeeper and the brokers into the Delta tables.

The row in `snapshots` comes last and names the version of each table that belongs to it, so a crash anywhere leaves
the last complete snapshot what it was.
"""

import time
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from jobs.adapters.delta.spark_tables import Tables
from jobs.adapters.spark.session import INTERPRETED, start_session, with_settings
from jobs.adapters.zookeeper.cluster import ClusterState
from jobs.records.drained import strike_out_ended
from jobs.records.snapshots import last_snapshot
from jobs.runtime.console import Phases, Result, say
from jobs.runtime.settings import Settings
from jobs.survey.reading import read_all, read_small
from jobs.survey.writing import Writer
from schemas.tables import TABLES

SHOWN = ("snapshot_id", "controller_id", "controller_epoch", "zxid_before", "zxid_after", "seconds")


def take_snapshot(settings: Settings, *, alone: bool = True) -> Result:
    """Take one snapshot of the cluster; return its id, its counts, and the seconds it took by phase.

    `alone`: no other cluster, which may be larger, comes after it in this process.
    """
    started, taken_at = time.monotonic(), datetime.now(UTC)
    phases = Phases()
    with phases.of("read", "reading brokers and the controller"):
        small = read_small(settings)
    with phases.of("start", "starting Spark"):
        settings.lake.ensure_tables()
        tables = Tables(_session(tiny=small.tiny, alone=alone), settings.lake)
    reading = read_all(settings, tables, small, phases)
    last = last_snapshot(settings.lake)
    snapshot_id = 1 if last is None else last["snapshot_id"] + 1
    counts = Writer(settings, tables, reading, last, snapshot_id, phases).write()
    state = reading.state
    _end_drains(settings, state)
    row: Result = {
        "snapshot_id": snapshot_id,
        "taken_at": taken_at,
        **reading.state.control,
        "controller_epoch_version": state.epoch_version,
        "zxid_before": state.zxid,
        "zxid_after": reading.zxid_after,
        "cluster_id": state.cluster_id,
        "migration": state.migration,
        "seconds": round(time.monotonic() - started, 3),
        "versions": {name: settings.lake.version(name) for name in TABLES},
        **counts,
    }
    settings.lake.replace("snapshots", [row], f"snapshot_id = {snapshot_id}")
    _warn(state, counts)
    return {name: row[name] for name in SHOWN} | counts | {"seconds_by_phase": phases.rounded}


def _session(*, tiny: bool, alone: bool) -> SparkSession:
    session = start_session("surveyor snapshot", short_lived=tiny and alone)
    return with_settings(session, INTERPRETED) if tiny else session


def _end_drains(settings: Settings, state: ClusterState) -> None:
    ended = strike_out_ended(settings.lake, state.control["controller_epoch"])
    if ended:
        who = ", ".join(map(str, ended))
        say(f"surveyor: drained in resident mode no more: {who}; another controller took over and starts the replicas")


def _warn(state: ClusterState, counts: dict[str, int]) -> None:
    if not state.brokers:
        say("surveyor: no broker is registered in /brokers/ids: every partition counts as offline")
    if state.migration:
        say(f"surveyor: a migration to KRaft is in sight ({state.migration}): plans and commits will be refused")
    if counts["quarantined"]:
        say(f"surveyor: {counts['quarantined']} znodes were not understood: `surveyor show quarantine`")
