"""The lifecycle of the resident controller: preparation, take-over, cycles and resignation.

Corresponds to `KafkaController.elect`, `onControllerFailover` and `onControllerResignation`. Everything slow is done
before the take-over: the brokers' settings are requested, and the cluster is read once. While there is no controller,
no dead leader is replaced.
"""

import gc
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from msgspec.structs import replace

from jobs.adapters.brokers.configs import read_broker_configs, read_overrides
from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.zookeeper.cluster import CONTROLLER, DELETE_TOPICS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import LOST, connected, forbidden, poll_until, with_retries
from jobs.adapters.zookeeper.controllership import (
    RELEASE_TIMEOUT_SECONDS,
    ControllershipHeldError,
    SessionLostError,
    controller_and_session,
    controllership,
    refuse_take_over,
)
from jobs.controller.broker_protocols import complete_configs, refuse_protocols
from jobs.controller.context import ControllerContext
from jobs.controller.controller import ResidentController
from jobs.controller.controller_node import (
    with_logins,
)
from jobs.controller.decision_engine import DecisionEngine, Decisions
from jobs.controller.listening import Services, listening
from jobs.controller.lost_states import lost_states
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.metrics import ControllerMetrics, serve
from jobs.controller.write_behind import WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.errors import (
    ExitCode,
    FencedError,
    MissingError,
    NoAnswerError,
    RefusedError,
    SurveyorError,
    UnreadableError,
    UsageError,
)
from jobs.core.logs import is_json
from jobs.core.signals import defer_signals, exit_code, interrupted
from jobs.execution.batch.batch_commit import RESIGN_TIMEOUT_SECONDS, refuse_unreachable
from jobs.repositories.controller_epochs import latest_recorded_epoch
from jobs.repositories.drained_brokers import expired_drain_lines, remove_expired
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.console import CommandResult, confirm, is_terminal, log, truncate
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.enums import NO_CONTROLLER, Step
from schemas.rows import Snapshot
from schemas.text import pluralise

CONFIG_TIMEOUT_SECONDS: Final = 10.0
"""Seconds for all brokers to return their configs; those that do not are asked once more."""

PREPARE_AGAIN_SECONDS: Final = 300.0
"""Seconds after which a standby reads the cluster and the brokers' settings again."""

POLL_SECONDS: Final = 5.0
"""Seconds after which a standby looks at /controller, although its watch has not fired."""

RECONNECT_SECONDS: Final = 1.0
"""Seconds until a standby tries again where no take-over had begun, for instance if ZooKeeper does not answer."""

MAX_WAIT_SECONDS: Final = 60.0
"""Maximum seconds until a standby tries again: after each take-over that fails, it waits twice as long."""

SWITCH_INTERVAL_SECONDS: Final = 0.001
"""Seconds after which a busy thread lets another one run; Python's 0.005 is longer than ZooKeeper takes to answer.

While the threads of brokers encode requests, each answer of ZooKeeper would wait for them twice: in kazoo's thread,
and in that of the cycle.
"""

NO_SNAPSHOT: Final = 0
"""Snapshot id of the plans of a controller whose warehouse has no snapshot yet."""


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of `surveyor control`."""

    apply: bool
    yes: bool
    until_quiet: bool
    allow_unclean: bool
    allow_silent: frozenset[int]
    standby: bool = False
    replace: bool = False
    metrics: tuple[str, int] | None = None
    """Where metrics and health are served."""
    listen: ListenConfig | None = None
    """Where brokers' requests are received; None if they are not served."""


@dataclass(slots=True)
class Preparation:
    """What a controller needs before its take-over."""

    cluster_id: str | None
    engine: DecisionEngine
    context: ControllerContext
    broker_epochs: Mapping[int, int]
    """By broker, the broker epoch before its settings were read."""

    def take_context(self) -> ControllerContext:
        """Return the context, which the controller reads again; another controllership begins with an empty one."""
        context, self.context = self.context, ControllerContext(lost_states={*self.context.lost_states})
        return context


@dataclass(frozen=True, slots=True)
class Term:
    """One controllership that has ended: its totals, and the error that ended it, None if it resigned."""

    line: str
    result: dict[str, Any]
    ended: FencedError | SessionLostError | None
    session: int
    """Its ZooKeeper session."""


