"""Partitions affected by losing brokers, on numpy arrays: those that `planner.whatif.impact` counts on Spark.

A test compares the counts. In: PartitionArrays, ids of brokers. Out: masks with an entry per partition.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.columns.numpy_rules import Bools, Ints, PartitionArrays, has_broker, is_in, is_in_row
from schemas.enums import NO_LEADER


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
    """Mark the partitions affected by losing brokers; `able`: registered and understood; drained brokers lead last."""
    judged = rows.judged & rows.has_state
    in_isr = is_in(rows.replicas, able) & is_in_row(rows.replicas, rows.isr)
    candidates = np.where(in_isr, rows.replicas, NO_LEADER)
    undrained = _first(np.where(is_in(candidates, drained), NO_LEADER, candidates))
    elected = np.where(has_broker(undrained), undrained, _first(candidates))
    led_by = np.where(is_in(rows.leader, live), rows.leader, elected)
    deposed = judged & (led_by != NO_LEADER) & is_in(led_by, lost)
    heirs = has_broker(candidates) & ~is_in(candidates, lost)
    in_sync = is_in(rows.isr, live)
    surviving_isr = (in_sync & ~is_in(rows.isr, lost)).sum(axis=1)
    newly_offline = deposed & ~heirs.any(axis=1)
    alive = (is_in(rows.replicas, able) & ~is_in(rows.replicas, lost)).any(axis=1)
    return Impact(
        newly_offline=newly_offline,
        unclean_only=newly_offline & (surviving_isr == 0) & alive,
        newly_under_min_isr=judged & (in_sync.sum(axis=1) >= rows.min_isr) & (surviving_isr < rows.min_isr),
        leaders_moved=deposed & heirs.any(axis=1),
    )


def _first(brokers: Ints) -> Ints:
    """Return the first broker of each row, NO_LEADER if there is none."""
    occupied = has_broker(brokers)
    first: Ints = np.where(occupied.any(axis=1), brokers[np.arange(len(brokers)), occupied.argmax(axis=1)], NO_LEADER)
    return first
