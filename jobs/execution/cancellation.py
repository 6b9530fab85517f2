"""Cancellation carried out: the plan is closed first, then Kafka's controller is asked, and what it did is read back.

Once a plan is closed no commit goes on with it, so what is read after that is all there is to cancel. The controller
leaves the replicas in the order of the target; where that differs, the order before is asked for, which moves no data.
A crash anywhere leaves a closed plan whose partitions tell how far they are: cancelling again does the rest.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.brokers.admin import (
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_OUTCOME,
    Admin,
    describe_error,
    error_name,
)
from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.adapters.zookeeper.connection import connected, poll_until, sync
from jobs.adapters.zookeeper.lease import Lease, current_holder
from jobs.adapters.zookeeper.plan_submission import resident
from jobs.advice.plans import after_cancellation
from jobs.core.errors import ExitCode, RefusedError, SurveyorError
from jobs.execution.admin.commit import end_throttle
from jobs.execution.admin.connections import admin_of
from jobs.execution.admin.lease import LEASE_HANDOVER_SECONDS, LeaseGuardedAdmin, lease_for
from jobs.execution.admin.throttles import throttle_rows
from jobs.execution.admin.zk_controller_client import ZkReassignmentOverride
from jobs.preconditions.cancellation import (
    CancellationPlan,
    PartitionStatus,
    allowed_by_option,
    partitions_of,
    plan_cancellation,
    rejections,
)
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome, close_plan
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.runtime.console import LINES_SHOWN, Result, confirm, emit_result, format_cell, is_terminal, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_step
from planner.reassignment.cancellation import ReassignmentStatus
from planner.reassignment.rollback import steps_by_partition
from planner.text import pluralise
from schemas.enums import Action, Outcome, PlanKind, PlanStatus, Step
from schemas.rows import Brokers, Change, Key, PlanRow

CANCELLATION_TIMEOUT_SECONDS: Final = 15.0
"""Seconds for a cancellation to be seen in ZooKeeper: Kafka's controller answers once it has written it."""

LEADER_RETURN_SECONDS: Final = 60.0
"""Seconds for `surveyor control` to lead partitions back: it takes some cycles, and brokers that stop replicas."""

_DONE_CODES: Final = {NONE, NO_REASSIGNMENT_IN_PROGRESS}

_STATUS_BEFORE: Final = {
    Step.CANCEL: ReassignmentStatus.IN_PROGRESS,
    Step.RESTORE_ORDER: ReassignmentStatus.OUT_OF_ORDER,
}
"""What is asked for about a partition, and where it is no more once that was done."""

_UNCHANGED_TEXTS: Final = {
    ReassignmentStatus.COMPLETE: "complete, not undone",
    ReassignmentStatus.IRREVERSIBLE: "goes on, and cannot be called back",
    ReassignmentStatus.DIVERGED: "left alone, somebody else changed it",
}


def refuse_unsafe(plan: Plan, findings: CancellationPlan) -> None:
    """Raise RefusedError if a cancellation would lose data or replicas; it names what, partition by partition."""
    unsafe = [f"{f.change.name}: {f.risk.code}: {f.risk.reason}" for f in findings.unsafe if f.risk is not None]
    if unsafe:
        more = f"\n  and {len(unsafe) - LINES_SHOWN} more" if len(unsafe) > LINES_SHOWN else ""
        ways = f"--skip-unsafe{allowed_by_option(finding.risk for finding in findings.unsafe)}"
        listed = "\n  ".join(unsafe[:LINES_SHOWN])
        raise RefusedError(
            f"nothing of plan {plan.title} is called back: {pluralise(len(unsafe), 'partition')} would "
            f"lose by it; start these brokers, or let those partitions go on by {ways}:"
            f"\n  {listed}{more}",
        )


