"""The process of `surveyor control`: preparation, then one term as controller, or with --standby one after another.

Corresponds to `KafkaController.startup`. Without --apply it shows the first decisions of a controller.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from jobs.adapters.zookeeper.connection import ZooKeeperSession
from jobs.adapters.zookeeper.controllership import RELEASE_TIMEOUT_SECONDS
from jobs.controller.control_options import ControlOptions
from jobs.controller.decision_engine import Decisions
from jobs.controller.metrics import ControllerMetrics, serve
from jobs.controller.preparation import prepare, prepare_first
from jobs.controller.services import running_services
from jobs.controller.standby import Standby
from jobs.controller.term import run_term
from jobs.core.errors import SurveyorError
from jobs.core.signals import defer_signals
from jobs.runtime.console import CommandResult, log, truncate
from jobs.runtime.review import Approve, Review
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.text import pluralise


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
    if options.standby or options.replace or options.metrics or options.listen:
        log("surveyor: --standby, --replace, --metrics and --listen have no effect without --apply", logging.WARNING)
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
            term = run_term(settings, zookeeper, prepared, services, timeout, until_quiet=options.until_quiet)
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
    return CommandResult(result, title, *truncate(lines, command_line(settings, "plan", "reconcile", "--refresh")))
