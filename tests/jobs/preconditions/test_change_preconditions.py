"""Preconditions: a change is pending, already applied, or stale with a reason for the user."""

from typing import Any, Final

import msgspec
import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.precondition_reader import read_current
from jobs.preconditions.admin_changes import check_for_admin
from jobs.preconditions.change_preconditions import Preconditions
from jobs.preconditions.change_status import change_status
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition, CurrentTopic, Decoded
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.rows import Change, Row
from schemas.tables import CHANGES
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state
from tests.jobs.support.rows.plan_rows import creation, election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

DUE = (None, "due")
T = "t"


@pytest.fixture
def topic(tree: KafkaTree) -> KafkaTree:
    tree.add_topic(T, {0: [0, 1, 2]})
    return tree


def judged(tree: KafkaTree, warehouse: Warehouse, change: Row, then: Any = None) -> tuple[Outcome | None, str]:  # noqa: ANN401
    """Plan a change, call `then`, and judge; return outcome and message, None if it is pending."""
    plan = store_plan(warehouse, tree, [change])
    if then is not None:
        then()
    state, current = read_cluster(tree.client), read_current(tree.client, plan.changes)
    preconditions = Preconditions.in_batch_mode(plan.broker_epochs, plan.changes, state.live, state.deleting)
    due, outcomes = preconditions.check(plan.changes, current.partitions)
    assert len(due) + len(outcomes) == 1
    return (outcomes[0].outcome, outcomes[0].message) if outcomes else DUE


def elected(tree: KafkaTree, **columns: Any) -> Row:  # noqa: ANN401
    return election(tree, T, 0, leader=1, **columns)


def write_state(tree: KafkaTree, **state: Any) -> None:  # noqa: ANN401
    known: dict[str, Any] = {"controller_epoch": 8, "leader": 1, "leader_epoch": 6, "isr": [0, 1, 2]}
    tree.client.set(state_path(T, 0), encode_state(State(**known | state)))


@pytest.mark.parametrize("other", [{"leader": 2}, {"isr": [1, 0, 2]}, {"isr": [1]}, {"leader_epoch": 7}])
def test_state_of_another_writer_is_stale(topic: KafkaTree, warehouse: Warehouse, other: dict[str, Any]) -> None:
    outcome, message = judged(topic, warehouse, elected(topic), lambda: write_state(topic, **other))

    assert outcome is Outcome.STALE
    assert f"{state_path(T, 0)} is at version 1, planned at 0: leader {other.get('leader', 1)}" in message


def test_state_changed_after_it_was_applied_is_stale(topic: KafkaTree, warehouse: Warehouse) -> None:
    def moved_on() -> None:
        write_state(topic)
        topic.touch(state_path(T, 0))

    assert judged(topic, warehouse, elected(topic), moved_on)[0] is Outcome.STALE


def test_state_that_is_no_longer_understood_is_stale(topic: KafkaTree, warehouse: Warehouse) -> None:
    outcome = judged(topic, warehouse, elected(topic), lambda: topic.write(state_path(T, 0), b"?"))

    assert outcome == (
        Outcome.STALE,
        f"{state_path(T, 0)} is not understood (JSON is malformed: invalid character (byte 0))",
    )


def test_returned_but_unreadable_broker_counts_as_alive(topic: KafkaTree, warehouse: Warehouse) -> None:
    topic.unregister(0)

    outcome = judged(topic, warehouse, elected(topic, requires_dead=[0]), lambda: topic.register(0, b"?"))

    assert outcome == (Outcome.STALE, "broker 0 is live again")


def test_other_brokers_may_bounce(topic: KafkaTree, warehouse: Warehouse) -> None:
    assert judged(topic, warehouse, elected(topic), lambda: topic.bounce(2)) == DUE


def recreate_topic(tree: KafkaTree, topic_id: str | None, leader: int) -> None:
    """Create the topic again: all versions start at 0."""
    tree.client.delete("/brokers/topics/t", recursive=True)
    tree.client.delete("/config/topics/t")
    tree.add_topic(T, {0: [leader, 1, 2]}, topic_id=topic_id)


