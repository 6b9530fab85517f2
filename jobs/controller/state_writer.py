"""Records the decisions of a cycle, writes their changes under the fence, and notifies the brokers.

Corresponds to `ZkPartitionStateMachine.handleStateChanges`. The intents are recorded before the first write. Brokers
are sent the changes of each multi as soon as it is written, and no other changes. A written change is applied to the
context without reading it again. Outdated partitions are read again, and decided on in the next cycle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobs.adapters.zookeeper.cluster_state import BROKER_IDS
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decision_engine import Decisions
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import PendingWork
from jobs.controller.write_behind import CycleRecord, WriteBehindLog
from jobs.execution.batch.fenced_writer import FencedWriter
from jobs.preconditions.change_preconditions import reassigns
from jobs.runtime.pace import DEFAULT, Pace
from schemas.enums import Outcome
from schemas.rows import Change, Key, RejectionRecord, Snapshot, changes_among
from schemas.stored_plan import RowOutcome

_NOT_STALE: Final = frozenset({Outcome.APPLIED, Outcome.SKIPPED})

FIRST_BACKOFF_SECONDS: Final = 4.0
MAX_BACKOFF_SECONDS: Final = 300.0
"""Upper limit of the delay before an assignment that ZooKeeper refused is tried again; it doubles each time."""


@dataclass(slots=True)
class _Backoff:
    """An assignment that could not be written and has not changed since."""

    change: Change
    seconds: float
    retry_at: float
    is_expired: bool = False

    def matches(self, change: Change) -> bool:
        same = (change.topic_version, change.replicas_after) == (self.change.topic_version, self.change.replicas_after)
        return same and not self.is_expired


class Written(NamedTuple):
    """Decisions of which the changes were written."""

    decided: Decisions
    outcomes: Sequence[RowOutcome]
    rejections: Sequence[RejectionRecord]
    """Those that are new."""

    @property
    def applied(self) -> set[Key]:
        """Partitions whose change is written."""
        return {outcome.change.key for outcome in self.outcomes if outcome.outcome is Outcome.APPLIED}


@dataclass(slots=True)
class StateWriter:
    """Writes under one controllership."""

    control: Controllership
    context: ControllerContext
    snapshot: Snapshot
    reader: MetadataReader
    broker_requests: BrokerRequestBatch
    log: WriteBehindLog
    summary: CycleSummary
    pending: PendingWork
    """Gets the partitions that were written, or that differ from the context."""
    pace: Pace = DEFAULT
    _backoffs: dict[Key, _Backoff] = field(default_factory=dict)
    """Reassignments that are too large for one request; no other changes fail for long."""

    def write(self, decided: Decisions) -> Written:
        """Write the decided changes, and send them."""
        rejections = self.summary.new_rejections(decided.others)
        record = self.cycle_record(decided.changes, rejections) if decided.changes or rejections else None
        if record is not None:
            self.log.record(record)
        outcomes: list[RowOutcome] = []
        try:
            for batch in self._write_changes(decided.changes) if decided.changes else ():
                outcomes += batch
        finally:
            if record is not None:
                self.log.finish(record, outcomes)
        self.pending.add(requests_due=bool(outcomes) and bool(self.context.requests))
        return Written(decided, outcomes, rejections)

    def cycle_record(
        self,
        changes: Sequence[Change] = (),
        rejections: Sequence[RejectionRecord] = (),
        outcomes: Sequence[RowOutcome] | None = None,
    ) -> CycleRecord:
        """Make the record of a cycle, with the current broker epochs and controller epoch."""
        epochs = {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        ids = self.snapshot.snapshot_id, self.snapshot.cluster_id
        return CycleRecord(*ids, epochs, self.control.epoch, changes, rejections, outcomes)

    def _write_changes(self, changes: Sequence[Change]) -> Iterator[list[RowOutcome]]:
        """Write changes; send the changes of each multi, and yield its outcomes.

        Leaderless partitions are written first. Changes that assign replicas are written last, because they change the
        version of their topic, which all other changes check.
        """
        ordered, unknown = sorted(changes, key=_write_order), self.context.not_understood
        epochs = {broker: unknown.get(broker, row.broker_epoch) for broker, row in self.context.brokers.items()}
        began = self.pace.clock.monotonic()
        outcomes: list[RowOutcome] = []
        for batch in FencedWriter(self.control, batch_changes=self.pace.batch_changes).write(ordered, epochs):
            outcomes += batch
            self._back_off(batch)
            written = changes_among(v.change for v in batch if v.outcome is Outcome.APPLIED)
            self.pending.add(self.context.apply(written, self.control.epoch))
            yield batch
            self.broker_requests.send_changes(written)
            self.summary.by_action.update(change.action for change in written)
            if self.pace.clock.monotonic() - began > self.pace.cycle and len(outcomes) < len(ordered):
                deferred = _deferred(ordered, outcomes, self.pace.cycle)
                outcomes += deferred
                yield deferred
                break
        self._reread(outcomes)
        if outcomes:
            any_applied = any(v.outcome is Outcome.APPLIED for v in outcomes)
            self.pending.failed_attempts = 0 if any_applied else self.pending.failed_attempts + 1

    def _back_off(self, outcomes: Sequence[RowOutcome]) -> None:
        for outcome in outcomes:
            change = outcome.change
            if not isinstance(change, Change) or not reassigns(change):
                continue
            previous = self._backoffs.pop(change.key, None)
            if outcome.outcome is Outcome.FAILED:
                seconds = FIRST_BACKOFF_SECONDS if previous is None else min(MAX_BACKOFF_SECONDS, previous.seconds * 2)
                self._backoffs[change.key] = _Backoff(change, seconds, self.pace.clock.monotonic() + seconds)

    def without_backed_off(self, changes: Sequence[Change]) -> list[Change]:
        """Leave out assignments that failed, until they are due to be tried again."""
        if not self._backoffs:
            return [*changes]
        return [c for c in changes if not (c.key in self._backoffs and self._backoffs[c.key].matches(c))]

    def expired_backoffs(self) -> set[Key]:
        """Return the partitions whose assignment is due to be tried again."""
        now = self.pace.clock.monotonic()
        expired = {key for key, it in self._backoffs.items() if not it.is_expired and it.retry_at <= now}
        for key in expired:
            self._backoffs[key].is_expired = True
        return expired

    def _reread(self, outcomes: Sequence[RowOutcome]) -> None:
        """Read topics again whose assignment changed or whose changes were outdated."""
        self.pending.add({v.change.key for v in outcomes if v.outcome is Outcome.SKIPPED})
        stale = [v.change for v in outcomes if v.outcome not in _NOT_STALE]
        topics = {change.topic for change in changes_among(v.change for v in outcomes) if reassigns(change)}
        topics |= {change.topic for change in stale}
        if topics:
            self.pending.add(self.reader.refresh_topics(topics))
        self.pending.add({change.key for change in stale})
        if stale:
            self.reader.watches.signal(BROKER_IDS)


def _deferred(changes: Sequence[Change], outcomes: Sequence[RowOutcome], seconds: float) -> list[RowOutcome]:
    """Return outcomes for the changes that a cycle had no time to write."""
    judged_keys = {outcome.change.key for outcome in outcomes}
    reason = f"deferred: the cycle had written for {seconds:g} s"
    return [RowOutcome(change, Outcome.SKIPPED, reason) for change in changes if change.key not in judged_keys]


def _write_order(change: Change) -> tuple[bool, bool, str, int]:
    return reassigns(change), change.leader_after == change.leader_before, change.topic, change.partition
