"""How a cluster is, in numbers: the same from znodes and from the tables that a snapshot left."""

import json
from collections.abc import Callable

import pytest
from kazoo.security import make_digest_acl

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core.errors import UnreadableError
from jobs.repositories.snapshots import find_snapshot
from jobs.snapshots.cluster_view import ClusterView, view_of
from jobs.snapshots.health import Health, health_of
from schemas.enums import NO_CONTROLLER, NO_LEADER
from schemas.rows import Row, Snapshot
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_config, encode_state
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.support.zookeeper.live_view import live_view

TOPICS = {
    "calm": {0: [0, 1], 1: [1, 2]},
    "loud": {0: [0, 1, 2], 1: [3, 0], 2: [0, 3], 3: [3, 9], 4: [1, 0]},
    "leaving": {0: [3, 0]},
}
STATES = {
    ("loud", 0): (1, [1]),  # under-replicated, under min ISR 2, not led by the preferred replica
    ("loud", 1): (3, [3, 0]),  # its leader is dead, 0 is in sync
    ("loud", 2): (0, [0, 3]),  # a dead ISR member
    ("loud", 3): (NO_LEADER, [9]),  # no live replica
}
EXPECTED: Row = {
    "controller_id": 0,
    "controller_epoch": 7,
    "migration": None,
    "live": [0, 1, 2],
    "not_understood_brokers": [],
    "gone": {3: 4, 9: 1},
    "topics": 3,
    "deleting_topics": 1,
    "deletion_waits_for": [3],
    "partitions": 8,
    "offline": 2,
    "without_state": 0,
    "under_replicated": 2,
    "under_min_isr": 2,
    "moving": 2,
    "not_understood": 0,
    "repairable": 2,
    "offline_without_isr": 1,
    "led_by_drained": 0,
}
IMBALANCE = [(0, 3, 1, True), (1, 2, 0, False), (3, 2, 1, True)]


def numbers(health: Health) -> Row:
    return {name: getattr(health, name) for name in EXPECTED}


def judged(view: ClusterView) -> Health:
    return health_of(view, default_min_isr=1, threshold=0.1)


