"""Simulated brokers of a KRaft cluster that answer the requests of a snapshot and of moves, as a process or as threads.

    python -m tests.jobs.support.kafka.paged_brokers TOPICS PARTITIONS BROKERS NEWEST_API

prints the ports, one a line, and runs until its standard input ends. Real brokers cannot hold a million partitions on a
test machine. The bytes of a topic's partitions are encoded once, so that the time of a request is mostly the client's.
A move that was requested never ends, or at once.
"""

import socket
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from threading import Thread
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeUserScramCredentialsResponse,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

LOOPBACK: Final = "127.0.0.1"
LISTED, PAGED, NOT_PAGED = "ListConfigResources", "DescribeTopicPartitions", "Metadata"
"""The newest request for topics that brokers answer: of Kafka 4.1, 3.8, or before."""

UNKNOWN_TOPIC: Final = 3
NO_SECURITY: Final = 54
"""SECURITY_DISABLED, the answer to DescribeAcls of a broker without an authorizer."""

PAGE_LIMIT: Final = 2000
OVERRIDE, DEFAULT = 1, 5
SETTINGS: Final = [f"a.setting.of.topics.number.{number:02}" for number in range(34)]
"""As many as a topic of Kafka 4 has; of each topic the first is overridden."""

_SPOKEN: Final = {18: 4, 55: 2, 60: 2, 45: 0, 46: 0, 32: 4, 3: 12, 29: 3, 48: 1, 50: 0, 75: 0, 74: 1}
"""Highest version by API key."""
_ADDED: Final = {NOT_PAGED: frozenset({75, 74}), PAGED: frozenset({74}), LISTED: frozenset[int]()}

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_OldTopic = MetadataResponse.MetadataResponseTopic
_Moving = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Accepted = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Config = DescribeConfigsResponse.DescribeConfigsResult


