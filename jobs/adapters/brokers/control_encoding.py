"""Encoding of control requests: notices and live brokers as bytes of the version that the broker supports.

Corresponds to `LeaderAndIsrRequest.json`, `UpdateMetadataRequest.json` and `StopReplicaRequest.json`, in the versions
with compact lengths and tags. A partition is encoded once for all brokers by `struct`, because kio takes ten times as
long and the controllership is held during that time. A test compares the bytes with kio's.
"""

import base64
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from struct import pack
from threading import RLock
from typing import Final

from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Broker

API_KEYS: Final = {LEADER_AND_ISR: 4, STOP_REPLICA: 5, UPDATE_METADATA: 6}
VERSIONS: Final = {LEADER_AND_ISR: range(4, 8), STOP_REPLICA: range(2, 5), UPDATE_METADATA: range(6, 9)}

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_NO_TAGS: Final = b"\0"
_NO_ID: Final = bytes(16)
_DEADLINE_CHECK_INTERVAL: Final = 2000
"""Partitions encoded between two checks of the deadline."""

_IDS_SINCE: Final = {LEADER_AND_ISR: 5, UPDATE_METADATA: 7}
"""The first version with topic ids."""

_KRAFT_SINCE: Final = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
"""The first version with the field `is_kraft_controller`."""


_DELETES_EACH_SINCE: Final = 3
"""The first version of StopReplica with `delete_partition` per partition."""


class DeadlineExceededError(Exception):
    """The deadline passed during the encoding of a request."""


