"""The planner compared with an oracle in plain Python: on random clusters, and on every small partition."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.leadership.imbalance import imbalance
from planner.leadership.preferred_election import candidates_by_imbalance
from schemas.rows import Key, Row
from tests.planner import oracle
from tests.planner.frames import RuleInput, as_rows, by_partition
from tests.planner.rule_inputs import (
    BATCHES,
    UNCLEAN_BROKERS,
    all_small_partitions,
    drained_worlds,
    failing_worlds,
    rule_inputs,
)
from tests.planner.verdicts import preferred_changes, preferred_rejections, reconcile_changes, reconcile_rejections

Verdicts = dict[Key, Row | str]
"""The result for each partition that needs one: its change, or the code of its rejection."""


def _key(row: Row) -> Key:
    return row["topic"], row["partition"]


def _reconciled(spark: SparkSession, rule_input: RuleInput, *, allow_unclean: bool) -> tuple[Verdicts, Verdicts]:
    frames = rule_input.frames_and_configs(spark)
    changes = by_partition(reconcile_changes(*frames, allow_unclean=allow_unclean))
    rejections = by_partition(reconcile_rejections(*frames, allow_unclean=allow_unclean))
    return {k: oracle.outcome_columns(row) for k, row in changes.items()}, {
        k: row["code"] for k, row in rejections.items()
    }


def _reconciled_by_hand(rule_input: RuleInput, *, allow_unclean: bool) -> tuple[Verdicts, Verdicts]:
    due = {_key(row): oracle.due(row, rule_input, allow_unclean=allow_unclean) for row in rule_input.partitions}
    codes = {
        _key(row): oracle.reconcile_code(row, rule_input, allow_unclean=allow_unclean) for row in rule_input.partitions
    }
    return {k: change for k, change in due.items() if change}, {k: code for k, code in codes.items() if code}


def _preferred(spark: SparkSession, rule_input: RuleInput) -> Verdicts:
    partitions, topics, brokers = rule_input.frames(spark)
    candidates = partitions.select("topic", "partition")
    changes = by_partition(preferred_changes(partitions, topics, brokers, candidates))
    rejections = by_partition(preferred_rejections(partitions, topics, brokers, candidates))
    assert not changes.keys() & rejections.keys()
    return {k: oracle.outcome_columns(row) for k, row in changes.items()} | {
        k: row["code"] for k, row in rejections.items()
    }


def _preferred_by_hand(rule_input: RuleInput) -> Verdicts:
    return {_key(row): oracle.preferred(row, rule_input) for row in rule_input.partitions}


@BATCHES
@given(st.one_of(rule_inputs(), failing_worlds(), drained_worlds()), st.booleans())
def test_reconcile(spark: SparkSession, rule_input: RuleInput, allow_unclean: bool) -> None:  # noqa: FBT001 - from Hypothesis
    reconciled = _reconciled(spark, rule_input, allow_unclean=allow_unclean)
    assert reconciled == _reconciled_by_hand(rule_input, allow_unclean=allow_unclean)


@pytest.mark.parametrize("configs", [[], UNCLEAN_BROKERS])
def test_reconcile_every_small_partition(spark: SparkSession, configs: list[Row]) -> None:
    rule_input = replace(all_small_partitions(), configs=configs)
    assert _reconciled(spark, rule_input, allow_unclean=False) == _reconciled_by_hand(rule_input, allow_unclean=False)


@BATCHES
@given(st.one_of(rule_inputs(), failing_worlds(), drained_worlds()))
def test_preferred(spark: SparkSession, rule_input: RuleInput) -> None:
    assert _preferred(spark, rule_input) == _preferred_by_hand(rule_input)


def test_preferred_of_every_small_partition(spark: SparkSession) -> None:
    rule_input = all_small_partitions()
    assert _preferred(spark, rule_input) == _preferred_by_hand(rule_input)


@BATCHES
@given(rule_inputs(), st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 1.0]))
def test_imbalance(spark: SparkSession, rule_input: RuleInput, threshold: float) -> None:
    partitions, topics, _ = rule_input.frames(spark)
    skew = imbalance(partitions, topics, 1, threshold)
    candidates = set(by_partition(candidates_by_imbalance(partitions, skew)))
    counts = {row["broker_id"]: (row["preferred_partitions"], row["not_led"]) for row in as_rows(skew)}
    assert (counts, candidates) == oracle.rebalance(rule_input.partitions, threshold)
