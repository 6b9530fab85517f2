"""What follows from partitions' znodes and the live brokers, on arrays: `planner.columns.derived_columns`, without
Spark.

A test holds the two equal. In: PartitionArrays, and the ids of the registered brokers. Out: marks, one a partition, and
what topics and brokers say of min.insync.replicas.
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
    """Partitions, a row each; lists of brokers are (row, slot), NO_LEADER in the slots that a row does not need."""

    replicas: Ints
    isr: Ints
    leader: Ints
    has_state: Bools
    """Whether there is a leader to speak of, be it NO_LEADER."""
    understood: Bools
    deleting: Bools
    """Whether the topic is queued for deletion."""
    min_isr: Ints

    @property
    def judged(self) -> Bools:
        """The partitions that rules say something of: understood, and to stay."""
        judged: Bools = self.understood & ~self.deleting
        return judged


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionMasks:
    """A mark a partition: the four states, of which each partition has one, and the warnings."""

    non_existent: Bools
    new: Bools
    online: Bools
    offline: Bools
    under_replicated: Bools
    under_min_isr: Bools
    leader_outside_isr: Bools
    """Led by a live broker that is not in the ISR: no rule of Kafka's changes such a partition."""


def partition_masks(rows: PartitionArrays, registered: Collection[int]) -> PartitionMasks:
    """What `planner.columns.derived_columns.derive_partitions` derives, a mark a partition."""
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
    """The slots that hold a broker."""
    marks: Bools = brokers != NO_LEADER
    return marks


def is_in(brokers: Ints, broker_ids: Collection[int]) -> Bools:
    """The places that hold one of some brokers.

    >>> among(np.array([[2, -1]]), [2, 3]).tolist()
    [[True, False]]
    """
    marks: Bools = np.isin(brokers, np.fromiter(broker_ids, dtype=np.int32, count=len(broker_ids)))
    return marks


def is_in_row(brokers: Ints, others: Ints) -> Bools:
    """The slots whose broker is in the other list of its row, too; an empty slot is in none that is full.

    >>> within(np.array([[1, 2], [3, -1]]), np.array([[2], [4]])).tolist()
    [[False, True], [False, False]]
    """
    marks = np.zeros(brokers.shape, dtype=np.bool_)
    for other in others.T:
        marks |= brokers == other[:, None]
    return marks


def max_known_min_isr(broker_configs: Iterable[Mapping[str, Any]]) -> int | None:
    """The largest min.insync.replicas that any broker is known to use, None if none is; rows of BROKER_CONFIGS in."""
    known = (whole_number(row["value"]) for row in broker_configs if row["name"] == MIN_ISR and not row["assumed"])
    return max((number for number in known if number is not None), default=None)


def default_min_isr(broker_configs: Iterable[Mapping[str, Any]]) -> int:
    """The same, else Kafka's default: `planner.columns.derived_columns.default_min_isr`."""
    known = max_known_min_isr(broker_configs)
    return DEFAULT_MIN_ISR if known is None else known


def min_isr_override(config: Mapping[str, str | None] | None) -> int | None:
    """What a topic's config says of min.insync.replicas, None if nothing, or nothing that is a number."""
    return whole_number((config or {}).get(MIN_ISR))


def min_isr_of(config: Mapping[str, str | None] | None, default: int) -> int:
    """The min.insync.replicas of a topic: what its config says, else the brokers' `default`."""
    override = min_isr_override(config)
    return default if override is None else override
