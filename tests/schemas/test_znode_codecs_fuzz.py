"""Fuzz tests of the codecs: 23,000 inputs per run, from noise to Kafka's own znodes with one error.

Every codec gets every input. It must read the same value as the oracle, or refuse with a reason what the oracle
refuses. Any other exception fails the test.
"""

import json
import random
from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.znode_codecs import (
    Assignment,
    ControllerRegistration,
    MalformedZnodeError,
    State,
    check_topic_name,
    decode_assignment,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_state,
    encode_assignment,
    encode_config,
    encode_controller,
    encode_epoch,
    encode_state,
    read_assignment,
    read_config,
    read_partitions,
)
from tests.schemas.kafka_znodes import TOPIC_ID, Decoder
from tests.schemas.spoilt_znodes import ANY_JSON, SEVEN, damaged, endpoint, misshapen
from tests.schemas.znode_oracle import (
    MEANING,
    Refused,
    assignment_by_part,
    config_by_part,
    is_topic_name,
    parse,
    partitions_by_part,
)
from tests.schemas.znode_oracle import read as read_again

LONGEST_REASON: Final = 1000
AT_ONCE: Final = 20
"""Znodes made from one seed."""


def decoded(decode: Decoder, data: bytes) -> object:
    try:
        return decode(data)
    except MalformedZnodeError as error:
        reason = str(error)
    assert 0 < len(reason) <= LONGEST_REASON
    return Refused()


def misunderstandings(data: bytes) -> list[tuple[str, object, object]]:
    """Return each codec whose result differs from the oracle's, with both results."""
    both = [(decode.__name__, decoded(decode, data), read_again(decode, data)) for decode in MEANING]
    return [
        (name, understood, reading.value)
        for name, understood, reading in both
        if understood != reading.value and not (reading.ambiguous and understood == Refused())
    ]


def misunderstood(inputs: Iterable[bytes]) -> dict[bytes, list[tuple[str, object, object]]]:
    """Return the inputs that a codec reads in another way than the oracle."""
    return {data: differences for data in inputs if (differences := misunderstandings(data))}


SEEDS: Final = st.integers(0, 2**64 - 1).map(random.Random)


def inputs(count: int) -> settings:
    return settings(max_examples=count)


