"""Where partitions added to a topic go: Kafka's algorithm goes on from the partitions there are.

Corresponds to `AdminZkClient.addPartitions` and `createNewPartitionsAssignment`: brokers sorted by id, the round begins
at the first one not below the topic's very first replica, and the followers' shift begins there too. In: what the topic
has, and assignments of the partitions to be added (topic, partition, replicas, topic_id). Out: CHANGES that create.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.assignment import kafka_replicas
from planner.creation import creation_changes


def start_of_round(brokers: Sequence[int], first_replica: int) -> int:
    """Index of the first broker not below `first_replica`, 0 if all are.

    >>> [start_of_round([0, 1, 3], replica) for replica in (1, 2, 9)]
    [1, 2, 0]
    """
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def added_replicas(brokers: Sequence[int], replication_factor: int, start_index: int, existing: int) -> Column:
    """Replicas of `partition`, one of those added to `existing` ones.

    >>> rows = spark.range(1, 7).select(F.col("id").cast("int").alias("partition"))
    >>> replicas = F.array_join(added_replicas([0, 1, 2, 3], 4, start_index=2, existing=1), "")
    >>> " ".join(row[0] for row in rows.select(replicas).collect())
    '3201 0312 1023 2301 3012 0123'
    """
    rounds_before = (existing - 1) // len(brokers)
    places = max(len(brokers) - 1, 1)
    shift = (start_index - rounds_before) % places  # counted as if the rounds before had been gone through
    return kafka_replicas(brokers, replication_factor, start_index, shift)


def expansion_changes(assignments: DataFrame, brokers: DataFrame, cluster: str, topic_version: int) -> DataFrame:
    """One CHANGES row an added partition, to be written with its topic at `topic_version`."""
    return creation_changes(assignments, brokers, cluster).withColumns(
        {
            "topic_version": F.lit(topic_version),
            "reason": F.lit("added partition: first live replica leads, live replicas are in sync"),
        },
    )
