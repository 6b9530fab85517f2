"""The partition state machine on Spark: states of partitions, and actions that are not allowed in them."""

from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_live_brokers
from planner.leadership.transition_columns import legal, with_transition
from planner.rules.state_machines import TRANSITIONS
from schemas.enums import NO_LEADER, Action, PartitionState
from tests.planner.frames import World, by_partition, partition_row

NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState

# leader, ISR, replicas -> state; reason why there is no election
STATES: Final = [
    ([1, 2], 1, [1], ONLINE, None),
    ([4, 2], 4, [4], ONLINE, None),
    ([7, 2], 7, [7], OFFLINE, None),
    ([7, 2], NO_LEADER, [7], OFFLINE, None),
    ([1, 2], None, None, NEW, "it is New; elect leads to Online from Online, Offline only"),
]


@pytest.mark.parametrize("action", TRANSITIONS)
def test_legal_for_every_state(spark: SparkSession, action: Action) -> None:
    _, starts = TRANSITIONS[action]
    rows = spark.createDataFrame([(state.value,) for state in PartitionState], "state string")
    states = {row.state for row in rows.where(legal(F.col("state"), action)).collect()}
    assert states == {start.value for start in starts}


def test_an_election_starts_from_where_there_was_a_leader(spark: SparkSession) -> None:
    rows = [partition_row(replicas, leader, isr, partition=n) for n, (replicas, leader, isr, *_) in enumerate(STATES)]
    partitions, _, brokers = World(rows, live=frozenset({1, 2}), opaque=frozenset({4})).frames(spark)
    absent = F.lit(None).cast("array<int>")
    unknown = partitions.limit(1).withColumns({"partition": F.lit(99), "replicas": absent})
    examined = partitions.unionByName(unknown).transform(with_live_brokers, brokers)
    transitions = by_partition(with_transition(examined, Action.ELECT))
    expected = {("t", n): (state.value, reason) for n, (*_, state, reason) in enumerate(STATES)}
    expected["t", 99] = (NON_EXISTENT.value, "it is NonExistent; elect leads to Online from Online, Offline only")
    assert {key: (row["state"], row["illegal"]) for key, row in transitions.items()} == expected
