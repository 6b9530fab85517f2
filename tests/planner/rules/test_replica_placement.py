"""Placement in plain Python against the loops of Kafka's AdminUtils."""

from hypothesis import given
from hypothesis import strategies as st

from planner.rules.replica_placement import place_replicas
from tests.planner.topics.assignment_oracle import kafkas, topic


@given(st.data())
def test_places_as_kafka(data: st.DataObject) -> None:
    brokers = sorted(data.draw(st.sets(st.integers(0, 30), min_size=1, max_size=9)))
    has_racks = data.draw(st.booleans())
    racks = {broker: data.draw(st.sampled_from("abc")) for broker in brokers} if has_racks else None
    first = data.draw(st.integers(0, 30))
    partitions = range(first, first + data.draw(st.integers(1, 40)))
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))

    placed = place_replicas(racks or dict.fromkeys(brokers), partitions, factor, start_index=start, shift=shift)

    expected = kafkas([topic(partitions, factor, start, shift)], brokers, racks)
    assert {("t", number): replicas for number, replicas in placed.items()} == expected


def test_racks_that_some_brokers_lack_do_not_count() -> None:
    assert place_replicas({0: "a", 1: None, 2: "b"}, range(2), 2, start_index=0, shift=0) == {0: [0, 1], 1: [1, 2]}
