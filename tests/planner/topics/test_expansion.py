"""Partitions added to a topic: Kafka's own vectors, without racks and with."""

from typing import Final

import pytest

from planner.rules.replica_placement import start_of_round
from tests.planner.topics.assignment_oracle import listed, topic

FIVE: Final = [0, 1, 2, 3, 4]
T: Final = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}

# brokers, first replica of the topic, replication factor, existing partitions, replicas of the added ones
KAFKA: Final = {
    "testReplicaPlacementAllServers": ([0, 1, 2, 3], 2, 4, 1, "3201 0312 1023 2301 3012 0123"),
    "testReplicaPlacementPartialServers": ([0, 1, 2, 3], 1, 2, 1, "20 31"),
    "a round begins with the first one added": (FIVE, 0, 3, 10, "023 134 240"),
    "the first replica is gone": ([0, 1, 3], 2, 1, 1, "0 1 3"),
    "all are below it": ([0, 1, 2], 7, 2, 2, "20 02 10"),
    "one broker": ([4], 4, 1, 3, "4 4"),
}


@pytest.mark.parametrize("vector", KAFKA.values(), ids=KAFKA)
def test_kafkas_vectors(vector: tuple[list[int], int, int, int, str]) -> None:
    brokers, first, factor, existing, expected = vector
    row = topic(range(existing, existing + len(expected.split())), factor, start_of_round(brokers, first))

    assert listed(row, brokers) == expected


def test_places_are_counted_by_id_though_racks_take_turns() -> None:
    """Printed by Kafka 3.9.2's `AdminUtils` for start 2: broker 2 is third by id, and last in the alternating list."""
    row = topic(range(5, 13), 2, start_of_round(sorted(T), 2))

    assert listed(row, sorted(T), T) == "35 13 51 45 24 02 30 10"
