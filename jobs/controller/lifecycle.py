"""The lifecycle of the resident controller: preparation, take-over, cycles and resignation.

Corresponds to `KafkaController.elect`, `onControllerFailover` and `onControllerResignation`. Everything slow is done
before the take-over: a snapshot, the start of Spark, and the first decisions, for which the JVM compiles code. While
there is no controller, no dead leader is replaced.
"""

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import BROADCASTING, start_session, with_settings
from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import LOST, connected, poll_until
from jobs.adapters.zookeeper.controllership import (
    SessionLostError,
    controllership,
    current_controller,
    refuse_take_over,
)
from jobs.controller.broker_protocols import complete_configs, refuse_protocols
from jobs.controller.context import ControllerContext
from jobs.controller.controller import ResidentController
from jobs.controller.decisions.engine import DecisionEngine, Decisions
from jobs.controller.decisions.warmup import warm_up
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.write_behind import AuditEntry, WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.errors import ExitCode, FencedError, SurveyorError, UsageError
from jobs.core.signals import defer_signals, exit_code, interrupted
from jobs.execution.batch.commit import RESIGN_TIMEOUT_SECONDS, refuse_unreachable
from jobs.planning.planning_tables import vanished_states
from jobs.repositories.controller_epochs import latest_recorded_epoch
from jobs.repositories.drained_brokers import expired_drain_lines, remove_expired
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import as_of, find_snapshot
from jobs.runtime.console import confirm, emit_result, is_terminal, log, truncate
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from jobs.snapshots.snapshot import snapshot_line, take_snapshot
from planner.history.lost_states import without_state
from planner.history.snapshot_diff import KEY
from planner.text import pluralise
from schemas.enums import NO_CONTROLLER, PartitionState, Step
from schemas.rows import Key, Snapshot


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of `surveyor control`."""

    apply: bool
    yes: bool
    until_quiet: bool
    allow_unclean: bool
    allow_silent: frozenset[int]


def control_cluster(settings: Settings, options: ControlOptions) -> ExitCode:
    """Be the controller until a signal arrives; without `apply`, show what is due."""
    engine, snapshot = _prepare(settings, options)
    vanished = _lost_states(engine, snapshot)
    due = _dry_run_decisions(settings, engine, vanished)
    if not options.apply:
        return _report_dry(settings, snapshot, due)
    if not options.yes and is_terminal() and not confirm("become the controller of this cluster?"):
        raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
    with defer_signals():
        return _run_as_controller(settings, options, engine, snapshot, vanished)


def _prepare(settings: Settings, options: ControlOptions) -> tuple[DecisionEngine, Snapshot]:
    """Take a snapshot, read the brokers' settings, and make the checks before a take-over."""
    if settings.remote is not None:
        raise UsageError(
            f"`surveyor control` decides in its own process, not on a Spark Connect server: omit --remote, and unset "
            f"{REMOTE} in the environment",
        )
    with progress("starting Spark"):
        spark = start_session("surveyor control")
    master = str(spark.sparkContext.master)
    if not master.startswith("local"):
        raise UsageError(
            f"`surveyor control` decides in the driver's own process, and the master is {master}: "
            "run it as `surveyor control`, or with `spark-submit --master 'local[*]'`",
        )
    taken = take_snapshot(settings)
    log(f"surveyor: {snapshot_line(settings.cluster, taken)}")
    snapshot = find_snapshot(settings.lake, int(taken["snapshot_id"]))
    configs = as_of(settings.lake, snapshot, "broker_configs")
    refuse_protocols(configs)
    if options.apply:
        configs = complete_configs(configs, settings, options.allow_silent)
    engine = DecisionEngine.of(SparkWarehouse(spark, settings.lake), configs, allow_unclean=options.allow_unclean)
    engine.refresh_drained()
    with connected(settings.zookeeper) as client:
        state = read_cluster(client)
    refuse_take_over(state, settings.conf.controller_id)
    refuse_unreachable(state, settings.listener)
    if options.apply:
        refuse_unresponsive(state.brokers, settings.conf.controller_id, options.allow_silent, settings.listener)
    return engine, snapshot


def _lost_states(engine: DecisionEngine, snapshot: Snapshot) -> set[Key]:
    """Return the partitions without a state that had one according to the recorded history: they are not new."""
    # broadcast the few new partitions, so that a long history need not be sorted
    warehouse = SparkWarehouse(with_settings(engine.queries.spark, BROADCASTING), engine.warehouse)
    new = as_of(warehouse.warehouse, snapshot, "partitions", ("partition_state", "=", PartitionState.NEW.value))
    if not new:
        return set()
    snapshot_tables = SnapshotTables(warehouse, snapshot)
    lost = (
        vanished_states(
            snapshot_tables, snapshot_tables["partitions"].transform(without_state, snapshot_tables["topics"])
        )
        .select(*KEY)
        .collect()
    )
    for row in lost:
        log(
            f"surveyor: {row.topic}-{row.partition} has no state znode and had one: see `surveyor plan recover`",
            logging.WARNING,
        )
    return {(row.topic, row.partition) for row in lost}


