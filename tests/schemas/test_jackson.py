"""Znodes that are no plain JSON, or of types Kafka does not write, as `kafka.zk.ZkData` of 3.9.2 decoded each."""

from collections.abc import Callable
from typing import Final

import pytest

from schemas.jackson import NotJsonError, first_value, java_int
from schemas.kafka_decode_failures import impact_of
from schemas.znode_codecs import (
    BrokerRegistration,
    Endpoint,
    LogDirEvent,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_partitions,
    decode_state,
    encode_assignment,
    read_assignment,
    read_config,
    read_partitions,
)
from tests.schemas.kafka_znodes import Decoder

TOPIC: Final = '{"version":1,"partitions":{"0":[0,1,2]}}'
STATE: Final = '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":5,"isr":[0,1]}'
CONFIG: Final = '{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
BROKER: Final = (
    '{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],'
    '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"jmx_port":-1,"timestamp":"1","features":{},"rack":"a"}'
)
REASSIGNMENT: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
ELECTION: Final = '{"version":1,"partitions":[{"topic":"t","partition":0}]}'
EVENT: Final = '{"version":1,"broker":1,"event":1}'
CONTROLLER: Final = '{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}'
CLUSTER_ID: Final = '{"version":"1","id":"x"}'
TOPIC_ID: Final = "r8iTzkX6SnyvLkbjRRRoow"

# what is written, where, and what decodes it
ZNODES: Final[dict[str, tuple[str, str, Decoder]]] = {
    "topic": (TOPIC, "/brokers/topics/t", read_assignment),
    "state": (STATE, "/brokers/topics/t/partitions/0/state", decode_state),
    "config": (CONFIG, "/config/topics/t", read_config),
    "whole config": (CONFIG, "/config/topics/t", decode_config),
    "registration": (BROKER, "/brokers/ids/1", decode_broker),
    "reassignment": (REASSIGNMENT, "/admin/reassign_partitions", read_partitions),
    "election": (ELECTION, "/admin/preferred_replica_election", decode_partitions),
    "log dir event": (EVENT, "/log_dir_event_notification/log_dir_event_0000000001", decode_log_dir_event),
    "controller": (CONTROLLER, "/controller", decode_controller),
    "cluster id": (CLUSTER_ID, "/cluster/id", decode_cluster_id),
}
FORMS: Final[dict[str, Callable[[str], bytes]]] = {
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "byte order mark and spaces": lambda text: b"\xef\xbb\xbf \r\n" + text.encode(),
    "text after it": lambda text: text.encode() + b" x",
    "a bracket after it": lambda text: text.encode() + b"}",
    "twice": lambda text: text.encode() * 2,
    "other bytes after it": lambda text: text.encode() + b"\xff\xfe",
    "zeros after it": lambda text: text.encode() + b"\0\0",
    "a field twice": lambda text: text.replace(
        "{", '{"version":null,"partitions":null,"config":5,"isr":0,', 1
    ).encode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("text", "path", "decode"), ZNODES.values(), ids=ZNODES)
def test_jackson_reads_the_first_value(text: str, path: str, decode: Decoder, form: Callable[[str], bytes]) -> None:
    assert decode(form(text)) == decode(text.encode())
    assert impact_of(path, form(text)) is None


NO_JSON: Final = [
    *(b"", b"\xef\xbb\xbf", b" \xef\xbb\xbf{}", b"hello", b"5x", b"5}", b"nullx"),
    *(b'{"x":NaN}', b'{"x":"a\tb"}', b'{"x":[01]}', b'{"x":"\xe9"}'),
]


@pytest.mark.parametrize("data", NO_JSON)
def test_jackson_fails(data: bytes) -> None:
    with pytest.raises(NotJsonError):
        first_value(data)


def _topic(key: str) -> bytes:
    return TOPIC.replace('"0"', f'"{key}"').encode()


KEYS: Final = {"01": 1, "+1": 1, "+01": 1, "\u0661": 1, "\uff11": 1, "-0": 0, "+00": 0, "00000000001": 1}


@pytest.mark.parametrize(("key", "partition"), KEYS.items(), ids=KEYS)
def test_a_partition_is_a_number_as_scala_reads_it(key: str, partition: int) -> None:
    topic = read_assignment(_topic(key))

    assert (topic.partitions, topic.unread) == ({partition: [0, 1, 2]}, ())
    assert encode_assignment(topic).startswith(f'{{"version":3,"partitions":{{"{partition}":[0,1,2]}}'.encode())
    assert impact_of("/brokers/topics/t", _topic(key)) is None


