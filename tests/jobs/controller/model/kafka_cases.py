"""Kafka's own tests of its ZooKeeper controller, as a table: their setup, their events, and what they expect.

Names are those of the methods in Kafka 3.9: ControllerIntegrationTest (C), TopicDeletionManagerTest (D),
DeleteTopicTest (T), ReplicaStateMachineTest (R), PartitionStateMachineTest (P), and the parts of
ReassignPartitionsIntegrationTest (A) that concern the controller, which later became ReassignPartitionsCommandTest, and
LeaderElectionTest (L).
Each case is a cluster of its own, except for reassignments, and one controller serves all of them. If Kafka creates a
topic first, it exists here already, at leader epoch 5, and epochs are counted from there. Cases that need another
controller in between are in a table of their own, run in a small simulation: a new controller sends all brokers the
full state, which would hide errors that the other cases are to find.

Intended differences:
- A move to a broker that is not live starts once the broker is, where Kafka assigns it at once.
- A broker that dies costs one leader epoch, also at a fail-over, where Kafka takes two.
- Replicas are stopped before they are removed from the assignment, so a move from a to b also costs three leader epochs
  (start, narrow, end), and one whose target restarts in between costs no more.
- No replica of a topic is deleted before all replicas are reachable, where Kafka deletes those that are.
- A requested preferred election is done before a deletion continues.
- Partitions added to a topic that is queued for deletion are deleted with it, where Kafka removes them from the znode.
- A preferred replica that leads already is not elected again.
- A cancelled or overridden move costs one more leader epoch.

Kafka's other tests, and what tests the same here, are in kafka_tests.md.
"""

from typing import Any, Final, NamedTuple

from tests.jobs.controller.model.scenarios import Event, Point, Scenario

FIRST_LEADER_EPOCH: Final = 5
"""The leader epoch of partitions that exist at the beginning."""

ROUNDS: Final = 8
ALL_BROKERS: Final = frozenset(range(4))

LeaderState = tuple[int, int, list[int]]
"""Leader, leader epoch, ISR."""


class Case(NamedTuple):
    """A case. `states` and `assigned` are expected at the end, by topic and partition; None if nothing exists then."""

    replicas: dict[int, list[int]]
    events: list[tuple[int, str, tuple[Any, ...]]]
    states: dict[tuple[str, int], LeaderState | None]
    assigned: dict[tuple[str, int], list[int]] = {}  # noqa: RUF012 - it is never changed
    queued: bool = False
    """The deletion is still queued at the end."""
    stay_dead: frozenset[int] = ALL_BROKERS
    stay_failed: bool = True
    has_request: bool = False
    """A request for a move that has not started still exists at the end."""


