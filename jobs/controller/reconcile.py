"""One cycle of a controller in one process: a snapshot, a plan of what is due, the question, and the commit.

Dry unless applied: then the snapshot is taken and the plan is stored, and what a commit would write is shown. Killed
at any moment, the same cycle goes on: a new snapshot shows what is still due, and only that is planned. `until_quiet`
does so again and again, until a snapshot shows nothing that is due, or cycles change nothing.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Final

from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import refuse_take_over
from jobs.adapters.zookeeper.plan_submission import resident
from jobs.advice.outage import Outage, in_json, outage_left_by
from jobs.advice.plans import after_commit
from jobs.console_output.plan_text import rejection_lines
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UsageError
from jobs.core.signals import defer_signals, exit_code, interrupted
from jobs.execution.admin.reassignment_options import DEFAULT
from jobs.execution.batch.commit import take_over_above
from jobs.execution.commit import apply_plan
from jobs.execution.preflight import Preflight, check_before_commit
from jobs.execution.report import ReportExtras, counts, plan_result, refuse_unless_agreed, report_applied, report_dry
from jobs.planning.plan import make_plan
from jobs.planning.reconcile import plan_reconcile
from jobs.preconditions.limits import CommitLimits
from jobs.repositories.controller_epochs import latest_recorded_epoch, set_back
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import confirm, emit_result, is_terminal, log
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import same_step, stated_command, suggestion
from planner.text import pluralise
from schemas.enums import Outcome, RejectionCode
from schemas.rows import Place, PlanRow

MAX_IDLE_CYCLES: Final = 3
"""Cycles in a row that change nothing, or plan the same, after which it is left to whoever looks into it."""

MAX_SUPERSEDED: Final = 5
"""Plans in a row that other runs may delete, before this run ends with an error."""

FIRST_PAUSE_SECONDS: Final = 2.0
MAX_PAUSE_SECONDS: Final = 30.0
"""Seconds between two looks at replicas that copy."""


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """What is asked: what is due, allowing what, and whether with requests that a broker would carry out."""

    allow_unclean: bool = False
    requests: bool = False


def reconcile_once(
    settings: Settings,
    mode: Mode,
    limits: CommitLimits,
    *,
    hold: float,
    apply: bool,
    yes: bool,
    question: ReconcileOptions,
    everything: bool,
    detailed: bool,
) -> ExitCode:
    """Take a snapshot, plan what is due after failures, and commit it, or show what that would do."""
    _refuse_admin(mode)
    plan = _plan(settings, question)
    outage = outage_left_by(settings.lake, plan.row)
    known = {
        "snapshot_id": plan.row["snapshot_id"],
        "plan_id": plan.plan_id,
        "rejected": len(plan.rejections),
        **in_json(outage),
    }
    beside = ReportExtras(known, [*_sentence(outage), *rejection_lines(settings, plan)])
    if not plan.size:
        return _nothing_due(settings, plan, beside, apply=apply, yes=yes, detailed=detailed)
    try:
        assessed = check_before_commit(settings, plan, mode, limits)
        if not apply:
            return report_dry(settings, plan, assessed, DEFAULT, beside, detailed=detailed, everything=everything)
        _refuse_resident(assessed)
        refuse_unless_agreed(settings, plan, assessed, DEFAULT, beside, yes=yes, everything=everything)
        ledger = apply_plan(settings, plan, assessed, hold)
    except SurveyorError as error:
        error.result = known | {"status": _status(settings, plan)} | error.result
        raise
    return report_applied(settings, plan, ledger, beside, detailed=detailed)


def reconcile_until_quiet(
    settings: Settings, mode: Mode, limits: CommitLimits, *, hold: float, yes: bool, question: ReconcileOptions
) -> ExitCode:
    """Reconcile until nothing is due, a line a cycle; the question is asked for the first of them.

    While replicas copy nothing is due, and it looks again; what waits for a broker that is not there is left.
    """
    _refuse_admin(mode)
    cycles = vain = 0
    pause, steps_before = FIRST_PAUSE_SECONDS, frozenset[Place]()
    written: Counter[str] = Counter()
    while True:
        plan = _plan(settings, question)
        if not plan.size and (
            copying := [row for row in plan.rejections if row["code"] == RejectionCode.WAITS_FOR_ISR]
        ):
            first = f"{copying[0]['topic']}-{copying[0]['partition']}: {copying[0]['reason']}"
            log(
                f"surveyor: {pluralise(len(copying), 'partition', 'copies', 'copy')} ({first}); it looks "
                f"again in {pause:g} s"
            )
            time.sleep(pause)
            pause = min(MAX_PAUSE_SECONDS, pause * 2)
            continue
        pause = FIRST_PAUSE_SECONDS
        outage = outage_left_by(settings.lake, plan.row)
        known = {
            "snapshot_id": plan.row["snapshot_id"],
            "cycles": cycles,
            **written,
            **in_json(outage),
        }
        beside = ReportExtras(known, [*_sentence(outage), *rejection_lines(settings, plan)])
        if not plan.size:
            _above_known_epochs(settings, plan, apply=True, yes=yes or cycles > 0)
            why = suggestion(settings, "why it is left", "show", "rejections", plan.plan_id)
            nothing = "nothing more can be written" if outage else "nothing is due"
            title, steps = f"{nothing} after {cycles} cycles", [why] if plan.rejections else []
            emit_result(settings, beside.result | {"due": 0}, title, *beside.lines, steps=steps)
            return ExitCode.DONE
        assessed = check_before_commit(settings, plan, mode, limits)
        _refuse_resident(assessed)
        refuse_unless_agreed(settings, plan, assessed, DEFAULT, beside, yes=yes or cycles > 0)
        answer = plan_result(settings, plan, apply_plan(settings, plan, assessed, hold), detailed=False)
        cycles += 1
        written.update({name: answer.result[name] for name in ("applied_now", Outcome.STALE.value)})
        log(f"surveyor: cycle {cycles}: {answer.lines[0]}")
        rows: list[PlanRow] = [*plan.changes, *plan.tasks]
        steps_now = frozenset(row.place for row in rows)
        vain = 0 if answer.result["applied_now"] and steps_now != steps_before else vain + 1
        steps_before = steps_now
        code = exit_code() if interrupted() else ExitCode(answer.exit_code)
        if interrupted() or code == ExitCode.ERROR or vain == MAX_IDLE_CYCLES:
            result = beside.result | {"cycles": cycles, **written, "due": plan.size}
            steps = after_commit(settings, plan.called, answer.result["status"], answer.result)
            steps = [same_step(settings, "go on", "reconcile")] if interrupted() else steps
            lines = f"not quiet after {cycles} cycles: {answer.lines[0]}", *answer.lines[1:]
            emit_result(settings, result, *lines, steps=steps)
            return code


def _refuse_admin(mode: Mode) -> None:
    if mode is Mode.ADMIN:
        raise UsageError("--mode admin: Kafka's Admin API repairs no leaders and ISRs; leave it out, or say batch")


def _refuse_resident(assessed: Preflight) -> None:
    if assessed.resident_controller is not None:
        raise RefusedError(
            f"{assessed.resident_controller}, is the controller and does what is due by itself; nothing was written"
        )


def _plan(settings: Settings, question: ReconcileOptions) -> Plan:
    """Take a snapshot and plan on it.

    Another run that plans no changes on a later snapshot deletes a plan that has none: plan again in that case.
    """
    for tries_left in reversed(range(MAX_SUPERSEDED)):
        made = make_plan(
            settings,
            PlanOptions(refresh=True, command=stated_command(settings, "reconcile")),
            lambda at: plan_reconcile(at, **asdict(question)),
        )
        try:
            plan = read_plan(settings.lake, made["plan_id"])
            break
        except UsageError:
            if made["changes"] or not tries_left:
                raise
            log("surveyor: another run has planned on a later snapshot; this one plans again")
    tasks = f", {len(plan.tasks)} operations" if plan.tasks else ""
    log(
        f"surveyor: plan {made['plan_id']} on snapshot {made['snapshot_id']}: "
        f"{pluralise(made['changes'], 'change')}{tasks}"
    )
    return plan


def _nothing_due(
    settings: Settings, plan: Plan, beside: ReportExtras, *, apply: bool, yes: bool, detailed: bool
) -> ExitCode:
    """Say so; no broker is asked for anything then, and a dry run says no more."""
    result = beside.result | {"status": plan.row["status"], "dry_run": not apply, "due": 0, "applied_now": 0}
    nothing = "nothing can be written" if "outage" in beside.result else "nothing is due"
    title = f"{nothing} on snapshot {plan.row['snapshot_id']}: nothing was written"
    behind = _above_known_epochs(settings, plan, apply=apply, yes=yes)
    done = "it was taken over above that" if apply else "--apply takes over above that"
    lines = [f"  {behind}; {done}"] if behind else []
    emit_result(settings, result | counts([]), title, *lines, *beside.lines, steps=[])
    return ExitCode.CHANGES if behind and detailed and not apply else ExitCode.DONE


def _above_known_epochs(settings: Settings, plan: Plan, *, apply: bool, yes: bool) -> str | None:
    """Say that brokers refuse the controller, as its epoch is earlier than one they know; mend it where applied.

    The snapshot that was just taken has recorded the epochs of all states.
    """
    latest = latest_recorded_epoch(settings.lake, plan.row["cluster_id"])
    with connected(settings.zookeeper) as client:
        state, holder = read_cluster(client, settings.zookeeper), resident(client)
    behind = set_back(state.control["controller_epoch"], latest)
    if behind is None or not apply:
        return behind
    if holder is not None:
        raise RefusedError(f"{behind}. {holder}, is the controller: start it again, and it takes over above that")
    refuse_take_over(state, settings.conf.controller_id)
    if (
        not yes
        and is_terminal()
        and not confirm(f"{behind}. Take the controllership over above that, and hand it back?")
    ):
        raise SurveyorError("not applied: the question was not answered with yes; nothing was written")
    with defer_signals():
        take_over_above(settings, CommitLog.open(settings.lake, plan), latest, since=state.epoch)
    return behind


def _sentence(outage: Outage | None) -> list[str]:
    return [f"  {outage.sentence}"] if outage else []


def _status(settings: Settings, plan: Plan) -> str:
    return str(read_plan(settings.lake, plan.plan_id).row["status"])
