"""ZooKeeper: a connection, `sync`, single reads, and multis. `multi_read` reads in bulk."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_result,
    stop_after_delay,
    wait_fixed,
)

from jobs.adapters.zookeeper.credentials import OPTION, config_of, kazoo_options
from jobs.core.errors import SurveyorError, UnreadableError, UsageError
from jobs.core.signals import uninterruptible

SESSION_TIMEOUT: Final = 10.0
"""Seconds; a session that is silent for so long ends, and what is ephemeral in it goes."""

CONNECT_TIMEOUT_SECONDS: Final = 15.0
"""Seconds an answer may take, reconnecting included: longer than a session lasts; kazoo itself waits for ever."""

DNS_TIMEOUT_SECONDS: Final = 1.0
"""Seconds that a name may take to be looked up once nobody has answered."""

POLL_SECONDS: Final = 0.2
"""Seconds between two looks."""

_QUIET: Final = logging.getLogger("kazoo.surveyor")
_QUIET.setLevel(logging.CRITICAL)  # what goes wrong is raised, and said once


_ACL_SOURCE: Final = "/brokers/topics"
"""Made by the brokers, so its ACL is the one that Kafka gives to what it makes (`ZkData.defaultAcls`)."""

_MASKED_DIGEST_SUFFIX: Final = ":x"
"""What ZooKeeper shows in place of a digest to whoever may not administer the znode."""

CUT_OFF: Final = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError)
"""Of what leaves the outcome of a request unknown, that which the session may survive."""

LOST: Final = (*CUT_OFF, SessionExpiredError)
"""What leaves the outcome of a request unknown."""

T = TypeVar("T")


class Znode(NamedTuple):
    """A znode as read; absent ones have no stat."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None

    @property
    def version(self) -> int | None:
        return None if self.stat is None else int(self.stat.version)


@contextmanager
def connected(
    hosts: str, timeout: float = SESSION_TIMEOUT, *, first_server: int | None = None
) -> Iterator[KazooClient]:
    """Yield a started client of `HOST:PORT[,...][/chroot]`; raise UnreadableError if nobody answers, or no more.

    `first` numbers the server to be tried first, so that many readers spread over an ensemble; else chance decides.
    """
    try:
        client = KazooClient(
            _rotated(hosts, first_server or 0),
            timeout,
            logger=_QUIET,
            randomize_hosts=first_server is None,
            **kazoo_options(hosts),
        )
    except ValueError as error:
        raise UsageError(f"--zookeeper {hosts!r} is not HOST:PORT[,...][/chroot]: {error}") from None
    refused = _authentication_failure(client)
    try:
        with uninterruptible():
            # not `start`, which warns of an absent chroot; `read_cluster` says what that means
            started = client.start_async()
        started.wait(timeout)
        if not client.connected:
            raise UnreadableError(_authentication_failed(hosts) if refused.is_set() else _not_connected(hosts, timeout))
        yield client
    except KazooException as error:
        if refused.is_set() or isinstance(error, AuthFailedError):
            raise UnreadableError(_authentication_failed(hosts)) from None
        raise UnreadableError(
            f"ZooKeeper at {hosts} stopped answering ({type(error).__name__}); "
            "check that the server runs and is reachable, then run the command again",
        ) from error
    finally:
        with uninterruptible():
            client.stop()
            client.close()


