"""Placement of new topics: Kafka's own vectors, and its loop written out as a second way to the same answer."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from planner.assignment import assign_topic, kafka_replicas, simple_replicas
from tests.planner.frames import as_rows

FIVE: Final = [0, 1, 2, 3, 4]
HUNDREDS: Final = [100, 101, 102]


def _placed(spark: SparkSession, partitions: Sequence[int], replicas: Column) -> list[list[int]]:
    ids = spark.createDataFrame([(p,) for p in partitions], "partition int")
    rows = as_rows(assign_topic(ids, "t", replicas).orderBy("partition"))
    assert [(row["topic"], row["partition"]) for row in rows] == [("t", p) for p in sorted(partitions)]
    return [row["replicas"] for row in rows]


def _digits(text: str) -> list[list[int]]:
    return [[int(digit) for digit in replicas] for replicas in text.split()]


# brokers, replication factor, start, shift, first partition, replicas of each. Kafka's fixed start is its first shift.
KAFKA: Final = {
    "AdminRackAwareTest.testReplicaAssignment": (FIVE, 3, 0, 0, 0, "012 123 234 340 401 023 134 240 301 412"),
    "twelve partitions": (FIVE, 3, 0, 0, 10, "034 140"),
    "start 2": (FIVE, 3, 2, 2, 0, "201 312 423 034 140 213 324 430 041 102"),
    "replication factor 5, start 1": (FIVE, 5, 1, 1, 0, "13402 24013 30124 41230 02341 14023"),
    "one rack": ([0, 1, 2, 3, 4, 5], 3, 0, 0, 0, "012 123 234 345 450 501"),
    "one broker": ([0], 1, 0, 0, 0, "0 0 0"),
    "one broker, later start": ([7], 1, 3, 3, 0, "7 7"),
    "two brokers": ([0, 1], 2, 0, 0, 0, "01 10 01 10"),
    "brokers in the order given": ([3, 1, 2], 2, 0, 0, 0, "31 12 23 32 13 21"),
    "replication factor 1": (FIVE, 1, 3, 0, 0, "3 4 0 1 2 3"),
}


@pytest.mark.parametrize("vector", KAFKA.values(), ids=KAFKA)
def test_kafkas_vectors(spark: SparkSession, vector: tuple[list[int], int, int, int, int, str]) -> None:
    brokers, factor, start, shift, first, expected = vector
    wanted = _digits(expected)
    partitions = range(first, first + len(wanted))
    assert _placed(spark, partitions, kafka_replicas(brokers, factor, start, shift)) == wanted


# brokers, replication factor, start and shift, partitions there before, replicas of those added
ADDED: Final = {
    "to ten on five brokers": (FIVE, 3, 0, 10, "023 134 240"),
    "AddPartitionsTest.testReplicaPlacementAllServers": ([0, 1, 2, 3], 4, 2, 1, "3201 0312 1023 2301 3012 0123"),
    "AddPartitionsTest.testReplicaPlacementPartialServers": ([0, 1, 2, 3], 2, 1, 1, "20 31"),
}


@pytest.mark.parametrize("vector", ADDED.values(), ids=ADDED)
def test_added_partitions_begin_a_round_of_their_own(
    spark: SparkSession,
    vector: tuple[list[int], int, int, int, str],
) -> None:
    brokers, factor, start, count, expected = vector
    wanted = _digits(expected)
    replicas = kafka_replicas(brokers, factor, start, start, first_partition=count)
    assert _placed(spark, range(count, count + len(wanted)), replicas) == wanted


def test_ids_are_not_indexes(spark: SparkSession) -> None:
    expected = [[100, 101], [101, 102], [102, 100], [100, 102], [101, 100], [102, 101]]
    assert _placed(spark, range(6), kafka_replicas(HUNDREDS, 2, start_index=0, shift=0)) == expected


def test_simple_is_seed_004s_rule(spark: SparkSession) -> None:
    """Replica j of partition i sits at broker (i + j) mod n."""
    assert _placed(spark, range(6), simple_replicas(FIVE, 3)) == _digits("012 123 234 340 401 012")


def _kafka_loop(brokers: Sequence[int], partitions: int, factor: int, start: int, shift: int) -> list[list[int]]:
    """Write out the loop of AdminUtils: the shift grows each time the leaders have gone round."""
    n, found = len(brokers), []
    for p in range(partitions):
        if p > 0 and p % n == 0:
            shift += 1
        first = (p + start) % n
        replicas = [brokers[first]]
        for j in range(factor - 1):
            step = 1 + (shift + j) % (n - 1)
            replicas.append(brokers[(first + step) % n])
        found.append(replicas)
    return found


@st.composite
def _placements(draw: st.DrawFn) -> tuple[list[int], int, int, int, int]:
    brokers = draw(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=9, unique=True))
    factor = draw(st.integers(1, len(brokers)))
    return brokers, draw(st.integers(1, 60)), factor, draw(st.integers(0, 20)), draw(st.integers(0, 2**31 - 1))


@settings(deadline=None, max_examples=30)
@given(_placements())
def test_as_kafkas_loop_does(spark: SparkSession, placement: tuple[list[int], int, int, int, int]) -> None:
    brokers, partitions, factor, start, shift = placement
    found = _placed(spark, range(partitions), kafka_replicas(brokers, factor, start, shift))
    assert found == _kafka_loop(brokers, partitions, factor, start, shift)


@settings(deadline=None, max_examples=15)
@given(_placements())
def test_no_broker_twice_and_leaders_by_turns(
    spark: SparkSession,
    placement: tuple[list[int], int, int, int, int],
) -> None:
    brokers, rounds, factor, start, shift = placement
    ids = spark.range(rounds * len(brokers)).select(F.col("id").cast("int").alias("partition"))
    replicas = kafka_replicas(brokers, factor, start, shift)
    rows = as_rows(
        ids.select(replicas.alias("replicas")).select(
            F.get("replicas", F.lit(0)).alias("leader"),
            (F.size(F.array_distinct("replicas")) == factor).alias("distinct"),
        ),
    )
    led = [sum(row["leader"] == broker for row in rows) for broker in brokers]
    assert all(row["distinct"] for row in rows)
    assert led == [rounds] * len(brokers)
