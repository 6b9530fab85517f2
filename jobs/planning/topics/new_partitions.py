"""Partitions placed by the planner's algorithms, as plans of new topics and of added partitions ask for it.

What is settled stands in the plan's parameters: strategy, brokers in order, racks by broker id where racks take turns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.delta.warehouse import Row
from jobs.core.errors import RefusedError
from planner.topics.assignment import NEW_TOPICS, assign_by_hand, assign_rack_unaware, assign_simple, partition_ids
from planner.topics.rack_aware import LISTS, assign_rack_aware, crowding, least_crowding, lists_for

KAFKA: Final = "kafka"
SIMPLE: Final = "simple"
BALANCED: Final = "balanced"
STRATEGIES: Final = (KAFKA, SIMPLE, BALANCED)
RACK_AWARE: Final = (KAFKA, BALANCED)

SPREAD_LATER: Final = "`surveyor plan reassign --fix-racks` spreads them once they are there"
"""What helps against new partitions that crowd a rack."""

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


def racks_of(brokers: Sequence[Row], instead: str) -> dict[int, str]:
    """Return each broker's rack, nothing if none has one; raise RefusedError where only some have one, as Kafka does.

    `instead` names other ways out than to give those a rack or to ignore racks.
    """
    racks = {row["broker_id"]: row["rack"] for row in brokers if row["rack"] is not None}
    without = sorted(row["broker_id"] for row in brokers if row["rack"] is None)
    if racks and without:
        raise RefusedError(
            f"brokers are in racks ({', '.join(sorted(set(racks.values())))}) but {', '.join(map(str, without))} "
            f"are in none; set broker.rack there, {instead} or --disable-rack-aware",
        )
    return racks


def racks_parameter(racks: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Write racks as a plan's parameters have them, nothing where there are none."""
    return {"racks": {str(broker): rack for broker, rack in sorted(racks.items())}} if racks else {}


def crowded(assigned: DataFrame, brokers: Sequence[Row], instead: str) -> dict[str, Any]:
    """Return what a plan states of new partitions that have more replicas in one rack than needed, nothing for none.

    `brokers`: rows of BROKERS that could be used. `instead`: the command that spreads them.
    """
    racks = {row["broker_id"]: row["rack"] for row in brokers if row["rack"] is not None}
    if len(set(racks.values())) <= 1:
        return {}
    ids = [row["broker_id"] for row in brokers]
    found = Counter[tuple[int, int]]()
    for row in assigned.groupBy("replicas").count().collect():
        least = least_crowding(len(row["replicas"]), racks, ids)
        most = crowding(row["replicas"], racks)
        if most > least:
            found[most, least] += row["count"]
    if not found:
        return {}
    most, least = max(found)
    return {"crowded": {"partitions": found.total(), "most": most, "least": least, "instead": instead}}


def may_crowd(replicas: int, brokers: Sequence[Row]) -> bool:
    """Whether Kafka's rule may put more of so many replicas into one rack than needed: it counts racks no further."""
    return replicas > len({row["rack"] for row in brokers})
