"""Benchmarks of plans by load: bytes against the bound, brokers outside the band, and the time against `--by-size`.

The models have skewed topics and keys, three replicas on alternating racks, and brokers used to half of their capacity.
`RECORDED` are the plans of Cruise Control for these models; they are shown, not run. kafka-utils is run, in an
environment of its own. `python -m bench.load_plans` shows only these figures, `python -m bench.load_plans kafka-utils`
those of kafka-utils, and `python -m bench.load_plans million` those of a million partitions. `python -m
bench.load_plans small 2000` compares as many small clusters, of random loads, racks and limits, with the exact optimum.
"""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bench.figures import Figure, seconds_of, timed
from jobs.runtime.console import log
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
from tests.planner.placement.load_clusters import compared, load_case

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


class RecordedPlan(NamedTuple):
    """Bytes that a plan copies, in units of the models; its most loaded broker, of the mean; the target as a share."""

    bytes: float
    worst: float
    share: float


RECORDED: Final = {
    "12 brokers, 3,000 partitions": RecordedPlan(139.8, 1.074, 0.5),
    "12 brokers, 3,000 partitions, four windows": RecordedPlan(139.8, 1.160, 1.0),
    "100 brokers, 100,000 partitions": RecordedPlan(18_279.4, 1.089, 0.5),
    "100 brokers, 100,000 partitions, four windows": RecordedPlan(18_279.4, 1.159, 1.0),
    "40 brokers and 10 empty ones, 16,667 partitions": RecordedPlan(58_729.2, 1.076, 1.0),
    "40 brokers and 10 empty ones, 16,667 partitions, four windows": RecordedPlan(58_729.2, 1.329, 1.0),
}
"""Plans of Cruise Control for `MODELS` (commit dadba67e2, its 15 default goals), recorded on 1 December 2026.

It plans by means: of the same plan in four windows, the most loaded broker is that of the worst window.
"""

KAFKA_UTILS: Final = "kafka-utils==4.1.0"
KAFKA_UTILS_PYTHON: Final = Path("build/kafka-utils/bin/python")

SMALL: Final = 40
"""Small clusters that are compared with the optimum."""

OPTIMUM_SECONDS: Final = 5.0

Model = tuple[PlacementBrokers, PlacementPartitions]


def bench_load_plans(rounds: int) -> list[Figure]:
    """Plan by load on each model, on a week of four windows, and by size."""
    figures = []
    for name, numbers in MODELS.items():
        model = model_of(numbers)
        figures += [*_against_bound(name, model), *_against_bound(f"{name}, four windows", with_windows(model))]
    brokers, partitions = model_of(MODELS["100 brokers, 100,000 partitions"])
    goal = PlacementGoal(even=True, reorder=True, within=WITHIN)
    sized = replace(partitions, loads=None)
    by_load = min(seconds_of(lambda: place(brokers, partitions, goal)) for _ in range(rounds))
    by_size = min(seconds_of(lambda: place(brokers, sized, goal)) for _ in range(rounds))
    figures.append(Figure("plan 100,000 partitions by load", by_load, "the same by size", by_size, 2.0))
    return [*figures, *bench_kafka_utils(), *bench_small_clusters(SMALL)]


def bench_small_clusters(count: int) -> list[Figure]:
    """Return the median and the greatest ratio of bytes to the exact optimum; raise AssertionError for a wrong plan.

    A ratio is infinite if the optimum brings all loads into their bands and the plan does not. The title counts the
    clusters whose limits the plan could meet and does not.
    """
    results = [compared(load_case(seed), OPTIMUM_SECONDS) for seed in range(count)]
    known = [result for result in results if result.optimum.is_known]
    if any(result.worsened.any() for result in results):
        raise AssertionError("a plan breaks a limit by more than before")
    if any(result.bound > result.optimum.bytes for result in known if result.optimum.bytes is not None):
        raise AssertionError("a bound is above the optimum")
    missed = sum(result.limits_can_be_met and not result.meets_limits for result in known)
    ratios = [result.ratio for result in known if result.ratio is not None]
    title = f"bytes copied: {len(ratios)} of {count} small clusters, {missed} with limits missed"
    sides = {"median": (float(np.median(ratios)), 1.15), "greatest": (max(ratios), 1.5)}
    return [Figure(f"{title}, {side}", ratio, "exact optimum", 1.0, goal) for side, (ratio, goal) in sides.items()]


def _against_bound(name: str, model: Model) -> list[Figure]:
    """Return the bytes of a plan over the bound, and over recorded ones; raise AssertionError for a wrong plan."""
    brokers, partitions = model
    placement = place(brokers, partitions, PlacementGoal(even=True, reorder=True, within=WITHIN))
    balance = _balance(placement)
    _check(partitions, placement)
    outside = f"{int(balance.outside.sum())} of {len(balance.outside)} brokers outside ±9 %"
    title = f"bytes copied: {name}, worst broker {balance.after.max():.2f}, {outside}"
    goal = 1.1 if "empty" in name else 1.3
    figures = [Figure(title, balance.bytes / UNITS, "bound", balance.bytes_bound / UNITS, goal)]
    if recorded := RECORDED.get(name):
        baseline = f"Cruise Control, recorded, worst broker {recorded.worst:.2f}"
        figures.append(Figure(title, balance.bytes / UNITS, baseline, recorded.bytes, recorded.share))
    return figures


