"""The load of brokers before and after a plan: worked examples, and sums in plain Python."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.load.load_figures import MEASURES, RESOURCE_NAMES, SIDES, LoadFigures
from planner.load.plan_effect import EFFECT, LOADS, plan_effect, plan_ends, with_topic_means
from planner.load.resource_effects import effect_of, load_figures
from planner.load.resources import RESOURCES, Capacities, Capacity
from planner.load.sharing_brokers import Shares, sharing_brokers
from schemas.enums import NO_LEADER
from schemas.tables import CHANGES, PARTITIONS
from tests.planner.frames import frame, shape

PEAK: Final = "Mon 20:00"


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition whose lists and leaders before and after begin with its leader unless one is given."""

    before: Sequence[int]
    after: Sequence[int] | None = None
    """None: the plan does not change it."""
    leader: int | None = None
    leader_after: int | None = None
    load: Mapping[str, float | None] | None = None
    """By measure, in every window; None: it has no load."""


def _figures(
    spark: SparkSession,
    partitions: Sequence[Moved],
    counted: tuple[Sequence[int], Sequence[int]],
    windows: Sequence[str] = (PEAK,),
    capacities: Capacities = MappingProxyType({}),
) -> LoadFigures | None:
    places = [("t", number) for number in range(len(partitions))]
    named = [{"topic": topic, "partition": number} for topic, number in places]
    rows = [
        {**name, "replicas": p.before, "leader": p.before[0] if p.leader is None else p.leader}
        for name, p in zip(named, partitions, strict=True)
    ]
    changes = [
        {
            **name,
            "wave": 1,
            "replicas_after": p.after,
            "leader_after": p.after[0] if p.leader_after is None else p.leader_after,
        }
        for name, p in zip(named, partitions, strict=True)
        if p.after is not None
    ]
    earlier = [{**change, "wave": 0, "replicas_after": [99], "leader_after": 99} for change in changes]
    loads = [
        {**name, "window": window, **p.load}
        for name, p in zip(named, partitions, strict=True)
        for window in windows
        if p.load is not None
    ]
    frames = frame(spark, rows, PARTITIONS), frame(spark, [*changes, *earlier], CHANGES), frame(spark, loads, LOADS)
    effect = plan_effect(frames[0], plan_ends(frames[1]), frames[2])
    assert shape(effect.schema) == shape(EFFECT)
    return load_figures(effect.toArrow(), _sharing(counted, capacities), "", len(partitions))


def _sharing(counted: tuple[Sequence[int], Sequence[int]], capacities: Capacities) -> tuple[Shares, Shares]:
    return sharing_brokers(counted[0], capacities), sharing_brokers(counted[1], capacities)


def test_unknown_loads_are_the_mean_of_their_topic_in_the_window(spark: SparkSession) -> None:
    """Partition 9 does not exist any more, topic u has no rate in and topic v no load."""
    keys = [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("v", 0)]
    partitions = frame(spark, [{"topic": topic, "partition": number} for topic, number in keys], PARTITIONS)
    measured = {("t", 0, "a"): 10.0, ("t", 1, "a"): 20.0, ("t", 9, "a"): 90.0, ("t", 1, "b"): 7.0, ("u", 0, "a"): None}
    rows = [
        {"topic": topic, "partition": number, "window": window, "bytes_in": rate}
        for (topic, number, window), rate in measured.items()
    ]
    filled = with_topic_means(frame(spark, rows, LOADS), partitions)
    assert {(row.topic, row.partition, row.window): row.bytes_in for row in filled.collect()} == {
        **{("t", number, "a"): rate for number, rate in enumerate((10.0, 20.0, 15.0))},
        **{("t", number, "b"): 7.0 for number in range(3)},
        ("u", 0, "a"): None,
    }
    assert shape(filled.schema) == shape(LOADS)


LOAD: Final = {"bytes_in": 10.0, "bytes_out": 30.0, "size_bytes": 100.0, "cpu_leader": 4.0, "cpu_follower": 1.0}

Expected = Mapping[str, tuple[float, float, float, float]]
"""By resource: the most before and after, and the least before and after."""