def test_recreated_topic_is_stale(topic: KafkaTree, warehouse: Warehouse) -> None:
    outcome = judged(
        topic, warehouse, elected(topic), lambda: recreate_topic(topic, "Aaaaaaaaaaaaaaaaaaaaag", leader=0)
    )

    assert outcome == (Outcome.STALE, "topic t was deleted and created again")


def test_recreated_topic_without_id_is_recognised_by_its_state(tree: KafkaTree, warehouse: Warehouse) -> None:
    tree.add_topic(T, {0: [0, 1, 2]}, topic_id=None)

    outcome = judged(tree, warehouse, elected(tree), lambda: recreate_topic(tree, None, leader=3))

    assert outcome[0] is Outcome.STALE
    assert "is at version 0, planned at 0: leader 3, ISR [3, 1, 2]" in outcome[1]


def test_new_topic_that_is_there_is_applied(tree: KafkaTree, warehouse: Warehouse) -> None:
    def created() -> None:
        tree.add_topic("new", {0: [0, 1]})
        first = State(controller_epoch=8, leader=0, leader_epoch=0, isr=[0, 1])
        tree.client.delete(state_path("new", 0))
        tree.write(state_path("new", 0), encode_state(first))

    assert judged(tree, warehouse, creation("new", 0, [0, 1]), created) == (Outcome.APPLIED, "found applied")


def judged_for_admin(tree: KafkaTree, change: Row, then: Any = None) -> tuple[Outcome | None, str]:  # noqa: ANN401
    if then is not None:
        then()
    changes = [msgspec.convert(change | {"cluster": "", "plan_id": ""}, Change)]
    due, outcomes = check_for_admin(changes, read_current(tree.client, changes))
    assert len(due) + len(outcomes) == 1
    return (outcomes[0].outcome, outcomes[0].message) if outcomes else DUE


def moved(tree: KafkaTree) -> Row:
    after = {"replicas_after": [0, 2], "adding_after": [], "removing_after": [1], "leader_epoch_after": None}
    return election(tree, T, 0, leader=0, action=Action.REASSIGN.value, **after)


def assign(tree: KafkaTree, replicas: list[int], adding: list[int], removing: list[int]) -> None:
    assignment = Assignment({0: replicas}, {0: adding}, {0: removing}, TOPIC_ID)
    tree.client.set("/brokers/topics/t", encode_assignment(assignment))


@pytest.mark.parametrize("make", [elected, moved])
def test_unchanged_partition_can_be_requested(topic: KafkaTree, make: Any) -> None:  # noqa: ANN401
    assert judged_for_admin(topic, make(topic)) == DUE


@pytest.mark.parametrize("isr", [[0], [0, 1]])
@pytest.mark.parametrize(("leader", "gone"), [(-1, 0), (0, 0), (2, None), (-1, None)])
def test_partition_without_in_sync_leader_is_not_moved(
    topic: KafkaTree, leader: int, gone: int | None, isr: list[int]
) -> None:
    """Kafka would accept the request; with unclean elections allowed it would elect a replica without records."""
    change = moved(topic)
    write_state(topic, leader=leader, isr=isr)
    if gone is not None:
        topic.unregister(gone)

    outcome, message = judged_for_admin(topic, change)

    assert outcome is Outcome.STALE
    if gone is not None:
        assert message == f"broker {gone} is not live"
    else:
        assert f"no live leader is in its ISR (leader {leader}, ISR {isr})" in message
        assert "`surveyor status` shows how" in message


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "expected"),
    [
        ([0, 2], [], [], (Outcome.APPLIED, "found applied")),
        ([0, 2, 1], [], [1], (Outcome.APPLIED, "found in progress")),
        ([1, 2], [], [], (Outcome.STALE, "its replicas are now [1, 2]")),
        ([2, 0, 1], [], [0], (Outcome.STALE, "its replicas are now [2, 0, 1]")),
    ],
)
def test_reassignment_since_the_snapshot(
    topic: KafkaTree, replicas: list[int], adding: list[int], removing: list[int], expected: tuple[Outcome, str]
) -> None:
    change = moved(topic)

    assert judged_for_admin(topic, change, lambda: assign(topic, replicas, adding, removing)) == expected


