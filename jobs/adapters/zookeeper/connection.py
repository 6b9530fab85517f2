"""Connections to ZooKeeper: the session of a command, retries, and waiting for responses.

`znode_reads` reads single znodes, and `multi_read` many at once.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, Final, Self, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from jobs.adapters.kerberos.login import KerberosError, KerberosLogin
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint, kazoo_options, login_in
from jobs.core.errors import NoAnswerError, UnreadableError, UsageError
from jobs.core.logs import quiet_logger
from jobs.core.option_sources import ZOOKEEPER, ZOOKEEPER_CONFIG, option_name, value_at
from jobs.core.polling import poll_until
from jobs.core.signals import uninterruptible

SESSION_TIMEOUT: Final = 10.0
"""Seconds without contact after which ZooKeeper ends a session and deletes its ephemeral znodes."""

CONNECT_TIMEOUT_SECONDS: Final = 15.0
"""Seconds that a response may take, including reconnects; longer than a session. kazoo itself has no timeout."""

DNS_TIMEOUT_SECONDS: Final = 1.0
"""Seconds that DNS look-ups may take after no server has answered."""

RECONNECT_DELAY_SECONDS: Final = 1.0
"""Longest pause between two attempts to connect.

kazoo would double the pause up to an hour, and a process that waits through an outage could not read for as long after
it.
"""

_QUIET: Final = quiet_logger("kazoo.surveyor")

CONNECTION_LOST: Final = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError)
"""Errors that leave the outcome of a request unknown and that the session may survive."""

_GIVEN_UP: Final = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
"""States in which kazoo does not connect again.

