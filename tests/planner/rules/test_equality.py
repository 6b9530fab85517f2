"""The rules in plain Python and the transforms on Spark decide the same, in all columns and words."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict
from pyspark.sql import SparkSession

from planner.columns.broker_sets import FAILED_COLUMN
from planner.leadership.drain_changes import drain_changes, drain_rejections
from planner.rules.controlled_shutdown import controlled_shutdown
from planner.rules.decisions import Decision
from planner.rules.topic_deletion import deletion_step
from schemas.enums import LEADER_DURING_DELETE, DrainMode, RequestKind
from schemas.rows import Change, Row
from tests.planner.frames import as_rows
from tests.planner.rule_inputs import BATCHES, UNCLEAN_BROKERS, all_small_partitions
from tests.planner.rules.clusters import RandomCluster, RuleCluster, request_row

RandomClusters = st.integers(0, 2**64 - 1).map(random.Random).map(RandomCluster)


def _of_spark(row: Row) -> tuple[Any, ...]:
    change = None if row["action"] is None else asdict(msgspec.convert(row | {"cluster": ""}, Change))
    stop = row["stop_replica_to"] if row["code"] == "WAITS_FOR_STOP" else []
    own = row["topic"], row["partition"], row["wanted"], row["code"], row["why_not"], row["withdrawn"]
    return *own, stop, change


def _of_python(decision: Decision) -> tuple[Any, ...]:
    change = None if decision.change is None else asdict(decision.change)
    own = decision.topic, decision.partition, decision.wanted, decision.code, decision.why_not, decision.withdrawn
    return *own, [*decision.stop_replica_to], change


def _compare_decisions(spark: SparkSession, cluster: RuleCluster) -> None:
    of_spark = sorted(map(_of_spark, as_rows(cluster.tables(spark).decisions)), key=lambda row: row[:3])
    state = cluster.state()
    of_python = sorted(map(_of_python, state.decisions(state.partitions)), key=lambda row: row[:3])

    assert [row[:6] for row in of_python] == [row[:6] for row in of_spark]
    assert of_python == of_spark


@BATCHES
@given(RandomClusters)
def test_decisions(spark: SparkSession, cluster: RandomCluster) -> None:
    _compare_decisions(spark, cluster)


@pytest.mark.parametrize("configs", [[], UNCLEAN_BROKERS])
@pytest.mark.parametrize("requested", [False, True])
def test_decisions_on_every_small_partition(spark: SparkSession, configs: list[Row], *, requested: bool) -> None:
    """With and without a request to elect the preferred replica."""
    small = all_small_partitions()
    partitions = [row | {FAILED_COLUMN: []} for row in small.partitions]
    keys = [(row["topic"], row["partition"]) for row in partitions]
    elections = [request_row(RequestKind.PREFERRED_ELECTION, *key) for key in keys]
    brokers = {broker: broker in small.live for broker in sorted(small.registered)}
    requests = elections if requested else []
    _compare_decisions(spark, RuleCluster(brokers, small.topics, partitions, configs, requests=requests))


@BATCHES
@given(RandomClusters)
def test_deletions(spark: SparkSession, cluster: RandomCluster) -> None:
    cycle, state = cluster.tables(spark), cluster.state()
    queued = {row["topic"] for row in cluster.requests if row["kind"] == RequestKind.DELETE_TOPIC}
    elected = {topic for topic, _ in state.elections}
    steps = []
    for name in sorted(queued):
        partitions = [row for row in state.partitions.values() if row.topic == name]
        confirmed: dict[int, set[int]] = {}
        for row in cluster.stopped:
            if row["topic"] == name and row["leader_epoch"] == LEADER_DURING_DELETE:
                confirmed.setdefault(row["partition"], set()).add(row["broker_id"])
        failed = {key[1]: brokers for key, brokers in state.failed.items() if key[0] == name}
        step = deletion_step(
            name,
            state.topics.get(name),
            partitions,
            state.brokers,
            state.config,
            is_elected=name in elected,
            confirmed=confirmed,
            failed=failed,
        )
        steps.append(step)

    of_spark = sorted(as_rows(cycle.deletions), key=lambda row: row["topic"])
    assert [asdict(step) for step in steps] == of_spark


@BATCHES
@given(RandomClusters, st.sets(st.integers(0, 6), min_size=1, max_size=3))
def test_controlled_shutdowns(spark: SparkSession, cluster: RandomCluster, draining: set[int]) -> None:
    cycle, state = cluster.tables(spark).tables, cluster.state()
    tables = cycle.partitions, cycle.topics, cycle.brokers, sorted(draining), DrainMode.RESIDENT
    of_spark = {
        (row["topic"], row["partition"]): asdict(msgspec.convert(row | {"cluster": "", "plan_id": ""}, Change))
        for row in as_rows(drain_changes(*tables))
    }
    refused = {
        (row["topic"], row["partition"]): (row["code"], row["reason"]) for row in as_rows(drain_rejections(*tables))
    }

    decisions = {}
    for key, row in state.partitions.items():
        brokers = state.brokers.with_failed(state.failed.get(key, ()))
        decision = controlled_shutdown(row, state.topics.get(row.topic), brokers, frozenset(draining))
        if decision is not None:
            decisions[key] = decision
    assert {
        key: asdict(decision.change) for key, decision in decisions.items() if decision.change is not None
    } == of_spark
    assert {
        key: (decision.code, decision.why_not) for key, decision in decisions.items() if decision.code is not None
    } == refused