@dataclass(slots=True)
class Move:
    """A running reassignment of a partition."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass
class PagedCluster:
    """A cluster with `topics` topics of `partitions` partitions each; every ISR is full."""

    topics: int
    partitions: int
    brokers: int = 3
    newest: str = LISTED
    ports: list[int] = field(default_factory=list)
    moves: list[list[Move]] = field(default_factory=lambda: [[]])
    """What successive requests for reassignments list; the last list stays."""
    moves_end: bool = False
    """Whether a move that is requested has ended by the next request."""
    requested: dict[str, dict[int, Move]] = field(default_factory=dict)
    """The moves that were requested, by topic and partition."""
    listed: int = 0
    """Moves in all lists that were sent."""
    hidden: frozenset[str] = frozenset()
    """Topics that the client may not describe."""
    behind: frozenset[int] = frozenset()
    """Brokers that have applied nothing of the metadata log."""
    pages_before_loss: int | None = None
    """Pages that are answered before connections are closed at a request for one; None to answer all."""
    asked: list[tuple[int, str]] = field(default_factory=list)
    """The port and the name of each request."""

    @cached_property
    def names(self) -> list[str]:
        return [f"topic-{number:05}" for number in range(self.topics)]

    def replicas(self, topic: int, partition: int) -> list[int]:
        return [(topic + partition + more) % self.brokers for more in range(min(3, self.brokers))]

    def _placed(self, topic: int) -> list[list[int]]:
        return [self.replicas(topic, number) for number in range(self.partitions)]

    def start(self) -> None:
        """Listen with one port a broker; threads end with the process."""
        for _ in range(self.brokers):
            listener = socket.create_server((LOOPBACK, 0))
            self.ports.append(listener.getsockname()[1])
            Thread(target=self._accept, args=(listener,), daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, (_, _) = listener.accept()
            port = listener.getsockname()[1]
            Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        with suppress(struct.error, OSError), connection:
            while True:
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                request = connection.recv(size, socket.MSG_WAITALL)
                key, version, correlation, name = struct.unpack_from(">hhih", request)
                body = request[10 + max(name, 0) :]
                answer = struct.pack(">i", correlation) + self._answer(port, key, version, body)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    @cached_property
    def answers(self) -> dict[int, Callable[[int, bytes], Any]]:
        """Functions of the version and body of a request by API key; bytes are in a flexible version."""
        return {
            18: self._versions,
            55: self._quorum,
            60: self._cluster,
            45: self._reassign,
            46: self._reassignments,
            32: self._configs,
            3: self._metadata,
            29: lambda *_: DescribeAclsResponse(error_code=NO_SECURITY, error_message="no authorizer", resources=[]),
            48: lambda *_: DescribeClientQuotasResponse(error_code=0, error_message=None, entries=[]),
            50: lambda *_: DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=[]),
            75: self._page,
            74: self._names,
        }

    @property
    def spoken(self) -> dict[int, int]:
        """Highest version by API key."""
        return {key: highest for key, highest in _SPOKEN.items() if key not in _ADDED[self.newest]}

    def _answer(self, port: int, key: int, version: int, body: bytes) -> bytes:
        response = self.response(port, key, version, body)
        if key == 18:
            response.finalized_features_epoch = 0 if self.ports.index(port) in self.behind else 8
        self.asked.append((port, {3: NOT_PAGED, 74: LISTED, 75: PAGED}.get(key, str(key))))
        if isinstance(response, bytes):
            return b"\0" + response
        flexible = key != 18 and response.flexible_version_q(version)
        encoded: bytes = response.encode(version=version)
        return (b"\0" if flexible else b"") + encoded

    def response(self, port: int, key: int, version: int, body: bytes) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Answer a request that one of the brokers got; `port` is that broker's."""
        del port
        return self.answers[key](version, body)

    def _versions(self, version: int, _: bytes) -> Any:  # noqa: ANN401 - kafka-python is untyped
        api = ApiVersionsResponse.ApiVersion
        keys = [
            api(api_key=key, min_version=1 if key == 74 else 0, max_version=highest)
            for key, highest in self.spoken.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0, version=version)

    def _quorum(self, *_: object) -> Any:  # noqa: ANN401
        topic = DescribeQuorumResponse.TopicData
        partition = topic.PartitionData
        voter = partition.ReplicaState
        state = voter(replica_id=0, log_end_offset=9, last_fetch_timestamp=-1, last_caught_up_timestamp=1)
        row = partition(
            partition_index=0,
            error_code=0,
            leader_id=0,
            leader_epoch=7,
            high_watermark=9,
            current_voters=[state],
            observers=[],
        )
        return DescribeQuorumResponse(
            error_code=0, topics=[topic(topic_name="__cluster_metadata", partitions=[row])], nodes=[]
        )

    def _cluster(self, version: int, _: bytes) -> Any:  # noqa: ANN401
        row = DescribeClusterResponse.DescribeClusterBroker
        brokers = [row(broker_id=n, host=LOOPBACK, port=port, rack=None) for n, port in enumerate(self.ports)]
        return DescribeClusterResponse(
            error_code=0, error_message=None, cluster_id="paged", controller_id=0, brokers=brokers, version=version
        )

    def _reassign(self, version: int, body: bytes) -> Any:  # noqa: ANN401
        request = AlterPartitionReassignmentsRequest.decode(_after_tags(body), version=version)
        row = _Accepted.ReassignablePartitionResponse
        for topic in request.topics:
            moves = self.requested.setdefault(topic.name, {})
            for partition in topic.partitions:
                before = self.replicas(self._numbers[topic.name], partition.partition_index)
                adding, removing = (
                    [broker for broker in some if broker not in others]
                    for some, others in ((partition.replicas, before), (before, partition.replicas))
                )
                if self.moves_end:
                    adding, removing = [], []
                replicas = [*partition.replicas, *removing]
                moves[partition.partition_index] = Move(
                    topic.name, partition.partition_index, replicas, adding, removing
                )
        topics = [
            _Accepted(
                name=topic.name,
                partitions=[
                    row(partition_index=partition.partition_index, error_code=0, error_message=None)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, responses=topics
        )

    def _reassignments(self, version: int, body: bytes) -> Any:  # noqa: ANN401
        moves = self.moves.pop(0) if len(self.moves) > 1 else self.moves[0]
        request = ListPartitionReassignmentsRequest.decode(_after_tags(body), version=version)
        if request.topics is None:
            moves = [*moves, *(move for of_topic in self.requested.values() for move in of_topic.values())]
        else:
            named = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
            running = (self.requested.get(topic, {}).get(number) for topic, number in sorted(named))
            moves = [*(move for move in moves if (move.topic, move.partition) in named), *filter(None, running)]
        if self.moves_end:
            moves = []
        self.listed += len(moves)
        row = _Moving.OngoingPartitionReassignment
        topics = [
            _Moving(
                name=name,
                partitions=[
                    row(
                        partition_index=move.partition,
                        replicas=move.replicas,
                        adding_replicas=move.adding,
                        removing_replicas=move.removing,
                    )
                    for move in of_topic
                ],
            )
            for name, of_topic in groupby(moves, attrgetter("topic"))
        ]
        return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)

    def _configs(self, version: int, body: bytes) -> Any:  # noqa: ANN401
        request = DescribeConfigsRequest.decode(_after_tags(body), version=version)
        if any(resource.resource_type != 2 for resource in request.resources):
            results = [
                _Config(
                    error_code=0, error_message=None, resource_type=4, resource_name=asked.resource_name, configs=[]
                )
                for asked in request.resources
            ]
            return DescribeConfigsResponse(throttle_time_ms=0, results=results)
        rows = [_config_of(resource.resource_name) for resource in request.resources]
        return struct.pack(">i", 0) + _varint(len(rows) + 1) + b"".join(rows) + b"\0"

    def _metadata(self, version: int, body: bytes) -> Any:  # noqa: ANN401
        request = MetadataRequest.decode(_after_tags(body), version=version)
        named = None if request.topics is None else [topic.name for topic in request.topics]
        row = _OldTopic.MetadataResponsePartition
        topics = [
            _OldTopic(
                error_code=0,
                name=name,
                topic_id=topic_id(int(name.rpartition("-")[2])),
                is_internal=False,
                partitions=[
                    row(
                        error_code=0,
                        partition_index=number,
                        leader_id=placed[0],
                        leader_epoch=0,
                        replica_nodes=placed,
                        isr_nodes=placed,
                        offline_replicas=[],
                    )
                    for number in range(self.partitions)
                    for placed in [self.replicas(int(name.rpartition("-")[2]), number)]
                ],
            )
            for name in (self.names if named is None else named)
            if name not in self.hidden
        ]
        broker = MetadataResponse.MetadataResponseBroker
        brokers = [broker(node_id=n, host=LOOPBACK, port=port, rack=None) for n, port in enumerate(self.ports)]
        return MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id="paged", controller_id=0, topics=topics)

    def _names(self, *_: object) -> Any:  # noqa: ANN401
        row = ListConfigResourcesResponse.ConfigResource
        resources = [row(resource_name=name, resource_type=2) for name in self.names]
        return ListConfigResourcesResponse(throttle_time_ms=0, error_code=0, config_resources=resources)

    def _page(self, version: int, body: bytes) -> bytes:
        """Encode a page, whole topics from the cache; kafka-python would take longer than a broker does."""
        request = DescribeTopicPartitionsRequest.decode(_after_tags(body), version=version)
        names = sorted(topic.name for topic in request.topics) or [n for n in self.names if n not in self.hidden]
        cursor = request.cursor
        start = 0 if cursor is None else bisect_left(names, cursor.topic_name)
        first = 0 if cursor is None or names[start] != cursor.topic_name else cursor.partition_index
        left = min(request.response_partition_limit, PAGE_LIMIT)
        if self.pages_before_loss is not None:
            if self.pages_before_loss == 0:
                raise OSError("closed")
            self.pages_before_loss -= 1
        topics = list[bytes]()
        following = b"\xff"
        for name in names[start:]:
            if left == 0:
                following = b"\1" + _string(name) + struct.pack(">i", first) + b"\0"
                break
            count = min(left, self.partitions - first)
            topics.append(self._encoded(name, first, count))
            left -= count
            first = (first + count) % self.partitions
            if first:
                following = b"\1" + _string(name) + struct.pack(">i", first) + b"\0"
                break
        return struct.pack(">i", 0) + _varint(len(topics) + 1) + b"".join(topics) + following + b"\0"

    def _encoded(self, name: str, first: int, count: int) -> bytes:
        if name in self.hidden:
            head = struct.pack(">h", 29) + _string(name) + bytes(16) + b"\0"
            return head + _varint(1) + struct.pack(">i", -(2**31)) + b"\0"
        if name not in self._numbers:
            head = struct.pack(">h", UNKNOWN_TOPIC) + _string(name) + bytes(16) + b"\0"
            return head + _varint(1) + struct.pack(">i", -(2**31)) + b"\0"
        topic = self._numbers[name]
        head = struct.pack(">h", 0) + _string(name) + topic_id(topic).bytes + b"\0"
        rows = self._blobs[topic % self.brokers][first : first + count]
        for number, move in self.requested.get(name, {}).items():
            if first <= number < first + count:
                rows[number - first] = _partition_bytes(
                    number, move.replicas, move.replicas if self.moves_end else self.replicas(topic, number)
                )
        return head + _varint(len(rows) + 1) + b"".join(rows) + struct.pack(">i", -(2**31)) + b"\0"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _blobs(self) -> list[list[bytes]]:
        """The bytes of each partition; replicas repeat after as many topics as there are brokers."""
        return [
            [_partition_bytes(number, placed, placed) for number, placed in enumerate(self._placed(topic))]
            for topic in range(self.brokers)
        ]