def cancel_running(
    settings: Settings, plan: Plan, *, skip_unsafe: bool, fewer_copies: bool = False
) -> list[RowOutcome]:
    """Close the plan and cancel what runs of it; return what became of each partition asked about."""
    ledger = CommitLog.open(settings.lake, plan)
    if plan.row["status"] != PlanStatus.CANCELLED:
        close_plan(settings.lake, plan.plan_id, PlanStatus.CANCELLED)
        ledger.step(Step.CANCEL, Outcome.APPLIED, f"closed; it was {plan.row['status']}")
    findings = plan_cancellation(settings, plan)
    begun = _was_requested(settings.lake, plan) or _is_being_committed(settings, plan)
    if not (begun or findings.of(ReassignmentStatus.IN_PROGRESS) or findings.of(ReassignmentStatus.OUT_OF_ORDER)):
        return []
    with lease_for(settings, plan.plan_id, "cancel", LEASE_HANDOVER_SECONDS) as lease:
        return _cancel_leased(settings, plan, ledger, lease, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)


def _cancel_leased(
    settings: Settings, plan: Plan, ledger: CommitLog, lease: Lease, *, skip_unsafe: bool, fewer_copies: bool
) -> list[RowOutcome]:
    """Nobody asks for anything of the plan any more; who is in sync is judged once brokers answer, just before asking.

    A commit that let go of the lease has asked for all that it ever will.
    """
    state = plan_cancellation(settings, plan).state
    with connected(settings.zookeeper) as client, ExitStack() as stack:
        in_office = resident(client) is not None
        throttled = bool(throttle_rows(settings.lake, plan.plan_id))
        admin = stack.enter_context(admin_of(settings, state)) if throttled or not in_office else None
        findings = plan_cancellation(settings, plan, fewer_copies=fewer_copies)
        if not skip_unsafe:
            refuse_unsafe(plan, findings)
        controller = ZkReassignmentOverride(client) if in_office or admin is None else admin
        work = _CancellationRun(settings, plan, ledger, client, controller, findings, lease, skip_unsafe, fewer_copies)
        verdicts = work.cancel(findings.safe)
        verdicts += work.restore(
            work.read([f.key for f in [*findings.safe, *findings.of(ReassignmentStatus.OUT_OF_ORDER)]])
        )
        work.record_interrupted()
        if admin is not None and throttled:
            end_throttle(settings, plan, LeaseGuardedAdmin(admin, lease), ledger.attempt)
    return verdicts


def _is_being_committed(settings: Settings, plan: Plan) -> bool:
    """Tell whether a commit of this plan runs; it may be about to ask."""
    holder = current_holder(settings.zookeeper)
    return holder is not None and holder.plan == plan.plan_id


def _was_requested(lake: Warehouse, plan: Plan) -> bool:
    """Tell whether a commit ever asked for a reassignment of the plan."""
    return any(row["action"] == Action.REASSIGN for row in lake.rows("commits", ("plan_id", "=", plan.plan_id)))


