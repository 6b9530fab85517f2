"""CreateTopics, CreatePartitions and DeleteTopics while Surveyor is the controller."""

from typing import Any, Final

import pytest

from jobs.adapters.brokers.control_encoding import as_uuid
from jobs.controller.admin_apis.requests import MAX_ACTIVE_REQUESTS, NO_TOPIC
from schemas.znode_codecs import decode_config
from tests.jobs.controller.admin_apis.clients import AdminClient
from tests.jobs.support.controllers.resident import run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config

TIMED_OUT: Final = 7


def test_a_topic_is_created_with_the_brokers_defaults(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.create({"name": "new", "configs": {"retention.ms": "5000"}}) == {"new": (0, None)}

    assignment = tree.assignment("new")
    replica_counts = {partition: len({*replicas}) for partition, replicas in assignment.partitions.items()}
    assert (replica_counts, assignment.topic_id is None) == ({0: 2, 1: 2, 2: 2}, False)
    assert decode_config(tree.client.get("/config/topics/new")[0]) == {"retention.ms": "5000"}
    assert {tree.state("new", number).leader for number in range(3)} == {0, 1, 2}


@pytest.mark.parametrize("version", range(8))
def test_every_version_creates(tree: KafkaTree, admin: AdminClient, version: int) -> None:
    assert admin.create({"name": "new", "partitions": 1, "factor": 3}, version=version)["new"][0] == 0
    assert len(tree.state("new").isr) == 3


def test_replicas_may_be_listed(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.create({"name": "hand", "assignments": {0: [2, 0], 1: [1, 2]}})["hand"] == (0, None)
    assert tree.assignment("hand").partitions == {0: [2, 0], 1: [1, 2]}


REFUSED: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "exists": (36, {"name": "orders"}),
    "name": (17, {"name": "bad name"}),
    "KRaft's log": (29, {"name": "__cluster_metadata"}),
    "metric name": (17, {"name": "or.ders", "partitions": 1}),
    "too many partitions": (44, {"name": "new", "partitions": 2**31 - 1}),
    "no partitions": (37, {"name": "new", "partitions": 0}),
    "too many replicas": (38, {"name": "new", "factor": 4}),
    "no replicas": (38, {"name": "new", "factor": 0}),
    "unknown config": (40, {"name": "new", "configs": {"retention.sm": "1"}}),
    "config value": (40, {"name": "new", "configs": {"retention.ms": "abc"}}),
    "null config": (40, {"name": "new", "configs": {"retention.ms": None}}),
    "both": (42, {"name": "new", "partitions": 1, "assignments": {0: [0]}}),
    "a gap": (39, {"name": "new", "assignments": {0: [0], 2: [1]}}),
    "twice": (39, {"name": "new", "assignments": {0: [0, 0]}}),
    "dead": (39, {"name": "new", "assignments": {0: [0, 7]}}),
    "uneven": (39, {"name": "new", "assignments": {0: [0, 1], 1: [2]}}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_topics_are_refused(tree: KafkaTree, admin: AdminClient, case: str) -> None:
    error, topic = REFUSED[case]
    if case == "metric name":
        admin.create({"name": "or_ders", "partitions": 1})
    before = tree.client.get_children("/brokers/topics")

    code, message = admin.create(topic)[topic["name"]]

    assert (code, bool(message)) == (error, True)
    assert tree.client.get_children("/brokers/topics") == before


def test_one_bad_topic_spoils_no_other(tree: KafkaTree, admin: AdminClient) -> None:
    answers = admin.create({"name": "new"}, {"name": "bad name"}, {"name": "dup"}, {"name": "dup"})

    assert {name: code for name, (code, _) in answers.items()} == {"new": 0, "bad name": 17, "dup": 42}
    assert {*tree.client.get_children("/brokers/topics")} == {"orders", "new"}


def test_a_dry_run_writes_nothing(tree: KafkaTree, admin: AdminClient) -> None:
    before = tree.dump()

    assert admin.create({"name": "new"}, dry=True) == {"new": (0, None)}
    assert tree.dump().keys() == before.keys()


def test_a_topic_without_live_replicas_is_created_late(tree: KafkaTree, admin: AdminClient) -> None:
    with_dead = {"name": "new", "assignments": {0: [2]}}
    tree.unregister(2)  # unnoticed until the topic is written

    code, _ = admin.create(with_dead, timeout=500)["new"]

    assert code in {TIMED_OUT, 39}


def test_partitions_are_added(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.extend("orders", 4) == (0, None)

    assignment = tree.assignment("orders")
    assert (assignment.partitions[0], assignment.partitions[1]) == ([0, 1], [1, 2])
    assert {len({*replicas}) for replicas in assignment.partitions.values()} == {2}
    assert {tree.state("orders", number).leader_epoch for number in (2, 3)} == {0}


def test_partitions_are_added_on_the_given_brokers(tree: KafkaTree, admin: AdminClient) -> None:
    assert admin.extend("orders", 4, [[2, 0], [0, 1]]) == (0, None)

    assert tree.assignment("orders").partitions == {0: [0, 1], 1: [1, 2], 2: [2, 0], 3: [0, 1]}


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (3, ("none", 4, None)),
        (37, ("orders", 2, None)),
        (37, ("orders", 1, None)),
        (39, ("orders", 3, [[0, 1], [1, 2]])),
        (39, ("orders", 3, [[0, 0]])),
        (39, ("orders", 3, [[0]])),
        (39, ("orders", 3, [[0, 7]])),
        (44, ("orders", 2**31 - 1, None)),
    ],
)
def test_partitions_are_refused(
    tree: KafkaTree, admin: AdminClient, error: int, asked: tuple[str, int, list[list[int]] | None]
) -> None:
    assert admin.extend(*asked)[0] == error
    assert tree.assignment("orders").partitions.keys() == {0, 1}


@pytest.mark.parametrize("version", range(6))
def test_topics_are_deleted(tree: KafkaTree, admin: AdminClient, version: int) -> None:
    answers = admin.delete("orders", "none", version=version)

    assert {name: code for name, (code, _) in answers.items()} == {"orders": 0, "none": 3}
    assert tree.client.exists("/brokers/topics/orders") is None


def test_a_topic_is_deleted_by_its_id(tree: KafkaTree, admin: AdminClient) -> None:
    topic_id = admin.controller.context.topic_id("orders")

    assert admin.delete_by_id(as_uuid("AAAAAAAAAAAAAAAAAAAAAg")) == (None, 100)
    assert admin.delete_by_id(as_uuid(topic_id)) == ("orders", 0)
    assert tree.client.exists("/brokers/topics/orders") is None


def test_a_deletion_that_waits_is_named_as_late(tree: KafkaTree, admin: AdminClient) -> None:
    tree.unregister(1)
    run_until_quiet(admin.controller)

    assert admin.delete("orders", timeout=300)["orders"][0] == TIMED_OUT
    assert tree.client.exists("/admin/delete_topics/orders")
    assert admin.create({"name": "orders"})["orders"][0] == 36


def test_waiting_requests_delay_no_other_and_end_with_the_term(tree: KafkaTree, admin: AdminClient) -> None:
    """More deletions than are worked on at once wait for a broker that is down; their clients look for a controller."""
    tree.unregister(1)
    run_until_quiet(admin.controller)
    waiting = [admin.send_deletion("orders") for _ in range(3 * MAX_ACTIVE_REQUESTS)]

    assert admin.create({"name": "new", "factor": 2}, timeout=5_000)["new"][0] == 0
    assert admin.reassignments() == {}
    assert not any(deletion.done() for deletion in waiting)

    admin.request_handler.close()
    assert {type(deletion.exception(5)) for deletion in waiting} == {ConnectionAbortedError}


def test_a_topic_is_deleted_twice(tree: KafkaTree, admin: AdminClient) -> None:
    """DeleteTopicTest: testDeleteTopicAlreadyMarkedAsDeleted."""
    tree.unregister(1)
    run_until_quiet(admin.controller)
    late = admin.delete("orders", timeout=300)
    tree.register(1)

    assert [late, admin.delete("orders"), admin.delete("orders")] == [
        {"orders": (TIMED_OUT, late["orders"][1])},
        {"orders": (0, None)},
        {"orders": (3, NO_TOPIC.message)},
    ]


def test_deletion_may_be_disabled(tree: KafkaTree, admin: AdminClient) -> None:
    """DeleteTopicTest: testDisableDeleteTopic."""
    rows = [broker_config(broker, "delete.topic.enable", "false") for broker in range(3)]
    admin.controller.engine.set_broker_configs([*admin.controller.engine.broker_configs, *rows])

    assert admin.delete("orders") == {"orders": (73, "delete.topic.enable is false")}
    assert tree.client.get_children("/admin/delete_topics") == []
    assert tree.state("orders").leader == 0
