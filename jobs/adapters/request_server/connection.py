"""One connection of a client: each request is answered before the next one is read.

Corresponds to `KafkaChannel` and `SocketServer.Processor`. Unauthenticated clients have strict limits. Idle connections
time out.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any, Final, TypeVar

from jobs.adapters.request_server.api_handler import ApiHandler, ApiMessage, Caller
from jobs.adapters.request_server.connection_quotas import ConnectionQuotas
from jobs.adapters.request_server.limits import ServerLimits
from jobs.adapters.request_server.listen_config import Binding
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
    item_count,
    merged_api_versions,
    read_body,
    read_header,
    read_relayed_header,
)
from jobs.adapters.request_server.processing_quota import ProcessingQuota
from jobs.adapters.request_server.relay import Relay
from jobs.adapters.request_server.sasl_authenticator import (
    AuthenticationError,
    SaslAuthenticator,
    failed_response,
    require_allowed,
)
from jobs.adapters.request_server.sasl_mechanisms import Credentials
from jobs.core.logs import module_logger
from schemas.znode_json import PLAINTEXT

_LOG: Final = module_logger(__name__)

MAX_REQUEST_BYTES: Final = 4 << 20
"""Maximum bytes of a request: some 75,000 partitions of AlterPartition with three replicas each.

It takes a second at most to decode.
"""

MAX_FIRST_BYTES: Final = 512 << 10
"""Maximum bytes of a request of an unauthenticated client, or of one whose password is not known here.

Corresponds to `sasl.server.max.receive.size`.
"""

REFUSAL_SECONDS: Final = 0.1
"""Seconds until a failed authentication is answered (`connection.failed.authentication.delay.ms`)."""

T = TypeVar("T")

ANONYMOUS: Final = "User:ANONYMOUS"

Subject = Sequence[Sequence[tuple[str, str]]]
"""`subject` of `ssl.SSLSocket.getpeercert`: relative distinguished names of (attribute, value)."""

_SUBJECT_KEYWORDS: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Keywords of RFC 2253; Java writes other attributes by number, which Python does not return."""

_SPECIAL_CHARACTERS: Final = re.compile(r'([,+"\\<>;])')


