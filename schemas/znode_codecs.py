"""Codecs between znodes and typed values: bytes in, value or reason out, and back.

These pure functions are the only decoders of the system. They accept and write what `kafka.zk.ZkData` does, and are
stricter if Kafka would continue with a wrong value: anything that cannot be decoded is a `MalformedZnodeError` with its
reason, for the quarantine. For a znode with many facts, as a topic's partitions, `read_...` returns those that are
understood and the reasons for the others, while `decode_...` refuses the whole. JSON that the fast decoder refuses is
read again as Kafka's Jackson reads it (`schemas.jackson`): a byte order mark and text after the value change nothing,
and the last value of a key that occurs twice counts. Formats and versions follow the layout table of ZkData.scala.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from schemas.enums import NO_CONTROLLER, RECOVERED, RECOVERING
from schemas.jackson import NotJsonError, encoded, first_value, java_int, plain_json
from schemas.znode_json import (
    LAST_EPOCH,
    SECURITY_PROTOCOLS,
    BrokerId,
    ClusterId,
    Config,
    ConfigByPart,
    ControllerJson,
    Epoch,
    ListedByPart,
    ListedPartition,
    ListedPartitions,
    Migration,
    Number,
    NumberOrNone,
    Registration,
    TopicByPart,
    TopicId,
    TopicJson,
)

_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://\[?(?P<host>[\w.:%-]+?)\]?:(?P<port>\d{1,5})", re.ASCII)
_EPOCH: Final = re.compile(rb"\d{1,10}")
_MAX_INT: Final = 2**31 - 1
_MAX_PORT: Final = 65535
_MAX_FEATURE_VERSION: Final = 32767
_MAX_NAME_LENGTH: Final = 249
_TOPIC_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MAX_NAME_LENGTH}}}")
_MAX_PRINTED: Final = 1000

TOPIC_ID: Final = "topic_id"

FORBIDDEN: Final = b"(forbidden)"
"""Stands for the data of a znode that its ACL does not let this client read; compared by identity.

Every decoder rejects it. The values that depend on the znode are therefore unknown.
"""

FORBIDDEN_REASON: Final = (
    "its ACL does not let this client read it (NoAuth); name the brokers' user in --zookeeper-config, or let its ACL "
    "allow it to this host"
)

T = TypeVar("T")


class MalformedZnodeError(ValueError):
    """A znode's data is not what Kafka writes there; the message shows the data, truncated."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason[:_MAX_PRINTED])


