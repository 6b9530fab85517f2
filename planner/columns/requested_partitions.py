"""Partitions requested by the user or in /admin, joined to the snapshot, and why some cannot be considered.

Corresponds to the checks of `KafkaController.processReplicaLeaderElection` before an election. In: the requested
partitions (topic, partition), PARTITIONS, TOPICS, BROKERS. Out: one row per requested partition, with topic and broker
sets.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import with_referenced_brokers, with_topic
from planner.columns.sentences import sentence
from schemas import reasons
from schemas.enums import RejectionCode
from schemas.reasons import Sentence
from schemas.tables import PARTITION_KEY

NO_ELECTION_REASONS: Final[Mapping[RejectionCode, Sentence]] = {
    RejectionCode.UNKNOWN_PARTITION: reasons.UNKNOWN_IN_SNAPSHOT,
    RejectionCode.DELETION_REQUESTED: reasons.DELETION_REQUESTED,
    RejectionCode.NOT_UNDERSTOOD: reasons.QUARANTINED,
}
"""Reasons why no election of any kind is planned, by code."""


def join_requested(requested: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return each requested partition once, with the broker sets restricted to its own brokers.

    All its columns are null if there is no such partition. The sets of a thousand brokers would make each row twenty
    kilobytes.
    """
    return requested_with_topics(requested, partitions, topics).transform(with_referenced_brokers, brokers)


def requested_with_topics(requested: DataFrame, partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Return each requested partition once; all its columns are null if there is no such partition."""
    keys = requested.select(*PARTITION_KEY).distinct()
    # first, so that the joins below see few rows
    present = partitions.join(F.broadcast(keys), PARTITION_KEY, "left_semi")
    return keys.join(present, PARTITION_KEY, "left").transform(with_topic, topics)


def unsuitable_code() -> Column:
    """Return the code of NO_ELECTION_REASONS that applies, else null."""
    return (
        F.when(F.col("replicas").isNull(), RejectionCode.UNKNOWN_PARTITION.value)
        .when(F.col("deletion_requested"), RejectionCode.DELETION_REQUESTED.value)
        .when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value)
    )


def reason_by_code(by_code: Mapping[RejectionCode, Column | Sentence]) -> Column:
    """Return the reason that belongs to the column `code`."""
    texts = ((code, sentence(reason) if isinstance(reason, Sentence) else reason) for code, reason in by_code.items())
    return F.coalesce(*(F.when(F.col("code") == code.value, reason) for code, reason in texts))
