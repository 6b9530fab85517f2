"""Kafka's own tests of its ZooKeeper controller, as a table: what they set up, what they do, what they expect.

Names are those of the methods in Kafka 3.9: ControllerIntegrationTest (C), TopicDeletionManagerTest (D),
DeleteTopicTest (T), ReplicaStateMachineTest (R), PartitionStateMachineTest (P). Each is an island of its own, and one
controller serves all of them. Where Kafka creates a topic first, it is there already, at leader epoch 5: epochs are
counted from there. What needs another controller in the midst stands in a table of its own, as the world is small:
whoever takes over tells everybody everything, and would mend what the other rows are to show.

Deviations on purpose: a target that is not alive is refused and withdrawn, where Kafka's znode path waits for it; a
broker that dies costs one leader epoch, also at a fail-over, where Kafka's takes two; replicas are stopped before they
are forgotten, so that a move from a to b also costs three (start, narrow, end), and one whose target restarts under
way costs no more; a topic is not told to be deleted before all its replicas are in reach, where Kafka deletes those it
reaches; a preferred election that is asked for is done before a deletion goes on; partitions added to a topic that is
queued are deleted with it, where Kafka takes them out of the znode.

Not here, and why:
- testAlterPartition*, testIdempotentAlterPartition, testShutdownBrokerNotAddedToIsr: AlterPartition is not served.
- testControlledShutdown, testControllerRejectControlledShutdown…, …TransitionForControlledShutdown: nor is that API.
- testControllerFeatureZNodeSetup*: /feature is for inter.broker.protocol.version 2.7 and later, which is refused.
- testTopicId*, testNoTopicId*: topics keep the ids they have; from 2.8 on only the controller would add them.
- testAutoPreferredReplicaLeaderElection*: time stands still here; when leaders are balanced, and which, is tested in
  tests/jobs/cycle/test_balance.py, and once due these are elections as in testPreferredReplicaLeaderElection.
- testPreemption*, testControllerEpochPersists…, testControllerMove…: take-overs are tested on a real ZooKeeper
  (tests/jobs/cycle/test_control.py), and by the histories here.
- testMetadataPropagation*, testEmptyCluster: who is told which brokers are alive is an invariant of each history here.
- testInvalid…Transition, …PartitionsCount: there are no states in memory; legal transitions are a table of the planner
  (tests/planner/cycle/test_replicas.py).
- …ZooKeeperClientException…, …ErrorCodeFrom…: lost connections and refused multis befall each history here.
- KRaft's half of DeleteTopicTest, and testDeleteTopicWithCleaner: not the controller's.
- ReassignPartitionsIntegrationTest: about kafka-reassign-partitions; its moves are those of ControllerIntegrationTest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.lake import Lake
from tests.jobs.cycle.model.archipelago import Ordeal, World
from tests.jobs.cycle.model.found import FOUND
from tests.jobs.cycle.model.islands import ELECT, REASSIGN, Island
from tests.jobs.cycle.model.network import MOST_BROKERS
from tests.jobs.cycle.model.replay import told
from tests.jobs.cycle.model.scripts import Event, Point, Script

FIRST: Final = 5
"""The leader epoch of what is there at the beginning."""

ROUNDS: Final = 8
ALL: Final = frozenset({0, 1, 2})

Led = tuple[int, int, list[int]]
"""Leader, leader epoch, ISR."""


class Case(NamedTuple):
    """`states` and `replicas` are what is expected at the end, by topic and partition; None: nothing is there."""

    replicas: dict[int, list[int]]
    events: list[tuple[int, str, tuple[Any, ...]]]
    states: dict[tuple[str, int], Led | None]
    assigned: dict[tuple[str, int], list[int]] = {}  # noqa: RUF012 - nobody changes it
    queued: bool = False
    """The deletion still waits."""
    stay_dead: frozenset[int] = ALL
    stay_failed: bool = True


T0: Final = ("a", 0)
CASES: Final[dict[str, Case]] = {
    "C.testTopicCreation": Case({0: [0]}, [(0, "create", ("b", {0: [0]}))], {("b", 0): (0, 0, [0])}),
    "C.testTopicCreationWithOfflineReplica": Case(
        {0: [0]}, [(0, "kill", (1,)), (1, "create", ("b", {0: [1, 0]}))], {("b", 0): (0, 0, [0])}
    ),
    "C.testTopicPartitionExpansion": Case({0: [0]}, [(0, "grow", ("a", [0]))], {("a", 1): (0, 0, [0])}),
    "C.testTopicPartitionExpansionWithOfflineReplica": Case(
        {0: [1, 0]}, [(0, "kill", (1,)), (1, "grow", ("a", [1, 0]))], {("a", 1): (0, 0, [0])}
    ),
    "C.testPartitionReassignment": Case(
        {0: [0]}, [(0, "reassign", ("a", 0, [1]))], {T0: (1, FIRST + 3, [1])}, {T0: [1]}
    ),
    "C.testPartitionReassignmentToBrokerWithOfflineLogDir": Case(
        {0: [0], 1: [1]},
        [(0, "fail_dir", (1, of_three)) for of_three in range(3)] + [(2, "reassign", ("a", 0, [1]))],
        {T0: (1, FIRST + 3, [1])},
        {T0: [1]},
    ),
    "C.testPartitionReassignmentWithOfflineReplicaHaltingProgress: on purpose refused": Case(
        {0: [0]}, [(0, "kill", (1,)), (1, "reassign", ("a", 0, [1]))], {T0: (0, FIRST, [0])}, {T0: [0]}
    ),
    "C.testPartitionReassignmentWithOfflineReplicaHaltingProgress: dies under way, on purpose waited for": Case(
        {0: [0]},
        [(0, "lag", (1,)), (0, "reassign", ("a", 0, [1])), (2, "kill", (1,))],
        {T0: (0, FIRST + 1, [0])},
        {T0: [1, 0]},
    ),
    "C.testPartitionReassignmentResumesAfterReplicaComesOnline": Case(
        {0: [0]},
        [(0, "lag", (1,)), (0, "reassign", ("a", 0, [1])), (2, "kill", (1,)), (4, "start", (1,))],
        {T0: (1, FIRST + 3, [1])},
        {T0: [1]},
    ),
    "C.testPreferredReplicaLeaderElection": Case(
        {0: [1, 0]},
        [(0, "kill", (1,)), (2, "start", (1,)), (5, "elect", T0)],
        {T0: (1, FIRST + 2, [0, 1])},
    ),
    "C.testPreferredReplicaLeaderElectionWithOfflinePreferredReplica": Case(
        {0: [1, 0]}, [(0, "kill", (1,)), (2, "elect", T0)], {T0: (0, FIRST + 1, [0])}
    ),
    "C.testBackToBackPreferredReplicaLeaderElections": Case(
        {0: [1, 0]},
        [
            *((0, "kill", (1,)), (1, "start", (1,)), (3, "elect", T0)),
            *((4, "kill", (1,)), (5, "start", (1,)), (7, "elect", T0)),
        ],
        {T0: (1, FIRST + 4, [0, 1])},
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled": Case(
        {0: [1]}, [(0, "kill", (1,))], {T0: (-1, FIRST + 1, [1])}
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled": Case(
        {0: [1]}, [(0, "unclean", ("a", True)), (1, "kill", (1,))], {T0: (-1, FIRST + 1, [1])}
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled: another replica is alive": Case(
        {0: [0, 1]},
        [(0, "unclean", ("a", True)), (0, "kill", (1,)), (5, "kill", (0,)), (5, "start", (1,))],
        {T0: (1, FIRST + 2, [1])},
    ),
    "C.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled: only afterwards": Case(
        {0: [0, 1]},
        [(0, "kill", (1,)), (2, "kill", (0,)), (2, "start", (1,)), (4, "unclean", ("a", True))],
        {T0: (1, FIRST + 3, [1])},
    ),
    "C.testControllerDetectsBouncedBrokers": Case({0: [0, 1]}, [(0, "bounce", (1,))], {T0: (0, FIRST + 1, [0, 1])}),
    "P.testOfflinePartitionToOnlinePartitionTransition": Case(
        {0: [1]}, [(0, "kill", (1,)), (2, "start", (1,))], {T0: (1, FIRST + 2, [1])}
    ),
    "R.testOnlineReplicaToOfflineReplicaTransition": Case(
        {0: [0, 1, 2]}, [(0, "kill", (1,))], {T0: (0, FIRST + 1, [0, 2])}
    ),
    "R.testOfflineReplicaToOnlineReplicaTransition": Case(
        {0: [0, 1]}, [(0, "kill", (1,)), (2, "start", (1,))], {T0: (0, FIRST + 1, [0, 1])}
    ),
    "D.testBasicDeletion": Case({0: [0, 1, 2], 1: [1, 2, 0]}, [(0, "delete", ("a",))], {T0: None, ("a", 1): None}),
    "D.testDeletionWithBrokerOffline": Case(
        {0: [0, 1, 2]}, [(0, "kill", (2,)), (1, "delete", ("a",)), (4, "start", (2,))], {T0: None}
    ),
    "D.testDeletionWithBrokerOffline: halted": Case(
        {0: [0, 1, 2]},
        [(0, "kill", (2,)), (2, "delete", ("a",))],
        {T0: (0, FIRST + 1, [0, 1])},
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
    "T.testDeleteNonExistingTopic": Case({0: [0]}, [(0, "delete", ("nothing",))], {T0: (0, FIRST, [0])}),
}

FAILS_OVER: Final = 3
"""The round in which the controller is killed, and another one takes over."""

FAIL_OVERS: Final[dict[str, Case]] = {
    "T.testResumeDeleteTopicOnControllerFailover": Case(
        {0: [0, 1, 2]},
        [
            *((0, "kill", (2,)), (1, "delete", ("a",)), (FAILS_OVER, "kill", (1,))),
            *((FAILS_OVER + 2, "start", (1,)), (FAILS_OVER + 2, "start", (2,))),
        ],
        {T0: None},
    ),
    "T.testIncreasePartitionCountDuringDeleteTopic": Case(
        {0: [0, 1, 2]},
        [
            *((0, "kill", (2,)), (1, "delete", ("a",)), (2, "grow", ("a", [0, 1, 2])), (FAILS_OVER, "kill", (1,))),
            *((FAILS_OVER + 2, "start", (1,)), (FAILS_OVER + 2, "start", (2,))),
        ],
        {T0: None, ("a", 1): None},
    ),
}


@pytest.fixture(scope="module")
def islands(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Island]:
    """All of them at rest: Kafka's cases, then what was found."""
    scripts = [*map(_script, CASES.values()), *FOUND.values()]
    world = World(spark, Lake(str(tmp_path_factory.mktemp("model")), "model"), scripts, ROUNDS)
    world.run()
    return world.islands