class Endpoint(Struct, frozen=True):
    """An advertised endpoint; the name of the listener is null in KRaft, because no response has it."""

    listener: Annotated[str | None, "listener name"]
    security_protocol: Annotated[str, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"]
    host: Annotated[str, "advertised host"]
    port: Annotated[int, "advertised port"]

    @property
    def listener_name(self) -> str:
        """The listener of a broker in ZooKeeper; raise ValueError for one of a KRaft cluster."""
        if self.listener is None:
            raise ValueError(f"the name of the listener at {self.host}:{self.port} is not known")
        return self.listener


class BrokerRegistration(Struct, frozen=True):
    """A registration in /brokers/ids/N: `{"version":5,"host":H,"port":P,"endpoints":["L://h:p"],"rack":R,...}`."""

    endpoints: tuple[Endpoint, ...]
    host: str | None
    port: int
    rack: str | None


class UnreadPartition(Struct, frozen=True):
    """An entry of /brokers/topics/T that cannot be decoded, kept unchanged so that a write preserves it."""

    key: str
    reason: str
    lists: dict[str, bytes]
    """JSON by field: partitions, adding_replicas, removing_replicas."""

    @property
    def number(self) -> int | None:
        """The partition of the entry, None if the key is not a partition number."""
        return _partition_number(self.key) if "partitions" in self.lists else None


class UnreadField(Struct, frozen=True):
    """A field of /brokers/topics/T that cannot be decoded: topic_id, adding_replicas or removing_replicas."""

    name: str
    reason: str
    data: bytes


class Assignment(Struct, frozen=True):
    """A topic's assignment in /brokers/topics/T: `{"version":3,"partitions":{"0":[1,2]},...}`."""

    partitions: dict[int, list[int]]
    adding_replicas: dict[int, list[int]]
    removing_replicas: dict[int, list[int]]
    topic_id: str | None
    unread: tuple[UnreadPartition, ...] = ()
    unread_fields: tuple[UnreadField, ...] = ()

    @property
    def reason(self) -> str:
        """Reason why some of it cannot be decoded, empty if all was decoded."""
        parts: tuple[UnreadField | UnreadPartition, ...] = (*self.unread_fields, *self.unread)
        return "; ".join(part.reason for part in parts)[:_MAX_PRINTED]

    @property
    def unread_moves(self) -> str:
        """Reason why it is unknown which replicas are being added or removed, empty if it is known."""
        return "; ".join(part.reason for part in self.unread_fields if part.name != TOPIC_ID)


class State(Struct, frozen=True):
    """A partition's state: `{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}`."""

    controller_epoch: Epoch
    leader: NumberOrNone
    leader_epoch: Epoch
    isr: list[BrokerId]
    leader_recovery_state: Annotated[int, Meta(ge=RECOVERED, le=RECOVERING)] = RECOVERED


class ControllerRegistration(Struct, frozen=True):
    """/controller: `{"version":2,"brokerid":0,"timestamp":"ms","kraftControllerEpoch":-1}`, or a bare id."""

    broker_id: int
    kraft_controller_epoch: int


class TopicPartition(Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int] | None = None


class LogDirEvent(Struct, frozen=True):
    """/log_dir_event_notification/log_dir_event_N: `{"version":1,"broker":1,"event":1}`."""

    broker: BrokerId
    event: Number


# Created once, as a snapshot decodes a million states.
_REGISTRATION: Final = Decoder(Registration)
_TOPIC: Final = Decoder(TopicJson)
_TOPIC_BY_PART: Final = Decoder(TopicByPart)
_BROKER_IDS: Final = Decoder(list[BrokerId])
_LISTS_BY_KEY: Final = Decoder(dict[str, Raw])
_TOPIC_ID: Final = Decoder(TopicId)
_STATE: Final = Decoder(State)
_CONTROLLER: Final = Decoder(ControllerJson)
_CONFIG: Final = Decoder(Config)
_CONFIG_BY_PART: Final = Decoder(ConfigByPart)
_TEXT: Final = Decoder(str)
_PARTITIONS: Final = Decoder(ListedPartitions)
_LISTED_BY_PART: Final = Decoder(ListedByPart)
_LISTED: Final = Decoder(ListedPartition)
_LOG_DIR_EVENT: Final = Decoder(LogDirEvent)
_MIGRATION: Final = Decoder(Migration)
_CLUSTER_ID: Final = Decoder(ClusterId)


def _decode(data: bytes | None, decoder: Decoder[T]) -> T:
    """Decode plain JSON; what fails is decoded again as Jackson reads it."""
    if data is FORBIDDEN:
        raise MalformedZnodeError(FORBIDDEN_REASON)
    if not data:
        raise MalformedZnodeError("empty, expected JSON")
    try:
        if not data.isascii():
            data.decode()  # msgspec only validates the strings it keeps
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error)
    try:
        return decoder.decode(plain_json(data))
    except NotJsonError:
        raise MalformedZnodeError(reason) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedZnodeError(str(error)) from None


def _decode_value(value: object, decoder: Decoder[T]) -> T:
    try:
        return _decode(encoded(value), decoder)
    except NotJsonError as error:
        raise MalformedZnodeError(str(error)) from None


def _partition_number(key: str) -> int | None:
    """Parse a key of `partitions` as Scala's `toInt` does; None if it is not a partition number."""
    number = java_int(key)
    return None if number is None or number < 0 else number


def _refuse_duplicates(field: str, broker_ids: Sequence[int]) -> None:
    if len(set(broker_ids)) != len(broker_ids):
        raise MalformedZnodeError(f"{field} names a broker twice: {list(broker_ids)}")


def _refuse_unassigned(field: str, moving: Mapping[int, list[int]], partitions: Mapping[int, list[int]]) -> None:
    """Refuse moving replicas that `partitions` does not list; it must list all, including added and removed ones."""
    for partition, broker_ids in moving.items():
        _refuse_duplicates(f"{field} of partition {partition}", broker_ids)
        strangers = sorted(set(broker_ids).difference(partitions.get(partition, ())))
        if strangers:
            raise MalformedZnodeError(f"{field} of partition {partition} names {strangers}, no replicas of it")


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    parts = _ENDPOINT.fullmatch(text.strip())
    if parts is None:
        raise MalformedZnodeError(f"endpoint {text!r}, expected LISTENER://host:port")
    listener, port = parts["listener"].upper(), int(parts["port"])
    if port > _MAX_PORT:
        raise MalformedZnodeError(f"endpoint {text!r} has no such port")
    protocol = protocols.get(listener)
    if protocol is None or protocol.upper() not in SECURITY_PROTOCOLS:
        raise MalformedZnodeError(f"endpoint {text!r} has no security protocol: {protocol!r}")
    return Endpoint(listener, protocol.upper(), parts["host"], port)


