"""A commit, whatever its mode: what is due is told from what is applied already or stale, then written and recorded.

The modes share everything up to the writing: the plan is checked against the limits, the cluster is read, and each row
is judged. No Spark and no JVM.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from jobs.adapters.brokers.channel import refuse_silent
from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, refuse_take_over
from jobs.adapters.zookeeper.lease import Lease
from jobs.assessment.limits import CommitLimits, refuse_beyond
from jobs.assessment.moving import moving_in_zookeeper, refuse_others
from jobs.assessment.operations import judge_tasks
from jobs.assessment.premises import Premises
from jobs.assessment.waves import judge_waves
from jobs.basics.errors import SurveyorError
from jobs.basics.interrupts import deferred
from jobs.execution.admin.commit import commit_admin
from jobs.execution.admin.controllers import controller_of
from jobs.execution.admin.lease import lease_for
from jobs.execution.admin.running import Running
from jobs.execution.admin.throttles import left_over_lines, throttle_rows
from jobs.execution.batch.commit import commit_batch, refuse_unreachable
from jobs.execution.batch.topic_znodes import refuse_too_large
from jobs.execution.modes import Mode, choose_mode
from jobs.records.ledger import Ledger, Verdict
from jobs.records.plans import Plan
from jobs.runtime.console import say
from jobs.runtime.settings import Settings
from jobs.views.plans import how_much_is_due
from schemas.names import Action
from schemas.rows import PlanRow

_AS_EVER: Final = Running()


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a commit finds before it writes anything."""

    state: ClusterState
    mode: Mode
    why: str
    due: list[PlanRow]
    settled: list[Verdict]
    silent: frozenset[int] = frozenset()
    """Brokers that need not answer."""


def assess(settings: Settings, plan: Plan, mode: Mode, limits: CommitLimits, running: Running = _AS_EVER) -> Assessment:
    """Read the cluster, refuse what must be refused, and tell what is due; the same for a dry run and a real one."""
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
        refuse_beyond(limits, settings, plan, state, datetime.now(UTC))
        chosen, why = choose_mode(mode, settings, plan, state, running)
        if chosen is Mode.BATCH:
            refuse_take_over(state, settings.conf.controller_id)
            refuse_unreachable(state)
            due, verdicts = Premises.of(plan, state).judge(client, plan.changes)
            refuse_too_large(client, plan, due)
        else:
            due, verdicts = judge_waves(client, plan.changes)
            if any(change.action == Action.REASSIGN for change in due):
                refuse_others(plan, moving_in_zookeeper(client))
        tasks, settled = judge_tasks(client, plan.tasks)
    if chosen is Mode.BATCH and (due or tasks):
        refuse_silent(state.brokers, settings.conf.controller_id, limits.allow_silent)
    return Assessment(state, chosen, why, [*due, *tasks], [*verdicts, *settled], limits.allow_silent)


def apply_plan(
    settings: Settings,
    plan: Plan,
    found: Assessment,
    max_hold: float,
    held: Controllership | None = None,
    *,
    running: Running = _AS_EVER,
) -> Ledger:
    """Write what is due and record it; `held` is a controllership that the caller has and keeps."""
    watched = found.mode is Mode.ADMIN and (running.watches or bool(throttle_rows(settings.lake, plan.plan_id)))
    if found.mode is Mode.ADMIN and (found.due or watched):
        with lease_for(settings, plan.plan_id, "commit") as lease:
            return _apply(settings, plan, found, running=running, lease=lease)
    with deferred():
        return _apply(settings, plan, found, max_hold=max_hold, held=held)


def _apply(
    settings: Settings,
    plan: Plan,
    found: Assessment,
    *,
    max_hold: float = 0.0,
    held: Controllership | None = None,
    running: Running = _AS_EVER,
    lease: Lease | None = None,
) -> Ledger:
    """`lease` is that of the cluster, which is ours where Kafka's controller is to be asked."""
    say(f"  mode {found.mode} ({found.why}); {how_much_is_due(plan, found.due)}")
    for line in left_over_lines(settings.lake, plan):
        say(line)
    ledger = Ledger.open(settings.lake, plan)
    ledger.controller_epoch = None if held is None else held.epoch
    ledger.judge(verdict for verdict in found.settled)
    try:
        if lease is not None:
            with controller_of(settings, found.state, ledger, running, lease) as (controller, throttler):
                commit_admin(settings, ledger, controller, found.due, lease, running=running, throttler=throttler)
        elif not found.due:
            say("  nothing is due")
        else:
            commit_batch(settings, ledger, found.due, max_hold, held, silent=found.silent)
    except SurveyorError as error:
        error.result = {"plan_id": plan.plan_id, **ledger.counts()}
        raise
    finally:
        ledger.close()
    return ledger
