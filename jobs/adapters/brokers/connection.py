"""A channel to each broker for control requests, one at a time; and whether brokers answer at all.

Corresponds to `ControllerChannelManager`, which keeps a connection to each broker while it is the controller: it is
made and asked for its versions once, and anew where it was lost or the broker has registered anew. A broker that is at
work on a long request still answers ApiVersions on another connection, one that is stopped does not: that tells whether
waiting has a point.
"""

import importlib
import struct
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any, Final, Self

from jobs.adapters.brokers.control_encoding import KEYS, VERSIONS, ControlBatch, EncodedRequests, Request, Row, header
from jobs.adapters.brokers.kio_reader import entity_reader
from jobs.adapters.brokers.listeners import PLAIN, Listener, UnreachableBrokerError, explain_tls_errors, refuse_alert
from jobs.adapters.brokers.sasl import authenticate
from jobs.adapters.brokers.transport import Transport
from jobs.core.errors import RefusedError
from schemas.notices import STOP_REPLICA
from schemas.response_codes import CLUSTER_AUTHORIZATION_FAILED

RESPONSE_TIMEOUT_SECONDS: Final = 30.0
"""Seconds an answer may take before the request is sent again (`controller.socket.timeout.ms`)."""

IDLE_BEFORE_PROBE_SECONDS: Final = 1.0
"""Seconds without a byte after which a broker is asked on another connection whether it is there."""

PROBE_TIMEOUT_SECONDS: Final = 3.0
"""Seconds that such a question, and a connection, may take."""

RETRY_BACKOFF_SECONDS: Final = 0.1
"""Seconds between two tries, as Kafka's RequestSendThread waits."""

CONNECT_TIMEOUT_SECONDS: Final = 6.0
"""Seconds within which brokers must have answered before anything is written: they register before they answer."""

MAX_REFUSED_CONNECTIONS: Final = 30
"""Connections refused in a row, PAUSE apart, after which a broker is taken for gone.

Brokers of 3.9 register a moment before they take connections (`KafkaServer.startup`, `enableRequestProcessing`); one
that refuses for longer has most likely ended, and its session has not."""

_API_VERSIONS: Final = 18
_TOP_ERROR_OFFSET: Final = 5
"""Where the error code of a whole response stands: after the correlation id and no tags."""

DISCONNECTED: Final = (OSError, struct.error)
"""What ends a connection: it broke, or what came on it makes no sense."""

_STALE_BROKER_EPOCH: Final = 0
"""A broker epoch from before all others: a request that names it is judged by the authorizer, and then left alone."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a broker answered, as it came: reading it all is for later."""

    version: int
    data: bytes

    @property
    def error(self) -> int:
        """The error code for the request as a whole."""
        return int.from_bytes(self.data[_TOP_ERROR_OFFSET : _TOP_ERROR_OFFSET + 2], "big", signed=True)

    def entity(self, api: str) -> Any:  # noqa: ANN401 - kio's classes differ by version
        module = importlib.import_module(f"kio.schema.{_module(api)}.v{self.version}.response")
        response = getattr(module, f"{api}Response")
        _, start = entity_reader(response.__header_schema__)(self.data, 0)
        return entity_reader(response)(self.data, start)[0]


def _module(api: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).lstrip("_")


