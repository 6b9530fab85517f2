"""Checks of the environment: this machine, the warehouse, and the cluster. The only JVM started is `java -version`.

Nothing is changed, except that a folder and a znode are created and deleted at once, to find out whether the warehouse
is writable and which time ZooKeeper has. The checks are independent; a check that fails names the remedy, and checks
that depend on a missing result are left out. Results are in the order in which things are needed. In a KRaft cluster
`jobs.checks.kraft_checks` examines the brokers; this module examines ZooKeeper and the brokers registered in it.
"""

import platform
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import read_properties, require_credentials
from jobs.adapters.brokers.connection import unreachable_reasons
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.store_check import require_conditional_writes
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import existing_folder, is_local, refuse_unwritable
from jobs.adapters.java.home import find_java, java_version
from jobs.adapters.java.jars import cache_folder, incomplete_spark_jars, missing_spark_jars
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.zookeeper.broker_overrides import read_overrides
from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import sync
from jobs.adapters.zookeeper.doctor_probes import server_time, unwritable_paths
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.lease_znode import lease_refusal
from jobs.adapters.zookeeper.state_epochs import latest_epoch_of_states
from jobs.adapters.zookeeper.znode_reads import read
from jobs.advice.next_steps import BLOCKING_SHOWN, repair_suggestion
from jobs.checks.check_results import CheckResult, Checks, CheckStatus, run_guarded
from jobs.checks.cluster_checks import (
    CLOCK_WARNING_SECONDS,
    SET_CLOCK,
    clock_skew,
    history_results,
    missing_brokers,
    quarantine_advice,
    rack_result,
    remedies,
    returned_configs,
    see_status,
)
from jobs.checks.kraft_checks import check_kraft
from jobs.core.errors import SurveyorError, UsageError
from jobs.core.migration_refusal import DURING_MIGRATION, is_started, migration_refusal
from jobs.core.option_sources import ZOOKEEPER, ZOOKEEPER_CONFIG, option_name
from jobs.core.units import format_bytes
from jobs.repositories.controller_epochs import epoch_regression_message, latest_recorded_epoch
from jobs.repositories.foreign_changes import foreign_changes
from jobs.repositories.warehouse_status import warehouse_status_if_readable
from jobs.runtime.pace import Clock
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, with_full_command, with_full_commands
from jobs.snapshots.cluster_view import view_now
from jobs.snapshots.health import health_of
from schemas.broker_config_defaults import KAFKA_DEFAULTS, Overrides
from schemas.broker_config_names import CONTROL_PLANE_LISTENER, PROTOCOL_VERSION
from schemas.columns import SCHEMA_VERSION
from schemas.enums import NO_CONTROLLER
from schemas.metadata_names import IN_ZOOKEEPER
from schemas.rows import BrokerConfig
from schemas.text import join_ids
from schemas.topic_configs import DEFAULT_MIN_ISR

SLOW_ANSWER_SECONDS: Final = 0.1
"""Seconds of a round trip to ZooKeeper above which commits are slow, because each makes thousands of them."""

MIN_FREE_BYTES: Final = 2**30
"""Bytes that should be free on the disk of the warehouse."""

SPARK: Final = ("pyspark", "delta-spark", "deltalake")


def run_checks(settings: Settings) -> Checks:
    """Run all checks, prerequisites first."""
    yield from run_guarded("python", _python)
    yield from run_guarded("engine", partial(_engine, settings.place))
    yield from run_guarded("warehouse", partial(_warehouse, settings))
    credentials = [*run_guarded("command config", partial(_credentials, settings))]
    yield from credentials
    if settings.has_zookeeper:
        yield from run_guarded("zookeeper", partial(_cluster, settings, has_credentials=not credentials))
    elif not credentials:
        yield from run_guarded("reachability", partial(check_kraft, settings))


def _python() -> Checks:
    try:
        versions = ", ".join(f"{name} {version(name)}" for name in SPARK)
    except PackageNotFoundError as error:
        yield CheckResult.fault("python", f"{error.name} is not installed", "install Surveyor again, or `make setup`")
        return
    yield CheckResult.fine("python", f"{platform.python_version()}; {versions}")


