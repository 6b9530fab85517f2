"""The lease of a cluster: it allows one commit in admin mode, cancellation or change of throttles at a time.

Two at once would mistake each other's throttles for leftovers of a crash and clear them. The lease is an ephemeral
znode under Kafka's chroot, so it works across warehouses and hosts and ends with the session of its holder; a killed
process keeps it until ZooKeeper expires its session. The Admin API has no fencing, so the holder checks right before
each write that it still has the lease.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError

from jobs.adapters.zookeeper.connection import (
    LOST,
    Znode,
    await_result,
    read_latest,
    use_kafka_acl,
    with_retries,
)
from jobs.adapters.zookeeper.controllership import NOT_CONNECTED, session_of
from jobs.core.errors import LeaseHeldError, LeaseLostError, RefusedError
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

LEASE: Final = "/surveyor/commit"

LEASE_TIMEOUT_SECONDS: Final = 12.0
"""Seconds to wait for the lease of a process that may have been killed; its session expires after SESSION_TIMEOUT."""

_POLL_SECONDS: Final = 0.2


@dataclass(slots=True)
class ZnodeLease:
    """A lease; it is held while `session` owns the znode. `session` is 0 before it is taken and after its release."""

    client: KazooClient
    holder: LeaseHolder
    notify: Callable[[str], None]
    session: int = 0

    def take(self, timeout: float) -> None:
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
        try:
            await_result(self.client.create_async(LEASE, encode_holder(self.holder), ephemeral=True, makepath=True))
        except (NodeExistsError, *LOST):
            pass
        except NoAuthError:
            raise RefusedError(
                f"an ACL denies Surveyor permission to create {LEASE} (NoAuth), which prevents two commits at a time: "
                "ask an administrator to create /surveyor for us, or set commit_lease = false for this cluster in the "
                "--conf file, and make sure that only one commit runs at a time",
            ) from None
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
    client: KazooClient, holder: LeaseHolder, timeout: float, notify: Callable[[str], None]
) -> Iterator[ZnodeLease]:
    """Hold the lease; raise LeaseHeldError if another process keeps it for more than `timeout` seconds."""
    use_kafka_acl(client)
    lease = ZnodeLease(client, holder, notify)
    try:
        lease.take(timeout)
        yield lease
    finally:
        if client.connected:
            lease.release()  # otherwise it ends with the session


def current_holder(client: KazooClient) -> LeaseHolder | None:
    """Return the holder of the lease, None if there is none or it cannot be decoded."""
    return known_holder(read_latest(client, LEASE).data)


def _held_message(node: Znode, own: LeaseHolder) -> str:
    advice = held_advice(own.plan, node.data)
    if node.stat is not None and not node.stat.ephemeralOwner:
        advice = f"it was created by hand and stays until it is deleted: `delete {LEASE}` in zookeeper-shell"
    return held_text(holder_text(node.data), LEASE, advice)


def _lost(reason: str) -> LeaseLostError:
    return LeaseLostError(lost_text(f"lease {LEASE}", reason))
