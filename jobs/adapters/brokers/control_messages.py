"""What control requests say: rows written and brokers alive, as bytes of whichever version is spoken.

Corresponds to `LeaderAndIsrRequest.json`, `UpdateMetadataRequest.json` and `StopReplicaRequest.json`, of the versions
with compact lengths and tags. A partition is encoded once for all brokers, by `struct`: kio takes ten times as long,
and the controllership is held meanwhile. A test holds the bytes equal to kio's.
"""

import base64
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from struct import pack
from threading import Lock
from typing import Any, Final

Row = dict[str, Any]

PLAINTEXT: Final = "PLAINTEXT"
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = "LeaderAndIsr", "StopReplica", "UpdateMetadata"
KEYS: Final = {LEADER_AND_ISR: 4, STOP_REPLICA: 5, UPDATE_METADATA: 6}
VERSIONS: Final = {LEADER_AND_ISR: range(4, 8), STOP_REPLICA: range(2, 5), UPDATE_METADATA: range(6, 9)}

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_NO_TAGS: Final = b"\0"
_NO_ID: Final = bytes(16)
_LOOK: Final = 2000
"""Partitions encoded between two looks at the clock."""

_IDS_SINCE: Final = {LEADER_AND_ISR: 5, UPDATE_METADATA: 7}
"""The first version that carries topic ids."""

_KRAFT_SINCE: Final = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
"""The first version that says whether the controller is a KRaft controller."""


class TooLateError(Exception):
    """The deadline passed while a request was encoded."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is to be told: rows just written, the brokers alive, and on whose authority.

    `states` are rows of topic, topic_id, partition, leader, leader_epoch, isr, replicas, adding, removing, is_new,
    leader_recovery_state, state_version, `to`, the brokers that LeaderAndIsr goes to, and `stop`, those that
    StopReplica goes to.
    """

    controller_id: int
    controller_epoch: int
    brokers: Sequence[Row]
    states: Sequence[Row]

    @property
    def live(self) -> set[int]:
        return {broker["broker_id"] for broker in self.brokers}


@dataclass(frozen=True, slots=True)
class Request:
    """One request to one broker: its API, and what of the announcement's states it is about, by topic and partition."""

    api: str
    states: Sequence[Row] = ()

    @property
    def versions(self) -> range:
        """Those that can say it: answers name topics by id from version 5 of LeaderAndIsr on, which older ones lack."""
        known = VERSIONS[self.api]
        nameless = self.api == LEADER_AND_ISR and any(state["topic_id"] is None for state in self.states)
        return range(known[0], _IDS_SINCE[LEADER_AND_ISR]) if nameless else known


def plaintext_address(broker: Row) -> tuple[str, int] | None:
    """Where a broker takes control requests in plain text, None if nowhere."""
    for endpoint in broker.get("endpoints") or ():
        if endpoint["security_protocol"] == PLAINTEXT:
            return endpoint["host"], endpoint["port"]
    return None


def header(api: str, version: int, correlation: int, client_id: str) -> bytes:
    """Make the header of a request, version 2."""
    name = client_id.encode()
    return pack(">hhih", KEYS[api], version, correlation, len(name)) + name + _NO_TAGS