def _timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:  # noqa: ANN401 - those of any function
    """Return the result of some work, and the seconds of this thread's time that it took."""
    began = time.thread_time()
    return work(*arguments), time.thread_time() - began


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """State shared by all connections of a server."""

    handler: ApiHandler
    credentials: Credentials
    limits: ServerLimits
    quotas: ConnectionQuotas
    processing_quota: ProcessingQuota
    executor: ThreadPoolExecutor
    """Threads in which credentials are read."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """A connection, and what is known about its client."""

    context: ConnectionContext
    binding: Binding
    address: str
    """The client's IP address."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    principal: str | None = None
    """Principal of the authenticated client; None until then."""
    opened_at: float = field(default_factory=time.monotonic)
    """Time of the monotonic clock, in seconds."""
    _sasl: SaslAuthenticator = field(init=False)
    _relay: Relay | None = None

    def __post_init__(self) -> None:
        self._sasl = SaslAuthenticator(self.binding.security, self.context.credentials, self.context.executor)

    async def run(self) -> None:
        """Answer requests until the connection ends.

        Raise MalformedRequestError or AuthenticationError if this server ends it because of the client's bytes, and
        OSError, EOFError or TimeoutError if the client is gone or silent.
        """
        await self._start_tls()
        if not self._uses_sasl:
            principal = self._certificate_principal()
            if self.binding.security_protocol != PLAINTEXT:
                require_allowed(self.binding.security, principal)
            self._set_principal(principal)
        while True:
            async with AsyncExitStack() as stack:
                self.writer.write(await self._respond(await self._read(stack)))
                async with asyncio.timeout(self.context.limits.transfer_seconds):
                    await self.writer.drain()

    def close(self) -> None:
        """Close the connection and the relay's connection at once."""
        if self._relay is not None:
            self._relay.close()
        self.writer.transport.abort()

    async def _respond(self, data: bytes) -> bytes:
        """Answer a request, or relay it to a broker if it is not served here and the listener allows it.

        Raise ConnectionAbortedError for a request that only a broker answers, and that cannot be relayed.
        """
        header, handler, listener = read_relayed_header(data), self.context.handler, self.binding.server_listener
        if self.principal is not None and header.api_key not in self._handler_versions:
            conditional = handler.conditional_apis(listener)
            if header.api_key in conditional:
                header = read_header(data, conditional)
                await self._await_quota()
                request = self._charge(read_body, data, header)
                if handler.handles(header.api_key, request):
                    return await self._encoded(header, await self._submitted(header, request))
            address = handler.relay_to(listener)
            if address is not None:
                return await self._relayed_response(address, header, data)
            if header.api_key in conditional or header.api_key in handler.redirected_apis(listener):
                raise ConnectionAbortedError(f"API {header.api_key} is answered by brokers")
        header = read_header(data, self._versions)
        await self._await_quota()
        return await self._encoded(header, await self._handle(header, data))

    async def _encoded(self, header: Header, response: ApiMessage) -> bytes:
        """Encode a response; encode a large one in a separate thread, so that other connections do not wait for it."""
        if item_count(response) <= self.context.limits.max_items_in_loop:
            return self._charge(encode_response, header, response)
        data, seconds = await asyncio.to_thread(_timed, encode_response, header, response)
        self.context.processing_quota.add(self.address, seconds)
        return data

    async def _relayed_response(self, address: tuple[str, int], header: Header, data: bytes) -> bytes:
        """Return a broker's response; that to ApiVersions with the versions that are served here."""
        response = await self._relayed(address, data)
        first, last = VERSIONS[API_VERSIONS]
        if header.api_key == API_VERSIONS and first <= header.version <= last:
            shared = self.context.handler.conditional_apis(self.binding.server_listener)
            return encode_response(header, merged_api_versions(response, header, self._handler_versions, shared))
        return pack(">i", len(response)) + response

    async def _await_quota(self) -> None:
        """Wait until the next request may be handled, unless the client has proved to be a broker."""
        is_broker = self.principal is not None and self.binding.listener is None
        if not is_broker or self.binding.security_protocol == PLAINTEXT:
            await self.context.processing_quota.wait(self.address)

    def _charge(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - those of any function
        return self.context.processing_quota.charge(self.address, work, *arguments)

    async def _relayed(self, address: tuple[str, int], data: bytes) -> bytes:
        """Ask the broker of this connection, which is chosen with the first request."""
        if self._relay is None:
            self._relay = Relay(address)
        return await self._relay.ask(data)

    async def _start_tls(self) -> None:
        """Start TLS after the connection is counted: asyncio's own TLS server does not limit concurrent handshakes."""
        tls, plain = self.binding.security.tls, self.writer.transport
        if tls is None or not self.binding.security_protocol.endswith("SSL"):
            return
        try:
            await self.writer.start_tls(tls, ssl_handshake_timeout=self.context.limits.handshake_seconds)
        except AttributeError:
            if self.writer.transport is not None:
                raise
            self.writer._transport = plain  # noqa: SLF001 - asyncio left none
            raise ConnectionResetError("the client closed the connection during the handshake") from None
        self.reader._transport = self.writer.transport  # type: ignore[attr-defined]  # noqa: SLF001 - as in Python 3.12

    @property
    def _uses_sasl(self) -> bool:
        return self.binding.security_protocol.startswith("SASL")

    @property
    def _versions(self) -> Mapping[int, tuple[int, int]]:
        """The versions that may be requested now, by API; ApiVersions lists all of them even before authentication."""
        return self._server_versions if self.principal is None else {**self._server_versions, **self._handler_versions}

    @property
    def _server_versions(self) -> Mapping[int, tuple[int, int]]:
        return {**VERSIONS, **SASL_VERSIONS} if self._uses_sasl else VERSIONS

    @property
    def _handler_versions(self) -> Mapping[int, tuple[int, int]]:
        return self.context.handler.versions(self.binding.server_listener)

    def _certificate_principal(self) -> str:
        certificate = self.writer.get_extra_info("peercert") or {}
        return certificate_principal(certificate["subject"]) if certificate.get("subject") else ANONYMOUS

    @property
    def _handshake_seconds(self) -> float:
        """Seconds that are left to authenticate."""
        return max(0.0, self.opened_at + self.context.limits.handshake_seconds - time.monotonic())

    async def _read(self, stack: AsyncExitStack) -> bytes:
        """Read one request; an unauthenticated client has little time, and sends no large requests.

        The memory that a large request reserves is free again when the stack closes.
        """
        is_known, limits = self.principal is not None, self.context.limits
        wait = limits.idle_seconds if is_known else self._handshake_seconds
        self.context.quotas.idle_begins(self)
        async with asyncio.timeout(wait):
            head = await self.reader.readexactly(4)
        self.context.quotas.idle_ends(self)
        (size,) = unpack(">i", head)
        limit = MAX_REQUEST_BYTES if is_known else MAX_FIRST_BYTES
        if not 0 < size <= limit:
            raise MalformedRequestError(
                f"request of {size} bytes exceeds the limit of {limit} (is this a Kafka client?)"
            )
        if size > limits.large_request_bytes:
            async with asyncio.timeout(limits.transfer_seconds):
                await self.context.quotas.reserve_large_request(stack, self.address)
        async with asyncio.timeout(limits.transfer_seconds if is_known else self._handshake_seconds):
            return await self.reader.readexactly(size)

    async def _handle(self, header: Header, data: bytes) -> ApiMessage:
        if header.api_key == API_VERSIONS:
            return self._api_versions(header, data)
        request = self._charge(read_body, data, header)
        if header.api_key == SASL_HANDSHAKE:
            return self._sasl.handshake(request)
        if header.api_key == SASL_AUTHENTICATE:
            return await self._authenticate(header, request)
        return await self._submitted(header, request)

    async def _submitted(self, header: Header, request: ApiMessage) -> ApiMessage:
        caller = Caller(
            self.binding.security_protocol,
            self.principal or ANONYMOUS,
            self.address,
            header.client_id,
            self.binding.listener,
        )
        submit = self.context.handler.submit
        pending: Future[ApiMessage] = self._charge(submit, caller, header.api_key, header.version, request)
        return await asyncio.wrap_future(pending)

    def _api_versions(self, header: Header, data: bytes) -> ApiMessage:
        handler, listener = self.context.handler, self.binding.server_listener
        of_brokers = {**handler.redirected_apis(listener), **handler.conditional_apis(listener)}
        served = {**of_brokers, **self._server_versions, **self._handler_versions}
        first, last = VERSIONS[API_VERSIONS]
        if not first <= header.version <= last:
            return api_versions_response(0, served, UNSUPPORTED_VERSION)
        read_body(data, header)
        return api_versions_response(header.version, served)

    async def _authenticate(self, header: Header, request: ApiMessage) -> ApiMessage:
        """Return the response to SaslAuthenticate; raise AuthenticationError after one that refuses the client.

        A listener of clients sends no such response. It would end a producer or a consumer, and brokers may accept it,
        for instance with a delegation token.
        """
        try:
            response = await self._sasl.authenticate(header.version, request)
        except AuthenticationError:
            await asyncio.sleep(REFUSAL_SECONDS)
            if self.binding.security.is_for_clients:
                raise
            self.writer.write(encode_response(header, failed_response(header.version)))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self.context.limits.transfer_seconds):
                    await self.writer.drain()
            self.writer.close()
            raise
        if self._sasl.principal is not None:
            self._set_principal(self._sasl.principal)
        return response

    def _set_principal(self, principal: str) -> None:
        self.principal = principal
        self.context.quotas.authenticated(self)
        _LOG.debug("surveyor: %s is authenticated as %s", self.address, principal)


def certificate_principal(subject: Subject) -> str:
    """Return the principal of a client certificate's subject, as Kafka writes it.

    Corresponds to `DefaultKafkaPrincipalBuilder`, which takes the subject as `X500Principal.getName()` formats it (RFC
    2253): the last attribute first, commas between, special characters escaped.

    >>> certificate_principal(((("organizationName", "Example"),), (("commonName", "broker 1"),)))
    'User:CN=broker 1,O=Example'
    """
    names = [
        "+".join(f"{_SUBJECT_KEYWORDS.get(key, key)}={_escaped(value)}" for key, value in name) for name in subject
    ]
    return f"User:{','.join(reversed(names))}"


def _escaped(value: str) -> str:
    escaped = _SPECIAL_CHARACTERS.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(escaped) > 1 else escaped