@dataclass(frozen=True, slots=True)
class _CancellationRun:
    settings: Settings
    plan: Plan
    ledger: CommitLog
    client: KazooClient
    admin: Admin | ZkReassignmentOverride
    cancellation: CancellationPlan
    lease: Lease
    skip_unsafe: bool
    fewer_copies: bool

    def read(self, keys: Sequence[Key]) -> dict[Key, PartitionStatus]:
        ways = steps_by_partition(self.plan.changes)
        sync(self.client)
        read = partitions_of(self.client, self.cancellation.state, {key: ways[key] for key in keys})
        return {finding.key: finding for finding in read}

    def cancel(self, running: Sequence[PartitionStatus]) -> list[RowOutcome]:
        if not running:
            return []
        self._intend(Step.CANCEL, running)
        safe, unsafe = self._recheck(running)
        # a request in /admin names where to go, the Admin API that it is over
        return unsafe + self._ask(Step.CANCEL, safe, _replicas_before if self.uses_override else lambda _: None)

    @property
    def uses_override(self) -> bool:
        """Whether `surveyor control` is asked."""
        return isinstance(self.admin, ZkReassignmentOverride)

    def _recheck(self, running: Sequence[PartitionStatus]) -> tuple[list[PartitionStatus], list[RowOutcome]]:
        """Set aside what would lose its last copy in sync by now: to store the intents took time."""
        now = plan_cancellation(self.settings, self.plan, fewer_copies=self.fewer_copies)
        dangers = {finding.key: finding.risk for finding in now.unsafe if finding.risk is not None}
        safe = [finding for finding in running if finding.key not in dangers]
        unsafe = [
            RowOutcome(_row(finding, Step.CANCEL), Outcome.SKIPPED, f"goes on: {dangers[finding.key].reason}")
            for finding in running
            if finding.key in dangers
        ]
        if unsafe and not self.skip_unsafe:
            left = (RowOutcome(_row(finding, Step.CANCEL), Outcome.SKIPPED, "others are unsafe") for finding in safe)
            self.ledger.append_now([*unsafe, *left])
            refuse_unsafe(self.plan, now)
        self.ledger.append_now(unsafe)
        return safe, unsafe

    def restore(self, now: Mapping[Key, PartitionStatus]) -> list[RowOutcome]:
        """Ask for the order before where only the order differs."""
        turned = [finding for finding in now.values() if finding.status is ReassignmentStatus.OUT_OF_ORDER]
        self._intend(Step.RESTORE_ORDER, turned)
        return self._ask(Step.RESTORE_ORDER, turned, _replicas_before)

    def record_interrupted(self) -> None:
        """Record what became of partitions that a cancellation was about to ask for when it was killed."""
        rows = self.settings.lake.rows("commits", ("plan_id", "=", self.plan.plan_id))
        steps = [row for row in rows if row["action"] in _STATUS_BEFORE and row["partition"] is not None]
        ended = {_place(row) for row in steps if row["outcome"] != Outcome.PENDING}
        left = {_place(row) for row in steps} - ended
        moves = {(change.wave, change.key): change for change in self.plan.changes if change.action == Action.REASSIGN}
        seen = self.read(list(dict.fromkeys((topic, partition) for _, topic, partition, _ in left)))
        verdicts = []
        for wave, topic, partition, action in sorted(left):
            now = seen[topic, partition]
            then = dataclasses.replace(now, change=moves[wave, now.key])
            verdicts.append(_verdict(then, now, Step(action), None, "the cancellation that asked for it was killed"))
        self.ledger.append_now(verdicts)

    def _intend(self, step: Step, findings: Sequence[PartitionStatus]) -> None:
        self.ledger.append_now(RowOutcome(_row(finding, step), Outcome.PENDING, "") for finding in findings)

    def _ask(
        self,
        step: Step,
        findings: Sequence[PartitionStatus],
        target_of: Callable[[PartitionStatus], list[int] | None],
    ) -> list[RowOutcome]:
        """Ask for all at once, wait until it is seen, and judge by what is seen: an answer may be lost."""
        if not findings:
            return []
        with progress(f"asking Kafka's controller: {step}"):
            codes, lost = self._request({finding.key: target_of(finding) for finding in findings})
        refused = {key for key, code in codes.items() if code not in _DONE_CODES}
        seen = self._wait([finding.key for finding in findings], _STATUS_BEFORE[step], refused)
        led_back = {
            key for key in seen if self.uses_override and seen[key].status is ReassignmentStatus.DIVERGED
        } - refused
        verdicts = [
            RowOutcome(_row(f, step), Outcome.UNKNOWN, f"ordered back, and on its way: {seen[f.key].detail}")
            if f.key in led_back
            else _verdict(f, seen[f.key], step, codes.get(f.key), lost)
            for f in findings
        ]
        self.ledger.append_now(verdicts)
        return verdicts

    def _request(self, targets: Mapping[Key, list[int] | None]) -> tuple[Mapping[Key, int], str]:
        self.lease.refuse_lost()
        try:
            return self.admin.reassign(targets), "the controller's answer did not name it"
        except UNKNOWN_OUTCOME as error:
            return {}, f"no answer came ({describe_error(error)})"

    def _wait(
        self, keys: Sequence[Key], until_not: ReassignmentStatus, refused: set[Key]
    ) -> dict[Key, PartitionStatus]:
        under_way = {until_not, ReassignmentStatus.DIVERGED} if self.uses_override else {until_not}

        def are_through(seen: Mapping[Key, PartitionStatus]) -> bool:
            return not {key for key, finding in seen.items() if finding.status in under_way} - refused

        return poll_until(
            lambda: self.read(keys),
            are_through,
            LEADER_RETURN_SECONDS if self.uses_override else CANCELLATION_TIMEOUT_SECONDS,
        )


