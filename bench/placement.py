"""Benchmarks of placement: the two tasks on which kafka-utils was timed, and the growth of time with partitions.

Spark is not involved: the optimiser runs on the driver, over a graph of brokers whose size does not depend on the
partitions. `python -m bench.placement` shows only these figures.
"""

import sys
from collections.abc import Callable
from typing import Final

import numpy as np

from bench.figures import Figure, seconds_of
from planner.placement.racks import racks_spanned
from planner.placement.solve import place
from planner.placement.types import Placement, PlacementBrokers, PlacementGoal, PlacementPartitions

BROKERS: Final = 100
RACKS: Final = 3
TOPIC_SIZE: Final = 100
GONE: Final = 7

YELP_REMOVES: Final = 288.0
YELP_ADDS: Final = 542.0
"""Seconds kafka-utils took for the same moves, measured once; it is not run here."""


def bench_placement(rounds: int) -> list[Figure]:
    """Remove a broker of 100 at 100,000 and 1,000,000 partitions, and add ten to 90 at 20,000."""
    large, larger, small = (partitions_on(count, on) for count, on in ((100_000, 100), (1_000_000, 100), (20_000, 90)))
    removes = _best(lambda: _removed(large), rounds)
    return [
        Figure("place 100,000 partitions, one broker of 100 removed", removes, "kafka-utils", YELP_REMOVES, 1 / 30),
        Figure(
            "place 20,000 partitions, 90 → 100 brokers",
            _best(lambda: _added(small), rounds),
            "kafka-utils, racks ignored",
            YELP_ADDS,
            1 / 30,
        ),
        Figure(
            "place 1,000,000 partitions, one broker of 100 removed",
            _best(lambda: _removed(larger), rounds),
            "100,000 partitions",
            removes,
            10,
        ),
    ]


def brokers_of(*gone: int) -> PlacementBrokers:
    """Return a hundred brokers in three alternating racks; `gone` are emptied."""
    ids = np.arange(BROKERS)
    emptied = np.isin(ids, gone)
    racks = tuple(f"rack-{broker % RACKS}" for broker in range(BROKERS))
    return PlacementBrokers(ids=ids, racks=racks, live=np.ones(BROKERS, dtype=bool), target=~emptied, emptied=emptied)


def partitions_on(count: int, brokers: int) -> PlacementPartitions:
    """Return partitions with three replicas each by Kafka's algorithm without racks; most do not span three racks."""
    rows = np.arange(count)
    first, shift = rows % brokers, rows // brokers
    followers = [(first + 1 + (shift + j) % (brokers - 1)) % brokers for j in range(2)]
    return PlacementPartitions(
        topic=rows // TOPIC_SIZE,
        partition=rows % TOPIC_SIZE,
        replicas=np.stack([first, *followers], axis=1),
        movable=np.ones(count, dtype=bool),
    )


def _best(work: Callable[[], object], rounds: int) -> float:
    return min(seconds_of(work) for _ in range(rounds))


def _removed(partitions: PlacementPartitions) -> None:
    held = int((partitions.replicas == GONE).sum())
    placement = place(brokers_of(GONE), partitions, PlacementGoal())
    _check(partitions, placement, held)


def _added(partitions: PlacementPartitions) -> None:
    new = frozenset(range(int(partitions.replicas.max()) + 1, BROKERS))
    placement = place(brokers_of(), partitions, PlacementGoal(even=True, onto=new))
    _check(partitions, placement, 6_000)
    for held in (placement.brokers.replicas[1], placement.brokers.leaders[1]):
        if int(np.ptp(held)) > 1:
            raise AssertionError(f"brokers hold from {held.min()} to {held.max()}")


def _check(partitions: PlacementPartitions, placement: Placement, copies: int) -> None:
    """Check the result, so that no wrong result is measured."""
    before, after = (racks_spanned(lists.T % RACKS) for lists in (partitions.replicas, placement.replicas))
    if placement.copies != copies or placement.lower_bound != copies or (after < before).any():
        raise AssertionError(f"{placement.copies} copies instead of {copies}, {(after < before).sum()} lost a rack")


if __name__ == "__main__":
    for figure in bench_placement(3):
        sys.stdout.write(f"{figure.measured}: {figure.seconds:.1f} s, {figure.ratio:.3f} of {figure.baseline}\n")
