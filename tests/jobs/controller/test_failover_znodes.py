"""What Kafka's fail-over completes, and so do we: /feature, and the ids of topics."""

import json

import pytest
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from schemas.znode_codecs import Endpoint
from tests.jobs.support.controllers.resident import initialize, put_assignment, requests_to, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config

FEATURE = "/feature"


@pytest.fixture
def serving(controller: ResidentController) -> ResidentController:
    """A controller that brokers ask."""
    controller.request_handler = RequestHandler()
    controller.endpoints.served = [Endpoint(None, "PLAINTEXT", "127.0.0.1", 9999)]
    return controller


def set_protocols(controller: ResidentController, *protocols: str) -> None:
    rows = [broker_config(b, "inter.broker.protocol.version", protocol) for b, protocol in enumerate(protocols)]
    controller.engine.set_broker_configs(rows)


def topic_id(tree: KafkaTree, topic: str) -> str | None:
    return tree.assignment(topic).topic_id


DISABLED, ENABLED = 0, 1


@pytest.mark.parametrize(
    ("protocol", "version", "status"),
    [
        ("2.6", 1, DISABLED),
        ("2.7-IV0", 1, ENABLED),
        ("3.2", 1, ENABLED),
        ("3.3-IV0", 2, ENABLED),
        ("3.9-IV0", 2, ENABLED),
    ],
)
def test_features_are_written(
    tree: KafkaTree, serving: ResidentController, protocol: str, version: int, status: int
) -> None:
    """ControllerIntegrationTest: testControllerFeatureZNodeSetup…WithNonExistingFeatureZNode."""
    set_protocols(serving, *[protocol] * 3)
    initialize(serving)

    assert json.loads(tree.client.get(FEATURE)[0]) == {"version": version, "status": status, "features": {}}


@pytest.mark.parametrize(
    ("protocol", "before", "after"),
    [
        ("2.7-IV0", DISABLED, ENABLED),
        ("2.7-IV0", ENABLED, ENABLED),
        ("2.6", DISABLED, DISABLED),
        ("2.6", ENABLED, ENABLED),  # Kafka disables it
    ],
)
def test_present_features_are_enabled(
    tree: KafkaTree, serving: ResidentController, protocol: str, before: int, after: int
) -> None:
    """ControllerIntegrationTest: testControllerFeatureZNodeSetup…With(Disabled|Enabled)ExistingFeatureZNode."""
    tree.write(FEATURE, json.dumps({"version": 1, "status": before, "features": {}}).encode())
    version = tree.client.get(FEATURE)[1].version
    set_protocols(serving, *[protocol] * 3)
    initialize(serving)

    data, stat = tree.client.get(FEATURE)
    assert json.loads(data) == {"version": 1, "status": after, "features": {}}
    assert stat.version == version + (before != after)


@pytest.mark.parametrize("data", [b"as it is", b"", b"[]", b'{"status":"on"}'])
def test_features_that_cannot_be_decoded_are_kept(tree: KafkaTree, serving: ResidentController, data: bytes) -> None:
    tree.write(FEATURE, data)
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)

    assert tree.client.get(FEATURE)[0] == data


def test_topics_without_ids_get_them_at_the_take_over(tree: KafkaTree, serving: ResidentController) -> None:
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    tree.add_topic("named", {0: [0, 1]})
    before = topic_id(tree, "named")
    set_protocols(serving, *["3.9-IV0"] * 3)

    initialize(serving)

    old = topic_id(tree, "old")
    assert old is not None
    assert not old.startswith("-")
    assert topic_id(tree, "named") == before
    assert tree.assignment("old").partitions == {0: [0, 1]}
    assert serving.context.topic_of_id(old) == "old"


def test_new_topics_get_ids_before_brokers_are_sent_them(tree: KafkaTree, serving: ResidentController) -> None:
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)

    put_assignment(tree, "new", {0: [1, 2]})
    run_until_quiet(serving)

    assert topic_id(tree, "new") is not None
    assert tree.brokers is not None
    sent = {
        topic.topic_id
        for request in tree.brokers[2].of("leader_and_isr")
        for topic in request.request.topic_states
        if topic.topic_name == "new"
    }
    assert len(sent) == 1
    assert None not in sent


