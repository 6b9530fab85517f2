"""The lease of a cluster: it allows one commit in admin mode, cancellation or change of throttles at a time.

Two at once would mistake each other's throttles for leftovers of a crash and clear them. The lease is an ephemeral
znode under Kafka's chroot. It works across warehouses and hosts, and ends with the session of its holder. A killed
process keeps it until ZooKeeper expires its session. The Admin API has no fencing, so the holder checks right before
each write that it still has the lease.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import InvalidACLError, NoNodeError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from jobs.adapters.zookeeper.connection import LOST, await_result, commit, with_retries
from jobs.adapters.zookeeper.controllership import NOT_CONNECTED, session_of
from jobs.adapters.zookeeper.endpoint import acl_id
from jobs.adapters.zookeeper.kafka_acl import kafka_acl
from jobs.adapters.zookeeper.multi_failure import multi_failure
from jobs.adapters.zookeeper.znode_reads import Znode, read_latest
from jobs.core.errors import LeaseHeldError, LeaseLostError, RefusedError
from jobs.core.option_sources import ZOOKEEPER_CONFIG, conf_section, option_name, value_at
from schemas.lease_holder import (
    LeaseHolder,
    encode_holder,
    held_advice,
    held_text,
    holder_now,
    holder_text,
    known_holder,
    lost_text,
    waiting_text,
)

_PARENT: Final = "/surveyor"
LEASE: Final = f"{_PARENT}/commit"

_PROBE: Final = f"{_PARENT}/permission"
_NONEXISTENT: Final = f"{_PROBE}/never"
"""A path that cannot exist, because ephemeral znodes have no children."""

LEASE_TIMEOUT_SECONDS: Final = 12.0
"""Seconds to wait for the lease of a process that may have been killed; its session expires after SESSION_TIMEOUT."""

_POLL_SECONDS: Final = 0.2


@dataclass(slots=True)
class ZnodeLease:
    """A lease; it is held while `session` owns the znode. `session` is 0 before it is taken and after its release."""

    client: KazooClient
    holder: LeaseHolder
    notify: Callable[[str], None]
    config: Path | None = None
    """The file that names our user, for messages."""
    session: int = 0

    def acquire(self, timeout: float) -> None:
        """Take the lease, waiting for another holder; raise LeaseHeldError after `timeout` seconds."""
        if self.session:
            return
        deadline = time.monotonic() + timeout
        waiting = False
        while not self._try_create():
            other = with_retries(lambda: read_latest(self.client, LEASE))
            if other.stat is None:
                continue
            if time.monotonic() > deadline:
                raise LeaseHeldError(_held_message(other, self.holder))
            if not waiting:
                self.notify(waiting_text(holder_text(other.data), timeout))
                waiting = True
            time.sleep(_POLL_SECONDS)

    def _try_create(self) -> bool:
        """Try to create the znode; return whether we have the lease, also if the response was lost."""
        with suppress(*LOST):
            if not _create(self.client, LEASE, encode_holder(self.holder)):
                raise RefusedError(str(_denied(self.client, self.config)))
        node = with_retries(lambda: read_latest(self.client, LEASE))
        session = session_of(self.client)
        if node.stat is None or not session or node.stat.ephemeralOwner != session:
            return False
        self.session = session
        return True

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless we have the lease; called right before each write."""
        try:
            node = with_retries(lambda: read_latest(self.client, LEASE))
        except LOST as error:
            raise _lost(f"ZooKeeper does not respond, {type(error).__name__}") from None
        if not self.session or node.stat is None or node.stat.ephemeralOwner != self.session:
            raise _lost(holder_now(None if node.stat is None else node.data or b""))

    def release(self) -> None:
        """Release the lease, so that another process can take it while this one continues without writing.

        A lease whose session has ended is not deleted: it may be another process's by now.
        """
        session, self.session = self.session, NOT_CONNECTED
        with suppress(NoNodeError, *LOST):  # it ends with our session
            node = read_latest(self.client, LEASE) if session else None
            if node and node.stat and node.stat.ephemeralOwner == session == session_of(self.client):
                await_result(self.client.delete_async(LEASE))


@contextmanager
def leased(
    client: KazooClient,
    holder: LeaseHolder,
    timeout: float,
    notify: Callable[[str], None],
    config: Path | None = None,
) -> Iterator[ZnodeLease]:
    """Hold the lease; raise LeaseHeldError if another process keeps it for more than `timeout` seconds."""
    lease = ZnodeLease(client, holder, notify, config)
    try:
        lease.acquire(timeout)
        yield lease
    finally:
        if client.connected:
            lease.release()  # otherwise it ends with the session


def current_holder(client: KazooClient) -> LeaseHolder | None:
    """Return the holder of the lease, None if there is none or it cannot be decoded."""
    return known_holder(read_latest(client, LEASE).data)


@dataclass(frozen=True, slots=True)
class LeaseRefusal:
    """Reason why an ACL denies the lease, and what helps."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}: {self.advice}"


def lease_refusal(client: KazooClient, config: Path | None) -> LeaseRefusal | None:
    """Return why an ACL would deny us the lease, None if none does; nothing is created."""
    return None if _create(client, _PROBE, b"", dry=True) else _denied(client, config)


def _create(client: KazooClient, path: str, data: bytes, *, dry: bool = False) -> bool:
    """Try to create an ephemeral znode below /surveyor; return False if an ACL forbids that.

    /surveyor is created with it, or not at all. Its ACL is the same as for Kafka's znodes. If the brokers' user is
    another one than ours, our user is added. With `dry` a check that always fails ends the multi, so nothing is
    created.
    """
    parent_exists = await_result(client.exists_async(_PARENT)) is not None
    acl = kafka_acl(client) or OPEN_ACL_UNSAFE
    for created_acl in (acl, [*acl, *CREATOR_ALL_ACL]):
        multi = client.transaction()
        if not parent_exists:
            multi.create(_PARENT, acl=created_acl)
        multi.create(path, data, created_acl, ephemeral=True)
        if dry:
            multi.check(_NONEXISTENT, 0)
        failure = multi_failure(multi, commit(multi))
        if failure is None or not (failure.is_forbidden or isinstance(failure.error, InvalidACLError)):
            return True  # or another process was first
        if parent_exists:
            break
    return False


def _denied(client: KazooClient, config: Path | None) -> LeaseRefusal:
    user = acl_id(config) or f"the user of {value_at(ZOOKEEPER_CONFIG, config)}"
    entry = f"an entry for {user} with the permissions cdr (create, delete, read)"
    if config is None:
        remedy = f"name in {option_name(ZOOKEEPER_CONFIG)} a user that may write there"
    elif await_result(client.exists_async(_PARENT)) is None:
        remedy = f"ask an administrator to create {_PARENT}, with the brokers' ACL and {entry}"
    else:
        remedy = f"ask an administrator to add to the ACL of {_PARENT} {entry}"
    return LeaseRefusal(
        f"an ACL denies Surveyor permission to create {LEASE} (NoAuth), which prevents two commits at a time",
        f"{remedy}; or set commit_lease = false in {conf_section()}, and make sure that only one commit runs",
    )


def _held_message(node: Znode, own: LeaseHolder) -> str:
    advice = held_advice(own, node.data)
    if node.stat is not None and not node.stat.ephemeralOwner:
        advice = f"it was created manually and stays until it is deleted: `delete {LEASE}` in zookeeper-shell"
    return held_text(holder_text(node.data), LEASE, advice)


def _lost(reason: str) -> LeaseLostError:
    return LeaseLostError(lost_text(f"lease {LEASE}", reason))
