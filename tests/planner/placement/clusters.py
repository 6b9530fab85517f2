"""Random small clusters, each with a goal, for the tests of the optimiser."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from hypothesis import strategies as st

from planner.placement.types import NO_BROKER, PlacementBrokers, PlacementGoal, PlacementPartitions

IDS: Final = (3, 1, 4, 15, 9, 2)
RACKS: Final = (
    ("a", "a", "a", "b", "b", "b"),
    ("a", "b", "c", "a", "b", "c"),
    ("a", "b", "b", "b", None, "c"),
    ("a", "a", "b", "a", "b", "a"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A cluster and a goal."""

    brokers: PlacementBrokers
    partitions: PlacementPartitions
    question: PlacementGoal


def padded(lists: list[list[int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    width = max((len(replicas) for replicas in lists), default=1)
    return np.array([[*some, *[NO_BROKER] * (width - len(some))] for some in lists], dtype=np.int64).reshape(-1, width)


def partitions_of(
    lists: list[list[int]],
    *,
    fixed: frozenset[int] = frozenset(),
    per_topic: int = 3,
    isr: list[list[int]] | None = None,
) -> PlacementPartitions:
    """Return partitions with these replicas, `per_topic` to a topic; rows in `fixed` may not change."""
    rows = np.arange(len(lists))
    movable = np.array([row not in fixed for row in rows], dtype=bool)
    known = (
        None if isr is None else [[int(broker in some) for broker in row] for row, some in zip(lists, isr, strict=True)]
    )
    return PlacementPartitions(
        topic=rows // per_topic,
        partition=rows % per_topic,
        replicas=padded(lists),
        movable=movable,
        in_sync=None if known is None else padded(known) == 1,
    )


def brokers_of(
    racks: tuple[str | None, ...],
    *,
    emptied: frozenset[int] = frozenset(),
    excluded: frozenset[int] = frozenset(),
    dead: frozenset[int] = frozenset(),
) -> PlacementBrokers:
    """Return the first brokers of IDS, as many as there are racks."""
    ids = IDS[: len(racks)]
    return PlacementBrokers(
        ids=np.array(ids),
        racks=racks,
        live=np.array([broker not in dead for broker in ids]),
        target=np.array([broker not in emptied | excluded | dead for broker in ids]),
        emptied=np.array([broker in emptied for broker in ids]),
    )


QUESTIONS: Final = (
    PlacementGoal(),
    PlacementGoal(even=True),
    PlacementGoal(even=True),
    PlacementGoal(even=True, fix_racks=True),
    PlacementGoal(fix_racks=True),
    PlacementGoal(replication_factor=1),
    PlacementGoal(replication_factor=2),
    PlacementGoal(replication_factor=3),
    PlacementGoal(replication_factor=4),
    PlacementGoal(replication_factor=2, even=True),
    PlacementGoal(replacements=((3, 1), (9, 2))),
)


@st.composite
def cases(draw: st.DrawFn, questions: tuple[PlacementGoal, ...] = QUESTIONS) -> Case:
    """Draw up to nine partitions on up to six brokers, crowded on few of them so that some must move."""
    count = draw(st.integers(3, 6))
    ids = IDS[:count]
    some = st.frozensets(st.sampled_from(ids), max_size=1)
    question = draw(st.sampled_from(questions))
    racks = draw(st.sampled_from([*RACKS, (None,) * 6]))[:count]
    emptied = draw(some) | {gone for gone, _ in question.replacements if gone in ids}
    excluded = draw(st.one_of(st.just(frozenset[int]()), some)) - emptied
    dead = draw(st.one_of(st.just(frozenset[int]()), st.just(frozenset[int]()), some))
    crowd = draw(st.sampled_from([ids, ids, ids[: max(2, count - 2)]]))
    most = draw(st.sampled_from([3, 3, 4, 5]))
    lists = draw(
        st.lists(
            st.lists(st.sampled_from(crowd), min_size=1, max_size=min(most, len(crowd)), unique=True),
            min_size=1,
            max_size=9,
        ),
    )
    fixed = draw(st.one_of(st.just(frozenset[int]()), st.frozensets(st.integers(0, len(lists) - 1), max_size=3)))
    isr = draw(st.one_of(st.none(), st.just(lists), _isr(lists)))
    replaced = tuple((gone, successor) for gone, successor in question.replacements if {gone, successor} <= set(ids))
    question = replace(question, replacements=replaced)
    brokers = brokers_of(racks, emptied=frozenset(emptied), excluded=excluded, dead=dead)
    return Case(brokers=brokers, partitions=partitions_of(lists, fixed=fixed, isr=isr), question=question)


def _isr(lists: list[list[int]]) -> st.SearchStrategy[list[list[int]]]:
    """Draw some of the replicas of each partition, at least one."""
    return st.tuples(*(st.lists(st.sampled_from(some), min_size=1, unique=True) for some in lists)).map(list)


RACK_OF: Final = {1: "a", 2: "a", 3: "a", 7: "a", 4: "b", 5: "b", 6: "b"}
"""Two racks; broker 7 holds no replica at first."""
PARTITIONS: Final = 36


def two_in_each_rack(number: int) -> list[int]:
    """Two replicas in a and two in b, each on 24 of 36 partitions."""
    a, b = [1, 2, 3], [4, 5, 6]
    del a[number % 3], b[number // 3 % 3]
    return [*a, *b] if number % 2 else [*b, *a]


def a_tenth_more() -> tuple[PlacementBrokers, PlacementPartitions]:
    """4,500 partitions on 90 brokers, most of them not spread over the racks; ten brokers are added."""
    brokers = replace(
        brokers_of((None,)),
        ids=np.arange(100),
        racks=tuple(f"rack-{broker % 3}" for broker in range(100)),
        live=np.ones(100, dtype=bool),
        target=np.ones(100, dtype=bool),
        emptied=np.zeros(100, dtype=bool),
    )
    first, shift = np.arange(4500) % 90, np.arange(4500) // 90
    followers = [(first + 1 + (shift + j) % 89) % 90 for j in range(2)]
    return brokers, partitions_of(np.stack([first, *followers], axis=1).tolist(), per_topic=50)
