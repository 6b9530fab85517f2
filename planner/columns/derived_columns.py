"""Columns derived from a partition's znodes and the live brokers: its state, its offline replicas, its warnings.

Corresponds to the initial states of `PartitionStateMachine`, to the metrics `UnderReplicated` and `UnderMinIsr`, and to
`LogConfig`, which falls back to the brokers' configs. In: partitions as read, topics, brokers, broker_configs. Out:
PARTITIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference, intersect, no_brokers
from planner.columns.config_values import MIN_ISR_OVERRIDE, boolean, whole_number
from planner.columns.shape import false, with_schema
from schemas.enums import PartitionState
from schemas.tables import PARTITIONS
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR, UNCLEAN_ELECTION


def absent_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return one row: `absent`, the ids of leaders and replicas that no registered broker has, ascending.

    There are few of them or none. Looking these up in every row is cheap; looking up all live brokers is expensive.
    """
    referenced = F.array_append(F.coalesce("replicas", no_brokers()), F.col("leader"))
    registered = F.broadcast(brokers.select("broker_id"))
    return (
        partitions.select(F.explode(referenced).alias("broker_id"))
        .distinct()
        .join(registered, "broker_id", "left_anti")
        .agg(F.sort_array(F.collect_list("broker_id")).alias("absent"))
    )


def partition_state(leader: Column, is_live: Column, deleting: Column | None = None) -> Column:
    """Return New without leadership, Online with a leader if `is_live`, else Offline.

    A partition whose topic is being deleted is NonExistent unless it is still Online, because the deletion removes its
    leader first (`TopicDeletionManager.onTopicDeletion`).
    """
    gone = false() if deleting is None else deleting & ~F.coalesce(is_live, false())
    return (
        F.when(gone, PartitionState.NON_EXISTENT.value)
        .when(leader.isNull(), PartitionState.NEW.value)
        .when(is_live, PartitionState.ONLINE.value)
        .otherwise(PartitionState.OFFLINE.value)
    )


def under_replicated(replicas: Column, isr: Column) -> Column:
    """Return whether some replica is not in the ISR; the equality test is a quick path for the usual case."""
    return (replicas != isr) & (F.size(difference(replicas, isr)) > 0)


def default_min_isr(broker_configs: DataFrame) -> DataFrame:
    """Return one row: `default_min_isr`, the largest value that any broker is known to use, else Kafka's default.

    Kafka uses the leader's value. If brokers disagree, the largest one warns too early rather than too late.
    """
    is_known = (F.col("name") == MIN_ISR) & ~F.coalesce("assumed", false())
    values = F.when(is_known, F.expr(whole_number("value")))
    return broker_configs.agg(F.coalesce(F.max(values), F.lit(DEFAULT_MIN_ISR)).alias("default_min_isr"))


def default_unclean_election() -> Column:
    """Aggregate BROKER_CONFIGS to `default_unclean_election`: true only if every broker is known to allow it.

    Kafka uses the controller's value. If brokers disagree or one did not answer, the result is false, which loses no
    data.
    """
    # aggregates ignore nulls, so an unknown value must become false first
    allowed = f"coalesce({boolean('value')} AND NOT assumed, false)"
    everywhere = f"bool_and({allowed}) FILTER (WHERE name = '{UNCLEAN_ELECTION}')"
    return F.expr(f"coalesce({everywhere}, false) AS default_unclean_election")


def derive_partitions(
    partitions: DataFrame,
    topics: DataFrame,
    absent: DataFrame,
    broker_configs: DataFrame,
) -> DataFrame:
    """Fill the derived columns of PARTITIONS; `absent` is the result of `absent_brokers`."""
    absent_ids, leader, isr = F.col("absent"), F.col("leader"), F.coalesce("isr", no_brokers())
    overrides = topics.select("topic", min_isr_override(), F.col("deletion_requested").alias("deleting"))
    relevant_overrides = overrides.where("min_isr_override IS NOT NULL OR deleting")
    is_live = leader.isNotNull() & ~F.array_contains(absent_ids, leader)
    deleting = F.coalesce("deleting", false())
    return (
        partitions.join(F.broadcast(relevant_overrides), "topic", "left")
        .crossJoin(F.broadcast(absent.crossJoin(default_min_isr(broker_configs))))
        .withColumns(
            {
                "partition_state": partition_state(leader, is_live, deleting),
                "offline_replicas": intersect(F.col("replicas"), absent_ids),
                "under_replicated": under_replicated(F.col("replicas"), isr),
                "under_min_isr": F.size(isr) < F.coalesce("min_isr_override", "default_min_isr"),
                "vanished": false(),
            },
        )
        .transform(with_schema, PARTITIONS)
    )


def min_isr_override() -> Column:
    """The min.insync.replicas of a topic's config, null if it is not set."""
    return F.expr(f"{MIN_ISR_OVERRIDE} AS min_isr_override")