@pytest.fixture
def troubled(tree: KafkaTree) -> KafkaTree:
    """The cluster in znodes; a request to move waits, and a reassignment runs."""
    for name, replicas in TOPICS.items():
        tree.add_topic(name, replicas)
    for (name, number), (leader, isr) in STATES.items():
        state = State(controller_epoch=1, leader=leader, leader_epoch=6, isr=isr)
        tree.write(state_path(name, number), encode_state(state))
    tree.write("/config/topics/loud", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    tree.write("/admin/delete_topics/leaving", b"")
    order = {"version": 1, "partitions": [{"topic": "calm", "partition": 0, "replicas": [2, 1]}]}
    tree.write("/admin/reassign_partitions", json.dumps(order).encode())
    moving = {"version": 3, "partitions": {"0": [0, 1], "1": [1, 2]}, "adding_replicas": {"1": [2]}}
    tree.write("/brokers/topics/calm", json.dumps(moving | {"removing_replicas": {}}).encode())
    return tree


@pytest.fixture
def snapshot(warehouse: Warehouse) -> Snapshot:
    """The same cluster in the tables."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, 10 + number) for number in (0, 1, 2)]
    cluster.topics = [
        topic("calm"),
        topic("loud", config={"min.insync.replicas": "2"}),
        topic("leaving", deletion_requested=True),
    ]
    for name, replicas in TOPICS.items():
        for number, assigned in replicas.items():
            leader, isr = STATES.get((name, number), (assigned[0], assigned))
            cluster.partitions[name, number] = partition(assigned, leader=leader, isr=isr)
    cluster.partitions["calm", 1] |= {"adding_replicas": [2]}
    order = {"kind": "reassign", "topic": "calm", "partition": 0, "replicas": [2, 1], "path": "/x", "snapshot_id": 1}
    warehouse.replace("requests", [order])
    cluster.snapshot()
    return find_snapshot(warehouse)


def test_znodes_and_tables_say_the_same(troubled: KafkaTree, warehouse: Warehouse, snapshot: Snapshot) -> None:
    both = [judged(live_view(troubled.endpoint)), judged(view_of(warehouse, snapshot))]

    assert [numbers(health) for health in both] == [EXPECTED, EXPECTED]
    columns = ("broker_id", "preferred_partitions", "not_led", "exceeds")
    for health in both:
        assert [tuple(getattr(row, name) for name in columns) for row in health.imbalance] == IMBALANCE


def test_unmoved_partitions_are_named_and_only_waiting_ones_count(tree: KafkaTree) -> None:
    """A request for a topic that is gone or for what is there already, and a target that is down."""
    tree.add_topic("calm", {0: [0, 1], 1: [1, 2]})
    tree.add_topic("stuck", {0: [0, 1]})
    tree.write(
        "/brokers/topics/stuck",
        b'{"partitions":{"0":[0,9,1]},"adding_replicas":{"0":[9]},"removing_replicas":{"0":[1]}}',
    )
    wanted = {("ghost", 3): [1], ("calm", 0): [0, 1], ("calm", 1): [1, 0]}
    rows = [{"topic": name, "partition": number, "replicas": to} for (name, number), to in wanted.items()]
    tree.write("/admin/reassign_partitions", json.dumps({"version": 1, "partitions": rows}).encode())

    health = judged(live_view(tree.endpoint))

    assert health.moving == 2
    stalled = [tuple(row.values()) for row in health.json["stalled"]]
    assert stalled == [
        ("calm", 0, [0, 1], "ALREADY_ASSIGNED", "it has these replicas already", []),
        ("ghost", 3, [1], "UNKNOWN_PARTITION", "there is no such partition", []),
        ("stuck", 0, [0, 9], "WAITS_FOR_BROKER", "not live: 9", [9]),
    ]


LISTED = {"leader.replication.throttled.replicas": "0:0", "follower.replication.throttled.replicas": "0:1"}
SENT, RECEIVED = ({f"{side}.replication.throttled.rate": "10"} for side in ("leader", "follower"))


@pytest.mark.parametrize(
    ("topics", "brokers", "lagging"),
    [
        ({}, {"0": SENT, "1": RECEIVED}, 0),  # a rate alone limits nothing
        ({"t": LISTED}, {}, 0),
        ({"t": LISTED}, {"0": SENT}, 1),
        ({"t": LISTED}, {"<default>": RECEIVED}, 1),
        ({"t": LISTED}, {"0": RECEIVED, "1": SENT}, 0),
        ({"calm": LISTED}, {"0": SENT, "1": RECEIVED}, 0),
        ({"t": LISTED}, {"1": None}, 1),  # unreadable, so it may have a rate
    ],
)
def test_replicas_catch_up_under_a_throttle_only_if_their_topic_lists_them(
    tree: KafkaTree, topics: dict[str, dict[str, str]], brokers: dict[str, dict[str, str] | None], lagging: int
) -> None:
    """Only replica 1 of t-0 is out of sync."""
    tree.add_topic("t", {0: [0, 1], 1: [0, 1]})
    tree.add_topic("calm", {0: [0, 1]})
    tree.write(state_path("t", 0), encode_state(State(controller_epoch=1, leader=0, leader_epoch=6, isr=[0])))
    for kind, configs in (("topics", topics), ("brokers", brokers)):
        for name, config in configs.items():
            tree.write(f"/config/{kind}/{name}", b"{" if config is None else encode_config(config))

    assert judged(live_view(tree.endpoint)).throttled_lagging == lagging


@pytest.mark.parametrize(("controller", "moving"), [(0, 0), (2147483647, 2), (None, 2)])
def test_a_request_that_a_broker_ignores_does_not_count_as_moving(
    tree: KafkaTree, controller: int | None, moving: int
) -> None:
    """One entry has a field that Kafka does not know, so that it takes no entry; Surveyor carries out both."""
    tree.add_topic("calm", {0: [0, 1], 1: [1, 2]})
    rows = [{"topic": "calm", "partition": number, "replicas": [2, 0]} for number in (0, 1)]
    tree.write("/admin/reassign_partitions", json.dumps({"partitions": [rows[0], rows[1] | {"log_dirs": []}]}).encode())
    if controller is None:
        tree.client.delete("/controller")
    else:
        tree.elect(controller, epoch=7)

    view = live_view(tree.endpoint)
    health = judged(view)

    assert (health.moving, health.quarantined) == (moving, 1)
    reasons = {row["reason"] for row in health.json["stalled"]}
    assert reasons == (set() if moving else {view.ignored_request})
    assert view.ignored_request == (
        "Kafka's controller ignores the whole request: entry 1 has the field 'log_dirs', which Kafka's controller does "
        "not know"
    )


def test_an_elected_drained_broker_is_named(warehouse: Warehouse, snapshot: Snapshot) -> None:
    """It is the only one in sync that is live: what it could lead can still be repaired."""
    view = view_of(warehouse, snapshot)
    health = health_of(view, default_min_isr=1, threshold=0.1, drained=[0])

    assert (health.repairable, health.offline_without_isr) == (EXPECTED["repairable"], EXPECTED["offline_without_isr"])
    led = sum(row["leader"] == 0 for row in view.partitions.to_pylist() if row["understood"] is not False)
    assert health.led_by_drained == led > 0


def spoil_state(tree: KafkaTree) -> None:
    tree.write(state_path("calm", 0), b"{")


def spoil_topic(tree: KafkaTree) -> None:
    tree.write("/brokers/topics/calm", b'{"partitions":{"0":null}}')


def spoil_one_partition(tree: KafkaTree) -> None:
    """The other one is under-replicated."""
    tree.write("/brokers/topics/calm", b'{"partitions":{"0":[65633,65633,65633],"1":[1,0]}}')
    lead(tree, 1, 1, [1])


def spoil_config(tree: KafkaTree) -> None:
    tree.write("/config/topics/calm", b'{"version":1,"config":{"retention.ms":5}}')
    lead(tree, 1, 1, [1])


def lead(tree: KafkaTree, number: int, leader: int, isr: list[int]) -> None:
    state = State(controller_epoch=1, leader=leader, leader_epoch=6, isr=isr)
    tree.write(state_path("calm", number), encode_state(state))


def test_a_leader_outside_its_isr_is_named(tree: KafkaTree) -> None:
    """Kafka leaves it alone; so does a controller of ours, and says so. One without an ISR is offline."""
    tree.add_topic("calm", {0: [0, 1], 1: [1, 0], 2: [1, 2], 3: [2, 0]})
    lead(tree, 1, 1, [0])
    lead(tree, 2, NO_LEADER, [])
    lead(tree, 3, 2, [])
    health = judged(live_view(tree.endpoint))

    assert (health.leader_outside_isr, health.named["leader_outside_isr"]) == (2, ["calm-1", "calm-3"])
    assert (health.offline, health.offline_without_isr, health.repairable, health.under_min_isr) == (1, 1, 0, 2)
    assert health.json["leader_outside_isr"] == 2


def test_an_endless_move_without_a_state_blocks_kafka(tree: KafkaTree) -> None:
    """Where the topic goes, or none of the replicas is live; elsewhere Kafka creates the state."""
    for name, replicas in (("going", [0, 1]), ("dead", [8, 9]), ("fine", [0, 1])):
        assigned = Assignment({0: replicas}, {0: replicas[1:]}, {}, None)
        tree.write(f"/brokers/topics/{name}", encode_assignment(assigned))
    tree.write("/admin/delete_topics/going", b"")
    tree.write("/config/topics/fine", b'{"version":1,"config":{"retention.ms":"abc"}}')
    health = judged(live_view(tree.endpoint))

    assert [(row.path, row.blocks) for row in health.blocking] == [
        ("/config/topics/fine", "broker start"),
        ("/brokers/topics/dead", "fail-over"),
        ("/admin/delete_topics/going", "fail-over"),
    ]


def spoil_controller(tree: KafkaTree) -> None:
    tree.client.set("/controller", b"nobody")


def spoil_broker(tree: KafkaTree) -> None:
    tree.client.set("/brokers/ids/1", b"[]")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (spoil_state, {"not_understood": 1, "partitions": 2, "offline": 0, "quarantined": 1}),
        (spoil_topic, {"partitions": 1, "not_understood": 1, "quarantined": 2, "topics": 1}),
        (spoil_one_partition, {"partitions": 2, "not_understood": 1, "under_replicated": 1, "quarantined": 1}),
        (spoil_config, {"configs_not_understood": 1, "partitions": 2, "not_understood": 0, "under_replicated": 1}),
        (spoil_controller, {"controller_id": None, "controller_epoch": 7, "quarantined": 1}),
        (spoil_broker, {"live": [0, 1, 2], "not_understood_brokers": [1], "gone": {}, "offline": 0, "quarantined": 1}),
    ],
)
def test_malformed_znodes_are_counted(tree: KafkaTree, spoil: Callable[[KafkaTree], None], expected: Row) -> None:
    tree.add_topic("calm", {0: [0, 1], 1: [1, 0]})
    spoil(tree)
    health = judged(live_view(tree.endpoint))

    assert {name: getattr(health, name) for name in expected} == expected


def test_settings_that_zookeeper_keeps_to_the_brokers_are_left_out(tree: KafkaTree) -> None:
    """As those of users and brokers are where Kafka runs with zookeeper.set.acl=true."""
    for path in ("/config/users/alice", "/config/brokers/0", "/config/clients/loud"):
        tree.write(path, b'{"version":1,"config":{"producer_byte_rate":5}}')
    kept = [make_digest_acl("broker", "secret", all=True)]
    for path in ("/config/users", "/config/brokers"):
        tree.client.set_acls(path, kept)
    health = judged(live_view(tree.endpoint))

    assert [(row.path, row.blocks) for row in health.blocking] == [("/config/clients/loud", "broker start")]
    assert health.partitions == 0


def test_an_empty_cluster(bare_tree: KafkaTree) -> None:
    bare_tree.lay_out(brokers=())
    health = judged(live_view(bare_tree.endpoint))

    assert (health.controller_id, health.live, health.gone) == (NO_CONTROLLER, [], {})
    assert (health.partitions, health.offline, health.imbalance) == (0, 0, [])


def test_no_cluster_is_there(zookeeper_hosts: str) -> None:
    with pytest.raises(UnreadableError, match="check the chroot"):
        live_view(ZooKeeperEndpoint(zookeeper_hosts))