def _engine(place: Place) -> Checks:
    """Check the engine of plans and snapshots; only Spark needs Java, and jars."""
    engine, reason = place.resolved()
    yield CheckResult.fine("engine", f"{engine}: {reason}")
    if engine is Engine.SPARK and place.remote is None:
        yield from run_guarded("java", _java)
        yield from run_guarded("jars", partial(_jars, place.warehouse))


def _java() -> Checks:
    java = find_java()
    yield CheckResult.fine("java", f"{java_version(java)}; {java}")


def _jars(warehouse: str) -> Checks:
    missing, incomplete = missing_spark_jars(warehouse), incomplete_spark_jars(warehouse)
    for gap in incomplete:
        yield CheckResult.warning("jars", gap.found, gap.advice)
    if missing:
        yield CheckResult.warning(
            "jars",
            f"not yet in {cache_folder()}: the jars of {' and '.join(missing)}",
            f"the first command that starts Spark downloads them, or {' and '.join(missing.values())}; if no registry "
            "is reachable, copy that folder from a machine that has it, or set SURVEYOR_CACHE",
        )
    elif not incomplete:
        yield CheckResult.fine("jars", f"the jars that Spark needs are in {cache_folder()}")


def _warehouse(settings: Settings) -> Checks:
    where = settings.warehouse_uri
    refuse_unwritable(where)
    if is_local(where):
        free = shutil.disk_usage(existing_folder(where)).free
        enough = free >= MIN_FREE_BYTES
        yield CheckResult(
            "warehouse",
            CheckStatus.FINE if enough else CheckStatus.WARNING,
            f"{where} can be written, {format_bytes(free)} free",
            None if enough else "free some space: a write without space fails and leaves the tables unchanged",
        )
    else:
        require_conditional_writes(where)
        yield CheckResult.fine("warehouse", f"{where} can be written, and no commit overwrites another")
    recent = warehouse_status_if_readable(settings.warehouse)
    if recent.fault:
        take = command_line(settings, "snapshot")
        advice = (
            "correct the address, the credentials or the network; a new warehouse would lack the plans of this one"
            if recent.store_fault or not is_local(where)
            else f"repair the warehouse, or move it away; `{take}` creates a new one then"
        )
        yield CheckResult.fault("tables", recent.store_fault or recent.fault, advice)
        return  # the other checks of tables fail for the same reason
    if recent.snapshot is None:
        take = command_line(settings, "snapshot")
        yield CheckResult.warning("tables", f"no snapshot of {settings.cluster} yet", take)
    elif (ahead := (recent.snapshot.taken_at - datetime.now(UTC)).total_seconds()) > CLOCK_WARNING_SECONDS:
        yield CheckResult.warning("tables", f"the last snapshot was taken {ahead:.0f} s from now", SET_CLOCK)
    else:
        yield CheckResult.fine("tables", f"snapshot {recent.snapshot.snapshot_id} is the last")
    yield from run_guarded("schema", partial(_schema, settings))


def _schema(settings: Settings) -> Checks:
    """Check whether another program changed the tables in a damaging way, or an older Surveyor wrote them."""
    changes = [*foreign_changes(settings.warehouse)]
    for change in changes:
        status = CheckStatus.FAULT if change.is_fault else CheckStatus.WARNING
        yield CheckResult("schema", status, change.description, with_full_commands(settings, change.remedy))
    if not changes and settings.warehouse.exists():
        found = f"the tables are of version {SCHEMA_VERSION}, and unchanged by other programs"
        yield CheckResult.fine("schema", found)


def _credentials(settings: Settings) -> Checks:
    """Raise SurveyorError for a token or a ticket that is missing or has expired; brokers accept none of them."""
    require_credentials(read_properties(settings.conf.command_config))
    yield from ()