A server that stops during a SASL handshake looks like one that refuses the user, so a later attempt may succeed.
"""

LOST: Final = (*CONNECTION_LOST, SessionExpiredError)
"""Errors that leave the outcome of a request unknown."""

T = TypeVar("T")


class ZooKeeperSession:
    """The connection of a whole command to ZooKeeper, made at its first use and closed at the end.

    kazoo connects again by itself after a lost connection, and in a new session if ZooKeeper has ended the old one.
    After a refusal it does not, and the next use of this object makes another connection. So a command may wait for
    hours, longer than its first session lives. Ephemeral znodes, such as the lease, end with the session that created
    them: their holder compares the owner with its session before it relies on them.
    """

    def __init__(
        self, endpoint: ZooKeeperEndpoint, timeout: float = SESSION_TIMEOUT, *, first_server: int | None = None
    ) -> None:
        """Make the object, and no connection yet.

        `timeout` is the session timeout in seconds. `first_server` is the index of the server to try first, so that
        many readers spread over an ensemble; without it the order is random.
        """
        self.endpoint, self.timeout, self.first_server = endpoint, timeout, first_server
        self._client: KazooClient | None = None
        self._opening = Lock()
        self._refused = Event()
        self._login: KerberosLogin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            with uninterruptible():
                self._client.stop()
                self._client.close()
                self._client = None

    @contextmanager
    def connected(self) -> Iterator[KazooClient]:
        """Yield the client, connected; raise NoAnswerError if no server answers, or none anymore in this block.

        Raise UnreadableError if ZooKeeper refuses the user.
        """
        try:
            with self._opening:
                client = self._client
                is_kept = client is not None and client.client_state not in _GIVEN_UP
                if client is None or not is_kept:
                    client = self._start()
            if is_kept and poll_until(lambda: client.connected, bool, self.timeout):
                with_retries(lambda: sync(client))  # the session may have ended unnoticed since its last use
            if not client.connected:
                if self._refused.is_set():
                    raise UnreadableError(self._authentication_failed())
                raise NoAnswerError(_not_connected(self.endpoint, self.timeout))
            yield client
        except KazooException as error:
            if self._refused.is_set() or isinstance(error, AuthFailedError):
                raise UnreadableError(self._authentication_failed()) from None
            raise NoAnswerError(
                f"ZooKeeper at {self.endpoint} stopped answering ({type(error).__name__}); "
                "check that the server runs and is reachable, then run the command again",
            ) from error

    def _start(self) -> KazooClient:
        """Start a client, and wait until it is connected, for a session timeout at most."""
        self._close()
        self._refused.clear()
        hosts = self.endpoint.hosts
        options = kazoo_options(self.endpoint.config)
        self._login = login_in(options)
        if self._login is not None:
            self._require_ticket(self._login)
        try:
            client = KazooClient(
                _rotated(hosts, self.first_server or 0),
                self.timeout,
                logger=_QUIET,
                randomize_hosts=self.first_server is None,
                connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": RECONNECT_DELAY_SECONDS},
                **options,
            )
        except ValueError as error:
            raise UsageError(f"{value_at(ZOOKEEPER, repr(hosts))} is not HOST:PORT[,...][/chroot]: {error}") from None
        self._note_refusal(client)
        with uninterruptible():
            self._client = client
            # not `start`, which warns of an absent chroot; `read_cluster` reports that
            started = client.start_async()
        started.wait(self.timeout)
        return client

    def _require_ticket(self, login: KerberosLogin) -> None:
        """Raise UnreadableError if there is no ticket; kazoo would report it as a user that ZooKeeper refuses."""
        try:
            login.credentials()
        except KerberosError as error:
            raise UnreadableError(f"{value_at(ZOOKEEPER_CONFIG, self.endpoint.config)}: {error}") from None

    def _authentication_failed(self) -> str:
        option, server = value_at(ZOOKEEPER_CONFIG, self.endpoint.config), f"ZooKeeper at {self.endpoint}"
        if self._login is None:
            return f"{server} does not accept the user or the password of {option}"
        failure = self._login.failure(host_names(self.endpoint.hosts))
        if failure is not None:
            return f"{option}: {failure}"
        return (
            f"{server} does not accept the ticket of {option}: see both clocks, the keytab of the server, and whether "
            "it has SASLAuthenticationProvider"
        )

    def _note_refusal(self, client: KazooClient) -> None:
        """Note if ZooKeeper refuses the user.

        kazoo counts as connected before it authenticates, and after a refusal its connection is only closed.
        """

        def note(_: str) -> None:
            if client.client_state == KeeperState.AUTH_FAILED:
                self._refused.set()

        client.add_listener(note)


@contextmanager
def connected(
    endpoint: ZooKeeperEndpoint, timeout: float = SESSION_TIMEOUT, *, first_server: int | None = None
) -> Iterator[KazooClient]:
    """Yield a client with its own session; see ZooKeeperSession."""
    with ZooKeeperSession(endpoint, timeout, first_server=first_server) as session, session.connected() as client:
        yield client


def host_names(hosts: str) -> set[str]:
    """Return the names of the servers in an address of an ensemble.

    >>> sorted(host_names("zk1:2181,[::1]:2181/kafka"))
    ['::1', 'zk1']
    """
    return {server.rpartition(":")[0].strip("[]") or server for server in hosts.partition("/")[0].split(",")}


def _unresolvable_hosts(hosts: str) -> list[str]:
    """Return the host names that DNS cannot resolve; a slow look-up does not count as failed."""
    unknown: list[str] = []

    def look_up(name: str) -> None:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            unknown.append(name)

    # daemons, because a look-up cannot be interrupted
    threads = [Thread(target=look_up, args=(name,), daemon=True, name="look-up") for name in host_names(hosts)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DNS_TIMEOUT_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sorted(unknown)


def _not_connected(endpoint: ZooKeeperEndpoint, timeout: float) -> str:
    config = endpoint.config
    none = f"no ZooKeeper answered at {endpoint} within {timeout:g} s; "
    unknown = _unresolvable_hosts(endpoint.hosts)
    if unknown:
        reason = f"cannot resolve host name {unknown[0]!r}: "
        return f"{none}{reason}check {option_name(ZOOKEEPER)}, HOST:PORT[,...][/chroot], and this machine's DNS"
    how = (
        f"whether {value_at(ZOOKEEPER_CONFIG, config)} fits the server"
        if config
        else f"whether it requires TLS ({option_name(ZOOKEEPER_CONFIG)})"
    )
    return f"{none}check {option_name(ZOOKEEPER)}, HOST:PORT[,...][/chroot], that the server runs, and {how}"


def _rotated(hosts: str, first: int) -> str:
    """Rotate the list of servers so that it begins with number `first`.

    >>> _rotated("a:1,b:1,c:1/kafka", 4)
    'b:1,c:1,a:1/kafka'
    """
    servers, slash, chroot = hosts.partition("/")
    names = servers.split(",")
    start = first % len(names)
    return ",".join(names[start:] + names[:start]) + slash + chroot


def servers_of(client: KazooClient) -> str:
    """Return the servers of a client as HOST:PORT[,...], sorted."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in sorted(client.hosts))


def await_result(pending: Any) -> Any:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    """Wait for a response; raise OperationTimeoutError after CONNECT_TIMEOUT_SECONDS."""
    try:
        return pending.get(timeout=CONNECT_TIMEOUT_SECONDS)
    except KazooTimeoutError:
        raise OperationTimeoutError(f"no response within {CONNECT_TIMEOUT_SECONDS:g} s") from None


def with_retries(read: Callable[[], T], lost: tuple[type[Exception], ...] = LOST) -> T:
    """Call `read` again while connections are lost, for CONNECT_TIMEOUT_SECONDS.

    Only for calls that change nothing and do not depend on the session.
    """
    is_retryable = retry_if_exception_type(lost)
    return Retrying(
        retry=is_retryable, stop=stop_after_delay(CONNECT_TIMEOUT_SECONDS), wait=wait_fixed(0.1), reraise=True
    )(read)


def sync(client: KazooClient) -> None:
    """Let the server catch up with its leader, so that later reads return nothing older than this call."""
    await_result(client.sync_async("/"))


def commit(multi: TransactionRequest) -> list[Any]:
    """Commit a multi; return one result per operation, each of them an exception if it was refused."""
    results: list[Any] = await_result(multi.commit_async())
    return results
