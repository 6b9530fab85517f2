"""What a cycle finds due after failures: first leaders, elections, ISR shrinks; at most one change a partition.

Corresponds to `PartitionStateMachine` (New -> Online, Offline -> Online by `offlinePartitionLeaderElection`) and
to `ReplicaStateMachine.removeReplicasFromIsr`; seed 000, "OfflinePartitionLeaderSelector" and "onBrokerFailure".
Precedence: topic queued for deletion or znode not understood -> nothing; no state -> create; leader dead or none
-> elect; dead ISR member -> shrink. In: PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS. Out: CHANGES and REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.changes import as_changes, surroundings, unchanged
from planner.derived import UNCLEAN_ELECTION, default_unclean_election
from planner.liveness import among, first, in_words, not_among
from planner.rejections import as_rejections
from schemas.names import NO_LEADER, RECOVERED, RECOVERING, Action, RejectionCode


def _unclean_allowed() -> Column:
    """The topic's word, else the brokers'; neither for a topic whose config was not read: it may say false."""
    by_topic = F.lower(F.col("config")[UNCLEAN_ELECTION]) == "true"
    by_brokers = F.col("config").isNotNull() & F.col("default_unclean_election")
    return F.coalesce(by_topic, by_brokers)


def _with_candidates(partitions: DataFrame, *, allow_unclean: bool) -> DataFrame:
    """Add who could lead: `in_sync`, the live ISR in assignment order, and `alive`, the live assignment."""
    replicas, isr, electable = F.col("replicas"), F.col("isr"), F.col("electable")
    return partitions.withColumns(
        {
            "alive": among(replicas, electable),
            "in_sync": among(among(replicas, isr), electable),
            "gone": not_among(isr, F.col("live")),
            "leaderless": ~F.array_contains(F.col("live"), F.col("leader")),
            "unclean_allowed": F.lit(allow_unclean) | _unclean_allowed(),
        },
    )


def _action() -> Column:
    """Name what is due for a partition, null for nothing."""
    leaderless = F.col("leaderless")
    has_in_sync = F.size("in_sync") > 0
    # an ISR member that is registered but not understood may well hold the data: no unclean election past it
    nobody_in_sync = F.size("gone") == F.size("isr")
    unclean = F.col("unclean_allowed") & nobody_in_sync & (F.size("alive") > 0)
    survivors = F.size(F.array_except("isr", "gone")) > 0
    return (
        F.when(F.col("deletion_requested") | ~F.col("understood"), F.lit(None))
        .when(F.col("leader").isNull(), F.when(F.size("alive") > 0, Action.CREATE.value))
        .when(leaderless & (has_in_sync | unclean), Action.ELECT.value)
        .when(leaderless & (F.col("leader") != NO_LEADER) & nobody_in_sync, Action.TAKE_OFFLINE.value)
        .when(~leaderless & (F.size("gone") > 0) & survivors, Action.SHRINK_ISR.value)
    )


def _leader_after() -> Column:
    return (
        F.when(F.col("action") == Action.CREATE.value, first(F.col("alive")))
        .when(F.col("action") == Action.ELECT.value, F.coalesce(first(F.col("in_sync")), first(F.col("alive"))))
        .when(F.col("action") == Action.TAKE_OFFLINE.value, NO_LEADER)
        .otherwise(F.col("leader"))
    )


def _isr_after() -> Column:
    """A clean election keeps the live ISR in its order; an unclean one starts anew; taking offline keeps all."""
    survivors = F.array_except("isr", "gone")
    return (
        F.when(F.col("action") == Action.CREATE.value, F.col("alive"))
        .when(F.col("unclean"), F.slice("alive", 1, 1))
        .when(F.col("action") == Action.TAKE_OFFLINE.value, F.col("isr"))
        .otherwise(survivors)
    )


def _reason() -> Column:
    action, chosen, gone = F.col("action"), F.col("leader_after").cast("string"), in_words(F.col("gone"))
    broker_is_gone = F.concat(F.lit("broker "), F.col("leader").cast("string"), F.lit(" is gone"))
    who_left = F.when(F.col("leader") == NO_LEADER, "no leader").otherwise(broker_is_gone)
    return (
        F.when(action == Action.CREATE.value, "no state yet: first live replica leads, live replicas are in sync")
        .when(F.col("unclean"), F.concat(who_left, F.lit("; unclean election of "), chosen, F.lit(" may lose data")))
        .when(action == Action.ELECT.value, F.concat(who_left, F.lit("; first live in-sync replica is "), chosen))
        .when(action == Action.TAKE_OFFLINE.value, F.concat(F.lit("no in-sync replica is alive: gone are "), gone))
        .otherwise(F.concat(F.lit("gone from the ISR: "), gone))
    )


def _requires_dead() -> Column:
    """Those whose absence the change rests on: if one of them came back, the plan is out of date."""
    old_leader = F.when(F.col("leader") >= 0, F.array("leader")).otherwise(F.array().cast("array<int>"))
    return (
        F.when(F.col("action") == Action.CREATE.value, F.array().cast("array<int>"))
        .when(F.col("action") == Action.SHRINK_ISR.value, F.col("gone"))
        .otherwise(F.array_union("gone", old_leader))
    )


def _requires_live() -> Column:
    return (
        F.when(F.col("action") == Action.CREATE.value, F.col("isr_after"))
        .when(F.col("leader_after") >= 0, F.array("leader_after"))
        .otherwise(F.array().cast("array<int>"))
    )


def _isr_in_words() -> Column:
    """The ISR, and which of it is alive after all: not understood, drained, or not assigned."""
    survivors = not_among(F.col("isr"), F.col("gone"))
    alive = F.concat(F.lit("; alive but not to be elected: "), in_words(survivors))
    return F.concat(F.lit("ISR "), in_words(F.col("isr")), F.when(F.size(survivors) > 0, alive).otherwise(""))


def _considered(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool,
) -> DataFrame:
    return (
        partitions.transform(surroundings, topics, brokers)
        .crossJoin(F.broadcast(default_unclean_election(broker_configs)))
        .transform(_with_candidates, allow_unclean=allow_unclean)
        .withColumns({"action": _action()})
    )


def reconcile_changes(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """Plan what is due, one CHANGES row a partition in need.

    `allow_unclean` allows for all what `unclean.leader.election.enable` of the topic, or else of the brokers, allows.
    An unclean leader starts RECOVERING; a leader nobody can replace becomes -1 with the ISR kept.
    """
    unclean = (F.col("action") == Action.ELECT.value) & (F.size("in_sync") == 0)
    epoch = F.when(F.col("is_new"), 0).otherwise(F.col("leader_epoch") + 1)
    recovery = F.when(F.col("unclean"), RECOVERING).when(F.col("is_new"), RECOVERED)
    return (
        _considered(partitions, topics, brokers, broker_configs, allow_unclean=allow_unclean)
        .where(F.col("action").isNotNull())
        .transform(unchanged)
        .withColumns({"unclean": unclean, "leader_after": _leader_after(), "leader_epoch_after": epoch})
        .withColumns(
            {
                "isr_after": _isr_after(),
                "leader_recovery_state_after": F.coalesce(recovery, F.col("leader_recovery_state")),
            },
        )
        .withColumns({"requires_live": _requires_live(), "requires_dead": _requires_dead(), "reason": _reason()})
        .transform(as_changes)
    )


def reconcile_rejections(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """Say which partitions stay without a leader, and which were not judged, as REJECTIONS."""
    stays_down = F.col("leaderless") & (F.col("action").isNull() | (F.col("action") == Action.TAKE_OFFLINE.value))
    never_up = F.col("leader").isNull() & (F.size("alive") == 0)
    return (
        _considered(partitions, topics, brokers, broker_configs, allow_unclean=allow_unclean)
        .where(~F.col("deletion_requested"))
        .withColumns(
            {
                "code": F.when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value).when(
                    stays_down | never_up,
                    RejectionCode.NO_ELIGIBLE_LEADER.value,
                ),
                "reason": F.when(~F.col("understood"), "its znode is in quarantine: nothing is decided about it")
                .when(never_up, F.concat(F.lit("no replica is alive: "), in_words(F.col("replicas"))))
                .otherwise(F.concat(F.lit("no in-sync replica can lead: "), _isr_in_words())),
            },
        )
        .transform(as_rejections, Action.ELECT)
    )
