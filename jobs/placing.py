"""From a question to targets: the partitions of a snapshot as arrays, the optimiser, and its answer as rows for Spark.

The optimiser runs on the driver, on numpy arrays: a million partitions are a few hundred megabytes, and evenness is a
matter of all brokers at once. In: a snapshot and a Wanted. Out: Placed, its targets as reassignment plans take them.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.byte_figures import byte_figures
from jobs.errors import RefusedError
from jobs.figures import Figures, figures_of
from jobs.partition_arrays import NamedPartitions, Scope, read_partitions
from jobs.snapshots import SnapshotTables, as_of
from jobs.weights import Weights
from planner.placement.problem import NOBODY, Bools, Brokers, Ints, Partitions, Placement, PlacementError, Question
from planner.placement.solve import place
from planner.rejections import as_rejections
from schemas.names import Action, RejectionCode

TARGETS: Final = "topic string, partition int, replicas array<int>, reason string"
HELD: Final = (
    "a broker that is not alive, or not understood, holds a replica; --remove-brokers or --replace moves it away"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question to the optimiser, with brokers and topics by name; `only`: no others may hold what may change."""

    question: Question
    scope: Scope
    emptied: frozenset[int] = frozenset()
    only: frozenset[int] | None = None
    rack_aware: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The answer: what to ask for and why; what could not be looked at; and what it comes to."""

    targets: DataFrame
    held: DataFrame
    figures: Figures


def placed(at: SnapshotTables, wanted: Wanted, weights: Weights | None = None) -> Placed:
    """Answer a question on a snapshot; raise RefusedError where no placement keeps the rules.

    With `weights`, bytes are balanced instead of replicas.
    """
    cluster = read_partitions(at, wanted.scope)
    sizes: Figures = {}
    if weights is not None:
        cluster, sizes = weights.weighed(at, cluster)
    brokers = _brokers(at, wanted, cluster.partitions)
    answer = _place(brokers, cluster, wanted.question)
    spark = at.tables.spark
    concerned = _concerned(cluster.partitions, wanted)
    barred, dead = np.flatnonzero(cluster.barred & concerned), answer.held[concerned[answer.held]]
    targets = pa.concat_tables(
        [
            _rows(cluster, answer.replicas, answer.changed, answer.reasons),
            _rows(cluster, cluster.partitions.replicas, barred, ("",) * len(barred)),
        ],
    )
    held = spark.createDataFrame(cluster.names.take(pa.array(dead)), "topic string, partition int")
    code = {"code": F.lit(RejectionCode.REPLICA_NOT_ALIVE.value), "reason": F.lit(HELD)}
    return Placed(
        targets=spark.createDataFrame(targets, TARGETS).localCheckpoint(),
        held=held.withColumns(code).transform(as_rejections, Action.REASSIGN),
        figures={
            **figures_of(answer, set(brokers.ids[brokers.target].tolist())),
            "held": len(dead),
            **byte_figures(brokers, cluster.partitions, answer),
            **sizes,
        },
    )


def drained_brokers(at: SnapshotTables) -> set[int]:
    """Brokers drained now: they keep what they hold and get nothing."""
    return {row["broker_id"] for row in at.tables.lake.rows("drained")}


def _place(brokers: Brokers, cluster: NamedPartitions, question: Question) -> Placement:
    try:
        return place(brokers, cluster.partitions, question)
    except PlacementError as error:
        named = [f"{row['topic']}-{row['partition']}" for row in cluster.names.take(error.rows).to_pylist()]
        raise RefusedError(str(error).replace(f"rows {error.rows}", ", ".join(named))) from None


def _brokers(at: SnapshotTables, wanted: Wanted, partitions: Partitions) -> Brokers:
    """All brokers that are registered or hold a replica, which may be dead."""
    registered = {row["broker_id"]: row for row in as_of(at.tables.lake, at.snapshot, "brokers")}
    holding = set(np.unique(partitions.replicas[partitions.replicas != NOBODY]).tolist())
    ids = sorted(holding | registered.keys())
    emptied = wanted.emptied if wanted.only is None else frozenset(ids) - wanted.only
    _refuse_unknown(wanted.emptied - set(ids), ids)
    live = {broker for broker, row in registered.items() if row["understood"]}
    may_hold = live - drained_brokers(at) - emptied
    if not may_hold:
        raise RefusedError("no broker is left that may hold replicas; start brokers, or name fewer")
    racks = {broker: row["rack"] for broker, row in registered.items()} if wanted.rack_aware else {}
    return Brokers(
        ids=np.array(ids, dtype=np.int64),
        racks=tuple(racks.get(broker) for broker in ids),
        live=np.array([broker in live for broker in ids]),
        target=np.array([broker in may_hold for broker in ids]),
        emptied=np.array([broker in emptied for broker in ids]),
    )


def _refuse_unknown(unknown: AbstractSet[int], known: list[int]) -> None:
    if unknown:
        raise RefusedError(
            f"brokers {', '.join(map(str, sorted(unknown)))} are unknown: not alive, and no replica is on them; "
            f"known are {', '.join(map(str, known))}",
        )


def _concerned(partitions: Partitions, wanted: Wanted) -> Bools:
    """Rows that the question is about: all, or those on brokers to be emptied."""
    if not wanted.emptied:
        return np.ones(len(partitions.topic), dtype=bool)
    return np.asarray(np.isin(partitions.replicas, list(wanted.emptied)).any(axis=1), dtype=np.bool_)


def _rows(cluster: NamedPartitions, replicas: Ints, chosen: Ints, reasons: tuple[str, ...]) -> pa.Table:
    lists = replicas[chosen]
    filled = lists != NOBODY
    offsets = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
    named = cluster.names.take(pa.array(chosen))
    return pa.table(
        {
            "topic": named["topic"],
            "partition": named["partition"],
            "replicas": pa.ListArray.from_arrays(offsets, lists[filled].astype(np.int32)),
            "reason": pa.array(reasons, pa.string()),
        },
    )
