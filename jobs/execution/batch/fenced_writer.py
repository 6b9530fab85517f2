"""Writes changes to ZooKeeper in large fenced multis; each row gets an outcome, which may be UNKNOWN.

`Controllership.commit` puts the check of /controller_epoch first into every multi. `jobs.execution.batch.transactions`
adds the checks of brokers (live ones must be registered, dead ones must not), the check of each topic's version, and
the states, which are set at their versions. A multi is applied as a whole or not at all. If a multi is refused, the
rows at fault are set aside, and the other rows are tried again. The registered brokers are read again before each
multi. Corresponds to `KafkaZkClient.updateLeaderAndIsr` and `createTopicPartitionStatesRaw`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kazoo.exceptions import KazooException
from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster_state import TOPICS, brokers_and_deletions
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, lost_while_writing
from jobs.adapters.zookeeper.multi_failure import MultiFailure, too_large
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.precondition_reader import partitions_now, read_operations
from jobs.core.errors import FencedError, UnreadableError
from jobs.execution.batch.topic_znode_content import TopicZnodes
from jobs.execution.batch.transactions import (
    ZnodeReads,
    batches,
    required_reads,
    state_ops,
    topic_ops,
    topics_needing_own_multi,
    touched_paths,
)
from jobs.preconditions.change_preconditions import Preconditions, reassigns, split_due
from jobs.preconditions.operations import confirm_creations
from jobs.runtime.pace import DEFAULT
from schemas import reasons
from schemas.enums import Outcome
from schemas.rows import Change
from schemas.stored_plan import Plan, RowOutcome
from schemas.znode_codecs import MalformedZnodeError
from schemas.znode_paths import state_path

UNTIL_RESIGNED: Final = float("inf")
"""`max_hold` of a controllership that is kept."""

_MAX_ATTEMPTS: Final = 2
"""Attempts for a multi whose refusal no precondition explains, and for a read after a lost connection."""

_MAX_UNEXPLAINED_REFUSALS: Final = 20
"""Unexplained refusals in total, after which all rows of a refused batch fail: the cause is not in a few rows."""


@dataclass(slots=True)
class FencedWriter:
    """Writes changes under one controllership: those of a plan, or those that the resident controller decided on."""

    control: Controllership
    max_hold: float = UNTIL_RESIGNED
    plan: Plan | None = None
    """The plan whose topics are created and extended; None if there are none."""
    batch_changes: int = DEFAULT.batch_changes
    topics: TopicZnodes = field(init=False, default_factory=TopicZnodes)
    _broker_epochs: Mapping[int, int | None] = field(default_factory=dict)
    _undecided: Sequence[Change] = ()
    """Changes of the current batch without an outcome."""
    _refused_multis: int = 0
    _written_topic_versions: dict[str, int] = field(default_factory=dict)
    """Versions of topics after earlier batches wrote their assignment; remaining changes were planned at the one
    before.
    """

    def __post_init__(self) -> None:
        if self.plan is not None:
            self.topics = TopicZnodes.of(self.plan)

    def write(self, changes: Sequence[Change], broker_epochs: Mapping[int, int | None]) -> Iterator[list[RowOutcome]]:
        """Write changes batch by batch; yield the outcomes of each batch as soon as they are known.

        `broker_epochs`: the epochs of the brokers when the changes were decided. Raise FencedError once another
        controller has taken over, and SessionLostError if the session is lost. The outcomes of the batch in question
        are yielded first.
        """
        self._broker_epochs = broker_epochs
        changes, of_later_controller = split_due(changes, self._refuse_later_controller)
        if of_later_controller:
            yield of_later_controller
        for batch in batches(changes, self.topics, self.control.client.chroot, self.batch_changes):
            self._undecided = [self._rebase_on_own_write(change) for change in batch]
            try:
                yield from self._write_batch()
            except FencedError:
                yield [RowOutcome(change, Outcome.FENCED, reasons.FENCED.render()) for change in self._undecided]
                raise
            except (SessionLostError, KazooException, UnreadableError) as error:
                yield [RowOutcome(change, Outcome.UNKNOWN, reasons.SESSION_LOST.render()) for change in self._undecided]
                raise lost_while_writing(error) from None

    def _write_batch(self) -> Iterator[list[RowOutcome]]:
        """Write the undecided changes until each has an outcome; nearly every attempt decides at least one row."""
        unexplained = 0
        while self._undecided:
            if stop_reason := self.control.stop_reason(self.max_hold):
                outcomes = [RowOutcome(change, Outcome.SKIPPED, stop_reason) for change in self._undecided]
            else:
                outcomes, failure = self._try_write(self._undecided)
                if failure is not None and not outcomes:
                    unexplained += 1
                    if unexplained >= _MAX_ATTEMPTS or failure.is_final:
                        outcomes = self._set_aside_refused(self._undecided, failure)
            self._written_topic_versions |= {
                outcome.change.topic: outcome.change.topic_znode_version + 1
                for outcome in outcomes
                if isinstance(outcome.change, Change)
                and outcome.outcome is Outcome.APPLIED
                and reassigns(outcome.change)
            }
            decided = {id(outcome.change) for outcome in outcomes}
            self._undecided = [change for change in self._undecided if id(change) not in decided]
            yield outcomes

    def _refuse_later_controller(self, change: Change) -> RowOutcome | None:
        """Fail a change if the state to be overwritten carries a later controller epoch than ours.

        Kafka's controller never overwrites such a state: `PartitionStateMachine.doElectLeaderForPartitions` fails the
        election.
        """
        if (change.controller_epoch_before or 0) <= self.control.epoch:
            return None
        reason = (
            f"{state_path(change.key)} has controller epoch {change.controller_epoch_before}, later than ours, "
            f"{self.control.epoch}, and is not overwritten; plan again"
        )
        return RowOutcome(change, Outcome.FAILED, reason)

    def _rebase_on_own_write(self, change: Change) -> Change:
        """Base a change on the topic version that our last multi wrote.

        If another client has written the topic since, its version is higher still and the multi is refused.
        """
        version = self._written_topic_versions.get(change.topic)
        return change if version is None else replace(change, topic_version=version)

    def _try_write(self, pending: Sequence[Change]) -> tuple[list[RowOutcome], MultiFailure | None]:
        """Try to write the pending changes.

        Return the outcomes, or, if nothing explains a refusal, no outcomes and what ZooKeeper refused.
        """
        pending, stale = self.control.read(lambda: self._preconditions(pending).still_hold(pending))
        if stale:
            return stale, None
        failure = self._commit(pending)
        if failure is None:
            return [
                RowOutcome(change, Outcome.APPLIED, reasons.WRITTEN.render(), change.state_znode_version + 1)
                for change in pending
            ], None
        keys = [change.key for change in pending]
        _, outcomes = self.control.read(
            lambda: self._preconditions(pending).check(pending, partitions_now(self.control.client, keys))
        )
        plan, read = self.plan, partial(read_operations, self.control.client)
        if plan is not None:
            outcomes = self.control.read(lambda: confirm_creations(plan, outcomes, read))
        return outcomes, failure

    def _preconditions(self, changes: Sequence[Change]) -> Preconditions:
        """Read the brokers that these changes name, and the topic deletions."""
        brokers = {broker for change in changes for broker in (*change.requires_live, *change.requires_dead)}
        current = brokers_and_deletions(self.control.client, brokers)
        return Preconditions.in_batch_mode(self._broker_epochs, changes, *current)

    def _set_aside_refused(self, pending: Sequence[Change], failure: MultiFailure) -> list[RowOutcome]:
        """Fail the changes whose znode was refused, so that the others can be written."""
        self._refused_multis += 1
        failed = [change for change in pending if failure.path in touched_paths(change)]
        if not failed or self._refused_multis > _MAX_UNEXPLAINED_REFUSALS:
            failed = list(pending)
        return [RowOutcome(change, Outcome.FAILED, str(failure)) for change in failed]

    def _commit(self, pending: Sequence[Change]) -> MultiFailure | None:
        """Write the pending changes; return the first refusal, or None. A lost multi counts as refused."""
        try:
            znodes = self._read_required(pending)
            own_multi_topics = topics_needing_own_multi(pending, self.topics, znodes)
            for topic in own_multi_topics:
                failure = self.control.commit(topic_ops(topic, pending, self.topics, znodes))
                if failure is not None:
                    return failure
            if own_multi_topics:  # the states depend on the topics just written
                znodes = self._read_required(pending)
            ops = state_ops(pending, self.topics, znodes, self.control.epoch)
            return too_large(ops) or self.control.commit(ops)
        except MalformedZnodeError as error:  # changed since the last read; the next check reports it
            return MultiFailure("parse", TOPICS, error)

    def _read_required(self, pending: Sequence[Change]) -> ZnodeReads:
        """Read the znodes that the multis depend on; none if all states exist."""
        paths = required_reads(pending)
        znodes = self.control.read(lambda: read_many(self.control.client, paths)) if paths else []
        return {znode.path: znode for znode in znodes}
