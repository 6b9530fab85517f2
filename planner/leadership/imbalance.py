"""Leader imbalance per broker: the share of partitions not led by their preferred replica.

Corresponds to `KafkaController.checkAndTriggerAutoLeaderRebalance`. The ratio is the number of partitions not led by
their preferred replica, divided by the number of partitions that prefer the broker. Topics queued for deletion are left
out. A ratio strictly above the threshold triggers an election. In: PARTITIONS, TOPICS. Out: IMBALANCE.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import first
from planner.columns.shape import with_schema
from schemas.tables import IMBALANCE


def imbalance(partitions: DataFrame, topics: DataFrame, snapshot_id: int, threshold: float) -> DataFrame:
    """Return one row per broker that is the preferred replica of a partition; `ratio` is between 0 and 1."""
    not_led = F.col("leader").isNotNull() & (F.col("leader") != F.col("preferred"))
    ratio = F.col("not_led") / F.col("preferred_partitions")
    return (
        partitions.join(F.broadcast(topics.where("deletion_requested")), "topic", "left_anti")
        .withColumns({"preferred": first(F.col("replicas"))})
        .where(F.col("preferred").isNotNull())
        .groupBy("cluster", F.col("preferred").alias("broker_id"))
        .agg(F.count("*").alias("preferred_partitions"), F.count_if(not_led).alias("not_led"))
        .withColumns(
            {
                "snapshot_id": F.lit(snapshot_id).cast("bigint"),
                "ratio": ratio,
                "exceeds": ratio > threshold,
                "threshold": F.lit(threshold),
            },
        )
        .transform(with_schema, IMBALANCE)
    )
