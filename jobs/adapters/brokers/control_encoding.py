"""What control requests say: notices and brokers alive, as bytes of whichever version is spoken.

Corresponds to `LeaderAndIsrRequest.json`, `UpdateMetadataRequest.json` and `StopReplicaRequest.json`, of the versions
with compact lengths and tags. A partition is encoded once for all brokers, by `struct`: kio takes ten times as long,
and the controllership is held meanwhile. A test holds the bytes equal to kio's.
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
from typing import Any, Final

from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice

Row = dict[str, Any]

KEYS: Final = {LEADER_AND_ISR: 4, STOP_REPLICA: 5, UPDATE_METADATA: 6}
VERSIONS: Final = {LEADER_AND_ISR: range(4, 8), STOP_REPLICA: range(2, 5), UPDATE_METADATA: range(6, 9)}

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_NO_TAGS: Final = b"\0"
_NO_ID: Final = bytes(16)
_DEADLINE_CHECK_INTERVAL: Final = 2000
"""Partitions encoded between two looks at the clock."""

_IDS_SINCE: Final = {LEADER_AND_ISR: 5, UPDATE_METADATA: 7}
"""The first version that carries topic ids."""

_KRAFT_SINCE: Final = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
"""The first version that says whether the controller is a KRaft controller."""


_DELETES_EACH_SINCE: Final = 3
"""The first version of StopReplica that says for each partition whether its log is deleted."""


class TooLateError(Exception):
    """The deadline passed while a request was encoded."""


@dataclass(frozen=True, slots=True)
class ControlBatch:
    """What is to be told, the brokers alive, and on whose authority."""

    controller_id: int
    controller_epoch: int
    brokers: Sequence[Row]
    notices: Sequence[Notice]

    @property
    def live(self) -> set[int]:
        return {broker["broker_id"] for broker in self.brokers}

    @property
    def addressed_brokers(self) -> set[int]:
        """Brokers that are told of leaders, ISRs or replicas, not of metadata alone."""
        return {broker for notice in self.notices if notice.api != UPDATE_METADATA for broker in notice.brokers}

    @property
    def stopping(self) -> set[int]:
        """Brokers that stop replicas."""
        return {broker for notice in self.notices if notice.api == STOP_REPLICA for broker in notice.brokers}


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request: its API, and the notices in it, by topic and partition; brokers may have one in common."""

    api: str
    notices: Sequence[Notice] = ()

    @property
    def versions(self) -> range:
        """Those that can say it: answers name topics by id from version 5 of LeaderAndIsr on, which older ones lack."""
        known = VERSIONS[self.api]
        nameless = self.api == LEADER_AND_ISR and any(notice.topic_id is None for notice in self.notices)
        return range(known[0], _IDS_SINCE[LEADER_AND_ISR]) if nameless else known

    @property
    def deletes(self) -> bool:
        """Whether StopReplica deletes logs, too: all in one request do, or none, as version 2 can say no other."""
        return any(notice.delete_partition for notice in self.notices)


def header(api: str, version: int, correlation: int, client_id: str) -> bytes:
    """Make the header of a request, version 2."""
    name = client_id.encode()
    return pack(">hhih", KEYS[api], version, correlation, len(name)) + name + _NO_TAGS


