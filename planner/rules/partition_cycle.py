"""One cycle of the controller on its context in memory: what is due for some of the partitions.

Corresponds to what `KafkaController.process` does on its events. Plain-Python counterpart of
`planner.reconciliation.cycle`, which decides for all partitions of the tables; this module decides for given
partitions. A change of one needs the other.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from planner.rules.controlled_shutdown import controlled_shutdown
from planner.rules.decisions import Decision, one_change
from planner.rules.inputs import NO_BROKERS, BrokerSets, ControllerConfig
from planner.rules.leadership import leadership, preferred_election
from planner.rules.reassignment import decide_reassignment
from planner.rules.state_machines import illegal_transition
from schemas.enums import RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Key


@dataclass(frozen=True, slots=True)
class CycleState:
    """Inputs of a cycle's rules.

    `failed`: by partition, the brokers on which its log dir failed. `stopped`: by partition and broker, the leader
    epoch at which the broker has confirmed that it stopped its replica. The replica may have been started since at a
    later one.
    """

    partitions: Mapping[Key, PartitionInfo]
    topics: Mapping[str, TopicInfo]
    brokers: BrokerSets
    config: ControllerConfig
    failed: Mapping[Key, Collection[int]] = field(default_factory=dict)
    stopped: Mapping[Key, Mapping[int, int]] = field(default_factory=dict)
    reassignments: Mapping[Key, Sequence[int]] = field(default_factory=dict)
    """Requested replicas."""
    elections: Collection[Key] = frozenset()
    """Partitions whose preferred replica should be elected."""
    resuming: Collection[Key] = frozenset()
    """Partitions whose reassignment resumes after a take-over."""
    is_resident: bool = True

    def decisions(self, keys: Collection[Key]) -> Iterator[Decision]:
        """Decide on these partitions, and on those that requests name; with one change at most for each."""
        for key in keys:
            row = self.partitions.get(key)
            if row is not None and not (row.is_being_reassigned or key in self.reassignments or key in self.elections):
                brokers = self.brokers.with_failed(self.failed.get(key, NO_BROKERS)) if self.failed else self.brokers
                decision = leadership(row, self.topics.get(row.topic), brokers, self.config)
                if decision is not None:
                    yield self._legal(decision, brokers)
            else:
                yield from self._of_partition(key, row)
        for key in {*self.reassignments, *self.elections}.difference(keys):
            yield from self._of_partition(key, self.partitions.get(key))

    def controlled_shutdown(self, row: PartitionInfo, draining: frozenset[int]) -> Decision | None:
        """Decide on a partition while brokers shut down."""
        brokers = self.brokers.with_failed(self.failed.get(row.key, NO_BROKERS))
        decision = controlled_shutdown(row, self.topics.get(row.topic), brokers, draining)
        return None if decision is None else self._legal(decision, brokers)

    def _of_partition(self, key: Key, row: PartitionInfo | None) -> list[Decision]:
        topic, brokers = self.topics.get(key[0]), self.brokers.with_failed(self.failed.get(key, NO_BROKERS))
        decisions = [] if row is None else [leadership(row, topic, brokers, self.config)]
        if (row is not None and row.is_being_reassigned) or key in self.reassignments:
            decisions.append(
                decide_reassignment(
                    key,
                    row,
                    topic,
                    brokers,
                    requested=self.reassignments.get(key),
                    stopped=self._stopped(key),
                    is_resident=self.is_resident,
                    resumes=key in self.resuming,
                )
            )
        if key in self.elections:
            decisions.append(preferred_election(key, row, topic, brokers))
        return one_change(self._legal(decision, brokers) for decision in decisions if decision is not None)

    def _legal(self, decision: Decision, brokers: BrokerSets) -> Decision:
        """Return the decision, or a refusal if the state machines do not allow its change."""
        if decision.change is None:
            return decision
        why_not = illegal_transition(
            decision.change, brokers, self._stopped(decision.key) if self.is_resident else None
        )
        if why_not is None:
            return decision
        return replace(decision, change=None, code=RejectionCode.ILLEGAL_TRANSITION, why_not=why_not, withdrawn=False)

    def _stopped(self, key: Key) -> list[int]:
        """Return the brokers that have confirmed at the present leader epoch that they deleted their replica."""
        row = self.partitions.get(key)
        epoch = None if row is None else row.leader_epoch
        return [broker for broker, at in self.stopped.get(key, {}).items() if at == epoch]
