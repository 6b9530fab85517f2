"""The cluster as it is, read from ZooKeeper and the brokers into the Delta tables.

The row in `snapshots` comes last and names the version of each table that belongs to it, so a crash anywhere leaves
the last complete snapshot what it was.
"""

import time
from datetime import UTC, datetime

from jobs.adapters.delta.spark_tables import Tables
from jobs.adapters.spark.session import start_session
from jobs.adapters.zookeeper.cluster import ClusterState
from jobs.basics.errors import ExitCode, SurveyorError, UsageError
from jobs.records.drained import strike_out_ended
from jobs.records.snapshots import last_snapshot
from jobs.runtime.console import Phases, Result, finish, say
from jobs.runtime.options import unexpected
from jobs.runtime.settings import Settings
from jobs.survey.reading import read_all, read_small
from jobs.survey.writing import Writer
from schemas.names import NO_CONTROLLER
from schemas.tables import TABLES

SHOWN = ("snapshot_id", "controller_id", "controller_epoch", "zxid_before", "zxid_after", "seconds")


def take_snapshot(settings: Settings) -> Result:
    """Take one snapshot of the cluster; return its id, its counts, and the seconds it took by phase."""
    started, taken_at = time.monotonic(), datetime.now(UTC)
    phases = Phases()
    with phases.of("read", "reading brokers and the controller"):
        small = read_small(settings)
    with phases.of("start", "starting Spark"):
        settings.lake.ensure_tables()
        tables = Tables(start_session("surveyor snapshot"), settings.lake)
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


def snapshot_one(settings: Settings) -> ExitCode:
    """Take one cluster's snapshot and show it."""
    result = take_snapshot(settings)
    finish(settings, result, summary(settings.cluster, result))
    return ExitCode.DONE


def snapshot_fleet(settings: Settings) -> ExitCode:
    """Take each cluster's snapshot; one that fails is reported and spoils no other."""
    if not settings.fleet:
        raise UsageError("--all takes the clusters of the --conf file; give one with [clusters.NAME] sections")
    results = {cluster.cluster: _take_or_report(cluster) for cluster in settings.fleet}
    failed = [result for result in results.values() if "error" in result]
    said = (summary(name, result) for name, result in results.items() if "error" not in result)
    finish(settings, {"clusters": results, "failed": len(failed)}, *said)
    if len(failed) == len(results):
        return ExitCode(failed[0]["exit_code"])
    return ExitCode.ERROR if failed else ExitCode.DONE


def _take_or_report(settings: Settings) -> Result:
    """Take one cluster's snapshot; whatever goes wrong with it is said and spoils no other."""
    try:
        return take_snapshot(settings)
    except Exception as error:  # noqa: BLE001 - the other clusters must have their turn
        said = str(error) if isinstance(error, SurveyorError) else unexpected(error)
        say(f"surveyor: {settings.cluster}: {said}")
        return {"error": said, "exit_code": int(getattr(error, "exit_code", ExitCode.ERROR))}


def summary(cluster: str, result: Result) -> str:
    """Say in a line what was found."""
    counts = ", ".join(f"{result[name]} {name}" for name in ("brokers", "topics", "partitions", "quarantined"))
    controller = result["controller_id"]
    known = {NO_CONTROLLER: "no controller", None: "a controller not understood"}
    who = known.get(controller, f"controller {controller}")
    phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in result["seconds_by_phase"].items())
    return (
        f"snapshot {result['snapshot_id']} of {cluster}: {counts}; "
        f"{who}, epoch {result['controller_epoch']}; {result['seconds']:.1f} s ({phases})"
    )
