"""Receives requests of brokers, in a thread of its own: connections, TLS, SASL, one request at a time.

Corresponds to `SocketServer` and `SaslServerAuthenticator`. The requests of one connection are answered in order, the
next is read once the last is answered. Unauthenticated clients have strict limits. Idle connections time out. The
handler never blocks, so one client cannot delay another.
"""

import asyncio
import logging
import resource
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from struct import pack, unpack
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from jobs.adapters.kio_imports import ErrorCode, SaslHandshakeResponse
from jobs.adapters.request_server.api_handler import ApiHandler, ApiMessage, Caller
from jobs.adapters.request_server.authentication import (
    Credentials,
    RefusedCredentialsError,
    SaslExchange,
    ScramCredential,
    exchange_of,
)
from jobs.adapters.request_server.config import OPTION, PRINCIPALS, Binding, ListenConfig
from jobs.adapters.request_server.messages import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SASL_VERSIONS,
    UNSUPPORTED_VERSION,
    VERSIONS,
    Header,
    MalformedRequestError,
    api_versions_response,
    encode_response,
    merged_api_versions,
    read_body,
    read_header,
    read_relayed_header,
    response_entity,
)
from jobs.adapters.request_server.principals import ANONYMOUS, certificate_principal
from jobs.adapters.request_server.processing_quota import ProcessingQuota
from jobs.adapters.request_server.relay import Relay
from jobs.core.errors import UsageError
from schemas.znode_json import PLAINTEXT
from schemas.znodes import Endpoint

_LOG: Final = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 2000
MAX_CONNECTIONS_PER_ADDRESS: Final = 1000
"""Maximum numbers of connections; for a further one the connection that has been idle longest is closed.

That is what Kafka does on the brokers' listener (`max.connections`, `Selector.lowestPriorityChannel`).
"""

MAX_UNKNOWN_CONNECTIONS: Final = 200
"""Maximum number of unauthenticated connections; for a new one the oldest of the address that has most is closed."""

MAX_REQUEST_BYTES: Final = 4 << 20
"""Maximum bytes of a request: some 75,000 partitions of AlterPartition with three replicas each.

It takes a second at most to decode.
"""

RESERVED_FILES: Final = 512
"""Open files that connections leave to the process, for ZooKeeper, the brokers and the tables."""

FILES_PER_CONNECTION: Final = 2
"""Open files that a connection needs: its own, and that of its relay to a broker."""

LARGE_REQUEST_BYTES: Final = 1 << 20
MAX_LARGE_REQUESTS: Final = 16
MAX_LARGE_REQUESTS_PER_ADDRESS: Final = 2
"""Maximum numbers of large requests that are in memory at the same time; further ones wait for TRANSFER_SECONDS."""

MAX_FIRST_BYTES: Final = 512 << 10
"""Maximum bytes of a request of an unauthenticated client (`sasl.server.max.receive.size`)."""

HANDSHAKE_SECONDS: Final = 10.0
"""Seconds within which a client must authenticate."""

TRANSFER_SECONDS: Final = 30.0
"""Seconds within which a request must arrive once it has begun, and the client must read a response."""

IDLE_SECONDS: Final = 600.0
"""Seconds after which an idle connection is closed (`connections.max.idle.ms`)."""

REFUSAL_SECONDS: Final = 0.1
"""Seconds until a failed authentication is answered (`connection.failed.authentication.delay.ms`)."""

WARNING_SECONDS: Final = 60.0
"""Seconds between two warnings about the same client."""

T = TypeVar("T")

MAX_SHOWN_NAME: Final = 100
"""Characters of a user's name in the log."""

_SASL_FAILED: Final = 58
_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34
_CREDENTIAL_THREADS: Final = 4
_START_SECONDS: Final = 30.0


class _ClosedError(Exception):
    """The connection is to be closed, for a reason that is logged."""


class _Connection(NamedTuple):
    """An open connection of an unauthenticated client."""

    writer: asyncio.StreamWriter
    since: float
    address: str


