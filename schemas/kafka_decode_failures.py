"""Predicts whether Kafka can decode a znode and, if not, which function of Kafka fails.

Corresponds to the `decode` methods of `kafka.zk.ZkData` of 3.9, with `kafka.utils.Json`: most of them treat data that
is not JSON as empty, and throw on JSON of another shape. An exception during a controller's start ends that controller,
and the next one as well. `schemas.znode_codecs` is stricter, so every znode found here is in quarantine.
"""

import json
import re
from collections.abc import Callable
from enum import StrEnum
from types import NoneType
from typing import Annotated, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, field

from schemas.jackson import NotJsonError, first_value, java_int
from schemas.znode_codecs import FORBIDDEN
from schemas.znode_json import SECURITY_PROTOCOLS, Int, TopicId
from schemas.znode_paths import BROKER_IDS, TOPICS

_LARGEST_INT: Final = 2**31 - 1
_LongText = Annotated[str, Meta(pattern=r"\A[+-]?[0-9]{1,19}\Z")]
_KAFKA_ENDPOINT: Final = re.compile(r"(?P<listener>.*)://\[?[0-9a-zA-Z\-%._:]*\]?:(?P<port>-?[0-9]+)")
_LAST_FEATURE_VERSION: Final = 32767
_GARBAGE: Final = object()
"""The value of data that is not JSON."""

Decode = Callable[[bytes | None], object]
T = TypeVar("T")


class KafkaImpact(StrEnum):
    """Operation of Kafka that a znode blocks."""

    FAIL_OVER = "fail-over"
    """Each broker that becomes the controller resigns at once: there are no elections, creations or moves."""
    START = "broker start"
    """A broker stops at once when it starts."""
    ALL = "fail-over and broker start"
    """As FAIL_OVER and START together: a broker that starts and a controller both read the registrations."""
    REGISTRATION = "controller"
    """No broker can become the controller."""
    PRODUCER_IDS = "producer ids"
    """The controller allocates no producer ids, so new idempotent producers wait."""


class _UnusableError(Exception):
    """Kafka's decoder returns a value over which a controller's start throws."""


def _tree(data: bytes | None) -> object:
    """Read the first JSON value as Jackson does; the rest is ignored, and half of a surrogate pair becomes `?`."""
    if data is None or not data.strip(b" \t\r\n"):
        raise ValidationError
    try:
        text = json.dumps(first_value(data), ensure_ascii=False)
    except (NotJsonError, RecursionError):
        return _GARBAGE
    value: object = json.loads(text.encode(errors="replace"))
    return value


def _read(data: bytes | None, shape: type[T]) -> T | None:
    """Decode a znode; None if it is not JSON, which most of Kafka's decoders treat as empty."""
    value = _tree(data)
    return None if value is _GARBAGE else convert(value, shape)


def _java_int(text: str) -> int:
    number = java_int(text)
    if number is None:
        raise ValidationError
    return number


class _Topic(Struct):
    partitions: dict[str, list[Int]] = {}
    adding_replicas: dict[str, object] = {}
    removing_replicas: dict[str, object] = {}
    topic_id: TopicId | UnsetType = UNSET


def _topic(data: bytes | None) -> None:
    topic = _read(data, _Topic) or _Topic()
    for key in topic.partitions:
        _java_int(key)
        for moving in (topic.adding_replicas, topic.removing_replicas):
            convert(moving.get(key, []), list[Int])


class _State(Struct):
    leader: Int
    leader_epoch: Int
    controller_epoch: Int
    isr: list[Int]
    leader_recovery_state: Literal[0, 1] = 0


def _config(data: bytes | None) -> None:
    if data is None or not data.strip():
        return
    value = _tree(data)
    config = value.get("config") if isinstance(value, dict) else None
    if isinstance(config, dict):
        convert(config, dict[str, str])


class _FeatureVersions(Struct):
    min_version: Annotated[int, Meta(ge=0)]
    max_version: Annotated[int, Meta(le=_LAST_FEATURE_VERSION)]

    def __post_init__(self) -> None:
        if self.min_version > self.max_version:
            raise ValueError


