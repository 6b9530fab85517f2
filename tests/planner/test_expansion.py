"""Partitions added to a topic: Kafka's own vectors, its loop from a later start, and the shape of the changes."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.expansion import added_replicas, start_of_round

FIVE: Final = [0, 1, 2, 3, 4]

# brokers, the topic's very first replica, replication factor, partitions there are, replicas of those added.
KAFKA: Final = {
    "testReplicaPlacementAllServers": ([0, 1, 2, 3], 2, 4, 1, "3201 0312 1023 2301 3012 0123"),
    "testReplicaPlacementPartialServers": ([0, 1, 2, 3], 1, 2, 1, "20 31"),
    "a round begins with the first one added": (FIVE, 0, 3, 10, "023 134 240"),
    "the first replica is gone": ([0, 1, 3], 2, 1, 1, "0 1 3"),
    "all are below it": ([0, 1, 2], 7, 2, 2, "20 02 10"),
    "one broker": ([4], 4, 1, 3, "4 4"),
}


def _added(spark: SparkSession, brokers: list[int], factor: int, start: int, partitions: range) -> list[list[int]]:
    ids = spark.range(partitions.start, partitions.stop).select(F.col("id").cast("int").alias("partition"))
    replicas = added_replicas(brokers, factor, start, partitions.start)
    return [row.replicas for row in ids.orderBy("partition").select(replicas.alias("replicas")).collect()]


@pytest.mark.parametrize("vector", KAFKA.values(), ids=KAFKA)
def test_kafkas_vectors(spark: SparkSession, vector: tuple[list[int], int, int, int, str]) -> None:
    brokers, first, factor, existing, expected = vector
    wanted = [[int(digit) for digit in replicas] for replicas in expected.split()]
    partitions = range(existing, existing + len(wanted))

    assert _added(spark, brokers, factor, start_of_round(brokers, first), partitions) == wanted


def _kafka_loop(brokers: Sequence[int], factor: int, start: int, partitions: range) -> list[list[int]]:
    """Write out the loop of AdminUtils, which begins at the first partition added and grows its shift from there."""
    n, shift, found = len(brokers), start, []
    for p in partitions:
        if p > 0 and p % n == 0:
            shift += 1
        first = (p + start) % n
        steps = [0, *(1 + (shift + j) % (n - 1) for j in range(factor - 1))]
        found.append([brokers[(first + step) % n] for step in steps])
    return found


@st.composite
def _expansions(draw: st.DrawFn) -> tuple[list[int], int, int, range]:
    brokers = sorted(draw(st.sets(st.integers(0, 2**31 - 2), min_size=1, max_size=9)))
    existing, added = draw(st.integers(1, 200)), draw(st.integers(1, 40))
    factor, start = draw(st.integers(1, len(brokers))), draw(st.integers(0, len(brokers) - 1))
    return brokers, factor, start, range(existing, existing + added)


@settings(deadline=None, max_examples=20)
@given(_expansions())
def test_as_kafkas_loop_does(spark: SparkSession, expansion: tuple[list[int], int, int, range]) -> None:
    assert _added(spark, *expansion) == _kafka_loop(*expansion)