EXAMPLES: Final[dict[str, tuple[list[Moved], tuple[list[int], list[int]], Expected]]] = {
    "a new leader sends what is read, and a copy to the follower": (
        [Moved([1, 2], [1, 2], leader_after=2, load=LOAD)],
        ([1, 2], [1, 2]),
        {"in": (10, 10, 10, 10), "out": (40, 40, 0, 0), "disk": (100, 100, 100, 100), "cpu": (4, 4, 1, 1)},
    ),
    "of two followers one moves: broker 1 still sends two copies": (
        [Moved([1, 2, 3], [1, 2, 4], load=LOAD)],
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        {"in": (10, 10, 0, 0), "out": (50, 50, 0, 0), "disk": (100, 100, 0, 0), "cpu": (4, 4, 0, 0)},
    ),
    "one more follower is one more copy to send": (
        [Moved([1], [1, 2], load=LOAD)],
        ([1, 2], [1, 2]),
        {"in": (10, 10, 0, 10), "out": (30, 40, 0, 0), "disk": (100, 100, 0, 100), "cpu": (4, 4, 0, 1)},
    ),
    "broker 2 is emptied: it counts before, and broker 1 alone after": (
        [Moved([1], load=LOAD), Moved([2], [1], load=LOAD)],
        ([1, 2], [1]),
        {"in": (10, 20, 10, 20), "out": (30, 60, 30, 60), "disk": (100, 200, 100, 200), "cpu": (4, 8, 4, 8)},
    ),
    "a partition without a load, without a leader, and one of which only the size is known": (
        [
            Moved([1], [2]),
            Moved([1], leader=NO_LEADER, load={"bytes_out": 5.0}),
            Moved([1], [2], load={"size_bytes": 7}),
        ],
        ([1, 2], [1, 2]),
        {"out": (0, 0, 0, 0), "disk": (7, 7, 0, 0)},
    ),
    "a new broker has no load before": (
        [Moved([1], [3], load={"bytes_in": 3.0}), Moved([1], load={"bytes_in": 1.0})],
        ([1, 3], [1, 3]),
        {"in": (4, 3, 0, 1), "out": (0, 0, 0, 0)},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(spark: SparkSession, name: str) -> None:
    partitions, counted, expected = EXAMPLES[name]
    figures = _figures(spark, partitions, counted)
    assert figures is not None
    assert {effect.resource: (*effect.most, *effect.least) for effect in figures.effects} == expected


DISKS: Final = {1: 400.0, 2: 100.0, 3: 100.0}


def _disks(known: Sequence[int]) -> Capacities:
    return {broker: {"disk": Capacity(DISKS[broker])} for broker in known}


@pytest.mark.parametrize(
    ("known", "worst", "broker", "least"),
    [
        ([1, 2, 3], (1.5, 1.0), (2, 1), (0.75, 1.0)),
        ([1, 2], (1.5, 2.0), (1, 1), (0.75, 0.5)),
    ],
)
def test_a_larger_broker_has_a_larger_share_if_all_capacities_are_known(
    spark: SparkSession,
    known: list[int],
    worst: tuple[float, float],
    broker: tuple[int, int],
    least: tuple[float, float],
) -> None:
    """Before, the brokers hold 300, 150 and 150 bytes, after 400, 100 and 100; 2 has 150 of the 100 that it should."""
    sizes = [(300, [1], None), (100, [2], None), (50, [2], [1]), (100, [3], None), (50, [3], [1])]
    partitions = [Moved(before, after, load={"size_bytes": float(size)}) for size, before, after in sizes]
    counted, capacities = ([1, 2, 3], [1, 2, 3]), _disks(known)
    figures = _figures(spark, partitions, counted, capacities=capacities)
    assert figures is not None
    [effect] = figures.effects
    assert (effect.worst, effect.broker, effect.best) == (worst, broker, least)
    assert (figures.worst_before, figures.worst_after) == worst
    assert effect.scale == ("its share by capacity" if len(known) == len(DISKS) else "the mean")


def test_windows_are_compared_apart(spark: SparkSession) -> None:
    partitions = [Moved([1], [2], load=LOAD), Moved([2], load=LOAD)]
    figures = _figures(spark, partitions, ([1, 2], [1, 2]), ["Sat 09:00", PEAK])
    assert figures is not None
    assert [(effect.window, effect.broker) for effect in figures.by_resource["out"]] == [
        (PEAK, (1, 2)),
        ("Sat 09:00", (1, 2)),
    ]
    assert (figures.bytes, figures.worst_before, figures.worst_after, figures.partitions) == (100, 1.0, 2.0, 2)


def test_a_plan_that_moves_no_load_changes_nothing(spark: SparkSession) -> None:
    figures = _figures(spark, [Moved([1, 2], load=LOAD), Moved([2], [1])], ([1, 2], [1, 2]))
    assert figures is not None
    assert (figures.by_resource, figures.worst_before) == ({}, figures.worst_after)


def test_nothing_is_known_of_partitions_without_loads(spark: SparkSession) -> None:
    assert _figures(spark, [Moved([1], [2])], ([1, 2], [1, 2])) is None


RATES: Final = st.none() | st.integers(0, 1000).map(float)
LISTS: Final = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)


@st.composite
def _partitions(draw: st.DrawFn) -> Moved:
    before = draw(LISTS)
    after = draw(st.none() | LISTS)
    return Moved(
        before,
        after,
        draw(st.sampled_from([*before, NO_LEADER])),
        None if after is None else draw(st.sampled_from([*after, NO_LEADER])),
        draw(st.none() | st.fixed_dictionaries(dict.fromkeys(LOAD, RATES))),
    )


def _in_arrays(
    partitions: Sequence[Moved],
    counted: tuple[Sequence[int], Sequence[int]],
) -> LoadFigures | None:
    """Return the figures by the form of the rule on arrays."""
    rows = [
        {
            "window": PEAK,
            "before": p.before,
            "after": p.after or p.before,
            "leader_before": p.before[0] if p.leader is None else p.leader,
            "leader_after": _leader_after(p),
            **p.load,
        }
        for p in partitions
        if p.load is not None
    ]
    return load_figures(effect_of(pa.Table.from_pylist(rows, ROWS)), _sharing(counted, {}), "", len(partitions))


def _leader_after(partition: Moved) -> int:
    if partition.after is None:
        return partition.before[0] if partition.leader is None else partition.leader
    return partition.after[0] if partition.leader_after is None else partition.leader_after


ROWS: Final = pa.schema(
    [
        ("window", pa.string()),
        *((side, pa.list_(pa.int32())) for side in SIDES),
        *((f"leader_{side}", pa.int32()) for side in SIDES),
        *((measure, pa.float64()) for measure in MEASURES),
    ]
)


def _summed(partitions: Sequence[Moved]) -> tuple[dict[tuple[str, int], dict[int, float]], set[str]]:
    """Return the loads by (resource, side) and broker, and the resources of which a load is known."""
    loads: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    known = set()
    for partition in partitions:
        load: Mapping[str, Any] = partition.load or dict.fromkeys(LOAD)
        rates = [load[name] for name in LOAD]
        written, read, size, cpu_leader, cpu_follower = (rate or 0 for rate in rates)
        known |= {"in"} if rates[0] is not None else set()
        known |= {"out"} if (rates[0], rates[1]) != (None, None) else set()
        known |= {"disk"} if rates[2] is not None else set()
        known |= {"cpu"} if (rates[3], rates[4]) != (None, None) else set()
        ends = (
            (partition.before, partition.leader),
            (
                partition.after or partition.before,
                partition.leader if partition.after is None else partition.leader_after,
            ),
        )
        for side, (replicas, leader) in enumerate(ends):
            for broker in replicas:
                loads["in", side][broker] += written
                loads["disk", side][broker] += size
                loads["cpu", side][broker] += cpu_leader if broker == leader else cpu_follower
                loads["out", side][broker] += read + written * (len(replicas) - 1) if broker == leader else 0
    return loads, known


@settings(max_examples=15)
@given(st.lists(_partitions(), min_size=1, max_size=12), st.permutations([1, 2, 3, 4, 5, 6]), st.integers(1, 6))
def test_loads_equal_those_of_plain_sums(spark: SparkSession, some: list[Moved], order: list[int], count: int) -> None:
    counted = sorted(order[:count]), sorted(order[-count:])
    figures = _figures(spark, some, counted)
    effects = {effect.resource: effect for effect in figures.effects} if figures else {}
    loads, known = _summed(some)
    assert effects.keys() == known
    for resource, effect in effects.items():
        for side in (0, 1):
            held = {broker: loads[resource, side][broker] for broker in counted[side]}
            expected = max(held.values()), min(held.values()), sum(held.values()) / len(held)
            assert (effect.most[side], effect.least[side], effect.mean[side]) == expected
            worst = min(broker for broker in held if held[broker] == max(held.values()))
            assert effect.broker[side] == (worst if held[worst] else None)
    assert _in_arrays(some, counted) == figures


def test_all_resources_have_a_name() -> None:
    assert set(RESOURCE_NAMES) == set(RESOURCES)
