"""Brokers that listen where a test's tree registers them, handle control requests as Kafka does, and record them.

ApiVersions, LeaderAndIsr, UpdateMetadata and StopReplica are answered, in order, one at a time; on any other request
the connection is closed. kio decodes and encodes, so what Surveyor sends is verified by independent code.
"""

import importlib
import io
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Self

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

API_VERSIONS: Final = 18
APIS: Final = {4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata"}
VERSIONS: Final = {4: 7, 5: 4, 6: 8, API_VERSIONS: 0}
STALE_CONTROLLER_EPOCH, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, STALE_BROKER_EPOCH = 11, 31, 35, 77


class ReceivedRequest(NamedTuple):
    """One control request, as kio read it."""

    api: str
    version: int
    request: Any

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(topic.topic_name, state.partition_index) for topic, state in _states(self.request)}


@dataclass
class FakeBroker:
    """One broker; a test may make it slow, unresponsive or refusing at any time."""

    listener: socket.socket
    received: list[ReceivedRequest] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=lambda: dict(VERSIONS))
    """The highest version of each API that it reports."""
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds that it takes for a request, by API; the next one waits, as for Kafka's replicaStateChangeLock."""
    refuses: int = 0
    """The error code with which it answers all requests."""
    is_authorized: bool = True
    """Whether its authorizer permits control requests."""
    errors: dict[tuple[str, int], int] = field(default_factory=dict)
    """Error codes of LeaderAndIsr by topic and partition, in place of Kafka's."""
    hangs_up_on: set[str] = field(default_factory=set)
    """APIs whose first response is lost: the request is handled, and the connection closed."""
    mistaken: list[Callable[[bytes], bytes]] = field(default_factory=list)
    """Modifications of the next responses to control requests, each once."""
    on_request: Callable[[ReceivedRequest], object] = lambda _: None
    """Called with each control request, before it is answered."""
    broker_epoch: int = -1
    """Requests with an older one are answered 77."""
    controller_epoch: int = 0
    """The latest that it knows: requests of an earlier one are answered 11, as in Kafka."""
    version_requests: int = 0
    """The number of ApiVersions that were answered."""
    leader_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    _awake: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)
    connections: list[socket.socket] = field(default_factory=list)
    """All connections that were ever made."""

    def __post_init__(self) -> None:
        self._awake.set()
        Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def stop(self) -> None:
        """Respond to nothing from now on, as a process after SIGSTOP; connections are still accepted."""
        self._awake.clear()

    def go_on(self) -> None:
        self._awake.set()

    def close(self) -> None:
        """Stop listening; connections are closed, as when a process is killed."""
        self._awake.set()
        for one in (self.listener, *self.connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def of(self, api: str) -> list[ReceivedRequest]:
        return [received for received in self.received if received.api == api]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rwb") as stream:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                data = stream.read(size)
                if len(data) < size:  # the connection was closed within a request
                    return
                self._awake.wait()
                answer = self._answer(data)
                if answer is None:
                    return
                stream.write(struct.pack(">i", len(answer)) + answer)
                stream.flush()

    def _answer(self, data: bytes) -> bytes | None:
        key, version, correlation = struct.unpack_from(">hhi", data)
        if key == API_VERSIONS:
            self.version_requests += 1
            return struct.pack(">ih", correlation, UNSUPPORTED_VERSION if version else 0) + self._spoken()
        if key not in APIS:
            return None
        request = _kio_class(key, version, "request")
        _, start = entity_reader(request.__header_schema__)(data, 0)
        received = ReceivedRequest(APIS[key], version, entity_reader(request)(data, start)[0])
        if (
            received.request.broker_epoch == 0
        ):  # no registration has it: only the authorizer judges the request, which has no effect
            error = ErrorCode(STALE_BROKER_EPOCH if self.is_authorized else CLUSTER_AUTHORIZATION_FAILED)
            response = _kio_class(key, version, "response")(error_code=error, partition_errors=())
            return self._written(response, correlation)
        with self._lock:
            time.sleep(self.slow.get(received.api, 0))
            self._awake.wait()
            self.received.append(received)
            self.on_request(received)
            response = self._judge(key, received)
            self._awake.wait()
        if received.api in self.hangs_up_on:
            self.hangs_up_on.discard(received.api)
            return None
        answer = self._written(response, correlation)
        return self.mistaken.pop(0)(answer) if self.mistaken else answer

    @staticmethod
    def _written(response: Any, correlation: int) -> bytes:  # noqa: ANN401
        answer = io.BytesIO()
        header = type(response).__header_schema__
        entity_writer(header)(answer, header(correlation_id=correlation))
        entity_writer(type(response))(answer, response)
        return answer.getvalue()

    def _spoken(self) -> bytes:
        rows = (struct.pack(">hhh", key, 0, highest) for key, highest in sorted(self.versions.items()))
        return struct.pack(">i", len(self.versions)) + b"".join(rows)

    def _judge(self, key: int, received: ReceivedRequest) -> Any:  # noqa: ANN401 - kio's classes differ by version
        response = _kio_class(key, received.version, "response")
        stale = received.request.broker_epoch < self.broker_epoch
        earlier = received.request.controller_epoch < self.controller_epoch
        top = ErrorCode(STALE_BROKER_EPOCH if stale else STALE_CONTROLLER_EPOCH if earlier else self.refuses)
        self.controller_epoch = max(self.controller_epoch, received.request.controller_epoch)
        if received.api == "update_metadata":
            return response(error_code=top)
        if received.api == "stop_replica":
            return response(error_code=top, partition_errors=())
        return response(error_code=top, **self._partition_errors(received, top))

    def _partition_errors(self, received: ReceivedRequest, top: ErrorCode) -> dict[str, Any]:
        module = importlib.import_module(f"kio.schema.leader_and_isr.v{received.version}.response")
        error = module.LeaderAndIsrPartitionError
        codes = [
            (topic, state, top or ErrorCode(self._leader_and_isr(topic, state)))
            for topic, state in _states(received.request)
        ]
        if not hasattr(module, "LeaderAndIsrTopicError"):
            rows = (
                error(topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code)
                for topic, state, code in codes
            )
            return {"partition_errors": tuple(rows)}
        topics = tuple(
            module.LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=tuple(
                    error(partition_index=state.partition_index, error_code=code)
                    for of, state, code in codes
                    if of is topic
                ),
            )
            for topic in received.request.topic_states
        )
        return {"topics": topics}

    def _leader_and_isr(self, topic: Any, state: Any) -> int:  # noqa: ANN401
        """Answer a leader epoch that is not newer with 11, as Kafka's ReplicaManager does."""
        key = (topic.topic_name, state.partition_index)
        if key in self.errors:
            return self.errors[key]
        if state.leader_epoch <= self.leader_epochs.get(key, -1):
            return STALE_CONTROLLER_EPOCH
        self.leader_epochs[key] = state.leader_epoch
        return 0


