"""The partition state machine: exactly Kafka's transitions; illegal ones are skipped and reported."""

from itertools import product
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_live_brokers
from planner.leadership.state_machine import TRANSITIONS, VALID_PREVIOUS, legal, with_transition
from schemas.enums import NO_LEADER, Action, PartitionState
from tests.planner.frames import World, by_partition, partition_row

NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState
EDGES: Final = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (ONLINE, ONLINE),
    (OFFLINE, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, OFFLINE),
    (OFFLINE, NON_EXISTENT),
}
"""`PartitionState.validPreviousStates`."""

# leader, ISR, replicas -> state; reason why there is no election
STATES: Final = [
    ([1, 2], 1, [1], ONLINE, None),
    ([4, 2], 4, [4], ONLINE, None),
    ([7, 2], 7, [7], OFFLINE, None),
    ([7, 2], NO_LEADER, [7], OFFLINE, None),
    ([1, 2], None, None, NEW, "it is New; elect leads to Online from Online, Offline only"),
]


def test_the_legal_transitions_are_kafkas() -> None:
    assert {(before, after) for after, starts in VALID_PREVIOUS.items() for before in starts} == EDGES


def test_every_action_takes_legal_transitions_only() -> None:
    assert {(start, after) for after, starts in TRANSITIONS.values() for start in starts} <= EDGES


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
    expected = {("t", n): (state.value, why) for n, (*_, state, why) in enumerate(STATES)}
    expected["t", 99] = (NON_EXISTENT.value, "it is NonExistent; elect leads to Online from Online, Offline only")
    assert {key: (row["state"], row["illegal"]) for key, row in transitions.items()} == expected


def test_every_pair_is_decided() -> None:
    assert {pair for pair in product(PartitionState, repeat=2) if pair[0] in VALID_PREVIOUS[pair[1]]} == EDGES
