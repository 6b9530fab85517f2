"""An election in place of a dead leader: whom it chooses, what that rests on, and why.

Corresponds to `PartitionStateMachine.doElectLeaderForPartitions` with the offline strategy, as a cycle finds it due
(`planner.reconcile`) or as it is asked for (`planner.offline`). In: partitions with their surroundings and
`unclean_allowed`. Out: the same with `elected`, and the columns that an ELECT change has of it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.liveness import among, in_words, nobody, not_among
from planner.selectors import offline
from schemas.names import NO_LEADER


def with_election(partitions: DataFrame) -> DataFrame:
    """Add `elected` (leader, isr, unclean), null for nobody; `gone` and `survivors` of the ISR; `leaderless`."""
    chosen = F.struct(F.col("leader_after").alias("leader"), F.col("isr_after").alias("isr"), F.col("unclean"))
    return partitions.transform(offline, F.col("unclean_allowed")).withColumns(
        {
            "elected": F.when(F.col("leader_after").isNotNull(), chosen),
            "gone": not_among(F.col("isr"), F.col("live")),
            "survivors": among(F.col("isr"), F.col("live")),
            "leaderless": ~F.array_contains(F.col("live"), F.col("leader")),
        },
    )


def recovery_after() -> Column:
    """An unclean leader starts RECOVERING, where brokers know of it."""
    return F.coalesce(F.when(F.col("elected.unclean"), F.col("unclean_state")), F.col("leader_recovery_state"))


def counted_on_dead() -> Column:
    """Those whose absence an election rests on: if one of them came back, the plan is out of date."""
    old_leader = F.when(F.col("leader") >= 0, F.array("leader")).otherwise(nobody())
    return F.array_union("gone", old_leader)


def why_elected() -> Column:
    chosen = F.col("elected.leader").cast("string")
    broker_is_gone = F.concat(F.lit("broker "), F.col("leader").cast("string"), F.lit(" is gone"))
    who_left = F.when(F.col("leader") == NO_LEADER, "no leader").otherwise(broker_is_gone)
    return F.when(
        F.col("elected.unclean"),
        F.concat(who_left, F.lit("; unclean election of "), chosen, F.lit(" may lose data")),
    ).otherwise(F.concat(who_left, F.lit("; first live in-sync replica is "), chosen))


def why_nobody() -> Column:
    """The ISR, and which of it is alive after all: not understood, drained, or not assigned."""
    alive = F.concat(F.lit("; alive but not to be elected: "), in_words(F.col("survivors")))
    nobody_alive = F.concat(F.lit("no replica is alive: "), in_words(F.col("replicas")))
    nobody_in_sync = F.concat(
        F.lit("no in-sync replica can lead: ISR "),
        in_words(F.col("isr")),
        F.when(F.size("survivors") > 0, alive).otherwise(""),
    )
    any_alive = F.arrays_overlap(F.concat("replicas", "isr"), "live")
    return F.when(any_alive, nobody_in_sync).otherwise(nobody_alive)