@dataclass(slots=True)
class BrokerConnection:
    """A connection that knows which versions the broker speaks."""

    transport: Transport
    broker: Row
    client_id: str
    on_activity: Callable[[], None]
    """Called at each sign of life."""
    listener: Listener
    versions: dict[int, int]
    correlation: int = 0
    aborted: bool = False

    @classmethod
    def to(
        cls, broker: Row, client_id: str, on_activity: Callable[[], None], patience: float, listener: Listener
    ) -> "BrokerConnection":
        """Connect, ask what the broker speaks, and say who we are; raise CannotTellError where that is in vain."""
        seconds = max(RETRY_BACKOFF_SECONDS, min(patience, PROBE_TIMEOUT_SECONDS))
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
        """Ask for versions, then authenticate, as Kafka's clients do."""
        self.versions = self.api_versions()
        if not self.listener.sasl:
            return

        def exchange(request: Any) -> bytes:  # noqa: ANN401 - kafka-python is untyped
            self.transport.set_timeout(max(RETRY_BACKOFF_SECONDS, until - time.monotonic()))
            self.correlation += 1
            request.with_header(self.correlation, self.client_id)
            return self._exchange(request.encode(header=True, framed=True))

        authenticate(exchange, self.listener.sasl)

    def abort(self) -> None:
        """Wake up the thread that asks, whatever it waits for."""
        self.aborted = True
        self.transport.abort()

    def close(self) -> None:
        self.transport.close()

    def api_versions(self) -> dict[int, int]:
        """Ask what the broker speaks (ApiVersions 0): the highest version by API."""
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
        """Raise CannotTellError where the broker's authorizer does not let us tell it anything.

        It is sent a StopReplica of nothing, in the name of nobody and under a broker epoch that is long over: that is
        looked at once the authorizer has judged (`KafkaApis.handleStopReplicaRequest`), and no more is done with it.
        """
        request = Request(STOP_REPLICA)
        version = self.version(request)
        nothing = EncodedRequests(ControlBatch(-1, 0, (), ()), deadline)
        body = nothing.body(request, version, {"broker_epoch": _STALE_BROKER_EPOCH})
        stop = Event()
        self.send(STOP_REPLICA, version, body, stop, deadline)
        if Response(version, self.receive_response(stop, deadline)).error == CLUSTER_AUTHORIZATION_FAILED:
            raise UnreachableBrokerError(
                f"it answers ClusterAuthorizationFailed ({CLUSTER_AUTHORIZATION_FAILED}): whoever tells it what was "
                "written needs ClusterAction on the Cluster: see --command-config, and the ACLs",
            )

    def version(self, request: Request) -> int:
        """The highest version of a request that both sides know; raise CannotTellError where there is none."""
        supported = request.versions
        version = min(self.versions.get(KEYS[request.api], 0), supported[-1])
        if version < supported[0]:
            raise UnreachableBrokerError(f"it speaks {request.api} up to version {version} only")
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
        """Wait for the answer to what was sent; ask now and then whether the broker is there at all."""
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
        """Raise ConnectionError where an answer is to another request, or too short to be one: ours is lost."""
        if len(data) < _TOP_ERROR_OFFSET + 2 or int.from_bytes(data[:4], "big") != self.correlation:
            raise ConnectionError("what the broker answered is no answer to the last request")

    def _receive(self) -> bytes:
        head = self.transport.receive(4)
        refuse_alert(head)
        return self.transport.receive(*struct.unpack(">i", head))


def _piece_timeout(deadline: float) -> float:
    """Seconds that a piece of a request may take to be sent."""
    return max(RETRY_BACKOFF_SECONDS, min(RESPONSE_TIMEOUT_SECONDS, deadline - time.monotonic()))


@dataclass(slots=True)
class ConnectionPool:
    """The channels of a commit, to be closed at its end: one to each broker, under each registration."""

    client_id: str
    listener: Listener = PLAIN
    _open: dict[tuple[int, int], BrokerConnection] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _is_closed: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            for channel in self._open.values():
                channel.close()
            self._open.clear()

    def to(self, broker: Row, on_activity: Callable[[], None], patience: float) -> BrokerConnection:
        """Return the broker's channel, for one who asks at a time."""
        channel = self._open.get(_registration(broker))
        if channel is None or channel.aborted:
            channel = BrokerConnection.to(broker, self.client_id, on_activity, patience, self.listener)
            self._store(channel)
        channel.on_activity = on_activity
        return channel

    def _store(self, channel: BrokerConnection) -> None:
        with self._lock:
            if self._is_closed:  # nobody waits for a thread that was still connecting
                channel.close()
                raise ConnectionAbortedError
            former = self._open.pop(_registration(channel.broker), None)
            self._open[_registration(channel.broker)] = channel
        if former is not None:
            former.close()

    def drop(self, channel: BrokerConnection) -> None:
        """Close a channel on which something was lost: what comes next on it would be the answer to that."""
        with self._lock:
            if self._open.get(_registration(channel.broker)) is channel:  # not one that was made since
                del self._open[_registration(channel.broker)]
        channel.close()


