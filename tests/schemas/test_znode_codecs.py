"""The codecs: Kafka's bytes in both directions, and everything else refused with a reason and no other error."""

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.znode_codecs import (
    Assignment,
    MalformedZnodeError,
    State,
    TopicPartition,
    decode_assignment,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_migration,
    decode_partitions,
    decode_state,
    encode_assignment,
    encode_config,
    encode_controller,
    encode_epoch,
    encode_state,
    printable,
    read_assignment,
    read_config,
    read_partitions,
)
from tests.schemas.kafka_znodes import (
    BY_KAFKA,
    CONTROLLER_V2,
    RECOVERING,
    STATE,
    TOPIC_ID,
    TOPIC_V3,
    TOPIC_V3_BARE,
    Decoder,
)
from tests.schemas.znode_oracle import EMPTY

WITHOUT_DATA: Final[dict[tuple[Decoder, bytes | None], object]] = {
    **{(decode, b""): value for decode, value in EMPTY.items()},
    (decode_config, None): {},
    (decode_migration, None): -1,
}
"""Empty znodes that mean nothing; a list of partitions without data ends Kafka's controller."""

DECODERS: Final[list[Decoder]] = list(dict.fromkeys(decode for decode, _, _ in BY_KAFKA.values()))


@pytest.mark.parametrize(("decode", "data", "expected"), BY_KAFKA.values(), ids=BY_KAFKA)
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


