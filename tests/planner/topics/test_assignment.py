"""Placement of new topics: Kafka's own vectors, and its loop as a second way to the same result."""

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.planning.topics.new_partition_placement import place_topics
from schemas.rows import Row
from tests.planner.topics.assignment_oracle import kafkas, listed, placed, some_topics, topic

FIVE: Final = [0, 1, 2, 3, 4]

# brokers, replication factor, start, shift, first partition, replicas of each. Kafka's fixed start is its first shift.
KAFKA: Final = {
    "AdminRackAwareTest.testReplicaAssignment": (FIVE, 3, 0, 0, 0, "012 123 234 340 401 023 134 240 301 412"),
    "added to ten": (FIVE, 3, 0, 0, 10, "023 134 240"),
    "start 2": (FIVE, 3, 2, 2, 0, "201 312 423 034 140 213 324 430 041 102"),
    "replication factor 5, start 1": (FIVE, 5, 1, 1, 0, "13402 24013 30124 41230 02341 14023"),
    "one rack": ([0, 1, 2, 3, 4, 5], 3, 0, 0, 0, "012 123 234 345 450 501"),
    "one broker": ([0], 1, 0, 0, 0, "0 0 0"),
    "one broker, later start": ([7], 1, 3, 3, 0, "7 7"),
    "two brokers": ([0, 1], 2, 0, 0, 0, "01 10 01 10"),
    "brokers in the order given": ([3, 1, 2], 2, 0, 0, 0, "31 12 23 32 13 21"),
    "replication factor 1": (FIVE, 1, 3, 0, 0, "3 4 0 1 2 3"),
    "ids are not indexes": ([100, 101, 102], 2, 0, 0, 0, "100101 101102 102100 100102 101100 102101"),
    "the largest numbers there are": (FIVE, 3, 2**31 - 1, 2**31 - 1, 0, "213 324"),
}


@pytest.mark.parametrize("vector", KAFKA.values(), ids=KAFKA)
def test_kafkas_vectors(vector: tuple[list[int], int, int, int, int, str]) -> None:
    brokers, factor, start, shift, first, expected = vector
    row = topic(range(first, first + len(expected.split())), factor, start, shift)

    assert listed(row, brokers) == expected


def test_simple_strategy() -> None:
    """Replica j of partition i is on broker (i + j) mod n."""
    rows = place_topics([topic(range(6), 3, 0)], {"strategy": "simple", "brokers": FIVE})

    assert " ".join("".join(map(str, replicas)) for *_, replicas in rows) == "012 123 234 340 401 012"


def test_by_hand() -> None:
    by_hand = {"new": (0, [[2, 0], [0, 1]]), "old": (3, [[1]])}
    rows = [{"topic": name, "first_partition": n, "replica_assignment": lists} for name, (n, lists) in by_hand.items()]

    assert placed(rows, []) == {("new", 0): [2, 0], ("new", 1): [0, 1], ("old", 3): [1]}


@st.composite
def _placements(draw: st.DrawFn) -> tuple[list[int], list[Row]]:
    brokers = draw(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=9, unique=True))
    return brokers, draw(some_topics(len(brokers)))


@given(_placements())
def test_many_topics_at_once_as_kafkas_loop_does(placement: tuple[list[int], list[Row]]) -> None:
    brokers, rows = placement

    assert placed(rows, brokers) == kafkas(rows, brokers)


@given(_placements())
def test_no_broker_twice_and_leaders_by_turns(placement: tuple[list[int], list[Row]]) -> None:
    brokers, rows = placement
    even = [row | {"first_partition": 0, "partitions": 3 * len(brokers)} for row in rows]

    assigned = placed(even, brokers)

    assert all(len(set(replicas)) == len(replicas) for replicas in assigned.values())
    assert Counter(replicas[0] for replicas in assigned.values()) == dict.fromkeys(brokers, 3 * len(even))
