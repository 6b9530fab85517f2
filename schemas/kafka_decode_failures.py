"""Predicts whether Kafka can decode a znode and, if not, which function of Kafka fails.

Corresponds to the `decode` methods of `kafka.zk.ZkData` of 3.9, with `kafka.utils.Json`: most of them treat data that
is not JSON as empty, and throw on JSON of another shape. An exception during a controller's start ends that controller,
and the next one as well. `schemas.znode_codecs` is stricter, so every znode found here is in quarantine.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from types import NoneType
from typing import Any, Final

from schemas.jackson import NotJsonError, first_value, java_int
from schemas.znode_codecs import FORBIDDEN
from schemas.znode_json import SECURITY_PROTOCOLS
from schemas.znode_paths import BROKER_IDS, TOPICS

_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?", re.ASCII)
_INT_LIMIT: Final = 2**31
_KAFKA_ENDPOINT: Final = re.compile(r"(?P<listener>.*)://\[?[0-9a-zA-Z\-%._:]*\]?:(?P<port>-?[0-9]+)")
_LAST_FEATURE_VERSION: Final = 32767
_GARBAGE: Final = object()
"""The value of data that is not JSON."""


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


class _ThrownError(Exception):
    """Kafka's decoder would throw."""


class _UnusableError(Exception):
    """Kafka's decoder returns a value over which a controller's start throws."""


def _tree(data: bytes | None) -> object:
    """Read the first JSON value as Jackson does; the rest is ignored."""
    if data is None or not data.strip(b" \t\r\n"):
        raise _ThrownError
    try:
        value: object = first_value(data)
    except NotJsonError:
        return _GARBAGE
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _ThrownError
    return value


def _int(value: object) -> int:
    if type(value) is not int or not -_INT_LIMIT <= value < _INT_LIMIT:
        raise _ThrownError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _ThrownError
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _ThrownError
    return value


def _java_int(text: str) -> int:
    number = java_int(text)
    if number is None:
        raise _ThrownError
    return number


def _field(content: dict[str, Any], name: str) -> object:
    if name not in content:
        raise _ThrownError
    return content[name]


def _topic(data: bytes | None) -> None:
    value = _tree(data)
    if value is _GARBAGE:
        return
    topic = _object(value)
    if "topic_id" in topic and not _TOPIC_ID.fullmatch(_text(topic["topic_id"])):
        raise _ThrownError
    lists = [_object(topic[name]) for name in ("adding_replicas", "removing_replicas") if name in topic]
    for key, replicas in _object(topic.get("partitions", {})).items():
        _java_int(key)
        for brokers in (replicas, *(moving[key] for moving in lists if key in moving)):
            _ints(brokers)


def _ints(value: object) -> None:
    for item in _list(value):
        _int(item)


def _state(data: bytes | None) -> None:
    value = _tree(data)
    if value is _GARBAGE:
        return
    state = _object(value)
    for name in ("leader", "leader_epoch", "controller_epoch"):
        _int(_field(state, name))
    _ints(_field(state, "isr"))
    if "leader_recovery_state" in state and _int(state["leader_recovery_state"]) not in {0, 1}:
        raise _ThrownError


def _config(data: bytes | None) -> None:
    if data is None or not data.strip():
        return
    value = _tree(data)
    config = value.get("config") if isinstance(value, dict) else None
    for setting in config.values() if isinstance(config, dict) else ():
        _text(setting)


def _broker(data: bytes | None) -> None:
    broker = _object(_tree(data))
    version = _int(_field(broker, "version"))
    _int(_field(broker, "jmx_port"))
    if version < 1:
        raise _ThrownError
    if version == 1:
        _text(_field(broker, "host"))
        _int(_field(broker, "port"))
    else:
        _endpoints(broker)
    if broker.get("rack") is not None:
        _text(broker["rack"])
    features = broker.get("features")
    for versions in () if features is None else _object(features).values():
        first, last = (_int(_field(_object(versions), name)) for name in ("min_version", "max_version"))
        if not 0 <= first <= last <= _LAST_FEATURE_VERSION:
            raise _ThrownError