def control_cluster(settings: Settings, options: ControlOptions) -> CommandResult:
    """Be the controller until a signal arrives; without `apply`, show what is due."""
    if not options.apply:
        settings.warehouse.ensure_tables()
        with connected(settings.zookeeper_endpoint) as client:
            prepared = _prepare(settings, options, client)
        if options.standby or options.replace or options.metrics or options.listen:
            log(
                "surveyor: --standby, --replace, --metrics and --listen have no effect without --apply", logging.WARNING
            )
        keys = prepared.context.partitions.keys()
        return _report_dry(settings, prepared.engine.decide(prepared.context, keys, deletions=True))
    with _metrics(settings, options) as metrics:  # a standby that waits for ZooKeeper is well, too
        with ThreadPoolExecutor(1) as pool:  # tables are made while ZooKeeper and the brokers answer
            tables = pool.submit(settings.warehouse.ensure_tables)
            prepared = _prepare_first(settings, options, tables.result)
        if not options.yes and is_terminal() and not confirm("become the controller of this cluster?"):
            raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
        with (
            defer_signals(),
            listening(
                settings, options.listen, prepared.context.brokers, prepared.engine.broker_configs, metrics
            ) as services,
        ):
            if options.standby:
                return _stand_by(settings, options, prepared, services)
            timeout = None if options.replace else RELEASE_TIMEOUT_SECONDS
            term = _run_term(settings, options, prepared, services, timeout)
            if term.ended is not None:
                raise type(term.ended)(term.line, term.result)
            return _result_of(term)


def _prepare_first(settings: Settings, options: ControlOptions, await_tables: Callable[[], None]) -> Preparation:
    """Prepare; a standby waits for a ZooKeeper that does not answer. A signal interrupts this.

    It does not wait for errors that time does not fix: a wrong chroot or password, or an ACL. `await_tables` returns
    once all tables exist, and raises the error if they cannot be made.
    """
    is_reported = False
    while True:
        try:
            with connected(settings.zookeeper_endpoint) as client:
                return _prepare(settings, options, client, await_tables)
        except NoAnswerError as error:
            if not options.standby:
                raise
            if not is_reported:
                log(f"surveyor: {error}; trying again", logging.WARNING)
            is_reported = True
        time.sleep(RECONNECT_SECONDS)


@contextmanager
def _metrics(settings: Settings, options: ControlOptions) -> Iterator[ControllerMetrics]:
    """Yield the metrics of this process, served if that was asked for."""
    metrics = ControllerMetrics(settings.cluster)
    if options.metrics is None:
        yield metrics
        return
    with serve(options.metrics, metrics) as server:
        log(f"surveyor: metrics at {server.url}")
        try:
            yield metrics
        finally:
            server.shutdown()


def _result_of(term: Term) -> CommandResult:
    code = exit_code() if interrupted() else ExitCode.DONE
    return _ending(term.result, f"resigned: {term.line}", code)


def _ending(fields: dict[str, Any], line: str, code: ExitCode) -> CommandResult:
    """Return how the process ended: a line on stdout, or a record where the log is JSON, as a collector expects it."""
    if not is_json():
        return CommandResult(fields, line, exit_code=code)
    log(f"surveyor: {line}")
    return CommandResult(fields, exit_code=code)


def _stand_by(settings: Settings, options: ControlOptions, prepared: Preparation, services: Services) -> CommandResult:
    """Be the controller whenever no other Surveyor is, until a signal arrives.

    If a broker is the controller, Surveyor takes over from it. After a term that another controller or the loss of the
    session ended, Surveyor waits for its turn again. After a take-over that failed it does the same, but waits twice as
    long each time, because a failing take-over leaves the cluster without a controller for some seconds.
    """
    replaces, wait, last_problem = options.replace, RECONNECT_SECONDS, ""
    sessions = list[int]()
    while not interrupted():
        is_taking_over = False
        try:
            if not replaces:
                prepared = _await_turn(settings, options, prepared, sessions)
            if interrupted():
                break
            is_taking_over = True
            term = _run_term(settings, options, prepared, services, None if replaces else 0.0)
        except ControllershipHeldError:
            continue  # another standby was faster
        except (UsageError, MissingError):
            raise
        except SurveyorError as error:
            if str(error) != last_problem:
                log(f"surveyor: {error}; standing by", logging.WARNING)
            wait, last_problem = min(wait * 2, MAX_WAIT_SECONDS) if is_taking_over else RECONNECT_SECONDS, str(error)
            poll_until(interrupted, bool, wait)
            continue
        finally:
            replaces = False
        sessions.append(term.session)
        wait, last_problem = RECONNECT_SECONDS, ""
        if term.ended is None:
            return _result_of(term)
        log(f"surveyor: {term.line}; standing by again", logging.WARNING)
    line = f"ended while standing by, after {pluralise(len(sessions), 'term')} as controller"
    return _ending({"terms": len(sessions)}, line, exit_code())