@dataclass(slots=True)
class Messages:
    """The bodies of all requests that announce one thing; what brokers have in common is encoded once."""

    announcement: Announcement
    deadline: float
    """Of time.monotonic: nothing is encoded after it."""
    _requests: dict[int, list[Request]] = field(init=False)
    _encoded: dict[tuple[str, int], dict[tuple[str, int], bytes]] = field(default_factory=dict)
    _metadata: dict[tuple[int, bool], bytes] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        states = sorted(self.announcement.states, key=lambda state: (state["topic"], state["partition"]))
        to: dict[int, dict[bool, list[Row]]] = defaultdict(lambda: {True: [], False: []})
        stop: dict[int, list[Row]] = defaultdict(list)
        for state in states:
            for broker in state["to"]:
                to[broker][state["topic_id"] is not None].append(state)
            for broker in state["stop"]:
                stop[broker].append(state)
        metadata = [Request(UPDATE_METADATA, states)] if states else []
        self._requests = {
            broker["broker_id"]: [
                Request(UPDATE_METADATA),
                *(Request(LEADER_AND_ISR, some) for some in to[broker["broker_id"]].values() if some),
                *metadata,
                *(Request(STOP_REPLICA, some) for some in [stop[broker["broker_id"]]] if some),
            ]
            for broker in self.announcement.brokers
        }

    def requests(self, broker_id: int) -> list[Request]:
        """What one broker is told, in order."""
        return self._requests[broker_id]

    def body(self, request: Request, version: int, broker: Row) -> list[bytes]:
        """Encode a request, in parts; the second may be shared by all brokers."""
        return [self._authority(request.api, version, broker), *self._rest(request, version)]

    def _authority(self, api: str, version: int, broker: Row) -> bytes:
        kraft = b"\0" if version >= _KRAFT_SINCE[api] else b""
        epochs = pack(">iq", self.announcement.controller_epoch, broker["broker_epoch"])
        return pack(">i", self.announcement.controller_id) + kraft + epochs

    def _rest(self, request: Request, version: int) -> list[bytes]:
        if request.api == UPDATE_METADATA:
            return [self._update_metadata(request, version)]
        topics = self._topics(request.api, version, request.states)
        if request.api == LEADER_AND_ISR:
            kind = b"\0" if version >= _IDS_SINCE[LEADER_AND_ISR] else b""
            return [kind, *topics, self._live_leaders(request.states), _NO_TAGS]
        return [b"\0" if version == VERSIONS[STOP_REPLICA][0] else b"", *topics, _NO_TAGS]

    def _update_metadata(self, request: Request, version: int) -> bytes:
        key = (version, bool(request.states))
        if key not in self._metadata:
            topics = self._topics(UPDATE_METADATA, version, request.states)
            with self._lock:
                brokers = _array([_live_broker(row) for row in self.announcement.brokers])
                self._metadata.setdefault(key, b"".join([*topics, brokers, _NO_TAGS]))
        return self._metadata[key]

    def _topics(self, api: str, version: int, states: Sequence[Row]) -> list[bytes]:
        """Encode states, in the order of topics, as an array of topics."""
        encoded = self._partitions(api, version)
        parts: list[bytes] = [b""]
        count = 0
        for (topic, topic_id), rows in groupby(states, key=lambda state: (state["topic"], state["topic_id"])):
            some = [encoded[topic, row["partition"]] for row in rows]
            uid = as_uuid(topic_id)
            named = (_NO_ID if uid is None else uid.bytes) if version >= _IDS_SINCE.get(api, version + 1) else b""
            parts += [_text(topic) + named + _length(len(some)), *some, _NO_TAGS]
            count += 1
        parts[0] = _length(count)
        return [b"".join(parts)]

    def _partitions(self, api: str, version: int) -> dict[tuple[str, int], bytes]:
        """Encode every partition once for a version."""
        with self._lock:
            known = self._encoded.get((api, version))
            if known is None:
                known = self._encoded[api, version] = dict(self._encode(self._encoder(api, version)))
            return known

    def _encode(self, encode: Callable[[Row], bytes]) -> Iterable[tuple[tuple[str, int], bytes]]:
        for number, state in enumerate(self.announcement.states):
            if number % _LOOK == 0 and time.monotonic() > self.deadline:
                raise TooLateError
            yield (state["topic"], state["partition"]), encode(state)

    def _encoder(self, api: str, version: int) -> Callable[[Row], bytes]:
        epoch = self.announcement.controller_epoch
        if api == LEADER_AND_ISR:
            recovery = version >= 6  # noqa: PLR2004 - the version that brought it
            return lambda state: _leader_and_isr(epoch, state, recovery=recovery)
        if api == UPDATE_METADATA:
            live = self.announcement.live
            return lambda state: _metadata(epoch, state, live)
        if version == VERSIONS[STOP_REPLICA][0]:  # names partitions only
            return lambda state: pack(">i", state["partition"])
        return lambda state: pack(">ii?", state["partition"], state["leader_epoch"], False) + _NO_TAGS  # noqa: FBT003

    def _live_leaders(self, states: Sequence[Row]) -> bytes:
        leaders = {state["leader"] for state in states}
        return _array(
            [
                pack(">i", row["broker_id"]) + _text(host) + pack(">i", port) + _NO_TAGS
                for row in self.announcement.brokers
                if row["broker_id"] in leaders
                for host, port in [plaintext_address(row) or ("", -1)]
            ],
        )


def _leader_and_isr(controller_epoch: int, state: Row, *, recovery: bool) -> bytes:
    return b"".join(
        (
            pack(">iiii", state["partition"], controller_epoch, state["leader"], state["leader_epoch"]),
            _ids(tuple(state["isr"])),
            pack(">i", state["state_version"]),
            _ids(tuple(state["replicas"])),
            _ids(tuple(state["adding"])),
            _ids(tuple(state["removing"])),
            pack(">?b", state["is_new"], state["leader_recovery_state"]) if recovery else pack(">?", state["is_new"]),
            _NO_TAGS,
        ),
    )


def _metadata(controller_epoch: int, state: Row, live: set[int]) -> bytes:
    replicas = state["replicas"]
    return b"".join(
        (
            pack(">iiii", state["partition"], controller_epoch, state["leader"], state["leader_epoch"]),
            _ids(tuple(state["isr"])),
            pack(">i", state["state_version"]),
            _ids(tuple(replicas)),
            _ids(tuple([replica for replica in replicas if replica not in live])),
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
