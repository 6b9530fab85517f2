"""The rules of `planner.columns.derived_columns` on numpy arrays, without Spark.

A test compares the two. In: PartitionArrays, and the ids of the registered brokers. Out: boolean masks with an entry
per partition, and min.insync.replicas of topics and brokers.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.enums import NO_LEADER
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR, whole_number

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
    """Boolean masks with an entry per partition: the four states, of which each partition has one, and the warnings."""

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
    alive = is_in(rows.leader, registered)
    non_existent = rows.deleting & ~alive
    new = ~rows.has_state & ~non_existent
    return PartitionMasks(
        non_existent=non_existent,
        new=new,
        online=rows.has_state & alive,
        offline=rows.has_state & ~alive & ~non_existent,
        under_replicated=np.asarray((has_broker(rows.replicas) & ~is_in_row(rows.replicas, rows.isr)).any(axis=1)),
        under_min_isr=has_broker(rows.isr).sum(axis=1) < rows.min_isr,
        leader_outside_isr=rows.has_state & alive & ~is_in_row(rows.leader[:, None], rows.isr)[:, 0],
    )


def has_broker(brokers: Ints) -> Bools:
    """Return a mask of the slots that hold a broker."""
    marks: Bools = brokers != NO_LEADER
    return marks


def is_in(brokers: Ints, broker_ids: Collection[int]) -> Bools:
    """Return a mask of the slots that hold one of some brokers.

    >>> is_in(np.array([[2, -1]]), [2, 3]).tolist()
    [[True, False]]
    """
    marks: Bools = np.isin(brokers, np.fromiter(broker_ids, dtype=np.int32, count=len(broker_ids)))
    return marks


def is_in_row(brokers: Ints, others: Ints) -> Bools:
    """Return a mask of the slots whose broker is also in the other list of the row; empty slots match only padding.

    >>> is_in_row(np.array([[1, 2], [3, -1]]), np.array([[2], [4]])).tolist()
    [[False, True], [False, False]]
    """
    marks = np.zeros(brokers.shape, dtype=np.bool_)
    for other in others.T:
        marks |= brokers == other[:, None]
    return marks


def max_known_min_isr(broker_configs: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the largest min.insync.replicas that a broker is known to use, by rows of BROKER_CONFIGS, else None."""
    known = (whole_number(row["value"]) for row in broker_configs if row["name"] == MIN_ISR and not row["assumed"])
    return max((number for number in known if number is not None), default=None)


def default_min_isr(broker_configs: Iterable[Mapping[str, Any]]) -> int:
    """Return the largest known min.insync.replicas, else Kafka's default, as `derived_columns.default_min_isr` does."""
    known = max_known_min_isr(broker_configs)
    return DEFAULT_MIN_ISR if known is None else known


def min_isr_override(config: Mapping[str, str | None] | None) -> int | None:
    """Return the min.insync.replicas of a topic's config, None if it is not set or not a number."""
    return whole_number((config or {}).get(MIN_ISR))


def min_isr_of(config: Mapping[str, str | None] | None, default: int) -> int:
    """Return the min.insync.replicas of a topic: its override, else the brokers' `default`."""
    override = min_isr_override(config)
    return default if override is None else override