def topic_id(topic: int) -> UUID:
    return UUID(int=topic + 1)


def _partition_bytes(number: int, placed: Sequence[int], isr: Sequence[int]) -> bytes:
    replicas, in_sync = (_varint(len(some) + 1) + struct.pack(f">{len(some)}i", *some) for some in (placed, isr))
    none = _varint(1)
    return struct.pack(">hiii", 0, number, isr[0], 0) + replicas + in_sync + none * 3 + b"\0"


def _config_of(name: str) -> bytes:
    """Encode a result of DescribeConfigs 4 with all settings of a topic."""
    entries = [_SET, *_UNSET]
    return struct.pack(">h", 0) + b"\0" + b"\2" + _string(name) + _varint(len(entries) + 1) + b"".join(entries) + b"\0"


def _entry(name: str, source: int) -> bytes:
    """Name, value, read-only, source, sensitive, synonyms, type, documentation."""
    value = _string("604800000")
    return _string(name) + value + b"\0" + struct.pack(">b", source) + b"\0" + _varint(1) + b"\5" + b"\0" + b"\0"


def _string(text: str) -> bytes:
    return _varint(len(text) + 1) + text.encode()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _after_tags(body: bytes) -> bytes:
    """Skip the empty tags of a flexible request header."""
    return body[1:]


_SET: Final = _entry(SETTINGS[0], OVERRIDE)
_UNSET: Final = [_entry(name, DEFAULT) for name in SETTINGS[1:]]


def print_ports(cluster: PagedCluster) -> None:
    """Run a cluster until the standard input ends."""
    cluster.start()
    for port in cluster.ports:
        print(port, flush=True)  # noqa: T201 - what the parent reads
    sys.stdin.read()


def main(sizes: Sequence[str], newest: str) -> None:
    topics, partitions, brokers = map(int, sizes)
    print_ports(PagedCluster(topics, partitions, brokers, newest))


if __name__ == "__main__":
    main(sys.argv[1:4], sys.argv[4])
