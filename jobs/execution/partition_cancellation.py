"""`surveyor cancel --partitions`: cancel reassignments that no plan requested, and remove requests left in /admin.

Corresponds to `kafka-reassign-partitions --cancel`. Kafka's controller carries out a cancellation under its own fence;
a request in /admin is removed under the epoch of that controller. Kafka's controller watches that znode only until it
changes and watches it again when it receives a reassignment request. So the controller is also asked to cancel the
partitions whose request was removed.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError
from jobs.adapters.cluster_connections.interface import ClusterConnection, ClusterReader, Lease
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import poll_until
from jobs.advice.reassignments import owner_text
from jobs.console_output.cancellation import PartitionReading, reading_line, readings_json
from jobs.console_output.commit_events import WarningsGiven, log_event
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError, UsageError
from jobs.core.migration_signs import refuse_migration
from jobs.execution.admin.cancellation_requests import (
    CancellationRequests,
    Reason,
    Verdict,
    below_min_isr_warnings,
    ended_reason,
    unsafe_refusal,
)
from jobs.execution.admin.connections import admin_of, lease_for, refuse_known_other_cluster
from jobs.execution.admin.resident_controller_client import ZkReassignmentOverride
from jobs.repositories.plans.commit_rows import NO_PLAN, AuditEntry, CommitRows
from jobs.repositories.plans.moving_plans import moving_plans
from jobs.runtime.console import CommandResult, keep_warnings, log, truncate, warn
from jobs.runtime.review import Approve, Review, warning_lines
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, same_step
from planner.reassignment.reassignment_status import (
    ReassignmentStep,
    cancellation_risk,
    is_stranded,
    left_in_sync,
    status_in_any_order,
)
from schemas import reasons
from schemas.enums import Outcome, Step
from schemas.rows import Key
from schemas.text import LINES_SHOWN, join_ids, pluralise
from schemas.znode_codecs import MalformedZnodeError

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


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
    settings: Settings,
    keys: Sequence[Key],
    approve: Approve | None,
    *,
    apply: bool,
    skip_unsafe: bool,
    fewer_copies: bool = False,
) -> CommandResult:
    """Cancel the reassignments of these partitions and remove requests for them, or show what that would do."""
    with settings.connection as cluster, cluster.reading() as reader:
        refuse_known_other_cluster(settings, reader.read_cluster().cluster_id)
        partitions = _read(reader, keys, fewer_copies=fewer_copies)
        if not skip_unsafe:
            _refuse_unsafe(partitions)
        pending = [partition for partition in partitions if _is_due(partition)]
        _warn_of_owners(settings, pending)
        if not pending:
            return CommandResult(
                readings_json(partitions), "nothing is left to cancel", *_lines(partitions), warnings=[]
            )
        warned = below_min_isr_warnings(settings, reader, {row.key: row.isr_after for row in pending})
        if not apply:
            note = "dry run: nothing was written; --apply writes"
            step = same_step(settings, "apply", "cancel", "--apply")
            title = f"{pluralise(len(pending), 'partition')} to be cancelled"
            result = readings_json(partitions) | {"dry_run": True}
            lines = [*_lines(partitions), *warning_lines(warned), note]
            return CommandResult(result, title, *lines, steps=[step], warnings=warned)
        keep_warnings(warned)
        if approve is None:
            log_event(WarningsGiven(warned))
        elif not approve(Review("cancel these?", [*_lines(partitions), *warning_lines(warned)], warnings=warned)):
            raise SurveyorError("not cancelled: the question was not answered with yes")
        with lease_for(settings, cluster, "", "cancel") as lease:
            return _apply(settings, cluster, reader, keys, lease, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)


def _read(reader: ClusterReader, keys: Sequence[Key], *, fewer_copies: bool) -> list[PartitionReading]:
    state = reader.read_cluster()
    refuse_migration(state.migration)
    requests = reader.read_requests()
    partitions_now = reader.read_partitions(keys)
    partitions = []
    for key in keys:
        request = requests.get(key)
        try:
            current = partitions_now[key].assignment
        except MalformedZnodeError as error:
            partitions.append(PartitionReading(key, None, request, None, str(error)))
            continue
        partition_state = partitions_now[key].state
        isr = None if partition_state is None else partition_state.isr
        risk = (
            cancellation_risk(current, isr, state.live, fewer_copies=fewer_copies)
            if current is not None and current.is_being_reassigned
            else None
        )
        stranded = current is not None and is_stranded(current, isr)
        is_known = current is not None and current.is_being_reassigned and isr is not None
        left = left_in_sync(current, isr) if is_known and current is not None and isr is not None else None
        partitions.append(PartitionReading(key, current, request, risk, is_stranded=stranded, isr_after=left))
    return partitions


def _warn_of_owners(settings: Settings, pending: Sequence[PartitionReading]) -> None:
    """Warn of plans that requested these reassignments: a later commit of an open plan requests them again.

    A warehouse that cannot be read prevents no cancellation.
    """
    targets = {
        partition.key: partition.now.target if partition.now and partition.is_being_reassigned else partition.request
        for partition in pending
    }
    try:
        owners = moving_plans(settings.warehouse, {key: target or () for key, target in targets.items()})
    except (SurveyorError, OSError, DeltaError) as error:
        warn(f"whether a plan requested them is unknown: {error}")
        return
    for owner in owners:
        cancel = command_line(settings, "cancel", owner.row.command_name)
        warn(f"{owner_text(owner)}; only `{cancel}` also closes the plan, so that no commit continues it")


def _is_due(partition: PartitionReading) -> bool:
    """Return whether the partition is moving or requested, and can be cancelled safely."""
    return partition.risk is None and partition.is_unfinished


def _refuse_unsafe(partitions: Iterable[PartitionReading], subject: str = "nothing is") -> None:
    if refusal := unsafe_refusal(subject, ((partition.name, partition.risk) for partition in partitions)):
        raise refusal


def _apply(
    settings: Settings,
    cluster: ClusterConnection,
    reader: ClusterReader,
    keys: Sequence[Key],
    lease: Lease,
    *,
    skip_unsafe: bool,
    fewer_copies: bool,
) -> CommandResult:
    """Connect, read again under the lease, remove requests, and ask the controller to cancel.

    In-sync replicas are checked once the controller can be asked, and again once the intents are recorded, just before
    the cancellation is requested.
    """
    with ExitStack() as stack:
        requests = CancellationRequests(reader, _controller(stack, settings, reader), lease)
        partitions = _read(reader, keys, fewer_copies=fewer_copies)
        if not skip_unsafe:
            _refuse_unsafe(partitions)
        pending = {partition.key: partition for partition in partitions if _is_due(partition)}
        run = _PartitionCancellationRun(cluster, requests, pending, skip_unsafe, fewer_copies)
        run.refuse_unavailable(partitions)
        audit = _Audit(settings.warehouse)
        audit.record(dict.fromkeys(pending, (Outcome.PENDING, "")))
        try:
            run.request()
        except SurveyorError as error:
            audit.record(run.unrequested(error))
            if requests.requested:
                audit.record(run.outcomes(run.wait(requests.requested)))
            raise
    final = run.wait([key for key in pending if key not in requests.set_aside])
    outcomes = run.outcomes(final)
    audit.record(outcomes | requests.set_aside)
    return _report(final, outcomes, [run.checked[key] for key in requests.set_aside])


def _controller(
    stack: ExitStack, settings: Settings, reader: ClusterReader
) -> Admin | ZkReassignmentOverride | AdminUnavailableError:
    """Return the Admin API, or why it does not answer; or `surveyor control`, if that is the controller."""
    if reader.read_resident_controller() is not None:
        return ZkReassignmentOverride(reader.zookeeper_client)
    try:
        return stack.enter_context(admin_of(settings, reader.read_cluster()))
    except AdminUnavailableError as error:
        return error


@dataclass(slots=True)
class _PartitionCancellationRun:
    """Cancellation of some partitions by a controller, under the lease."""

    cluster: ClusterConnection
    requests: CancellationRequests
    pending: Mapping[Key, PartitionReading]
    """The partitions to be cancelled, as they were before the intents were recorded."""
    skip_unsafe: bool
    fewer_copies: bool
    checked: dict[Key, PartitionReading] = field(default_factory=dict)
    """Partitions as they were last checked."""
    removed: Collection[Key] = ()
    """Partitions whose request may have been removed."""

    def request(self) -> None:
        """Remove requests and ask the controller; partitions are checked again after each, as each takes time."""
        keys = [*self.pending]
        self.requests.check_again(keys, self._check)
        removed = [key for key in keys if key not in self.requests.set_aside and self._is_removable(self.checked[key])]
        if removed:
            self.removed = removed
            self.cluster.withdraw_requests(removed, self.requests.lease)
        self.requests.send([key for key in keys if key not in self.requests.set_aside], self._check)

    def _is_removable(self, partition: PartitionReading) -> bool:
        """Return whether a request must be removed; `surveyor control` follows the request to move a partition back."""
        return partition.request is not None and not (self.requests.is_resident and partition.is_being_reassigned)

    def wait(self, keys: Sequence[Key]) -> list[PartitionReading]:
        """Wait until the cluster shows the requested moves, and return the partitions as read last."""
        requests = self.requests
        unsent = {*keys}.difference(requests.requested) if requests.lost_response else set()

        def read_again() -> list[PartitionReading]:
            requests.reader.sync()
            return _read(requests.reader, keys, fewer_copies=True)

        def are_finished(partitions: Sequence[PartitionReading]) -> bool:
            waiting = {
                partition.key
                for partition in partitions
                if partition.is_unfinished or _has_become_unreadable(self.pending[partition.key], partition)
            }
            return not waiting - requests.unsafe_partitions - unsent

        return poll_until(read_again, are_finished, requests.timeout_seconds)

    def outcomes(self, final: Sequence[PartitionReading]) -> dict[Key, Reason]:
        """Return the outcomes by what the cluster shows."""
        return {partition.key: self._reason(partition) for partition in final}

    def _reason(self, partition: PartitionReading) -> Reason:
        if not partition.is_unfinished:
            return _ended_reason(self.pending[partition.key], partition)
        if partition.key in self.requests.requested:
            return self.requests.unchanged_reason(partition.key, _unfinished_text(partition))
        if self.requests.lost_response:
            return self.requests.unrequested_reason(None)
        return Outcome.UNKNOWN, _unfinished_text(partition)

    def unrequested(self, error: SurveyorError) -> dict[Key, Reason]:
        """Return the outcomes of partitions that were not requested before this error."""
        interrupted = Outcome.UNKNOWN, f"interrupted: {error}"
        skipped = self.requests.unrequested_reason(error)
        return {
            key: self.requests.set_aside.get(key, interrupted if key in self.removed else skipped)
            for key in self.pending
            if key not in self.requests.requested
        }

    def refuse_unavailable(self, partitions: Iterable[PartitionReading]) -> None:
        """Raise AdminUnavailableError if a controller that does not answer is needed; to remove a request it is not."""
        is_needed = any(partition.is_being_reassigned and partition.risk is None for partition in partitions)
        if isinstance(self.requests.controller, AdminUnavailableError) and is_needed:
            raise self.requests.controller

    def _check(self, keys: Sequence[Key]) -> Verdict:
        """Set partitions aside that are no longer safe; one that cannot be decoded is neither checked nor requested."""
        partitions = _read(self.requests.reader, keys, fewer_copies=self.fewer_copies)
        for partition in partitions:
            if _has_become_unreadable(self.pending[partition.key], partition):
                raise UnreadableError(f"{partition.name} can no longer be decoded: {partition.unreadable_reason}")
        if not self.skip_unsafe:
            _refuse_unsafe(partitions, "the rest is not" if self.requests.requested else "nothing is")
        self.refuse_unavailable(partitions)
        self.checked |= {partition.key: partition for partition in partitions}
        return Verdict(
            self._targets(partition for partition in partitions if partition.risk is None),
            {
                partition.key: (Outcome.SKIPPED, reasons.CONTINUES.render(risk=partition.risk.reason))
                for partition in partitions
                if partition.risk is not None
            },
        )

    def _targets(self, safe: Iterable[PartitionReading]) -> dict[Key, list[int] | None]:
        """Return what to request; Kafka's controller watches /admin again once it is asked to cancel anything."""
        readable = [partition for partition in safe if partition.unreadable_reason is None]
        if isinstance(self.requests.controller, AdminUnavailableError):
            return {}
        if self.requests.is_resident:
            return {
                partition.key: partition.now.origin
                for partition in readable
                if partition.now and partition.is_being_reassigned
            }
        return dict.fromkeys(partition.key for partition in readable)


