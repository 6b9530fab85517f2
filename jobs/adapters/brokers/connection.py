"""A connection to a broker for control requests, one request at a time; and checks whether brokers respond at all.

Corresponds to the `NetworkClient` of `ControllerChannelManager`. The API versions are requested once per connection. A
broker that is busy with a long request still answers ApiVersions on another connection, and a stopped broker does not;
this shows whether it is worth waiting.
"""

import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Final

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from jobs.adapters.brokers.admin_client import NO_CREDENTIALS, OAUTHBEARER, error_name, require_credentials
from jobs.adapters.brokers.control_encoding import API_KEYS, VERSIONS, ControlBatch, EncodedRequests, Request, header
from jobs.adapters.brokers.listeners import (
    PLAINTEXT_LISTENER,
    AuthenticationFailedError,
    Listener,
    UnreachableBrokerError,
    explain_tls_errors,
    refuse_alert,
)
from jobs.adapters.brokers.transport import Transport
from jobs.adapters.kerberos.login import GSSAPI
from jobs.core.errors import RefusedError, UsageError
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from schemas.notices import STOP_REPLICA
from schemas.response_codes import CLUSTER_AUTHORIZATION_FAILED
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint

RESPONSE_TIMEOUT_SECONDS: Final = 30.0
"""Seconds a response may take before the request is sent again (`controller.socket.timeout.ms`)."""

IDLE_BEFORE_PROBE_SECONDS: Final = 1.0
"""Seconds without a byte after which the broker is probed on another connection."""

PROBE_TIMEOUT_SECONDS: Final = 3.0
"""Seconds that a probe, and a connection, may take."""

RETRY_BACKOFF_SECONDS: Final = 0.1
"""Seconds between two attempts, as in Kafka's RequestSendThread."""

CONNECT_TIMEOUT_SECONDS: Final = 6.0
"""Seconds within which brokers must answer before anything is written; brokers register before they can answer."""

MAX_REFUSED_CONNECTIONS: Final = 30
"""Refused connections in a row, RETRY_BACKOFF_SECONDS apart, after which a broker counts as down.

Brokers of 3.9 register a moment before they accept connections (`KafkaServer.startup`, `enableRequestProcessing`). A
broker that refuses for longer has most likely ended while its session has not expired."""

_API_VERSIONS: Final = 18
_TOP_ERROR_OFFSET: Final = 5
"""Offset of the error code of a response: after the correlation id and an empty tag section."""

DISCONNECTED: Final = (OSError, struct.error)
"""Errors that end a connection: it broke, or its data is invalid."""

_ENDED_BROKER_EPOCH: Final = 0
"""A broker epoch before all others; the authorizer checks a request with it, and the broker then ignores it."""


_SASL_VERSION: Final = 1
"""Version of SaslHandshake and SaslAuthenticate, which brokers support since 2.2."""

_MALFORMED_SASL: Final = (ValueError, LookupError, struct.error)

_SASL_HINTS: Final = {
    OAUTHBEARER: "it does not accept the token: see its issuer, audience and expiry, and both clocks",
    GSSAPI: "it does not accept the ticket: see both clocks, and the keytab of the broker",
}

_PASSWORD_HINT: Final = "see sasl.username and sasl.password"  # noqa: S105 - a message

Exchange = Callable[[Any], bytes]
"""Sends one request of kafka-python and returns the raw response."""


def error_of(response: bytes) -> int:
    """Return the error code of a response for the request as a whole."""
    return int.from_bytes(response[_TOP_ERROR_OFFSET : _TOP_ERROR_OFFSET + 2], "big", signed=True)