def test_what_kafka_expects_of_its_controller(islands: list[Island]) -> None:
    wrong = _wrong(CASES, islands[: len(CASES)])

    assert not wrong, wrong


def test_what_kafka_expects_when_its_controller_fails_over(spark: SparkSession, tmp_path: Path) -> None:
    scripts = [*map(_script, FAIL_OVERS.values())]
    killed = {FAILS_OVER: Ordeal("killed", 1, late=False)}
    world = World(spark, Lake(str(tmp_path), "model"), scripts, ROUNDS, killed)
    world.run()

    wrong = _wrong(FAIL_OVERS, world.islands)

    assert world.offices == 2
    assert not wrong, wrong


def test_what_was_found_once_stays_mended(islands: list[Island]) -> None:
    failing = {name: told(island) for name, island in zip(FOUND, islands[len(CASES) :], strict=True) if island.faults}
    assert not failing, "\n\n".join(f"{name}\n{history}" for name, history in failing.items())


def _wrong(cases: Mapping[str, Case], islands: Sequence[Island]) -> str:
    """What is not as expected, case by case, with the history of each."""
    problems = {
        name: (_differs(case, island), told(island))
        for (name, case), island in zip(cases.items(), islands, strict=True)
    }
    return "\n\n".join(f"{name}: {wrong}\n{history}" for name, (wrong, history) in problems.items() if wrong)


