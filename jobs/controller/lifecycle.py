"""The life of a controller that stays: made ready, taken up, and resigned.

Corresponds to `KafkaController.elect`, `onControllerFailover` and `onControllerResignation`. Everything that takes
long is done before the take-over: a snapshot, Spark's start, and the first decisions, for which the JVM compiles;
while nobody is the controller, nobody replaces a dead leader.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import BROADCASTING, start_session, with_settings
from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import LOST, connected, poll_until
from jobs.adapters.zookeeper.controllership import (
    SessionLostError,
    await_reconnect,
    controllership,
    current_controller,
    refuse_take_over,
)
from jobs.controller.context import ControllerContext
from jobs.controller.controller import ResidentController
from jobs.controller.decisions.engine import DecisionEngine, Decisions
from jobs.controller.decisions.warmup import warm_up
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.write_behind import AuditEntry, WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.errors import ExitCode, FencedError, SurveyorError, UsageError
from jobs.core.signals import defer_signals, exit_code, interrupted
from jobs.execution.batch.broker_protocols import complete_configs, refuse_protocols
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
from schemas.rows import Key


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """How a controllership is to be held."""

    apply: bool
    yes: bool
    until_quiet: bool
    allow_unclean: bool
    allow_silent: frozenset[int]


def control_cluster(settings: Settings, term: ControlOptions) -> ExitCode:
    """Be the controller until a signal comes, or say what is due where nothing is to be written."""
    decider, snapshot = _prepare(settings, term)
    vanished = _lost_states(decider, snapshot)
    due = _dry_run_decisions(settings, decider, vanished)
    if not term.apply:
        return _report_dry(settings, snapshot, due)
    if not term.yes and is_terminal() and not confirm("become the controller of this cluster?"):
        raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
    with defer_signals():
        return _run_as_controller(settings, term, decider, snapshot, vanished)


def _prepare(settings: Settings, term: ControlOptions) -> tuple[DecisionEngine, Row]:
    """Take a snapshot, ask what brokers are set to, and refuse what must be refused."""
    if settings.remote is not None:
        raise UsageError(
            f"`surveyor control` decides in its own process, not on a Spark Connect server: leave out --remote, and "
            f"{REMOTE} out of the environment",
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
    if term.apply:
        configs = complete_configs(configs, settings, term.allow_silent)
    decider = DecisionEngine.of(SparkWarehouse(spark, settings.lake), configs, allow_unclean=term.allow_unclean)
    decider.refresh_drained()
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
    refuse_take_over(state, settings.conf.controller_id)
    refuse_unreachable(state, settings.listener)
    if term.apply:
        refuse_unresponsive(state.brokers, settings.conf.controller_id, term.allow_silent, settings.listener)
    return decider, snapshot


def _lost_states(decider: DecisionEngine, snapshot: Row) -> set[Key]:
    """Return the partitions without a state that history knows to have had one: they are not new."""
    # a long history is not to be sorted whole: the few that it is asked about are broadcast
    warehouse = SparkWarehouse(with_settings(decider.queries.spark, BROADCASTING), decider.warehouse)
    new = as_of(warehouse.warehouse, snapshot, "partitions", ("partition_state", "=", PartitionState.NEW.value))
    if not new:
        return set()
    at = SnapshotTables(warehouse, snapshot)
    known = vanished_states(at, at["partitions"].transform(without_state, at["topics"])).select(*KEY).collect()
    for row in known:
        log(f"surveyor: {row.topic}-{row.partition} has no state znode and had one: see `surveyor plan recover`")
    return {(row.topic, row.partition) for row in known}


def _dry_run_decisions(settings: Settings, decider: DecisionEngine, vanished: set[Key]) -> Decisions:
    """Decide as the controller will, and write nothing; return what is due."""
    memory = ControllerContext(lost_states=set(vanished))
    with connected(settings.zookeeper) as client, progress("deciding for the first time"):
        warm_up(decider)
        MetadataReader(client, ZkWatches(client), memory).load_all()
        return decider.decide(memory, memory.partitions.keys(), deletions=True)


def _report_dry(settings: Settings, snapshot: Row, due: Decisions) -> ExitCode:
    """Say what the controller would do first."""
    result = {
        "snapshot_id": snapshot["snapshot_id"],
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
        "controllership and stays"
    )
    emit_result(settings, result, title, *truncate(lines, command_line(settings, "plan", "reconcile", "--refresh")))
    return ExitCode.DONE


def _run_as_controller(
    settings: Settings, term: ControlOptions, decider: DecisionEngine, snapshot: Row, vanished: set[Key]
) -> ExitCode:
    behind = WriteBehindLog(settings.lake)
    behind.start()
    try:
        with _controllership(settings, decider, snapshot, behind) as controller:
            controller.context.lost_states |= vanished
            ended = _run_until_ended(controller, until_quiet=term.until_quiet)
        # what an error advises is for commits: who is the controller next sees to all that was left
        why = "" if ended is None else f"{str(ended).partition(';')[0]}; "
        line = f"{why}{controller.summary.line()}; {_wait_for_successor(settings)}"
        behind.record(AuditEntry(Step.HAND_BACK, line))
    except SurveyorError as error:
        behind.record(AuditEntry(Step.HAND_BACK, str(error)))
        raise
    finally:
        behind.close()
    result = {"cycles": controller.summary.cycles, **controller.summary.by_action, "stale": controller.summary.stale}
    if ended is not None:
        raise type(ended)(line, result)
    emit_result(settings, result, f"resigned: {line}")
    return exit_code() if interrupted() else ExitCode.DONE


def _run_until_ended(controller: ResidentController, *, until_quiet: bool) -> FencedError | SessionLostError | None:
    """Be the controller until told to stop; return what else has ended it."""
    try:
        _initialize(controller)
        gc.freeze()  # what is known by now is no garbage, and to look through it would take tenths of a second
        controller.run(until_quiet=until_quiet)
    except (FencedError, SessionLostError) as error:
        return error
    return None


def _initialize(controller: ResidentController) -> None:
    """Take up, from the beginning where the connection was lost on the way; SessionLostError where the session was."""
    while not interrupted():
        try:
            controller.initialize()
        except LOST:
            await_reconnect(controller.control.client, controller.control.session)
        else:
            return


@contextmanager
def _controllership(
    settings: Settings, decider: DecisionEngine, snapshot: Row, behind: WriteBehindLog
) -> Iterator[ResidentController]:
    """Take over, and resign by ending the session."""
    us, recorded = settings.conf.controller_id, latest_recorded_epoch(settings.lake, snapshot["cluster_id"])
    with controllership(settings.zookeeper, us, lambda line: log(f"  {line}"), latest_known_epoch=recorded) as control:
        log(f"surveyor: controllership taken over: epoch {control.epoch}, id {control.controller_id}")
        for line in expired_drain_lines(remove_expired(settings.lake, control.epoch, {})):
            log(line)
        controller = ResidentController(control, decider, behind, snapshot, log, settings)
        behind.record(controller.cycle_record(verdicts=[]))
        behind.record(AuditEntry(Step.TAKE_OVER, f"controller epoch {control.epoch}; until resigned"))
        try:
            yield controller
        finally:
            controller.stop()


def _wait_for_successor(settings: Settings) -> str:
    """Wait for somebody else to become the controller, and say who it is."""
    started = time.monotonic()
    with progress("waiting for a broker to become the controller"):
        try:
            controller = poll_until(
                lambda: current_controller(settings.zookeeper), lambda c: c != NO_CONTROLLER, RESIGN_TIMEOUT_SECONDS
            )
        except SurveyorError as error:
            return f"nobody knows who is the controller now: {error}"
    if controller == NO_CONTROLLER:
        return "no broker has become the controller yet: /controller is free for one"
    who = "another Surveyor" if controller == settings.conf.controller_id else f"broker {controller}"
    return f"{who} is the controller since {time.monotonic() - started:.1f} s after"
