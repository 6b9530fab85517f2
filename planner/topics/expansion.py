"""Where partitions added to a topic go: Kafka's algorithm goes on from the partitions there are.

Corresponds to `AdminZkClient.addPartitions` and `createNewPartitionsAssignment`: the round begins at the place that the
topic's very first replica, or the next broker there is, has among the brokers by id; the followers' shift begins there
too, and `first_partition` is how many partitions there are. Where brokers are in racks that place is counted in the
list in which racks take turns, though it was found by id: Kafka does so. In: assignments of the partitions to be added
(topic, partition, replicas, topic_id). Out: CHANGES that create.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.topics.creation import creation_changes


def start_of_round(brokers: Sequence[int], first_replica: int) -> int:
    """Index of the first of `brokers`, by id, that is not below `first_replica`, 0 if all are.

    >>> [start_of_round([0, 1, 3], replica) for replica in (1, 2, 9)]
    [1, 2, 0]
    """
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def expansion_changes(assignments: DataFrame, brokers: DataFrame, cluster: str, topic_version: int) -> DataFrame:
    """One CHANGES row an added partition, to be written with its topic at `topic_version`."""
    return creation_changes(assignments, brokers, cluster).withColumns(
        {
            "topic_version": F.lit(topic_version),
            "reason": F.lit("added partition: first live replica leads, live replicas are in sync"),
        },
    )