class _Broker(Struct, kw_only=True):
    version: Annotated[int, Meta(ge=1, le=_LARGEST_INT)]
    jmx_port: Int
    rack: str | None = None
    features: dict[str, _FeatureVersions] | None = None


class _FirstBroker(_Broker, kw_only=True):
    """A registration of version 1."""

    host: str
    port: Int


class _LaterBroker(_Broker, kw_only=True):
    endpoints: list[str]
    listener_security_protocol_map: dict[str, str] = field(default_factory=SECURITY_PROTOCOLS.copy)


def _broker(data: bytes | None) -> None:
    value = _tree(data)
    if convert(value, _Broker).version == 1:
        convert(value, _FirstBroker)
    else:
        _endpoints(convert(value, _LaterBroker))


def _endpoints(broker: _LaterBroker) -> None:
    """Raise if an endpoint is invalid.

    An empty list decodes, but the controller then resigns because it has no address for the broker.
    """
    protocols = broker.listener_security_protocol_map
    if not all(protocol.upper() in SECURITY_PROTOCOLS for protocol in protocols.values()):
        raise ValidationError
    endpoints = [text.strip() for text in ",".join(broker.endpoints).split(",") if text.strip()]
    listeners = set()
    for endpoint in endpoints:
        parts = _KAFKA_ENDPOINT.fullmatch(endpoint)
        if parts is None or parts["listener"].upper() not in protocols:
            raise ValidationError
        _java_int(parts["port"])
        listeners.add(parts["listener"].upper())
    if len(listeners) < len(endpoints):
        raise ValidationError
    if not endpoints:
        raise _UnusableError


_REASSIGNMENT_FIELDS: Final = frozenset({"version", "partitions"})
_ENTRY_FIELDS: Final = frozenset({"topic", "partition", "replicas"})


class _Order(Struct):
    replicas: list[Int]


def _reassignment(data: bytes | None) -> None:
    """Decode /admin/reassign_partitions as Kafka does.

    If an entry has the wrong type, Kafka ignores all entries. Null values and invalid broker ids pass its decoder: a
    controller that executes them writes them into the topic's znode, which then stops the next controller.
    """
    if data is None:
        raise ValidationError
    try:
        value = _tree(data)
    except ValidationError:
        return
    if isinstance(value, dict) and (
        not value.keys() <= _REASSIGNMENT_FIELDS or type(value.get("version", 0)) is not int
    ):
        return
    if value is None or (isinstance(value, dict) and value.get("partitions") is None):
        raise ValidationError
    partitions = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(partitions, list) or not all(map(_is_order, partitions)):
        return
    for entry in partitions:
        convert(entry, _Order)


def ignored_reassignment(data: bytes | None) -> str | None:
    """Return why Kafka's controller ignores /admin/reassign_partitions as a whole; None if it reads the entries.

    `ReassignPartitionsZNode.decode` returns an error for any field that its classes do not have, and for any entry of
    the wrong type; the controller then takes the request for empty and leaves the znode unchanged.

    >>> ignored_reassignment(b'{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]}]}')
    "entry 0 has the field 'log_dirs', which Kafka's controller does not know"
    >>> ignored_reassignment(b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}')
    """
    try:
        value = _tree(data)
    except ValidationError:
        return None
    partitions = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(partitions, list):
        return None
    parts = {"it": (value, _REASSIGNMENT_FIELDS)}
    parts |= {f"entry {n}": (entry, _ENTRY_FIELDS) for n, entry in enumerate(partitions) if isinstance(entry, dict)}
    for where, (part, fields) in parts.items():
        if unknown := sorted(part.keys() - fields):
            return f"{where} has the field {unknown[0]!r}, which Kafka's controller does not know"
    bad = [number for number, entry in enumerate(partitions) if not _is_order(entry)]
    return f"entry {bad[0]} has a value of the wrong type" if bad else None


def _is_order(entry: object) -> bool:
    """Return whether Jackson binds the entry as it is; it accepts any members in the list of replicas."""
    if entry is None:
        return True
    if not isinstance(entry, dict) or not entry.keys() <= _ENTRY_FIELDS:
        return False
    if type(entry.get("partition")) is not int or not isinstance(entry.get("topic"), str):
        return False
    return isinstance(entry.get("replicas", []), list | NoneType)


