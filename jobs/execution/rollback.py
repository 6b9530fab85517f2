"""Rollback of a plan: plan the reverse, store it as a separate plan, and commit it at once if requested."""

from collections.abc import Iterator
from typing import Any

from jobs.adapters.cluster_connections.interface import ClusterConnection, ClusterReader
from jobs.advice.plans import after_commit, after_planning
from jobs.console_output.commit_events import PlanReused, Report
from jobs.console_output.plan_review import plan_lines, plan_warnings
from jobs.console_output.plan_text import rejection_lines
from jobs.core.errors import ExitCode
from jobs.execution.admin.reassignment_options import ReassignmentOptions
from jobs.execution.commit import apply_plan, with_default_throttle
from jobs.execution.commit_report import ReportExtras, nothing_written, plan_result, refuse_unapproved
from jobs.execution.ended_plans import close_ended_plans
from jobs.execution.preflight import check_before_commit
from jobs.execution.rollback_completion import close_if_rolled_back, read_rollback, target_snapshot
from jobs.execution.rollback_plan import refuse_without_snapshot
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.plans.names import Alias, plan_named, refuse_other_parameters
from jobs.repositories.plans.record_builders import InMemoryRows, PlanHeader
from jobs.repositories.plans.repository import find_plan, read_plan, refuse_edited
from jobs.repositories.plans.store import result_of, store
from jobs.runtime.cli_enums import Mode
from jobs.runtime.commit_limits import commit_limits
from jobs.runtime.console import CommandResult, Result
from jobs.runtime.review import Approve
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import stated_command
from schemas.enums import PlanKind, PlanStatus
from schemas.plan import Plan
from schemas.rows import PlanRecord
from schemas.submitted_plan import PlanResult


def roll_back_plan(
    settings: Settings,
    plan: str,
    to_snapshot: int | None,
    alias: Alias,
    mode: Mode,
    *,
    approve: Approve | None,
    running: ReassignmentOptions,
    max_changes: int | None,
    apply: bool,
    detailed: bool,
    report: Report,
) -> CommandResult:
    """Plan the rollback, and commit it if requested; return what that shows."""
    original = read_plan(settings.warehouse, plan)
    refuse_without_snapshot(original)
    refuse_edited(original)
    if to_snapshot == original.row.snapshot_id:
        to_snapshot = None  # the plan's own rows contain what it showed, even if it was dropped since
    rollback = _existing_plan(settings, original, to_snapshot, alias, report)
    if rollback is None or apply:
        with settings.connection as cluster:
            if rollback is None:
                with cluster.reading() as reader:
                    rollback = _make_plan(reader, settings, original, to_snapshot, alias)
            if apply:
                limits = commit_limits(settings, None, max_changes, allow_majority_dead=False, allow_silent=None)
                running = with_default_throttle(settings, rollback, running)
                committed = _commit(
                    settings,
                    cluster,
                    rollback,
                    mode,
                    limits,
                    approve=approve,
                    running=running,
                    detailed=detailed,
                    report=report,
                )
                close_ended_plans(settings, cluster)
                with cluster.reading() as reader:
                    is_back = close_if_rolled_back(reader, settings, original, to_snapshot)
                return _report(
                    settings, read_plan(settings.warehouse, rollback.plan_id), original, committed, is_back=is_back
                )
    row = find_plan(settings.warehouse, rollback.plan_id)
    steps = after_planning(settings, row, alias.name or rollback.plan_id, operations=0)
    warned = plan_warnings(settings.warehouse, row)
    return CommandResult(
        _result(rollback, original),
        *_plan_lines(settings, row),
        steps=steps,
        warnings=warned,
        exit_code=ExitCode.CHANGES if detailed and rollback.changes else ExitCode.DONE,
    )


def _parameters(original: Plan, to_snapshot: int | None) -> dict[str, Any]:
    return {
        "rollback_of": original.plan_id,
        "to_snapshot": original.row.snapshot_id if to_snapshot is None else to_snapshot,
    }


def _existing_plan(
    settings: Settings, original: Plan, to_snapshot: int | None, alias: Alias, report: Report
) -> Plan | None:
    """Return the plan that has the name already; None if there is none, or if it will be replaced."""
    existing = None if alias.replaces else plan_named(settings.warehouse, alias.name)
    if not existing or not alias.name:
        return None
    refuse_other_parameters(existing, alias.name, PlanKind.REASSIGN, _parameters(original, to_snapshot), None)
    report(PlanReused(alias.name))
    return read_plan(settings.warehouse, existing.plan_id)


def _make_plan(
    reader: ClusterReader, settings: Settings, original: Plan, to_snapshot: int | None, alias: Alias
) -> Plan:
    """Make the plan and store it."""
    warehouse = settings.warehouse
    state = reader.read_cluster()
    rollback = read_rollback(state, reader, settings, original, to_snapshot)
    content = PlanHeader(
        kind=PlanKind.REASSIGN,
        parameters=_parameters(original, to_snapshot),
        snapshot_id=target_snapshot(original, to_snapshot),
        cluster_id=state.cluster_id,
        broker_epochs=state.live,
        command=stated_command(settings, "rollback", original.called),
    )
    warehouse.ensure_tables()
    rows = InMemoryRows(warehouse=warehouse, changes=rollback.changes, rejections=rollback.rejections)
    return read_plan(warehouse, store(warehouse, alias, content, rows).plan_id)


def _commit(
    settings: Settings,
    cluster: ClusterConnection,
    plan: Plan,
    mode: Mode,
    limits: CommitLimits,
    *,
    approve: Approve | None,
    running: ReassignmentOptions,
    detailed: bool,
    report: Report,
) -> PlanResult:
    """Commit as `surveyor commit` does, and return its result."""
    if not plan.changes or plan.row.status == PlanStatus.COMMITTED:
        return nothing_written(plan)
    preflight = check_before_commit(settings, cluster, plan, mode, limits, running=running)
    refuse_unapproved(settings, plan, preflight, running, ReportExtras(), approve=approve, report=report)
    hold = settings.conf.limits.max_hold_seconds
    commit_log = apply_plan(settings, cluster, plan, preflight, hold, running=running, report=report)
    return plan_result(settings, plan, commit_log, detailed=detailed)


def _result(plan: Plan, original: Plan) -> Result:
    source = {"rollback_of": original.plan_id, "rollback_of_status": original.row.status}
    return result_of(plan.row) | source


def _plan_lines(settings: Settings, plan: PlanRecord) -> Iterator[Any]:
    yield from plan_lines(settings, plan)
    if plan.changes:
        yield "nothing was written to the cluster"


def _report(settings: Settings, plan: Plan, original: Plan, committed: PlanResult, *, is_back: bool) -> CommandResult:
    original = read_plan(settings.warehouse, original.plan_id)
    steps = after_commit(settings, plan.called, plan.row.status, committed.result) if plan.changes else []
    result = _result(plan, original) | {"rolled_back": is_back} | committed.result
    return CommandResult(
        result,
        *committed.lines,
        *rejection_lines(settings, plan),
        f"plan {original.title} is {original.row.status}"
        + (
            ""
            if is_back
            else f"; its status becomes rolled_back when `surveyor verify {plan.plan_id}` finds every partition "
            "restored"
        ),
        steps=steps,
        warnings=[],
        exit_code=ExitCode(committed.exit_code),
    )