def _raise_open_files() -> int:
    """Raise the limit of open files as far as this process may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS * FILES_PER_CONNECTION + RESERVED_FILES
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@dataclass(slots=True)
class RequestServer:
    """Listens as long as the process runs; the handler may change its APIs in the meantime."""

    config: ListenConfig
    handler: ApiHandler
    credentials: Credentials = lambda _user, _mechanism: None
    """Credentials for SCRAM; called in threads of their own."""
    endpoints: list[Endpoint] = field(default_factory=list)
    """Announced to brokers: security protocol and advertised address of each binding, once it listens."""
    quota: ProcessingQuota = field(default_factory=ProcessingQuota)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: Thread | None = None
    _servers: list[asyncio.Server] = field(default_factory=list)
    _max_files: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _silent: "dict[_Session, None]" = field(default_factory=dict)
    """Connections from which the next request is awaited, the one that has been idle longest first."""
    _sessions: "dict[_Session, None]" = field(default_factory=dict)
    """All connections, the oldest first."""
    _large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LARGE_REQUESTS))
    _large_of: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(MAX_LARGE_REQUESTS_PER_ADDRESS))
    )
    _by_address: Counter[str] = field(default_factory=Counter)
    _unknown: dict[asyncio.StreamWriter, _Connection] = field(default_factory=dict)
    _warned: dict[str, float] = field(default_factory=dict)
    _executor: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_CREDENTIAL_THREADS, thread_name_prefix="credentials")
    )

    def start(self) -> None:
        """Listen; raise UsageError if an address cannot be bound."""
        self._max_files = _raise_open_files()
        self._thread = Thread(target=self._loop.run_forever, daemon=True, name="request-server")
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_START_SECONDS)
        except OSError as error:
            self.stop()
            raise UsageError(f"cannot listen: {error.strerror or error}") from None

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._executor.shutdown(cancel_futures=True)
        self._thread = None

    async def _listen(self) -> None:
        for binding in self.config.bindings:
            server = await asyncio.start_server(partial(self._accept, binding), binding.host, binding.port)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            self.endpoints.append(
                Endpoint(
                    binding.security_protocol,
                    binding.security_protocol,
                    binding.advertised_host,
                    binding.advertised_port or port,
                )
            )

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    def _accept(self, binding: Binding, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of its own, in place of another if there are too many."""
        address = str((writer.get_extra_info("peername") or ("unknown",))[0])
        if not self._has_room(address):
            self._warn(
                address, f"connection from {address} rejected: connection limit reached and no idle connection to close"
            )
            writer.close()
            return
        if len(self._unknown) >= MAX_UNKNOWN_CONNECTIONS:
            [(crowded, _)] = Counter([address, *(each.address for each in self._unknown.values())]).most_common(1)
            oldest = min(self._unknown.values(), key=lambda each: (each.address != crowded, each.since))
            oldest.writer.transport.abort()
            self._unknown.pop(oldest.writer, None)
        self._by_address[address] += 1
        self._unknown[writer] = _Connection(writer, time.monotonic(), address)
        task = self._loop.create_task(self._serve(binding, address, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, address, writer))

    def _has_room(self, address: str) -> bool:
        """Close another connection if there are too many: of this address, or of the one that has most.

        A connection with a request in flight is closed only for another address.
        """
        if self._by_address[address] >= MAX_CONNECTIONS_PER_ADDRESS:
            crowded = address
        elif len(self._tasks) >= min(
            MAX_CONNECTIONS, max(1, (self._max_files - RESERVED_FILES) // FILES_PER_CONNECTION)
        ):
            crowded = self._by_address.most_common(1)[0][0]
        else:
            return True
        candidates = [*self._silent, *([] if crowded == address else self._sessions)]
        closed = next((session for session in candidates if session.address == crowded), None)
        if closed is None:
            return False
        self._warn(crowded, f"{crowded} has too many connections: those that have been idle longest are closed")
        self._sessions.pop(closed, None)
        closed.close()
        return True

    def silence_begins(self, session: "_Session") -> None:
        """Note that the next request of a connection is awaited."""
        self._silent[session] = None

    def silence_ends(self, session: "_Session") -> None:
        """Note that a request has begun, or that the connection ends."""
        self._silent.pop(session, None)

    async def reserve(self, stack: AsyncExitStack, address: str) -> None:
        """Wait until there is memory for a large request; it is free again when the stack closes."""
        async with asyncio.timeout(TRANSFER_SECONDS):
            await stack.enter_async_context(self._large_of[address])
            await stack.enter_async_context(self._large)

    def _ended(self, task: asyncio.Task[None], address: str, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()  # a task that is cancelled before it begins closes nothing
        self._tasks.discard(task)
        self._unknown.pop(writer, None)
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]
            self._large_of.pop(address, None)

    async def _serve(
        self, binding: Binding, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of a connection until it ends."""
        session = _Session(self, binding, address, reader, writer)
        self._sessions[session] = None
        try:
            await session.run()
        except (MalformedRequestError, _ClosedError) as error:
            self._warn(address, f"the connection of {address} is closed: {error}")
        except (OSError, EOFError, TimeoutError, ssl.SSLError):
            pass  # the client is gone, or silent
        except Exception:  # noqa: BLE001 - the client finds the connection closed
            if self._is_warning_due(address):
                _LOG.exception("surveyor: cannot answer a request of %s", address)
        finally:
            self._sessions.pop(session, None)
            session.close()

    def _warn(self, client: str, message: str) -> None:
        """Log a warning about a client, at most once a minute."""
        if self._is_warning_due(client):
            _LOG.warning("surveyor: %s", message)

    def _is_warning_due(self, client: str) -> bool:
        """Return whether there was no warning about a client in the last minute, and note that there is one now."""
        now = time.monotonic()
        if now - self._warned.get(client, -WARNING_SECONDS) < WARNING_SECONDS:
            return False
        if len(self._warned) > MAX_CONNECTIONS:
            self._warned.clear()
        self._warned[client] = now
        return True

    def authorize(self, writer: asyncio.StreamWriter, address: str, principal: str) -> None:
        """Accept an authenticated client; raise _ClosedError if its principal is not allowed."""
        if principal not in self.config.principals:
            raise _ClosedError(f"{principal} is not among {PRINCIPALS} of {OPTION}")
        self.mark_authenticated(writer, address, principal)

    def mark_authenticated(self, writer: asyncio.StreamWriter, address: str, principal: str) -> None:
        """Accept a client without a check."""
        self._unknown.pop(writer, None)
        _LOG.debug("surveyor: %s is authenticated as %s", address, principal)

    async def credential_exchange(self, exchange: SaslExchange, message: bytes) -> bytes:
        """Take a step of an authentication in a thread, because it may wait for ZooKeeper."""
        return await self._loop.run_in_executor(self._executor, exchange.respond, message)


@dataclass(slots=True, eq=False)
class _Session:
    """One connection."""

    server: RequestServer
    binding: Binding
    address: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    principal: str | None = None
    """Principal of the authenticated client; None until then."""
    _exchange: SaslExchange | None = None
    _relay: Relay | None = None
    _refusal: str = "its credentials are wrong"
    _ends_at: float = field(default_factory=lambda: time.monotonic() + HANDSHAKE_SECONDS)

    async def run(self) -> None:
        await self._start_tls()
        if not self._uses_sasl:
            principal = self._certificate_principal()
            is_open = self.binding.security_protocol == PLAINTEXT
            (self.server.mark_authenticated if is_open else self.server.authorize)(self.writer, self.address, principal)
            self.principal = principal
        while True:
            async with AsyncExitStack() as stack:
                self.writer.write(await self._respond(await self._read(stack)))
                async with asyncio.timeout(TRANSFER_SECONDS):
                    await self.writer.drain()

    def close(self) -> None:
        self.server.silence_ends(self)
        if self._relay is not None:
            self._relay.close()
        self.writer.transport.abort()

    async def _respond(self, data: bytes) -> bytes:
        """Answer a request, or relay it to a broker if it is not served here and the listener allows it."""
        header, handler = read_relayed_header(data), self.server.handler
        is_served = self.principal is None or header.api_key in self._handler_versions
        address = None if is_served else handler.relay_to(self.binding.security_protocol)
        if address is None:
            header = read_header(data, self._versions)
            await self._await_quota()
            return self._charge(encode_response, header, await self._handle(header, data))
        shared = handler.conditional_apis()
        if header.api_key in shared:
            header = read_header(data, shared)
            await self._await_quota()
            request = self._charge(read_body, data, header)
            if handler.handles(header.api_key, request):
                return self._charge(encode_response, header, await self._submitted(header, request))
        response = await self._relayed(address, data)
        first, last = VERSIONS[API_VERSIONS]
        if header.api_key == API_VERSIONS and first <= header.version <= last:
            return encode_response(header, merged_api_versions(response, header, self._handler_versions, shared))
        return pack(">i", len(response)) + response

    async def _await_quota(self) -> None:
        """Wait until the next request may be handled, unless the client has proved to be a broker."""
        if self.principal is None or self.binding.security_protocol == PLAINTEXT:
            await self.server.quota.wait(self.address)

    def _charge(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - those of any function
        return self.server.quota.charge(self.address, work, *arguments)

    async def _relayed(self, address: tuple[str, int], data: bytes) -> bytes:
        """Ask the broker of this connection, which is chosen with the first request."""
        if self._relay is None:
            self._relay = Relay(address)
        return await self._relay.ask(data)

    async def _start_tls(self) -> None:
        """Start TLS after the connection is counted: asyncio's own TLS server does not limit concurrent handshakes."""
        tls, plain = self.server.config.tls, self.writer.transport
        if tls is None or not self.binding.security_protocol.endswith("SSL"):
            return
        try:
            await self.writer.start_tls(tls, ssl_handshake_timeout=HANDSHAKE_SECONDS)
        except AttributeError:
            if self.writer.transport is not None:
                raise
            self.writer._transport = plain  # noqa: SLF001 - asyncio left none
            raise ConnectionResetError("the client was gone at the end of the handshake") from None
        self.reader._transport = self.writer.transport  # type: ignore[attr-defined]  # noqa: SLF001 - as in Python 3.12

    @property
    def _uses_sasl(self) -> bool:
        return self.binding.security_protocol.startswith("SASL")

    @property
    def _versions(self) -> Mapping[int, tuple[int, int]]:
        """The APIs that may be requested now. ApiVersions lists the handler's APIs even before authentication."""
        return self._server_versions if self.principal is None else {**self._server_versions, **self._handler_versions}

    @property
    def _server_versions(self) -> Mapping[int, tuple[int, int]]:
        return {**VERSIONS, **SASL_VERSIONS} if self._uses_sasl else VERSIONS

    @property
    def _handler_versions(self) -> Mapping[int, tuple[int, int]]:
        return self.server.handler.versions(self.binding.security_protocol)

    def _certificate_principal(self) -> str:
        certificate = self.writer.get_extra_info("peercert") or {}
        return certificate_principal(certificate["subject"]) if certificate.get("subject") else ANONYMOUS

    async def _read(self, stack: AsyncExitStack) -> bytes:
        """Read one request; an unauthenticated client has little time, and no large requests.

        What a large request reserves is free again when the stack closes.
        """
        is_known = self.principal is not None
        wait = IDLE_SECONDS if is_known else max(0.0, self._ends_at - time.monotonic())
        self.server.silence_begins(self)
        async with asyncio.timeout(wait):
            head = await self.reader.readexactly(4)
        self.server.silence_ends(self)
        (size,) = unpack(">i", head)
        limit = MAX_REQUEST_BYTES if is_known else MAX_FIRST_BYTES
        if not 0 < size <= limit:
            raise MalformedRequestError(
                f"request of {size} bytes exceeds the limit of {limit} (is this a Kafka client?)"
            )
        if size > LARGE_REQUEST_BYTES:
            await self.server.reserve(stack, self.address)
        async with asyncio.timeout(TRANSFER_SECONDS if is_known else max(0.0, self._ends_at - time.monotonic())):
            return await self.reader.readexactly(size)

    async def _handle(self, header: Header, data: bytes) -> ApiMessage:
        if header.api_key == API_VERSIONS:
            return self._api_versions(header, data)
        request = self._charge(read_body, data, header)
        if header.api_key == SASL_HANDSHAKE:
            return self._handshake(request)
        if header.api_key == SASL_AUTHENTICATE:
            return await self._authenticate(header, request)
        return await self._submitted(header, request)

    async def _submitted(self, header: Header, request: ApiMessage) -> ApiMessage:
        caller = Caller(self.binding.security_protocol, self.principal or ANONYMOUS, self.address, header.client_id)
        submit = self.server.handler.submit
        pending: Future[ApiMessage] = self._charge(submit, caller, header.api_key, header.version, request)
        return await asyncio.wrap_future(pending)

    def _api_versions(self, header: Header, data: bytes) -> ApiMessage:
        served = {**self._server_versions, **self._handler_versions}
        first, last = VERSIONS[API_VERSIONS]
        if not first <= header.version <= last:
            return api_versions_response(0, served, UNSUPPORTED_VERSION)
        read_body(data, header)
        return api_versions_response(header.version, served)

    def _handshake(self, request: ApiMessage) -> ApiMessage:
        config = self.server.config
        mechanisms = config.mechanisms
        if self.principal is not None or self._exchange is not None:
            return SaslHandshakeResponse(error_code=ErrorCode(_ILLEGAL_SASL_STATE), mechanisms=mechanisms)
        if request.mechanism not in mechanisms:
            return SaslHandshakeResponse(error_code=ErrorCode(_UNSUPPORTED_MECHANISM), mechanisms=mechanisms)
        self._exchange = exchange_of(request.mechanism, config.passwords, self._broker_credential)
        return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=mechanisms)

    def _broker_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a broker's user; a client can name any user, and must not make us read for it."""
        if f"User:{user}" in self.server.config.principals:
            return self.server.credentials(user, mechanism)
        shown = user[:MAX_SHOWN_NAME].encode("unicode_escape").decode()
        self._refusal = f"User:{shown} is not among {PRINCIPALS} of {OPTION}"
        return None

    async def _authenticate(self, header: Header, request: ApiMessage) -> ApiMessage:
        if self._exchange is None:
            raise _ClosedError("SaslAuthenticate before SaslHandshake")
        exchange = self._exchange
        try:
            response = await self.server.credential_exchange(exchange, request.auth_bytes)
            if exchange.user is not None:
                principal = f"User:{exchange.user}"
                self.server.authorize(self.writer, self.address, principal)
                self.principal, self._exchange = principal, None
        except (RefusedCredentialsError, _ClosedError) as error:
            await asyncio.sleep(REFUSAL_SECONDS)
            response = _authenticate_response(header.version, _SASL_FAILED, "Authentication failed")
            self.writer.write(encode_response(header, response))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(TRANSFER_SECONDS):
                    await self.writer.drain()
            self.writer.close()
            raise _ClosedError(str(error) or self._refusal) from None
        return _authenticate_response(header.version, 0, None, response)


def _authenticate_response(version: int, error: int, message: str | None, data: bytes = b"") -> ApiMessage:
    fields = {"error_code": ErrorCode(error), "error_message": message, "auth_bytes": data}
    return response_entity(SASL_AUTHENTICATE, version, "SaslAuthenticateResponse", **fields)