@dataclass(slots=True)
class EncodedRequests:
    """The bodies of all requests that announce one thing; what brokers have in common is encoded once."""

    batch: ControlBatch
    deadline: float
    """Of time.monotonic: nothing is encoded after it."""
    _requests: dict[int, list[Request]] = field(init=False)
    _encoded: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    """By API and version: notices by identity, as two may be about one partition, each for other brokers."""
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
        alive = Request(UPDATE_METADATA)
        shared = [(set(brokers), Request(UPDATE_METADATA, some)) for brokers, some in metadata.items()]
        self._requests = {
            broker: [
                alive,
                *_requests_of(own[broker], LEADER_AND_ISR),
                *(request for brokers, request in shared if broker in brokers),
                *_requests_of(own[broker], STOP_REPLICA),
            ]
            for broker in self.batch.live
        }

    def requests(self, broker_id: int) -> list[Request]:
        """What one broker is told, in order."""
        return self._requests[broker_id]

    def body(self, request: Request, version: int, broker: Row) -> list[bytes]:
        """Encode a request, in parts; the second may be shared by all brokers."""
        return [self._header_fields(request.api, version, broker), *self._payload(request, version)]

    def _header_fields(self, api: str, version: int, broker: Row) -> bytes:
        kraft = b"\0" if version >= _KRAFT_SINCE[api] else b""
        epochs = pack(">iq", self.batch.controller_epoch, broker["broker_epoch"])
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
        """Encode what all brokers that speak this version have in common; one thread does, the others wait for it."""
        key = (request, version)
        with self._lock:
            if key not in self._metadata:
                topics = self._topics(UPDATE_METADATA, version, request.notices)
                brokers = _array([_live_broker(row) for row in self.batch.brokers])
                self._metadata[key] = b"".join([*topics, brokers, _NO_TAGS])
            return self._metadata[key]

    def _topics(self, api: str, version: int, notices: Sequence[Notice]) -> list[bytes]:
        """Encode notices, in the order of topics, as an array of topics."""
        encoded = self._partitions(api, version)
        parts: list[bytes] = [b""]
        count = 0
        for (topic, topic_id), some_notices in groupby(notices, key=attrgetter("topic", "topic_id")):
            self._refuse_late()
            some = [encoded[id(notice)] for notice in some_notices]
            uid = as_uuid(topic_id)
            named = (_NO_ID if uid is None else uid.bytes) if version >= _IDS_SINCE.get(api, version + 1) else b""
            parts += [_text(topic) + named + _length(len(some)), *some, _NO_TAGS]
            count += 1
        parts[0] = _length(count)
        return [b"".join(parts)]

    def _partitions(self, api: str, version: int) -> dict[int, bytes]:
        """Encode every notice of an API once for a version."""
        with self._lock:
            known = self._encoded.get((api, version))
            if known is None:
                known = self._encoded[api, version] = dict(self._encode(api, self._encoder(api, version)))
            return known

    def _encode(self, api: str, encode: Callable[[Notice], bytes]) -> Iterable[tuple[int, bytes]]:
        some = (notice for notice in self.batch.notices if notice.api == api)
        for number, notice in enumerate(some):
            if number % _DEADLINE_CHECK_INTERVAL == 0:
                self._refuse_late()
            yield id(notice), encode(notice)

    def _refuse_late(self) -> None:
        if time.monotonic() > self.deadline:
            raise TooLateError

    def _encoder(self, api: str, version: int) -> Callable[[Notice], bytes]:
        epoch = self.batch.controller_epoch
        if api == LEADER_AND_ISR:
            recovery = version >= 6  # noqa: PLR2004 - the version that brought it
            return lambda notice: _leader_and_isr(epoch, notice, recovery=recovery)
        if api == UPDATE_METADATA:
            live = self.batch.live
            return lambda notice: _metadata(epoch, notice, live)
        if version < _DELETES_EACH_SINCE:  # names partitions only
            return lambda notice: pack(">i", notice.partition)
        return lambda notice: pack(">ii?", notice.partition, notice.leader_epoch, notice.delete_partition) + _NO_TAGS

    def _live_leaders(self, notices: Sequence[Notice]) -> bytes:
        leaders = {notice.leader for notice in notices}
        return _array(
            [
                pack(">i", row["broker_id"]) + _text(host) + pack(">i", port) + _NO_TAGS
                for row in self.batch.brokers
                if row["broker_id"] in leaders
                for host, port in [_first_address(row)]
            ],
        )


def _first_address(broker: Row) -> tuple[str, int]:
    """Brokers take the leaders' addresses out of UpdateMetadata, and do not read this one."""
    return next(((endpoint["host"], endpoint["port"]) for endpoint in broker["endpoints"] or ()), ("", -1))


def _request_group(notice: Notice) -> bool:
    """Tell notices of one API apart that need requests of their own.

    A LeaderAndIsr of topics without an id is of an older version; StopReplica says up to version 2 once for all of a
    request whether logs are deleted, and which version a broker speaks is known only when it is asked.
    """
    return notice.topic_id is not None if notice.api == LEADER_AND_ISR else notice.delete_partition


def _requests_of(own: Mapping[tuple[str, bool], Sequence[Notice]], api: str) -> list[Request]:
    """One or two requests; those that delete come first, as Kafka sends them."""
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


def _live_broker(broker: Row) -> bytes:
    endpoints = [
        pack(">i", endpoint["port"])
        + _text(endpoint["host"])
        + _text(endpoint["listener"])
        + pack(">h", _PROTOCOLS[endpoint["security_protocol"]])
        + _NO_TAGS
        for endpoint in broker["endpoints"]
    ]
    rack = b"\0" if broker["rack"] is None else _text(broker["rack"])
    return pack(">i", broker["broker_id"]) + _array(endpoints) + rack + _NO_TAGS


@lru_cache(1 << 16)
def _ids(ids: tuple[int, ...]) -> bytes:
    """Encode broker ids; the same few lists come again and again."""
    return _length(len(ids)) + pack(f">{len(ids)}i", *ids)


def _array(parts: Sequence[bytes]) -> bytes:
    return _length(len(parts)) + b"".join(parts)


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(count: int) -> bytes:
    """Encode a compact length: one more, in groups of seven bits, the lowest first."""
    value = count + 1
    groups = bytearray()
    while value >= 0x80:  # noqa: PLR2004
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def as_uuid(topic_id: str | None) -> uuid.UUID | None:
    """Read Kafka's 22 characters of base64url.

    >>> as_uuid("AAAAAAAAAAAAAAAAAAAAAg")
    UUID('00000000-0000-0000-0000-000000000002')
    """
    return None if topic_id is None else uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
