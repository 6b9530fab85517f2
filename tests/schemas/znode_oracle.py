"""A second decoder of every znode, with `json` of the standard library and plain assertions.

It takes the last value of a key that occurs twice and ignores the others, and the first value of JSON in a text, in any
encoding.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from schemas.znode_codecs import (
    Assignment,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    LogDirEvent,
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
)
from tests.schemas.kafka_znodes import Decoder

LARGEST: Final = 2**31 - 1
LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS: Final = "0123456789"
PROTOCOLS: Final = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}


EMPTY: Final[dict[Decoder, object]] = {decode_config: {}, decode_migration: -1, decode_partitions: []}
"""Znodes that Kafka or its tools leave with data of length 0, and what that means; Kafka decodes no others."""


@dataclass(frozen=True)
class Refused:
    """A znode that is not understood."""


@dataclass(frozen=True)
class Reading:
    value: object
    ambiguous: bool = False


def read(decode: Decoder, data: bytes) -> Reading:
    """Decode as the codec of that name should."""
    if not data and decode in EMPTY:
        return Reading(EMPTY[decode])
    try:
        document, ambiguous = parse(data)
    except (AssertionError, ValueError):
        document, ambiguous = None, False
    try:
        return Reading(MEANING[decode](document, data), ambiguous)
    except (AssertionError, AttributeError, KeyError, TypeError):
        return Reading(Refused(), ambiguous)


def parse(data: bytes) -> tuple[Any, bool]:
    twice = False

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice = twice or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    text = data.decode(json.detect_encoding(data), errors="replace").lstrip(" \t\r\n")
    decoder = json.JSONDecoder(parse_int=an_integer, parse_constant=no_constant, object_pairs_hook=as_object)
    value, end = decoder.raw_decode(text)
    assert "\ufffd" not in text[:end]
    assert isinstance(value, dict | list | str) or not text[end:].strip() or text[end] in " \t\r\n"
    json.dumps(value, ensure_ascii=False).encode()  # refuses halves of surrogate pairs
    return value, twice


def an_integer(digits: str) -> int:
    # Python refuses to parse numbers of thousands of digits, so any number that is too large is refused
    return int(digits[:30])


def no_constant(name: str) -> None:
    raise AssertionError(name)


def number(value: Any, low: int = 0, high: int = LARGEST) -> int:  # noqa: ANN401 - any JSON
    assert type(value) is int
    assert low <= value <= high
    return value


def text(value: Any) -> str:  # noqa: ANN401
    assert isinstance(value, str)
    return value


def text_or_null(value: Any) -> str | None:  # noqa: ANN401
    return None if value is None else text(value)


def broker_ids(value: Any, *, at_least: int = 1) -> list[int]:  # noqa: ANN401
    assert isinstance(value, list)
    assert len(value) >= at_least
    assert all(value.count(broker_id) == 1 for broker_id in value)
    return [number(broker_id) for broker_id in value]


def by_partition(value: Any, *, at_least: int) -> dict[int, list[int]]:  # noqa: ANN401
    assert all(re.fullmatch(r"[+-]?\d+", key) and number(an_integer(key)) >= 0 for key in value)
    return {int(key): broker_ids(replicas, at_least=at_least) for key, replicas in value.items()}


def state(content: Any, _data: bytes) -> State:  # noqa: ANN401
    return State(
        controller_epoch=number(content["controller_epoch"], high=LARGEST - 1),
        leader=number(content["leader"], low=-1),
        leader_epoch=number(content["leader_epoch"], high=LARGEST - 1),
        isr=broker_ids(content["isr"], at_least=0),
        leader_recovery_state=number(content.get("leader_recovery_state", 0), high=1),
    )


def assignment_by_part(content: Any, _data: bytes) -> tuple[dict[str, Any], set[str]]:  # noqa: ANN401
    """Return the assignment of each partition, and the keys of those that are not understood."""
    lists = {name: content.get(name, {}) for name in ("partitions", "adding_replicas", "removing_replicas")}
    assert "partitions" in content
    assert isinstance(lists["partitions"], dict)
    lists = {name: of_name if isinstance(of_name, dict) else {} for name, of_name in lists.items()}
    values: dict[str, Any] = {name: {} for name in lists} | {"topic_id": None}
    with suppress(AssertionError):
        values["topic_id"] = topic_id_of(content)
    unread = set()
    for key in {key for of_name in lists.values() for key in of_name}:
        one = {name: {key: of_name[key]} for name, of_name in lists.items() if key in of_name}
        try:
            read = assignment({"partitions": {}} | one, b"")
        except (AssertionError, AttributeError, KeyError, TypeError):
            unread.add(key)
            continue
        for name in lists:
            values[name] |= getattr(read, name)
    return values, unread


def topic_id_of(content: Any) -> str | None:  # noqa: ANN401
    topic_id = text(content["topic_id"]) if "topic_id" in content else None
    topic_id = topic_id and topic_id.removesuffix("==")
    assert topic_id is None or (len(topic_id) == 22 and all(letter in LETTERS + DIGITS + "-_" for letter in topic_id))
    return topic_id


def config_by_part(content: Any, _data: bytes) -> tuple[dict[str, str | None] | None, int]:  # noqa: ANN401
    """Return the values that are strings, null for the others, and the number of the others."""
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        return None, 1
    config = {key: value if isinstance(value, str) else None for key, value in content["config"].items()}
    return config, sum(value is None for value in config.values())


def partitions_by_part(content: Any, _data: bytes) -> tuple[list[TopicPartition], int]:  # noqa: ANN401
    """Return the entries that are understood, and the number of the others."""
    assert isinstance(content["partitions"], list)
    listed, unread = [], 0
    for partition in content["partitions"]:
        try:
            listed.append(topic_partition(partition))
        except (AssertionError, AttributeError, KeyError, TypeError):
            unread += 1
    return [*{(entry.topic, entry.partition): entry for entry in listed}.values()], unread


def assignment(content: Any, _data: bytes) -> Assignment:  # noqa: ANN401
    partitions = by_partition(content["partitions"], at_least=1)
    adding = moving(content, "adding_replicas", partitions)
    removing = moving(content, "removing_replicas", partitions)
    return Assignment(partitions, adding, removing, topic_id_of(content))


def moving(content: Any, name: str, partitions: dict[int, list[int]]) -> dict[int, list[int]]:  # noqa: ANN401
    """Return the moving replicas; Kafka looks them up by the key of the partition, so "00" is not partition "0"."""
    by_key = content.get(name, {})
    other_keys = {key for key in by_partition_keys(by_key) - content["partitions"].keys() if int(key) in partitions}
    assert not any(by_key[key] for key in other_keys)
    lists = by_partition(by_key, at_least=0)
    assert all(broker_id in partitions.get(key, []) for key, replicas in lists.items() for broker_id in replicas)
    return by_partition({key: value for key, value in by_key.items() if key not in other_keys}, at_least=0)


def by_partition_keys(value: Any) -> set[str]:  # noqa: ANN401
    return {key for key in value if len(key) < 4300 and re.fullmatch(r"[+-]?\d+", key)}  # what Python converts


def endpoint(address: Any, protocols: dict[str, str]) -> Endpoint:  # noqa: ANN401
    listener, _, host_and_port = address.strip().partition("://")
    listener = listener.upper()
    host, _, port = host_and_port.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    assert host
    assert all(letter in LETTERS + DIGITS + "-_.:%" for letter in host)
    assert 1 <= len(port) <= 5
    assert all(letter in DIGITS for letter in port)
    assert listener
    assert not set(listener) & {":", "/"}
    assert protocols[listener].upper() in PROTOCOLS
    return Endpoint(listener, protocols[listener].upper(), host, number(int(port), high=65535))


def broker(content: Any, _data: bytes) -> BrokerRegistration:  # noqa: ANN401
    version = number(content["version"], low=1)
    protocols = content.get("listener_security_protocol_map", PROTOCOLS)
    assert all(isinstance(protocol, str) for protocol in protocols.values())
    number(content["jmx_port"], low=-LARGEST - 1)
    for versions in (content.get("features") or {}).values():
        assert all(number(version, low=-LARGEST - 1) is not None for version in versions.values())
        assert number(versions["min_version"], high=32767) <= number(versions["max_version"], high=32767)
    assert content.get("features") is None or isinstance(content["features"], dict)
    host, port = content.get("host"), content.get("port", -1)
    if version > 1:
        host = host if isinstance(host, str) else None
        port = port if type(port) is int and -1 <= port <= 65535 else -1
    host, port = text_or_null(host), number(port, low=-1, high=65535)
    addresses = content.get("endpoints", [])
    assert isinstance(addresses, list)
    assert all(isinstance(address, str) for address in addresses)
    if version == 1:
        addresses = [f"PLAINTEXT://{host or ''}:{port}"]
    endpoints = tuple(endpoint(address, protocols) for address in addresses)
    assert len({named.listener for named in endpoints}) == len(endpoints) > 0
    return BrokerRegistration(endpoints, host, port, text_or_null(content.get("rack")))


def epoch(_content: Any, data: bytes) -> int:  # noqa: ANN401
    assert re.fullmatch(r"[+-]?\d+", data.decode(errors="replace"))
    return number(an_integer(data.decode()), high=LARGEST - 1)


def controller(content: Any, data: bytes) -> ControllerRegistration:  # noqa: ANN401
    if data.isdigit():
        assert len(data) <= 10
        return ControllerRegistration(number(int(data)), -1)
    return ControllerRegistration(
        number(content["brokerid"], low=-1), number(content.get("kraftControllerEpoch", -1), low=-1)
    )


def config(content: Any, _data: bytes) -> dict[str, str]:  # noqa: ANN401
    return {key: text(value) for key, value in content["config"].items()}


def is_topic_name(topic: str) -> bool:
    letters = LETTERS + DIGITS + "._-"
    return topic not in {".", ".."} and 1 <= len(topic) <= 249 and all(letter in letters for letter in topic)


def ordered(value: Any) -> list[int]:  # noqa: ANN401
    assert isinstance(value, list)
    return [number(broker_id, low=-LARGEST - 1) for broker_id in value]


def topic_partition(content: Any) -> TopicPartition:  # noqa: ANN401
    replicas = ordered(content["replicas"]) if "replicas" in content else None
    topic = text(content["topic"])
    assert len(topic) <= 249
    if not is_topic_name(topic):
        cut = topic.encode()[:1000].decode(errors="backslashreplace")
        topic = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)
    return TopicPartition(topic, number(content["partition"]), replicas)


def partitions(content: Any, _data: bytes) -> list[TopicPartition]:  # noqa: ANN401
    assert isinstance(content["partitions"], list)
    listed = [topic_partition(partition) for partition in content["partitions"]]
    return [*{(entry.topic, entry.partition): entry for entry in listed}.values()]


def log_dir_event(content: Any, _data: bytes) -> LogDirEvent:  # noqa: ANN401
    return LogDirEvent(number(content["broker"]), number(content["event"]))


def migration(content: Any, _data: bytes) -> int:  # noqa: ANN401
    return number(content["kraft_controller_id"], low=-1)


def cluster_id(content: Any, _data: bytes) -> str:  # noqa: ANN401
    assert text(content["id"])
    return str(content["id"])


MEANING: Final[dict[Decoder, Callable[[Any, bytes], object]]] = {
    decode_assignment: assignment,
    decode_broker: broker,
    decode_cluster_id: cluster_id,
    decode_config: config,
    decode_controller: controller,
    decode_epoch: epoch,
    decode_log_dir_event: log_dir_event,
    decode_migration: migration,
    decode_partitions: partitions,
    decode_state: state,
}
