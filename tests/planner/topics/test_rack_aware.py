"""Placement over racks: Kafka's own vectors, and its loop as a second way to the same result."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations, product
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.rules.replica_placement import PlacementOrder, rack_alternated
from planner.topics.rack_crowding import crowded_rows, least_crowding, max_per_rack
from schemas.rows import Row
from tests.planner.topics.assignment_oracle import alternated, kafkas, listed, placed, some_topics, topic

T: Final = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
B: Final = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r1"}
C: Final = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
D: Final = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r2"}
E: Final = dict.fromkeys(range(6), "r1")

# racks, replication factor, start and shift (Kafka's fixed start is its first shift), first partition, replicas
KAFKA: Final[dict[str, tuple[Mapping[int, str], int, int, int, str]]] = {
    "AdminRackAwareTest": (T, 3, 0, 0, "031 315 154 542 420 203 042"),
    "start 1": (T, 3, 1, 0, "320 103 531 415 254 042 352"),
    "two a rack, start 2": (B, 3, 2, 0, "320 541 203 415 032 154"),
    "thirteen": (B, 3, 0, 0, "013 135 352 524 240 401 024 140 301 513 235 452 032"),
    "two replicas": (B, 2, 0, 0, "01 13 35 52 24 40 02 14 30 51 23 45"),
    "racks of one and three": (C, 4, 2, 0, "2013 3124 4213 0123 1423 2413"),
    "more replicas than racks": (D, 5, 0, 0, "01324 13024 32014 24013 45013 50324"),
    "one rack": (E, 3, 0, 0, "012 123 234 345 450 501"),
    "one broker": ({7: "r1"}, 1, 3, 0, "7 7"),
    "added where a round begins": (T, 3, 0, 6, "042 320 103 531 415 254 014"),
    "added to one": (T, 3, 4, 1, "254 042 320 103 531"),
    "added, two replicas": (T, 2, 2, 5, "35 13 51 45 24 02 30 10"),
    "added, as many replicas as brokers": (T, 6, 3, 11, "135420 531420 415203 254031"),
    "added, racks of one and three": (C, 3, 3, 4, "241 312 412 012 123 231"),
    "added to ten": (C, 4, 1, 10, "1423 2013 3124 4213 0123"),
}
"""The added partitions were printed by Kafka 3.9.2's `AdminUtils`."""


@pytest.mark.parametrize("vector", KAFKA.values(), ids=KAFKA)
def test_kafkas_vectors(vector: tuple[Mapping[int, str], int, int, int, str]) -> None:
    racks, factor, start, first, expected = vector
    row = topic(range(first, first + len(expected.split())), factor, start)

    assert listed(row, sorted(racks), racks) == expected


TWO_SITES: Final = dict.fromkeys((1, 2, 3, 7), "a") | dict.fromkeys((4, 5, 6), "b")


def _lists(racks: Mapping[int, str], factor: int, *, balanced: bool) -> list[list[int]]:
    """Return the replicas for each position of the leader and each jump of the followers."""
    order, rule = rack_alternated(racks), PlacementOrder([], racks, balanced)
    places = product(range(len(order)), range(max(len(order) - 1, 1)))
    return [rule.replicas(order, *place, factor) for place in places]


def test_balanced_does_not_crowd_a_rack() -> None:
    """Replication factor 4 on racks of four and three brokers."""
    most = {
        balanced: Counter(max_per_rack(some, TWO_SITES) for some in _lists(TWO_SITES, 4, balanced=balanced))
        for balanced in (False, True)
    }
    assert most == {False: {2: 35, 3: 7}, True: {2: 42}}
    assert least_crowding(4, TWO_SITES, TWO_SITES) == 2


@given(st.dictionaries(st.integers(0, 99), st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(1, 8))
def test_balanced_equals_kafka_up_to_the_number_of_racks(racks: dict[int, str], factor: int) -> None:
    factor = min(factor, len(racks))
    balanced, kafkas_lists = (_lists(racks, factor, balanced=balanced) for balanced in (True, False))
    least = min(max_per_rack(some, racks) for some in combinations(racks, factor))
    assert {max_per_rack(some, racks) for some in balanced} == {least} == {least_crowding(factor, racks, racks)}
    assert all(len(set(some)) == factor for some in balanced)
    if factor <= len(set(racks.values())):
        assert balanced == kafkas_lists


def test_racks_take_turns() -> None:
    assert rack_alternated({broker: T[broker] for broker in range(5)}) == [0, 3, 1, 4, 2]
    assert rack_alternated({broker: f"r{broker // 3}" for broker in range(9)}) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_racks_are_ordered_as_java_orders_them() -> None:
    """By UTF-16, in which an emoji comes before a full-width letter; printed by Kafka 3.9.2's `AdminUtils`."""
    assert rack_alternated({0: "\N{GRINNING FACE}", 1: "\N{FULLWIDTH LATIN CAPITAL LETTER A}", 2: "z"}) == [2, 0, 1]


@st.composite
def _placements(draw: st.DrawFn) -> tuple[Mapping[int, str], list[Row]]:
    racks = draw(st.dictionaries(st.integers(0, 2**31 - 2), st.sampled_from("abcd"), min_size=1, max_size=9))
    return racks, draw(some_topics(len(racks)))


@given(_placements())
def test_many_topics_at_once_as_kafkas_loop_does(placement: tuple[Mapping[int, str], list[Row]]) -> None:
    """New topics and added partitions, with any replication factor, start and shift, in one plan."""
    racks, rows = placement

    assert placed(rows, sorted(racks), racks) == kafkas(rows, sorted(racks), racks)


@given(st.dictionaries(st.integers(0, 99), st.text("ab\N{LATIN SMALL LETTER E WITH ACUTE}", max_size=2), min_size=1))
def test_alternated_as_kafkas_loop_does(racks: dict[int, str]) -> None:
    assert rack_alternated(racks) == alternated(racks)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=5, unique=True), max_size=8),
    st.dictionaries(st.integers(0, 9), st.sampled_from("abc")),
    st.sets(st.integers(0, 9)),
)
def test_many_rows_are_judged_as_each_alone(lists: list[list[int]], racks: dict[int, str], brokers: set[int]) -> None:
    rows = np.array([replicas + [-1] * (5 - len(replicas)) for replicas in lists], dtype=np.int32).reshape(-1, 5)
    alone = [max_per_rack(replicas, racks) > least_crowding(len(replicas), racks, brokers) for replicas in lists]

    assert crowded_rows(rows, racks, brokers).tolist() == alone
