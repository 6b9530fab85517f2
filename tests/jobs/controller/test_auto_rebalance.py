"""When leadership is moved back to the preferred replicas automatically, and for which partitions."""

import random
from typing import Any

import pytest
from msgspec.structs import asdict
from pyspark.sql import SparkSession

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller_context import ControllerContext
from planner.leadership.imbalance import imbalance
from schemas.enums import RequestKind
from schemas.partition_info import PartitionInfo
from schemas.rows import ZnodeRequest
from tests.jobs.support.kafka.registrations import broker_without_endpoints
from tests.planner.frames import broker_config, partition_info

ENABLED, INTERVAL = "auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds"
PERCENTAGE = "leader.imbalance.per.broker.percentage"
INFINITE = float("inf")


@pytest.mark.parametrize(
    ("configs", "interval_seconds", "threshold"),
    [
        ([], 300.0, 0.1),
        ([(ENABLED, "true"), (INTERVAL, "60"), (PERCENTAGE, "5")], 60.0, 0.05),
        ([(INTERVAL, "60"), (INTERVAL, "600"), (PERCENTAGE, "5"), (PERCENTAGE, "20")], 600.0, 0.2),
        ([(ENABLED, "true"), (ENABLED, "False")], INFINITE, 0.1),
        ([(ENABLED, None), ("unclean.leader.election.enable", "false")], 300.0, 0.1),
    ],
    ids=["Kafka's defaults", "as all say", "the most patient", "off where one says so", "not said"],
)
def test_broker_settings_determine_the_interval(
    configs: list[tuple[str, str | None]], interval_seconds: float, threshold: float
) -> None:
    balance = AutoLeaderRebalance.of(broker_config(0, name, value) for name, value in configs)

    assert (balance.interval_seconds, balance.threshold) == (interval_seconds, threshold)


def partition(number: int, replicas: list[int], leader: int | None, **columns: Any) -> PartitionInfo:  # noqa: ANN401
    isr = columns.pop("isr", None if leader is None else replicas)
    return partition_info(replicas, leader, isr, topic="orders", partition=number, **columns)


def context_of(*rows: PartitionInfo) -> ControllerContext:
    context = ControllerContext()
    context.brokers = {broker: broker_without_endpoints(broker) for broker in (0, 1, 2)}
    for row in rows:
        context.put_partition(row)
    return context


def due_now(threshold: float) -> AutoLeaderRebalance:
    return AutoLeaderRebalance(0.0, threshold, _next_check=0.0)


def test_only_electable_partitions_beyond_the_threshold_are_due() -> None:
    context = context_of(
        partition(0, [0, 1], 1),
        partition(1, [0, 1], 0),
        partition(2, [1, 2], 2, isr=[2]),
        partition(3, [1, 2], 2, adding_replicas=[0]),
        partition(4, [1, 2], 2),
        partition(5, [7, 2], 2),
        partition(6, [2, 0], None),
    )

    assert due_now(0.5).due(context) == {("orders", 4)}
    assert due_now(0.4).due(context) == {("orders", 0), ("orders", 4)}


def test_topics_queued_for_deletion_do_not_count() -> None:
    context = context_of(partition(0, [0, 1], 1), partition(1, [0, 1], 0))
    context.requests = [ZnodeRequest(kind=RequestKind.DELETE_TOPIC.value, topic="orders", path="")]

    assert (context.imbalance(), due_now(0.0).due(context)) == ({}, set())


def test_between_two_checks_nothing_is_due() -> None:
    balance = AutoLeaderRebalance(3600.0, 0.0, _next_check=0.0)
    context = context_of(partition(0, [0, 1], 1))

    assert [balance.due(context), balance.due(context)] == [{("orders", 0)}, set()]
    assert AutoLeaderRebalance(INFINITE, 0.0, _next_check=0.0).due(context) == set()


def test_context_counts_imbalance_as_the_planner(spark: SparkSession, warehouse: Warehouse) -> None:
    """After many random changes of the context."""
    random_ = random.Random(7)  # noqa: S311 - a test's
    context = context_of()
    for _ in range(400):
        replicas = random_.sample(range(4), 2)
        leader = random_.choice([None, -1, *replicas])
        context.put_partition(partition(random_.randrange(60), replicas, leader))
    for number in range(0, 60, 7):
        context._remove_partition(("orders", number))  # noqa: SLF001 - as for a topic that is created again
    topics = [{"topic": "orders", "deletion_requested": False}]
    tables = SparkWarehouse(spark, warehouse)

    partitions = tables.frame("partitions", [asdict(row) for row in context.partitions.values()])
    rows = imbalance(partitions, tables.frame("topics", topics), 1, 0.1)

    counted = {broker: (count, len(astray)) for broker, (count, astray) in context.imbalance().items()}
    assert counted == {row.broker_id: (row.preferred_partitions, row.not_led) for row in rows.collect()}
