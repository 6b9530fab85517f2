"""The requests of a cancellation, sent one at a time, for `cancel PLAN` and `cancel --partitions`.

A request that is based on an old reading could delete the last replica in sync. So the partitions of each request are
read and checked right before it is sent, under the lease, and only while the controller is the same as before. After a
lost response no further request is sent, and the cluster shows what happened to the earlier ones.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin_client import (
    NO_ERROR,
    NO_REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_OUTCOME,
    Admin,
    AdminUnavailableError,
    LateRequestError,
    batches,
    describe_error,
)
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.adapters.zookeeper.connection import poll_until
from jobs.console_output.plan_text import warnings
from jobs.core.errors import RefusedError, SurveyorError
from jobs.core.migration_signs import refuse_migration
from jobs.execution.admin.controller_client import check_under_lease
from jobs.execution.admin.resident_controller_client import (
    CANCELLATION_TIMEOUT_SECONDS,
    LEADER_RETURN_SECONDS,
    ZkReassignmentOverride,
)
from jobs.preconditions.cancellation_plan import CancellationPlan, PartitionStatus, partitions_of
from jobs.preconditions.min_isr import cancelled_below_min_isr
from jobs.repositories.snapshots import last_snapshot
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult, Result, keep_warnings, log, warn
from jobs.runtime.progress import progress
from jobs.runtime.review import Approve, Review, warning_lines
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion
from planner.reassignment.reassignment_status import ReassignmentStatus
from planner.rules.effective_min_isr import min_isr_of
from schemas import reasons
from schemas.current_state import CurrentCluster, CurrentPartition
from schemas.enums import Outcome, RejectionCode, Step
from schemas.rows import Change, Key
from schemas.text import LINES_SHOWN, pluralise
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR

_DONE_CODES: Final = {NO_ERROR, NO_REASSIGNMENT_IN_PROGRESS}

STATUS_BEFORE: Final = {
    Step.CANCEL: ReassignmentStatus.IN_PROGRESS,
    Step.RESTORE_ORDER: ReassignmentStatus.OUT_OF_ORDER,
}
"""The status of a partition before each step; the step is done once the partition no longer has it."""

Reason = tuple[Outcome, str]
"""An outcome, and the message that explains it."""


@dataclass(slots=True, kw_only=True)
class Cancellation(ABC):
    """What is cancelled: the reassignments of a plan, or of some partitions."""

    cluster: Cluster
    fewer_copies: bool
    """Whether a partition may be left with fewer copies than before."""
    skip_unsafe: bool
    """Whether partitions that would lose data or replicas continue, instead of preventing the cancellation."""
    subject: str
    """The subject of a refusal, and its verb."""
    undo_command: ClassVar[str]
    """The command that undoes a step that was complete before it could be cancelled."""

    @abstractmethod
    def step_of(self, key: Key, partition: CurrentPartition) -> Change:
        """Return the reassignment of a partition that is cancelled."""

    @abstractmethod
    def record(self, step: Step, outcomes: Mapping[Key, Reason]) -> None:
        """Record intents or outcomes of a step."""

    def refuse_cluster(self, state: CurrentCluster) -> None:
        """Raise RefusedError if the cluster allows no cancellation."""
        refuse_migration(state.migration)

    def read(self, keys: Collection[Key]) -> CancellationPlan:
        """Read how far these partitions are now."""
        self.cluster.sync()
        state, partitions = self.cluster.read_cluster(), self.cluster.read_partitions(keys)
        steps = [[self.step_of(key, partitions[key])] for key in keys]
        return CancellationPlan(state, partitions_of(state, steps, partitions, fewer_copies=self.fewer_copies))

    def request(
        self,
        step: Step,
        partitions: Iterable[PartitionStatus],
        controller: Admin | ZkReassignmentOverride | AdminUnavailableError,
        lease: Lease,
    ) -> None:
        """Record the intents, request the step in as many requests as needed, and record the outcomes.

        After an error the partitions requested before it, and the others, get their outcomes as well.
        """
        before = {partition.key: partition for partition in partitions}
        if before:
            _Requests(self, controller, lease, step, before).carry_out()


@dataclass(slots=True)
class _Requests:
    """One step of a cancellation, requested from the controller, and the controller's responses."""

    cancellation: Cancellation
    controller: Admin | ZkReassignmentOverride | AdminUnavailableError
    """The Admin API, or why it does not answer; or `surveyor control`, if that is the controller."""
    lease: Lease
    step: Step
    before: dict[Key, PartitionStatus]
    """The partitions, as they were last checked."""
    _requested: set[Key] = field(default_factory=set)
    """Partitions of requests that were sent, or perhaps were."""
    _removed: set[Key] = field(default_factory=set)
    """Partitions whose request in /admin may have been removed."""
    _set_aside: dict[Key, Reason] = field(default_factory=dict)
    """Outcomes of partitions that must no longer, or need no longer, be requested."""
    _lost_response: str | None = None
    """Reason why the response to the last request is missing; None if it arrived."""
    _codes: dict[Key, int] = field(default_factory=dict)
    _failed: set[Key] = field(default_factory=set)
    """Partitions whose request ended with an error, so that waiting for them is useless."""

    def carry_out(self) -> None:
        """As `Cancellation.request`."""
        self._refuse_unavailable(self.before.values())
        self.cancellation.record(self.step, dict.fromkeys(self.before, (Outcome.PENDING, "")))
        try:
            with progress(f"asking Kafka's controller: {self.step}"):
                self._request()
        except SurveyorError as error:
            self._record(error)
            raise
        self._record(None)

    def _request(self) -> None:
        """Remove requests and ask the controller; partitions are checked again after each, as each takes time."""
        keys = [*self.before]
        if any(row.request is not None for row in self.before.values()):
            self._check_again(keys)
            self._removed = {key for key in self._without_set_aside(keys) if self._is_removable(self.before[key])}
            if self._removed:
                self.cancellation.cluster.withdraw_requests(self._removed, self.lease)
        keys = self._without_set_aside(keys)
        due = self._check_again(keys)
        for number, batch in enumerate(batches([*due])):
            targets = self._check_again(batch) if number else {key: due[key] for key in batch}
            if targets and not self._send(targets):
                return

    def _send(self, targets: dict[Key, list[int] | None]) -> bool:
        """Send one request; return whether its response arrived. Raise SurveyorError if it is refused."""
        if isinstance(self.controller, AdminUnavailableError):
            raise self.controller
        try:
            codes = self.controller.reassign(targets)
        except (RefusedError, LateRequestError):
            raise  # nothing was sent
        except (SurveyorError, *UNKNOWN_OUTCOME) as error:
            self._requested.update(targets)
            self._lost_response = reasons.NO_ANSWER.render(error=describe_error(error))
            if isinstance(error, SurveyorError):
                self._failed.update(targets)
                raise
            log(f"surveyor: {self._lost_response}; reading the outcome from the cluster", logging.WARNING)
            return False
        self._requested.update(targets)
        self._codes |= codes
        return True

    def _check_again(self, keys: Collection[Key]) -> dict[Key, list[int] | None]:
        """Return the targets of what may be requested now, and note the outcomes of the others.

        Storing intents, checking the lease and an earlier request take time. A reassignment that another client has
        requested since is left alone. Raise SurveyorError if nothing may be requested, as LeaseLostError.
        """

        def read() -> CancellationPlan:
            if (self.cancellation.cluster.read_resident_controller() is not None) != self._is_resident:
                change = "is no longer" if self._is_resident else "has become"
                raise RefusedError(f"`surveyor control` {change} the controller; run the same command again")
            return self.cancellation.read(keys)

        now = check_under_lease(self.lease, read)
        self.cancellation.refuse_cluster(now.state)
        targets: dict[Key, list[int] | None] = {}
        for row in now.partitions:
            if row.risk is not None:
                self._set_aside[row.key] = Outcome.SKIPPED, reasons.CONTINUES.render(risk=row.risk.reason)
            elif self._is_due(row):
                # the Admin API takes None to cancel, and a request in /admin names the target replicas
                cancels = self.step is Step.CANCEL and not self._is_resident
                targets[row.key] = None if cancels else row.replicas_before
            elif row.request is None and row.key not in self._removed:
                self._set_aside[row.key] = self._ended_reason(row)
            elif row.key in self._removed and not row.is_unknown and not self._is_resident:
                targets[row.key] = None  # Kafka's controller watches /admin again once it is asked to cancel anything
        subject = "the rest is not" if self._requested else self.cancellation.subject
        refuse_unsafe(subject, now.partitions, skip_unsafe=self.cancellation.skip_unsafe)
        self._refuse_unavailable(now.partitions)
        checked = [row for row in now.partitions if not self._has_become_unreadable(row)]
        self.before |= {row.key: row for row in checked if row.key not in self._set_aside}
        return {} if isinstance(self.controller, AdminUnavailableError) else targets

    def _record(self, error: SurveyorError | None) -> None:
        """Record all outcomes; wait until the cluster shows the outcomes of requests, because an answer may be lost."""
        shown = self._requested if error else self._requested | self._removed
        awaited = [key for key in self._without_set_aside(self.before) if key in shown]
        untried = dict.fromkeys(self.before.keys() - {*awaited}, self._unrequested_reason(error))
        untried |= dict.fromkeys(untried.keys() & self._removed, (Outcome.UNKNOWN, f"interrupted: {error}"))
        self.cancellation.record(self.step, untried | self._set_aside)
        if awaited:
            self.cancellation.record(self.step, {row.key: self._reason(row) for row in self._wait(awaited)})

    def _wait(self, keys: Collection[Key]) -> Sequence[PartitionStatus]:
        """Wait until the cluster shows what was requested, and return the partitions as read last."""
        unsent = {*keys} - self._requested if self._lost_response else set()
        useless = {*self._failed, *unsent, *(key for key, code in self._codes.items() if code not in _DONE_CODES)}

        def are_finished(partitions: Sequence[PartitionStatus]) -> bool:
            waiting = {row.key for row in partitions if self._is_unfinished(row) or self._has_become_unreadable(row)}
            return waiting <= useless

        returns = self._requested and self._is_resident
        seconds = LEADER_RETURN_SECONDS if returns else CANCELLATION_TIMEOUT_SECONDS
        return poll_until(lambda: self.cancellation.read(keys).partitions, are_finished, seconds)

    def _reason(self, row: PartitionStatus) -> Reason:
        """Return the outcome of a partition that was requested, or whose request was removed."""
        if not self._is_unfinished(row):
            return self._ended_reason(row)
        detail = row.detail if row.request is None else f"{row.detail}; its request for {row.request} still exists"
        if row.key not in self._requested:
            return self._unrequested_reason(None) if self._lost_response else (Outcome.UNKNOWN, detail)
        code = self._codes.get(row.key)
        if code is None:
            return Outcome.UNKNOWN, f"{self._lost_response or reasons.UNNAMED.render()}; {detail}"
        if code in _DONE_CODES:
            return Outcome.UNKNOWN, f"accepted, but not visible yet: {detail}"
        return Outcome.FAILED, reasons.REFUSED.render(cause=refusal(code, "cluster", "ALTER"))

    def _ended_reason(self, row: PartitionStatus) -> Reason:
        """Return the outcome of a partition whose step is no longer to be done; it need not be due to us."""
        if not self._is_due(self.before[row.key]) and not self._has_become_unreadable(row):
            return Outcome.APPLIED, f"its request was removed; {row.detail}"
        return ended_reason(row, self.cancellation.undo_command)

    def _unrequested_reason(self, error: SurveyorError | None) -> Reason:
        """Return the outcome of partitions that were not requested before this error, or before an answer was lost."""
        if error is not None:
            cause = str(error).partition("\n")[0]
        elif self._lost_response:
            cause = reasons.EARLIER_REQUEST.render(answer=self._lost_response)
        else:
            cause = "another client requested it since"
        return Outcome.SKIPPED, reasons.NOT_REQUESTED.render(cause=cause)

    @property
    def _is_resident(self) -> bool:
        """Whether `surveyor control` is the controller that is asked."""
        return isinstance(self.controller, ZkReassignmentOverride)

    def _is_due(self, row: PartitionStatus) -> bool:
        return row.status is STATUS_BEFORE[self.step]

    def _is_unfinished(self, row: PartitionStatus) -> bool:
        """Return whether a partition is as before, or `surveyor control` moves it back."""
        return self._is_due(row) or row.request is not None or (self._is_resident and row.is_being_reassigned)

    def _is_removable(self, row: PartitionStatus) -> bool:
        """Return whether a request must be removed; `surveyor control` follows the request to move a partition back."""
        return row.request is not None and not (self._is_resident and row.is_being_reassigned)

    def _has_become_unreadable(self, row: PartitionStatus) -> bool:
        return row.is_unknown and not self.before[row.key].is_unknown

    def _without_set_aside(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if key not in self._set_aside]

    def _refuse_unavailable(self, partitions: Iterable[PartitionStatus]) -> None:
        """Raise AdminUnavailableError if a controller that does not answer is needed; to remove a request it is not."""
        is_needed = any(self._is_due(row) and row.risk is None for row in partitions)
        if isinstance(self.controller, AdminUnavailableError) and is_needed:
            raise self.controller


