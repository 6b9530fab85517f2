"""What is small in a cluster, as the driver reads it: controllers of all versions, brokers, requests, migration."""

import pytest

from jobs.adapters.zookeeper.cluster_state import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import commit
from jobs.adapters.zookeeper.multi_operations import Create, add
from jobs.adapters.zookeeper.scram_users import sanitize, scram_credential
from jobs.core.migration_refusal import MADE_BY_HAND
from schemas.enums import RequestKind
from schemas.rows import ZnodeRequest
from schemas.znode_codecs import ControllerRegistration, encode_config
from tests.jobs.support.zookeeper.kafka_tree import CLUSTER_ID, KafkaTree

V2 = b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
V1 = b'{"version":1,"brokerid":1,"timestamp":"1700000000000"}'
TWO_PARTITIONS = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'


def cluster_of(tree: KafkaTree) -> ClusterState:
    return read_cluster(tree.client)


@pytest.mark.parametrize("data", [V2, V1, b"1"])
def test_controller_of_any_version(bare_tree: KafkaTree, data: bytes) -> None:
    bare_tree.lay_out()
    bare_tree.client.create("/controller", data, ephemeral=True)

    state = cluster_of(bare_tree)

    assert (state.controller, state.controller_version) == (ControllerRegistration(1, -1), 0)
    assert state.migration is None


def test_cluster_without_a_controller(bare_tree: KafkaTree) -> None:
    bare_tree.lay_out()

    state = cluster_of(bare_tree)

    assert (state.controller.broker_id, state.controller_version) == (-1, None)
    assert (state.epoch, state.epoch_version) == (0, -1)


def test_the_epoch_is_read_with_its_version(tree: KafkaTree) -> None:
    tree.elect(1, epoch=8)

    state = cluster_of(tree)

    assert (state.epoch, state.epoch_version) == (8, tree.client.get("/controller_epoch")[1].version)


@pytest.mark.parametrize(
    ("path", "data", "sign"),
    [
        ("/controller", V2, f"/controller {MADE_BY_HAND}"),
        ("/controller", V2.replace(b"-1}", b"3}"), "/controller carries kraftControllerEpoch 3"),
        ("/migration", b'{"version":0,"kraft_controller_id":3000}', "/migration names KRaft controller 3000"),
        ("/migration", b"{}", "/migration exists and could not be decoded"),
    ],
)
def test_signs_of_a_migration(bare_tree: KafkaTree, path: str, data: bytes, sign: str) -> None:
    bare_tree.lay_out()
    bare_tree.write(path, data)

    assert cluster_of(bare_tree).migration == sign


@pytest.mark.parametrize("data", [b'{"version":0,"kraft_controller_id":-1}'])
def test_no_migration(tree: KafkaTree, data: bytes) -> None:
    tree.write("/migration", data)

    assert cluster_of(tree).migration is None


NO_DATA = None
BY_KAFKA = ("/consumers", "/brokers/seqid", "/brokers/topics", "/config/changes", "/delegation_token", "/kafka-acl")


@pytest.mark.parametrize(
    ("path", "data", "sign", "quarantined"),
    [
        *((path, NO_DATA, None, None) for path in BY_KAFKA),
        ("/migration", NO_DATA, None, None),
        ("/migration", b"", None, None),
        ("/latest_producer_id_block", NO_DATA, None, None),
        ("/latest_producer_id_block", b"", None, "producer ids"),
        ("/feature", NO_DATA, None, "fail-over"),
        ("/controller_epoch", NO_DATA, None, "fail-over"),
        ("/controller", NO_DATA, f"/controller {MADE_BY_HAND}", "controller"),
        ("/cluster/id", NO_DATA, None, "broker start"),
        ("/config/users/alice", NO_DATA, None, None),
        ("/admin/reassign_partitions", b"", None, None),
        ("/admin/reassign_partitions", NO_DATA, None, "fail-over"),
        ("/admin/preferred_replica_election", b"", None, "fail-over"),
        ("/admin/preferred_replica_election", NO_DATA, None, "fail-over"),
        ("/admin/delete_topics/old", NO_DATA, None, None),
        ("/isr_change_notification/isr_change_0000000001", b"", None, None),
        ("/log_dir_event_notification/log_dir_event_0000000001", b"", None, "nothing"),
    ],
)
def test_an_empty_znode_means_what_it_means_to_kafka(
    bare_tree: KafkaTree, path: str, data: bytes | None, sign: str | None, quarantined: str | None
) -> None:
    """`zookeeper-security-migration` creates all paths of Kafka without data, and shells create them with length 0."""
    bare_tree.lay_out()
    bare_tree.client.delete(path, recursive=True)
    bare_tree.client.ensure_path(path.rpartition("/")[0] or "/")
    multi = bare_tree.client.transaction()
    add(multi, [Create(path, data)])
    commit(multi)

    state = cluster_of(bare_tree)

    expected = [(path, None if quarantined == "nothing" else quarantined)] if quarantined else []
    assert (state.migration, [(row.path, row.blocks) for row in state.quarantine]) == (sign, expected)