@dataclass(frozen=True, slots=True)
class ControlBatch:
    """Notices to send, the live brokers, and the controller id and epoch of the requests."""

    controller_id: int
    controller_epoch: int
    brokers: Sequence[Broker]
    notices: Sequence[Notice]
    node: Broker | None = None
    """The controller itself, which brokers list among the live brokers if they are to send it requests."""

    @property
    def live(self) -> set[int]:
        return {broker.broker_id for broker in self.brokers}

    @property
    def addressed_brokers(self) -> set[int]:
        """Brokers that get LeaderAndIsr or StopReplica, and not only UpdateMetadata."""
        return {broker for notice in self.notices if notice.api != UPDATE_METADATA for broker in notice.brokers}

    @property
    def stopping(self) -> set[int]:
        """Brokers that get StopReplica."""
        return {broker for notice in self.notices if notice.api == STOP_REPLICA for broker in notice.brokers}


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request: its API and its notices, ordered by topic and partition. Several brokers may share one."""

    api: str
    notices: Sequence[Notice] = ()

    @property
    def versions(self) -> range:
        """Usable versions: topics without an id need LeaderAndIsr before 5, whose responses contain topic names."""
        versions = VERSIONS[self.api]
        nameless = self.api == LEADER_AND_ISR and any(notice.topic_id is None for notice in self.notices)
        return range(versions[0], _IDS_SINCE[LEADER_AND_ISR]) if nameless else versions

    @property
    def deletes(self) -> bool:
        """Whether StopReplica deletes logs; version 2 allows that only for all partitions of a request or none."""
        return any(notice.delete_partition for notice in self.notices)


def header(api: str, version: int, correlation: int, client_id: str) -> bytes:
    """Return a request header, version 2."""
    name = client_id.encode()
    return pack(">hhih", API_KEYS[api], version, correlation, len(name)) + name + _NO_TAGS


@dataclass(slots=True)
class EncodedRequests:
    """The bodies of all requests of one batch; parts that brokers share are encoded once."""

    batch: ControlBatch
    deadline: float = float("inf")
    """Time of time.monotonic after which nothing is encoded or sent."""
    _requests: dict[int, list[Request]] = field(init=False)
    _encoded: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    """Encoded notices by API and version, then by identity; one partition may have notices for different brokers."""
    _metadata: dict[tuple[Request, int], bytes] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        metadata: dict[tuple[int, ...], list[Notice]] = defaultdict(list)
        own: dict[int, dict[tuple[str, bool], list[Notice]]] = defaultdict(lambda: defaultdict(list))
        for notice in sorted(self.batch.notices, key=attrgetter("topic", "partition")):
            if notice.api == UPDATE_METADATA:
                metadata[notice.brokers].append(notice)
            else:
                for broker in notice.brokers:
                    own[broker][notice.api, _request_group(notice)].append(notice)
        live_brokers = Request(UPDATE_METADATA)
        shared = [(set(brokers), Request(UPDATE_METADATA, some)) for brokers, some in metadata.items()]
        self._requests = {
            broker: [
                live_brokers,
                *_requests_of(own[broker], LEADER_AND_ISR),
                *(request for brokers, request in shared if broker in brokers),
                *_requests_of(own[broker], STOP_REPLICA),
            ]
            for broker in self.batch.live
        }

    def requests(self, broker_id: int) -> list[Request]:
        """Return the requests for one broker, in the order of sending."""
        return self._requests[broker_id]

    def body(self, request: Request, version: int, broker_epoch: int) -> list[bytes]:
        """Encode a request in parts; the second part may be shared by all brokers."""
        return [self._header_fields(request.api, version, broker_epoch), *self._payload(request, version)]

    def _header_fields(self, api: str, version: int, broker_epoch: int) -> bytes:
        kraft = b"\0" if version >= _KRAFT_SINCE[api] else b""
        epochs = pack(">iq", self.batch.controller_epoch, broker_epoch)
        return pack(">i", self.batch.controller_id) + kraft + epochs

    def _payload(self, request: Request, version: int) -> list[bytes]:
        if request.api == UPDATE_METADATA:
            return [self._update_metadata(request, version)]
        topics = self._topics(request.api, version, request.notices)
        if request.api == LEADER_AND_ISR:
            kind = b"\0" if version >= _IDS_SINCE[LEADER_AND_ISR] else b""
            return [kind, *topics, self._live_leaders(request.notices), _NO_TAGS]
        return [pack(">?", request.deletes) if version < _DELETES_EACH_SINCE else b"", *topics, _NO_TAGS]

    def _update_metadata(self, request: Request, version: int) -> bytes:
        """Encode the part that all brokers of this version share; one thread encodes it, the others wait."""
        key = (request, version)
        with self._lock:
            if key not in self._metadata:
                topics = self._topics(UPDATE_METADATA, version, request.notices)
                listed = [*self.batch.brokers, *([self.batch.node] if self.batch.node else [])]
                brokers = _array([_live_broker(row) for row in listed])
                self._metadata[key] = b"".join([*topics, brokers, _NO_TAGS])
            return self._metadata[key]

    def _topics(self, api: str, version: int, notices: Sequence[Notice]) -> list[bytes]:
        """Encode notices, which are ordered by topic, as an array of topics."""
        encoded = self._partitions(api, version)
        parts: list[bytes] = [b""]
        count = 0
        for (topic, topic_id), topic_notices in groupby(notices, key=attrgetter("topic", "topic_id")):
            self._refuse_late()
            partitions = [encoded[id(notice)] for notice in topic_notices]
            uid = as_uuid(topic_id)
            id_bytes = (_NO_ID if uid is None else uid.bytes) if version >= _IDS_SINCE.get(api, version + 1) else b""
            parts += [_text(topic) + id_bytes + _length(len(partitions)), *partitions, _NO_TAGS]
            count += 1
        parts[0] = _length(count)
        return [b"".join(parts)]

    def _partitions(self, api: str, version: int) -> dict[int, bytes]:
        """Return the encoded notices of an API and version; they are encoded once."""
        with self._lock:
            encoded = self._encoded.get((api, version))
            if encoded is None:
                encoded = self._encoded[api, version] = dict(self._encode(api, self._encoder(api, version)))
            return encoded

    def _encode(self, api: str, encode: Callable[[Notice], bytes]) -> Iterable[tuple[int, bytes]]:
        notices = (notice for notice in self.batch.notices if notice.api == api)
        for number, notice in enumerate(notices):
            if number % _DEADLINE_CHECK_INTERVAL == 0:
                self._refuse_late()
            yield id(notice), encode(notice)

    def _refuse_late(self) -> None:
        if time.monotonic() > self.deadline:
            raise DeadlineExceededError

    def _encoder(self, api: str, version: int) -> Callable[[Notice], bytes]:
        epoch = self.batch.controller_epoch
        if api == LEADER_AND_ISR:
            recovery = version >= 6  # noqa: PLR2004 - the version that brought it
            return lambda notice: _leader_and_isr(epoch, notice, recovery=recovery)
        if api == UPDATE_METADATA:
            live = self.batch.live
            return lambda notice: _metadata(epoch, notice, live)
        if version < _DELETES_EACH_SINCE:  # partition numbers only
            return lambda notice: pack(">i", notice.partition)
        return lambda notice: pack(">ii?", notice.partition, notice.leader_epoch, notice.delete_partition) + _NO_TAGS

    def _live_leaders(self, notices: Sequence[Notice]) -> bytes:
        leaders = {notice.leader for notice in notices}
        return _array(
            [
                pack(">i", row.broker_id) + _text(host) + pack(">i", port) + _NO_TAGS
                for row in self.batch.brokers
                if row.broker_id in leaders
                for host, port in [_first_address(row)]
            ],
        )


def _first_address(broker: Broker) -> tuple[str, int]:
    """Return a leader's address, which brokers ignore: they use the addresses of UpdateMetadata."""
    return next(((endpoint.host, endpoint.port) for endpoint in broker.endpoints or ()), ("", -1))


