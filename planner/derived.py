"""What follows from a partition's znodes and the live brokers: its state, its offline replicas, its warnings.

Corresponds to the initial states of `PartitionStateMachine`, the metrics `UnderReplicated` and `UnderMinIsr`, and
`LogConfig`'s fall-back to what brokers say. In: partitions as read, topics, brokers, broker_configs. Out: PARTITIONS.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.liveness import live_brokers, not_among
from planner.shape import shaped
from schemas.names import PartitionState
from schemas.tables import PARTITIONS

MIN_ISR: Final = "min.insync.replicas"
DEFAULT_MIN_ISR: Final = 1
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


def partition_state(leader: Column, live: Column) -> Column:
    """New without leadership, Online with a live leader, else Offline."""
    return (
        F.when(leader.isNull(), PartitionState.NEW.value)
        .when(F.array_contains(live, leader), PartitionState.ONLINE.value)
        .otherwise(PartitionState.OFFLINE.value)
    )


def default_min_isr(broker_configs: DataFrame) -> DataFrame:
    """One row: `default_min_isr`, the largest that any broker is known to use, else Kafka's default.

    Kafka takes the leader's; the largest warns too early rather than too late where brokers disagree.
    """
    known = (F.col("name") == MIN_ISR) & ~F.coalesce("assumed", F.lit(False))  # noqa: FBT003 - a Spark literal
    values = F.when(known, F.col("value").try_cast("int"))
    return broker_configs.agg(F.coalesce(F.max(values), F.lit(DEFAULT_MIN_ISR)).alias("default_min_isr"))


def default_unclean_election(broker_configs: DataFrame) -> DataFrame:
    """One row: `default_unclean_election`, true only if every broker is known to allow it.

    Kafka takes the controller's; where brokers disagree or one did not answer it is false, which loses no data.
    """
    allows = (F.lower("value") == "true") & ~F.col("assumed")
    # an aggregate ignores nulls: what is not known would count for nothing
    everywhere = F.bool_and(F.coalesce(allows, F.lit(False)))  # noqa: FBT003 - a Spark literal
    return broker_configs.where(F.col("name") == UNCLEAN_ELECTION).agg(
        F.coalesce(everywhere, F.lit(False)).alias("default_unclean_election"),  # noqa: FBT003 - a Spark literal
    )


def derive_partitions(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
) -> DataFrame:
    """Fill the derived columns of PARTITIONS.

    Shapes: one row a partition in, the same rows out; no units; raises nothing.
    """
    live, isr = F.col("live"), F.coalesce("isr", F.array())
    every_broker = live_brokers(brokers).crossJoin(default_min_isr(broker_configs))
    return (
        partitions.join(F.broadcast(topics.select("topic", min_isr_override())), "topic", "left")
        .crossJoin(F.broadcast(every_broker))
        .withColumns(
            {
                "partition_state": partition_state(F.col("leader"), live),
                "offline_replicas": not_among(F.col("replicas"), live),
                "under_replicated": F.size(not_among(F.col("replicas"), isr)) > 0,
                "under_min_isr": F.size(isr) < F.coalesce("min_isr_override", "default_min_isr"),
            },
        )
        .transform(shaped, PARTITIONS)
    )


def min_isr_override() -> Column:
    """What a topic's config says of min.insync.replicas, null if nothing."""
    return F.col("config")[MIN_ISR].try_cast("int").alias("min_isr_override")
