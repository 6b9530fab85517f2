"""What a commit finds due before it writes anything: the same for a dry run and a real one.

The plan is checked against the limits, the cluster is read, and each row is judged: due, applied already, or stale.
No Spark and no JVM.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import refuse_take_over
from jobs.adapters.zookeeper.plan_submission import resident
from jobs.adapters.zookeeper.topics import latest_epoch_of_states
from jobs.core.errors import RefusedError
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.batch.commit import refuse_unreachable
from jobs.execution.batch.topic_znodes import refuse_too_large
from jobs.execution.mode_selection import choose_mode
from jobs.preconditions.changes import Preconditions
from jobs.preconditions.limits import CommitLimits, refuse_beyond
from jobs.preconditions.operations import judge_tasks
from jobs.preconditions.reassignments import all_reassignments, warnings_of_others
from jobs.preconditions.waves import evaluate_waves
from jobs.repositories.controller_epochs import latest_recorded_epoch, set_back
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from schemas.enums import Action
from schemas.lease import LeaseHolder
from schemas.rows import PlanRow


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a commit finds before it writes anything."""

    state: ClusterState
    mode: Mode
    why: str
    pending: list[PlanRow]
    already_decided: list[RowOutcome]
    limits: CommitLimits
    """By which the plan was found fit to be committed."""
    resident_controller: LeaseHolder | None = None
    """The Surveyor that is the controller to stay, if one is; never the one that asks."""
    latest_epoch: int = 0
    """The latest controller epoch that the warehouse or, in batch mode, a state knows: ours is to be above it."""


def check_before_commit(
    settings: Settings,
    plan: Plan,
    mode: Mode,
    limits: CommitLimits,
    running: ReassignmentOptions = DEFAULT,
    *,
    is_ours: bool = False,
) -> Preflight:
    """Read the cluster, refuse what must be refused, and tell what is due; the same for a dry run and a real one.

    `is_ours`: whoever asks has the controllership.
    """
    # before the cluster is read: a controller that takes over meanwhile is no reason to call its epoch an early one
    latest_epoch = latest_recorded_epoch(settings.lake, plan.row["cluster_id"])
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
        refuse_beyond(limits, settings, plan, state, datetime.now(UTC))
        in_office = None if is_ours else resident(client)
        behind = None if is_ours or in_office else set_back(state.control["controller_epoch"], latest_epoch)
        chosen, why = choose_mode(
            mode, settings, plan, state, running, resident_controller=in_office, epoch_behind=behind
        )
        if chosen is Mode.BATCH:
            refuse_take_over(state, settings.conf.controller_id)
            refuse_unreachable(state, settings.listener)
            due, verdicts = Preconditions.of(plan, state).judge(client, plan.changes)
            refuse_too_large(client, plan, due)
        else:
            due, verdicts = evaluate_waves(client, plan.changes)
            if any(change.action == Action.REASSIGN for change in due):
                for line in warnings_of_others(settings, plan, due, all_reassignments(client)):
                    log(line)
        tasks, settled = judge_tasks(client, plan.tasks)
        takes_over = chosen is Mode.BATCH and bool(due or tasks) and not (in_office or is_ours)
        if takes_over:
            latest_epoch = max(latest_epoch, latest_epoch_of_states(client))
    if takes_over:
        refuse_unresponsive(state.brokers, settings.conf.controller_id, limits.allow_silent, settings.listener)
    return Preflight(state, chosen, why, [*due, *tasks], [*verdicts, *settled], limits, in_office, latest_epoch)


def recheck(settings: Settings, plan: Plan, previous: Preflight) -> Preflight:
    """Judge anew what batch mode is to write; refused where a Surveyor took office that carries plans out itself."""
    again = check_before_commit(settings, plan, Mode.BATCH, previous.limits)
    if again.resident_controller is not None:
        raise RefusedError(
            f"{again.resident_controller}, became the controller meanwhile; commit again: the plan is handed in"
        )
    return again