def _dry_run_decisions(settings: Settings, engine: DecisionEngine, vanished: set[Key]) -> Decisions:
    """Decide as the controller will, without writing; return what is due."""
    context = ControllerContext(lost_states=set(vanished))
    with connected(settings.zookeeper) as client, progress("computing the first decisions"):
        warm_up(engine)
        MetadataReader(client, ZkWatches(client), context).load_all()
        return engine.decide(context, context.partitions.keys(), deletions=True)


def _report_dry(settings: Settings, snapshot: Snapshot, due: Decisions) -> ExitCode:
    """Show what the controller would do first."""
    result = {
        "snapshot_id": snapshot.snapshot_id,
        "dry_run": True,
        "due": len(due.changes),
        "rejected": len(due.others),
        "deletions": len(due.deletions),
    }
    lines = [f"  {change.name}: {change.action}: {change.reason}" for change in due.changes]
    lines += [f"  {row['topic']}-{row['partition']}: {row['code']}: {row['why_not']}" for row in due.others]
    lines += [f"  {row['topic']}: {row['step']}: {row['reason'] or 'queued for deletion'}" for row in due.deletions]
    title = (
        f"{pluralise(len(due.changes), 'change', 'is', 'are')} due; nothing was written: --apply takes the "
        "controllership and keeps it"
    )
    emit_result(settings, result, title, *truncate(lines, command_line(settings, "plan", "reconcile", "--refresh")))
    return ExitCode.DONE


def _run_as_controller(
    settings: Settings, options: ControlOptions, engine: DecisionEngine, snapshot: Snapshot, vanished: set[Key]
) -> ExitCode:
    log_writer = WriteBehindLog(settings.lake)
    log_writer.start()
    try:
        with _controllership(settings, engine, snapshot, log_writer) as controller:
            controller.context.lost_states |= vanished
            ended = _run_until_ended(controller, until_quiet=options.until_quiet)
        # the advice in the error is for commits; the next controller completes everything that is due
        why = "" if ended is None else f"{str(ended).partition(';')[0]}; "
        line = f"{why}{controller.summary.line()}; {_wait_for_successor(settings)}"
        log_writer.record(AuditEntry(Step.HAND_BACK, line))
    except SurveyorError as error:
        log_writer.record(AuditEntry(Step.HAND_BACK, str(error)))
        raise
    finally:
        log_writer.close()
    result = {"cycles": controller.summary.cycles, **controller.summary.by_action, "stale": controller.summary.stale}
    if ended is not None:
        raise type(ended)(line, result)
    emit_result(settings, result, f"resigned: {line}")
    return exit_code() if interrupted() else ExitCode.DONE


def _run_until_ended(controller: ResidentController, *, until_quiet: bool) -> FencedError | SessionLostError | None:
    """Be the controller until stopped; return the error that ended it otherwise."""
    try:
        _initialize(controller)
        gc.freeze()  # the context is not garbage, and scanning it would take tenths of a second
        controller.run(until_quiet=until_quiet)
    except (FencedError, SessionLostError) as error:
        return error
    return None


def _initialize(controller: ResidentController) -> None:
    """Initialize the controller, again from the start if the connection is lost; SessionLostError if the session is."""
    while not interrupted():
        try:
            controller.initialize()
        except LOST:
            controller.control.await_reconnect()
        else:
            return


@contextmanager
def _controllership(
    settings: Settings, engine: DecisionEngine, snapshot: Snapshot, log_writer: WriteBehindLog
) -> Iterator[ResidentController]:
    """Take the controllership, and resign by ending the session."""
    recorded = latest_recorded_epoch(settings.lake, snapshot.cluster_id)
    with controllership(
        settings.zookeeper,
        settings.conf.controller_id,
        lambda line: log(f"  {line}"),
        latest_known_epoch=recorded,
    ) as control:
        log(
            f"surveyor: controllership taken over: epoch {control.epoch}, id {control.controller_id}",
            controller_epoch=control.epoch,
            broker_id=control.controller_id,
        )
        for line in expired_drain_lines(remove_expired(settings.lake, control.epoch, {})):
            log(line)
        controller = ResidentController(control, engine, log_writer, snapshot, log, settings)
        log_writer.record(controller.cycle_record(verdicts=[]))
        log_writer.record(AuditEntry(Step.TAKE_OVER, f"controller epoch {control.epoch}; until resigned"))
        try:
            yield controller
        finally:
            controller.stop()


def _wait_for_successor(settings: Settings) -> str:
    """Wait for another controller, and return a text that names it."""
    started = time.monotonic()
    with progress("waiting for a broker to become the controller"):
        try:
            controller = poll_until(
                lambda: current_controller(settings.zookeeper), lambda c: c != NO_CONTROLLER, RESIGN_TIMEOUT_SECONDS
            )
        except SurveyorError as error:
            return f"the present controller is unknown: {error}"
    if controller == NO_CONTROLLER:
        return "no broker has become the controller yet: /controller is free"
    successor = "another Surveyor" if controller == settings.conf.controller_id else f"broker {controller}"
    return f"{successor} became the controller after {time.monotonic() - started:.1f} s"
