"""Writes changes under the fence, and updates the controller's context with them.

A written change is applied to the context without reading it again. Outdated partitions are read again, and decided on
in the next cycle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster import BROKER_IDS
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import PendingWork
from jobs.controller.zk_watches import ZkWatches
from jobs.execution.batch.fenced_writer import FencedWriter
from jobs.preconditions.change_preconditions import reassigns
from schemas.enums import Outcome
from schemas.plan import RowOutcome
from schemas.rows import Change, Key

MAX_WRITE_SECONDS: Final = 15.0
"""Seconds after which a cycle starts no further multi; the remaining changes are decided on again in the next cycle."""

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


@dataclass(slots=True)
class StateWriter:
    """Writes under one controllership."""

    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    watches: ZkWatches
    pending: PendingWork
    """Gets the partitions that were written, or that differ from the context."""
    _backoffs: dict[Key, _Backoff] = field(default_factory=dict)
    """Reassignments that are too large for one request; no other changes fail for long."""

    def write(self, changes: Sequence[Change]) -> Iterator[tuple[list[RowOutcome], list[Change]]]:
        """Write changes; yield the outcomes of each multi, with the changes that were written.

        Leaderless partitions are written first. Changes that assign replicas are written last, because they change the
        version of their topic, which all other changes check.
        """
        ordered = sorted(changes, key=_write_order)
        began = monotonic()
        outcomes: list[RowOutcome] = []
        for batch in FencedWriter(self.control).write(ordered, self._broker_epochs()):
            outcomes += batch
            self._back_off(batch)
            written = [v.change for v in batch if v.outcome is Outcome.APPLIED and isinstance(v.change, Change)]
            self.apply_written(written)
            yield batch, written
            if monotonic() - began > MAX_WRITE_SECONDS and len(outcomes) < len(ordered):
                deferred = _deferred(ordered, outcomes)
                outcomes += deferred
                yield deferred, []
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
                self._backoffs[change.key] = _Backoff(change, seconds, monotonic() + seconds)

    def without_backed_off(self, changes: Sequence[Change]) -> list[Change]:
        """Leave out assignments that failed, until they are due to be tried again."""
        if not self._backoffs:
            return [*changes]
        return [c for c in changes if not (c.key in self._backoffs and self._backoffs[c.key].matches(c))]

    def expired_backoffs(self) -> set[Key]:
        """Return the partitions whose assignment is due to be tried again."""
        expired = {
            key for key, backoff in self._backoffs.items() if not backoff.is_expired and backoff.retry_at <= monotonic()
        }
        for key in expired:
            self._backoffs[key].is_expired = True
        return expired

    def _broker_epochs(self) -> dict[int, int | None]:
        """Return the broker epochs as they were read last."""
        unknown = self.context.not_understood
        return {broker: unknown.get(broker, row.broker_epoch) for broker, row in self.context.brokers.items()}

    def apply_written(self, changes: Sequence[Change]) -> None:
        """Apply written changes to the context."""
        for change in changes:
            self._apply_change(change)

    def _apply_change(self, change: Change) -> None:
        """Apply a written change to the context.

        The partition is decided on again, because there may be a next step.
        """
        previous = self.context.partitions.get(change.key)
        if previous is None:  # its topic was removed in the meantime
            return
        now = replace(
            previous,
            replicas=change.replicas_after,
            adding_replicas=change.adding_after,
            removing_replicas=change.removing_after,
            leader=change.leader_after,
            isr=change.isr_after,
            leader_epoch=change.leader_epoch_after,
            leader_recovery_state=change.leader_recovery_state_after,
            controller_epoch=self.control.epoch,
            state_version=change.state_znode_version + 1,
        )
        self.context.put_partition(now)
        self.pending.partitions.add(change.key)

    def _reread(self, outcomes: Sequence[RowOutcome]) -> None:
        """Read topics again whose assignment changed or whose changes were outdated."""
        self.pending.add({v.change.key for v in outcomes if v.outcome is Outcome.SKIPPED})
        stale = [v.change for v in outcomes if v.outcome not in _NOT_STALE]
        topics = {v.change.topic for v in outcomes if isinstance(v.change, Change) and reassigns(v.change)}
        topics |= {change.topic for change in stale}
        if topics:
            self.pending.add(self.reader.refresh_topics(topics))
        self.pending.add({change.key for change in stale})
        if stale:
            self.watches.signal(BROKER_IDS)


def _deferred(changes: Sequence[Change], outcomes: Sequence[RowOutcome]) -> list[RowOutcome]:
    """Return outcomes for the changes that a cycle had no time to write."""
    judged_keys = {outcome.change.key for outcome in outcomes}
    reason = f"deferred: the cycle had written for {MAX_WRITE_SECONDS:g} s"
    return [RowOutcome(change, Outcome.SKIPPED, reason) for change in changes if change.key not in judged_keys]


def _write_order(change: Change) -> tuple[bool, bool, str, int]:
    return reassigns(change), change.leader_after == change.leader_before, change.topic, change.partition
