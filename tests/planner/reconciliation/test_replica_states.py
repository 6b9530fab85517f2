"""The replica state machine: every transition, the states of replicas, and ISRs that replicas leave."""

from itertools import product
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.reconciliation.replica_states import (
    REQUESTS_BY_STATE,
    VALID_PREVIOUS,
    removed_from_isr,
    with_state,
    with_transition,
)
from schemas.enums import NO_LEADER, RejectionCode, ReplicaState
from tests.planner.frames import as_rows

S = ReplicaState

# ReplicaState.scala of Kafka 3.9, from -> to, each way allowed
ALLOWED: Final = {
    (S.NON_EXISTENT, S.NEW),
    *((previous, S.ONLINE) for previous in (S.NEW, S.ONLINE, S.OFFLINE, S.DELETION_INELIGIBLE)),
    *((previous, S.OFFLINE) for previous in (S.NEW, S.ONLINE, S.OFFLINE, S.DELETION_INELIGIBLE)),
    (S.OFFLINE, S.DELETION_STARTED),
    (S.DELETION_STARTED, S.DELETION_SUCCESSFUL),
    (S.OFFLINE, S.DELETION_INELIGIBLE),
    (S.DELETION_STARTED, S.DELETION_INELIGIBLE),
    (S.DELETION_SUCCESSFUL, S.NON_EXISTENT),
}


def test_transitions_are_legal_or_have_a_reason(spark: SparkSession) -> None:
    assert set(VALID_PREVIOUS) == set(REQUESTS_BY_STATE) == set(S)
    states = spark.createDataFrame([(state.value,) for state in S], "state string")
    transitions = {(S(row["state"]), to): row for to in S for row in as_rows(states.transform(with_transition, to))}

    assert {pair for pair, row in transitions.items() if row["code"] is None} == ALLOWED
    assert {row["code"] for pair, row in transitions.items() if pair not in ALLOWED} == {
        RejectionCode.ILLEGAL_TRANSITION
    }
    assert transitions[S.ONLINE, S.DELETION_STARTED]["reason"] == (
        "replica is OnlineReplica; ReplicaDeletionStarted follows OfflineReplica only"
    )


def test_state_of_a_replica(spark: SparkSession) -> None:
    names = ("assigned", "deletion_requested", "in_reach", "is_new", "told", "deleted")
    worlds = list(product((True, False), repeat=len(names)))
    rows = as_rows(spark.createDataFrame(worlds, ", ".join(f"{name} boolean" for name in names)).transform(with_state))

    def expected(row: dict[str, bool]) -> ReplicaState:
        """As `initializeReplicaState`, and as `TopicDeletionManager` goes on from there."""
        if not row["assigned"]:
            return S.NON_EXISTENT
        if row["deletion_requested"]:
            if row["deleted"]:
                return S.DELETION_SUCCESSFUL
            if not row["in_reach"]:
                return S.DELETION_INELIGIBLE
            if row["told"]:
                return S.DELETION_STARTED
        elif not row["in_reach"]:
            return S.OFFLINE
        return S.NEW if row["is_new"] else S.ONLINE

    assert [row["state"] for row in rows] == [expected(row) for row in rows]


def test_replica_leaves_the_isr(spark: SparkSession) -> None:
    """`ReplicaStateMachineTest`: non-members change nothing, the only member stays, and the leader becomes -1."""
    cases = [
        # leader, ISR, leaving replicas -> leader and ISR afterwards, or nothing
        (1, [1, 2, 3], [3], (1, [1, 2], 6)),
        (1, [1, 2, 3], [1], (NO_LEADER, [2, 3], 6)),
        (1, [1, 2, 3], [7], None),
        (1, [1], [1], (NO_LEADER, [1], 6)),
        (1, [1, 2, 3], [2, 3], (1, [1], 6)),
        (1, [1, 2], [2, 1], (NO_LEADER, [1, 2], 6)),
        (1, [1, 2], [1, 2], (NO_LEADER, [1, 2], 6)),  # in either order
        (NO_LEADER, [2, 3], [2], (NO_LEADER, [3], 6)),
    ]
    rows = [(number, leader, isr, 5, leaving) for number, (leader, isr, leaving, _) in enumerate(cases)]
    frame = spark.createDataFrame(rows, "n int, leader int, isr array<int>, leader_epoch int, leaving array<int>")

    shrunk = sorted(as_rows(removed_from_isr(frame, F.col("leaving"))), key=lambda row: row["n"])

    after = [(row["leader_after"], row["isr_after"], row["leader_epoch_after"]) for row in shrunk]
    assert [None if row == (None, None, None) else row for row in after] == [case[3] for case in cases]
