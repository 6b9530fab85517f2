"""Target rows for Spark: one per step, with the lists of the steps before."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings

from jobs.core.arrow_rows import rows_of
from jobs.planning.placement.optimise import intermediate_rows, target_rows
from jobs.planning.placement.partition_arrays import NamedPartitions
from planner.placement.solve import place
from planner.placement.types import NO_BROKER, PlacementError
from planner.placement.waves import WaveLimits, cut_into_waves
from tests.planner.placement.clusters import Case, cases


def _named(case: Case) -> NamedPartitions:
    topics = pa.array([f"t{topic}" for topic in case.partitions.topic.tolist()])
    names = pa.table({"topic": topics, "partition": pa.array(case.partitions.partition.astype(np.int32))})
    partitions = case.partitions
    leader = partitions.replicas[:, 0]
    return NamedPartitions(names=names, partitions=partitions, barred=~partitions.movable, leader=leader)


@settings(max_examples=60)
@given(cases())
def test_rows_have_earlier_and_final_lists(case: Case) -> None:
    try:
        placement = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    cluster, barred = _named(case), np.flatnonzero(~case.partitions.movable)
    planned = cut_into_waves(case.partitions, placement, {}, WaveLimits(moves_per_broker=1, one_at_a_time=True))
    rows: list[dict[str, Any]] = intermediate_rows(cluster, placement, planned, barred).to_pylist()
    assert target_rows(cluster, placement, planned, barred).to_pylist() == [
        {name: row[name] for name in ("topic", "partition", "replicas", "reason", "wave")} for row in rows
    ]
    reasons = dict(zip(placement.changed.tolist(), placement.reasons, strict=True))
    earlier_lists: dict[tuple[str, int], list[list[int]]] = {}
    for row in rows:
        key = (row["topic"], row["partition"])
        number = int(rows_of(pa.table({"topic": [row["topic"]], "partition": [row["partition"]]}), cluster.names)[0])
        assert row["earlier"] == earlier_lists.setdefault(key, [])
        earlier_lists[key].append(row["replicas"])
        assert row["goal"] == [broker for broker in placement.replicas[number].tolist() if broker != NO_BROKER]
        assert row["reason"] == reasons.get(number, "")
    assert all(lists[-1] == row["goal"] for row in rows for lists in [earlier_lists[row["topic"], row["partition"]]])
    assert all(row["steps"] == len(earlier_lists[row["topic"], row["partition"]]) for row in rows)
