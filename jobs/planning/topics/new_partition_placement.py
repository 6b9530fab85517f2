"""Placement of new partitions by the planner's algorithms, for new topics and for added partitions.

The plan's parameters record the input: strategy, brokers in order, and racks by broker id if racks alternate.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from jobs.core.errors import RefusedError
from jobs.repositories.brokers_last_seen import rack_gap
from planner.placement.plan_figures import CrowdedRacks
from planner.rules.replica_placement import lists_for
from planner.topics.assignment import (
    LISTS,
    NEW_TOPICS,
    assign_by_hand,
    assign_rack_aware,
    assign_rack_unaware,
    assign_simple,
    partition_ids,
)
from planner.topics.crowding import least_crowding, max_per_rack
from schemas.rows import Broker, Row

KAFKA: Final = "kafka"
SIMPLE: Final = "simple"
BALANCED: Final = "balanced"
STRATEGIES: Final = (KAFKA, SIMPLE, BALANCED)
RACK_AWARE: Final = (KAFKA, BALANCED)

SPREAD_LATER: Final = "`surveyor plan reassign --fix-racks` spreads them once they are there"
"""Advice if new partitions crowd a rack."""

_COLUMNS: Final = [column.split(" ")[0] for column in NEW_TOPICS.split(", ")]


def assign_topics(spark: SparkSession, topics: Sequence[Row], settled: Mapping[str, Any]) -> DataFrame:
    """Assign all partitions of `topics`, rows of NEW_TOPICS, at once: topic, partition, replicas."""
    by_hand = [topic for topic in topics if topic.get("replica_assignment") is not None]
    by_rule = [topic for topic in topics if topic.get("replica_assignment") is None]
    if not by_rule:
        return _frame(spark, by_hand).transform(assign_by_hand)
    assigned = _by_rule(spark, by_rule, settled)
    return assigned.unionByName(_frame(spark, by_hand).transform(assign_by_hand)) if by_hand else assigned


def _by_rule(spark: SparkSession, topics: Sequence[Row], settled: Mapping[str, Any]) -> DataFrame:
    ids = _frame(spark, topics).transform(partition_ids)
    if settled.get("strategy") == SIMPLE:
        return ids.transform(assign_simple, settled["brokers"])
    if "racks" not in settled:
        return ids.transform(assign_rack_unaware, settled["brokers"])
    racks = {int(broker): rack for broker, rack in settled["racks"].items()}
    balanced = settled.get("strategy") == BALANCED
    lists = spark.createDataFrame(list(lists_for(racks, topics, balanced=balanced)), LISTS)
    return ids.transform(assign_rack_aware, lists, racks)


def _frame(spark: SparkSession, topics: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame([tuple(topic.get(name) for name in _COLUMNS) for topic in topics], NEW_TOPICS)


def racks_of(brokers: Sequence[Broker], instead: str) -> dict[int, str]:
    """Return the rack of each broker, nothing if none has one; raise RefusedError if only some have one, as Kafka does.

    `instead` names alternatives to setting their racks or ignoring racks.
    """
    if gap := rack_gap({row.broker_id: row.rack for row in brokers}):
        raise RefusedError(f"{gap}; set broker.rack there and restart, {instead} or --disable-rack-aware")
    return {row.broker_id: row.rack for row in brokers if row.rack is not None}


def racks_parameter(racks: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Return racks as a plan's parameters, nothing if there are none."""
    return {"racks": {str(broker): rack for broker, rack in sorted(racks.items())}} if racks else {}


def crowded(assigned: DataFrame, brokers: Sequence[Broker], instead: str) -> dict[str, Any]:
    """Return a plan parameter about new partitions with more replicas in one rack than necessary, nothing for none.

    `brokers`: rows of BROKERS that could be used. `instead`: the command that spreads them.
    """
    racks = {row.broker_id: row.rack for row in brokers if row.rack is not None}
    if len(set(racks.values())) <= 1:
        return {}
    ids = [row.broker_id for row in brokers]
    found = Counter[tuple[int, int]]()
    for replicas, count in assigned.groupBy("replicas").count().collect():
        least = least_crowding(len(replicas), racks, ids)
        most = max_per_rack(replicas, racks)
        if most > least:
            found[most, least] += count
    if not found:
        return {}
    most, least = max(found)
    racks_crowded = CrowdedRacks(partitions=found.total(), most=most, least=least, instead=instead)
    return {"crowded": msgspec.to_builtins(racks_crowded)}


def may_crowd(replicas: int, brokers: Sequence[Broker]) -> bool:
    """Return whether Kafka's algorithm may put more of a partition's replicas into one rack than necessary.

    Once every rack has a replica, it no longer considers racks.
    """
    return replicas > len({row.rack for row in brokers})
