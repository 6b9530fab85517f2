"""Rollback of a plan: plan the reverse, store it as a separate plan, and commit it at once if requested."""

from collections.abc import Callable
from typing import Any

from jobs.adapters.cluster_connections.interface import ClusterReader
from jobs.advice.plans import after_planning
from jobs.console_output.commit_events import PlanReused, Report
from jobs.console_output.plan_review import plan_lines, plan_warnings
from jobs.core.errors import ExitCode
from jobs.execution.rollback_completion import close_rolled_back, read_rollback, target_snapshot
from jobs.execution.rollback_plan import refuse_without_snapshot
from jobs.repositories.plans.names import Alias, plan_named, refuse_other_parameters
from jobs.repositories.plans.record_builders import InMemoryRows, PlanHeader
from jobs.repositories.plans.repository import find_plan, read_plan, refuse_edited
from jobs.repositories.plans.store import result_of, store
from jobs.runtime.console import CommandResult
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import stated_command
from schemas.enums import PlanKind, PlanStatus
from schemas.plan import Plan


def plan_rollback(
    settings: Settings, plan: str, to_snapshot: int | None, alias: Alias, *, detailed: bool, report: Report
) -> CommandResult:
    """Plan the rollback of a plan, and return what shows it."""
    original = read_plan(settings.warehouse, plan)
    refuse_without_snapshot(original)
    refuse_edited(original)
    if to_snapshot == original.row.snapshot_id:
        to_snapshot = None  # the plan's rows contain this snapshot's assignments, even if it was dropped
    rollback = _existing_plan(settings, original, to_snapshot, alias, report)
    if rollback is None:
        with settings.connection as cluster, cluster.reading() as reader:
            rollback = _make_plan(reader, settings, original, to_snapshot, alias)
    row = find_plan(settings.warehouse, rollback.plan_id)
    return CommandResult(
        result_of(row) | {"rollback_of": original.plan_id, "rollback_of_status": original.row.status},
        *plan_lines(settings, row),
        steps=after_planning(settings, row, alias.name or rollback.plan_id, operations=0),
        warnings=plan_warnings(settings.warehouse, row),
        exit_code=ExitCode.CHANGES if detailed and rollback.changes else ExitCode.DONE,
    )


def commit_rollback(settings: Settings, planned: CommandResult, commit: Callable[[], CommandResult]) -> CommandResult:
    """Commit a rollback that was just planned; the plan that it undoes is marked once every partition is restored.

    `commit` is `commit_planned` with what was given on the command line.
    """
    done = CommandResult(planned.fields, steps=[], warnings=planned.warnings)
    if planned.fields["changes"]:
        done = commit()
    else:
        with settings.connection as cluster, cluster.reading() as reader:
            close_rolled_back(reader, settings, read_plan(settings.warehouse, planned.fields["plan_id"]))
    original = find_plan(settings.warehouse, planned.fields["rollback_of"])
    is_back = original.status == PlanStatus.ROLLED_BACK
    later = f"; rolled_back once `surveyor verify {planned.fields['plan_id']}` finds every partition restored"
    done.lines = *done.lines, f"plan {original.title} is {original.status}{'' if is_back else later}"
    done.fields |= {"rollback_of_status": original.status, "rolled_back": is_back}
    return done


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
