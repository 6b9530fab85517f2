"""Benchmarks of plans by load: bytes against the bound, brokers outside the band, and the time against `--by-size`.

The models have skewed topics and keys, three replicas on alternating racks, and brokers used to half of their capacity.
`RECORDED` are the bytes that the 15 default goals of Cruise Control (commit dadba67e2) copied on models of the same
sizes on 28 November 2026; they are shown, not run. `python -m bench.load_plans` shows only these figures, and `python
-m bench.load_plans million` those of a million partitions.
"""

import sys
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from bench.figures import Figure, seconds_of
from planner.placement.solve import place
from planner.placement.types import (
    Floats,
    Ints,
    LoadBalance,
    Placement,
    PlacementBrokers,
    PlacementGoal,
    PlacementLoads,
    PlacementPartitions,
)

WITHIN: Final = 0.09
"""The band of Cruise Control's goals."""

FACTOR: Final = 3
UNITS: Final = 1_000_000
"""Whole numbers in a unit of the models."""


class ModelSize(NamedTuple):
    """The size of a model; the last `empty` of its brokers hold nothing."""

    brokers: int
    racks: int
    partitions: int
    topics: int
    empty: int
    seed: int


MODELS: Final = {
    "12 brokers, 3,000 partitions": ModelSize(12, 3, 3_000, 200, 0, 1),
    "100 brokers, 100,000 partitions": ModelSize(100, 4, 100_000, 5_000, 0, 7),
    "40 brokers and 10 empty ones, 16,667 partitions": ModelSize(50, 5, 16_667, 3_000, 10, 2),
}

MILLION: Final = ModelSize(1_000, 8, 1_000_000, 20_000, 0, 3)

RECORDED: Final = (2.6, 4.3, 1.16)
"""Bytes of Cruise Control's plans as multiples of the bound, model by model."""

Model = tuple[PlacementBrokers, PlacementPartitions]


def bench_load_plans(rounds: int) -> list[Figure]:
    """Plan by load on each model, on a week of four windows, and by size."""
    figures = []
    for name, numbers in MODELS.items():
        figures += _against_bound(name, model_of(numbers))
    large = model_of(MODELS["100 brokers, 100,000 partitions"])
    figures += _against_bound("100 brokers, 100,000 partitions, four windows", with_windows(large))
    brokers, partitions = large
    goal = PlacementGoal(even=True, reorder=True, within=WITHIN)
    sized = replace(partitions, loads=None)
    by_load = min(seconds_of(lambda: place(brokers, partitions, goal)) for _ in range(rounds))
    by_size = min(seconds_of(lambda: place(brokers, sized, goal)) for _ in range(rounds))
    return [*figures, Figure("plan 100,000 partitions by load", by_load, "the same by size", by_size, 2.0)]


def _against_bound(name: str, model: Model) -> list[Figure]:
    """Return the bytes of a plan over the bound, as the ratio of a figure; raise AssertionError for a wrong plan."""
    brokers, partitions = model
    placement = place(brokers, partitions, PlacementGoal(even=True, reorder=True, within=WITHIN))
    balance = _balance(placement)
    _check(partitions, placement)
    outside = f", {int(balance.outside.sum())} of {len(balance.outside)} brokers outside ±9 %"
    goal = 1.1 if "empty" in name else 1.3
    return [Figure(f"bytes copied: {name}{outside}", balance.bytes / UNITS, "bound", balance.bytes_bound / UNITS, goal)]


def _balance(placement: Placement) -> LoadBalance:
    if placement.loads is None:
        raise AssertionError("the plan has no balance of loads")
    return placement.loads


def _check(partitions: PlacementPartitions, placement: Placement) -> None:
    """Check bytes and loads by another way, so that no wrong result is measured."""
    loads, balance = partitions.loads, _balance(placement)
    if loads is None or partitions.weights is None:
        raise AssertionError("the model has no loads")
    new = ~(placement.replicas[:, :, None] == partitions.replicas[:, None, :]).any(axis=2)
    total = np.zeros((len(balance.brokers), len(loads.names)))
    for slot in range(FACTOR):
        np.add.at(total, placement.replicas[:, slot], loads.follower if slot else loads.leader)
    levels = total / total.mean(axis=0)
    if int((new * partitions.weights[:, None]).sum()) != balance.bytes or not np.allclose(levels, balance.after):
        raise AssertionError("the plan's figures are not those of its lists")


