"""Clusters that are far from even, by the replicas of partitions; the first replicas lead unless a leader is given."""

from typing import Final

import numpy as np
import pytest

from planner.columns.broker_skew import skew_of
from planner.columns.partition_masks import PartitionArrays

THREE: Final[dict[int, str | None]] = {1: None, 2: None, 3: None}
ROUND: Final = [[1, 2], [2, 3], [3, 1]]

# partitions: replicas and how often; leader of all, or None; racks; what is far from even, with its brokers
CASES: Final[list[tuple[str, list[list[int]], int, int | None, dict[int, str | None], list[tuple[str, list[int]]]]]] = [
    ("even", ROUND, 20, None, THREE, []),
    ("few partitions", [[1, 2]], 3, 1, THREE, []),
    ("one partition on each", ROUND, 1, 1, THREE, []),
    ("an empty broker", ROUND, 4, None, {**THREE, 4: None, 5: None}, [("empty", [4, 5])]),
    ("too few replicas for all brokers", ROUND, 1, None, {**THREE, 4: None}, []),
    ("replicas", [[1, 2], [1, 2], [1, 3]], 10, 1, THREE, [("replicas", [1, 3]), ("leaders", [1, 3])]),
    ("leaders that are not preferred", ROUND, 20, 1, THREE, []),
    ("leaders", [[1, 2], [1, 3], [1, 2], [2, 3], [3, 2], [1, 3]], 10, None, THREE, [("leaders", [1, 3])]),
    (
        "a rack each",
        [[1, 2], [1, 2], [1, 3]],
        10,
        1,
        {1: "a", 2: "b", 3: "c"},
        [("replicas", [1, 3]), ("leaders", [1, 3])],
    ),
    (
        "the only broker of a rack holds a replica of each",
        [[1, 2], [3, 1], [2, 1]],
        30,
        None,
        {1: "a", 2: "b", 3: "b"},
        [],
    ),
    ("it need not lead all", [[1, 2], [1, 3]], 30, None, {1: "a", 2: "b", 3: "b"}, [("leaders", [1, 3])]),
    ("one broker of a rack", [[1, 2]], 30, None, {1: "a", 2: "b", 3: "b", 4: "a"}, [("empty", [3, 4])]),
]


@pytest.mark.parametrize(("lists", "times", "leader", "racks", "expected"), [case[1:] for case in CASES])
def test_what_is_far_from_even(
    lists: list[list[int]],
    times: int,
    leader: int | None,
    racks: dict[int, str | None],
    expected: list[tuple[str, list[int]]],
) -> None:
    replicas = np.array(lists * times, dtype=np.int32)
    count = len(replicas)
    yes, no = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    rows = PartitionArrays(
        replicas=replicas,
        isr=replicas,
        leader=replicas[:, 0] if leader is None else np.full(count, leader, dtype=np.int32),
        has_state=yes,
        understood=yes,
        deleting=no,
        min_isr=np.ones(count, dtype=np.int32),
    )
    assert [(skew.quantity, list(skew.amounts)) for skew in skew_of(rows, racks)] == expected