def _script(case: Case) -> Script:
    events = tuple(Event(number, Point.BEFORE, kind, args) for number, kind, args in case.events)
    return Script(0, 3, {"a": case.replicas}, events, case.stay_dead, case.stay_failed)


def _differs(case: Case, island: Island) -> list[str]:
    """Say what is not as expected, and what breaks an invariant."""
    wrong = [*island.faults]
    for (name, partition), expected in case.states.items():
        found = island.state((island.topic(name), partition))
        state = (
            None if found is None else (_local(found[0].leader), found[0].leader_epoch, [*map(_local, found[0].isr)])
        )
        if state != expected:
            wrong.append(f"{name}-{partition} is {state}, expected is {expected}")
        kept = [each.id for each in island.brokers.values() if (island.topic(name), partition) in each.logs]
        if expected is None and kept:
            wrong.append(f"{name}-{partition} still has logs, on {kept}")
    for (name, partition), replicas in case.assigned.items():
        assignment = island.assignment(island.topic(name))
        assert assignment is not None
        if [*map(_local, assignment.partitions[partition])] != replicas:
            wrong.append(f"{name}-{partition} is assigned as {assignment}, expected is {replicas}")
    if any(island.is_queued(island.topic(name)) for name in ("a", "b", "nothing")) != case.queued:
        wrong.append("the deletion is still queued" if not case.queued else "the deletion is not queued any more")
    moves = any(set(case.assigned.get(T0, ())) > {*state[2]} for state in case.states.values() if state)
    if [*island.orders(ELECT)] or ([*island.orders(REASSIGN)] and not moves):
        wrong.append("a request still stands")
    return wrong


def _local(broker: int) -> int:
    return broker % MOST_BROKERS if broker >= 0 else broker
