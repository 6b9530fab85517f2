"""Which brokers to start when no live replica of a partition is in sync: those that were in the ISR last.

Kafka keeps the last member of an ISR (`ReplicaStateMachine.removeReplicasFromIsr`) and elects, unless an unclean
election is allowed, an assigned replica that is alive and in the ISR (`offlinePartitionLeaderElection`). So the broker
that brings a partition back without loss is an assigned one of its last ISR. The order of starts takes at each step the
broker that brings back most of the partitions that the steps before it leave offline. In: lists of brokers, a row a
partition as in `PartitionArrays`. Out: `StartOrder`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from planner.columns.numpy_rules import Ints, has_broker, is_in, is_in_row
from schemas.enums import NO_LEADER

BrokerSet = frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One step: start a broker."""

    brokers: tuple[int, ...]
    """Brokers that were in sync of the same partitions: each of them will do."""
    partitions: int
    """Partitions that each of them was last in sync of."""
    brings_back: int
    """Of these, the ones that no earlier step brings back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """What brings offline partitions back without loss."""

    partitions: int
    """Offline partitions of which no replica that is in sync can lead."""
    starts: tuple[Start, ...]
    not_in_sync: tuple[int, ...]
    """Brokers that are gone and hold replicas of these partitions, and were last in sync of none: they wait."""
    alive: Mapping[int, int]
    """Registered brokers that were in sync last and cannot lead; how many of the partitions have each."""
    unknown: int
    """Partitions of which no assigned replica is known to have been in sync."""
    holders: tuple[int, ...]
    """Brokers that are gone and hold replicas of the unknown ones."""


def start_order(replicas: Ints, last_isr: Ints, registered: Collection[int]) -> StartOrder:
    """Order the brokers that are not registered, for partitions that no registered one can lead.

    >>> replicas, isr = np.array([[0, 2], [2, 0]]), np.array([[0], [0]])
    >>> order = start_order(replicas, isr, [1])
    >>> order.starts[0].brokers, order.starts[0].partitions, order.not_in_sync
    ((0,), 2, (2,))
    """
    last_in_sync = np.where(is_in_row(replicas, last_isr), replicas, NO_LEADER)
    alive = is_in(last_in_sync, registered)
    patterns = _count_broker_sets(np.where(alive, NO_LEADER, last_in_sync))
    starts = _greedy_cover(patterns)
    gone = has_broker(replicas) & ~is_in(replicas, registered)
    has_known_member = np.asarray(has_broker(last_in_sync).any(axis=1))
    in_sync = {broker for pattern in patterns for broker in pattern}
    return StartOrder(
        partitions=len(replicas),
        starts=starts,
        not_in_sync=tuple(
            broker for broker in _distinct(replicas[gone & has_known_member[:, None]]) if broker not in in_sync
        ),
        alive={broker: int((last_in_sync == broker).any(axis=1).sum()) for broker in _distinct(last_in_sync[alive])},
        unknown=int((~has_known_member).sum()),
        holders=_distinct(replicas[gone & ~has_known_member[:, None]]),
    )


def _count_broker_sets(brokers: Ints) -> Counter[BrokerSet]:
    """How many rows have each set of brokers; rows are many, and their sets few."""
    rows, counts = np.unique(np.sort(brokers, axis=1), axis=0, return_counts=True)
    patterns: Counter[BrokerSet] = Counter()
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        patterns[frozenset(row) - {NO_LEADER}] += count
    return patterns


def _greedy_cover(patterns: Mapping[BrokerSet, int]) -> tuple[Start, ...]:
    """Take the broker in most of the patterns that are left, then in most of all, then the lowest, until none is left.

    Brokers of exactly the same patterns are one step.
    """
    members: dict[int, set[BrokerSet]] = {}
    for pattern in patterns:
        for broker in pattern:
            members.setdefault(broker, set()).add(pattern)
    size = {broker: sum(patterns[each] for each in mine) for broker, mine in members.items()}
    uncovered, starts = {pattern for pattern in patterns if pattern}, []
    while uncovered:
        gains = {broker: sum(patterns[each] for each in mine & uncovered) for broker, mine in members.items()}
        best = min(members, key=lambda broker: (-gains[broker], -size[broker], broker))
        same = tuple(sorted(broker for broker, mine in members.items() if mine == members[best]))
        starts.append(Start(brokers=same, partitions=size[best], brings_back=gains[best]))
        uncovered -= members[best]
    return tuple(starts)


def _distinct(brokers: Ints) -> tuple[int, ...]:
    return tuple(np.unique(brokers).tolist())
