"""The optimiser's result as rows for Spark: one per partition and wave, as `planner.reassignment.targets` takes them.

The rows are computed as Arrow columns, without a loop over rows.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from jobs.planning.placement.partition_arrays import NamedPartitions
from planner.placement.problem import NO_BROKER, Ints, Placement
from planner.placement.waves import Waves

TARGETS: Final = "topic string, partition int, replicas array<int>, reason string, wave int"
INTERMEDIATE: Final = f"{TARGETS}, steps int, goal array<int>, earlier array<array<int>>"
"""`goal`: the final list. `earlier`: the lists of the waves before, in order."""


def target_rows(cluster: NamedPartitions, placement: Placement, planned: Waves, barred: Ints) -> pa.Table:
    """Return the targets of each wave, and requested partitions that may not change, as they are."""
    reasons = pa.array(placement.reasons, pa.string()).take(pa.array(np.searchsorted(placement.changed, planned.row)))
    stay = _table(cluster, barred, cluster.partitions.replicas[barred], np.zeros_like(barred), [""] * len(barred))
    return pa.concat_tables([_table(cluster, planned.row, planned.after.T, planned.wave, reasons), stay])


def intermediate_rows(cluster: NamedPartitions, placement: Placement, planned: Waves, barred: Ints) -> pa.Table:
    """Return `target_rows` with the earlier and final lists of partitions that take several waves."""
    first = np.arange(len(planned.row)) - planned.nth
    of_step = np.arange(planned.nth.sum()) - np.repeat(np.cumsum(planned.nth) - planned.nth, planned.nth)
    before = lists(planned.after.T[np.repeat(first, planned.nth) + of_step])
    none = len(barred)
    offsets = _offsets(np.concatenate([planned.nth, np.zeros(none, dtype=np.int64)]))
    goals = np.concatenate([placement.replicas[planned.row], placement.replicas[barred]])
    return (
        target_rows(cluster, placement, planned, barred)
        .append_column("steps", pa.array(np.concatenate([planned.of, np.ones(none)]).astype(np.int32)))
        .append_column("goal", lists(goals))
        .append_column("earlier", pa.ListArray.from_arrays(offsets, before))
    )


def lists(replicas: Ints) -> pa.ListArray:
    """Convert padded rows of broker ids to lists."""
    filled = replicas != NO_BROKER
    return pa.ListArray.from_arrays(_offsets(filled.sum(axis=1)), replicas[filled].astype(np.int32))


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _table(cluster: NamedPartitions, rows: Ints, replicas: Ints, wave: Ints, reasons: pa.Array | list[str]) -> pa.Table:
    named = cluster.names.take(pa.array(rows))
    return pa.table(
        {
            "topic": named["topic"],
            "partition": named["partition"],
            "replicas": lists(replicas),
            "reason": pa.array(reasons, pa.string()),
            "wave": pa.array(wave.astype(np.int32)),
        },
    )
