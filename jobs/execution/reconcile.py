"""One cycle of a controller in one process: a snapshot, a plan of what is due, a confirmation, and the commit.

Without --apply it is a dry run: it takes the snapshot, stores the plan, and shows the writes of a commit. If the
process is killed, the next one continues: it plans the changes that a new snapshot shows to be due.
`reconcile_until_quiet` repeats the cycle until a snapshot shows nothing that is due, or cycles change nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.controllership import refuse_take_over
from jobs.advice.outage import Outage, in_json, outage_left_by
from jobs.advice.plans import after_commit
from jobs.console_output.plan_review import plan_warnings
from jobs.console_output.plan_text import rejection_lines
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UsageError
from jobs.core.signals import defer_signals, exit_code, is_interrupted
from jobs.execution.batch.batch_commit import CommitContext, take_over_above
from jobs.execution.batch.notification import HoldBudget
from jobs.execution.commit import apply_plan
from jobs.execution.commit_options import CommitOptions
from jobs.execution.commit_report import ReportExtras, plan_result, refuse_unapproved, report_applied, report_dry
from jobs.execution.preflight import Preflight, check_before_commit
from jobs.repositories.controller_epochs import epoch_regression_message, latest_recorded_epoch
from jobs.repositories.plans.commit_log import CommitLog, count_outcomes
from jobs.repositories.plans.plans_reader import read_plan
from jobs.runtime.approval import Review
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult, Result, log
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_step, suggestion
from schemas.enums import RejectionCode
from schemas.rows import Place, PlanRow
from schemas.stored_plan import Plan
from schemas.text import pluralise

MAX_IDLE_CYCLES: Final = 3
"""Cycles in a row that change nothing or plan the same, after which the command ends."""

MAX_PAUSE_SECONDS: Final = 30.0
"""Upper limit of the pause between two snapshots while replicas copy; it doubles each time."""


@dataclass(frozen=True, slots=True)
class _PlannedCycle:
    """The plan of one cycle, and the partitions that stay offline after it."""

    plan: Plan
    outage: Outage | None

    @property
    def json(self) -> Result:
        return {
            "snapshot_id": self.plan.row.snapshot_id,
            "plan_id": self.plan.plan_id,
            "rejected": len(self.plan.rejections),
            **in_json(self.outage),
        }


@dataclass(frozen=True, slots=True)
class _DoneCycles:
    """The cycles before the one that has planned this, and their rows by outcome."""

    plan: Plan
    outage: Outage | None
    cycles: int
    totals: Mapping[str, int]

    @property
    def json(self) -> Result:
        return {
            "snapshot_id": self.plan.row.snapshot_id,
            "cycles": self.cycles,
            **self.totals,
            **in_json(self.outage),
        }


PlanMaker = Callable[[Cluster], Plan]
"""Takes a snapshot of a source, and makes a plan of what is due on it."""


def reconcile_once(settings: Settings, make_plan: PlanMaker, options: CommitOptions) -> CommandResult:
    """Take a snapshot, plan what is due after failures, and commit it or show what a commit would do."""
    _refuse_admin(options.mode)
    with ZooKeeperCluster(settings.zookeeper_endpoint) as cluster:
        plan = make_plan(cluster)
        outage = outage_left_by(settings.warehouse, plan.row)
        facts = _PlannedCycle(plan, outage).json
        extras = ReportExtras(facts, [*_outage_line(outage), *rejection_lines(settings, plan)])
        if not plan.size:
            return _nothing_due(settings, cluster, plan, options, extras)
        try:
            preflight = check_before_commit(settings, cluster, plan, options.mode, options.limits)
            if not options.apply:
                return report_dry(settings, cluster, plan, preflight, options, extras=extras)
            _refuse_resident(preflight)
            refuse_unapproved(settings, plan, preflight, options, extras)
            commit_log = apply_plan(settings, cluster, plan, preflight, options.hold)
        except SurveyorError as error:
            status = read_plan(settings.warehouse, plan.plan_id).row.status
            error.result = facts | {"status": status} | error.result
            raise
        return report_applied(settings, plan, commit_log, extras, detailed=options.detailed)


def reconcile_until_quiet(settings: Settings, make_plan: PlanMaker, options: CommitOptions) -> CommandResult:
    """Reconcile until nothing is due, with a log line for each cycle; only the first cycle asks for confirmation.

    While replicas copy, nothing is due, and the command waits. It does not wait for dead brokers. The counts by outcome
    include all cycles. A row that was stale in a cycle is checked again in the next one, so the detailed exit code
    concerns the last cycle.
    """
    _refuse_admin(options.mode)
    cycles = idle_cycles = 0
    pause, steps_before = settings.pace.first_pause, frozenset[Place]()
    totals: Counter[str] = Counter({"applied_now": 0, **count_outcomes(())})
    with ZooKeeperCluster(settings.zookeeper_endpoint) as cluster:
        while True:
            plan = make_plan(cluster)
            if not plan.size and (
                copying := [row for row in plan.rejections if row.code == RejectionCode.WAITS_FOR_ISR]
            ):
                copy, first = pluralise(len(copying), "partition", "copies", "copy"), copying[0]
                log(f"surveyor: {copy} ({first.name}: {first.reason}); next snapshot in {pause:g} s")
                time.sleep(pause)
                pause = min(MAX_PAUSE_SECONDS, pause * 2)
                continue
            pause = settings.pace.first_pause
            outage = outage_left_by(settings.warehouse, plan.row)
            extras = ReportExtras(
                _DoneCycles(plan, outage, cycles, totals).json,
                [*_outage_line(outage), *rejection_lines(settings, plan)],
            )
            if not plan.size:
                _raise_stale_epoch(settings, cluster, plan, options)
                reason = suggestion(settings, "see why", "show", "rejections", plan.plan_id)
                nothing = "nothing more can be written" if outage else "nothing is due"
                title, steps = f"{nothing} after {cycles} cycles", [reason] if plan.rejections else []
                return _nothing_due_result(settings, plan, extras, {"due": 0}, title, steps=steps)
            preflight = check_before_commit(settings, cluster, plan, options.mode, options.limits)
            _refuse_resident(preflight)
            refuse_unapproved(settings, plan, preflight, options, extras)
            if preflight.pending:
                # for the cycles to come; without pending rows nothing was asked
                options = replace(options, approve=None)
            commit_log = apply_plan(settings, cluster, plan, preflight, options.hold)
            committed = plan_result(settings, plan, commit_log, detailed=options.detailed)
            cycles += 1
            totals.update({name: committed.result[name] for name in totals})
            log(f"surveyor: cycle {cycles}: {committed.lines[0]}")
            rows: list[PlanRow] = [*plan.changes, *plan.tasks]
            steps_now = frozenset(row.place for row in rows)
            idle_cycles = 0 if committed.result["applied_now"] and steps_now != steps_before else idle_cycles + 1
            steps_before = steps_now
            code = exit_code() if is_interrupted() else ExitCode(committed.exit_code)
            if is_interrupted() or code == ExitCode.ERROR or idle_cycles == MAX_IDLE_CYCLES:
                result = extras.result | {"cycles": cycles, **totals, "due": plan.size}
                steps = after_commit(settings, plan.called, committed.result["status"], committed.result)
                steps = [same_step(settings, "continue", "reconcile")] if is_interrupted() else steps
                lines = f"not quiet after {cycles} cycles: {committed.lines[0]}", *committed.lines[1:]
                return CommandResult(result, *lines, steps=steps, warnings=[], exit_code=code)


def _refuse_admin(mode: Mode) -> None:
    if mode is Mode.ADMIN:
        raise UsageError(
            "--mode admin: Kafka's Admin API cannot repair leaders and ISRs; omit the option, or use batch"
        )


def _refuse_resident(preflight: Preflight) -> None:
    if preflight.resident_controller is not None:
        raise RefusedError(
            f"{preflight.resident_controller}, is the controller and makes due changes itself; nothing was written"
        )


def _nothing_due(
    settings: Settings, cluster: ZooKeeperCluster, plan: Plan, options: CommitOptions, extras: ReportExtras
) -> CommandResult:
    """Report that nothing is due, without connecting to any broker."""
    apply = options.apply
    result = extras.result | {"status": plan.row.status, "dry_run": not apply, "due": 0, "applied_now": 0}
    nothing = "nothing can be written" if "outage" in extras.result else "nothing is due"
    title = f"{nothing} on snapshot {plan.row.snapshot_id}: nothing was written"
    stale_epoch = _raise_stale_epoch(settings, cluster, plan, options)
    done = "the controllership was taken" if apply else "--apply takes the controllership"
    lines = [f"  {stale_epoch}; {done} with a later epoch"] if stale_epoch else []
    shown = _nothing_due_result(settings, plan, extras, result | count_outcomes([]), title, *lines, steps=[])
    if stale_epoch and options.detailed and not apply:
        shown.exit_code = ExitCode.CHANGES
    return shown


def _nothing_due_result(
    settings: Settings, plan: Plan, extras: ReportExtras, result: Result, *lines: str, steps: Sequence[Suggestion]
) -> CommandResult:
    """Return that nothing is due, and the warnings of what the plan could not look at."""
    plan_warned = plan_warnings(settings.warehouse, plan.row)
    shown = (f"  warning: {warning}" for warning in plan_warned)
    return CommandResult(extras.result | result, *lines, *extras.lines, *shown, steps=steps, warnings=plan_warned)


def _raise_stale_epoch(settings: Settings, cluster: ZooKeeperCluster, plan: Plan, options: CommitOptions) -> str | None:
    """Return why brokers refuse the controller, if its epoch is earlier than one they know; raise it unless dry.

    The snapshot that was just taken has recorded the epochs of all states.
    """
    latest = latest_recorded_epoch(settings.warehouse, plan.row.cluster_id)
    state, holder = cluster.read_cluster(), cluster.read_resident_controller()
    stale_epoch = epoch_regression_message(state.controller_epoch, latest)
    if stale_epoch is None or not options.apply:
        return stale_epoch
    if holder is not None:
        raise RefusedError(
            f"{stale_epoch}. {holder}, is the controller: restart it; it then takes over with a later controller epoch"
        )
    refuse_take_over(state, settings.conf.controller_id)
    question = f"{stale_epoch}. Take the controllership with a later epoch, then resign?"
    if options.approve is not None and not options.approve(Review(question)):
        raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
    with defer_signals():
        commit_log = CommitLog.open(settings.warehouse, plan)
        take_over_above(CommitContext(settings, cluster, commit_log, HoldBudget(0.0), state.controller_epoch, latest))
    return stale_epoch


def _outage_line(outage: Outage | None) -> list[str]:
    return [f"  {outage.sentence}"] if outage else []