def _endpoints(broker: dict[str, Any]) -> None:
    """Raise if an endpoint is invalid.

    An empty list decodes, but the controller then resigns because it has no address for the broker.
    """
    protocols = _object(broker.get("listener_security_protocol_map", SECURITY_PROTOCOLS))
    if not all(_text(protocol).upper() in SECURITY_PROTOCOLS for protocol in protocols.values()):
        raise _ThrownError
    texts = ",".join(map(_text, _list(_field(broker, "endpoints")))).split(",")
    endpoints = [text.strip() for text in texts if text.strip()]
    listeners = set()
    for endpoint in endpoints:
        parts = _KAFKA_ENDPOINT.fullmatch(endpoint)
        if parts is None or parts["listener"].upper() not in protocols:
            raise _ThrownError
        _java_int(parts["port"])
        listeners.add(parts["listener"].upper())
    if len(listeners) < len(endpoints):
        raise _ThrownError
    if not endpoints:
        raise _UnusableError


_REASSIGNMENT_FIELDS: Final = frozenset({"version", "partitions"})
_ENTRY_FIELDS: Final = frozenset({"topic", "partition", "replicas"})


def _reassignment(data: bytes | None) -> None:
    """Decode /admin/reassign_partitions as Kafka does.

    If an entry has the wrong type, Kafka ignores all entries. Null values and invalid broker ids pass its decoder: a
    controller that executes them writes them into the topic's znode, which then stops the next controller.
    """
    if data is None:
        raise _ThrownError
    try:
        value = _tree(data)
    except _ThrownError:
        return
    if isinstance(value, dict) and (
        not value.keys() <= _REASSIGNMENT_FIELDS or type(value.get("version", 0)) is not int
    ):
        return
    if value is None or (isinstance(value, dict) and value.get("partitions") is None):
        raise _ThrownError
    partitions = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(partitions, list) or not all(map(_is_order, partitions)):
        return
    for entry in partitions:
        _ints(_object(entry).get("replicas"))


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
    except _ThrownError:
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


def _election(data: bytes | None) -> None:
    value = _tree(data)
    if value is _GARBAGE:
        return
    for entry in _list(_field(_object(value), "partitions")):
        _text(_field(_object(entry), "topic"))
        _int(_field(entry, "partition"))


def _epoch(data: bytes | None) -> None:
    _java_int((data or b"").decode(errors="replace"))


def _feature(data: bytes | None) -> None:
    feature = _object(_tree(data))
    if _int(_field(feature, "version")) not in {1, 2} or _int(_field(feature, "status")) not in {0, 1}:
        raise _ThrownError
    _object(_field(feature, "features"))


def _producer_ids(data: bytes | None) -> None:
    block = _object(_tree(data))
    _int(_field(block, "broker"))
    for name in ("block_start", "block_end"):
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", _text(_field(block, name)), re.ASCII):
            raise _ThrownError


def _cluster_id(data: bytes | None) -> None:
    _text(_field(_object(_tree(data)), "id"))


def _controller(data: bytes | None) -> None:
    controller = _object(_tree(data))
    _int(_field(controller, "brokerid"))
    _int(controller.get("kraftControllerEpoch", -1))


Decode = Callable[[bytes | None], None]

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
        (rf"{TOPICS}/[^/]+/partitions/[^/]+/state", _state, KafkaImpact.FAIL_OVER),
        (rf"{BROKER_IDS}/[^/]+", _broker, KafkaImpact.ALL),
        (r"/admin/reassign_partitions", _reassignment, KafkaImpact.FAIL_OVER),
        (r"/admin/preferred_replica_election", _election, KafkaImpact.FAIL_OVER),
        (r"/feature", _feature, KafkaImpact.FAIL_OVER),
        (r"/controller_epoch", _epoch, KafkaImpact.FAIL_OVER),
        (r"/controller", _controller, KafkaImpact.REGISTRATION),
        (r"/config/(topics|brokers|users|clients|ips)/.+", _config, KafkaImpact.START),
        (r"/cluster/id", _cluster_id, KafkaImpact.START),
        (r"/latest_producer_id_block", _producer_ids, KafkaImpact.PRODUCER_IDS),
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
            except _ThrownError:
                return impact
            except _UnusableError:
                return KafkaImpact.FAIL_OVER
    return None


def _has_bad_name(path: str) -> bool:
    return any(
        path.startswith(folder) and len(path) < len(folder) + len(prefix) for folder, prefix in _SEQUENCES.items()
    )
