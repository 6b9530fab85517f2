"""Codecs between znodes and typed values: bytes in, value or reason out, and back.

Pure functions, the only decoders of the system. They follow `kafka.zk.ZkData` in what they accept and write, and
are stricter where Kafka would go on with a wrong value: whatever is not understood is a `MalformedZnodeError` with
its reason, for the quarantine. Formats and versions: the layout table of ZkData.scala.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from schemas.names import NO_LEADER, RECOVERED, RECOVERING

BrokerId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Epoch = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=-1, le=65535)]

_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://\[?(?P<host>[^\]]*?)\]?:(?P<port>\d{1,5})")
_EPOCH: Final = re.compile(rb"\d{1,10}")
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CUT: Final = 1000

T = TypeVar("T")


class MalformedZnodeError(ValueError):
    """A znode's data is not what Kafka writes there; the message says what was found."""


class Endpoint(Struct, frozen=True):
    listener: str
    security_protocol: str
    host: str
    port: int


class Broker(Struct, frozen=True):
    """A registration in /brokers/ids/N: `{"version":5,"host":H,"port":P,"endpoints":["L://h:p"],"rack":R,...}`."""

    endpoints: tuple[Endpoint, ...]
    host: str | None
    port: int
    rack: str | None


class Assignment(Struct, frozen=True):
    """A topic's assignment in /brokers/topics/T: `{"version":3,"partitions":{"0":[1,2]},...}`."""

    partitions: dict[int, list[int]]
    adding_replicas: dict[int, list[int]]
    removing_replicas: dict[int, list[int]]
    topic_id: str | None


class State(Struct, frozen=True):
    """A partition's state: `{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}`."""

    controller_epoch: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    leader: Annotated[int, Meta(ge=NO_LEADER, le=2**31 - 1)]
    leader_epoch: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    isr: list[BrokerId]
    leader_recovery_state: Annotated[int, Meta(ge=RECOVERED, le=RECOVERING)] = RECOVERED


class Controller(Struct, frozen=True):
    """/controller: `{"version":2,"brokerid":0,"timestamp":"ms","kraftControllerEpoch":-1}`, or a bare id."""

    broker_id: int
    kraft_controller_epoch: int


class TopicPartition(Struct, frozen=True):
    topic: str
    partition: Partition
    replicas: list[BrokerId] | None = None


class LogDirEvent(Struct, frozen=True):
    """/log_dir_event_notification/log_dir_event_N: `{"version":1,"broker":1,"event":1}`."""

    broker: BrokerId
    event: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Registration(Struct):
    version: Annotated[int, Meta(ge=1)]
    host: str | None = None
    port: Port | None = None
    endpoints: list[str] | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    rack: str | None = None


class _Topic(Struct):
    partitions: dict[Partition, list[BrokerId]]
    adding_replicas: dict[Partition, list[BrokerId]] = {}
    removing_replicas: dict[Partition, list[BrokerId]] = {}
    topic_id: str | None = None


class _Controller(Struct):
    brokerid: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    kraft_controller_epoch: int | None = msgspec.field(default=None, name="kraftControllerEpoch")


class _Config(Struct):
    config: dict[str, str]


class _Partitions(Struct):
    partitions: list[TopicPartition]


class _Migration(Struct):
    kraft_controller_id: int = -1


class _ClusterId(Struct):
    id: str


def _decode(data: bytes | None, shape: type[T]) -> T:
    if not data:
        raise MalformedZnodeError("empty, expected JSON")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedZnodeError(str(error)) from None


def _refuse_duplicates(what: str, broker_ids: Sequence[int]) -> None:
    if len(set(broker_ids)) != len(broker_ids):
        raise MalformedZnodeError(f"{what} names a broker twice: {list(broker_ids)}")


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    parts = _ENDPOINT.fullmatch(text)
    if parts is None:
        raise MalformedZnodeError(f"endpoint {text!r}, expected LISTENER://host:port")
    listener, port = parts["listener"], int(parts["port"])
    if port > 65535:  # noqa: PLR2004 - the highest port there is
        raise MalformedZnodeError(f"endpoint {text!r} has no such port")
    return Endpoint(listener, protocols.get(listener, listener), parts["host"], port)


def decode_broker(data: bytes | None) -> Broker:
    """Decode /brokers/ids/N of any version from 1 on (`BrokerIdZNode.decode`).

    >>> decode_broker(b'{"version":1,"host":"a","port":9092}').endpoints
    (Endpoint(listener='PLAINTEXT', security_protocol='PLAINTEXT', host='a', port=9092),)
    """
    found = _decode(data, _Registration)
    if found.version == 1:
        if found.host is None or found.port is None or found.port < 0:
            raise MalformedZnodeError("version 1 without host and port")
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "PLAINTEXT", found.host, found.port),)
    else:
        protocols = found.listener_security_protocol_map or {}
        endpoints = tuple(_endpoint(text, protocols) for text in found.endpoints or ())
    if not endpoints:
        raise MalformedZnodeError("no endpoints")
    port = -1 if found.port is None else found.port
    return Broker(endpoints, found.host, port, found.rack)