@inputs(4_000 // AT_ONCE)
@given(SEEDS)
def test_noise(chance: random.Random) -> None:
    assert misunderstood(chance.randbytes(chance.randint(0, 200)) for _ in range(AT_ONCE)) == {}


@inputs(5_000 // AT_ONCE)
@given(SEEDS)
def test_damaged_bytes(chance: random.Random) -> None:
    assert misunderstood(damaged(chance) for _ in range(AT_ONCE)) == {}


@inputs(5_000 // AT_ONCE)
@given(SEEDS)
def test_misshapen_fields(chance: random.Random) -> None:
    assert misunderstood(misshapen(chance) for _ in range(AT_ONCE)) == {}


@inputs(300)
@given(ANY_JSON)
def test_any_json(value: object) -> None:
    assert misunderstandings(json.dumps(value).encode()) == []


@inputs(4_000 // AT_ONCE)
@given(SEEDS)
def test_endpoints(chance: random.Random) -> None:
    assert misunderstood(with_endpoints(chance) for _ in range(AT_ONCE)) == {}


def by_part(data: bytes) -> list[object]:
    """Return the parts of an assignment, a config and a request that are understood, and the number of others."""
    found: list[object] = []
    try:
        topic = read_assignment(data)
        lists = {name: getattr(topic, name) for name in ("partitions", "adding_replicas", "removing_replicas")}
        found.append((lists | {"topic_id": topic.topic_id}, {part.key for part in topic.unread}))
    except MalformedZnodeError:
        found.append(Refused())
    config, unread = read_config(data)
    found.append((config, len(unread)))
    try:
        requests, unread = read_partitions(data)
        found.append((requests, len(unread)))
    except MalformedZnodeError:
        found.append(Refused())
    return found


def expected_by_part(data: bytes) -> list[object]:
    """Return the same from the oracle; of a key that occurs twice the codecs refuse more."""
    document, ambiguous = parse(data)
    assert not ambiguous
    found: list[object] = []
    for read in (assignment_by_part, config_by_part, partitions_by_part):
        try:
            found.append(read(document, data))
        except (AssertionError, AttributeError, KeyError, TypeError):
            found.append(Refused())
    return found


@inputs(4_000 // AT_ONCE)
@given(SEEDS)
def test_parts(chance: random.Random) -> None:
    """Each part of a JSON document is understood or not, whatever the other parts are."""
    differing = {}
    for _ in range(AT_ONCE):
        data = misshapen(chance)
        try:
            expected = expected_by_part(data)
        except (AssertionError, ValueError):
            continue
        if by_part(data) != expected:
            differing[data] = (by_part(data), expected)
    assert differing == {}


def with_endpoints(chance: random.Random) -> bytes:
    """Return a registration with up to two endpoints."""
    endpoints = [endpoint(chance) for _ in range(chance.randint(0, 2))]
    protocols = {"L": "SASL_SSL", "SSL": "SSL", "PLAINTEXT": "PLAINTEXT", "": "SSL", " ": "TELEPATHY"}
    registration = {"version": 4, "jmx_port": -1, "endpoints": endpoints, "listener_security_protocol_map": protocols}
    return json.dumps(registration).encode()


@inputs(500)
@example("x" * 249)
@example("x" * 250)
@example("__consumer_offsets")
@example("..")
@example("a\n")
@given(st.text("aZ09._-/ \n\x00é" + SEVEN, max_size=6) | st.text(max_size=300) | st.text("a", max_size=300))
def test_topic_names(topic: str) -> None:
    assert accepts_topic(topic) is is_topic_name(topic)


def accepts_topic(topic: str) -> bool:
    try:
        check_topic_name(topic)
    except MalformedZnodeError:
        return False
    return True


# A znode holds at most 1 MB.
MASSES: Final = {
    "noise": random.Random(7).randbytes(900_000),  # noqa: S311 - the same noise each time
    "zeros": bytes(900_000),
    "digits": b"7" * 900_000,
    "spaces": b" " * 900_000,
    "open arrays": b"[" * 900_000,
    "open objects": b'{"partitions":' * 60_000,
    "nested arrays": b"[" * 450_000 + b"]" * 450_000,
    "nested field": b'{"isr":' + b"[" * 400_000 + b"]" * 400_000 + b"}",
    "nested unknown field": b'{"x":' * 150_000 + b"1" + b"}" * 150_000,
    "an open string": b'"' + b"x" * 900_000,
    "an endpoint": b'{"version":5,"endpoints":["' + b"x" * 900_000 + b'"]}',
    "replicas": b'{"partitions":{"0":[' + b"1," * 400_000 + b"1]}}",
    "ISR": b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[' + b"1," * 400_000 + b"1]}",
    "a topic": b'{"partitions":[{"topic":"' + b"x" * 900_000 + b'","partition":0}]}',
}


@pytest.mark.parametrize("data", MASSES.values(), ids=MASSES)
def test_masses_are_refused_with_a_short_reason(data: bytes) -> None:
    assert {decode.__name__: decoded(decode, data) for decode in MEANING} == {
        decode.__name__: Refused() for decode in MEANING
    }


NUMBERS: Final = st.integers(0, 2**31 - 1)
EPOCHS: Final = st.integers(0, 2**31 - 2)
BROKER_IDS: Final = st.lists(NUMBERS, min_size=1, max_size=5, unique=True)
STATES: Final = st.builds(State, EPOCHS, st.just(-1) | NUMBERS, EPOCHS, BROKER_IDS, st.sampled_from([0, 1]))
CONFIGS: Final = st.dictionaries(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2)


Moving = dict[int, tuple[list[int], int, int]]
"""Replicas of a partition, with the numbers of adding and removing ones."""


def assignment(moving: Moving, topic_id: str | None) -> Assignment:
    partitions = {partition: replicas for partition, (replicas, _, _) in moving.items()}
    adding = {partition: replicas[:coming] for partition, (replicas, coming, _) in moving.items() if coming}
    removing = {partition: replicas[-going:] for partition, (replicas, _, going) in moving.items() if going}
    return Assignment(partitions, adding, removing, topic_id)


A_FEW: Final = st.integers(0, 2)
MOVING: Final = st.dictionaries(NUMBERS, st.tuples(BROKER_IDS, A_FEW, A_FEW), max_size=4)
ASSIGNMENTS: Final = st.builds(assignment, MOVING, st.none() | st.just(TOPIC_ID))


@inputs(300)
@given(STATES)
def test_a_state_comes_back(state: State) -> None:
    assert decode_state(encode_state(state)) == state


@inputs(300)
@given(ASSIGNMENTS)
def test_an_assignment_comes_back(assigned: Assignment) -> None:
    assert decode_assignment(encode_assignment(assigned)) == assigned


@inputs(300)
@given(CONFIGS)
def test_a_config_comes_back(config: dict[str, str]) -> None:
    assert decode_config(encode_config(config)) == config


@inputs(300)
@given(NUMBERS, EPOCHS, st.integers(0, 2**53))
def test_controller_and_epoch_come_back(number: int, epoch: int, timestamp_ms: int) -> None:
    assert decode_epoch(encode_epoch(epoch)) == epoch
    assert decode_controller(encode_controller(number, timestamp_ms)) == ControllerRegistration(number, -1)