def _await_turn(
    settings: Settings, options: ControlOptions, prepared: Preparation, former_sessions: Collection[int]
) -> Preparation:
    """Wait while another Surveyor is the controller; prepare again from time to time, so that nothing is outdated.

    `former_sessions`: those of this process's own terms. ZooKeeper may keep /controller of the last one for a while.
    """
    changed, prepared_at, announced = Event(), time.monotonic(), ""
    with connected(settings.zookeeper_endpoint) as client:
        while not interrupted():
            changed.clear()
            client.exists_async(CONTROLLER, watch=lambda _: changed.set())
            controller, session = with_retries(lambda: controller_and_session(client))
            if controller != settings.conf.controller_id:
                _read_state_for_takeover(settings, client)
                return prepared
            holder = f"another Surveyor is the controller, id {controller}"
            if session in former_sessions:
                holder = _former_session(session)
            if holder != announced:
                log(f"surveyor: standing by: {holder}")
            announced = holder
            changed.wait(POLL_SECONDS)
            if time.monotonic() - prepared_at > PREPARE_AGAIN_SECONDS:
                prepared, prepared_at = _prepare_again(settings, options, client, prepared), time.monotonic()
    return prepared


def _read_state_for_takeover(settings: Settings, client: KazooClient) -> ClusterState:
    """Read the cluster; raise RefusedError if it refuses a take-over, UnreadableError if it cannot be read."""
    state = with_retries(lambda: read_cluster(client))
    refuse_take_over(state, settings.conf.controller_id)
    refuse_unreachable(state, settings.listener)
    if any(row.path == DELETE_TOPICS for row in state.quarantine):
        raise UnreadableError(forbidden(f"list {DELETE_TOPICS}"))
    return state


def _prepare_again(
    settings: Settings, options: ControlOptions, client: KazooClient, prepared: Preparation
) -> Preparation:
    """Prepare again; if that is refused, for instance because a broker does not answer, return `prepared`."""
    try:
        return _prepare(settings, options, client)
    except RefusedError as error:
        log(f"surveyor: {error}; standing by with what was read before", logging.WARNING)
        return prepared


def _prepare(
    settings: Settings, options: ControlOptions, client: KazooClient, await_tables: Callable[[], None] = lambda: None
) -> Preparation:
    """Read the cluster and the brokers' settings, and make the checks before a take-over."""
    state = _read_state_for_takeover(settings, client)
    overrides, _ = with_retries(lambda: read_overrides(client))
    with progress("asking brokers for their configs"):
        defaults = with_logins(options.listen.logins if options.listen else ())
        configs = read_broker_configs(
            state.brokers, settings.conf.command_config, overrides, CONFIG_TIMEOUT_SECONDS, defaults=defaults
        )
    is_serving = options.listen is not None
    if not is_serving:
        refuse_protocols(configs)
    if options.apply:
        configs = complete_configs(
            configs, settings, client, options.allow_silent, is_serving=is_serving, defaults=defaults
        )
        refuse_unresponsive(state.brokers, settings.conf.controller_id, options.allow_silent, settings.listener)
    await_tables()
    engine = DecisionEngine(settings.warehouse, configs, allow_unclean=options.allow_unclean)
    engine.refresh_drained()
    broker_epochs = {row.broker_id: row.czxid for row in state.brokers}
    return Preparation(state.cluster_id, engine, _first_context(settings, client), broker_epochs)


def _first_context(settings: Settings, client: KazooClient) -> ControllerContext:
    """Read the cluster as the controller will, and mark the partitions that lost their state."""
    context = ControllerContext()
    with progress("reading topics and partitions"), _without_garbage_collection():
        with_retries(lambda: MetadataReader(client, ZkWatches(client), context).load_all())
    for topic, partition in sorted(lost_states(settings.warehouse, context)):
        log(
            f"surveyor: {topic}-{partition} has no state znode and had one: see `surveyor plan recover`",
            logging.WARNING,
        )
        context.mark_lost((topic, partition))
    return context


def _report_dry(settings: Settings, due: Decisions) -> CommandResult:
    """Return what the controller would do first."""
    result = {
        "dry_run": True,
        "due": len(due.changes),
        "rejected": len(due.others),
        "deletions": len(due.deletions),
    }
    lines = [f"  {change.name}: {change.action}: {change.reason}" for change in due.changes]
    lines += [
        f"  {decision.topic}-{decision.partition}: {decision.code}: {decision.why_not}" for decision in due.others
    ]
    lines += [
        f"  {deletion.topic}: {deletion.step}: {deletion.reason or 'queued for deletion'}" for deletion in due.deletions
    ]
    title = (
        f"{pluralise(len(due.changes), 'change', 'is', 'are')} due; nothing was written: --apply takes the "
        "controllership and keeps it"
    )
    return CommandResult(result, title, *truncate(lines, command_line(settings, "plan", "reconcile", "--refresh")))