def _replicas_before(finding: PartitionStatus) -> Brokers | None:
    return finding.change.replicas_before if isinstance(finding.change, Change) else None


def _place(row: Row) -> tuple[int, str, int, str]:
    return row["wave"], row["topic"], row["partition"], row["action"]


def _row(finding: PartitionStatus, step: Step) -> PlanRow:
    """The row of the ledger that says what was done with a partition."""
    return replace(finding.change, action=step.value)


def _verdict(finding: PartitionStatus, seen: PartitionStatus, step: Step, code: int | None, lost: str) -> RowOutcome:
    """Judge by where it was and where it is now; `lost` is why there is no code that was answered."""
    row = _row(finding, step)
    if seen.status is _STATUS_BEFORE[step]:
        if code is None:
            return RowOutcome(row, Outcome.UNKNOWN, f"{lost}; {seen.detail}")
        if code in _DONE_CODES:
            return RowOutcome(row, Outcome.UNKNOWN, f"accepted, and not seen in ZooKeeper yet: {seen.detail}")
        return RowOutcome(row, Outcome.FAILED, f"the controller refused: {error_name(code)}")
    back = (
        seen.status in {ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER}
        and seen.change.wave == row.wave
    )
    if back and seen.stranded:
        lost = "its copies in sync stopped being replicas while it was called back, nobody can lead it"
        return RowOutcome(row, Outcome.FAILED, f"{lost}: {seen.detail}; start its brokers, or recover it")
    if back:
        return RowOutcome(row, Outcome.APPLIED, seen.detail)
    gone_on = seen.status in {ReassignmentStatus.COMPLETE, ReassignmentStatus.NOT_STARTED}
    why = "it was complete before it could be cancelled; roll it back" if gone_on else "somebody else changed it"
    return RowOutcome(row, Outcome.STALE, f"{why}: {seen.detail}")


def cancel_plan(
    settings: Settings, plan: str, *, apply: bool, yes: bool, skip_unsafe: bool, fewer_copies: bool
) -> ExitCode:
    """Call a plan back, or show what that would do."""
    whole = read_plan(settings.lake, plan)
    findings = plan_cancellation(settings, whole, fewer_copies=fewer_copies)
    if not skip_unsafe:
        _refuse(whole, findings)
    if not _has_work(whole, findings):
        emit_result(
            settings,
            _result(whole, findings),
            f"plan {whole.title}: nothing is left to cancel",
            *_lines(whole, findings),
            steps=_steps(settings, whole, findings),
        )
        return ExitCode.DONE
    if not apply:
        dry = _result(whole, findings) | {"dry_run": True}
        note = "dry run: nothing was written; --apply writes"
        title = f"plan {whole.title}: {_counts_in_words(findings)}"
        steps = [same_step(settings, "apply", "cancel", whole.called, "--apply"), *_steps(settings, whole, findings)]
        emit_result(settings, dry, title, *_lines(whole, findings), note, steps=steps)
        return ExitCode.DONE
    if not yes and not _is_confirmed(whole, findings):
        raise SurveyorError("not cancelled: the question was not answered with yes")
    verdicts = cancel_running(settings, whole, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)
    return _report(settings, read_plan(settings.lake, plan), verdicts, fewer_copies=fewer_copies)


def _refuse(plan: Plan, findings: CancellationPlan) -> None:
    try:
        refuse_unsafe(plan, findings)
    except SurveyorError as error:
        error.result = _result(plan, findings)
        raise


