"""Leader selectors: the next leader and ISR of partitions, by the strategies of offline and of preferred replicas.

Corresponds to `Election.scala`: of the candidates, in their order, the first that is live and in the ISR leads. A
drained broker leads only if no other candidate can, and never becomes leader again as the preferred replica. In:
partitions with `replicas`, `leader`, `isr`, `leader_epoch` and the columns `live`, `eligible` and `electable` of
`planner.columns.broker_sets`. Out: the same rows with `leader_after`, `isr_after` and `leader_epoch_after`, all null if
no leader is found. A selector never chooses leader -1. The chosen leader is in the new ISR, so an ISR never loses its
last member.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import first, first_choice, intersect

RESULT = ("leader_after", "isr_after", "leader_epoch_after")


def offline(partitions: DataFrame, unclean_allowed: Column) -> DataFrame:
    """Elect the first replica of the assignment that is in sync; the ISR keeps its live members in order.

    If that is allowed, else elect the first live replica with only itself in the ISR, and only if no assigned ISR
    member is online (`offlinePartitionLeaderElection`). Adds `unclean`: the new leader may lack acknowledged records.
    """
    clean = first_choice(intersect(F.col("replicas"), F.col("isr")))
    unclean = F.when(unclean_allowed, _out_of_sync())
    isr = F.when(clean.isNotNull(), intersect(F.col("isr"), F.col("live"))).otherwise(F.array(unclean))
    return partitions.withColumns({"unclean": clean.isNull() & unclean.isNotNull()}).transform(
        _with_choice,
        F.coalesce(clean, unclean),
        isr,
    )


def preferred(partitions: DataFrame) -> DataFrame:
    """Elect the first replica of the assignment unless it is drained; the ISR stays (`leaderForPreferredReplica`)."""
    preferred_in_sync = intersect(F.slice("replicas", 1, 1), F.col("isr"))
    return partitions.transform(_with_choice, first(intersect(preferred_in_sync, F.col("electable"))), F.col("isr"))


def _out_of_sync() -> Column:
    """Return the first live replica, null if an assigned ISR member is registered.

    A member whose registration cannot be decoded may hold the data, so no other replica is elected. A member that is
    not assigned can never lead, and Kafka does not consider it either.
    """
    may_hold_data = F.arrays_overlap(intersect(F.col("isr"), F.col("replicas")), F.col("live"))
    return F.when(~may_hold_data, first_choice(F.col("replicas")))


def _with_choice(partitions: DataFrame, leader: Column, isr: Column) -> DataFrame:
    """Add the leader and its ISR at the next epoch; all null if there is no leader."""
    has_leader = leader.isNotNull()
    columns = (leader, F.when(has_leader, isr), F.when(has_leader, F.col("leader_epoch") + 1))
    return partitions.withColumns(dict(zip(RESULT, columns, strict=True)))