@pytest.mark.parametrize("make", [elected, moved])
def test_topic_created_again_as_planned_is_not_the_planned_one(topic: KafkaTree, make: Any) -> None:  # noqa: ANN401
    change = make(topic) | {"leader_after": 0, "replicas_after": [0, 1, 2]}

    outcome = judged_for_admin(topic, change, lambda: recreate_topic(topic, "Aaaaaaaaaaaaaaaaaaaaag", leader=0))

    assert outcome == (Outcome.STALE, "topic t was deleted and created again")


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([0, 1], (Outcome.APPLIED, "found applied")),
        ([1, 0], (Outcome.STALE, "topic new exists and is not the one planned")),
    ],
)
def test_topic_that_kafka_made_counts_by_its_replicas(
    tree: KafkaTree, replicas: list[int], expected: tuple[Outcome, str]
) -> None:
    """Kafka gives it an id of its own."""
    tree.add_topic("new", {0: replicas}, topic_id="Aaaaaaaaaaaaaaaaaaaaag")

    assert judged_for_admin(tree, creation("new", 0, [0, 1])) == expected


MINE, OTHER = "AAAAAAAAAAAAAAAAAAAAAg", "BBBBBBBBBBBBBBBBBBBBBg"
COMPLETE, DIVERGED = ReassignmentStatus.COMPLETE, ReassignmentStatus.DIVERGED
STATE: Final = "leader 1, ISR [1, 2], leader epoch 6"
RECREATED: Final = "topic t was deleted and created again"


def _change(action: Action, **columns: Any) -> Change:  # noqa: ANN401 - columns of a change
    planned = {
        "action": action.value,
        "replicas_before": [1, 2],
        "leader_before": 2,
        "isr_before": [1, 2],
        "isr_after": [1],
        "leader_epoch_before": 5,
        "leader_epoch_after": 6,
        "adding_before": [],
        "removing_before": [],
        "is_new": False,
        "topic_version": 0,
        "topic_id": MINE,
    }
    row = dict.fromkeys(CHANGES.names) | creation("t", 0, [1, 2]) | planned | columns
    return msgspec.convert(row | {"cluster": "", "plan_id": ""}, Change)


NEW: Final = {"is_new": True, "replicas_before": None, "topic_version": NO_VERSION, "isr_after": [1, 2]}

# the change, replicas, ISR and topic id now -> status and detail
CASES: Final[list[tuple[Change, list[int], list[int], str, ReassignmentStatus, str]]] = [
    (_change(Action.CONTROLLED_SHUTDOWN), [1, 2], [1], MINE, COMPLETE, STATE.replace("1, 2", "1")),
    (_change(Action.CONTROLLED_SHUTDOWN), [1, 2], [1, 2], MINE, DIVERGED, f"broker 2 is in the ISR again: {STATE}"),
    (_change(Action.SHRINK_ISR), [1, 2], [1, 2], MINE, COMPLETE, STATE),
    (_change(Action.CREATE, **NEW), [1, 2], [1, 2], OTHER, COMPLETE, STATE),
    (_change(Action.CREATE, **NEW), [1, 3], [1, 2], OTHER, DIVERGED, "its replicas are now [1, 3]"),
    (_change(Action.CREATE, **NEW | {"topic_version": 0}), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
    (_change(Action.ELECT_PREFERRED), [1, 2], [1, 2], MINE, COMPLETE, STATE),
    (_change(Action.ELECT_PREFERRED), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
    (_change(Action.REASSIGN, replicas_before=[1, 3]), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
]


@pytest.mark.parametrize(("change", "replicas", "isr", "topic_id", "status", "detail"), CASES)
def test_change_status(  # noqa: PLR0913, PLR0917 - a table
    change: Change, replicas: list[int], isr: list[int], topic_id: str, status: ReassignmentStatus, detail: str
) -> None:
    topic = CurrentTopic("/brokers/topics/t", 0, Decoded(Assignment({0: replicas}, {}, {}, topic_id)))
    state = State(controller_epoch=1, leader=1, leader_epoch=6, isr=isr)

    found = change_status(
        change,
        [change] if change.action == Action.REASSIGN else [],
        CurrentPartition(topic, 0, "/brokers/topics/t/partitions/0/state", 1, Decoded(state)),
    )

    assert found == (status, detail)
