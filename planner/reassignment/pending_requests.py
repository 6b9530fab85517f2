"""Requested reassignments that have not started: entries of /admin/reassign_partitions for a controller to start.

Corresponds to what `KafkaController.onControllerFailover` reads there. Brokers before 2.4, and clusters without a
controller, leave entries there. In: PARTITIONS and the REQUESTS of that kind. Out: the partitions with
`requested_replicas`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.sentences import sentence
from schemas import reasons
from schemas.replica_assignment import IS_BEING_REASSIGNED
from schemas.tables import PARTITION_KEY

REQUESTED_REPLICAS: Final = "requested_replicas"
"""Additional column of PARTITIONS frames: the requested replicas, null without a request."""


def with_requests(partitions: DataFrame, requests: DataFrame) -> DataFrame:
    """Add the requested replicas of each partition."""
    goals = requests.groupBy(*PARTITION_KEY).agg(
        F.max(F.coalesce("replicas", F.array().cast("array<int>"))).alias(REQUESTED_REPLICAS)
    )
    return partitions.join(F.broadcast(goals), [*PARTITION_KEY], "left")


def with_request_column(partitions: DataFrame) -> DataFrame:
    """Add the column REQUESTED_REPLICAS, null, to frames that do not have it."""
    if REQUESTED_REPLICAS in partitions.columns:
        return partitions
    return partitions.withColumns({REQUESTED_REPLICAS: F.lit(None).cast("array<int>")})


def is_being_reassigned_or_requested() -> Column:
    """Return whether replicas are being added or removed, or a request for that is pending."""
    return F.expr(IS_BEING_REASSIGNED) | F.col(REQUESTED_REPLICAS).isNotNull()


def moving_reason() -> Column:
    """Return the reason for a partition that is moving or has a pending request."""
    partition = sentence(reasons.PARTITION, topic=F.col("topic"), partition=F.col("partition"))
    waits = sentence(reasons.REQUEST_WAITS, requested=F.col(REQUESTED_REPLICAS), partition=partition)
    return F.coalesce(waits, sentence(reasons.REASSIGNED_ALREADY))