def decode_assignment(data: bytes | None) -> Assignment:
    """Decode /brokers/topics/T, versions 1 to 3 (`TopicZNode.decode`).

    >>> decode_assignment(b'{"version":1,"partitions":{"0":[1,2]}}').partitions
    {0: [1, 2]}
    """
    found = _decode(data, _Topic)
    for partition, replicas in found.partitions.items():
        _refuse_duplicates(f"partition {partition}", replicas)
        if not replicas:
            raise MalformedZnodeError(f"partition {partition} has no replicas")
    return Assignment(found.partitions, found.adding_replicas, found.removing_replicas, found.topic_id)


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode /brokers/topics/T as Kafka 3.9 writes it: version 3, without an id where none is known.

    >>> encode_assignment(Assignment({0: [1, 2]}, {}, {}, None))
    b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
    """
    fields: dict[str, Any] = {
        "version": 3,
        "partitions": {str(p): replicas for p, replicas in sorted(assignment.partitions.items())},
        "adding_replicas": {str(p): r for p, r in sorted(assignment.adding_replicas.items()) if r},
        "removing_replicas": {str(p): r for p, r in sorted(assignment.removing_replicas.items()) if r},
    }
    if assignment.topic_id is not None:
        fields["topic_id"] = assignment.topic_id
    return msgspec.json.encode(fields)


def decode_state(data: bytes | None) -> State:
    """Decode .../partitions/P/state (`TopicPartitionStateZNode.decode`).

    >>> decode_state(b'{"controller_epoch":6,"leader":6,"version":1,"leader_epoch":24,"isr":[7,6]}').isr
    [7, 6]
    """
    state = _decode(data, State)
    _refuse_duplicates("the ISR", state.isr)
    if not state.isr:
        raise MalformedZnodeError("the ISR is empty")
    return state


def encode_state(state: State) -> bytes:
    """Encode a partition state to the bytes Kafka writes.

    >>> encode_state(State(controller_epoch=1, leader=1, leader_epoch=0, isr=[1, 2]))
    b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    """
    fields: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.leader_recovery_state != RECOVERED:
        fields["leader_recovery_state"] = state.leader_recovery_state
    return msgspec.json.encode(fields)


def decode_controller(data: bytes | None) -> Controller:
    """Decode /controller; clusters of old wrote the bare broker id.

    >>> decode_controller(b"3")
    Controller(broker_id=3, kraft_controller_epoch=-1)
    """
    if data is not None and _EPOCH.fullmatch(data):
        return Controller(decode_epoch(data), -1)
    found = _decode(data, _Controller)
    return Controller(found.brokerid, -1 if found.kraft_controller_epoch is None else found.kraft_controller_epoch)


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode /controller as version 2, with no KRaft epoch."""
    fields = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return msgspec.json.encode(fields)


def decode_epoch(data: bytes | None) -> int:
    """Decode /controller_epoch, a bare decimal number.

    >>> decode_epoch(b"7")
    7
    """
    if data is None or not _EPOCH.fullmatch(data) or int(data) > 2**31 - 1:
        raise MalformedZnodeError(f"{data!r}, expected a decimal number")
    return int(data)


def encode_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_config(data: bytes | None) -> dict[str, str]:
    """Decode /config/topics/T: `{"version":1,"config":{"k":"v"}}`."""
    return _decode(data, _Config).config


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode a topic's config overrides, keys in order.

    >>> encode_config({"min.insync.replicas": "2"})
    b'{"version":1,"config":{"min.insync.replicas":"2"}}'
    """
    return msgspec.json.encode({"version": 1, "config": dict(sorted(config.items()))})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """Decode the partition lists of /admin/reassign_partitions, /admin/preferred_replica_election and isr_change_N."""
    return _decode(data, _Partitions).partitions


def decode_log_dir_event(data: bytes | None) -> LogDirEvent:
    return _decode(data, LogDirEvent)


def decode_migration(data: bytes | None) -> int:
    """Decode the KRaft controller's id in /migration, -1 for none: `{"kraft_controller_id":3000,...}`."""
    return _decode(data, _Migration).kraft_controller_id


def decode_cluster_id(data: bytes | None) -> str:
    """Decode /cluster/id: `{"version":"1","id":"<22 characters>"}`."""
    return _decode(data, _ClusterId).id


def check_topic_name(topic: str) -> None:
    """Refuse what Kafka's `Topic.validate` refuses."""
    if topic in {".", ".."} or not _TOPIC_NAME.fullmatch(topic):
        raise MalformedZnodeError(f"{topic[:300]!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not . or ..")


def printable(data: bytes | None) -> str | None:
    """Return a znode's data for people: cut, and bytes that are no text escaped."""
    return None if data is None else data[:_CUT].decode("utf-8", errors="backslashreplace")
