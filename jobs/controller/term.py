"""One term as controller: the take-over, the cycles of a `ResidentController`, and the resignation.

Corresponds to `KafkaController.onControllerFailover` and `onControllerResignation`.
"""

import gc
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from msgspec.structs import replace

from jobs.adapters.zookeeper.connection import LOST, ZooKeeperSession
from jobs.adapters.zookeeper.controllership import SessionLostError, controller_and_session, controllership
from jobs.controller.controller import ResidentController
from jobs.controller.load_sampler import running_sampler
from jobs.controller.preparation import Preparation, without_garbage_collection
from jobs.controller.request_listener import Services
from jobs.controller.write_behind import WriteBehindLog
from jobs.core.errors import ExitCode, FencedError, SurveyorError
from jobs.core.logs import is_json
from jobs.core.polling import poll_until
from jobs.core.signals import exit_code, is_interrupted
from jobs.repositories.controller_epochs import latest_recorded_epoch
from jobs.repositories.drained_brokers import expired_drain_lines, remove_expired
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.console import CommandResult, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.enums import NO_CONTROLLER, Step
from schemas.rows import Snapshot

SWITCH_INTERVAL_SECONDS: Final = 0.001
"""Seconds after which a busy thread lets another one run; Python's 0.005 is longer than ZooKeeper takes to respond.

While the threads of brokers encode requests, each response of ZooKeeper would wait for them twice: in kazoo's thread,
and in the cycle's thread.
"""

NO_SNAPSHOT: Final = 0
"""Snapshot id of the plans of a controller whose warehouse has no snapshot yet."""


@dataclass(frozen=True, slots=True)
class Term:
    """One controllership that has ended: its totals, and the error that ended it, None if it resigned."""

    line: str
    result: dict[str, Any]
    ended: FencedError | SessionLostError | None
    session: int
    """Its ZooKeeper session."""

    def command_result(self) -> CommandResult:
        """Return how the process ends that has resigned."""
        code = exit_code() if is_interrupted() else ExitCode.DONE
        return ending(self.result, f"resigned: {self.line}", code)


def ending(fields: dict[str, Any], line: str, code: ExitCode) -> CommandResult:
    """Return how the process ended: a line on stdout, or a record if the log is JSON, as a collector expects it."""
    if not is_json():
        return CommandResult(fields, line, exit_code=code)
    log(f"surveyor: {line}")
    return CommandResult(fields, exit_code=code)


def run_term(
    settings: Settings,
    zookeeper: ZooKeeperSession,
    prepared: Preparation,
    services: Services,
    release_timeout: float | None,
    *,
    until_quiet: bool,
    sample: str | None,
) -> Term:
    """Be the controller once; wait `release_timeout` seconds for another Surveyor, or with None take over from it.

    `sample` is the period of samples of load, None for none.
    """
    log_writer = WriteBehindLog(settings.warehouse)
    log_writer.start()
    try:
        with (
            _resident_controller(settings, prepared, services, log_writer, release_timeout) as controller,
            running_sampler(settings, sample),
        ):
            services.metrics.begin(controller)
            ended = _run_until_ended(controller, until_quiet=until_quiet)
        # without the advice, which is for commits: the next controller completes everything that is due
        reason = "" if ended is None else f"{ended.reason}; "
        session = controller.control.session
        line = f"{reason}{controller.summary.line()}; {_wait_for_successor(settings, zookeeper, session)}"
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
        with without_garbage_collection():
            _initialize(controller)
        gc.freeze()  # the context is not garbage, and scanning it would take tenths of a second
        controller.run(until_quiet=until_quiet)
    except (FencedError, SessionLostError) as error:
        return error
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switch_interval)
    return None


def _initialize(controller: ResidentController) -> None:
    """Initialize the controller; begin again if the connection is lost, raise SessionLostError if the session is."""
    while not is_interrupted():
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
            context=prepared.release_context(),
            request_handler=services.request_handler,
            served=services.served,
            logins=services.logins,
            configured_epochs=prepared.broker_epochs,
        )
        log_writer.record(controller.writer.cycle_record(outcomes=[]))
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


def former_session_text(session: int) -> str:
    return f"/controller still belongs to the former session 0x{session:x} of this process; ZooKeeper will expire it"


def _wait_for_successor(settings: Settings, zookeeper: ZooKeeperSession, former_session: int) -> str:
    """Wait until there is a controller, and return a text that names it, or says that it is our former session."""
    started = time.monotonic()
    try:
        with (
            progress("waiting for a broker to become the controller"),
            zookeeper.connected() as client,
        ):
            controller, session = poll_until(
                lambda: controller_and_session(client), lambda it: it[0] != NO_CONTROLLER, settings.pace.resignation
            )
    except SurveyorError as error:
        return f"the present controller is unknown: {error}"
    if controller == NO_CONTROLLER:
        return "no broker has become the controller yet: /controller is free"
    if session == former_session:
        return f"no broker has become the controller yet: {former_session_text(session)}"
    successor = "another Surveyor" if controller == settings.conf.controller_id else f"broker {controller}"
    return f"{successor} became the controller after {time.monotonic() - started:.1f} s"
