"""The replica state machine as data: valid transitions, the requests that they send, and the present states.

Corresponds to `ReplicaStateMachine` and `ReplicaState.validPreviousStates` of Kafka 2.x. The controller keeps no
states: each cycle derives them from the snapshot and from the responses of brokers. In: replicas as
`planner.reconciliation.topic_deletion.replicas_of` returns them. Out: the same with `state`; and ISRs without the
replicas that leave.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference
from schemas.enums import NO_LEADER, RejectionCode, ReplicaState
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA

_S: Final = ReplicaState

VALID_PREVIOUS: Final[Mapping[ReplicaState, tuple[ReplicaState, ...]]] = {
    _S.NEW: (_S.NON_EXISTENT,),
    _S.ONLINE: (_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE),
    _S.OFFLINE: (_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE),
    _S.DELETION_STARTED: (_S.OFFLINE,),
    _S.DELETION_SUCCESSFUL: (_S.DELETION_STARTED,),
    _S.DELETION_INELIGIBLE: (_S.OFFLINE, _S.DELETION_STARTED),
    _S.NON_EXISTENT: (_S.DELETION_SUCCESSFUL,),
}
"""By state, the states that it may follow."""

REQUESTS_BY_STATE: Final[Mapping[ReplicaState, tuple[str, ...]]] = {
    _S.NEW: (LEADER_AND_ISR, UPDATE_METADATA),
    _S.ONLINE: (LEADER_AND_ISR, UPDATE_METADATA),
    _S.OFFLINE: (STOP_REPLICA, LEADER_AND_ISR, UPDATE_METADATA),
    _S.DELETION_STARTED: (STOP_REPLICA,),
    _S.DELETION_SUCCESSFUL: (),
    _S.DELETION_INELIGIBLE: (),
    _S.NON_EXISTENT: (),
}
"""By state, the requests that are sent to brokers when a replica enters it."""

STATE: Final = f"""CASE
    WHEN NOT assigned THEN '{_S.NON_EXISTENT}'
    WHEN deletion_requested AND deleted THEN '{_S.DELETION_SUCCESSFUL}'
    WHEN deletion_requested AND told THEN IF(in_reach, '{_S.DELETION_STARTED}', '{_S.DELETION_INELIGIBLE}')
    WHEN deletion_requested AND NOT in_reach THEN '{_S.DELETION_INELIGIBLE}'
    WHEN NOT in_reach THEN '{_S.OFFLINE}'
    WHEN is_new THEN '{_S.NEW}'
    ELSE '{_S.ONLINE}'
END"""
"""The state of a replica, as a controller finds it at its take-over (`ReplicaStateMachine.initializeReplicaState`)."""


def with_state(replicas: DataFrame) -> DataFrame:
    """Add `state`. In: assigned, deletion_requested, in_reach, is_new, told (StopReplica sent), deleted (confirmed)."""
    return replicas.selectExpr("*", f"{STATE} AS state")


def legal(state: Column, to: ReplicaState) -> Column:
    """Return whether a replica in `state` may enter the state `to`."""
    return state.isin(*(previous.value for previous in VALID_PREVIOUS[to]))


def with_transition(replicas: DataFrame, to: ReplicaState) -> DataFrame:
    """Add `code` and `reason`: why a replica cannot enter the state `to`, null if it can."""
    starts = ", ".join(VALID_PREVIOUS[to])
    why = F.concat(F.lit("replica is "), F.col("state"), F.lit(f"; {to} follows {starts} only"))
    illegal = ~legal(F.col("state"), to)
    return replicas.withColumns(
        {
            "code": F.when(illegal, RejectionCode.ILLEGAL_TRANSITION.value),
            "reason": F.when(illegal, why),
        },
    )


def removed_from_isr(partitions: DataFrame, leaving: Column) -> DataFrame:
    """Add leader_after, isr_after and leader_epoch_after, as replicas leave the ISR; null if nothing is written.

    Nothing is written for a leaving replica that is not in the ISR. The only member of an ISR stays in it, and the
    partition then has no leader. If all members leave at once, all of them stay in it: any of them may come back with
    the data, and the order in which brokers went down must not matter. Corresponds to
    `ReplicaStateMachine.doRemoveReplicasFromIsr`; `leaving`: broker ids.
    """
    concerned = F.arrays_overlap("isr", leaving)
    staying = difference(F.col("isr"), leaving)
    isr = F.when(F.size(staying) > 0, staying).otherwise(F.col("isr"))
    leader = F.when(F.array_contains(leaving, F.col("leader")), NO_LEADER).otherwise(F.col("leader"))
    return partitions.withColumns(
        {
            "leader_after": F.when(concerned, leader),
            "isr_after": F.when(concerned, isr),
            "leader_epoch_after": F.when(concerned, F.col("leader_epoch") + 1),
        },
    )
