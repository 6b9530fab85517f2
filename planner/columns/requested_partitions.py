"""Partitions requested by the user or in /admin, joined to the snapshot, and why some cannot be considered.

Corresponds to the checks of `KafkaController.processReplicaLeaderElection` before an election. In: the requested
partitions (topic, partition), PARTITIONS, TOPICS, BROKERS. Out: one row per requested partition, with topic and broker
sets.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.changes import with_topic_and_brokers
from schemas.enums import RejectionCode
from schemas.tables import KEYS

KEY: Final = [*KEYS["partitions"]]

NO_ELECTION_REASONS: Final[Mapping[RejectionCode, str]] = {
    RejectionCode.UNKNOWN_PARTITION: "no such partition in the snapshot",
    RejectionCode.DELETION_REQUESTED: "its topic is queued for deletion",
    RejectionCode.NOT_UNDERSTOOD: "its znode is in quarantine",
}
"""Why no election of any kind is planned, by code."""


def join_requested(requested: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return each requested partition once; all its columns are null if there is no such partition."""
    keys = requested.select(*KEY).distinct()
    present = partitions.join(F.broadcast(keys), KEY, "left_semi")  # first, so that the joins below see few rows
    return keys.join(present, KEY, "left").transform(with_topic_and_brokers, topics, brokers)


def unsuitable_code() -> Column:
    """Return the code of NO_ELECTION_REASONS that applies, else null."""
    return (
        F.when(F.col("replicas").isNull(), RejectionCode.UNKNOWN_PARTITION.value)
        .when(F.col("deletion_requested"), RejectionCode.DELETION_REQUESTED.value)
        .when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value)
    )


def reason_by_code(reasons: Mapping[RejectionCode, Column | str]) -> Column:
    """Return the reason that belongs to the column `code`."""
    texts = ((code, F.lit(why) if isinstance(why, str) else why) for code, why in reasons.items())
    return F.coalesce(*(F.when(F.col("code") == code.value, why) for code, why in texts))
