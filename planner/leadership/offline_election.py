"""Requested elections for partitions without a live leader: clean if possible, unclean only if allowed.

Corresponds to `KafkaController.processReplicaLeaderElection` for UNCLEAN, to `triggerOnlinePartitionStateChange` and to
`Election.leaderForOffline`. An unclean election happens only if no ISR member is online, and only if it was requested
or the topic's config, or else the brokers', allows it. Leader -1 is never planned here: a partition that finds no
leader is a rejection. In: the requested partitions (`planner.columns.requested_partitions`), BROKER_CONFIGS. Out:
verdicts, and from these CHANGES and REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN
from planner.columns.change_rows import as_rejections, change_columns
from planner.columns.derived_columns import partition_state
from planner.columns.requested_partitions import NO_ELECTION_REASONS, reason_by_code, unsuitable_code
from planner.columns.sentences import sentence
from planner.leadership.offline_strategy import ELECTED, no_leader_reason, with_election
from planner.leadership.unclean_config import with_unclean_allowed
from planner.rules.state_machines import TRANSITIONS, allowed_transition
from schemas import reasons
from schemas.enums import Action, PartitionState, RejectionCode
from schemas.tables import PARTITION_KEY


def candidates_without_leader(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return the partitions whose leader is not live, or whose leader's log dir failed: topic, partition."""
    live_leaders = brokers.select(F.col("broker_id").alias("leader"))
    led = partitions.where(F.col("leader").isNotNull())
    without = led.join(F.broadcast(live_leaders), "leader", "left_anti").select(*PARTITION_KEY)
    if FAILED_COLUMN not in partitions.columns:
        return without
    return without.unionByName(led.where(F.array_contains(FAILED_COLUMN, F.col("leader"))).select(*PARTITION_KEY))


def current_state() -> Column:
    """Return the state of a partition, as a new controller initializes it."""
    leader = F.col("leader")
    state = partition_state(leader, F.array_contains("live", leader))
    return F.when(F.col("replicas").isNull(), PartitionState.NON_EXISTENT.value).otherwise(state)


def may_transition(state: Column, action: Action) -> Column:
    """Return whether a partition in `state` may take the action."""
    _, starts = TRANSITIONS[action]
    return state.isin(*(start.value for start in starts))


def with_transition(partitions: DataFrame, action: Action) -> DataFrame:
    """Add `state`, and `illegal`: why the action is not allowed in that state, null if it is."""
    transition = F.lit(allowed_transition(action))
    reason = sentence(reasons.ILLEGAL_TRANSITION, state=F.col("state"), allowed=transition)
    return partitions.withColumns({"state": current_state()}).withColumns(
        {"illegal": F.when(~may_transition(F.col("state"), action), reason)},
    )


def _code() -> Column:
    codes = RejectionCode
    return F.coalesce(
        unsuitable_code(),
        F.when(F.col("illegal").isNotNull(), codes.ILLEGAL_TRANSITION.value)
        .when(~F.col("leaderless"), codes.ELECTION_NOT_NEEDED.value)
        .when(F.col("elected").isNull(), codes.NO_ELIGIBLE_LEADER.value),
    )


def _rejection_reason() -> Column:
    return reason_by_code(
        {
            **NO_ELECTION_REASONS,
            RejectionCode.ILLEGAL_TRANSITION: F.col("illegal"),
            RejectionCode.ELECTION_NOT_NEEDED: sentence(reasons.LEADER_ALIVE, leader=F.col("leader")),
            RejectionCode.NO_ELIGIBLE_LEADER: no_leader_reason(),
        },
    )


def offline_verdicts(considered: DataFrame, broker_configs: DataFrame, *, unclean: bool) -> DataFrame:
    """Return the verdict on each requested partition: `code` and `reason` if there is no election, else null."""
    return (
        considered.transform(with_unclean_allowed, broker_configs, everywhere=unclean)
        .transform(with_election)
        .transform(with_transition, Action.ELECT)
        .withColumns({"code": _code()})
        .withColumns({"reason": _rejection_reason()})
    )


def changes_of(verdicts: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition that gets a leader."""
    return verdicts.where("code IS NULL").transform(change_columns, {"action": f"'{Action.ELECT}'", **ELECTED})


def rejections_of(verdicts: DataFrame) -> DataFrame:
    """Return one REJECTIONS row per requested partition without an election."""
    return verdicts.transform(as_rejections, Action.ELECT)
