"""Clients of the request server at the level of bytes, and a handler that answers what a test sets."""

import importlib
import io
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from struct import pack, unpack
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from jobs.adapters.request_server.api_handler import Caller, ServerListener
from jobs.adapters.request_server.messages import API_VERSIONS
from jobs.adapters.request_server.server import RequestServer

METADATA = 3
PRODUCER_IDS = 67
SECONDS = 30.0


@dataclass
class ProducerIdHandler:
    """Answers AllocateProducerIds with the broker's id as the start of a block."""

    callers: list[Caller] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    """Brokers whose requests wait until `answer_held`."""
    relay: tuple[str, int] | None = None
    waiting: list[tuple[Future[Any], Any]] = field(default_factory=list)

    def versions(self, _listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        return {PRODUCER_IDS: (0, 0)}

    def relay_to(self, _listener: ServerListener) -> tuple[str, int] | None:
        return self.relay

    def conditional_apis(self, _listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        return {}

    def redirected_apis(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        return {METADATA: (1, 12)} if listener.clients_of else {}

    def handles(self, _api_key: int, _request: Any) -> bool:  # noqa: ANN401
        return False

    def submit(self, caller: Caller, _api_key: int, _version: int, request: Any) -> Future[Any]:  # noqa: ANN401
        self.callers.append(caller)
        future = Future[Any]()
        if request.broker_id in self.held:
            self.waiting.append((future, request))
        elif request.broker_id < 0:
            future.set_exception(ValueError("a broker with a negative id"))
        else:
            future.set_result(producer_ids(request.broker_id))
        return future

    def answer_held(self) -> None:
        for future, request in self.waiting:
            future.set_result(producer_ids(request.broker_id))


def producer_ids(start: int) -> Any:  # noqa: ANN401
    module = importlib.import_module("kio.schema.allocate_producer_ids.v0.response")
    return module.AllocateProducerIdsResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.none,
        producer_id_start=start,
        producer_id_len=1000,
    )


def framed(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def request_bytes(api: int, version: int, body: Any, *, flexible: bool) -> bytes:  # noqa: ANN401
    """A request with its header, framed."""
    buffer = io.BytesIO()
    entity_writer(type(body))(buffer, body)
    tags = b"\0" if flexible else b""
    return framed(pack(">hhih", api, version, 7, 4) + b"test" + tags + buffer.getvalue())


def producer_ids_request(broker: int) -> bytes:
    module = importlib.import_module("kio.schema.allocate_producer_ids.v0.request")
    return request_bytes(
        PRODUCER_IDS, 0, module.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=1), flexible=True
    )


def api_versions_request(version: int, name: str = "test") -> bytes:
    module = importlib.import_module(f"kio.schema.api_versions.v{version}.request")
    fields = {} if version < 3 else {"client_software_name": name, "client_software_version": "1"}
    return request_bytes(API_VERSIONS, version, module.ApiVersionsRequest(**fields), flexible=version >= 3)


def sasl_handshake_request(mechanism: str) -> bytes:
    module = importlib.import_module("kio.schema.sasl_handshake.v1.request")
    return request_bytes(17, 1, module.SaslHandshakeRequest(mechanism=mechanism), flexible=False)


def sasl_authenticate_request(data: bytes) -> bytes:
    module = importlib.import_module("kio.schema.sasl_authenticate.v1.request")
    return request_bytes(36, 1, module.SaslAuthenticateRequest(auth_bytes=data), flexible=False)


@dataclass
class RawClient:
    """A connection."""

    connection: socket.socket

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def receive(self) -> bytes:
        """Return a response without its length; EOFError if the connection is closed."""
        return self._exactly(unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def producer_ids(self, broker: int) -> int:
        """Ask for producer ids; return the start of the block."""
        self.send(producer_ids_request(broker))
        return self.received_start()

    def received_start(self) -> int:
        module = importlib.import_module("kio.schema.allocate_producer_ids.v0.response")
        response, _ = entity_reader(module.AllocateProducerIdsResponse)(self.receive(), 5)
        return int(response.producer_id_start)

    def api_versions(self, version: int) -> tuple[int, dict[int, tuple[int, int]]]:
        """Ask for versions; return the error code, and the versions by API."""
        self.send(api_versions_request(version))
        module = importlib.import_module(f"kio.schema.api_versions.v{version}.response")
        response, _ = entity_reader(module.ApiVersionsResponse)(self.receive(), 4)
        return int(response.error_code), {
            api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys
        }

    @property
    def is_closed(self) -> bool:
        """Whether the server closes the connection without an answer."""
        try:
            return self.connection.recv(1) == b""
        except ConnectionError:
            return True


@contextmanager
def running(server: RequestServer) -> Iterator[RequestServer]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def connected_to(port: int, source: str = "127.0.0.1") -> Iterator[RawClient]:
    with socket.create_connection(("127.0.0.1", port), SECONDS, (source, 0)) as connection:
        yield RawClient(connection)