@dataclass(slots=True)
class _Audit:
    """Records the cancellations in `commits`, under no plan: the reassignments may be of any origin.

    A command cancels also without a warehouse, or if it cannot write to the warehouse.
    """

    warehouse: Warehouse
    rows: CommitRows | None = None

    def record(self, outcomes: Mapping[Key, Reason]) -> None:
        try:
            if self.rows is None:
                if not self.warehouse.exists():
                    return
                self.rows = CommitRows.begin(self.warehouse, NO_PLAN)
            self.rows.append(
                AuditEntry(Step.CANCEL, message, topic, number, outcome)
                for (topic, number), (outcome, message) in outcomes.items()
            )
        except (SurveyorError, OSError, DeltaError) as error:
            log(f"surveyor: could not record the cancellation in table commits: {error}")


def _report(
    final: Sequence[PartitionReading], outcomes: Mapping[Key, Reason], unsafe: Sequence[PartitionReading]
) -> CommandResult:
    """Return what shows the outcomes; `unsafe` were not requested."""
    cancelled = [partition for partition in final if outcomes[partition.key][0] is Outcome.APPLIED]
    others = [partition for partition in final if outcomes[partition.key][0] is not Outcome.APPLIED]
    failed = [partition for partition in others if outcomes[partition.key][0] is not Outcome.STALE]
    lines = [f"  {partition.name}  {outcomes[partition.key][1]}" for partition in [*others, *cancelled]]
    lines += [reading_line(partition) for partition in unsafe]
    result = readings_json([*final, *unsafe]) | {"cancelled_now": len(cancelled), "failed": len(failed)}
    return CommandResult(
        result,
        f"{pluralise(len(cancelled), 'partition')} cancelled, {len(others)} not",
        *lines[:LINES_SHOWN],
        warnings=[],
        exit_code=ExitCode.ERROR if failed else ExitCode.DONE,
    )