def test_cluster_id(tree: KafkaTree) -> None:
    assert cluster_of(tree).cluster_id == CLUSTER_ID


def test_broker_epoch_is_the_czxid_of_its_registration(tree: KafkaTree) -> None:
    stats = {broker: tree.client.get(f"/brokers/ids/{broker}")[1] for broker in (0, 1, 2)}

    assert cluster_of(tree).live == {broker: stat.czxid for broker, stat in stats.items()}


def test_bounced_broker_has_a_later_epoch(tree: KafkaTree) -> None:
    before = cluster_of(tree).live

    tree.bounce(1)

    after = cluster_of(tree).live
    assert after[1] > before[1]
    assert (after[0], after[2]) == (before[0], before[2])


def test_registration_rewritten_in_place_keeps_its_epoch(tree: KafkaTree) -> None:
    before = cluster_of(tree).live

    tree.touch("/brokers/ids/1")

    assert cluster_of(tree).live == before


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":5,"endpoints":["nonsense"]}', b"\xff\xfe"])
def test_undecodable_broker_is_alive_and_not_understood(tree: KafkaTree, data: bytes) -> None:
    tree.register(3, data)

    state = cluster_of(tree)

    assert sorted(state.live) == [0, 1, 2, 3]
    assert {row.broker_id: row.understood for row in state.brokers} == {0: True, 1: True, 2: True, 3: False}
    assert [row.path for row in state.quarantine] == ["/brokers/ids/3"]


def test_request_of_each_kind(tree: KafkaTree) -> None:
    reassign = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,0]}]}'
    tree.write("/admin/reassign_partitions", reassign)
    tree.write("/admin/preferred_replica_election", TWO_PARTITIONS)
    tree.write("/admin/delete_topics/old", b"")
    tree.client.create("/isr_change_notification/isr_change_", TWO_PARTITIONS, sequence=True)
    event = b'{"version":1,"broker":2,"event":1}'
    tree.client.create("/log_dir_event_notification/log_dir_event_", event, sequence=True)

    requests = [in_short(row) for row in cluster_of(tree).requests]

    assert requests == [
        (RequestKind.REASSIGN, "t", 0, [2, 0], None),
        (RequestKind.PREFERRED_ELECTION, "t", 0, None, None),
        (RequestKind.PREFERRED_ELECTION, "u", 3, None, None),
        (RequestKind.DELETE_TOPIC, "old", None, None, None),
        (RequestKind.ISR_CHANGE, "t", 0, None, None),
        (RequestKind.ISR_CHANGE, "u", 3, None, None),
        (RequestKind.LOG_DIR, None, None, None, 2),
    ]


def in_short(row: ZnodeRequest) -> tuple[object, ...]:
    return row.kind, row.topic, row.partition, row.replicas, row.broker_id


def test_undecodable_request_is_quarantined(tree: KafkaTree) -> None:
    tree.write("/admin/reassign_partitions", b"not json")

    state = cluster_of(tree)

    assert state.requests == []
    assert [row.path for row in state.quarantine] == ["/admin/reassign_partitions"]


def test_zxid_does_not_go_back(tree: KafkaTree) -> None:
    before = cluster_of(tree).zxid
    tree.touch("/cluster/id")

    assert cluster_of(tree).zxid > before


CREDENTIAL = "salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096"
ZNODE_BY_USER = {
    "alice": "alice",
    "a~b": "a%7Eb",
    "a*b": "a%2Ab",
    "a b": "a%20b",
    "a+b": "a%2Bb",
    "CN=x,O=y": "CN%3Dx%2CO%3Dy",
    "a/b": "a%2Fb",
    "a.b-c_d": "a.b-c_d",
    "ü": "%C3%BC",
}
"""As `java.net.URLEncoder` and the two replacements of `Sanitizer` write them."""


def test_names_are_encoded_as_kafka_encodes_them() -> None:
    assert {user: sanitize(user) for user in ZNODE_BY_USER} == ZNODE_BY_USER


def test_a_user_is_found_at_the_encoded_path(tree: KafkaTree) -> None:
    tree.write("/config/users/a%7Eb", encode_config({"SCRAM-SHA-256": CREDENTIAL}))
    credential = scram_credential(tree.client, "a~b", "SCRAM-SHA-256")
    assert credential is not None
    assert credential.iterations == 4096