def _registration(data: bytes | None) -> Registration:
    """Decode a registration; from version 2 on Kafka reads neither host nor port, so wrong ones are left out."""
    try:
        return _decode(data, _REGISTRATION)
    except MalformedZnodeError as error:
        content = _object_of(data)
        if type(content.get("version")) is not int or content["version"] < WITH_ENDPOINTS:
            raise
        left_out = {
            *(["host"] if not isinstance(content.get("host"), str | None) else []),
            *(["port"] if not _is_port(content.get("port", -1)) else []),
        }
        if not left_out:
            raise MalformedZnodeError(str(error)) from None
        return _decode_value({name: content[name] for name in content if name not in left_out}, _REGISTRATION)


def _object_of(data: bytes | None) -> dict[str, Any]:
    """The JSON object of a znode, empty if it is not an object."""
    try:
        value = first_value(plain_json(data or b""))
    except NotJsonError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_port(value: object) -> bool:
    return type(value) is int and -1 <= value <= _MAX_PORT


def _refuse_features(features: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse a range of versions that Kafka refuses (`SupportedVersionRange`)."""
    for name, versions in features.items():
        first, last = versions.get("min_version", -1), versions.get("max_version", -1)
        if not 0 <= first <= last <= _MAX_FEATURE_VERSION:
            raise MalformedZnodeError(f"feature {name[:300]!r} has no range of versions: {versions}")


def decode_broker(data: bytes | None) -> BrokerRegistration:
    """Decode /brokers/ids/N of any version from 1 on (`BrokerIdZNode.decode`).

    >>> decode_broker(b'{"version":1,"jmx_port":-1,"host":"a","port":9092}').endpoints
    (Endpoint(listener='PLAINTEXT', security_protocol='PLAINTEXT', host='a', port=9092),)
    """
    registration = _registration(data)
    _refuse_features(registration.features or {})
    texts = (
        [f"PLAINTEXT://{registration.host or ''}:{registration.port}"]
        if registration.version == 1
        else registration.endpoints
    )
    endpoints = tuple(_endpoint(text, registration.listener_security_protocol_map) for text in texts)
    if not endpoints:
        raise MalformedZnodeError("no endpoints")
    if len({endpoint.listener for endpoint in endpoints}) != len(endpoints):
        raise MalformedZnodeError(f"two endpoints of one listener: {texts}")
    return BrokerRegistration(endpoints, registration.host, registration.port, registration.rack)


def decode_assignment(data: bytes | None) -> Assignment:
    """Decode /brokers/topics/T, versions 1 to 3 (`TopicZNode.decode`).

    >>> decode_assignment(b'{"version":1,"partitions":{"0":[1,2]}}').partitions
    {0: [1, 2]}
    """
    assignment = read_assignment(data)
    if assignment.reason:
        raise MalformedZnodeError(assignment.reason)
    return assignment


def read_assignment(data: bytes | None) -> Assignment:
    """Decode what is understood of /brokers/topics/T; the rest is in `unread` and `unread_fields`.

    Raise MalformedZnodeError if the znode has no partitions that could be read one by one.

    >>> topic = read_assignment(b'{"partitions":{"0":[1,2],"1":[3,3]}}')
    >>> topic.partitions, topic.reason
    ({0: [1, 2]}, 'partition 1 names a broker twice: [3, 3]')
    """
    try:
        return _whole_assignment(data)
    except MalformedZnodeError:
        return _assignment_by_part(data)


def _whole_assignment(data: bytes | None) -> Assignment:
    topic = _decode(data, _TOPIC)
    if data and b'"-0"' in data:  # msgspec takes it for "0"; Kafka looks up moving replicas by the unchanged key
        raise MalformedZnodeError("partition '-0', expected a partition number")
    _refuse_inconsistent({name: getattr(topic, name) for name in _LISTS})
    topic_id = None if topic.topic_id is UNSET else _unpadded(topic.topic_id)
    return Assignment(topic.partitions, topic.adding_replicas, topic.removing_replicas, topic_id)


def _unpadded(topic_id: str) -> str:
    return topic_id.removesuffix("==")


_LISTS: Final = ("partitions", "adding_replicas", "removing_replicas")


def _assignment_by_part(data: bytes | None) -> Assignment:
    topic = _decode(data, _TOPIC_BY_PART)
    read: dict[str, dict[int, list[int]]] = {name: {} for name in _LISTS}
    unread, replaced, unread_fields = list[UnreadPartition](), list[UnreadPartition](), list[UnreadField]()
    adding = _field_of(topic.adding_replicas, "adding_replicas", _LISTS_BY_KEY, unread_fields) or {}
    removing = _field_of(topic.removing_replicas, "removing_replicas", _LISTS_BY_KEY, unread_fields) or {}
    topic_id = _field_of(topic.topic_id, TOPIC_ID, _TOPIC_ID, unread_fields)
    fields = dict(zip(_LISTS, (topic.partitions, adding, removing), strict=True))
    keys = {key: None for by_key in fields.values() for key in by_key}
    last_keys = {_partition_number(key): key for key in topic.partitions}
    for key in keys:
        lists = {name: bytes(by_key[key]) for name, by_key in fields.items() if key in by_key}
        try:
            number, of_partition = _partition_lists(key, lists)
        except MalformedZnodeError as error:
            unread.append(UnreadPartition(key, str(error), lists))
            continue
        if last_keys.get(number, key) != key:  # Kafka keeps the last of "1" and "01", without the lists of the first
            replaced.append(UnreadPartition(key, f"partition {number} is also {last_keys[number]!r}", lists))
            continue
        for name, broker_ids in of_partition.items():
            read[name][number] = broker_ids
    unread_numbers = {part.number for part in unread}
    unread += [part for part in replaced if part.number in unread_numbers]
    topic_id = None if topic_id is None else _unpadded(topic_id)
    return Assignment(**read, topic_id=topic_id, unread=tuple(unread), unread_fields=tuple(unread_fields))


def _field_of(data: Raw | UnsetType, name: str, decoder: Decoder[T], unread: list[UnreadField]) -> T | None:
    """Decode one field of a topic, None if it is absent; append it to `unread` if it cannot be decoded."""
    if data is UNSET:
        return None
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        unread.append(UnreadField(name, f"{name}: {error}", bytes(data)))
        return None


def _partition_lists(key: str, lists: Mapping[str, bytes]) -> tuple[int, dict[str, list[int]]]:
    """Decode the lists of one partition; raise MalformedZnodeError if one of them makes no sense."""
    number, read = _partition_number(key), dict[str, list[int]]()
    if number is None:
        raise MalformedZnodeError(f"{key[:300]!r}, expected a partition number, {_MAX_INT} at most")
    for name, data in lists.items():
        try:
            read[name] = _BROKER_IDS.decode(data)
        except msgspec.DecodeError as error:
            prefix = "" if name == "partitions" else f"{name} of "
            raise MalformedZnodeError(f"{prefix}partition {number}: {error}") from None
    _refuse_inconsistent({name: {number: broker_ids} for name, broker_ids in read.items()})
    return number, read


def _refuse_inconsistent(lists: Mapping[str, Mapping[int, list[int]]]) -> None:
    partitions = lists.get("partitions", {})
    for partition, replicas in partitions.items():
        _refuse_duplicates(f"partition {partition}", replicas)
        if not replicas:
            raise MalformedZnodeError(f"partition {partition} has no replicas")
    for name in _LISTS[1:]:
        _refuse_unassigned(name, lists.get(name, {}), partitions)


WITH_ENDPOINTS: Final = 2
"""Version of /brokers/ids/N from which on endpoints take the place of host and port."""

WITHOUT_IDS: Final = 2
WITH_IDS: Final = 3
"""Versions of /brokers/topics/T; brokers before 2.8 write version 2."""


def encode_assignment(assignment: Assignment, version: int = WITH_IDS) -> bytes:
    """Encode /brokers/topics/T as Kafka 3.9 writes it: version 3, without an id if none is known.

    Entries and fields that could not be decoded are written back unchanged.

    >>> encode_assignment(Assignment({0: [1, 2]}, {}, {}, None))
    b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
    """
    fields: dict[str, Any] = {
        "version": version,
        "partitions": {str(p): replicas for p, replicas in sorted(assignment.partitions.items())},
        "adding_replicas": {str(p): r for p, r in sorted(assignment.adding_replicas.items()) if r},
        "removing_replicas": {str(p): r for p, r in sorted(assignment.removing_replicas.items()) if r},
    }
    for part in assignment.unread:
        for name, data in part.lists.items():
            fields[name][part.key] = Raw(data)
    for field in assignment.unread_fields:
        fields[field.name] = Raw(field.data)
    if assignment.topic_id is not None:
        fields["topic_id"] = assignment.topic_id
    return msgspec.json.encode(fields)


def decode_state(data: bytes | None) -> State:
    """Decode .../partitions/P/state (`TopicPartitionStateZNode.decode`).

    >>> decode_state(b'{"controller_epoch":6,"leader":6,"version":1,"leader_epoch":24,"isr":[7,6]}').isr
    [7, 6]
    """
    state = _decode(data, _STATE)
    _refuse_duplicates("the ISR", state.isr)
    return state


def controller_epoch_of(data: bytes | None) -> int | None:
    """Return the controller epoch of a state, even if the rest cannot be decoded; None if it has none.

    >>> controller_epoch_of(b'{"controller_epoch":99,"isr":["1"]}')
    99
    """
    try:
        return decode_state(data).controller_epoch
    except MalformedZnodeError:
        epoch = _object_of(data).get("controller_epoch")
    return epoch if type(epoch) is int and 0 <= epoch <= LAST_EPOCH else None


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


def decode_controller(data: bytes | None) -> ControllerRegistration:
    """Decode /controller; old clusters wrote the bare broker id.

    >>> decode_controller(b"3")
    ControllerRegistration(broker_id=3, kraft_controller_epoch=-1)
    """
    if data is not None and _EPOCH.fullmatch(data) and int(data) <= LAST_EPOCH + 1:
        return ControllerRegistration(int(data), -1)
    node = _decode(data, _CONTROLLER)
    return ControllerRegistration(node.brokerid, node.kraft_controller_epoch)


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode /controller as version 2, with no KRaft epoch."""
    fields = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return msgspec.json.encode(fields)


def decode_epoch(data: bytes | None) -> int:
    """Decode /controller_epoch, a bare decimal number, as Java's `Integer.parseInt` reads it.

    >>> decode_epoch(b"7"), decode_epoch(b"+60")
    (7, 60)
    """
    epoch = java_int((data or b"").decode(errors="replace"))
    if epoch is None or not 0 <= epoch <= LAST_EPOCH:
        raise MalformedZnodeError(f"{data!r}, expected a decimal number, {LAST_EPOCH} at most")
    return epoch


def encode_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_config(data: bytes | None) -> dict[str, str]:
    """Decode /config/topics/T: `{"version":1,"config":{"k":"v"}}`; an empty znode has no overrides, as in Kafka."""
    return _decode(data, _CONFIG).config if data else {}


def read_config(data: bytes | None) -> tuple[dict[str, str | None] | None, list[str]]:
    """Decode the values of /config/topics/T that are understood, and return the reasons for the others.

    A value that cannot be decoded is null; if the whole znode cannot be decoded, there is no config. Kafka treats a
    znode without `config` as empty, and cannot read any value if one is not a string (`ConfigEntityZNode.decode`).

    >>> read_config(b'{"version":1,"config":{"retention.ms":5,"min.insync.replicas":"2"}}')
    ({'retention.ms': None, 'min.insync.replicas': '2'}, ['retention.ms: Expected `str`, got `int`'])
    """
    try:
        return {**decode_config(data)}, []
    except MalformedZnodeError as error:
        whole = str(error)
    try:
        values = _decode(data, _CONFIG_BY_PART).config
    except MalformedZnodeError:
        return None, [whole]
    config: dict[str, str | None] = {}
    reasons = []
    for name, value in values.items():
        try:
            config[name] = _TEXT.decode(value)
        except msgspec.DecodeError as error:
            config[name] = None
            reasons.append(f"{printable(name.encode())}: {error}")
    return config, reasons


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode a topic's config overrides, keys in order.

    >>> encode_config({"min.insync.replicas": "2"})
    b'{"version":1,"config":{"min.insync.replicas":"2"}}'
    """
    return msgspec.json.encode({"version": 1, "config": dict(sorted(config.items()))})


def encode_config_change(entity_path: str) -> bytes:
    """Encode a notification in /config/changes, which makes every broker read the entity again.

    >>> encode_config_change("topics/orders")
    b'{"version":2,"entity_path":"topics/orders"}'
    """
    return msgspec.json.encode({"version": 2, "entity_path": entity_path})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """Decode the partition lists of /admin/reassign_partitions, /admin/preferred_replica_election and isr_change_N.

    Replica lists are returned as requested: they may be empty or contain duplicates. Topic names may be invalid, and
    are returned in printable form. So one invalid entry does not block the others. If a partition is listed twice, the
    last entry counts, as in Kafka. Data of length 0 lists nothing; Kafka's controller fails over a znode without data.
    """
    if data == b"":
        return []
    return _last_of_each(map(_topic_partition, _decode(data, _PARTITIONS).partitions))


def read_partitions(data: bytes | None) -> tuple[list[TopicPartition], list[str]]:
    """Decode the entries of such a list that are understood, and return the reasons for the others.

    Kafka ignores the whole list if one entry cannot be decoded.
    """
    try:
        return decode_partitions(data), []
    except MalformedZnodeError:
        entries = _decode(data, _LISTED_BY_PART).partitions
    listed, reasons = [], []
    for number, entry in enumerate(entries):
        try:
            listed.append(_topic_partition(_decode(bytes(entry), _LISTED)))
        except MalformedZnodeError as error:
            reasons.append(f"entry {number}: {error}")
    return _last_of_each(listed), reasons


def _last_of_each(listed: Iterable[TopicPartition]) -> list[TopicPartition]:
    return [*{(entry.topic, entry.partition): entry for entry in listed}.values()]


def _topic_partition(partition: ListedPartition) -> TopicPartition:
    topic = partition.topic
    if len(topic) > _MAX_NAME_LENGTH:
        check_topic_name(topic)
    if not _TOPIC_NAME.fullmatch(topic):
        topic = str(printable(topic.encode()))
    if partition.replicas is UNSET:
        return TopicPartition(topic, partition.partition)
    return TopicPartition(topic, partition.partition, partition.replicas)


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Encode /admin/reassign_partitions, or without replicas /admin/preferred_replica_election, as Kafka does.

    >>> encode_partitions([TopicPartition("foo", 0, [1, 2])])
    b'{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
    """
    listed = [
        {"topic": entry.topic, "partition": entry.partition}
        | ({} if entry.replicas is None else {"replicas": entry.replicas})
        for entry in partitions
    ]
    return msgspec.json.encode({"version": 1, "partitions": listed})


def decode_log_dir_event(data: bytes | None) -> LogDirEvent:
    return _decode(data, _LOG_DIR_EVENT)


def decode_migration(data: bytes | None) -> int:
    """Decode the KRaft controller's id in /migration, -1 for none: `{"kraft_controller_id":3000,...}`.

    `zookeeper-security-migration` creates the znode empty: no KRaft controller has written it.
    """
    return _decode(data, _MIGRATION).kraft_controller_id if data else NO_CONTROLLER


def decode_cluster_id(data: bytes | None) -> str:
    """Decode /cluster/id: `{"version":"1","id":"<22 characters>"}`."""
    return _decode(data, _CLUSTER_ID).id


def check_topic_name(topic: str) -> None:
    """Raise MalformedZnodeError for names that Kafka's `Topic.validate` refuses."""
    if topic in {".", ".."} or not _TOPIC_NAME.fullmatch(topic):
        raise MalformedZnodeError(f"{topic[:300]!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not . or ..")


def metric_name(topic: str) -> str:
    """Return the topic's name in Kafka's metrics; topics of the same name there collide (`Topic.hasCollision`).

    >>> metric_name("or.ders_1")
    'or_ders_1'
    """
    return topic.replace(".", "_")


def printable(data: bytes | None) -> str | None:
    r"""Return a znode's data in printable form: truncated, with control characters and bytes that are not text escaped.

    >>> print(printable(bytes([255]) + b"red" + bytes([27]) + b"[31m"))
    \xffred\x1b[31m
    """
    if data is None or data is FORBIDDEN:
        return None
    text = data[:_MAX_PRINTED].decode("utf-8", errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