def _request_group(notice: Notice) -> bool:
    """Return a key that separates notices of one API that need different requests.

    LeaderAndIsr for topics without an id must be of an older version. StopReplica up to version 2 has a single field
    for the deletion of logs, and the broker's version is known only once it is connected.
    """
    return notice.topic_id is not None if notice.api == LEADER_AND_ISR else notice.delete_partition


def _requests_of(own: Mapping[tuple[str, bool], Sequence[Notice]], api: str) -> list[Request]:
    """Return one or two requests; deletions come first, as in Kafka."""
    return [Request(api, own[api, apart]) for apart in (True, False) if (api, apart) in own]


def _leader_and_isr(controller_epoch: int, notice: Notice, *, recovery: bool) -> bytes:
    new = notice.is_new
    return b"".join(
        (
            pack(">iiii", notice.partition, controller_epoch, notice.leader, notice.leader_epoch),
            _ids(tuple(notice.isr)),
            pack(">i", notice.state_version),
            _ids(tuple(notice.replicas)),
            _ids(tuple(notice.adding_replicas)),
            _ids(tuple(notice.removing_replicas)),
            pack(">?b", new, notice.leader_recovery_state) if recovery else pack(">?", new),
            _NO_TAGS,
        ),
    )


def _metadata(controller_epoch: int, notice: Notice, live: set[int]) -> bytes:
    return b"".join(
        (
            pack(">iiii", notice.partition, controller_epoch, notice.leader, notice.leader_epoch),
            _ids(tuple(notice.isr)),
            pack(">i", notice.state_version),
            _ids(tuple(notice.replicas)),
            _ids(tuple([replica for replica in notice.replicas if replica not in live])),
            _NO_TAGS,
        ),
    )


def _live_broker(broker: Broker) -> bytes:
    endpoints = [
        pack(">i", endpoint.port)
        + _text(endpoint.host)
        + _text(endpoint.listener_name)
        + pack(">h", _PROTOCOLS[endpoint.security_protocol])
        + _NO_TAGS
        for endpoint in broker.endpoints or ()
    ]
    rack = b"\0" if broker.rack is None else _text(broker.rack)
    return pack(">i", broker.broker_id) + _array(endpoints) + rack + _NO_TAGS


@lru_cache(1 << 16)
def _ids(ids: tuple[int, ...]) -> bytes:
    """Encode broker ids; cached, since the same few lists recur."""
    return _length(len(ids)) + pack(f">{len(ids)}i", *ids)


def _array(parts: Sequence[bytes]) -> bytes:
    return _length(len(parts)) + b"".join(parts)


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(count: int) -> bytes:
    """Encode a compact length: the count plus one as an unsigned varint."""
    value = count + 1
    groups = bytearray()
    while value >= 0x80:  # noqa: PLR2004
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def as_uuid(topic_id: str | None) -> uuid.UUID | None:
    """Decode a topic id, 22 characters of base64url.

    >>> as_uuid("AAAAAAAAAAAAAAAAAAAAAg")
    UUID('00000000-0000-0000-0000-000000000002')
    """
    return None if topic_id is None else uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Return a topic id as in ZooKeeper.

    >>> topic_id_text(uuid.UUID("00000000-0000-0000-0000-000000000002"))
    'AAAAAAAAAAAAAAAAAAAAAg'
    """
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