def model_of(size_of: ModelSize) -> Model:
    """Return a cluster whose loads have drifted apart."""
    brokers, racks, count, topics, empty, seed = size_of
    rng = np.random.default_rng(seed)
    shares = rng.pareto(1.2, topics) + 1
    sizes = np.maximum(1, np.floor(shares / shares.sum() * count)).astype(np.int64)
    sizes[: max(count - int(sizes.sum()), 0)] += 1
    topic = np.repeat(np.arange(topics), sizes)[:count]
    count = len(topic)
    received = rng.lognormal(0, 1.5, topics)[topic] * rng.lognormal(0, 0.5, count)
    read = received * rng.lognormal(0.5, 0.7, topics)[topic]
    size = received * rng.lognormal(0, 0.8, topics)[topic]
    sent = read + received * (FACTOR - 1)
    leader = np.stack([size, received, sent, 0.7 * received + 0.15 * sent], axis=1)
    follower = np.stack([size, received, np.zeros(count), 0.15 * received], axis=1)
    whole = [np.rint(loads * UNITS).astype(np.int64) for loads in (leader, follower)]
    every = np.ones(brokers, dtype=bool)
    unknown = np.full((brokers, 4), np.nan)
    return (
        PlacementBrokers(
            ids=np.arange(brokers),
            racks=tuple(f"rack-{broker % racks}" for broker in range(brokers)),
            live=every,
            target=every,
            emptied=~every,
        ),
        PlacementPartitions(
            topic=topic,
            partition=np.arange(count) - np.searchsorted(topic, topic),
            replicas=_replicas(rng, topic, brokers - empty, racks),
            movable=np.ones(count, dtype=bool),
            weights=whole[0][:, 0],
            loads=PlacementLoads(
                names=("disk", "in", "out", "cpu"), leader=whole[0], follower=whole[1], capacity=unknown, limit=unknown
            ),
        ),
    )


def _replicas(rng: np.random.Generator, topic: Ints, brokers: int, racks: int) -> Ints:
    """Place each topic from a broker at random over consecutive brokers, which are in distinct racks."""
    first = rng.integers(brokers, size=int(topic.max()) + 1)[topic]
    rows = np.arange(len(topic)) - np.searchsorted(topic, topic)
    leader = (first + rows) % brokers
    step = racks * rng.integers(brokers // racks, size=int(topic.max()) + 1)[topic]
    followers = [(leader + slot + step) % brokers for slot in range(1, FACTOR)]
    lists = np.stack([leader, *followers], axis=1)
    clash = (np.diff(np.sort(lists, axis=1), axis=1) == 0).any(axis=1)
    lists[clash] = (leader[clash, None] + np.arange(FACTOR)) % brokers
    return lists


def with_windows(model: Model, windows: int = 4) -> Model:
    """Return the model with loads of several windows: each topic peaks in one of them, at 1.5 of the mean."""
    brokers, partitions = model
    loads = partitions.loads
    if loads is None:
        raise AssertionError("the model has no loads")
    peaks = np.random.default_rng(0).integers(windows, size=int(partitions.topic.max()) + 1)[partitions.topic]

    def spread(load: Ints) -> Ints:
        rates = [load[:, 1:] * np.where(peaks == window, 1.5, 2.5 / 3)[:, None] for window in range(windows)]
        whole: Ints = np.concatenate([load[:, :1], *(np.rint(rate).astype(np.int64) for rate in rates)], axis=1)
        return whole

    names = (loads.names[0], *(f"{name} {window}" for window in range(windows) for name in loads.names[1:]))
    unknown: Floats = np.full((len(brokers.ids), len(names)), np.nan)
    spread_loads = replace(
        loads,
        names=names,
        leader=spread(loads.leader),
        follower=spread(loads.follower),
        capacity=unknown,
        limit=unknown,
    )
    return brokers, replace(partitions, loads=spread_loads)


def _show(figures: list[Figure]) -> None:
    for figure in figures:
        sys.stdout.write(f"{figure.measured}: {figure.seconds:.1f}, {figure.ratio:.3f} of {figure.baseline}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["million"]:
        _show(_against_bound("1,000 brokers, 1,000,000 partitions", model_of(MILLION)))
    else:
        _show(bench_load_plans(3))
        for model, multiple in zip(MODELS, RECORDED, strict=True):
            sys.stdout.write(f"recorded, Cruise Control, {model}: {multiple} of the bound\n")