def ended_reason(now: PartitionStatus, undo_command: str) -> Reason:
    """Return the outcome of a cancelled step by its status now, which is no longer in progress.

    If no replica can lead the partition, neither a cancelled step nor a complete one has succeeded. A foreign client
    may add and remove one broker at once, and then a cancelled step leaves the same replicas as a complete one.
    """
    if now.is_unknown:
        return Outcome.UNKNOWN, reasons.UNREAD_NOW.render(fault=now.detail)
    is_either = isinstance(now.change, Change) and not now.change.moves_replicas
    is_complete = now.status is ReassignmentStatus.COMPLETE
    returned = now.status in {ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER}
    if not returned and not is_complete:
        return Outcome.STALE, f"another client changed it: {now.detail}; to move it back: surveyor plan reassign"
    if now.stranded:
        return Outcome.FAILED, (
            f"its in-sync replicas were removed while it was cancelled, so no replica can lead it: {now.detail}; "
            "start its brokers, or recover it"
        )
    if returned or is_either:
        return Outcome.APPLIED, now.detail
    return Outcome.STALE, f"it was complete before it could be cancelled: {now.detail}; to move it back: {undo_command}"


def refuse_unsafe(subject: str, partitions: Iterable[PartitionStatus], *, skip_unsafe: bool) -> None:
    """Raise RefusedError, with each reason, if partitions that are not skipped would lose data or replicas."""
    unsafe = [(row.change.name, row.risk) for row in partitions if row.risk is not None]
    if skip_unsafe or not unsafe:
        return
    lines = [f"\n  {name}: {risk.code}: {risk.reason}" for name, risk in unsafe[:LINES_SHOWN]]
    overflow = f"\n  and {len(unsafe) - LINES_SHOWN} more" if len(unsafe) > LINES_SHOWN else ""
    fewer = any(risk.code is RejectionCode.REPLICA_NOT_ALIVE for _, risk in unsafe)
    allowed = ", or leave those with REPLICA_NOT_ALIVE on fewer copies by --allow-fewer-copies" if fewer else ""
    raise RefusedError(
        f"{subject} cancelled: {pluralise(len(unsafe), 'partition')} would lose data or replicas; start these brokers, "
        f"or let those partitions continue with --skip-unsafe{allowed}:{''.join(lines)}{overflow}"
    )


