"""Changes written to ZooKeeper in large fenced multis, each row's outcome known or said to be unknown.

One multi (`jobs.execution.batch.transactions`) checks /controller_epoch at our version, that the brokers which must
live are registered and those which must be dead are not, and each topic's version, and sets the states at theirs. It is
all or nothing: of a refused one the rows concerned are set aside, and the rest is tried again. Brokers are read again
before each. Corresponds to `KafkaZkClient.updateLeaderAndIsr` and `createTopicPartitionStatesRaw`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kazoo.exceptions import KazooException
from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster import TOPICS
from jobs.adapters.zookeeper.connection import LOST, commit
from jobs.adapters.zookeeper.controllership import (
    Controllership,
    SessionLostError,
    await_reconnect,
    fenced,
    refused_by_epoch,
)
from jobs.adapters.zookeeper.multi import Op
from jobs.adapters.zookeeper.multi_failure import MultiFailure, lost, multi_failure
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.core.errors import FencedError, UnreadableError
from jobs.execution.batch.topic_znodes import TopicZnodes, too_large
from jobs.execution.batch.transactions import (
    ZnodeReads,
    batches,
    required_reads,
    state_ops,
    topic_ops,
    topics_needing_own_multi,
    touched_paths,
)
from jobs.preconditions.changes import Preconditions, reassigns, state_path
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from schemas.enums import Outcome
from schemas.rows import Change
from schemas.znodes import MalformedZnodeError

MAX_BATCH_CHANGES: Final = 1000
"""Changes a multi, at most: its bytes are bounded too."""

_MAX_ATTEMPTS: Final = 2
"""How often what nothing explains is tried."""

_MAX_UNEXPLAINED_REFUSALS: Final = 20
"""Refusals that nothing explains, in all, after which a batch so refused fails whole: no few rows are at fault."""

T = TypeVar("T")


@dataclass(slots=True)
class FencedWriter:
    """Writes the changes of one plan under one controllership."""

    control: Controllership
    plan: Plan
    max_hold: float
    topics: TopicZnodes = field(init=False)
    _undecided: Sequence[Change] = ()
    """What of the batch in hand is not judged."""
    _refused_multis: int = 0
    _written_topic_versions: dict[str, int] = field(default_factory=dict)
    """Versions of topics whose assignment earlier batches wrote: what is left of them was planned at the one before."""

    def __post_init__(self) -> None:
        self.topics = TopicZnodes.of(self.plan)

    def write(self, changes: Sequence[Change]) -> Iterator[list[RowOutcome]]:
        """Write changes batch by batch; yield the verdicts of each batch as they are known.

        Raises FencedError once another controller has taken over, and SessionLostError; the verdicts on the batch
        in question are yielded before.
        """
        later = [change for change in changes if self._is_of_later_controller(change)]
        if later:
            yield [RowOutcome(change, Outcome.FAILED, self._later_controller_reason(change)) for change in later]
            changes = [change for change in changes if not self._is_of_later_controller(change)]
        for batch in batches(changes, self.topics, self.control.client.chroot, MAX_BATCH_CHANGES):
            self._undecided = [self._rebase_on_own_write(change) for change in batch]
            try:
                yield from self._write_batch()
            except FencedError:
                yield [RowOutcome(change, Outcome.FENCED, "another controller took over") for change in self._undecided]
                raise
            except (SessionLostError, KazooException, UnreadableError) as error:
                yield [
                    RowOutcome(change, Outcome.UNKNOWN, "the session was lost; commit again")
                    for change in self._undecided
                ]
                why = f" ({error})" if isinstance(error, UnreadableError) else ""
                raise SessionLostError(
                    f"ZooKeeper was lost while we held the controllership{why}: what was in flight is unknown; "
                    "commit the plan again, it reads back and goes on",
                ) from None

    def _write_batch(self) -> Iterator[list[RowOutcome]]:
        """Try what is left until nothing is; every round but a few judges a row at least."""
        unexplained = 0
        while self._undecided:
            if why := self.control.stop_reason(self.max_hold):
                verdicts = [RowOutcome(change, Outcome.SKIPPED, why) for change in self._undecided]
            else:
                verdicts, refused = self._try_write(self._undecided)
                if refused is not None and not verdicts:
                    unexplained += 1
                    if unexplained >= _MAX_ATTEMPTS or refused.is_final:
                        verdicts = self._set_aside_refused(self._undecided, refused)
            self._written_topic_versions |= {
                verdict.change.topic: verdict.change.topic_version + 1
                for verdict in verdicts
                if isinstance(verdict.change, Change)
                and verdict.outcome is Outcome.APPLIED
                and reassigns(verdict.change)
            }
            judged = {id(verdict.change) for verdict in verdicts}
            self._undecided = [change for change in self._undecided if id(change) not in judged]
            yield verdicts

    def _is_of_later_controller(self, change: Change) -> bool:
        """Tell whether the state to be overwritten is of a controller after us: Kafka's never writes such a one.

        Corresponds to `PartitionStateMachine.doElectLeaderForPartitions`, which fails it.
        """
        return (change.controller_epoch_before or 0) > self.control.epoch

    def _later_controller_reason(self, change: Change) -> str:
        return (
            f"{state_path(change)} is of controller epoch {change.controller_epoch_before}, later than ours, "
            f"{self.control.epoch}: it is not overwritten; plan again"
        )

    def _rebase_on_own_write(self, change: Change) -> Change:
        """Let a change rest on the topic as our last multi wrote it; who wrote it since moved its version once more."""
        version = self._written_topic_versions.get(change.topic)
        return change if version is None else replace(change, topic_version=version)

    def _try_write(self, due: Sequence[Change]) -> tuple[list[RowOutcome], MultiFailure | None]:
        """Write what is due, or say whose premise does not hold; where neither, what ZooKeeper refused."""
        due, stale = self._read(lambda: Preconditions.read(self.plan, self.control.client).still_hold(due))
        if stale:
            return stale, None
        refused = self._commit(due)
        if refused is None:
            return [RowOutcome(change, Outcome.APPLIED, "written", change.state_version + 1) for change in due], None
        _, verdicts = self._read(
            lambda: Preconditions.read(self.plan, self.control.client).judge(self.control.client, due)
        )
        return verdicts, refused

    def _set_aside_refused(self, due: Sequence[Change], refused: MultiFailure) -> list[RowOutcome]:
        """Set aside those whose operation was refused, that the others can be written."""
        self._refused_multis += 1
        concerned = [change for change in due if refused.path in touched_paths(change)]
        if not concerned or self._refused_multis > _MAX_UNEXPLAINED_REFUSALS:
            concerned = list(due)
        return [RowOutcome(change, Outcome.FAILED, str(refused)) for change in concerned]

    def _commit(self, due: Sequence[Change]) -> MultiFailure | None:
        """Write what is due; what was refused on the way, if anything was."""
        try:
            znodes = self._read_required(due)
            alone = topics_needing_own_multi(due, self.topics, znodes)
            for topic in alone:
                refused = self._send(topic_ops(topic, due, self.topics, znodes))
                if refused is not None:
                    return refused
            if alone:  # what is there now is what the states depend on
                znodes = self._read_required(due)
            ops = state_ops(due, self.topics, znodes, self.control.epoch)
            return too_large(ops) or self._send(ops)
        except MalformedZnodeError as error:  # since the last reading: judging again says so
            return MultiFailure("go by", TOPICS, error)

    def _read_required(self, due: Sequence[Change]) -> ZnodeReads:
        """Read what the multis depend on; nothing where all states are there."""
        paths = required_reads(due)
        znodes = self._read(lambda: read_many(self.control.client, paths)) if paths else []
        return ZnodeReads({znode.path: znode for znode in znodes})

    def _send(self, ops: Sequence[Op]) -> MultiFailure | None:
        """Commit one multi; one whose answer was lost counts as refused, and what it did is read back."""
        multi = self.control.transaction(ops)
        try:
            results = commit(multi)
        except LOST as error:
            await_reconnect(self.control.client, self.control.session)
            return lost(multi, error)
        if refused_by_epoch(results):
            raise fenced(self.control.epoch)
        return multi_failure(multi, results)

    def _read(self, read: Callable[[], T]) -> T:
        """Read, once more after a lost connection, if the session is still ours."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return read()
            except LOST:
                await_reconnect(self.control.client, self.control.session)
        raise SessionLostError("the connection to ZooKeeper was lost again and again; commit again")