T0: Final = ("a", 0)
CASES: Final[dict[str, Case]] = {
    "C.testTopicCreation, P.testNewPartitionToOnlinePartitionTransition": Case(
        {0: [0]}, [(0, "create", ("b", {0: [0]}))], {("b", 0): (0, 0, [0])}
    ),
    "C.testTopicCreationWithOfflineReplica": Case(
        {0: [0]}, [(0, "kill", (1,)), (1, "create", ("b", {0: [1, 0]}))], {("b", 0): (0, 0, [0])}
    ),
    "C.testTopicPartitionExpansion": Case({0: [0]}, [(0, "grow", ("a", [0]))], {("a", 1): (0, 0, [0])}),
    "C.testTopicPartitionExpansionWithOfflineReplica": Case(
        {0: [1, 0]}, [(0, "kill", (1,)), (1, "grow", ("a", [1, 0]))], {("a", 1): (0, 0, [0])}
    ),
    "C.testPartitionReassignment": Case(
        {0: [0]}, [(0, "reassign", ("a", 0, [1]))], {T0: (1, FIRST_LEADER_EPOCH + 3, [1])}, {T0: [1]}
    ),
    "C.testPartitionReassignmentToBrokerWithOfflineLogDir": Case(
        {0: [0], 1: [1]},
        [(0, "fail_dir", (1, of_three)) for of_three in range(3)] + [(2, "reassign", ("a", 0, [1]))],
        {T0: (1, FIRST_LEADER_EPOCH + 3, [1])},
        {T0: [1]},
    ),
    "C.testPartitionReassignmentWithOfflineReplicaHaltingProgress: intentionally not started": Case(
        {0: [0]},
        [(0, "kill", (1,)), (1, "reassign", ("a", 0, [1]))],
        {T0: (0, FIRST_LEADER_EPOCH, [0])},
        {T0: [0]},
        has_request=True,
    ),
    "C.testPartitionReassignmentWithOfflineReplicaHaltingProgress: dies in between, intentionally waited for": Case(
        {0: [0]},
        [(0, "lag", (1,)), (0, "reassign", ("a", 0, [1])), (2, "kill", (1,))],
        {T0: (0, FIRST_LEADER_EPOCH + 1, [0])},
        {T0: [1, 0]},
    ),
    "C.testPartitionReassignmentResumesAfterReplicaComesOnline": Case(
        {0: [0]},
        [(0, "lag", (1,)), (0, "reassign", ("a", 0, [1])), (2, "kill", (1,)), (4, "start", (1,))],
        {T0: (1, FIRST_LEADER_EPOCH + 3, [1])},
        {T0: [1]},
    ),
    "C.testPreferredReplicaLeaderElection": Case(
        {0: [1, 0]},
        [(0, "kill", (1,)), (2, "start", (1,)), (5, "elect", T0)],
        {T0: (1, FIRST_LEADER_EPOCH + 2, [0, 1])},
    ),
    "C.testPreferredReplicaLeaderElectionWithOfflinePreferredReplica": Case(
        {0: [1, 0]}, [(0, "kill", (1,)), (2, "elect", T0)], {T0: (0, FIRST_LEADER_EPOCH + 1, [0])}
    ),
    "C.testBackToBackPreferredReplicaLeaderElections": Case(
        {0: [1, 0]},
        [
            *((0, "kill", (1,)), (1, "start", (1,)), (3, "elect", T0)),
            *((4, "kill", (1,)), (5, "start", (1,)), (7, "elect", T0)),
        ],
        {T0: (1, FIRST_LEADER_EPOCH + 4, [0, 1])},
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled": Case(
        {0: [1]}, [(0, "kill", (1,))], {T0: (-1, FIRST_LEADER_EPOCH + 1, [1])}
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled": Case(
        {0: [1]}, [(0, "unclean", ("a", True)), (1, "kill", (1,))], {T0: (-1, FIRST_LEADER_EPOCH + 1, [1])}
    ),
    "P.testOfflinePartitionToUncleanOnlinePartitionTransition": Case(
        {0: [0, 1]},
        [(0, "unclean", ("a", True)), (0, "kill", (1,)), (5, "kill", (0,)), (5, "start", (1,))],
        {T0: (1, FIRST_LEADER_EPOCH + 2, [1])},
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled: only afterwards": Case(
        {0: [0, 1]},
        [(0, "kill", (1,)), (2, "kill", (0,)), (2, "start", (1,)), (4, "unclean", ("a", True))],
        {T0: (1, FIRST_LEADER_EPOCH + 3, [1])},
    ),
    "C.testControllerDetectsBouncedBrokers": Case(
        {0: [0, 1]}, [(0, "bounce", (1,))], {T0: (0, FIRST_LEADER_EPOCH + 1, [0, 1])}
    ),
    "L.testLeaderElectionAndEpoch": Case(
        {0: [0, 1]},
        [(0, "kill", (1,)), (2, "start", (1,)), (5, "kill", (0,))],
        {T0: (1, FIRST_LEADER_EPOCH + 2, [1])},
    ),
    "P.testOfflinePartitionToOnlinePartitionTransition": Case(
        {0: [1]}, [(0, "kill", (1,)), (2, "start", (1,))], {T0: (1, FIRST_LEADER_EPOCH + 2, [1])}
    ),
    "R.testOnlineReplicaToOfflineReplicaTransition": Case(
        {0: [0, 1, 2]}, [(0, "kill", (1,))], {T0: (0, FIRST_LEADER_EPOCH + 1, [0, 2])}
    ),
    "R.testOfflineReplicaToOnlineReplicaTransition": Case(
        {0: [0, 1]}, [(0, "kill", (1,)), (2, "start", (1,))], {T0: (0, FIRST_LEADER_EPOCH + 1, [0, 1])}
    ),
    "D.testBasicDeletion": Case({0: [0, 1, 2], 1: [1, 2, 0]}, [(0, "delete", ("a",))], {T0: None, ("a", 1): None}),
    "D.testDeletionWithBrokerOffline": Case(
        {0: [0, 1, 2]}, [(0, "kill", (2,)), (1, "delete", ("a",)), (4, "start", (2,))], {T0: None}
    ),
    "D.testDeletionWithBrokerOffline: halted": Case(
        {0: [0, 1, 2]},
        [(0, "kill", (2,)), (2, "delete", ("a",))],
        {T0: (0, FIRST_LEADER_EPOCH + 1, [0, 1])},
        queued=True,
    ),
    "D.testBrokerFailureAfterDeletionStarted": Case(
        {0: [0, 1, 2]},
        [(0, "stall", (2,)), (0, "delete", ("a",)), (2, "kill", (2,)), (4, "start", (2,))],
        {T0: None},
    ),
    "T.testPartitionReassignmentDuringDeleteTopic": Case(
        {0: [0, 1]},
        [(0, "stall", (1,)), (0, "delete", ("a",)), (1, "reassign", ("a", 0, [1, 2])), (3, "stall", (1,))],
        {T0: None},
    ),
    "T.testDeleteTopicDuringAddPartition": Case(
        {0: [0, 1, 2]},
        [(0, "kill", (2,)), (1, "grow", ("a", [0, 1, 2])), (1, "delete", ("a",)), (4, "start", (2,))],
        {T0: None, ("a", 1): None},
    ),
    "T.testAddPartitionDuringDeleteTopic": Case(
        {0: [0, 1, 2]},
        [(0, "stall", (2,)), (0, "delete", ("a",)), (2, "grow", ("a", [0, 1, 2])), (4, "stall", (2,))],
        {T0: None, ("a", 1): None},
    ),
    "T.testRecreateTopicAfterDeletion": Case(
        {0: [0, 1]}, [(0, "delete", ("a",)), (5, "create", ("a", {0: [1, 0]}))], {T0: (1, 0, [1, 0])}
    ),
    "T.testDeleteNonExistingTopic": Case({0: [0]}, [(0, "delete", ("nothing",))], {T0: (0, FIRST_LEADER_EPOCH, [0])}),
}

