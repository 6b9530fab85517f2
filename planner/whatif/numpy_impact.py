"""Which partitions the loss of brokers would cost, on arrays: those that `planner.whatif.impact` counts on Spark.

A test holds the counts equal. In: PartitionArrays, ids of brokers. Out: a mark a partition.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.columns.numpy_rules import Bools, Ints, PartitionArrays, among, named, within
from schemas.enums import NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Impact:
    """A mark a partition, under the names that the table `whatif` counts them by."""

    newly_offline: Bools
    unclean_only: Bools
    newly_under_min_isr: Bools
    leaders_moved: Bools


def lost_partitions(
    rows: PartitionArrays, live: Collection[int], able: Collection[int], drained: Collection[int], lost: Collection[int]
) -> Impact:
    """Mark what these brokers take along; `able`: registered and understood; drained ones lead last."""
    judged = rows.judged & rows.has_state
    in_isr = among(rows.replicas, able) & within(rows.replicas, rows.isr)
    candidates = np.where(in_isr, rows.replicas, NO_LEADER)
    undrained = _first(np.where(among(candidates, drained), NO_LEADER, candidates))
    elected = np.where(named(undrained), undrained, _first(candidates))
    led_by = np.where(among(rows.leader, live), rows.leader, elected)
    deposed = judged & (led_by != NO_LEADER) & among(led_by, lost)
    heirs = named(candidates) & ~among(candidates, lost)
    in_sync = among(rows.isr, live)
    left = (in_sync & ~among(rows.isr, lost)).sum(axis=1)
    newly_offline = deposed & ~heirs.any(axis=1)
    alive = (among(rows.replicas, able) & ~among(rows.replicas, lost)).any(axis=1)
    return Impact(
        newly_offline=newly_offline,
        unclean_only=newly_offline & (left == 0) & alive,
        newly_under_min_isr=judged & (in_sync.sum(axis=1) >= rows.min_isr) & (left < rows.min_isr),
        leaders_moved=deposed & heirs.any(axis=1),
    )


def _first(brokers: Ints) -> Ints:
    """The first broker of each row, NO_LEADER where it names none."""
    some = named(brokers)
    first: Ints = np.where(some.any(axis=1), brokers[np.arange(len(brokers)), some.argmax(axis=1)], NO_LEADER)
    return first