def _ended_reason(before: PartitionReading, now: PartitionReading) -> Reason:
    """Return the outcome of a partition that no longer moves and has no request; the outcome need not be due to us."""
    if _has_become_unreadable(before, now):
        return Outcome.UNKNOWN, reasons.UNREAD_NOW.render(fault=now.unreadable_reason)
    if before.now is None or not before.now.is_being_reassigned:
        return Outcome.APPLIED, _unchanged_text(now)
    if now.now is None:
        return Outcome.STALE, reasons.PARTITION_GONE.render()
    status = status_in_any_order(ReassignmentStep(before.now.origin, before.now.target), now.now)
    state = reasons.REPLICAS.render(replicas=now.now.replicas)
    outcome, message = ended_reason(status, state, is_stranded=now.is_stranded, undo_command="surveyor plan reassign")
    return outcome, _unchanged_text(now) if outcome is Outcome.APPLIED else message


def _has_become_unreadable(before: PartitionReading, now: PartitionReading) -> bool:
    return now.unreadable_reason is not None and before.unreadable_reason is None


def _unchanged_text(partition: PartitionReading) -> str:
    if partition.now is None:
        return "its request was removed"
    return f"{reasons.REPLICAS.render(replicas=partition.now.replicas)}; to change their order: surveyor plan reassign"


def _unfinished_text(partition: PartitionReading) -> str:
    """Return what is left of a partition once its cancellation was requested."""
    parts = []
    if partition.now is not None and partition.is_being_reassigned:
        parts.append(
            f"it still moves, adding [{join_ids(partition.now.adding)}], removing [{join_ids(partition.now.removing)}]"
        )
    if partition.request is not None:
        parts.append(f"its request for [{join_ids(partition.request)}] still exists")
    return "; ".join(parts)


def _lines(partitions: Sequence[PartitionReading]) -> list[str]:
    return truncate([reading_line(partition) for partition in partitions])