@pytest.mark.parametrize("key", ["", "+", "1 ", " 1", "0x1", "1_0", "\U0001d7cf", "2147483648"])
def test_a_key_that_scala_refuses_stops_the_fail_over(key: str) -> None:
    assert [part.key for part in read_assignment(_topic(key)).unread] == [key]
    assert impact_of("/brokers/topics/t", _topic(key)) is not None


# partitions, adding_replicas, and what Kafka makes of them
TWO_KEYS: Final = [
    ('{"1":[1,2],"01":[3],"+1":[4,5]}', '{"1":[2],"01":[3]}', {1: [4, 5]}, {}),
    ('{"01":[3],"1":[1,2]}', '{"01":[3]}', {1: [1, 2]}, {}),
    ('{"01":[3],"1":[1,2]}', '{"1":[2]}', {1: [1, 2]}, {1: [2]}),
    ('{"0":[1,2],"-0":[1,2]}', '{"0":[2]}', {0: [1, 2]}, {}),
]


@pytest.mark.parametrize(("partitions", "adding", "expected", "expected_adding"), TWO_KEYS)
def test_the_last_key_of_a_partition_counts(
    partitions: str, adding: str, expected: dict[int, list[int]], expected_adding: dict[int, list[int]]
) -> None:
    topic = read_assignment(f'{{"partitions":{partitions},"adding_replicas":{adding}}}'.encode())

    assert (topic.partitions, topic.adding_replicas, topic.unread) == (expected, expected_adding, ())


def test_a_partition_of_two_keys_one_of_them_unread_is_unread() -> None:
    topic = read_assignment(b'{"partitions":{"0":[1],"1":[1,2],"01":["x"]}}')

    assert (topic.partitions, [part.number for part in topic.unread]) == ({0: [1]}, [1, 1])
    assert b'"01":["x"],"1":[1,2]' in encode_assignment(topic)


def test_a_padded_topic_id_is_the_same_id() -> None:
    topic = read_assignment(TOPIC.replace("}}", f'}},"topic_id":"{TOPIC_ID}=="}}').encode())

    assert topic.topic_id == TOPIC_ID
    assert b"=" not in encode_assignment(topic)


# of a registration: the text replaced, by what, and the endpoints and the port that are read
REGISTRATIONS: Final = [
    ('"port":1,', '"port":"1",', ("PLAINTEXT", "h", 1), -1),
    ('"port":1,', '"port":70000,', ("PLAINTEXT", "h", 1), -1),
    ('"host":"h"', '"host":5', ("PLAINTEXT", "h", 1), 1),
    ('"PLAINTEXT://h:1"', '"plaintext://h:1 "', ("PLAINTEXT", "h", 1), 1),
    (':"PLAINTEXT"}', ':"plaintext"}', ("PLAINTEXT", "h", 1), 1),
    ('"version":5', '"version":6', ("PLAINTEXT", "h", 1), 1),
    ('"features":{}', '"features":null', ("PLAINTEXT", "h", 1), 1),
    ('"features":{}', '"features":{"a":{"min_version":1,"max_version":2}}', ("PLAINTEXT", "h", 1), 1),
]


@pytest.mark.parametrize(("old", "new", "endpoint", "port"), REGISTRATIONS)
def test_kafka_reads_these_registrations(old: str, new: str, endpoint: tuple[str, str, int], port: int) -> None:
    listener, host, endpoint_port = endpoint
    data = BROKER.replace(old, new).encode()
    host_column = None if old == '"host":"h"' else "h"

    assert decode_broker(data) == BrokerRegistration(
        (Endpoint(listener, "PLAINTEXT", host, endpoint_port),), host_column, port, "a"
    )
    assert impact_of("/brokers/ids/1", data) is None


def test_numbers_as_java_reads_them() -> None:
    assert [decode_epoch(text.encode()) for text in ("5", "+5", "\u0665", "05")] == [5] * 4
    assert [java_int(text) for text in ("5\n", " 5", "1_0", "")] == [None] * 4
    assert decode_log_dir_event(EVENT.encode() + b"x") == LogDirEvent(1, 1)
