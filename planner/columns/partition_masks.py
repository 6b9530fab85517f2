"""Rules on numpy arrays, for callers without Spark: partition states, needed elections, imbalance, lost brokers.

Tests compare them with `planner.columns.derived_columns`, `planner.leadership.failure_handling` (without unclean
elections and failed log dirs), `planner.leadership.imbalance` and `planner.whatif.impact`. In: PartitionArrays, and ids
of brokers. Out: boolean masks with an entry per partition, and rows of IMBALANCE.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.enums import NO_LEADER
from schemas.rows import BrokerImbalance

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionArrays:
    """Partitions, one per row; lists of brokers are (row, slot), padded with NO_LEADER."""

    replicas: Ints
    isr: Ints
    leader: Ints
    has_state: Bools
    """Whether a state with a leader was read; the leader may be NO_LEADER."""
    understood: Bools
    deleting: Bools
    """Whether the topic is queued for deletion."""
    min_isr: Ints

    @property
    def judged(self) -> Bools:
        """The partitions that rules apply to: understood, and not queued for deletion."""
        judged: Bools = self.understood & ~self.deleting
        return judged


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionMasks:
    """Boolean masks with an entry per partition: the four states (each partition has one) and the warnings."""

    non_existent: Bools
    new: Bools
    online: Bools
    offline: Bools
    under_replicated: Bools
    under_min_isr: Bools
    leader_outside_isr: Bools
    """The leader is a live broker that is not in the ISR. No rule of Kafka's changes such a partition."""


def partition_masks(rows: PartitionArrays, registered: Collection[int]) -> PartitionMasks:
    """Return what `planner.columns.derived_columns.derive_partitions` derives, as masks."""
    leader_is_live = slot_mask(rows.leader, registered)
    non_existent = rows.deleting & ~leader_is_live
    new = ~rows.has_state & ~non_existent
    return PartitionMasks(
        non_existent=non_existent,
        new=new,
        online=rows.has_state & leader_is_live,
        offline=rows.has_state & ~leader_is_live & ~non_existent,
        under_replicated=np.asarray((has_broker(rows.replicas) & ~row_mask(rows.replicas, rows.isr)).any(axis=1)),
        under_min_isr=has_broker(rows.isr).sum(axis=1) < rows.min_isr,
        leader_outside_isr=rows.has_state & leader_is_live & ~row_mask(rows.leader[:, None], rows.isr)[:, 0],
    )


def has_broker(brokers: Ints) -> Bools:
    """Return a mask of the slots that hold a broker."""
    marks: Bools = brokers != NO_LEADER
    return marks


def slot_mask(brokers: Ints, broker_ids: Collection[int]) -> Bools:
    """Return a mask of the slots that hold one of some brokers.

    >>> slot_mask(np.array([[2, -1]]), [2, 3]).tolist()
    [[True, False]]
    """
    marks: Bools = np.isin(brokers, np.fromiter(broker_ids, dtype=np.int32, count=len(broker_ids)))
    return marks


def row_mask(brokers: Ints, others: Ints) -> Bools:
    """Return a mask of the slots whose broker is also in the other list of the row; empty slots match only padding.

    >>> row_mask(np.array([[1, 2], [3, -1]]), np.array([[2], [4]])).tolist()
    [[False, True], [False, False]]
    """
    marks = np.zeros(brokers.shape, dtype=np.bool_)
    for other in others.T:
        marks |= brokers == other[:, None]
    return marks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepairMasks:
    """Masks with an entry per partition.

    `repairable`: a cycle repairs it without loss. `leaderless`: no replica that could lead it is live and in sync.
    """

    repairable: Bools
    leaderless: Bools


def repair_masks(rows: PartitionArrays, registered: Collection[int], able: Collection[int]) -> RepairMasks:
    """Mark the partitions that need a change; `able` are the registered and understood brokers, drained or not."""
    led = slot_mask(rows.leader, registered)
    leaderless = rows.judged & rows.has_state & ~led
    can_lead = slot_mask(rows.replicas, able)
    elects = (can_lead & row_mask(rows.replicas, rows.isr)).any(axis=1)
    registered_isr = slot_mask(rows.isr, registered)
    shrinks = (has_broker(rows.isr) & ~registered_isr).any(axis=1) & registered_isr.any(axis=1)
    creates = ~rows.has_state & can_lead.any(axis=1)
    return RepairMasks(
        repairable=(leaderless & elects) | (rows.judged & ((led & shrinks) | creates)),
        leaderless=leaderless & ~elects,
    )


def imbalance(rows: PartitionArrays, threshold: float) -> list[BrokerImbalance]:
    """Return one row per broker that is the preferred replica of a partition, by id."""
    preferred = rows.replicas[:, 0]
    counted = ~rows.deleting & (preferred != NO_LEADER)
    not_preferred = counted & rows.has_state & (rows.leader != preferred)
    brokers, index = np.unique(preferred[counted], return_inverse=True)
    preferring = np.bincount(index, minlength=len(brokers))
    not_led = np.bincount(index, weights=not_preferred[counted], minlength=len(brokers)).astype(int)
    return [
        BrokerImbalance(
            broker_id=broker,
            preferred_partitions=of_broker,
            not_led=others_lead,
            ratio=others_lead / of_broker,
            exceeds=others_lead / of_broker > threshold,
            threshold=threshold,
        )
        for broker, of_broker, others_lead in zip(brokers.tolist(), preferring.tolist(), not_led.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Impact:
    """Masks with an entry per partition, named as the columns of the table `whatif` that count them."""

    newly_offline: Bools
    unclean_only: Bools
    newly_under_min_isr: Bools
    leaders_moved: Bools


def lost_partitions(
    rows: PartitionArrays, live: Collection[int], able: Collection[int], drained: Collection[int], lost: Collection[int]
) -> Impact:
    """Mark the partitions affected by losing brokers; `able` are registered and understood, and drained lead last."""
    judged = rows.judged & rows.has_state
    in_isr = slot_mask(rows.replicas, able) & row_mask(rows.replicas, rows.isr)
    candidates = np.where(in_isr, rows.replicas, NO_LEADER)
    undrained = _first(np.where(slot_mask(candidates, drained), NO_LEADER, candidates))
    elected = np.where(has_broker(undrained), undrained, _first(candidates))
    led_by = np.where(slot_mask(rows.leader, live), rows.leader, elected)
    loses_leader = judged & (led_by != NO_LEADER) & slot_mask(led_by, lost)
    can_lead = has_broker(candidates) & ~slot_mask(candidates, lost)
    in_sync = slot_mask(rows.isr, live)
    surviving_isr = (in_sync & ~slot_mask(rows.isr, lost)).sum(axis=1)
    newly_offline = loses_leader & ~can_lead.any(axis=1)
    has_live_replica = (slot_mask(rows.replicas, able) & ~slot_mask(rows.replicas, lost)).any(axis=1)
    return Impact(
        newly_offline=newly_offline,
        unclean_only=newly_offline & (surviving_isr == 0) & has_live_replica,
        newly_under_min_isr=judged & (in_sync.sum(axis=1) >= rows.min_isr) & (surviving_isr < rows.min_isr),
        leaders_moved=loses_leader & can_lead.any(axis=1),
    )


def _first(brokers: Ints) -> Ints:
    """Return the first broker of each row, NO_LEADER if there is none."""
    occupied = has_broker(brokers)
    first: Ints = np.where(occupied.any(axis=1), brokers[np.arange(len(brokers)), occupied.argmax(axis=1)], NO_LEADER)
    return first