class _Partition(Struct):
    topic: str
    partition: Int


class _Election(Struct):
    partitions: list[_Partition]


def _epoch(data: bytes | None) -> None:
    _java_int((data or b"").decode(errors="replace"))


class _Feature(Struct):
    version: Literal[1, 2]
    status: Literal[0, 1]
    features: dict[str, object]


class _ProducerIds(Struct):
    broker: Int
    block_start: _LongText
    block_end: _LongText


class _ClusterId(Struct):
    id: str


class _Controller(Struct):
    brokerid: Int
    kraft_controller_epoch: Int = field(default=-1, name="kraftControllerEpoch")


def _lenient(shape: type[Struct]) -> Decode:
    return lambda data: _read(data, shape)


def _strict(shape: type[Struct]) -> Decode:
    return lambda data: convert(_tree(data), shape)


_BROKER_ID_PATH: Final = re.compile(rf"{BROKER_IDS}/(?P<number>.+)")
_BROKER_CONFIG_PATH: Final = re.compile(r"/config/brokers/(?!<default>$)(?P<name>.+)")
_SEQUENCES: Final = {
    "/isr_change_notification/": "isr_change_",
    "/log_dir_event_notification/": "log_dir_event_",
}
"""Folders and name prefixes in them; from a shorter name no sequence number can be cut off."""

_RULES: Final[tuple[tuple[re.Pattern[str], Decode, KafkaImpact], ...]] = tuple(
    (re.compile(path), decode, impact)
    for path, decode, impact in (
        (rf"{TOPICS}/[^/]+", _topic, KafkaImpact.FAIL_OVER),
        (rf"{TOPICS}/[^/]+/partitions/[^/]+/state", _lenient(_State), KafkaImpact.FAIL_OVER),
        (rf"{BROKER_IDS}/[^/]+", _broker, KafkaImpact.ALL),
        (r"/admin/reassign_partitions", _reassignment, KafkaImpact.FAIL_OVER),
        (r"/admin/preferred_replica_election", _lenient(_Election), KafkaImpact.FAIL_OVER),
        (r"/feature", _strict(_Feature), KafkaImpact.FAIL_OVER),
        (r"/controller_epoch", _epoch, KafkaImpact.FAIL_OVER),
        (r"/controller", _strict(_Controller), KafkaImpact.REGISTRATION),
        (r"/config/(topics|brokers|users|clients|ips)/.+", _config, KafkaImpact.START),
        (r"/cluster/id", _strict(_ClusterId), KafkaImpact.START),
        (r"/latest_producer_id_block", _strict(_ProducerIds), KafkaImpact.PRODUCER_IDS),
    )
)


def impact_of(path: str, data: bytes | None) -> KafkaImpact | None:
    """Return what the znode blocks in Kafka, None if Kafka reads or ignores it.

    >>> impact_of("/brokers/topics/orders", b"null"), impact_of("/brokers/topics/orders", b"no JSON")
    (<KafkaImpact.FAIL_OVER: 'fail-over'>, None)

    What the data of a FORBIDDEN znode blocks is unknown, so only its name counts.
    """
    broker = _BROKER_ID_PATH.fullmatch(path)
    if broker is not None and java_int(broker["number"]) is None:
        return KafkaImpact.ALL
    if _has_bad_name(path):
        return KafkaImpact.FAIL_OVER
    settings = _BROKER_CONFIG_PATH.fullmatch(path)
    if settings is not None and java_int(settings["name"]) is None:
        return KafkaImpact.START
    for pattern, decode, impact in _RULES:
        if data is not FORBIDDEN and pattern.fullmatch(path):
            try:
                decode(data)
            except ValidationError:
                return impact
            except _UnusableError:
                return KafkaImpact.FAIL_OVER
    return None


def _has_bad_name(path: str) -> bool:
    return any(
        path.startswith(folder) and len(path) < len(folder) + len(prefix) for folder, prefix in _SEQUENCES.items()
    )