SLOW_BROKER: Final = 4
"""The broker that lags until the fifth round."""

REASSIGNMENT_CASES: Final[dict[str, Case]] = {
    "A.testReassignmentWithAlterIsrDisabled": Case(
        {0: [0, 1, 2], 1: [3, 2, 1]},
        [(0, "reassign", ("foo", 0, [0, 1, 3])), (0, "reassign", ("foo", 1, [3, 2, 0]))],
        {("foo", 0): (0, FIRST_LEADER_EPOCH + 3, [0, 1, 3]), ("foo", 1): (3, FIRST_LEADER_EPOCH + 3, [3, 2, 0])},
        {("foo", 0): [0, 1, 3], ("foo", 1): [3, 2, 0]},
    ),
    "A.testHighWaterMarkAfterPartitionReassignment": Case(
        {0: [0, 1, 2]},
        [(0, "reassign", ("high", 0, [3, 1, 2]))],
        {("high", 0): (3, FIRST_LEADER_EPOCH + 3, [1, 2, 3])},
        {("high", 0): [3, 1, 2]},
    ),
    "A.testProduceAndConsumeWithReassignmentInProgress": Case(
        {0: [0, 2, 1]},
        [(0, "reassign", ("baz", 0, [SLOW_BROKER, 2, 1]))],
        {("baz", 0): (SLOW_BROKER, FIRST_LEADER_EPOCH + 3, [2, 1, SLOW_BROKER])},
        {("baz", 0): [SLOW_BROKER, 2, 1]},
    ),
    "A.testCancellation": Case(
        {0: [0, 1, 2]},
        [(0, "reassign", ("back", 0, [0, 1, SLOW_BROKER])), (3, "cancel", ("back", 0)), (6, "cancel", ("back", 0))],
        {("back", 0): (0, FIRST_LEADER_EPOCH + 3, [0, 1, 2])},
        {("back", 0): [0, 1, 2]},
    ),
    "A.testCancellationWithAddingReplicaInIsr": Case(
        {0: [0, 1, 2]},
        [(0, "reassign", ("in_sync", 0, [0, 3, SLOW_BROKER])), (4, "cancel", ("in_sync", 0))],
        {("in_sync", 0): (0, FIRST_LEADER_EPOCH + 4, [0, 1, 2])},
        {("in_sync", 0): [0, 1, 2]},
    ),
    "A: a request for a moving partition overrides the one before, as in KIP-455": Case(
        {0: [0, 1]},
        [(0, "reassign", ("other", 0, [0, SLOW_BROKER])), (3, "reassign", ("other", 0, [3, 0]))],
        {("other", 0): (0, FIRST_LEADER_EPOCH + 4, [0, 3])},
        {("other", 0): [3, 0]},
    ),
    "P.testOnlinePartitionToOnlineTransition: intentionally not written": Case(
        {0: [0]}, [(0, "elect", ("led", 0))], {("led", 0): (0, FIRST_LEADER_EPOCH, [0])}
    ),
}
"""They do not interfere with each other, so one cluster runs them all: the cost of decisions grows with brokers."""

