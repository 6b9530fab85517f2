"""The steps of a topic deletion: stop replicas, delete them, and only then remove the topic from ZooKeeper.

Corresponds to `TopicDeletionManager.resumeDeletions`, as far as the tables contain its state: the deletion of a replica
is confirmed by the broker's response to StopReplica, and everything else is in ZooKeeper. A topic is left alone while a
replica that is not deleted yet is unreachable, while a partition is moving, or while a preferred election is requested.
In: topics queued for deletion with their partitions, the brokers, REQUESTS, and which replicas are confirmed. Out:
DELETIONS, one for each queued topic.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from planner.columns.broker_sets import FAILED_COLUMN, NO_BROKERS_SQL
from planner.columns.config_values import boolean
from planner.columns.sentences import sentence_sql
from planner.columns.shape import with_schema
from planner.rules.topic_deletion import DeletionStep
from schemas import reasons
from schemas.enums import RejectionCode, RequestKind
from schemas.replica_assignment import IS_BEING_REASSIGNED
from schemas.topic_configs import DELETION_ENABLED

DELETIONS: Final = StructType(
    [
        StructField("topic", StringType(), metadata={"comment": "topic name"}),
        StructField("topic_id", StringType(), metadata={"comment": "its id, null before Kafka 2.8"}),
        StructField("step", StringType(), metadata={"comment": "delete, remove, refuse or wait"}),
        StructField("code", StringType(), metadata={"comment": "why it waits or is refused"}),
        StructField("reason", StringType(), metadata={"comment": "the same in words"}),
    ],
)

_STEP: Final = f"""CASE
    WHEN code IN ('{RejectionCode.UNKNOWN_TOPIC}', '{RejectionCode.DELETION_DISABLED}') THEN '{DeletionStep.REFUSE}'
    WHEN code IS NOT NULL THEN '{DeletionStep.WAIT}'
    WHEN left_over = 0 THEN '{DeletionStep.REMOVE}'
    ELSE '{DeletionStep.DELETE}'
END"""

_HAS_STATE: Final = "(leader IS NOT NULL OR state_version IS NOT NULL)"
"""A partition that never had a state does not move, whatever its topic assigns: waiting for it would never end."""


def replicas_of(partitions: DataFrame, brokers: DataFrame, deleted: DataFrame) -> DataFrame:
    """Return one row for each replica: topic, partition, broker_id, `in_reach` and `deleted`.

    The parameter `deleted`: topic, partition and broker_id of replicas whose deletion the broker has confirmed.
    """
    failed = FAILED_COLUMN if FAILED_COLUMN in partitions.columns else NO_BROKERS_SQL
    reachable = brokers.selectExpr("broker_id", "understood AS reachable")
    confirmed = deleted.select("topic", "partition", "broker_id").distinct().withColumns({"deleted": F.expr("true")})
    return (
        partitions.selectExpr("topic", "partition", f"{failed} AS failed", "explode(replicas) AS broker_id")
        .join(F.broadcast(reachable), "broker_id", "left")
        .join(confirmed, ["topic", "partition", "broker_id"], "left")
        .selectExpr(
            "topic",
            "partition",
            "broker_id",
            "coalesce(reachable, false) AND NOT array_contains(failed, broker_id) AS in_reach",
            "coalesce(deleted, false) AS deleted",
        )
    )


def deletions(
    requests: DataFrame, partitions: DataFrame, topics: DataFrame, replicas: DataFrame, broker_configs: DataFrame
) -> DataFrame:
    """Return the next step of each queued topic; partitions and replicas must belong to queued topics."""
    queued = requests.where(f"kind = '{RequestKind.DELETE_TOPIC}'")
    moving = partitions.groupBy("topic").agg(
        F.expr(f"bool_or({IS_BEING_REASSIGNED} AND {_HAS_STATE}) AS is_being_reassigned")
    )
    elected = requests.where(f"kind = '{RequestKind.PREFERRED_ELECTION}'").selectExpr("topic", "true AS elects")
    reach = replicas.groupBy("topic").agg(
        F.expr("count_if(NOT deleted) AS left_over"),
        F.expr("sort_array(collect_set(broker_id) FILTER (WHERE NOT deleted AND NOT in_reach)) AS out_of_reach"),
    )
    disabled = broker_configs.agg(
        F.expr(f"coalesce(bool_or(NOT {boolean('value')}) FILTER (WHERE name = '{DELETION_ENABLED}'), false) AS off")
    )
    topic_facts = topics.selectExpr(
        "topic", "topic_id", "coalesce(assignment_understood, understood) AS understood", "true AS known"
    )
    return (
        queued.select("topic")
        .distinct()
        .join(topic_facts, "topic", "left")
        .join(moving, "topic", "left")
        .join(elected.distinct(), "topic", "left")
        .join(reach, "topic", "left")
        .crossJoin(disabled)
        .withColumns({"left_over": F.expr("coalesce(left_over, 0)")})
        .withColumns({"code": F.expr(_CODE_SQL)})
        .withColumns({"step": F.expr(_STEP), "reason": F.expr(_REASON)})
        .transform(with_schema, DELETIONS)
    )


_CODE_SQL: Final = f"""CASE
    WHEN known IS NULL THEN '{RejectionCode.UNKNOWN_TOPIC}'
    WHEN off THEN '{RejectionCode.DELETION_DISABLED}'
    WHEN NOT understood THEN '{RejectionCode.NOT_UNDERSTOOD}'
    WHEN is_being_reassigned OR elects OR size(out_of_reach) > 0 THEN '{RejectionCode.WAITS_FOR_REPLICAS}'
END"""

_REASON: Final = f"""CASE code
    WHEN '{RejectionCode.UNKNOWN_TOPIC}' THEN {sentence_sql(reasons.UNKNOWN_TOPIC)}
    WHEN '{RejectionCode.DELETION_DISABLED}' THEN {sentence_sql(reasons.DELETION_DISABLED)}
    WHEN '{RejectionCode.NOT_UNDERSTOOD}' THEN {sentence_sql(reasons.QUARANTINED)}
    WHEN '{RejectionCode.WAITS_FOR_REPLICAS}' THEN CASE
        WHEN is_being_reassigned THEN {sentence_sql(reasons.TOPIC_MOVES)}
        WHEN elects THEN {sentence_sql(reasons.ELECTION_REQUESTED)}
        ELSE {sentence_sql(reasons.REPLICAS_UNREACHABLE, brokers="out_of_reach")}
    END
END"""