def _unresolvable_hosts(hosts: str) -> list[str]:
    """Name the servers whose names cannot be looked up, no fault of theirs; nothing is said of slow look-ups."""
    names = {server.rpartition(":")[0].strip("[]") or server for server in hosts.partition("/")[0].split(",")}
    unknown: list[str] = []

    def look_up(name: str) -> None:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            unknown.append(name)

    # daemons: nothing interrupts the look-up of a name
    threads = [Thread(target=look_up, args=(name,), daemon=True, name="look-up") for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DNS_TIMEOUT_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sorted(unknown)


def _authentication_failure(client: KazooClient) -> Event:
    """Remember that a user was refused: kazoo is connected before it asks, and is merely closed soon afterwards."""
    refused = Event()

    def note(_: str) -> None:
        if client.client_state == KeeperState.AUTH_FAILED:
            refused.set()

    client.add_listener(note)
    return refused


def _not_connected(hosts: str, timeout: float) -> str:
    config = config_of(hosts)
    none = f"no ZooKeeper answered at {hosts} within {timeout:g} s; "
    unknown = _unresolvable_hosts(hosts)
    if unknown:
        why = f"nobody here knows the name {unknown[0]!r}: "
        return f"{none}{why}check --zookeeper HOST:PORT[,...][/chroot] (SURVEYOR_ZOOKEEPER) and this machine's DNS"
    how = f"whether it is spoken to as {OPTION} {config} says" if config else f"whether it wants TLS ({OPTION})"
    return f"{none}check --zookeeper HOST:PORT[,...][/chroot] (SURVEYOR_ZOOKEEPER), that the server runs, and {how}"


def _authentication_failed(hosts: str) -> str:
    return f"ZooKeeper at {hosts} does not know the user, or not the password, of {OPTION} {config_of(hosts)}"


def _rotated(hosts: str, first: int) -> str:
    """Begin the list of servers elsewhere.

    >>> _rotated("a:1,b:1,c:1/kafka", 4)
    'b:1,c:1,a:1/kafka'
    """
    servers, slash, chroot = hosts.partition("/")
    names = servers.split(",")
    start = first % len(names)
    return ",".join(names[start:] + names[:start]) + slash + chroot


def await_result(pending: Any) -> Any:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    """Wait for an answer; raise OperationTimeoutError where none comes."""
    try:
        return pending.get(timeout=CONNECT_TIMEOUT_SECONDS)
    except KazooTimeoutError:
        raise OperationTimeoutError(f"no answer within {CONNECT_TIMEOUT_SECONDS:g} s") from None


def with_retries(read: Callable[[], T], lost: tuple[type[Exception], ...] = LOST) -> T:
    """Read once more while connections are lost on the way; only for what changes nothing and holds nothing."""
    is_retryable = retry_if_exception_type(lost)
    return Retrying(
        retry=is_retryable, stop=stop_after_delay(CONNECT_TIMEOUT_SECONDS), wait=wait_fixed(0.1), reraise=True
    )(read)


def poll_until(read: Callable[[], T], is_enough: Callable[[T], bool], timeout: float) -> T:
    """Look again and again until it is enough, for `patience` seconds at most; return what was seen last."""
    is_pending = retry_if_not_result(is_enough)
    return Retrying(
        retry=is_pending,
        stop=stop_after_delay(timeout),
        wait=wait_fixed(POLL_SECONDS),
        retry_error_callback=_last_result,
    )(read)


def _last_result(state: RetryCallState) -> Any:  # noqa: ANN401 - whatever was looked at
    return state.outcome.result() if state.outcome else None


def sync(client: KazooClient) -> None:
    """Let the server catch up with its leader, so that what is read next is not older than this call."""
    await_result(client.sync_async("/"))


def commit(multi: TransactionRequest) -> list[Any]:
    """Commit a multi; return one result an operation, an exception for each if it was refused."""
    results: list[Any] = await_result(multi.commit_async())
    return results


def forbidden(what: str) -> str:
    """Say that an ACL forbids something, and what to do about it.

    >>> print(forbidden("set /controller_epoch"))
    ZooKeeper forbids to set /controller_epoch (NoAuth): let --zookeeper-config name the user that the brokers have, \
or the ACL (of the parent, for create and delete) allow it to this host; what only writes forbid, Kafka's controller \
may be asked for by --mode admin
    """
    return (
        f"ZooKeeper forbids to {what} (NoAuth): let {OPTION} name the user that the brokers have, or the ACL (of the "
        "parent, for create and delete) allow it to this host; what only writes forbid, Kafka's controller may be "
        "asked for by --mode admin"
    )


def read(client: KazooClient, path: str) -> Znode:
    """Read one znode, absent or not."""
    try:
        data, stat = await_result(client.get_async(path))
    except NoNodeError:
        return Znode(path, None, None)
    except NoAuthError:
        raise UnreadableError(forbidden(f"read {path}")) from None
    return Znode(path, data, stat)


def read_latest(client: KazooClient, path: str) -> Znode:
    """Read one znode as it is now, and not as it was when this server last heard of it."""
    sync(client)
    return read(client, path)


def children(client: KazooClient, path: str) -> list[str] | None:
    """Return the names under `path` in order, None where there is no such znode."""
    try:
        return sorted(await_result(client.get_children_async(path)))
    except NoNodeError:
        return None
    except NoAuthError:
        raise UnreadableError(forbidden(f"read {path}")) from None


def use_kafka_acl(client: KazooClient) -> None:
    """From now on what this client creates has the ACL that Kafka gave to what it created itself.

    Where brokers run with zookeeper.set.acl=true nobody else may write then, and they themselves may. Raise
    SurveyorError where the ACL is not shown to us as it is: what we created could not be written by brokers.
    """
    try:
        acls, _ = await_result(client.get_acls_async(_ACL_SOURCE))
    except (NoNodeError, NoAuthError):
        return  # what comes next says so: there is no cluster, or nothing of it for us
    if any(acl.id.scheme == "digest" and acl.id.id.endswith(_MASKED_DIGEST_SUFFIX) for acl in acls):
        raise SurveyorError(
            f"the ACL of {_ACL_SOURCE} is not shown to us, so brokers could not use what we create: let {OPTION} name "
            "the user that the brokers have; nothing was written",
        )
    client.default_acl = None if acls == OPEN_ACL_UNSAFE else acls
