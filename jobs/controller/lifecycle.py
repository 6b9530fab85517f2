"""The process of `surveyor control`: preparation, then one term as controller, or several with --standby.

Corresponds to `KafkaController.startup`, and for a standby to `elect`, which each broker that is not the controller
calls when /controller is deleted. Without --apply it shows the first decisions of a controller.
"""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from jobs.adapters.zookeeper.cluster_state import CONTROLLER
from jobs.adapters.zookeeper.connection import ZooKeeperSession, with_retries
from jobs.adapters.zookeeper.controllership import (
    RELEASE_TIMEOUT_SECONDS,
    ControllershipHeldError,
    controller_and_session,
)
from jobs.controller.decision_engine import Decisions
from jobs.controller.metrics import ControllerMetrics, serve
from jobs.controller.preparation import (
    RECONNECT_SECONDS,
    ControlOptions,
    Preparation,
    prepare,
    prepare_again,
    prepare_first,
    read_state_before_take_over,
)
from jobs.controller.request_listener import Services, running_services
from jobs.controller.term import ending, former_session_text, run_term
from jobs.core.errors import MissingError, SurveyorError, UsageError
from jobs.core.polling import poll_until
from jobs.core.signals import defer_signals, exit_code, is_interrupted
from jobs.runtime.approval import Approve, Review
from jobs.runtime.console import CommandResult, log, truncate
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.text import pluralise

PREPARE_AGAIN_SECONDS: Final = 300.0
"""Seconds after which a standby reads the cluster and the brokers' settings again."""

POLL_SECONDS: Final = 5.0
"""Seconds after which a standby looks at /controller, although its watch has not fired."""

MAX_WAIT_SECONDS: Final = 60.0
"""Maximum seconds until a standby tries again: after each take-over that fails, it waits twice as long."""


@dataclass(slots=True)
class Standby:
    """A standby: becomes the controller when no other Surveyor holds the controllership."""

    settings: Settings
    options: ControlOptions
    zookeeper: ZooKeeperSession
    """The session of the process; each term has another one."""
    services: Services
    prepared: Preparation
    _sessions: list[int] = field(default_factory=list)
    """ZooKeeper sessions of this process's own terms; ZooKeeper may keep /controller of the last one for a while."""

    def run(self) -> CommandResult:
        """Become the controller when no other Surveyor holds the controllership; return when a signal arrives.

        If a broker is the controller, Surveyor takes over from it. After a term that another controller or the loss of
        the session ended, Surveyor waits for its turn again. After a take-over that failed it does the same, but waits
        twice as long each time, because a failing take-over leaves the cluster without a controller for some seconds.
        """
        replaces, wait, last_problem = self.options.replace, RECONNECT_SECONDS, ""
        while not is_interrupted():
            is_taking_over = False
            try:
                if not replaces:
                    self._await_turn()
                if is_interrupted():
                    break
                is_taking_over = True
                release_timeout = None if replaces else 0.0
                term = run_term(
                    self.settings,
                    self.zookeeper,
                    self.prepared,
                    self.services,
                    release_timeout,
                    until_quiet=self.options.until_quiet,
                    sample=self.options.sample,
                )
            except ControllershipHeldError:
                continue  # another standby was faster
            except (UsageError, MissingError):
                raise
            except SurveyorError as error:
                if str(error) != last_problem:
                    log(f"surveyor: {error}; standing by", logging.WARNING)
                wait = min(wait * 2, MAX_WAIT_SECONDS) if is_taking_over else RECONNECT_SECONDS
                last_problem = str(error)
                poll_until(is_interrupted, bool, wait)
                continue
            finally:
                replaces = False
            self._sessions.append(term.session)
            wait, last_problem = RECONNECT_SECONDS, ""
            if term.ended is None:
                return term.command_result()
            log(f"surveyor: {term.line}; standing by again", logging.WARNING)
        line = f"ended while standing by, after {pluralise(len(self._sessions), 'term')} as controller"
        return ending({"terms": len(self._sessions)}, line, exit_code())

    def _await_turn(self) -> None:
        """Wait while another Surveyor is the controller; prepare again from time to time, to stay up to date."""
        changed, prepared_at, announced = Event(), time.monotonic(), ""

        def wake(_: object) -> None:
            changed.set()

        with self.zookeeper.connected() as client:
            while not is_interrupted():
                changed.clear()
                client.exists_async(CONTROLLER, watch=wake)  # one function, which kazoo keeps once
                controller, session = with_retries(lambda: controller_and_session(client))
                if controller != self.settings.conf.controller_id:
                    state = read_state_before_take_over(self.settings, client)
                    known_ids = {state.cluster_id, self.prepared.cluster_id} - {None}
                    if len(known_ids) > 1:  # the cluster was created again
                        self.prepared = prepare(self.settings, self.options, client)
                    return
                holder = f"another Surveyor is the controller, id {controller}"
                if session in self._sessions:
                    holder = former_session_text(session)
                if holder != announced:
                    log(f"surveyor: standing by: {holder}")
                announced = holder
                changed.wait(POLL_SECONDS)
                if time.monotonic() - prepared_at > PREPARE_AGAIN_SECONDS:
                    self.prepared = prepare_again(self.settings, self.options, client, self.prepared)
                    prepared_at = time.monotonic()


def control_cluster(settings: Settings, options: ControlOptions, approve: Approve | None) -> CommandResult:
    """Be the controller until a signal arrives; without `apply`, show what is due.

    The process reads by one ZooKeeper session: before a take-over, while it stands by, and the SCRAM credentials of
    clients. A term has another session, which owns /controller: the end of that session is the resignation, and no
    write may be made in a later one. The plan inbox opens one for each submitted plan.
    """
    with ZooKeeperSession(settings.zookeeper_endpoint) as zookeeper:
        if options.apply:
            return _control(settings, options, zookeeper, approve)
        settings.warehouse.ensure_tables()
        with zookeeper.connected() as client:
            prepared = prepare(settings, options, client)
    if options.standby or options.replace or options.metrics or options.listen or options.sample:
        names = "--standby, --replace, --metrics, --listen and --sample"
        log(f"surveyor: {names} have no effect without --apply", logging.WARNING)
    keys = prepared.context.partitions.keys()
    return _report_dry(settings, prepared.engine.decide(prepared.context, keys, deletions=True))


def _control(
    settings: Settings, options: ControlOptions, zookeeper: ZooKeeperSession, approve: Approve | None
) -> CommandResult:
    with _metrics(settings, options) as metrics:  # a standby that waits for ZooKeeper is well, too
        with ThreadPoolExecutor(1) as pool:  # tables are made while ZooKeeper and the brokers respond
            tables = pool.submit(settings.warehouse.ensure_tables)
            prepared = prepare_first(settings, options, zookeeper, tables.result)
        if approve is not None and not approve(Review("become the controller of this cluster?")):
            raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
        brokers, configs = prepared.context.brokers, prepared.engine.broker_configs
        with (
            defer_signals(),
            running_services(zookeeper, options.listen, brokers, configs, metrics) as services,
        ):
            if options.standby:
                return Standby(settings, options, zookeeper, services, prepared).run()
            timeout = None if options.replace else RELEASE_TIMEOUT_SECONDS
            until_quiet, sample = options.until_quiet, options.sample
            term = run_term(settings, zookeeper, prepared, services, timeout, until_quiet=until_quiet, sample=sample)
            if term.ended is not None:
                raise type(term.ended)(term.line, term.result)
            return term.command_result()


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
    return CommandResult(result, title, *truncate(lines, command_line(settings, "plan", "reconcile")))
