"""Placement of new partitions by the planner's algorithms, for new topics and for added partitions.

The plan's parameters record the input: strategy, brokers in order, and racks by broker id if racks alternate.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.core.errors import RefusedError
from jobs.repositories.racks import rack_gap
from planner.placement.plan_figures import CrowdedRacks
from planner.rules.replica_placement import PlacementOrder, simple_placements
from planner.topics.rack_crowding import least_crowding, max_per_rack
from schemas.rows import Broker, Row

KAFKA: Final = "kafka"
SIMPLE: Final = "simple"
BALANCED: Final = "balanced"
STRATEGIES: Final = (KAFKA, SIMPLE, BALANCED)
RACK_AWARE: Final = (KAFKA, BALANCED)

SPREAD_LATER: Final = "`surveyor plan reassign --fix-racks` spreads them once they are there"
"""Advice if new partitions crowd a rack."""

Placed = list[tuple[str, int, list[int]]]
"""Topic, number and replicas of new partitions."""


def place_topics(topics: Sequence[Row], settled: Mapping[str, Any]) -> Placed:
    """Return all new partitions of `topics`, numbered from `first_partition` up to `partitions`, the number wanted.

    `start_index` and `shift` start the round; `replica_assignment` lists explicit replicas.
    """
    return [(topic["topic"], *partition) for topic in topics for partition in _placed(topic, settled)]


def _placed(topic: Row, settled: Mapping[str, Any]) -> Iterable[tuple[int, list[int]]]:
    if (by_hand := topic.get("replica_assignment")) is not None:
        return enumerate(by_hand, topic["first_partition"])
    new = range(topic["first_partition"], topic["partitions"]), topic["replication_factor"]
    strategy, brokers = settled.get("strategy"), settled["brokers"]
    if strategy == SIMPLE:
        return simple_placements(brokers, *new)
    racks = {int(broker): rack for broker, rack in settled.get("racks", {}).items()}
    return PlacementOrder(brokers, racks, strategy == BALANCED).placements(*new, topic["start_index"], topic["shift"])


def placed_frame(tables: SparkWarehouse, placed: Placed) -> DataFrame:
    """Return placed partitions as a DataFrame: topic, partition, replicas."""
    rows = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in placed]
    return tables.frame("partitions", rows).select("topic", "partition", "replicas")


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


def crowded(placed: Placed, brokers: Sequence[Broker], instead: str) -> dict[str, Any]:
    """Return a plan parameter about new partitions with more replicas in one rack than necessary, nothing for none.

    `brokers`: rows of BROKERS that could be used. `instead`: the command that spreads them.
    """
    racks = {row.broker_id: row.rack for row in brokers if row.rack is not None}
    if len(set(racks.values())) <= 1:
        return {}
    ids = [row.broker_id for row in brokers]
    found = Counter[tuple[int, int]]()
    for replicas, count in Counter(tuple(replicas) for *_, replicas in placed).items():
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
