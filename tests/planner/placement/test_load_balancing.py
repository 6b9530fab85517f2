"""Plans by load: near the fewest bytes, never below the bound, within limits, and the same for the same input."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.load_balancing.bounds import least_bytes
from planner.placement.load_balancing.load_model import ReplicaLoads, bands_of
from planner.placement.model import model_of
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
from tests.planner.placement.load_optimum import fewest_bytes

WITHIN: Final = 0.15
GOAL: Final = PlacementGoal(even=True, reorder=True, within=WITHIN)
RESOURCES: Final = ("disk", "in", "out")


def _cluster(seed: int, attempts: int | None = 2) -> tuple[PlacementBrokers, PlacementPartitions]:
    """Return a small cluster with skewed loads, replicas at random, and one to three racks."""
    brokers, count = 5, 24
    rng = np.random.default_rng(seed)
    factor, racks = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    every = np.ones(brokers, dtype=bool)
    received = np.rint(rng.lognormal(0, 0.7, count) * 1000).astype(np.int64)
    size = np.rint(received * rng.lognormal(0, 0.5, count)).astype(np.int64)
    read = np.rint(received * rng.lognormal(0.3, 0.5, count)).astype(np.int64)
    loads = PlacementLoads(
        names=RESOURCES,
        leader=np.stack([size, received, read + received * (factor - 1)], axis=1),
        follower=np.stack([size, received, np.zeros_like(read)], axis=1),
        capacity=_unknown(brokers),
        limit=_unknown(brokers),
        attempts=attempts,
    )
    return (
        PlacementBrokers(
            ids=np.arange(brokers),
            racks=tuple(f"r{broker % racks}" for broker in range(brokers)),
            live=every,
            target=every,
            emptied=~every,
        ),
        PlacementPartitions(
            topic=np.arange(count) // 4,
            partition=np.arange(count) % 4,
            replicas=np.array([rng.permutation(brokers)[:factor] for _ in range(count)]),
            movable=np.ones(count, dtype=bool),
            weights=size,
            loads=loads,
        ),
    )


def _unknown(brokers: int) -> Floats:
    return np.full((brokers, len(RESOURCES)), np.nan)


def _loads(partitions: PlacementPartitions) -> PlacementLoads:
    assert partitions.loads is not None
    return partitions.loads


def _balance(placement: Placement) -> LoadBalance:
    assert placement.loads is not None
    return placement.loads


def _levels(partitions: PlacementPartitions, replicas: Ints, brokers: int) -> Floats:
    """Return the load of each broker as a multiple of the mean, summed replica by replica."""
    loads = _loads(partitions)
    total = np.zeros((brokers, len(loads.names)))
    for row, held in enumerate(replicas.tolist()):
        for slot, broker in enumerate(held):
            total[broker] += (loads.follower if slot else loads.leader)[row]
    levels: Floats = total / total.mean(axis=0)
    return levels


@pytest.mark.parametrize("seed", range(12))
def test_few_more_bytes_than_the_fewest_and_never_less_than_the_bound(seed: int) -> None:
    brokers, partitions = _cluster(seed, attempts=None)
    model = model_of(brokers, partitions, GOAL)
    loads = ReplicaLoads(
        leader=_loads(partitions).leader[model.order],
        follower=_loads(partitions).follower[model.order],
        size=partitions.weights[model.order] if partitions.weights is not None else np.zeros(0, dtype=np.int64),
    )
    bands = bands_of(model, loads.of_broker(model.after, model.size), _loads(partitions), WITHIN)
    optimum = fewest_bytes(model, loads, bands)
    balance = _balance(place(brokers, partitions, GOAL))
    if not optimum.is_known or optimum.bytes is None:
        return  # nothing to compare with
    assert least_bytes(model, loads, bands).total <= optimum.bytes
    assert not balance.outside.any()
    assert balance.bytes <= 1.5 * optimum.bytes


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_order_of_the_input_does_not_matter(seed: int) -> None:
    brokers, partitions = _cluster(seed)
    shuffled = np.random.default_rng(seed).permutation(len(partitions.topic))
    loads = _loads(partitions)
    other = replace(
        partitions,
        topic=partitions.topic[shuffled],
        partition=partitions.partition[shuffled],
        replicas=partitions.replicas[shuffled],
        weights=None if partitions.weights is None else partitions.weights[shuffled],
        loads=replace(loads, leader=loads.leader[shuffled], follower=loads.follower[shuffled]),
    )
    first, second = (place(brokers, some, GOAL).replicas for some in (partitions, other))
    assert (first[shuffled] == second).all()


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_levels_are_those_of_the_lists(seed: int) -> None:
    brokers, partitions = _cluster(seed)
    placement = place(brokers, partitions, GOAL)
    assert np.allclose(_balance(placement).after, _levels(partitions, placement.replicas, len(brokers.ids)))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(0, 20_000))
def test_bytes_stay_within_the_budget(seed: int, budget: int) -> None:
    brokers, partitions = _cluster(seed)
    placement = place(brokers, replace(partitions, loads=replace(_loads(partitions), max_bytes=budget)), GOAL)
    moved = placement.moves
    assert partitions.weights is not None
    assert int(partitions.weights[moved.row[moved.target >= 0]].sum()) <= budget


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_no_limit_is_exceeded_by_more_than_before(seed: int) -> None:
    brokers, partitions = _cluster(seed)
    loads = _loads(partitions)
    before = _levels(partitions, partitions.replicas, len(brokers.ids))
    mean = _total(partitions) / len(brokers.ids)
    limited = replace(partitions, loads=replace(loads, limit=np.broadcast_to(mean * 1.05, before.shape)))
    after = _levels(partitions, place(brokers, limited, GOAL).replicas, len(brokers.ids))
    assert (after <= np.maximum(1.05, before) + 1e-9).all()


def _total(partitions: PlacementPartitions) -> Floats:
    """Return the sum of all loads by resource."""
    loads = _loads(partitions)
    factor = partitions.replicas.shape[1]
    total: Floats = (loads.leader + (factor - 1) * loads.follower).sum(axis=0).astype(float)
    return total


def test_elections_alone_copy_nothing() -> None:
    brokers, partitions = _cluster(3)
    placement = place(brokers, replace(partitions, loads=replace(_loads(partitions), copy=False)), GOAL)
    assert (placement.copies, _balance(placement).bytes) == (0, 0)


def test_a_partition_too_large_for_any_broker_is_named() -> None:
    brokers, partitions = _cluster(1)
    loads = _loads(partitions)
    leader = loads.leader.copy()
    leader[7, 2] = 10**9
    placement = place(brokers, replace(partitions, loads=replace(loads, leader=leader)), GOAL)
    assert _balance(placement).oversized == ((7, "out"),)


def test_emptied_brokers_keep_nothing_and_loads_are_even() -> None:
    brokers, partitions = _cluster(8)
    emptied = brokers.ids == 2
    gone = replace(brokers, emptied=emptied, target=~emptied)
    placement = place(gone, partitions, PlacementGoal(within=WITHIN, reorder=True))
    assert not (placement.replicas == 2).any()
