"""Start order of dead brokers for partitions without a live replica in sync: the last ISR members first.

Kafka keeps the last member of an ISR (`ReplicaStateMachine.removeReplicasFromIsr`). Unless an unclean election is
allowed, it elects an assigned replica that is live and in the ISR (`offlinePartitionLeaderElection`). So only an
assigned broker of its last ISR brings a partition back without loss. Each step of the order starts the broker that
brings back most of the partitions still offline after the steps before. In: lists of brokers, a row per partition as in
`PartitionArrays`. Out: `StartOrder`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from planner.columns.partition_masks import Ints, has_broker, row_mask, slot_mask
from schemas.enums import NO_LEADER

BrokerSet = frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStart:
    """One step: start any one of these brokers."""

    brokers: tuple[int, ...]
    """Brokers that were in sync for the same partitions: starting one of them is enough."""
    partitions: int
    """Partitions for which each of them was last in sync."""
    brings_back: int
    """Partitions that this step brings back and no earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """The order in which to start brokers so that offline partitions come back without loss."""

    partitions: int
    """Offline partitions without an in-sync replica that can lead."""
    starts: tuple[BrokerStart, ...]
    not_in_sync: tuple[int, ...]
    """Dead brokers that hold replicas of these partitions but were last in sync for none; they can wait."""
    live: Mapping[int, int]
    """Registered brokers that were in sync last and cannot lead, with the number of partitions of each."""
    unknown: int
    """Partitions without an assigned replica that is known to have been in sync."""
    holders: tuple[int, ...]
    """Dead brokers that hold replicas of the unknown partitions."""


def start_order(replicas: Ints, last_isr: Ints, registered: Collection[int]) -> StartOrder:
    """Order the brokers that are not registered, for partitions that no registered broker can lead.

    >>> replicas, isr = np.array([[0, 2], [2, 0]]), np.array([[0], [0]])
    >>> order = start_order(replicas, isr, [1])
    >>> order.starts[0].brokers, order.starts[0].partitions, order.not_in_sync
    ((0,), 2, (2,))
    """
    last_in_sync = np.where(row_mask(replicas, last_isr), replicas, NO_LEADER)
    is_live = slot_mask(last_in_sync, registered)
    patterns = _count_broker_sets(np.where(is_live, NO_LEADER, last_in_sync))
    starts = _greedy_cover(patterns)
    is_dead = has_broker(replicas) & ~slot_mask(replicas, registered)
    has_known_member = np.asarray(has_broker(last_in_sync).any(axis=1))
    in_sync = {broker for pattern in patterns for broker in pattern}
    return StartOrder(
        partitions=len(replicas),
        starts=starts,
        not_in_sync=tuple(
            broker for broker in _distinct(replicas[is_dead & has_known_member[:, None]]) if broker not in in_sync
        ),
        live={broker: int((last_in_sync == broker).any(axis=1).sum()) for broker in _distinct(last_in_sync[is_live])},
        unknown=int((~has_known_member).sum()),
        holders=_distinct(replicas[is_dead & ~has_known_member[:, None]]),
    )


def _count_broker_sets(brokers: Ints) -> Counter[BrokerSet]:
    """Count the rows that have each set of brokers; there are many rows and few sets."""
    rows, counts = np.unique(np.sort(brokers, axis=1), axis=0, return_counts=True)
    patterns: Counter[BrokerSet] = Counter()
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        patterns[frozenset(row) - {NO_LEADER}] += count
    return patterns


def _greedy_cover(patterns: Mapping[BrokerSet, int]) -> tuple[BrokerStart, ...]:
    """Pick brokers until every pattern is covered (greedy set cover).

    Each step takes the broker in most uncovered patterns; ties go to the broker in most patterns, then to the lowest
    id. Brokers with exactly the same patterns are one step.
    """
    members: dict[int, set[BrokerSet]] = {}
    for pattern in patterns:
        for broker in pattern:
            members.setdefault(broker, set()).add(pattern)
    size = {broker: sum(patterns[pattern] for pattern in broker_sets) for broker, broker_sets in members.items()}
    uncovered, starts = {pattern for pattern in patterns if pattern}, []
    while uncovered:
        gains = {
            broker: sum(patterns[pattern] for pattern in broker_sets & uncovered)
            for broker, broker_sets in members.items()
        }
        best = min(members, key=lambda broker: (-gains[broker], -size[broker], broker))
        same = tuple(sorted(broker for broker, broker_sets in members.items() if broker_sets == members[best]))
        starts.append(BrokerStart(brokers=same, partitions=size[best], brings_back=gains[best]))
        uncovered -= members[best]
    return tuple(starts)


def _distinct(brokers: Ints) -> tuple[int, ...]:
    return tuple(np.unique(brokers).tolist())