REASSIGNMENT_SCENARIO: Final = Scenario(
    0,
    SLOW_BROKER + 1,
    {next(iter(case.states))[0]: case.replicas for case in REASSIGNMENT_CASES.values()},
    tuple(
        Event(number, Point.BEFORE_CYCLE, kind, args)
        for number, kind, args in [
            (0, "lag", (SLOW_BROKER,)),
            *(event for case in REASSIGNMENT_CASES.values() for event in case.events),
            (5, "lag", (SLOW_BROKER,)),
        ]
    ),
)

FAILOVER_ROUND: Final = 3
"""The round in which the controller is killed, and another one takes over."""

FAILOVER_CASES: Final[dict[str, Case]] = {
    "D.testInitialization": Case(
        {0: [0, 1]},
        [
            *((0, "create", ("b", {0: [0]})), (0, "create", ("c", {0: [0]})), (0, "lag", (2,))),
            *((1, "reassign", ("b", 0, [2])), (1, "reassign", ("c", 0, [2])), (2, "kill", (2,))),
            *((FAILOVER_ROUND, "delete", ("a",)), (FAILOVER_ROUND, "delete", ("b",))),
        ],
        {T0: None, ("b", 0): (0, 1, [0]), ("c", 0): (0, 1, [0])},
        {("b", 0): [2, 0], ("c", 0): [2, 0]},
        queued=True,
    ),
    "T.testResumeDeleteTopicOnControllerFailover": Case(
        {0: [0, 1, 2]},
        [
            *((0, "kill", (2,)), (1, "delete", ("a",)), (FAILOVER_ROUND, "kill", (1,))),
            *((FAILOVER_ROUND + 2, "start", (1,)), (FAILOVER_ROUND + 2, "start", (2,))),
        ],
        {T0: None},
    ),
    "T.testIncreasePartitionCountDuringDeleteTopic": Case(
        {0: [0, 1, 2]},
        [
            *((0, "kill", (2,)), (1, "delete", ("a",)), (2, "grow", ("a", [0, 1, 2])), (FAILOVER_ROUND, "kill", (1,))),
            *((FAILOVER_ROUND + 2, "start", (1,)), (FAILOVER_ROUND + 2, "start", (2,))),
        ],
        {T0: None, ("a", 1): None},
    ),
}

SHUTDOWN_ORDER: Final = Scenario(
    0,
    4,
    {"a_then_b": {0: [0, 1]}, "b_then_a": {0: [2, 3]}},
    tuple(
        Event(number, Point.BEFORE_CYCLE, "kill", (broker,))
        for number, broker in ((1, 0), (FAILOVER_ROUND, 1), (FAILOVER_ROUND, 3), (5, 2))
    ),
    stay_dead=ALL_BROKERS,
)
"""A and B have all replicas and go down, in either order; B (1 and 3) in the round in which a controller is killed."""
