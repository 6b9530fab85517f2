"""The codecs: the bytes Kafka writes, both ways, and everything else refused with a reason and nothing but that."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.znodes import (
    Assignment,
    Broker,
    Controller,
    Endpoint,
    LogDirEvent,
    MalformedZnodeError,
    State,
    TopicPartition,
    check_topic_name,
    decode_assignment,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_partitions,
    decode_state,
    encode_assignment,
    encode_config,
    encode_controller,
    encode_epoch,
    encode_state,
    printable,
)

Decoder = Callable[[bytes | None], object]

DECODERS: Final[list[Decoder]] = [
    decode_assignment,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_partitions,
    decode_state,
]

TOPIC_ID: Final = "x6E9ZQpWQvOm6bLqQlQk1A"
PLAIN: Final = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
TWO: Final = (Endpoint("CLIENT", "SASL_SSL", "a.b-c", 9093), Endpoint("REPLICATION", "PLAINTEXT", "10.0.0.1", 9094))

BROKER_V4: Final = (
    b'{"version":4,"host":null,"port":-1,"endpoints":["CLIENT://a.b-c:9093","REPLICATION://10.0.0.1:9094"],'
    b'"jmx_port":-1,"timestamp":"1","listener_security_protocol_map":{"CLIENT":"SASL_SSL","REPLICATION":"PLAINTEXT"}}'
)
BROKER_V5: Final = (
    b'{"version":5,"features":{"f":{"min_version":1}},"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":null}'
)
STATE: Final = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
RECOVERING: Final = (
    b'{"controller_epoch":2,"leader":-1,"version":1,"leader_epoch":3,"isr":[2],"leader_recovery_state":1}'
)
TOPIC_V3: Final = (
    b'{"version":3,"partitions":{"0":[4,1],"1":[2,1]},"adding_replicas":{"0":[4]},"removing_replicas":{},'
    b'"topic_id":"x6E9ZQpWQvOm6bLqQlQk1A"}'
)
TOPIC_V3_BARE: Final = b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
CONTROLLER_V2: Final = b'{"version":2,"brokerid":0,"timestamp":"1700000000000","kraftControllerEpoch":-1}'

READ: Final[dict[str, tuple[Decoder, bytes, object]]] = {
    "broker v1": (
        decode_broker,
        b'{"version":1,"host":"h","port":9092,"jmx_port":1}',
        Broker((PLAIN,), "h", 9092, None),
    ),
    "broker v2, no map": (
        decode_broker,
        b'{"version":2,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"timestamp":"1"}',
        Broker((PLAIN,), "h", 9092, None),
    ),
    "broker v3, a rack": (
        decode_broker,
        b'{"version":3,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"rack":"r1"}',
        Broker((PLAIN,), "h", 9092, "r1"),
    ),
    "broker v4, no plaintext": (
        decode_broker,
        BROKER_V4,
        Broker(TWO, None, -1, None),
    ),
    "broker v5, features": (
        decode_broker,
        BROKER_V5,
        Broker((PLAIN,), "h", 9092, None),
    ),
    "broker of the future": (
        decode_broker,
        b'{"version":100,"endpoints":["PLAINTEXT://[::1]:9092"],"news":[1]}',
        Broker((Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),), None, -1, None),
    ),
    "topic v1": (
        decode_assignment,
        b'{"version":1,"partitions":{"0":[1,2],"10":[2]}}',
        Assignment({0: [1, 2], 10: [2]}, {}, {}, None),
    ),
    "topic v2": (
        decode_assignment,
        b'{"version":2,"partitions":{"0":[3,1]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}',
        Assignment({0: [3, 1]}, {0: [3]}, {0: [1]}, None),
    ),
    "topic v3": (decode_assignment, TOPIC_V3, Assignment({0: [4, 1], 1: [2, 1]}, {0: [4]}, {}, TOPIC_ID)),
    "topic without partitions": (decode_assignment, b'{"partitions":{}}', Assignment({}, {}, {}, None)),
    "state": (decode_state, STATE, State(1, 1, 0, [1, 2])),
    "state, keys in another order": (
        decode_state,
        b' { "isr" : [2, 1], "leader_epoch": 0, "version": 1, "leader": 2, "controller_epoch": 1, "new": {} } ',
        State(1, 2, 0, [2, 1]),
    ),
    "state, a key twice": (
        decode_state,
        STATE.replace(b'"leader":1,', b'"leader":3,"leader":1,'),
        State(1, 1, 0, [1, 2]),
    ),
    "state, recovering": (decode_state, RECOVERING, State(2, -1, 3, [2], 1)),
    "controller v1": (decode_controller, b'{"version":1,"brokerid":3,"timestamp":"1"}', Controller(3, -1)),
    "controller v2": (decode_controller, CONTROLLER_V2, Controller(0, -1)),
    "controller of KRaft": (
        decode_controller,
        b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}',
        Controller(3000, 4),
    ),
    "controller of old": (decode_controller, b"12", Controller(12, -1)),
    "controller epoch": (decode_epoch, b"7", 7),
    "largest controller epoch": (decode_epoch, b"2147483647", 2**31 - 1),
    "reassignment": (
        decode_partitions,
        b'{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
        [TopicPartition("foo", 0, [1, 2])],
    ),
    "preferred election": (
        decode_partitions,
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":2}]}',
        [TopicPartition("t", 0), TopicPartition("t", 2)],
    ),
    "ISR change": (decode_partitions, b'{"version":1,"partitions":[]}', []),
    "log dir event": (decode_log_dir_event, b'{"version":1,"broker":1,"event":1}', LogDirEvent(1, 1)),
    "config": (decode_config, b'{"version":1,"config":{"k":"v"}}', {"k": "v"}),
    "cluster id": (decode_cluster_id, b'{"version":"1","id":"x6E9ZQpWQvOm6bLqQlQk1A"}', TOPIC_ID),
}


@pytest.mark.parametrize(("decode", "data", "expected"), READ.values(), ids=READ)
def test_what_kafka_writes_is_read(decode: Decoder, data: bytes, expected: object) -> None:
    assert decode(data) == expected


WRITTEN: Final[dict[str, tuple[bytes, bytes]]] = {
    "state": (encode_state(State(1, 1, 0, [1, 2])), STATE),
    "state, recovering": (encode_state(State(2, -1, 3, [2], 1)), RECOVERING),
    "topic": (encode_assignment(Assignment({1: [2, 1], 0: [4, 1]}, {0: [4], 1: []}, {1: []}, TOPIC_ID)), TOPIC_V3),
    "topic without id": (encode_assignment(Assignment({0: [1, 2]}, {}, {}, None)), TOPIC_V3_BARE),
    "controller": (encode_controller(0, 1700000000000), CONTROLLER_V2),
    "epoch": (encode_epoch(7), b"7"),
    "config": (encode_config({"b": "2", "a": "é"}), '{"version":1,"config":{"a":"é","b":"2"}}'.encode()),
}


@pytest.mark.parametrize(("found", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_is_what_kafka_writes(found: bytes, expected: bytes) -> None:
    assert found == expected


def _state(**columns: object) -> bytes:
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}
    return json.dumps(state | columns).encode()


def _topic(**columns: object) -> bytes:
    return json.dumps({"version": 3, "partitions": {"0": [1, 2]}} | columns).encode()


def _broker(**columns: object) -> bytes:
    return json.dumps({"version": 5, "endpoints": ["PLAINTEXT://h:9092"]} | columns).encode()


MALFORMED: Final[dict[str, tuple[Decoder, bytes | None]]] = {
    **{
        f"state, {why}": (decode_state, data)
        for why, data in {
            "not UTF-8": b"\xff\xfe",
            "not JSON": b"hello",
            "UTF-16": STATE.decode().encode("utf-16"),
            "cut": STATE[:-1],
            "trailing garbage": STATE + b"x",
            "twice": STATE + STATE,
            "an array": b"[1]",
            "null": b"null",
            "no leader": b'{"controller_epoch":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
            "leader null": _state(leader=None),
            "leader a string": _state(leader="1"),
            "leader true": _state(leader=True),
            "leader 1.5": _state(leader=1.5),
            "leader -2": _state(leader=-2),
            "leader too large": _state(leader=2**31),
            "leader huge": _state(leader=10**40),
            "ISR empty": _state(isr=[]),
            "ISR null": _state(isr=None),
            "ISR with null": _state(isr=[1, None]),
            "ISR with 1.5": _state(isr=[1, 1.5]),
            "ISR with a negative": _state(isr=[-1]),
            "ISR with a string": _state(isr=["1"]),
            "ISR twice the same": _state(isr=[1, 2, 1]),
            "ISR too large": _state(isr=[2**31]),
            "leader epoch negative": _state(leader_epoch=-1),
            "leader epoch too large": _state(leader_epoch=2**31),
            "controller epoch negative": _state(controller_epoch=-1),
            "recovery state unknown": _state(leader_recovery_state=2),
            "NaN": STATE.replace(b'"leader":1', b'"leader":NaN'),
            "huge noise": b"\x00\x9f" * 500_000,
            "huge list": b"[" + b"1," * 500_000 + b"1]",
        }.items()
    },
    **{
        f"topic, {why}": (decode_assignment, data)
        for why, data in {
            "not JSON": b"{partitions}",
            "no partitions": b'{"version":3}',
            "partitions null": _topic(partitions=None),
            "partitions an array": _topic(partitions=[[1]]),
            "no replicas": _topic(partitions={"0": []}),
            "replicas null": _topic(partitions={"0": None}),
            "replica null": _topic(partitions={"0": [1, None]}),
            "replica twice": _topic(partitions={"0": [1, 2, 1]}),
            "replica negative": _topic(partitions={"0": [-1]}),
            "replica 1.5": _topic(partitions={"0": [1.5]}),
            "replica too large": _topic(partitions={"0": [2**31]}),
            "partition a word": _topic(partitions={"zero": [1]}),
            "partition negative": _topic(partitions={"-1": [1]}),
            "partition too large": _topic(partitions={str(2**31): [1]}),
            "adding null": _topic(adding_replicas=None),
            "removing a word": _topic(removing_replicas={"0": ["one"]}),
            "topic id a number": _topic(topic_id=5),
            "trailing garbage": _topic() + b"]",
        }.items()
    },
    **{
        f"broker, {why}": (decode_broker, data)
        for why, data in {
            "not UTF-8": b'{"version":5,"endpoints":["PLAINTEXT://\xff:9092"]}',
            "no version": b'{"endpoints":["PLAINTEXT://h:9092"]}',
            "version 0": _broker(version=0),
            "version 1 without port": b'{"version":1,"host":"h"}',
            "version 1 without host": b'{"version":1,"port":1}',
            "version 1, no port": b'{"version":1,"host":"h","port":-1}',
            "no endpoints": _broker(endpoints=[]),
            "endpoints null": _broker(endpoints=None),
            "endpoint null": _broker(endpoints=[None]),
            "endpoint without port": _broker(endpoints=["PLAINTEXT://h"]),
            "endpoint without listener": _broker(endpoints=["h:9092"]),
            "endpoint's port a word": _broker(endpoints=["PLAINTEXT://h:http"]),
            "endpoint's port too large": _broker(endpoints=["PLAINTEXT://h:65536"]),
            "port too large": _broker(port=65536),
            "port 1.5": _broker(port=1.5),
            "rack a number": _broker(rack=1),
            "map with null": _broker(listener_security_protocol_map={"PLAINTEXT": None}),
        }.items()
    },
    **{
        f"other, {why}": (decode, data)
        for why, (decode, data) in {
            "epoch a word": (decode_epoch, b"seven"),
            "epoch negative": (decode_epoch, b"-1"),
            "epoch with a line": (decode_epoch, b"7\n"),
            "epoch with a space": (decode_epoch, b" 7"),
            "epoch in JSON": (decode_epoch, b'{"epoch":7}'),
            "epoch 1.5": (decode_epoch, b"1.5"),
            "epoch too large": (decode_epoch, b"2147483648"),
            "epoch in other digits": (decode_epoch, "\N{ARABIC-INDIC DIGIT SEVEN}".encode()),
            "controller without id": (decode_controller, b'{"version":2}'),
            "controller -2": (decode_controller, b'{"brokerid":-2}'),
            "controller a word": (decode_controller, b'{"brokerid":"0"}'),
            "reassignment without topic": (decode_partitions, b'{"partitions":[{"partition":0}]}'),
            "reassignment of a negative": (decode_partitions, b'{"partitions":[{"topic":"t","partition":-1}]}'),
            "reassignment to a negative": (
                decode_partitions,
                b'{"partitions":[{"topic":"t","partition":0,"replicas":[-1]}]}',
            ),
            "reassignment of null": (decode_partitions, b'{"partitions":[null]}'),
            "event of nobody": (decode_log_dir_event, b'{"event":1}'),
            "config with a number": (decode_config, b'{"config":{"k":1}}'),
            "config with null": (decode_config, b'{"config":{"k":null}}'),
            "config without config": (decode_config, b'{"version":1}'),
            "cluster id a number": (decode_cluster_id, b'{"version":"1","id":5}'),
        }.items()
    },
    **{
        f"{decode.__name__}, {why}": (decode, data)
        for decode in DECODERS
        for why, data in {
            "nothing": None,
            "empty": b"",
            "a zero byte": b"\x00",
            "an open brace": b"{",
        }.items()
    },
}


@pytest.mark.parametrize(("decode", "data"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_not_understood_is_refused(decode: Decoder, data: bytes | None) -> None:
    with pytest.raises(MalformedZnodeError):
        decode(data)


EXTREME: Final[dict[str, tuple[Decoder, bytes]]] = {
    "deep nesting": (decode_state, STATE[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a port of 5000 digits": (decode_broker, _broker(endpoints=["PLAINTEXT://h:" + "9" * 5000])),
    "controller of old, too large": (decode_controller, b"9999999999"),
    "an event too large": (decode_log_dir_event, b'{"broker":1,"event":99999999999999999999}'),
}


@pytest.mark.parametrize(("decode", "data"), EXTREME.values(), ids=EXTREME)
def test_extremes_are_refused(decode: Decoder, data: bytes) -> None:
    with pytest.raises(MalformedZnodeError):
        decode(data)


REASONS: Final[dict[str, tuple[Decoder, bytes | None, str]]] = {
    "empty": (decode_state, b"", "empty, expected JSON"),
    "duplicate": (decode_state, _state(isr=[1, 1]), "the ISR names a broker twice: [1, 1]"),
    "empty ISR": (decode_state, _state(isr=[]), "the ISR is empty"),
    "duplicate replica": (
        decode_assignment,
        _topic(partitions={"7": [1, 1]}),
        "partition 7 names a broker twice: [1, 1]",
    ),
    "no replicas": (decode_assignment, _topic(partitions={"7": []}), "partition 7 has no replicas"),
    "epoch": (decode_epoch, b"x", "b'x', expected a decimal number"),
    "endpoint": (decode_broker, _broker(endpoints=["h:1"]), "endpoint 'h:1', expected LISTENER://host:port"),
}


@pytest.mark.parametrize(("decode", "data", "reason"), REASONS.values(), ids=REASONS)
def test_the_reason_says_what_was_found(decode: Decoder, data: bytes | None, reason: str) -> None:
    with pytest.raises(MalformedZnodeError) as raised:
        decode(data)
    assert str(raised.value) == reason


def _wrongly_refused(decode: Decoder, data: bytes) -> bool:
    """Tell whether a decoder fails by any other exception than that of a malformed znode."""
    try:
        decode(data)
    except MalformedZnodeError:
        return False
    except Exception:  # noqa: BLE001 - any other is what this looks for
        return True
    return False


def assert_understood_or_refused(data: bytes) -> None:
    assert [decode.__name__ for decode in DECODERS if _wrongly_refused(decode, data)] == []


@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    assert_understood_or_refused(data)


KEYS: Final = st.sampled_from(
    [
        "version", "host", "port", "endpoints", "listener_security_protocol_map", "rack", "partitions", "0", "-1", "x",
        "adding_replicas", "removing_replicas", "topic_id", "controller_epoch", "leader", "leader_epoch", "isr",
        "leader_recovery_state", "brokerid", "kraftControllerEpoch", "topic", "partition", "replicas", "broker",
        "event", "config", "id",
    ],
)  # fmt: skip
SCALARS: Final[st.SearchStrategy[Any]] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["PLAINTEXT://h:9092", "://:", "L://[::1]:1"]),
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=8) | VALUES)
def test_any_json_is_understood_or_refused(value: object) -> None:
    assert_understood_or_refused(json.dumps(value).encode())


@given(st.sampled_from([STATE, TOPIC_V3, CONTROLLER_V2, _broker()]), st.data())
def test_a_damaged_znode_is_understood_or_refused(good: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    assert_understood_or_refused(good[:start] + data.draw(st.binary(max_size=3)) + good[end:])


NUMBERS: Final = st.integers(0, 2**31 - 1)
BROKER_IDS: Final = st.lists(NUMBERS, min_size=1, max_size=5, unique=True)
STATES: Final = st.builds(State, NUMBERS, st.just(-1) | NUMBERS, NUMBERS, BROKER_IDS, st.sampled_from([0, 1]))
MOVING: Final = st.dictionaries(NUMBERS, BROKER_IDS, max_size=3)
ASSIGNMENTS: Final = st.builds(Assignment, MOVING, MOVING, MOVING, st.none() | st.just(TOPIC_ID))
CONFIGS: Final = st.dictionaries(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2)


@given(STATES)
def test_a_state_comes_back(state: State) -> None:
    assert decode_state(encode_state(state)) == state


@given(ASSIGNMENTS)
def test_an_assignment_comes_back(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(CONFIGS)
def test_a_config_comes_back(config: dict[str, str]) -> None:
    assert decode_config(encode_config(config)) == config


@given(NUMBERS, st.integers(0, 2**53))
def test_controller_and_epoch_come_back(number: int, timestamp_ms: int) -> None:
    assert decode_epoch(encode_epoch(number)) == number
    assert decode_controller(encode_controller(number, timestamp_ms)) == Controller(number, -1)


@pytest.mark.parametrize("topic", ["t", "a.b_c-D9", "__consumer_offsets", "...", "x" * 249])
def test_topic_names(topic: str) -> None:
    assert _is_topic_name(topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "é", "a\n", "x" * 250])
def test_names_no_topic_has(topic: str) -> None:
    assert not _is_topic_name(topic)


def _is_topic_name(topic: str) -> bool:
    try:
        check_topic_name(topic)
    except MalformedZnodeError:
        return False
    return True


@given(st.none() | st.binary(max_size=1500))
def test_any_data_can_be_shown(data: bytes | None) -> None:
    shown = printable(data)
    assert (shown is None) == (data is None)
    assert len((shown or "").encode()) <= 4000
