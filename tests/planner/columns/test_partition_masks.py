"""The rules on arrays compared with the transforms: derived columns, needed leaders, imbalance."""

from dataclasses import replace
from typing import Final

import msgspec
import pytest
from pyspark.sql import SparkSession

from planner.columns.derived_columns import absent_brokers, derive_partitions
from planner.columns.derived_columns import default_min_isr as default_by_spark
from planner.columns.partition_masks import Bools, partition_masks, repair_masks
from planner.columns.partition_masks import imbalance as imbalance_on_arrays
from planner.leadership.failure_handling import reconcile_verdicts
from planner.leadership.imbalance import imbalance
from planner.rules.effective_min_isr import default_min_isr
from schemas.enums import Action, DrainMode, PartitionState, RejectionCode
from schemas.rows import BrokerConfig, Row
from schemas.tables import BROKER_CONFIGS
from tests.planner.frames import RuleInput, arrays_of, as_rows, config_row, frame, topic_row
from tests.planner.rule_inputs import all_small_partitions

TWO: Final = {"min.insync.replicas": "2"}
MENDED: Final = {Action.CREATE.value, Action.ELECT.value, Action.SHRINK_ISR.value}
SAID: Final = (" 3 ", "+4", "-1", "many", "2.5", "", "3000000000", "007", "\t5\x01\n", "\xa06", "8 9", None)


def numbers(rule_input: RuleInput, marks: Bools) -> set[int]:
    return {row["partition"] for row, mark in zip(rule_input.partitions, marks.tolist(), strict=True) if mark}


def every_kind() -> RuleInput:
    """All small partitions: with and without the topic's min.insync.replicas, not understood, topic being deleted."""
    small = all_small_partitions()
    plain = [row for row in small.partitions if row["topic"] == "plain"][::3]
    kinds: list[Row] = [{"topic": "two"}, {"understood": False}, {"topic": "deleted"}, {"topic": "unlisted"}]
    rows = [*plain, *(row | kind for kind in kinds for row in plain[::13])]
    numbered = [row | {"partition": number} for number, row in enumerate(rows)]
    topics = [topic_row("plain"), topic_row("deleted", deletion_requested=True), topic_row("two", config=TWO)]
    return RuleInput(numbered, topics, small.live, small.opaque)


def test_what_is_derived(spark: SparkSession) -> None:
    rule_input = every_kind()
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    by_spark = as_rows(derive_partitions(partitions, topics, absent_brokers(partitions, brokers), configs))
    marks = partition_masks(arrays_of(rule_input), rule_input.registered)
    states = {
        PartitionState.NON_EXISTENT: marks.non_existent,
        PartitionState.NEW: marks.new,
        PartitionState.ONLINE: marks.online,
        PartitionState.OFFLINE: marks.offline,
    }

    for state, marked in states.items():
        assert numbers(rule_input, marked) == {row["partition"] for row in by_spark if row["partition_state"] == state}
    assert numbers(rule_input, marks.under_replicated) == {
        row["partition"] for row in by_spark if row["under_replicated"]
    }
    assert numbers(rule_input, marks.under_min_isr) == {row["partition"] for row in by_spark if row["under_min_isr"]}


@pytest.mark.parametrize("drained", [{}, {0: DrainMode.ADMIN, 1: DrainMode.RESIDENT}], ids=["none", "drained"])
def test_partitions_that_need_a_leader(spark: SparkSession, drained: dict[int, DrainMode]) -> None:
    """With clean elections only. A drained replica that could lead does not make a partition leaderless."""
    rule_input = replace(every_kind(), drained=drained)
    verdicts = as_rows(reconcile_verdicts(*rule_input.frames_and_configs(spark)))
    due = repair_masks(arrays_of(rule_input), rule_input.registered, rule_input.live)

    assert numbers(rule_input, due.repairable) == {row["partition"] for row in verdicts if row["action"] in MENDED}
    assert numbers(rule_input, due.leaderless) == {
        row["partition"]
        for row in verdicts
        if row["code"] == RejectionCode.NO_ELIGIBLE_LEADER and row["leader"] is not None
    }


def test_preferred_partitions_by_broker(spark: SparkSession) -> None:
    every = every_kind()
    balanced_on_3 = [row for row in every.partitions if row["replicas"][0] != 3 or row["leader"] in {3, None}]
    rule_input = replace(every, partitions=balanced_on_3)
    partitions, topics, _ = rule_input.frames(spark)
    by_spark = as_rows(imbalance(partitions, topics, 1, 0.8).drop("cluster", "snapshot_id").orderBy("broker_id"))

    assert [msgspec.structs.asdict(row) for row in imbalance_on_arrays(arrays_of(rule_input), 0.8)] == by_spark
    assert {row["exceeds"] for row in by_spark} == {True, False}


def test_what_brokers_say_of_min_isr(spark: SparkSession) -> None:
    configs = [config_row(broker, "min.insync.replicas", value) for broker, value in enumerate(SAID)]
    others = [config_row(0, "num.partitions", "90"), config_row(9, "min.insync.replicas", "80", assumed=True)]
    by_spark = default_by_spark(frame(spark, [*configs, *others], BROKER_CONFIGS)).first()

    assert by_spark is not None
    of_brokers, of_others = ([BrokerConfig(**row) for row in rows] for rows in (configs, others))
    assert default_min_isr([*of_brokers, *of_others]) == by_spark["default_min_isr"]
    assert (default_min_isr(of_brokers[3:5]), default_min_isr(of_others)) == (1, 1)
