"""Checks of a commit before it writes anything; dry runs and real commits make the same checks.

The plan is checked against the limits, the cluster is read, and each row is found pending, already applied or stale.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.adapters.brokers.connection import refuse_unresponsive
from jobs.adapters.clusters.interface import Cluster, ClusterMetadata
from jobs.adapters.zookeeper.controllership import refuse_take_over
from jobs.adapters.zookeeper.state_epochs import latest_epoch_of_states
from jobs.advice.reassignments import warnings_of_others
from jobs.core.errors import RefusedError
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.throttle_texts import foreign_throttle_texts
from jobs.execution.admin.throttles import rates_of
from jobs.execution.batch.batch_commit import refuse_unreachable
from jobs.execution.batch.topic_znode_content import refuse_too_large
from jobs.execution.mode_selection import choose_mode
from jobs.preconditions.broker_assumptions import UNCHANGED
from jobs.preconditions.cancellation_plan import refuse_unsafe_rows
from jobs.preconditions.change_preconditions import Preconditions
from jobs.preconditions.limits import CommitLimits, refuse_beyond, refuse_closed, refuse_other_cluster
from jobs.preconditions.operations import check_operations, confirm_creations
from jobs.preconditions.reassignment_progress import classify, reassignments_of
from jobs.preconditions.wave_outcomes import evaluate_waves
from jobs.repositories.controller_epochs import epoch_regression_message, latest_recorded_epoch
from jobs.repositories.plans.assumptions import brokers_since_plan
from jobs.repositories.plans.plans_reader import planned_registrations, refuse_edited
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import warn
from jobs.runtime.settings import Settings
from planner.load.throttle_rates import Rates
from schemas.enums import Action
from schemas.lease_holder import LeaseHolder
from schemas.rows import PlanRow
from schemas.stored_plan import Plan, RowOutcome


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of the checks before a commit."""

    state: ClusterMetadata
    mode: Mode
    reason: str
    """Reason why this mode was chosen."""
    pending: list[PlanRow]
    already_decided: list[RowOutcome]
    limits: CommitLimits
    """The limits that the plan was checked against."""
    resident_controller: LeaseHolder | None = None
    """The Surveyor that is the resident controller, if there is one; never the process that commits."""
    latest_epoch: int = 0
    """The latest controller epoch in the warehouse or, in batch mode, in any state; ours must be above it."""
    lease_holder: LeaseHolder | None = None
    """The process that has the lease of the cluster, before this commit asks for it."""
    rates: Rates | None = None
    """The rates under which replicas would be copied in this hour; None without a throttle."""

    @property
    def being_committed(self) -> set[str]:
        """The plan that the holder of the lease commits: its throttle is in use."""
        return set() if self.lease_holder is None else {self.lease_holder.plan}


def check_before_commit(
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    mode: Mode,
    limits: CommitLimits,
    *,
    running: ReassignmentOptions = DEFAULT,
    is_ours: bool = False,
) -> Preflight:
    """Read the cluster, raise RefusedError if the plan must not be committed, and return the pending rows.

    `is_ours`: the caller has the controllership.
    """
    # Read before the cluster: otherwise a controller that takes over in between would seem to have an early epoch.
    latest_epoch = latest_recorded_epoch(settings.warehouse, plan.row.cluster_id)
    state = cluster.read_cluster()
    refuse_closed(plan, state)
    refuse_edited(plan)
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    refuse_beyond(limits, plan, state, datetime.now(UTC))
    resident_controller = None if is_ours else cluster.read_resident_controller()
    lease_holder = cluster.read_lease_holder()
    epoch_behind = (
        None if is_ours or resident_controller else epoch_regression_message(state.controller_epoch, latest_epoch)
    )
    selected_mode, reason = choose_mode(
        mode,
        settings,
        plan,
        state,
        running,
        cluster=cluster,
        resident_controller=resident_controller,
        epoch_behind=epoch_behind,
    )
    since = brokers_since_plan(settings.warehouse, plan.row, state.brokers) if plan.changes else UNCHANGED
    moves, now = reassignments_of(plan), datetime.now(UTC)
    rates = rates_of(settings, plan.plan_id, moves, running.throttle, state.live, now) if moves else None
    if selected_mode is Mode.BATCH:
        refuse_take_over(state, settings.conf.controller_id)
        refuse_unreachable(state, settings.listener)
        pending, outcomes = Preconditions.in_batch_mode(
            plan.broker_epochs, plan.changes, state.live, state.deleting, since
        ).check(plan.changes, cluster.read_partitions([change.key for change in plan.changes]))
        with cluster.required_fence.connected() as client:
            refuse_too_large(client, plan, pending)
    else:
        pending, outcomes = evaluate_waves(
            plan.changes, cluster.read_current(plan.changes), planned_registrations(settings.warehouse, plan), since
        )
        refuse_unsafe_rows(plan, outcomes)
        if any(change.action == Action.REASSIGN for change in pending):
            others = classify(cluster.read_reassignments())
            for warning in warnings_of_others(settings, cluster, plan, pending, others):
                warn(warning)
            for text in foreign_throttle_texts(settings.warehouse, cluster, plan, pending, running.throttle):
                warn(text)
    outcomes = confirm_creations(plan, outcomes, cluster.read_operations)
    tasks, task_outcomes = check_operations(plan.tasks, cluster.read_operations(plan.tasks))
    takes_over = selected_mode is Mode.BATCH and bool(pending or tasks) and not (resident_controller or is_ours)
    if takes_over:
        with cluster.required_fence.connected() as client:
            latest_epoch = max(latest_epoch, latest_epoch_of_states(client))
        controller_id, seconds = settings.conf.controller_id, settings.pace.contact
        refuse_unresponsive(state.brokers, controller_id, limits.allow_silent, settings.listener, seconds)
    return Preflight(
        state,
        selected_mode,
        reason,
        [*pending, *tasks],
        [*outcomes, *task_outcomes],
        limits,
        resident_controller,
        latest_epoch,
        lease_holder,
        rates,
    )


def recheck(settings: Settings, cluster: Cluster, plan: Plan, previous: Preflight) -> Preflight:
    """Check again what batch mode has to write; raise RefusedError if a resident controller has taken over."""
    again = check_before_commit(settings, cluster, plan, Mode.BATCH, previous.limits)
    if again.resident_controller is not None:
        raise RefusedError(
            f"{again.resident_controller}, has become the controller; commit again: the plan is then submitted to it"
        )
    return again
