"""One cycle of the controller on its context in memory: what is due for some of the partitions.

Corresponds to what `KafkaController.process` does on its events. The same as `planner.reconciliation.cycle`, without
Spark: that decides for all partitions of the tables, this for those that are given.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.rules.decisions import Decision, one_change
from planner.rules.leadership import leadership, preferred_election
from planner.rules.partitions import NONE, BrokerSets, ControllerConfig, PartitionInfo, TopicInfo
from planner.rules.reassignment import reassignment
from schemas.rows import Key


@dataclass(frozen=True, slots=True)
class CycleState:
    """What the rules of a cycle depend on.

    `failed`: by partition, the brokers on which its log dir failed. `stopped`: by partition and broker, the leader
    epoch at which the broker has confirmed that it stopped its replica; it may have been started since at a later one.
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
    """Partitions whose preferred replica is to be elected."""
    resuming: Collection[Key] = frozenset()
    """Partitions whose reassignment resumes after a take-over."""
    is_resident: bool = True

    def decisions(self, keys: Collection[Key]) -> Iterator[Decision]:
        """Decide on these partitions, and on those that requests name; with one change at most for each."""
        for key in keys:
            row = self.partitions.get(key)
            if row is not None and not (row.is_moving or key in self.reassignments or key in self.elections):
                brokers = self.brokers.with_failed(self.failed.get(key, NONE)) if self.failed else self.brokers
                decision = leadership(row, self.topics.get(row.topic), brokers, self.config)
                if decision is not None:
                    yield decision
            else:
                yield from self._of_partition(key, row)
        for key in {*self.reassignments, *self.elections}.difference(keys):
            yield from self._of_partition(key, self.partitions.get(key))

    def _of_partition(self, key: Key, row: PartitionInfo | None) -> list[Decision]:
        topic, brokers = self.topics.get(key[0]), self.brokers.with_failed(self.failed.get(key, NONE))
        decisions = [] if row is None else [leadership(row, topic, brokers, self.config)]
        if (row is not None and row.is_moving) or key in self.reassignments:
            epoch = None if row is None else row.leader_epoch
            decisions.append(
                reassignment(
                    key,
                    row,
                    topic,
                    brokers,
                    requested=self.reassignments.get(key),
                    stopped=[broker for broker, at in self.stopped.get(key, {}).items() if at == epoch],
                    is_resident=self.is_resident,
                    resumes=key in self.resuming,
                )
            )
        if key in self.elections:
            decisions.append(preferred_election(key, row, topic, brokers))
        return one_change(decision for decision in decisions if decision is not None)