@dataclass(slots=True)
class BrokerConnection:
    """A connection that knows which API versions the broker supports."""

    transport: Transport
    broker: Broker
    client_id: str
    on_activity: Callable[[], None]
    """Called whenever the broker accepts or sends data, or responds on another connection."""
    listener: Listener
    versions: dict[int, int]
    correlation: int = 0
    aborted: bool = False

    @classmethod
    def to(
        cls, broker: Broker, client_id: str, on_activity: Callable[[], None], timeout_seconds: float, listener: Listener
    ) -> "BrokerConnection":
        """Connect, request the API versions and authenticate; raise UnreachableBrokerError if a retry is useless."""
        seconds = max(RETRY_BACKOFF_SECONDS, min(timeout_seconds, PROBE_TIMEOUT_SECONDS))
        prepare_authentication(listener.sasl)
        with explain_tls_errors():
            transport = Transport.to(listener.address(broker), seconds, listener.tls)
            channel = cls(transport, broker, client_id, on_activity, listener, {})
            try:
                channel._negotiate(time.monotonic() + seconds)
            except (UnreachableBrokerError, *DISCONNECTED):
                channel.close()
                raise
        on_activity()
        return channel

    def _negotiate(self, until: float) -> None:
        """Request the API versions, then authenticate, as Kafka's clients do."""
        self.versions = self.api_versions()
        if not self.listener.sasl:
            return

        def exchange(request: Any) -> bytes:  # noqa: ANN401 - kafka-python is untyped
            self.transport.set_timeout(max(RETRY_BACKOFF_SECONDS, until - time.monotonic()))
            self.correlation += 1
            request.with_header(self.correlation, self.client_id)
            return self._exchange(request.encode(header=True, framed=True))

        authenticate(exchange, self.listener.sasl, self.listener.address(self.broker)[0])

    def abort(self) -> None:
        """End a blocked read or write of another thread."""
        self.aborted = True
        self.transport.abort()

    def close(self) -> None:
        self.transport.close()

    def api_versions(self) -> dict[int, int]:
        """Request the highest supported version by API key (ApiVersions 0)."""
        name = self.client_id.encode()
        self.correlation += 1
        request = struct.pack(">hhih", _API_VERSIONS, 0, self.correlation, len(name)) + name
        data = self._exchange(struct.pack(">i", len(request)) + request)
        (count,) = struct.unpack_from(">i", data, 6)
        ranges = (struct.unpack_from(">hhh", data, 10 + 6 * number) for number in range(count))
        return {key: highest for key, _, highest in ranges}

    def _exchange(self, request: bytes) -> bytes:
        for _ in self.transport.send(request):
            pass
        return self._receive()

    def refuse_unauthorized(self, deadline: float) -> None:
        """Raise UnreachableBrokerError if the broker's authorizer refuses control requests from us.

        Sends an empty StopReplica with controller id -1 and a stale broker epoch. The broker checks the epoch after
        the authorizer (`KafkaApis.handleStopReplicaRequest`) and then ignores the request.
        """
        request = Request(STOP_REPLICA)
        version = self.version(request)
        nothing = EncodedRequests(ControlBatch(-1, 0, (), ()), deadline)
        body = nothing.body(request, version, _ENDED_BROKER_EPOCH)
        stop = Event()
        self.send(STOP_REPLICA, version, body, stop, deadline)
        if error_of(self.receive_response(stop, deadline)) == CLUSTER_AUTHORIZATION_FAILED:
            raise UnreachableBrokerError(
                f"it answers ClusterAuthorizationFailed ({CLUSTER_AUTHORIZATION_FAILED}): the user of "
                f"{option_name(COMMAND_CONFIG)} needs ClusterAction on the Cluster; see the ACLs",
            )

    def version(self, request: Request) -> int:
        """Return the highest version that both sides support; raise UnreachableBrokerError if there is none."""
        supported = request.versions
        version = min(self.versions.get(API_KEYS[request.api], 0), supported[-1])
        if version < supported[0]:
            raise UnreachableBrokerError(f"it supports {request.api} up to version {version} only")
        return version

    def send(self, api: str, version: int, body: Sequence[bytes], over: Event, deadline: float) -> None:
        self.correlation += 1
        parts = [header(api, version, self.correlation, self.client_id), *body]
        size = sum(map(len, parts))
        for part in (struct.pack(">i", size), *parts):
            self.transport.set_timeout(_piece_timeout(deadline))
            for _ in self.transport.send(part):
                self.on_activity()
                if over.is_set():
                    raise ConnectionAbortedError
                self.transport.set_timeout(_piece_timeout(deadline))

    def receive_response(self, over: Event, deadline: float) -> bytes:
        """Wait for the response to the request sent last; probe the broker while it sends nothing."""
        until = min(deadline, time.monotonic() + RESPONSE_TIMEOUT_SECONDS)
        self.transport.set_timeout(IDLE_BEFORE_PROBE_SECONDS)
        while True:
            try:
                self.transport.wait()
                break
            except TimeoutError:
                if over.is_set() or time.monotonic() > until:
                    raise
                if responds(self.broker, self.client_id, self.listener):
                    self.on_activity()
        self.transport.set_timeout(PROBE_TIMEOUT_SECONDS)
        data = self._receive()
        self._refuse_mismatched(data)
        self.on_activity()
        return data

    def _refuse_mismatched(self, data: bytes) -> None:
        """Raise ConnectionError if a response belongs to another request or is too short; ours is lost then."""
        if len(data) < _TOP_ERROR_OFFSET + 2 or int.from_bytes(data[:4], "big") != self.correlation:
            raise ConnectionError("the broker's response does not belong to the last request")

    def _receive(self) -> bytes:
        head = self.transport.receive(4)
        refuse_alert(head)
        return self.transport.receive(*struct.unpack(">i", head))