def _cluster(settings: Settings, *, has_credentials: bool) -> Checks:
    endpoint = settings.zookeeper_endpoint
    with ZooKeeperCluster(endpoint, settings.pace.probe) as cluster, cluster.connected() as client:
        started = time.monotonic()
        sync(client)
        took = time.monotonic() - started
        slow = took > SLOW_ANSWER_SECONDS
        yield CheckResult(
            "zookeeper",
            CheckStatus.WARNING if slow else CheckStatus.FINE,
            f"{endpoint} answers in {took * 1000:.0f} ms",
            "run Surveyor closer to it: a commit waits for thousands of answers" if slow else None,
        )
        state = read_cluster(client)
        yield from run_guarded("history", partial(history_results, settings, state.cluster_id))
        recorded = _recorded_epoch(settings.warehouse, state)
        yield from _znodes(settings, cluster, state, recorded)
        yield from run_guarded("controller epoch", partial(_epoch, settings, client, state, recorded))
        yield _permissions(client, endpoint)
        yield from _lease(settings, client)
        yield _clock(client, state, settings.pace.clock)
        overrides, _ = read_overrides(client)
    yield _registered(settings, state)
    yield from rack_result(state.brokers, IN_ZOOKEEPER)
    if state.brokers and has_credentials:
        yield from run_guarded("command config", partial(_brokers, settings, state, overrides))


def _znodes(settings: Settings, cluster: ZooKeeperCluster, state: ClusterState, recorded_epoch: int) -> Checks:
    if state.migration:
        advice_on_migration = DURING_MIGRATION if is_started(state.migration) else migration_refusal(state.migration)
        yield CheckResult.fault("migration", state.migration, advice_on_migration)
    view = view_now(cluster)
    health = health_of(view, default_min_isr=DEFAULT_MIN_ISR, threshold=1)
    blocking, latest = health.blocking, max(health.latest_epoch, recorded_epoch)
    paths = list(dict.fromkeys(row.path for row in (*blocking, *state.quarantine)))
    if paths:
        advice = [
            f"{step.what}: {with_full_command(settings, step).command}"
            for step in (repair_suggestion(row, latest) for row in blocking[:BLOCKING_SHOWN])
        ]
        advice.append(quarantine_advice(settings))
        status = CheckStatus.FAULT if blocking else CheckStatus.WARNING
        yield CheckResult("znodes", status, f"not understood: {', '.join(paths[:3])}", "; ".join(advice))
    if view.throttle_warnings:
        advice_on_throttles = "`status` and `cancel --throttles` do not include these throttles"
        yield CheckResult.warning("throttles", "; ".join(view.throttle_warnings), advice_on_throttles)
    if state.controller.broker_id == NO_CONTROLLER:
        yield CheckResult.warning("controller", "there is none", see_status(settings))
    else:
        yield CheckResult.fine("controller", f"{state.controller.broker_id}, epoch {state.epoch}")


def _epoch(settings: Settings, client: KazooClient, state: ClusterState, recorded_epoch: int) -> Checks:
    """Check whether brokers accept the controller's requests: not if they know a later epoch than the controller's."""
    latest = max(recorded_epoch, latest_epoch_of_states(client))
    if epoch_behind := epoch_regression_message(state.controller_epoch, latest):
        reconcile = command_line(settings, "reconcile", "--apply")
        advice = f"`{reconcile}` takes the controllership with a later epoch, then resigns"
        yield CheckResult.fault("controller epoch", epoch_behind, advice)


def _recorded_epoch(warehouse: Warehouse, state: ClusterState) -> int:
    with suppress(SurveyorError):  # the tables have a separate check
        return latest_recorded_epoch(warehouse, state.cluster_id)
    return 0


def _permissions(client: KazooClient, endpoint: ZooKeeperEndpoint) -> CheckResult:
    """Check whether ZooKeeper's ACLs allow what batch mode writes."""
    if closed := unwritable_paths(client):
        user = f"the user of {option_name(ZOOKEEPER_CONFIG)}" if endpoint.config else "Surveyor without credentials"
        return CheckResult.warning("permissions", f"not writable by {user}: {', '.join(closed)}", _write_advice())
    return CheckResult.fine("permissions", "ACLs allow the writes of batch mode")


def _lease(settings: Settings, client: KazooClient) -> Checks:
    """Check whether ZooKeeper's ACLs deny the lease, which is all that admin mode writes there."""
    if not settings.conf.commit_lease:
        return
    if refusal := lease_refusal(client, settings.zookeeper_endpoint.config):
        yield CheckResult.warning("lease", refusal.found, refusal.advice)