class FakeBrokers:
    """Brokers by id, created on first use; each keeps its port."""

    def __init__(self) -> None:
        self._known: dict[int, FakeBroker] = {}

    def __getitem__(self, broker_id: int) -> FakeBroker:
        if broker_id not in self._known:
            self._known[broker_id] = FakeBroker(socket.create_server(("127.0.0.1", 0)))
        return self._known[broker_id]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._known.values():
            broker.close()

    def forget(self) -> None:
        """Forget controller epochs and replicas, as in a new cluster."""
        for broker in self._known.values():
            broker.controller_epoch = 0
            broker.leader_epochs.clear()

    def in_order(self, topic: str) -> list[tuple[int, str]]:
        """Return a list to which requests about a topic are added when the first three brokers receive them."""
        requests: list[tuple[int, str]] = []
        for broker in (0, 1, 2):
            self[broker].on_request = _noting(requests, broker, topic, self[broker].on_request)
        return requests


def _noting(
    requests: list[tuple[int, str]], broker: int, topic: str, then: Callable[[ReceivedRequest], object]
) -> Callable[[ReceivedRequest], object]:
    def note(received: ReceivedRequest) -> None:
        if topic in {of for of, _ in received.partitions}:
            requests.append((broker, received.api))
        then(received)

    return note


def _states(request: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic, state


def _kio_class(key: int, version: int, kind: str) -> Any:  # noqa: ANN401
    name = APIS[key].title().replace("_", "") + kind.title()
    return getattr(importlib.import_module(f"kio.schema.{APIS[key]}.v{version}.{kind}"), name)
