"""`surveyor cancel --partitions`: cancel reassignments that no plan requested, and remove requests left in /admin.

Corresponds to `kafka-reassign-partitions --cancel`. Kafka's controller carries out a cancellation under its own fence;
a request in /admin is removed under the epoch of that controller. Kafka's controller watches that znode only until it
changes and watches it again when it receives a reassignment request. So the controller is also asked to cancel the
partitions whose request was removed.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin import (
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_OUTCOME,
    Admin,
    AdminUnavailableError,
    describe_error,
    portions,
)
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.sinks.interface import Cluster, Lease, Reader
from jobs.adapters.zookeeper.connection import poll_until
from jobs.adapters.zookeeper.migration_signs import refuse_migration
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UnreadableError, UsageError
from jobs.execution.admin.connections import admin_of
from jobs.execution.admin.controller_client import judge_under_lease
from jobs.execution.admin.lease import lease_for
from jobs.execution.admin.zk_controller_client import (
    CANCELLATION_TIMEOUT_SECONDS,
    LEADER_RETURN_SECONDS,
    ZkReassignmentOverride,
)
from jobs.execution.cancellation import refuse_other_controller
from jobs.preconditions.cancellation_plan import allowed_by_option
from jobs.repositories.plans.commit_rows import NO_PLAN, AuditEntry, CommitRows, next_attempt
from jobs.runtime.console import CommandResult, confirm, is_terminal, log
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import same_step
from planner.reassignment.reassignment_status import CancellationRisk, cancellation_risk
from schemas.enums import Outcome, Step
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Key
from schemas.text import LINES_SHOWN, pluralise
from schemas.znodes import MalformedZnodeError

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


@dataclass(frozen=True, slots=True)
class _Partition:
    key: Key
    now: ReplicaAssignment | None
    request: list[int] | None
    risk: CancellationRisk | None
    unreadable_reason: str | None = None
    """Why its topic cannot be decoded."""

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_moving(self) -> bool:
        return self.now is not None and self.now.is_moving

    @property
    def line(self) -> str:
        parts = []
        if self.risk is not None:
            parts.append(f"continues: {self.risk.code}: {self.risk.reason}")
        elif self.is_moving and self.now is not None:
            parts.append(f"to be cancelled: adding {list(self.now.adding)}, removing {list(self.now.removing)}")
            parts.append(f"back to {self.now.origin}")
        if self.request is not None:
            parts.append(f"its request for {self.request} to be removed from /admin/reassign_partitions")
        if not parts:
            parts.append(self._unchanged_text)
        return f"  {self.name}  {'; '.join(parts)}"

    @property
    def _unchanged_text(self) -> str:
        if self.unreadable_reason is not None:
            return f"left alone, not understood: {self.unreadable_reason}"
        return "no such partition" if self.now is None else f"does not move: replicas {list(self.now.replicas)}"

    @property
    def row(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "replicas": None if self.now is None else list(self.now.replicas),
            "moving": self.is_moving,
            "request": self.request,
            "unsafe": None if self.risk is None else self.risk.reason,
        }


def parse_partitions(text: str) -> list[Key]:
    """Parse the value of --partitions.

    >>> parse_partitions("orders-0,web-logs-12")
    [('orders', 0), ('web-logs', 12)]
    """
    matches = [(word, _PARTITION.fullmatch(word.strip())) for word in text.split(",")]
    wrong = [word for word, match in matches if match is None]
    if wrong:
        raise UsageError(f"--partitions {wrong[0]!r}: expected TOPIC-NUMBER[,TOPIC-NUMBER...], as in orders-0,orders-1")
    return list(dict.fromkeys((match["topic"], int(match["partition"])) for _, match in matches if match))


def cancel_partitions(
    settings: Settings, text: str, *, apply: bool, yes: bool, skip_unsafe: bool, fewer_copies: bool = False
) -> CommandResult:
    """Cancel the reassignments of these partitions and remove requests for them, or show what that would do."""
    keys = parse_partitions(text)
    with settings.sink as sink, sink.reading() as reader:
        _, partitions = _read(reader, keys, fewer_copies=fewer_copies)
        if not skip_unsafe:
            _refuse_unsafe(partitions)
        pending = [partition for partition in partitions if _is_due(partition)]
        if not pending:
            return CommandResult(_result(partitions), "nothing is left to cancel", *_lines(partitions), warnings=[])
        if not apply:
            note = "dry run: nothing was written; --apply writes"
            step = same_step(settings, "apply", "cancel", "--apply")
            title = f"{pluralise(len(pending), 'partition')} to be cancelled"
            result = _result(partitions) | {"dry_run": True}
            return CommandResult(result, title, *_lines(partitions), note, steps=[step], warnings=[])
        if not yes and is_terminal():
            for line in _lines(partitions):
                log(line)
            if not confirm("cancel these?"):
                raise SurveyorError("not cancelled: the question was not answered with yes")
        with lease_for(settings, sink, "", "cancel") as lease:
            return _apply(settings, reader, keys, lease, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)


def _read(reader: Reader, keys: Sequence[Key], *, fewer_copies: bool) -> tuple[Cluster, list[_Partition]]:
    state = reader.read_cluster()
    refuse_migration(state.migration)
    requests = reader.read_requests()
    found = reader.read_partitions(keys)
    partitions = []
    for key in keys:
        request = requests.get(key)
        try:
            current = found[key].assignment
        except MalformedZnodeError as error:
            partitions.append(_Partition(key, None, request, None, str(error)))
            continue
        partition_state = found[key].state
        isr = None if partition_state is None else partition_state.isr
        risk = (
            cancellation_risk(current, isr, state.live, fewer_copies=fewer_copies)
            if current is not None and current.is_moving
            else None
        )
        partitions.append(_Partition(key, current, request, risk))
    return state, partitions


def _is_due(partition: _Partition) -> bool:
    """Whether the partition is moving or requested, and can be cancelled safely."""
    return partition.risk is None and (partition.is_moving or partition.request is not None)


def _refuse_unsafe(partitions: Sequence[_Partition], subject: str = "nothing is") -> None:
    unsafe = [
        f"{partition.name}: {partition.risk.code}: {partition.risk.reason}"
        for partition in partitions
        if partition.risk is not None
    ]
    if unsafe:
        listed = "\n  ".join(unsafe[:LINES_SHOWN])
        option = allowed_by_option(partition.risk for partition in partitions)
        raise RefusedError(
            f"{subject} cancelled: {pluralise(len(unsafe), 'partition')} would lose data or replicas; start these "
            f"brokers, or let those partitions continue with --skip-unsafe{option}:\n  {listed}"
        )


def _apply(
    settings: Settings, reader: Reader, keys: Sequence[Key], lease: Lease, *, skip_unsafe: bool, fewer_copies: bool
) -> CommandResult:
    """Connect, read again under the lease, remove requests, and ask the controller to cancel.

    In-sync replicas are judged once the controller can be asked, and again once the intents are recorded, just before
    the cancellation is requested.
    """
    with ExitStack() as stack:
        connection = _connection(stack, settings, reader)
        _, partitions = _read(reader, keys, fewer_copies=fewer_copies)
        if not skip_unsafe:
            _refuse_unsafe(partitions)
        pending = {partition.key: partition for partition in partitions if _is_due(partition)}
        run = _CancellationRun(reader, connection, lease, pending, skip_unsafe, fewer_copies)
        run.refuse_unavailable(partitions)
        audit = _Audit(settings.warehouse)
        audit.record(dict.fromkeys(pending, (Outcome.PENDING, "")))
        try:
            run.request()
        except SurveyorError as error:
            audit.record(run.outcomes_after(error))
            if run.requested:
                audit.record(_outcomes(run.wait(), run.reasons))
            raise
    return _report(run.wait(), run.reasons, run.unsafe, audit)


def _connection(stack: ExitStack, settings: Settings, reader: Reader) -> Admin | AdminUnavailableError | None:
    """Return the Admin API, or why it does not answer; None if `surveyor control` is the controller."""
    if reader.read_resident_controller() is not None:
        return None
    try:
        return stack.enter_context(admin_of(settings, reader.read_cluster()))
    except AdminUnavailableError as error:
        return error


@dataclass(slots=True)
class _CancellationRun:
    """Cancellation of some partitions by a controller, under the lease."""

    reader: Reader
    connection: Admin | AdminUnavailableError | None
    """The Admin API, or why it does not answer; None if `surveyor control` is the controller."""
    lease: Lease
    pending: Mapping[Key, _Partition]
    """The partitions to be cancelled, as they were before the intents were recorded."""
    skip_unsafe: bool
    fewer_copies: bool
    begun: set[Key] = field(default_factory=set)
    """Partitions whose request may have been removed, or whose cancellation may have been requested."""
    requested: list[_Partition] = field(default_factory=list)
    """Partitions for which all is done, or that are left out after a lost answer."""
    reasons: dict[Key, tuple[Outcome, str]] = field(default_factory=dict)
    """Outcomes of partitions that still move because the controller refused, or was not asked any more."""
    unsafe: list[_Partition] = field(default_factory=list)
    """Partitions that can no longer be cancelled safely, and continue."""

    def request(self) -> None:
        """Remove requests and ask the controller.

        Recording the intents took time, and so do the removal of requests and each request: partitions are judged again
        after each.
        """
        partitions = self._judge_again(self.pending)
        requested = {
            partition.key
            for partition in partitions
            if partition.request is not None and not (self.connection is None and partition.is_moving)
        }
        if requested:
            self.begun |= requested
            self.reader.withdraw_requests(requested)
            partitions = self._judge_again([partition.key for partition in partitions])
        if self.connection is None:
            self._move_back(partitions)
        elif isinstance(self.connection, AdminUnavailableError):
            self.requested += partitions
        else:
            self._ask(self.connection, partitions)

    def wait(self) -> list[_Partition]:
        """Wait until what was requested shows in the cluster, and return how it is then."""
        is_moved_back = self.connection is None and any(partition.is_moving for partition in self.requested)
        timeout_seconds = LEADER_RETURN_SECONDS if is_moved_back else CANCELLATION_TIMEOUT_SECONDS
        keys = [partition.key for partition in self.requested]
        return _wait(self.reader, keys, self.reasons.keys(), timeout_seconds)

    def outcomes_after(self, error: SurveyorError) -> dict[Key, tuple[Outcome, str]]:
        """Return the outcomes of partitions that were not requested before this error, or perhaps were."""
        requested = {partition.key for partition in self.requested}
        return {
            key: (Outcome.UNKNOWN, f"interrupted: {error}")
            if key in self.begun
            else (Outcome.SKIPPED, f"not requested: {error}")
            for key in self.pending
            if key not in requested
        }

    def refuse_unavailable(self, partitions: Iterable[_Partition]) -> None:
        """Raise AdminUnavailableError if a controller that does not answer is needed; to remove a request it is not."""
        is_needed = any(partition.is_moving and partition.risk is None for partition in partitions)
        if isinstance(self.connection, AdminUnavailableError) and is_needed:
            raise self.connection

    def _judge_again(self, keys: Iterable[Key]) -> list[_Partition]:
        """Return the partitions that can be cancelled by now, and note the others.

        Raise SurveyorError if nothing can be requested, as LeaseLostError.
        """
        partitions = judge_under_lease(self.lease, lambda: self._read(list(keys)))
        self.unsafe += [partition for partition in partitions if partition.risk is not None]
        return [partition for partition in partitions if partition.risk is None]

    def _read(self, keys: Sequence[Key]) -> list[_Partition]:
        refuse_other_controller(self.reader, was_resident=self.connection is None)
        _, partitions = _read(self.reader, keys, fewer_copies=self.fewer_copies)
        for partition in partitions:
            if partition.unreadable_reason is not None and self.pending[partition.key].unreadable_reason is None:
                raise UnreadableError(f"{partition.name} can no longer be decoded: {partition.unreadable_reason}")
        if not self.skip_unsafe:
            _refuse_unsafe(partitions, "the rest is not" if self.requested else "nothing is")
        self.refuse_unavailable(partitions)
        return partitions

    def _move_back(self, partitions: Sequence[_Partition]) -> None:
        """Request the original replicas from `surveyor control`."""
        back = {
            partition.key: partition.now.origin
            for partition in partitions
            if partition.is_moving and partition.now is not None and partition.unreadable_reason is None
        }
        self.begun |= back.keys()
        if back:
            ZkReassignmentOverride(self.reader.zookeeper_client).reassign(back)
        self.requested += partitions

    def _ask(self, admin: Admin, partitions: Sequence[_Partition]) -> None:
        """Send one request after another, each judged right before it, until an answer is lost.

        A partition that cannot be decoded is not judged, nor asked for.
        """
        lost_response: str | None = None
        for number, portion in enumerate(portions(partitions)):
            if lost_response is not None:
                skipped = (Outcome.SKIPPED, f"not requested: {lost_response} to an earlier request")
                self.reasons |= dict.fromkeys((partition.key for partition in portion), skipped)
                self.requested += portion
                continue
            due = self._judge_again([partition.key for partition in portion]) if number else portion
            keys = [partition.key for partition in due if partition.unreadable_reason is None]
            self.begun |= {*keys}
            try:
                codes = admin.reassign(dict.fromkeys(keys)) if keys else {}
            except UNKNOWN_OUTCOME as error:
                lost_response, codes = f"no answer came ({describe_error(error)})", {}
                log(f"surveyor: {lost_response}; what the cluster shows decides", logging.WARNING)
            self.requested += due
            self.reasons |= {
                key: (Outcome.FAILED, f"the controller refused: {refusal(code, 'cluster', 'ALTER')}")
                for key, code in codes.items()
                if code not in {NONE, NO_REASSIGNMENT_IN_PROGRESS}
            }


@dataclass(slots=True)
class _Audit:
    """Records the cancellations in `commits`, under no plan: the reassignments may be of any origin.

    A command without a warehouse, or with one that cannot be written, cancels as well.
    """

    warehouse: Warehouse
    rows: CommitRows | None = None

    def record(self, outcomes: Mapping[Key, tuple[Outcome, str]]) -> None:
        try:
            if self.rows is None:
                if not self.warehouse.exists():
                    return
                self.warehouse.ensure_columns("commits")
                self.rows = CommitRows(self.warehouse, NO_PLAN, next_attempt(self.warehouse, NO_PLAN))
            self.rows.append(
                AuditEntry(Step.CANCEL, message, topic, number, outcome)
                for (topic, number), (outcome, message) in outcomes.items()
            )
        except (SurveyorError, OSError, DeltaError) as error:
            log(f"surveyor: could not record the cancellation in table commits: {error}")


def _wait(
    reader: Reader, requested: Sequence[Key], refused: AbstractSet[Key], timeout_seconds: float
) -> list[_Partition]:
    """Read until no partition moves or is requested, but for those that the controller refused."""

    def read_again() -> list[_Partition]:
        reader.sync()
        return _read(reader, requested, fewer_copies=True)[1]

    def are_finished(partitions: Sequence[_Partition]) -> bool:
        return not any(
            partition.is_moving or partition.request is not None
            for partition in partitions
            if partition.key not in refused
        )

    return poll_until(read_again, are_finished, timeout_seconds)


def _is_unfinished(partition: _Partition) -> bool:
    return partition.is_moving or partition.request is not None


def _outcomes(
    final: Sequence[_Partition], reasons: Mapping[Key, tuple[Outcome, str]]
) -> dict[Key, tuple[Outcome, str]]:
    """Return the outcomes by what the cluster shows; `reasons` are those of partitions that still move."""
    invisible = (Outcome.UNKNOWN, "requested, and not visible yet")
    return {
        partition.key: reasons.get(partition.key, invisible)
        if _is_unfinished(partition)
        else (Outcome.APPLIED, _unchanged_text(partition))
        for partition in final
    }


def _report(
    final: Sequence[_Partition],
    reasons: Mapping[Key, tuple[Outcome, str]],
    unsafe: Sequence[_Partition],
    audit: _Audit,
) -> CommandResult:
    """Record the outcomes, and return what shows them; `unsafe` were not requested."""
    unfinished = [partition for partition in final if _is_unfinished(partition)]
    cancelled = [partition for partition in final if not _is_unfinished(partition)]
    audit.record(
        _outcomes(final, reasons)
        | {
            partition.key: (Outcome.SKIPPED, f"continues: {partition.risk.reason}")
            for partition in unsafe
            if partition.risk is not None
        }
    )
    still_moves = (Outcome.UNKNOWN, "still moves")
    lines = [f"  {partition.name}  {reasons.get(partition.key, still_moves)[1]}" for partition in unfinished]
    lines += [f"  {partition.name}  {_unchanged_text(partition)}" for partition in cancelled]
    lines += [partition.line for partition in unsafe]
    result = _result([*final, *unsafe]) | {"cancelled_now": len(cancelled), "failed": len(unfinished)}
    return CommandResult(
        result,
        f"{pluralise(len(cancelled), 'partition')} cancelled, {len(unfinished)} not",
        *lines[:LINES_SHOWN],
        warnings=[],
        exit_code=ExitCode.ERROR if unfinished else ExitCode.DONE,
    )


def _unchanged_text(partition: _Partition) -> str:
    if partition.now is None:
        return "its request was removed"
    return f"replicas {list(partition.now.replicas)}; to change their order: surveyor plan reassign"


def _lines(partitions: Sequence[_Partition]) -> Iterator[str]:
    yield from (partition.line for partition in partitions[:LINES_SHOWN])
    if len(partitions) > LINES_SHOWN:
        yield f"  ... and {len(partitions) - LINES_SHOWN} more"


def _result(partitions: Sequence[_Partition]) -> dict[str, Any]:
    return {"partitions": [partition.row for partition in partitions]}