def dry_run(
    result: Result, title: str, lines: Iterable[str], steps: Sequence[Suggestion], warned: Sequence[str]
) -> CommandResult:
    """Return what shows a cancellation that is not carried out."""
    note = "dry run: nothing was written; --apply writes"
    shown = [*lines, *warning_lines(warned), note]
    return CommandResult(result | {"dry_run": True}, title, *shown, steps=steps, warnings=warned)


def refuse_unapproved(question: str, lines: Iterable[str], warned: Sequence[str], approve: Approve | None) -> None:
    """Show the warnings, with the question if one is asked; raise SurveyorError unless the answer is yes."""
    keep_warnings(warned)
    if approve is None:
        for line in warning_lines(warned):
            log(line)
    elif not approve(Review(question, [*lines, *warning_lines(warned)], warnings=warned)):
        raise SurveyorError("not cancelled: the question was not answered with yes")


def below_min_isr_warnings(settings: Settings, cluster: Cluster, partitions: Iterable[PartitionStatus]) -> list[str]:
    """Warn of partitions that a cancellation leaves below min.insync.replicas, by the configs of their topics now.

    A warehouse that cannot be read does not prevent a cancellation: Kafka's default then counts for other topics.
    """
    isr_after = {partition.key: partition.isr_after for partition in partitions}
    if not isr_after:
        return []
    default = DEFAULT_MIN_ISR
    try:
        if settings.warehouse.exists():
            default = default_min_isr_of(settings.warehouse, last_snapshot(settings.warehouse))
    except (SurveyorError, OSError, DeltaError):
        warn(f"the brokers' {MIN_ISR} is unknown: Kafka's default, {DEFAULT_MIN_ISR}, is assumed")
    topics = cluster.read_topics(sorted({topic for topic, _ in isr_after})).topics
    minimum = {row.topic: min_isr_of(row.config, default) for row in topics}
    return [*warnings((), (), (), cancelled_below_min_isr(minimum, isr_after))]