def _registration(broker: Row) -> tuple[int, int]:
    return broker["broker_id"], broker["broker_epoch"]


def responds(broker: Row, client_id: str, listener: Listener) -> bool:
    """Tell whether a broker answers ApiVersions now."""
    with (
        suppress(UnreachableBrokerError, *DISCONNECTED),
        closing(BrokerConnection.to(broker, client_id, lambda: None, PROBE_TIMEOUT_SECONDS, listener)),
    ):
        return True
    return False


def refuse_unresponsive(
    brokers: Sequence[Row], controller_id: int, allowed: Collection[int], listener: Listener = PLAIN
) -> None:
    """Raise RefusedError where a registered broker does not answer where control requests go, unless it is allowed to.

    What is written then could not be told to it, and it would go on as it was.
    """
    reasons = unreachable_reasons(
        [broker for broker in brokers if broker["broker_id"] not in allowed], str(controller_id), listener
    )
    if not reasons:
        return
    ids = ",".join(map(str, reasons))
    raise RefusedError(
        f"registered, but not to be told what batch mode writes: {'; '.join(reasons.values())}; nothing was written. "
        "Mend that, or wait until it answers or its session ends (it counts as dead then: take a new snapshot and plan "
        f"again); --allow-silent {ids} writes nevertheless",
    )


def unreachable_reasons(brokers: Sequence[Row], client_id: str, listener: Listener = PLAIN) -> dict[int, str]:
    """Ask all brokers at once, again and again for a while; return why some cannot be told, by broker id."""
    reasons = {broker["broker_id"]: _describe(broker, listener, "no answer in time") for broker in brokers}
    stop = Event()

    def ask(broker: Row) -> None:
        refusals = 0
        while refusals < MAX_REFUSED_CONNECTIONS and not stop.is_set():
            try:
                with closing(
                    BrokerConnection.to(broker, client_id, lambda: None, PROBE_TIMEOUT_SECONDS, listener)
                ) as channel:
                    for api in VERSIONS:
                        channel.version(Request(api))
                    channel.refuse_unauthorized(time.monotonic() + CONNECT_TIMEOUT_SECONDS)
            except UnreachableBrokerError as error:
                reasons[broker["broker_id"]] = _describe(broker, listener, str(error))
                return
            except DISCONNECTED as error:
                refusals = refusals + 1 if isinstance(error, ConnectionRefusedError) else 0
                reasons[broker["broker_id"]] = _describe(broker, listener, str(error) or type(error).__name__)
                stop.wait(RETRY_BACKOFF_SECONDS)
            else:
                del reasons[broker["broker_id"]]
                return

    # daemons: nothing but its end interrupts the look-up of a name, and a pool would be waited for at exit
    threads = [Thread(target=ask, args=(broker,), daemon=True, name="ask-versions") for broker in brokers]
    for thread in threads:
        thread.start()
    _join_while_running(threads, CONNECT_TIMEOUT_SECONDS)
    stop.set()
    return dict(sorted(reasons.copy().items()))


def _join_while_running(threads: Sequence[Thread], patience: float) -> None:
    """Wait for threads, for so many seconds that we ourselves were let to run: a machine that stalls is no broker's."""
    for thread in threads:
        while thread.is_alive() and patience > 0:
            started = time.monotonic()
            thread.join(RETRY_BACKOFF_SECONDS)
            patience -= min(RETRY_BACKOFF_SECONDS, time.monotonic() - started)


def _describe(broker: Row, listener: Listener, why: str) -> str:
    try:
        host, port = listener.address(broker)
    except UnreachableBrokerError as error:
        return str(error)
    return f"broker {broker['broker_id']} at {host}:{port} ({why})"