def _piece_timeout(deadline: float) -> float:
    """Return the seconds that sending a piece of a request may take."""
    return max(RETRY_BACKOFF_SECONDS, min(RESPONSE_TIMEOUT_SECONDS, deadline - time.monotonic()))


def responds(broker: Broker, client_id: str, listener: Listener) -> bool:
    """Return whether a broker answers ApiVersions now."""
    with (
        suppress(UnreachableBrokerError, *DISCONNECTED),
        closing(BrokerConnection.to(broker, client_id, lambda: None, PROBE_TIMEOUT_SECONDS, listener)),
    ):
        return True
    return False


def refuse_unresponsive(
    brokers: Sequence[Broker],
    controller_id: int,
    allowed: Collection[int],
    listener: Listener = PLAINTEXT_LISTENER,
    timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> None:
    """Raise RefusedError if a registered broker does not respond on the control listener, unless it is in `allowed`.

    The broker would not learn of the changes that are written, and would continue with its old state.
    """
    reasons = unreachable_reasons(
        [broker for broker in brokers if broker.broker_id not in allowed], str(controller_id), listener, timeout_seconds
    )
    if not reasons:
        return
    ids = ",".join(map(str, reasons))
    raise RefusedError(
        f"registered brokers cannot be notified of what batch mode writes: {'; '.join(reasons.values())}; nothing was "
        "written. Repair that, or wait until the broker responds or its session ends (it counts as dead then: take a "
        f"new snapshot and plan again); --allow-silent {ids} writes anyway",
    )


def unreachable_reasons(
    brokers: Sequence[Broker],
    client_id: str,
    listener: Listener = PLAINTEXT_LISTENER,
    timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> dict[int, str]:
    """Probe all brokers in parallel for `timeout_seconds`; return the failures by broker id, with the reason."""
    reasons = {broker.broker_id: _describe(broker, listener, "no response in time") for broker in brokers}
    stop = Event()

    def ask(broker: Broker) -> None:
        refusals = 0
        while refusals < MAX_REFUSED_CONNECTIONS and not stop.is_set():
            try:
                with closing(
                    BrokerConnection.to(broker, client_id, lambda: None, PROBE_TIMEOUT_SECONDS, listener)
                ) as channel:
                    for api in VERSIONS:
                        channel.version(Request(api))
                    channel.refuse_unauthorized(time.monotonic() + timeout_seconds)
            except UnreachableBrokerError as error:
                reasons[broker.broker_id] = _describe(broker, listener, str(error))
                return
            except DISCONNECTED as error:
                refusals = refusals + 1 if isinstance(error, ConnectionRefusedError) else 0
                reasons[broker.broker_id] = _describe(broker, listener, str(error) or type(error).__name__)
                stop.wait(RETRY_BACKOFF_SECONDS)
            else:
                del reasons[broker.broker_id]
                return

    # daemons, because a name look-up cannot be interrupted and Python waits at exit for the threads of a pool
    threads = [Thread(target=ask, args=(broker,), daemon=True, name="ask-versions") for broker in brokers]
    for thread in threads:
        thread.start()
    _join_while_running(threads, timeout_seconds)
    stop.set()
    return dict(sorted(reasons.copy().items()))


def connection_refusal(broker: Broker, client_id: str, listener: Listener) -> str | None:
    """Return why a broker and this client cannot agree on a connection, None if a retry may succeed or it succeeds.

    Examples are a failed login, a certificate that does not verify, and another protocol than the listener's.
    """
    reason = _refusal(broker, client_id, listener)
    return None if reason is None else _describe(broker, listener, reason)


REFUSED_LOGINS: Final = (KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError)
"""Errors of kafka-python whose cause may be a refused login; which one it raises is a matter of time."""


def refusal_at(address: str, settings: Mapping[str, Any]) -> str | None:
    """Return why the broker at an address and this client cannot agree on a connection, None as `connection_refusal`.

    kafka-python reports such a connection as closed or timed out. `settings` come from `read_properties`.
    """
    host, _, port = address.rpartition(":")
    try:
        listener = Listener.with_settings(settings, option_name(COMMAND_CONFIG))
    except UsageError as error:  # the file lacks what a login needs
        return str(error)
    endpoint = Endpoint("", listener.security_protocol, host.strip("[]"), int(port))
    return _refusal(Broker(broker_id=-1, broker_epoch=0, endpoints=[endpoint], understood=True), "surveyor", listener)


def _refusal(broker: Broker, client_id: str, listener: Listener) -> str | None:
    try:
        BrokerConnection.to(broker, client_id, lambda: None, PROBE_TIMEOUT_SECONDS, listener).close()
    except UnreachableBrokerError as error:
        return str(error)
    except DISCONNECTED:
        return None
    return None


def _join_while_running(threads: Sequence[Thread], timeout_seconds: float) -> None:
    """Join threads for `timeout_seconds` in which this process could run.

    Time in which the machine stalls does not count, because the brokers are not responsible for it.
    """
    for thread in threads:
        while thread.is_alive() and timeout_seconds > 0:
            started = time.monotonic()
            thread.join(RETRY_BACKOFF_SECONDS)
            timeout_seconds -= min(RETRY_BACKOFF_SECONDS, time.monotonic() - started)


def _describe(broker: Broker, listener: Listener, reason: str) -> str:
    try:
        host, port = listener.address(broker)
    except UnreachableBrokerError as error:
        return str(error)
    return f"broker {broker.broker_id} at {host}:{port} ({reason})"


def authenticate(exchange: Exchange, settings: Mapping[str, Any], host: str) -> None:
    """Authenticate at the broker on `host`, by kafka-python's mechanisms.

    Corresponds to `SaslClientAuthenticator`: SaslHandshake chooses the mechanism, SaslAuthenticate carries its
    messages. A broker that requires re-authentication (`connections.max.reauth.ms`) closes the connection; the next
    connection authenticates again, with a new token if there is one.
    Raise AuthenticationFailedError if the broker refuses us, or cannot prove that it knows the user.
    """
    name = settings["sasl_mechanism"]
    try:
        mechanism = get_sasl_mechanism(name)(**settings, host=host)
        handshake = SaslHandshakeResponse.decode(
            exchange(_sasl_request(SaslHandshakeRequest(name))), _SASL_VERSION, header=True
        )
        if handshake.error_code:
            accepted = ", ".join(handshake.mechanisms)
            raise AuthenticationFailedError(
                f"{error_name(handshake.error_code)}: it accepts {accepted}, not {name}: see sasl.mechanism"
            )
        while not mechanism.is_done():
            data = exchange(_sasl_request(SaslAuthenticateRequest(mechanism.auth_bytes())))
            response = SaslAuthenticateResponse.decode(data, _SASL_VERSION, header=True)
            if response.error_code:  # its message is left out, as it may contain a PLAIN password
                hint = _SASL_HINTS.get(name, _PASSWORD_HINT)
                raise AuthenticationFailedError(f"{error_name(response.error_code)}: {hint}")
            mechanism.receive(response.auth_bytes)
    except NO_CREDENTIALS as error:
        raise AuthenticationFailedError(str(error)) from None
    except _MALFORMED_SASL:
        raise AuthenticationFailedError(
            f"its responses to {name} are not those of a broker that knows the user"
        ) from None
    if not mechanism.is_authenticated():
        raise AuthenticationFailedError(f"its response to {name} is invalid")


def prepare_authentication(settings: Mapping[str, Any]) -> None:
    """Obtain what `authenticate` needs and may take long; raise AuthenticationFailedError on failure."""
    try:
        require_credentials(settings)
    except NO_CREDENTIALS as error:
        raise AuthenticationFailedError(str(error)) from None


def _sasl_request(request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    request.API_VERSION = _SASL_VERSION
    return request
