"""Sends the requests of a cancellation, one at a time, for `cancel PLAN` and `cancel --partitions`.

A request that is based on an old reading could delete the last replica in sync. So the partitions of each request are
read and checked right before it is sent, under the lease, and only while the controller is the same as before. After a
lost response no further request is sent, and the cluster shows what happened to the earlier ones.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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
from jobs.adapters.cluster_connections.interface import ClusterReader, Lease
from jobs.console_output.plan_text import warnings
from jobs.core.errors import RefusedError, SurveyorError
from jobs.execution.admin.controller_client import check_under_lease
from jobs.execution.admin.resident_controller_client import (
    CANCELLATION_TIMEOUT_SECONDS,
    LEADER_RETURN_SECONDS,
    ZkReassignmentOverride,
)
from jobs.preconditions.cancellation_plan import allowed_by_option
from jobs.preconditions.min_isr import cancelled_below_min_isr
from jobs.repositories.snapshots import last_snapshot
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import log, warn
from jobs.runtime.settings import Settings
from planner.reassignment.reassignment_status import CancellationRisk, ReassignmentStatus
from planner.rules.min_isr import min_isr_of
from schemas import reasons
from schemas.enums import Outcome
from schemas.rows import Key
from schemas.text import LINES_SHOWN, pluralise
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR

_DONE_CODES: Final = {NO_ERROR, NO_REASSIGNMENT_IN_PROGRESS}

Reason = tuple[Outcome, str]
"""An outcome, and the message that explains it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Permitted requests for some partitions, by a reading of the cluster."""

    targets: Mapping[Key, list[int] | None]
    """The replicas to request of those that may be requested; None cancels a reassignment."""
    set_aside: Mapping[Key, Reason]
    """The outcomes of others."""
    refusal: RefusedError | None = None
    """Reason why nothing may be requested at all."""


Check = Callable[[Sequence[Key]], Verdict]
"""Reads partitions and judges them. It must have no other effect: it is called again if the reading gets old."""


@dataclass(slots=True)
class CancellationRequests:
    """Requests to the controller, and their responses."""

    reader: ClusterReader
    controller: Admin | ZkReassignmentOverride | AdminUnavailableError
    """The Admin API, or why it does not answer; or `surveyor control`, if that is the controller."""
    lease: Lease
    requested: list[Key] = field(default_factory=list)
    """Partitions of requests that were sent, or perhaps were."""
    set_aside: dict[Key, Reason] = field(default_factory=dict)
    """Outcomes of partitions that must no longer, or need no longer, be requested."""
    lost_response: str | None = None
    """Reason why the response to the last request is missing; None if it arrived."""
    _codes: dict[Key, int] = field(default_factory=dict)
    _failed: list[Key] = field(default_factory=list)
    """Partitions whose request ended with an error, so that waiting for them is useless."""

    @property
    def is_resident(self) -> bool:
        """Whether `surveyor control` is the controller that is asked."""
        return isinstance(self.controller, ZkReassignmentOverride)

    def check_again(self, keys: Sequence[Key], check: Check) -> Mapping[Key, list[int] | None]:
        """Return the targets of what may be requested now, and note the outcomes of the others.

        Raise SurveyorError if nothing may be requested, as LeaseLostError.
        """

        def check_for_controller() -> Verdict:
            refuse_other_controller(self.reader, was_resident=self.is_resident)
            return check(keys)

        verdict = check_under_lease(self.lease, check_for_controller)
        self.set_aside |= verdict.set_aside
        if verdict.refusal is not None:
            raise verdict.refusal
        return verdict.targets

    def send(self, keys: Sequence[Key], check: Check) -> None:
        """Send one request after another, each checked right before it, until an answer is lost.

        Storing intents, checking the lease and an earlier request take time. Raise SurveyorError if a request cannot be
        checked, or is refused.
        """
        due = self.check_again(keys, check)
        for number, batch in enumerate(batches([*due])):
            targets = self.check_again(batch, check) if number else {key: due[key] for key in batch}
            if not targets:
                continue
            if isinstance(self.controller, AdminUnavailableError):
                raise self.controller
            try:
                codes = self.controller.reassign(targets)
            except (RefusedError, LateRequestError):
                raise  # nothing was sent
            except (SurveyorError, *UNKNOWN_OUTCOME) as error:
                self.requested += targets
                self.lost_response = reasons.NO_ANSWER.render(error=describe_error(error))
                if isinstance(error, SurveyorError):
                    self._failed += targets
                    raise
                log(f"surveyor: {self.lost_response}; reading the outcome from the cluster", logging.WARNING)
                return
            self.requested += targets
            self._codes |= codes

    @property
    def refused(self) -> set[Key]:
        """Partitions that the controller refused."""
        return {key for key, code in self._codes.items() if code not in _DONE_CODES}

    @property
    def unsafe_partitions(self) -> set[Key]:
        """Partitions whose state does not change because of their request."""
        return self.refused.union(self._failed)

    @property
    def timeout_seconds(self) -> float:
        """Seconds for the requests to show in the cluster."""
        return LEADER_RETURN_SECONDS if self.requested and self.is_resident else CANCELLATION_TIMEOUT_SECONDS

    def unchanged_reason(self, key: Key, detail: str) -> Reason:
        """Return the outcome of a requested partition that is as before; `detail` describes its state."""
        code = self._codes.get(key)
        if code is None:
            answer = self.lost_response or reasons.UNNAMED.render()
            return Outcome.UNKNOWN, f"{answer}; {detail}"
        if code in _DONE_CODES:
            return Outcome.UNKNOWN, f"accepted, but not visible yet: {detail}"
        return Outcome.FAILED, reasons.REFUSED.render(cause=refusal(code, "cluster", "ALTER"))

    def unrequested_reason(self, error: SurveyorError | None) -> Reason:
        """Return the outcome of partitions that were not requested before this error, or before an answer was lost."""
        lost = reasons.EARLIER_REQUEST.render(answer=self.lost_response)
        cause = lost if error is None else str(error).partition("\n")[0]
        return Outcome.SKIPPED, reasons.NOT_REQUESTED.render(cause=cause)


def ended_reason(status: ReassignmentStatus, state: str, *, is_stranded: bool, undo_command: str) -> Reason:
    """Return the outcome of a cancellation by the status of its step now, which is no longer in progress.

    `state` describes the partition now. `is_stranded`: no replica can lead it; then neither a cancelled step nor a
    complete one has succeeded. `undo_command`: the command that undoes a step that was complete before.
    """
    returned = status in {ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER}
    if not returned and status is not ReassignmentStatus.COMPLETE:
        return Outcome.STALE, f"another client changed it: {state}; to move it back: surveyor plan reassign"
    if is_stranded:
        return Outcome.FAILED, (
            f"its in-sync replicas were removed while it was cancelled, so no replica can lead it: {state}; "
            "start its brokers, or recover it"
        )
    if returned:
        return Outcome.APPLIED, state
    return Outcome.STALE, f"it was complete before it could be cancelled: {state}; to move it back: {undo_command}"


def refuse_other_controller(reader: ClusterReader, *, was_resident: bool) -> None:
    """Raise RefusedError if `surveyor control` is the controller now and was not before, or the other way round."""
    if (reader.read_resident_controller() is not None) != was_resident:
        change = "is no longer" if was_resident else "has become"
        raise RefusedError(f"`surveyor control` {change} the controller; run the same command again")


def below_min_isr_warnings(
    settings: Settings, reader: ClusterReader, isr_after: Mapping[Key, Sequence[int] | None]
) -> list[str]:
    """Warn of partitions that a cancellation leaves below min.insync.replicas, by the configs of their topics now.

    A warehouse that cannot be read does not prevent a cancellation: Kafka's default then counts for other topics.
    """
    topics = sorted({topic for topic, _ in isr_after})
    if not topics:
        return []
    default = DEFAULT_MIN_ISR
    try:
        if settings.warehouse.exists():
            default = default_min_isr_of(settings.warehouse, last_snapshot(settings.warehouse))
    except (SurveyorError, OSError, DeltaError):
        warn(f"the brokers' {MIN_ISR} is unknown: Kafka's default, {DEFAULT_MIN_ISR}, is assumed")
    minimum = {row.topic: min_isr_of(row.config, default) for row in reader.read_topics(topics).topics}
    return [*warnings((), (), (), cancelled_below_min_isr(minimum, isr_after))]


def unsafe_refusal(subject: str, risks: Iterable[tuple[str, CancellationRisk | None]]) -> RefusedError | None:
    """Return the refusal of a cancellation that would lose data or replicas, by the name and risk of each partition."""
    unsafe = [(name, risk) for name, risk in risks if risk is not None]
    if not unsafe:
        return None
    lines = [f"\n  {name}: {risk.code}: {risk.reason}" for name, risk in unsafe[:LINES_SHOWN]]
    overflow = f"\n  and {len(unsafe) - LINES_SHOWN} more" if len(unsafe) > LINES_SHOWN else ""
    return RefusedError(
        f"{subject} cancelled: {pluralise(len(unsafe), 'partition')} would lose data or replicas; start these brokers, "
        f"or let those partitions continue with --skip-unsafe{allowed_by_option(risk for _, risk in unsafe)}:"
        f"{''.join(lines)}{overflow}"
    )