def _has_work(plan: Plan, findings: CancellationPlan) -> bool:
    """Tell whether there is anything to cancel: a plan that was committed and is done stays committed."""
    ahead = (ReassignmentStatus.IN_PROGRESS, ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER)
    return plan.row["status"] != PlanStatus.COMMITTED or any(findings.of(standing) for standing in ahead)


def _is_confirmed(plan: Plan, findings: CancellationPlan) -> bool:
    if not is_terminal():
        return True
    log(f"plan {plan.title}: {_counts_in_words(findings)}")
    return confirm("cancel it?")


def _report(settings: Settings, plan: Plan, verdicts: Sequence[RowOutcome], *, fewer_copies: bool) -> ExitCode:
    findings = plan_cancellation(settings, plan, fewer_copies=fewer_copies)
    result = _result(plan, findings, verdicts)
    failed = [v for v in verdicts if v.outcome in {Outcome.FAILED, Outcome.UNKNOWN}]
    wrong = [f"  {v.outcome}: {v.change.name}: {v.message}" for v in verdicts if v.outcome is not Outcome.APPLIED]
    title = (
        f"plan {plan.title}: {plan.row['status']}; {result['cancelled_now']} cancelled now, "
        f"{_counts_in_words(findings)}"
    )
    again = bool(failed or findings.safe)
    steps = _steps(settings, plan, findings, again=again)
    emit_result(settings, result, title, *wrong[:LINES_SHOWN], *_lines(plan, findings), steps=steps)
    return ExitCode.ERROR if again else ExitCode.DONE


def _steps(settings: Settings, plan: Plan, findings: CancellationPlan, *, again: bool = False) -> list[Suggestion]:
    return after_cancellation(settings, plan, again=again, complete=bool(findings.of(ReassignmentStatus.COMPLETE)))


def _result(plan: Plan, findings: CancellationPlan, verdicts: Sequence[RowOutcome] = ()) -> Result:
    done = [(verdict.change.action, verdict.outcome) for verdict in verdicts]
    outcomes = [outcome for _, outcome in done]
    return {
        "plan_id": plan.plan_id,
        "status": plan.row["status"],
        "cancelled_now": done.count((Step.CANCEL, Outcome.APPLIED)),
        "reordered_now": done.count((Step.RESTORE_ORDER, Outcome.APPLIED)),
        "failed": outcomes.count(Outcome.FAILED),
        "unknown": outcomes.count(Outcome.UNKNOWN),
        **findings.counts,
        "rejections": rejections(findings),
    }


def _counts_in_words(findings: CancellationPlan) -> str:
    counts = {name.replace("_", " "): count for name, count in findings.counts.items() if count}
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no changes"


def _lines(plan: Plan, findings: CancellationPlan) -> Iterator[str]:
    lines = [line for finding in findings.partitions if (line := _line(finding))]
    yield from lines[:LINES_SHOWN]
    if len(lines) > LINES_SHOWN:
        yield f"  ... and {len(lines) - LINES_SHOWN} more"
    if plan.row["kind"] in {PlanKind.DRAIN, PlanKind.UNDRAIN} and plan.row["status"] != PlanStatus.PLANNED:
        brokers = format_cell(json.loads(plan.row["parameters"])["brokers"])
        yield f"  brokers {brokers} may still count as drained: see `surveyor show drained`, end it by a plan undrain"


def _line(finding: PartitionStatus) -> str | None:
    name, before = finding.change.name, _replicas_before(finding)
    if finding.risk is not None:
        return f"  {name}  goes on: {finding.risk.code}: {finding.risk.reason}"
    if finding.status is ReassignmentStatus.IN_PROGRESS:
        return f"  {name}  to be cancelled: {finding.detail} → {format_cell(before)}"
    if finding.status is ReassignmentStatus.OUT_OF_ORDER:
        return f"  {name}  cancelled, order to be restored: {finding.detail} → {format_cell(before)}"
    if finding.status in _UNCHANGED_TEXTS:
        return f"  {name}  {_UNCHANGED_TEXTS[finding.status]}: {finding.detail}"
    return None