def _balance(placement: Placement) -> LoadBalance:
    if placement.loads is None:
        raise AssertionError("the plan has no balance of loads")
    return placement.loads


def _check(partitions: PlacementPartitions, placement: Placement) -> None:
    """Check bytes and loads by another way, so that no wrong result is measured."""
    balance, (copied, levels) = _balance(placement), _effect(partitions, placement.replicas)
    if copied != balance.bytes or not np.allclose(levels, balance.after):
        raise AssertionError("the plan's figures are not those of its lists")


def _effect(partitions: PlacementPartitions, replicas: Ints) -> tuple[int, Floats]:
    """Return the bytes that these lists copy, and by (broker, resource) their loads as multiples of the mean."""
    loads = partitions.loads
    if loads is None or partitions.weights is None:
        raise AssertionError("the model has no loads")
    new = ~(replicas[:, :, None] == partitions.replicas[:, None, :]).any(axis=2)
    total = np.zeros((int(replicas.max()) + 1, len(loads.names)))
    for slot in range(FACTOR):
        np.add.at(total, replicas[:, slot], loads.follower if slot else loads.leader)
    levels: Floats = total / total.mean(axis=0)
    return int((new * partitions.weights[:, None]).sum()), levels


def bench_kafka_utils() -> list[Figure]:
    """Compare bytes and time with the balancers of kafka-utils, by the loads that these know; none if it is not there.

    To kafka-utils a partition has one weight, here its bytes in, by which it evens all replicas and the leaders, and
    one size. Surveyor's plan is to be at least as even.
    """
    python = _python_of_kafka_utils()
    if python is None:
        return []
    name = "12 brokers, 3,000 partitions"
    brokers, partitions = _with_one_weight(model_of(MODELS[name]))
    figures = []
    for balancer in ("genetic", "count"):
        replicas, its_seconds = _balanced(python, balancer, (brokers, partitions))
        its_copied, its_levels = _effect(partitions, replicas)
        goal = PlacementGoal(even=True, reorder=True, within=min(WITHIN, its_levels.max() - 1))
        seconds, placement = timed(partial(place, brokers, partitions, goal))
        _check(partitions, placement)
        ours = f"{name}, one weight each, worst broker {_balance(placement).after.max():.2f}"
        its = f"{KAFKA_UTILS}, {balancer}, worst broker {its_levels.max():.2f}"
        figures.append(Figure(f"bytes copied: {ours}", _balance(placement).bytes / UNITS, its, its_copied / UNITS))
        figures.append(Figure(f"plan by load: {ours}", seconds, its, its_seconds))
    return figures


def _python_of_kafka_utils() -> Path | None:
    """Return the Python of an environment with kafka-utils, which is made where there is none."""
    made = (
        [sys.executable, "-m", "venv", str(KAFKA_UTILS_PYTHON.parents[1])],
        [str(KAFKA_UTILS_PYTHON), "-m", "pip", "install", "-q", KAFKA_UTILS],
    )
    for command in made[KAFKA_UTILS_PYTHON.exists() :]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            log(f"kafka-utils is not compared: {done.stderr.strip()}")
            return None
    return KAFKA_UTILS_PYTHON


def _balanced(python: Path, balancer: str, model: Model) -> tuple[Ints, float]:
    """Return the lists of a balancer of kafka-utils, and its seconds."""
    brokers, partitions = model
    loads, sizes = partitions.loads, partitions.weights
    if loads is None or sizes is None:
        raise AssertionError("the model has no loads")
    columns = [partitions.topic, partitions.partition, partitions.replicas, loads.leader[:, 0], sizes]
    task = {
        "balancer": balancer,
        "racks": brokers.racks,
        "partitions": list(zip(*(column.tolist() for column in columns), strict=True)),
    }
    command = [str(python), "-P", str(Path(__file__).with_name("kafka_utils_balancer.py"))]
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return np.array(answer["replicas"]), answer["seconds"]


def _with_one_weight(model: Model) -> Model:
    """Return the model with bytes in of all replicas and of leaders as the only loads."""
    brokers, partitions = model
    if partitions.loads is None:
        raise AssertionError("the model has no loads")
    received = partitions.loads.leader[:, 1]
    unknown: Floats = np.full((len(brokers.ids), 2), np.nan)
    loads = replace(
        partitions.loads,
        names=("in", "in of leaders"),
        leader=np.stack([received, received], axis=1),
        follower=np.stack([received, np.zeros_like(received)], axis=1),
        capacity=unknown,
        limit=unknown,
    )
    return brokers, replace(partitions, loads=loads)


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
    if sys.argv[1:2] == ["small"]:
        _show(bench_small_clusters(int(sys.argv[2])))
    elif sys.argv[1:] == ["million"]:
        _show(_against_bound("1,000 brokers, 1,000,000 partitions", model_of(MILLION)))
    elif sys.argv[1:] == ["kafka-utils"]:
        _show(bench_kafka_utils())
    else:
        _show(bench_load_plans(3))
