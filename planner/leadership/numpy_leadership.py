"""Who should lead and does not, on arrays: what a cycle finds due, and the imbalance, for who runs without Spark.

Tests hold this equal to `planner.leadership.failure_handling`, without unclean elections and failed log dirs, and to
`planner.leadership.imbalance`. In: PartitionArrays, and ids of brokers. Out: marks, one a partition; rows of IMBALANCE.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns.numpy_rules import Bools, PartitionArrays, has_broker, is_in, is_in_row
from schemas.enums import NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepairMasks:
    """A mark a partition: a cycle mends it without loss; nobody who could lead it is alive and in sync."""

    repairable: Bools
    leaderless: Bools


def repair_masks(rows: PartitionArrays, registered: Collection[int], able: Collection[int]) -> RepairMasks:
    """Mark the partitions that something is due for; `able`: registered and understood, drained or not."""
    led = is_in(rows.leader, registered)
    leaderless = rows.judged & rows.has_state & ~led
    can_lead = is_in(rows.replicas, able)
    elects = (can_lead & is_in_row(rows.replicas, rows.isr)).any(axis=1)
    registered_isr = is_in(rows.isr, registered)
    shrinks = (has_broker(rows.isr) & ~registered_isr).any(axis=1) & registered_isr.any(axis=1)
    creates = ~rows.has_state & can_lead.any(axis=1)
    return RepairMasks(
        repairable=(leaderless & elects) | (rows.judged & ((led & shrinks) | creates)),
        leaderless=leaderless & ~elects,
    )


def imbalance(rows: PartitionArrays, threshold: float) -> list[dict[str, Any]]:
    """One row a broker that is anyone's preferred replica, by id; `ratio` is between 0 and 1."""
    preferred = rows.replicas[:, 0]
    counted = ~rows.deleting & (preferred != NO_LEADER)
    not_preferred = counted & rows.has_state & (rows.leader != preferred)
    brokers, index = np.unique(preferred[counted], return_inverse=True)
    preferring = np.bincount(index, minlength=len(brokers))
    not_led = np.bincount(index, weights=not_preferred[counted], minlength=len(brokers)).astype(int)
    return [
        {
            "broker_id": broker,
            "preferred_partitions": of_broker,
            "not_led": others_lead,
            "ratio": others_lead / of_broker,
            "exceeds": others_lead / of_broker > threshold,
            "threshold": threshold,
        }
        for broker, of_broker, others_lead in zip(brokers.tolist(), preferring.tolist(), not_led.tolist(), strict=True)
    ]
