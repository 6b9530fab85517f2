"""Partitions that need a leader, and leader imbalance, on numpy arrays for callers without Spark.

Tests compare this with `planner.leadership.failure_handling`, without unclean elections and failed log dirs, and with
`planner.leadership.imbalance`. In: PartitionArrays, and ids of brokers. Out: masks with an entry per partition; rows of
IMBALANCE.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns.numpy_rules import Bools, PartitionArrays, has_broker, is_in, is_in_row
from schemas.enums import NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepairMasks:
    """Masks with an entry per partition.

    `repairable`: a cycle repairs it without loss. `leaderless`: no replica that could lead it is alive and in sync.
    """

    repairable: Bools
    leaderless: Bools


def repair_masks(rows: PartitionArrays, registered: Collection[int], able: Collection[int]) -> RepairMasks:
    """Mark the partitions that need a change; `able` are the registered and understood brokers, drained or not."""
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
    """Return one row per broker that is the preferred replica of a partition, by id; `ratio` is between 0 and 1."""
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
