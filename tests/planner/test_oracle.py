"""The planner compared with an oracle in plain Python: on random clusters, and on every small partition."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.leadership.imbalance import imbalance
from planner.leadership.preferred import candidates_by_imbalance
from schemas.rows import Key, Row
from tests.planner import oracle
from tests.planner.frames import World, as_rows, by_partition
from tests.planner.verdicts import preferred_changes, preferred_rejections, reconcile_changes, reconcile_rejections
from tests.planner.worlds import BATCHES, UNCLEAN_BROKERS, all_small_partitions, drained_worlds, failing_worlds, worlds

Verdicts = dict[Key, Row | str]
"""The result for each partition that needs one: its change, or the code of its rejection."""


def _key(row: Row) -> Key:
    return row["topic"], row["partition"]


def _reconciled(spark: SparkSession, world: World, *, allow_unclean: bool) -> tuple[Verdicts, Verdicts]:
    frames = world.frames_and_configs(spark)
    changes = by_partition(reconcile_changes(*frames, allow_unclean=allow_unclean))
    rejections = by_partition(reconcile_rejections(*frames, allow_unclean=allow_unclean))
    return {k: oracle.outcome_columns(row) for k, row in changes.items()}, {
        k: row["code"] for k, row in rejections.items()
    }


def _reconciled_by_hand(world: World, *, allow_unclean: bool) -> tuple[Verdicts, Verdicts]:
    due = {_key(row): oracle.due(row, world, allow_unclean=allow_unclean) for row in world.partitions}
    codes = {_key(row): oracle.reconcile_code(row, world, allow_unclean=allow_unclean) for row in world.partitions}
    return {k: change for k, change in due.items() if change}, {k: code for k, code in codes.items() if code}


def _preferred(spark: SparkSession, world: World) -> Verdicts:
    partitions, topics, brokers = world.frames(spark)
    candidates = partitions.select("topic", "partition")
    changes = by_partition(preferred_changes(partitions, topics, brokers, candidates))
    rejections = by_partition(preferred_rejections(partitions, topics, brokers, candidates))
    assert not changes.keys() & rejections.keys()
    return {k: oracle.outcome_columns(row) for k, row in changes.items()} | {
        k: row["code"] for k, row in rejections.items()
    }


def _preferred_by_hand(world: World) -> Verdicts:
    return {_key(row): oracle.preferred(row, world) for row in world.partitions}


@BATCHES
@given(st.one_of(worlds(), failing_worlds(), drained_worlds()), st.booleans())
def test_reconcile(spark: SparkSession, world: World, allow_unclean: bool) -> None:  # noqa: FBT001 - from Hypothesis
    reconciled = _reconciled(spark, world, allow_unclean=allow_unclean)
    assert reconciled == _reconciled_by_hand(world, allow_unclean=allow_unclean)


@pytest.mark.parametrize("configs", [[], UNCLEAN_BROKERS])
def test_reconcile_every_small_partition(spark: SparkSession, configs: list[Row]) -> None:
    world = replace(all_small_partitions(), configs=configs)
    assert _reconciled(spark, world, allow_unclean=False) == _reconciled_by_hand(world, allow_unclean=False)


@BATCHES
@given(st.one_of(worlds(), failing_worlds(), drained_worlds()))
def test_preferred(spark: SparkSession, world: World) -> None:
    assert _preferred(spark, world) == _preferred_by_hand(world)


def test_preferred_of_every_small_partition(spark: SparkSession) -> None:
    world = all_small_partitions()
    assert _preferred(spark, world) == _preferred_by_hand(world)


@BATCHES
@given(worlds(), st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 1.0]))
def test_imbalance(spark: SparkSession, world: World, threshold: float) -> None:
    partitions, topics, _ = world.frames(spark)
    skew = imbalance(partitions, topics, 1, threshold)
    candidates = set(by_partition(candidates_by_imbalance(partitions, skew)))
    counts = {row["broker_id"]: (row["preferred_partitions"], row["not_led"]) for row in as_rows(skew)}
    assert (counts, candidates) == oracle.rebalance(world.partitions, threshold)