@pytest.mark.parametrize(("written", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_is_what_kafka_writes(written: bytes, expected: bytes) -> None:
    assert written == expected


def _state(**columns: object) -> bytes:
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}
    return json.dumps(state | columns).encode()


def _topic(**columns: object) -> bytes:
    return json.dumps({"version": 3, "partitions": {"0": [1, 2]}} | columns).encode()


def _broker(**columns: object) -> bytes:
    return json.dumps({"version": 5, "jmx_port": -1, "endpoints": ["PLAINTEXT://h:9092"]} | columns).encode()


def _endpoints(*endpoints: str) -> bytes:
    return _broker(endpoints=[*endpoints])


DEEP: Final = STATE[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

MALFORMED: Final[dict[Decoder, list[bytes | None]]] = {
    decode_state: [
        *(b"\xff\xfe", STATE[:-1] + b',"x":"\xff"}', b"hello", STATE[:-1], DEEP),
        b'{"controller_epoch":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
        STATE.replace(b'"leader":1', b'"leader":NaN'),
        *(_state(leader=leader) for leader in (None, "1", -2, 2**31)),
        *(_state(isr=isr) for isr in (None, [1, None], [-1], ["1"])),
        *(_state(leader_epoch=-1), _state(leader_epoch=2**31 - 1), _state(leader_recovery_state=2)),
    ],
    decode_assignment: [
        *(b"{partitions}", b'{"version":3}', _topic(partitions=None)),
        *(_topic(partitions=partitions) for partitions in ({"0": None}, {"0": [2**31]}, {"zero": [1]}, {2**31: [1]})),
        *(_topic(adding_replicas=adding) for adding in (None, {"0": [1, 1]}, {"0": [9]})),
        *(_topic(removing_replicas=removing) for removing in ({"0": ["one"]}, {"5": [1]})),
        *(_topic(topic_id=topic_id) for topic_id in (5, "x", "+" * 22)),
    ],
    decode_broker: [
        b'{"version":5,"jmx_port":1,"endpoints":["PLAINTEXT://\xff:9092"]}',
        b'{"jmx_port":1,"endpoints":["PLAINTEXT://h:9092"]}',
        b'{"version":1,"jmx_port":1,"host":"h","port":-1}',
        b'{"version":1,"jmx_port":1,"host":"","port":1}',
        b'{"version":5,"endpoints":["PLAINTEXT://h:9092"]}',
        *(_broker(version=0), _broker(rack=1), _broker(jmx_port="x")),
        *(_endpoints(), _endpoints("SSL://h:1", "SSL://i:2"), _endpoints("PLAINTEXT://:9092")),
        *(_endpoints("PLAINTEXT://h/x:9092"), _endpoints("PLAINTEXT://h:\N{ARABIC-INDIC DIGIT SEVEN}")),
        _endpoints("PLAINTEXT://h:" + "9" * 5000),
        *(_broker(listener_security_protocol_map={"PLAINTEXT": name}) for name in (None, "TELEPATHY")),
        _broker(listener_security_protocol_map={"SSL": "SSL"}),
        *(_broker(features=features) for features in (5, {"f": {"min_version": 1}})),
        _broker(features={"f": {"min_version": 3, "max_version": 2}}),
    ],
    decode_epoch: [b"-1", b"7\n", b"2147483647"],
    decode_controller: [
        *(b'{"version":2}', b"9999999999", b'{"brokerid":"0"}'),
        b'{"brokerid":0,"kraftControllerEpoch":2147483648}',
    ],
    decode_log_dir_event: [b'{"broker":1,"event":99999999999999999999}', b'{"event":1}'],
    decode_partitions: [
        *(b'{"partitions":[{"partition":0}]}', b'{"partitions":[null]}'),
        b'{"partitions":[{"topic":"t","partition":0,"replicas":null}]}',
    ],
    decode_migration: [b"{}", b'{"kraft_controller_id":-2}'],
    decode_cluster_id: [b'{"version":"1","id":""}', b'{"version":"1","id":5}'],
    decode_config: [b'{"config":{"k":1}}', b'{"version":1}'],
}
"""Each has one fault; every decoder also refuses no data, none of length 0, a zero byte and an open brace."""


@pytest.mark.parametrize(("znode", "value"), WITHOUT_DATA.items())
def test_an_empty_znode_that_tools_leave_means_nothing(znode: tuple[Decoder, bytes | None], value: object) -> None:
    decode, data = znode
    assert decode(data) == value


@pytest.mark.parametrize("decode", DECODERS)
def test_malformed_znodes_are_refused(decode: Decoder) -> None:
    for data in (*MALFORMED[decode], None, b"", b"\x00", b"{"):
        if data or (decode, data) not in WITHOUT_DATA:
            with pytest.raises(MalformedZnodeError):
                pytest.fail(f"{data!r} is {decode(data)}")


def test_an_empty_isr_is_read() -> None:
    """Kafka reads it, and such a partition without a leader is offline."""
    assert decode_state(_state(leader=-1, isr=[])) == State(1, -1, 0, [])


ODD_PARTITIONS: Final[dict[str, tuple[object, str]]] = {
    "a broker three times": ([65633, 65633, 65633], "partition 1 names a broker twice: [65633, 65633, 65633]"),
    "no replicas": ([], "partition 1 has no replicas"),
    "null": (None, "partition 1: Expected `array`, got `null`"),
    "a word": (["one"], "partition 1: Expected `int`, got `str` - at `$[0]`"),
    "an id too large": ([2**31], "partition 1: Expected `int` <= 2147483647 - at `$[0]`"),
}


@pytest.mark.parametrize(("replicas", "reason"), ODD_PARTITIONS.values(), ids=ODD_PARTITIONS)
def test_an_odd_partition_leaves_the_others(replicas: object, reason: str) -> None:
    data = _topic(partitions={"0": [1, 2], "1": replicas, "2": [2, 1]}, adding_replicas={"2": [2]}, topic_id=TOPIC_ID)

    topic = read_assignment(data)

    assert (topic.partitions, topic.adding_replicas, topic.topic_id) == ({0: [1, 2], 2: [2, 1]}, {2: [2]}, TOPIC_ID)
    assert ([part.number for part in topic.unread], topic.reason) == ([1], reason)


ODD_ENTRIES: Final[dict[str, tuple[bytes, list[int | None], str]]] = {
    "no partition number": (
        _topic(partitions={"0": [1], "zero": [1]}),
        [None],
        "'zero', expected a partition number, 2147483647 at most",
    ),
    "adding a stranger": (
        _topic(adding_replicas={"0": [9]}),
        [0],
        "adding_replicas of partition 0 names [9], no replicas of it",
    ),
    "removing null": (
        _topic(removing_replicas={"0": None}),
        [0],
        "removing_replicas of partition 0: Expected `array`, got `null`",
    ),
    "adding to an unknown partition": (
        _topic(adding_replicas={"5": [1]}),
        [None],
        "adding_replicas of partition 5 names [1], no replicas of it",
    ),
    "two": (
        _topic(partitions={"3": [], "4": [1, 1]}),
        [3, 4],
        "partition 3 has no replicas; partition 4 names a broker twice: [1, 1]",
    ),
}


@pytest.mark.parametrize(("data", "numbers", "reason"), ODD_ENTRIES.values(), ids=ODD_ENTRIES)
def test_each_odd_entry_of_a_topic_has_its_reason(data: bytes, numbers: list[int | None], reason: str) -> None:
    topic = read_assignment(data)

    assert ([part.number for part in topic.unread], topic.reason) == (numbers, reason)


def test_unread_entries_are_written_back() -> None:
    data = (
        b'{"version":3,"partitions":{"0":[1],"1":[7,7],"x":1.50},"adding_replicas":{"1":[null]},"removing_replicas":{}}'
    )

    assert encode_assignment(read_assignment(data)) == data


CONFIGS: Final[dict[str, tuple[bytes, dict[str, str | None] | None, list[str]]]] = {
    "as Kafka writes it": (b'{"version":1,"config":{"k":"v"}}', {"k": "v"}, []),
    "null": (b'{"config":{"r":null}}', {"r": None}, ["r: Expected `str`, got `null`"]),
    "without config": (b'{"version":1}', None, ["Object missing required field `config`"]),
    "an array": (b"[]", None, ["Expected `object`, got `array`"]),
    "empty": (b"", {}, []),
}


@pytest.mark.parametrize(("data", "config", "reasons"), CONFIGS.values(), ids=CONFIGS)
def test_an_odd_value_leaves_the_others(data: bytes, config: object, reasons: list[str]) -> None:
    assert read_config(data) == (config, reasons)


def test_an_odd_entry_of_a_request_leaves_the_others() -> None:
    listed = [{"topic": "t", "partition": 0, "replicas": [1]}, None, {"topic": "t", "partition": "x", "replicas": [1]}]

    requests, reasons = read_partitions(json.dumps({"version": 1, "partitions": listed}).encode())

    assert requests == [TopicPartition("t", 0, [1])]
    assert reasons == [
        "entry 1: Expected `object`, got `null`",
        "entry 2: Expected `int`, got `str` - at `$.partition`",
    ]


@pytest.mark.parametrize("replicas", [[], [1, 1], [-1]])
def test_replicas_are_read_as_requested(replicas: list[int]) -> None:
    """An invalid request is refused alone; as a malformed znode it would block the others."""
    listed = [{"topic": "t", "partition": 0, "replicas": replicas}, {"topic": "t", "partition": 1, "replicas": [2]}]

    decoded = decode_partitions(json.dumps({"version": 1, "partitions": listed}).encode())

    assert decoded == [TopicPartition("t", 0, replicas), TopicPartition("t", 1, [2])]


def test_a_request_with_an_invalid_topic_blocks_no_other() -> None:
    listed = [{"topic": name, "partition": 0, "replicas": [1]} for name in ("a/b", "", "..", "red\x1b[31m", "t")]

    decoded = decode_partitions(json.dumps({"version": 1, "partitions": listed}).encode())

    assert [order.topic for order in decoded] == ["a/b", "", "..", "red\\x1b[31m", "t"]


def test_of_two_orders_for_a_partition_the_last_counts() -> None:
    listed = [{"topic": "t", "partition": 0, "replicas": replicas} for replicas in ([1], [2])]

    assert decode_partitions(json.dumps({"partitions": listed}).encode()) == [TopicPartition("t", 0, [2])]


REASONS: Final[dict[str, tuple[Decoder, bytes | None, str]]] = {
    "empty": (decode_state, b"", "empty, expected JSON"),
    "duplicate": (decode_state, _state(isr=[1, 1]), "the ISR names a broker twice: [1, 1]"),
    "duplicate replica": (
        decode_assignment,
        _topic(partitions={"7": [1, 1]}),
        "partition 7 names a broker twice: [1, 1]",
    ),
    "no replicas": (decode_assignment, _topic(partitions={"7": []}), "partition 7 has no replicas"),
    "epoch": (decode_epoch, b"x", "b'x', expected a decimal number, 2147483646 at most"),
    "stranger": (
        decode_assignment,
        _topic(adding_replicas={"0": [2, 9]}),
        "adding_replicas of partition 0 names [9], no replicas of it",
    ),
    "protocol": (
        decode_broker,
        _broker(endpoints=["L://h:1"]),
        "endpoint 'L://h:1' has no security protocol: None",
    ),
    "cut": (decode_epoch, b"x" * 900_000, ("b'" + "x" * 1000)[:1000]),
    "endpoint": (decode_broker, _broker(endpoints=["h:1"]), "endpoint 'h:1', expected LISTENER://host:port"),
}


@pytest.mark.parametrize(("decode", "data", "reason"), REASONS.values(), ids=REASONS)
def test_the_reason_says_what_was_found(decode: Decoder, data: bytes | None, reason: str) -> None:
    with pytest.raises(MalformedZnodeError) as raised:
        decode(data)
    assert str(raised.value) == reason


@given(st.none() | st.binary(max_size=1500))
def test_any_data_can_be_shown(data: bytes | None) -> None:
    shown = printable(data)
    assert (shown is None) == (data is None)
    assert len((shown or "").encode()) <= 4000


HEAD: Final = '{"version":3,"partitions":{"0":[1,2]},"adding_replicas":'
WITH_ID: Final = HEAD + '{},"removing_replicas":{},"topic_id":%s}'
ADDING: Final = HEAD + '%s,"removing_replicas":{}}'
REMOVING: Final = HEAD + '{},"removing_replicas":%s}'
NOT_OBJECTS: Final = ("null", "5", '"x"', "[]")

# data, reason, whether it is unknown what moves
CASES: Final[dict[str, tuple[str, bool]]] = {
    **{
        WITH_ID % value: (reason, False)
        for value, reason in {
            "null": "topic_id: Expected `str`, got `null`",
            "5": "topic_id: Expected `str`, got `int`",
            '"x"': r"topic_id: Expected `str` matching regex '\\A[A-Za-z0-9_-]{22}(==)?\\Z'",
        }.items()
    },
    **{ADDING % value: ("adding_replicas: Expected `object`, got ", True) for value in NOT_OBJECTS},
    **{REMOVING % value: ("removing_replicas: Expected `object`, got ", True) for value in NOT_OBJECTS},
}


@pytest.mark.parametrize(("data", "expected"), CASES.items(), ids=CASES)
def test_an_unread_field_leaves_the_partitions(data: str, expected: tuple[str, bool]) -> None:
    reason, moves_are_unknown = expected

    topic = read_assignment(data.encode())

    assert (topic.partitions, topic.adding_replicas, topic.topic_id, topic.unread) == ({0: [1, 2]}, {}, None, ())
    assert topic.reason.startswith(reason)
    assert bool(topic.unread_moves) is moves_are_unknown
    assert encode_assignment(topic) == data.encode()
    with pytest.raises(MalformedZnodeError):
        decode_assignment(data.encode())


def test_a_moving_list_under_another_spelling_of_the_key_is_unread() -> None:
    """Kafka looks up the list by the partition's own key."""
    topic = read_assignment(b'{"partitions":{"0":[3,1]},"adding_replicas":{},"removing_replicas":{"00":[1]}}')

    assert (topic.partitions, topic.removing_replicas) == ({0: [3, 1]}, {})
    assert topic.reason == "removing_replicas of partition 0 names [1], no replicas of it"
