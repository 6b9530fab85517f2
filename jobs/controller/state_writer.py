"""What a controller that stays writes: changes under the fence, and what it knows of them afterwards.

What was written is known without reading it again; what was out of date is read, and judged in the next cycle. In:
changes. Out: verdicts, and partitions to look at.
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
from jobs.controller.zk_watches import ZkWatches
from jobs.execution.batch.fenced_writer import FencedWriter
from jobs.preconditions.changes import reassigns
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from schemas.enums import Outcome
from schemas.rows import Change, Key

_UNTIL_RESIGNED: Final = float("inf")
"""`max_hold` of a writer: it is bound by `MAX_WRITE_SECONDS`."""

MAX_WRITE_SECONDS: Final = 15.0
"""Seconds after which a cycle begins no further multi: what is left is decided on anew, after what happened since."""

_NOT_STALE: Final = frozenset({Outcome.APPLIED, Outcome.SKIPPED})

FIRST_BACKOFF_SECONDS: Final = 4.0
MAX_BACKOFF_SECONDS: Final = 300.0
"""Seconds after which an assignment that ZooKeeper would not take is tried again, twice as many each time."""


@dataclass(slots=True)
class _Backoff:
    """An assignment that could not be written, and nothing has changed about it since."""

    change: Change
    seconds: float
    until: float
    is_over: bool = False

    def holds(self, change: Change) -> bool:
        same = (change.topic_version, change.replicas_after) == (self.change.topic_version, self.change.replicas_after)
        return same and not self.is_over


@dataclass(slots=True)
class StateWriter:
    """Writes under one controllership."""

    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    watches: ZkWatches
    due: set[Key] = field(default_factory=set)
    """Partitions that were written, or turned out to be other than known."""
    failed_attempts: int = 0
    """Times in a row that nothing of what was decided could be written."""
    _backoffs: dict[Key, _Backoff] = field(default_factory=dict)
    """Moves that are too large for a request, as nothing else fails for long."""

    def write(self, changes: Sequence[Change]) -> Iterator[tuple[list[RowOutcome], list[Change]]]:
        """Write changes; yield the verdicts of each multi, and those that were written.

        Who has no leader waits for nobody else. Those that assign replicas anew come last: they move the version of
        their topic, which the others check.
        """
        ordered = sorted(changes, key=_write_order)
        began = monotonic()
        verdicts: list[RowOutcome] = []
        for judged in FencedWriter(self.control, self._to_plan(ordered), _UNTIL_RESIGNED).write(ordered):
            verdicts += judged
            self._back_off(judged)
            written = [v.change for v in judged if v.outcome is Outcome.APPLIED and isinstance(v.change, Change)]
            self.apply_written(written)
            yield judged, written
            if monotonic() - began > MAX_WRITE_SECONDS and len(verdicts) < len(ordered):
                left = _deferred(ordered, verdicts)
                verdicts += left
                yield left, []
                break
        self._reread(verdicts)
        if verdicts:
            self.failed_attempts = (
                0 if any(v.outcome is Outcome.APPLIED for v in verdicts) else self.failed_attempts + 1
            )

    def _back_off(self, judged: Sequence[RowOutcome]) -> None:
        for verdict in judged:
            change = verdict.change
            if not isinstance(change, Change) or not reassigns(change):
                continue
            before = self._backoffs.pop(change.key, None)
            if verdict.outcome is Outcome.FAILED:
                seconds = FIRST_BACKOFF_SECONDS if before is None else min(MAX_BACKOFF_SECONDS, before.seconds * 2)
                self._backoffs[change.key] = _Backoff(change, seconds, monotonic() + seconds)

    def without_backed_off(self, changes: Sequence[Change]) -> list[Change]:
        """Leave out assignments that failed, until it is time to try them again."""
        if not self._backoffs:
            return [*changes]
        return [c for c in changes if not (c.key in self._backoffs and self._backoffs[c.key].holds(c))]

    def expired_backoffs(self) -> set[Key]:
        """Partitions whose assignment is tried again."""
        over = {key for key, held in self._backoffs.items() if not held.is_over and held.until <= monotonic()}
        for key in over:
            self._backoffs[key].is_over = True
        return over

    def _to_plan(self, changes: Sequence[Change]) -> Plan:
        """The changes as a plan that was made by what is known of the brokers."""
        brokers = [{"broker_id": b, "broker_epoch": row["broker_epoch"]} for b, row in self.context.brokers.items()]
        return Plan({"plan_id": "", "name": None, "brokers": brokers}, [*changes], [], [])

    def apply_written(self, changes: Sequence[Change]) -> None:
        """Know what was written."""
        for change in changes:
            self._apply_change(change)

    def _apply_change(self, change: Change) -> None:
        """Know what was written; the partition is looked at again, for the next step there may be."""
        before = self.context.partitions.get(change.key)
        if before is None:  # its topic went meanwhile
            return
        now = replace(
            before,
            replicas=change.replicas_after,
            adding_replicas=change.adding_after,
            removing_replicas=change.removing_after,
            leader=change.leader_after,
            isr=change.isr_after,
            leader_epoch=change.leader_epoch_after,
            leader_recovery_state=change.leader_recovery_state_after,
            controller_epoch=self.control.epoch,
            state_version=change.state_version + 1,
        )
        self.context.put_partition(now)
        self.due.add(change.key)

    def _reread(self, verdicts: Sequence[RowOutcome]) -> None:
        """Read topics again that were assigned anew, and those of what was out of date."""
        self.due |= {v.change.key for v in verdicts if v.outcome is Outcome.SKIPPED}
        stale = [v.change for v in verdicts if v.outcome not in _NOT_STALE]
        topics = {v.change.topic for v in verdicts if isinstance(v.change, Change) and reassigns(v.change)}
        topics |= {change.topic for change in stale}
        if topics:
            self.due |= self.reader.refresh_topics(topics)
        self.due |= {change.key for change in stale}
        if stale:
            self.watches.signal(BROKER_IDS)

    def drain_dirty(self) -> set[Key]:
        """Take the partitions that are due to be looked at."""
        due, self.due = self.due, set()
        return due


def _deferred(changes: Sequence[Change], judged: Sequence[RowOutcome]) -> list[RowOutcome]:
    """What a cycle had no time for."""
    known = {verdict.change.key for verdict in judged}
    why = f"put off: the cycle had written for {MAX_WRITE_SECONDS:g} s"
    return [RowOutcome(change, Outcome.SKIPPED, why) for change in changes if change.key not in known]


def _write_order(change: Change) -> tuple[bool, bool, str, int]:
    return reassigns(change), change.leader_after == change.leader_before, change.topic, change.partition