def _run_term(
    settings: Settings,
    options: ControlOptions,
    prepared: Preparation,
    services: Services,
    release_timeout: float | None,
) -> Term:
    """Be the controller once; wait `release_timeout` seconds for another Surveyor, or with None take over from it."""
    log_writer = WriteBehindLog(settings.warehouse)
    log_writer.start()
    try:
        with _resident_controller(settings, prepared, services, log_writer, release_timeout) as controller:
            services.metrics.begin(controller)
            ended = _run_until_ended(controller, until_quiet=options.until_quiet)
        # without the advice, which is for commits: the next controller completes everything that is due
        reason = "" if ended is None else f"{ended.reason}; "
        session = controller.control.session
        line = f"{reason}{controller.summary.line()}; {_wait_for_successor(settings, session)}"
        log_writer.record(AuditEntry(Step.HAND_BACK, line))
    except SurveyorError as error:
        log_writer.record(AuditEntry(Step.HAND_BACK, str(error)))
        raise
    finally:
        services.metrics.end()
        log_writer.close()
    result = {"cycles": controller.summary.cycles, **controller.summary.by_action, "stale": controller.summary.stale}
    return Term(line, result, ended, session)


def _run_until_ended(controller: ResidentController, *, until_quiet: bool) -> FencedError | SessionLostError | None:
    """Be the controller until stopped; return the error that ended it otherwise."""
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        with _without_garbage_collection():
            _initialize(controller)
        gc.freeze()  # the context is not garbage, and scanning it would take tenths of a second
        controller.run(until_quiet=until_quiet)
    except (FencedError, SessionLostError) as error:
        return error
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switch_interval)
    return None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Read without scanning what was read again and again, which takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
def _resident_controller(
    settings: Settings,
    prepared: Preparation,
    services: Services,
    log_writer: WriteBehindLog,
    release_timeout: float | None,
) -> Iterator[ResidentController]:
    """Take the controllership, and resign by ending the session."""
    recorded = latest_recorded_epoch(settings.warehouse, prepared.cluster_id)
    with controllership(
        settings.zookeeper_endpoint,
        settings.conf.controller_id,
        lambda line: log(f"  {line}"),
        latest_known_epoch=recorded,
        release_timeout=release_timeout,
    ) as control:
        log(
            f"surveyor: controllership taken over: epoch {control.epoch}, id {control.controller_id}",
            controller_epoch=control.epoch,
            broker_id=control.controller_id,
        )
        for line in expired_drain_lines(remove_expired(settings.warehouse, control.epoch, {})):
            log(line)
        newest = last_snapshot(settings.warehouse) or Snapshot(snapshot_id=NO_SNAPSHOT, taken_at=datetime.now(UTC))
        snapshot = replace(newest, cluster_id=prepared.cluster_id)
        controller = ResidentController(
            control,
            prepared.engine,
            log_writer,
            snapshot,
            log,
            settings,
            context=prepared.take_context(),
            apis=services.apis,
            served=services.served,
            logins=services.logins,
            configured_epochs=prepared.broker_epochs,
        )
        log_writer.record(controller.cycle_record(outcomes=[]))
        log_writer.record(AuditEntry(Step.TAKE_OVER, f"controller epoch {control.epoch}; until resigned"))
        try:
            with _reported_connection(control.client):
                yield controller
        finally:
            controller.stop()


@contextmanager
def _reported_connection(client: KazooClient) -> Iterator[None]:
    """Log when the connection to ZooKeeper is lost and when it is back; until then nothing can be written."""

    def report(state: str) -> None:
        if state == KazooState.SUSPENDED:
            log(
                "surveyor: warning: the connection to ZooKeeper is lost; nothing is written until it is back",
                logging.WARNING,
            )
        elif state == KazooState.CONNECTED:
            log("surveyor: the connection to ZooKeeper is back")

    client.add_listener(report)
    try:
        yield
    finally:
        client.remove_listener(report)


def _former_session(session: int) -> str:
    return f"/controller still belongs to the former session 0x{session:x} of this process; ZooKeeper will expire it"


def _wait_for_successor(settings: Settings, former_session: int) -> str:
    """Wait until there is a controller, and return a text that names it, or says that it is our former session."""
    started = time.monotonic()
    try:
        with (
            progress("waiting for a broker to become the controller"),
            connected(settings.zookeeper_endpoint) as client,
        ):
            controller, session = poll_until(
                lambda: controller_and_session(client), lambda it: it[0] != NO_CONTROLLER, RESIGN_TIMEOUT_SECONDS
            )
    except SurveyorError as error:
        return f"the present controller is unknown: {error}"
    if controller == NO_CONTROLLER:
        return "no broker has become the controller yet: /controller is free"
    if session == former_session:
        return f"no broker has become the controller yet: {_former_session(session)}"
    successor = "another Surveyor" if controller == settings.conf.controller_id else f"broker {controller}"
    return f"{successor} became the controller after {time.monotonic() - started:.1f} s"