def test_a_topic_that_changed_keeps_no_other_from_its_id(
    tree: KafkaTree, serving: ResidentController, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)
    reads = list[list[str]]()

    def read_and_change(client: KazooClient, paths: list[str]) -> list[Znode]:
        znodes = read_permitted(client, paths)
        if not reads:
            put_assignment(tree, "changed", {0: [1, 2], 1: [2, 0]})
        reads.append(paths)
        return znodes

    monkeypatch.setattr("jobs.controller.failover_znodes.read_permitted", read_and_change)
    put_assignment(tree, "changed", {0: [1, 2]})
    put_assignment(tree, "other", {0: [1, 2]})
    run_until_quiet(serving)

    assert len(reads) > 1
    assert topic_id(tree, "changed") is not None
    assert topic_id(tree, "other") is not None


def test_a_topic_found_during_a_reading_gets_an_id(tree: KafkaTree, serving: ResidentController) -> None:
    """It is created after the cycle has listed the topics, and before another one is read again."""
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)
    put_assignment(tree, "new", {0: [1, 2]})
    serving.pending.add(serving.reader.refresh_topics(["old"]))
    run_until_quiet(serving)

    assert topic_id(tree, "new") is not None
    assert serving.context.topics_without_id == set()


@pytest.mark.parametrize("protocols", [["2.6", "2.6", "2.6"], ["3.9-IV0", "2.7", "3.9-IV0"], ["3.9-IV0", "3.9-IV0"]])
def test_a_part_of_the_cluster_that_knows_no_ids_counts(
    tree: KafkaTree, serving: ResidentController, protocols: list[str]
) -> None:
    """So does a broker whose protocol is unknown."""
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    set_protocols(serving, *protocols)
    initialize(serving)

    assert topic_id(tree, "old") is None


def test_a_topic_that_has_lost_its_id_gets_it_back(tree: KafkaTree, serving: ResidentController) -> None:
    """A tool that knows no ids has added a partition; brokers know the topic by its id, and refuse another one."""
    tree.add_topic("named", {0: [0, 1]})
    before = topic_id(tree, "named")
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)
    for replicas in ({0: [0, 1], 1: [1, 2]}, {0: [0, 1], 1: [1, 2], 2: [2, 0]}):
        put_assignment(tree, "named", replicas)
        run_until_quiet(serving)

        assert topic_id(tree, "named") == before
        assert tree.assignment("named").partitions == replicas
    assert tree.brokers is not None
    sent = [
        str(topic.topic_id)
        for request in tree.brokers[2].of("leader_and_isr")
        for topic in request.request.topic_states
        if topic.topic_name == "named"
    ]
    assert len({*sent}) == 1


def test_a_topic_that_was_created_again_gets_another_id(tree: KafkaTree, serving: ResidentController) -> None:
    tree.add_topic("named", {0: [0, 1]})
    before = topic_id(tree, "named")
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)
    tree.client.delete("/brokers/topics/named", recursive=True)
    put_assignment(tree, "named", {0: [0, 1]})
    run_until_quiet(serving)

    assert topic_id(tree, "named") not in {None, before}


def test_an_unreadable_assignment_is_left_alone(tree: KafkaTree, serving: ResidentController) -> None:
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    tree.add_topic("strange", {0: [0, 1]}, topic_id=None)
    tree.write("/brokers/topics/strange", b'{"version":3,"partitions":{"0":"?"}}')
    set_protocols(serving, *["3.9-IV0"] * 3)
    initialize(serving)

    assert topic_id(tree, "old") is not None
    assert tree.client.get("/brokers/topics/strange")[0] == b'{"version":3,"partitions":{"0":"?"}}'
    assert requests_to(tree, 0, "leader_and_isr").keys() == {("old", 0)}