def _write_advice() -> str:
    return (
        "batch mode, `reconcile` and `control` need write access: let "
        f"{option_name(ZOOKEEPER_CONFIG)} name the brokers' user, or let the ACL allow this host; admin mode writes "
        "only its lease, below /surveyor"
    )


def _clock(client: KazooClient, state: ClusterState, clock: Clock) -> CheckResult:
    """Compare our clock with ZooKeeper's; if ZooKeeper's is unknown, with the newest znode."""
    before = clock.time()
    zookeeper_time = server_time(client)
    after = clock.time()
    # the newest znode can only show that our clock is behind
    reference = max(_last_written(client, state), after) if zookeeper_time is None else zookeeper_time
    if skew := clock_skew(reference, before, after, "ZooKeeper's"):
        return skew
    not_behind = "not behind ZooKeeper's newest znode; whether it is ahead is unknown"
    return CheckResult.fine("clock", not_behind if zookeeper_time is None else "as ZooKeeper's")


def _last_written(client: KazooClient, state: ClusterState) -> float:
    paths = [CONTROLLER, CONTROLLER_EPOCH, *(f"{BROKER_IDS}/{row.broker_id}" for row in state.brokers)]
    znodes = (read(client, path) for path in paths)
    return max((znode.stat.mtime / 1000 for znode in znodes if znode.stat is not None), default=0.0)


def _registered(settings: Settings, state: ClusterState) -> CheckResult:
    """Compare the registered brokers with the last snapshot.

    `surveyor status` shows whether partitions name the missing ones.
    """
    if not state.brokers:
        advice = f"check the chroot of {option_name(ZOOKEEPER)}; start brokers"
        return CheckResult.warning("brokers", "none is registered", advice)
    missing = missing_brokers(settings.warehouse, state.live)
    if missing:
        text = f"{len(state.brokers)} registered; in the last snapshot, but not registered: {join_ids(missing)}"
        return CheckResult.warning("brokers", text, see_status(settings))
    return CheckResult.fine("brokers", f"{len(state.brokers)} registered")


def _brokers(settings: Settings, state: ClusterState, overrides: Overrides) -> Checks:
    configs, why_not = read_broker_configs(state.brokers, settings.conf.command_config, overrides, settings.pace.probe)
    silent = sorted({row.broker_id for row in configs if row.assumed and row.name == PROTOCOL_VERSION})
    yield returned_configs(
        state.brokers, {broker: why_not.get(broker) for broker in silent}, len(KAFKA_DEFAULTS), settings.pace.probe
    )
    protocols = sorted({row.value for row in configs if row.name == PROTOCOL_VERSION and not row.assumed and row.value})
    if protocols:
        yield CheckResult(
            "protocol",
            CheckStatus.FINE if len(protocols) == 1 else CheckStatus.WARNING,
            f"{PROTOCOL_VERSION} {', '.join(protocols)}",
            None if len(protocols) == 1 else "a rolling upgrade is in progress: finish it, then plan",
        )
    yield _control_requests(settings, state, configs)


def _control_requests(settings: Settings, state: ClusterState, configs: Sequence[BrokerConfig]) -> CheckResult:
    """Check whether batch mode could send requests to each broker, and over which listener it should."""
    check = "control requests"
    try:
        listener = settings.listener
    except UsageError as error:  # admin mode may still work
        return CheckResult.warning(check, str(error), "batch mode, `reconcile` and `control` need it")
    unreachable = unreachable_reasons(state.brokers, str(settings.conf.controller_id), listener)
    if unreachable:
        return CheckResult.warning(
            check,
            "; ".join(unreachable.values()),
            f"{remedies(unreachable.values())}; batch mode, `reconcile` and `control` need that, admin mode does not",
        )
    endpoints = [endpoint.listener for row in state.brokers if (endpoint := listener.endpoint(row))]
    planes = {row.value for row in configs if row.name == CONTROL_PLANE_LISTENER and row.value}
    if unused_planes := sorted(planes.difference(endpoints)):
        text = f"every broker can be notified; the brokers' control-plane listener is {', '.join(unused_planes)}"
        advice = "set clusters.NAME.control_listener in the conf, so that control requests do not wait for clients'"
        return CheckResult.warning(check, text, advice)
    return CheckResult.fine(check, "every broker can be notified of what batch mode writes")
