"""What a cycle finds due after failures: first leaders, elections, ISR shrinks; at most one change a partition.

Corresponds to `PartitionStateMachine` (New -> Online, Offline -> Online by `offlinePartitionLeaderElection`) and
to `ReplicaStateMachine.removeReplicasFromIsr`; seed 000, "OfflinePartitionLeaderSelector" and "onBrokerFailure".
Precedence: topic queued for deletion or znode not understood -> nothing; no state -> create; leader dead or none
-> elect; dead ISR member -> shrink. In: PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS. Out: verdicts, and of these
CHANGES and REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.changes import as_changes, surroundings, unchanged
from planner.election import counted_on_dead, recovery_after, why_elected, why_nobody, with_election
from planner.liveness import among, first, in_words, nobody
from planner.need import in_need
from planner.rejections import as_rejections
from planner.unclean import with_unclean_allowed
from schemas.names import NO_LEADER, RECOVERED, Action, RejectionCode


def _action() -> Column:
    """Name what is due for a partition, null for nothing."""
    leaderless = F.col("leaderless")
    # an ISR member that is registered but not understood may well hold the data: it keeps the partition as it is
    nobody_in_sync = F.size("survivors") == 0
    return (
        F.when(F.col("deletion_requested") | ~F.col("understood"), F.lit(None))
        .when(F.col("leader").isNull(), F.when(F.size("alive") > 0, Action.CREATE.value))
        .when(leaderless & F.col("elected").isNotNull(), Action.ELECT.value)
        .when(leaderless & (F.col("leader") != NO_LEADER) & nobody_in_sync, Action.TAKE_OFFLINE.value)
        .when(~leaderless & (F.size("gone") > 0) & ~nobody_in_sync, Action.SHRINK_ISR.value)
    )


def reconcile_verdicts(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """What becomes of each partition that may be in need: `action`, or null, and all that its rows say of it.

    `allow_unclean` allows for all what `unclean.leader.election.enable` of the topic, or else of the brokers, allows.
    """
    return (
        partitions.transform(in_need, brokers)
        .transform(surroundings, topics, brokers)
        .transform(with_unclean_allowed, broker_configs, everywhere=allow_unclean)
        .transform(with_election)
        .withColumns({"alive": among(F.col("replicas"), F.col("electable"))})
        .withColumns({"action": _action()})
    )


def _by_action(column: Column, cases: dict[Action, Column]) -> Column:
    """Choose by `action`, else `column`."""
    chosen = (F.when(F.col("action") == action.value, value) for action, value in cases.items())
    return F.coalesce(*chosen, column)


def _reason() -> Column:
    gone = in_words(F.col("gone"))
    cases = {
        Action.CREATE: F.lit("no state yet: first live replica leads, live replicas are in sync"),
        Action.ELECT: why_elected(),
        Action.TAKE_OFFLINE: F.concat(F.lit("no in-sync replica is alive: gone are "), gone),
    }
    return _by_action(F.concat(F.lit("gone from the ISR: "), gone), cases)


def changes_of(verdicts: DataFrame) -> DataFrame:
    """One CHANGES row for each verdict that has an action.

    An unclean leader starts RECOVERING; a leader nobody can replace becomes -1 with the ISR kept.
    """
    create, elect, offline, shrink = Action.CREATE, Action.ELECT, Action.TAKE_OFFLINE, Action.SHRINK_ISR
    alive, elected, one_later = F.col("alive"), F.col("elected"), F.col("leader_epoch") + 1
    leaders = {create: first(alive), elect: elected["leader"], offline: F.lit(NO_LEADER)}
    recovery = {create: F.lit(RECOVERED), elect: recovery_after()}
    live = {create: alive, elect: F.array(elected["leader"]), shrink: F.array("leader")}
    return (
        verdicts.where(F.col("action").isNotNull())
        .transform(unchanged)
        .withColumns(
            {
                "leader_after": _by_action(F.col("leader"), leaders),
                "isr_after": _by_action(
                    F.col("isr"),
                    {create: alive, elect: elected["isr"], shrink: F.col("survivors")},
                ),
                "leader_epoch_after": _by_action(one_later, {create: F.lit(0)}),
                "leader_recovery_state_after": _by_action(F.col("leader_recovery_state"), recovery),
                "requires_live": _by_action(nobody(), live),
                "requires_dead": _by_action(counted_on_dead(), {create: nobody(), shrink: F.col("gone")}),
                "reason": _reason(),
            },
        )
        .transform(as_changes)
    )


def rejections_of(verdicts: DataFrame) -> DataFrame:
    """Say which partitions stay without a leader, and which were not judged, as REJECTIONS."""
    stays_down = F.col("leaderless") & (F.col("action").isNull() | (F.col("action") == Action.TAKE_OFFLINE.value))
    never_up = F.col("leader").isNull() & (F.size("alive") == 0)
    no_leader = F.when(stays_down | never_up, RejectionCode.NO_ELIGIBLE_LEADER.value)
    nobody_alive = F.concat(F.lit("no replica is alive: "), in_words(F.col("replicas")))
    return (
        verdicts.where(~F.col("deletion_requested"))
        .withColumns(
            {
                "code": F.when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value).otherwise(no_leader),
                "reason": F.when(~F.col("understood"), "its znode is in quarantine: nothing is decided about it")
                .when(never_up, nobody_alive)
                .otherwise(why_nobody()),
            },
        )
        .transform(as_rejections, Action.ELECT)
    )


def reconcile_changes(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """Plan what is due, one CHANGES row a partition in need."""
    known = partitions, topics, brokers, broker_configs
    return changes_of(reconcile_verdicts(*known, allow_unclean=allow_unclean))


def reconcile_rejections(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """Say of what is in need why nothing is due."""
    known = partitions, topics, brokers, broker_configs
    return rejections_of(reconcile_verdicts(*known, allow_unclean=allow_unclean))
