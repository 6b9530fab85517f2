"""Verification of a plan: how far it has come, change by change and byte by byte, as the cluster shows it now.

A plan that is found complete is recorded as complete. So verification writes to the warehouse, but never to the
cluster. Brokers report the copied bytes and offsets; two readings some seconds apart give an estimate of the remaining
time. Figures that brokers do not report are shown as unknown. They do not change the status, which follows from the
cluster's metadata.
"""

from dataclasses import replace
from typing import Final

from jobs.adapters.clusters.interface import Cluster
from jobs.advice.outage import outage_after
from jobs.console_output.copy_progress import copy_figures
from jobs.console_output.verification import Verification
from jobs.core.errors import SurveyorError
from jobs.execution.admin.wave_progress import blocked_text
from jobs.execution.copy_measurement import measure
from jobs.execution.partial_plan_closing import close_ended
from jobs.execution.rollback import close_rolled_back
from jobs.preconditions.change_status import verify_plan
from jobs.preconditions.evenness import current_evenness
from jobs.preconditions.limits import refuse_other_id
from jobs.repositories.plans.commit_log import record_completion
from jobs.repositories.plans.plans_reader import find_plan, read_plan
from jobs.repositories.snapshots import last_snapshot, table_as_of
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.settings import Settings
from jobs.snapshots.copy_throttles import receiving_rates, throttles_of_moves
from planner.placement.plan_figures import Figures, figures_in
from schemas.enums import Action, PlanStatus
from schemas.rows import ThrottledConfig
from schemas.stored_plan import Plan

EVENNESS_COLUMNS: Final = ("topic", "partition", "replicas", "leader")
"""Columns of a snapshot's partitions that the balance of brokers is computed from."""


def verify_stored(settings: Settings, name: str, interval: float, *, in_full: bool) -> Verification:
    """Read how far a stored plan has come, and record it as complete if it is.

    `in_full` also measures what is being copied, in two readings `interval` seconds apart, and how evenly brokers are
    used.
    """
    plan = read_plan(settings.warehouse, name)
    with settings.connect() as cluster:
        cluster.sync()
        refuse_other_id(plan, cluster.read_cluster(), settings.address, settings.address_option)
        current, operations = cluster.read_current(plan.changes), cluster.read_operations(plan.operations)
        verification = Verification(plan, verify_plan(plan, current, operations), current.partitions)
        moves = [change for change in verification.moving if change.action == Action.REASSIGN]
        verification.blocked = blocked_text(moves, current)
        holder = cluster.read_lease_holder()
        verification.holder = holder if holder is not None and holder.plan == plan.plan_id else None
        if verification.is_complete:
            record_completion(settings.warehouse, plan)
            if unmarked := close_rolled_back(cluster, settings, plan):
                verification.warnings.append(unmarked)
        if plan.row.status == PlanStatus.PARTIAL:
            close_ended(settings.warehouse, cluster, plan, current, operations)
            verification.plan = replace(plan, row=find_plan(settings.warehouse, plan.plan_id))
        verification.throttled = plan.plan_id in throttled_plans(settings.warehouse)
        if in_full:
            try:
                verification.copying = measure(cluster, settings, verification.moving, interval)
                verification.warnings += _limit_copying(settings, cluster, verification)
            except SurveyorError as error:
                verification.warnings.append(f"how much is copied is unknown: {error}")
            verification.evenness = _evenness_now(settings, cluster, plan)
        verification.outage = outage_after(cluster, settings.warehouse, plan.row)
    return verification


def _limit_copying(settings: Settings, cluster: Cluster, verification: Verification) -> list[str]:
    """Read the throttles under which the plan's replicas are copied now; describe those of other tools and plans."""
    if verification.copying is None:
        return []
    rows = settings.warehouse.typed_rows(ThrottledConfig) if settings.warehouse.has("throttles") else []
    throttles = throttles_of_moves(cluster, verification.moving, rows)
    verification.copying = replace(verification.copying, limits=receiving_rates(throttles))
    brokers = copy_figures(verification.copying).brokers.values()
    left = [rate.bytes_total - rate.bytes_done for rate in brokers]
    is_known = not any(rate.unknown for rate in brokers)
    return [
        throttle.text(sum(left) if is_known else None, max(left, default=0))
        for throttle in throttles
        if throttle.plan_id != verification.plan.plan_id
    ]


def _evenness_now(settings: Settings, cluster: Cluster, plan: Plan) -> Figures | None:
    figures = figures_in(plan.row.options)
    counted = None if figures is None else figures.brokers_counted
    if counted is None or (snapshot := last_snapshot(settings.warehouse)) is None:
        return None
    cluster.sync()
    current = cluster.read_partitions([change.key for change in plan.changes])
    partitions = table_as_of(settings.warehouse, snapshot, "partitions", columns=EVENNESS_COLUMNS)
    return current_evenness(counted, current, partitions)
