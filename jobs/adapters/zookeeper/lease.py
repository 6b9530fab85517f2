"""The lease of a cluster: one commit in admin mode, cancellation or change of throttles at a time.

Two at once would take each other's throttles for what a crash left behind, and clear them. The lease is an ephemeral
znode under the chroot that Kafka has, so it holds between warehouses and hosts, and ends with its holder: a process
that was killed has it until ZooKeeper forgets its session. The Admin API knows no fence, so whoever holds the lease
looks whether it is still theirs right before each write.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError

from jobs.adapters.zookeeper.connection import (
    LOST,
    Znode,
    await_result,
    connected,
    read_latest,
    use_kafka_acl,
    with_retries,
)
from jobs.adapters.zookeeper.controllership import session_of
from jobs.core.errors import ExitCode, RefusedError, SurveyorError
from schemas.lease import LeaseHolder, decode_holder, encode_holder
from schemas.znodes import MalformedZnodeError

LEASE: Final = "/surveyor/commit"

LEASE_TIMEOUT_SECONDS: Final = 12.0
"""Seconds to wait for the lease of somebody who may have been killed: a session is forgotten after SESSION_TIMEOUT."""

_POLL_SECONDS: Final = 0.2


class LeaseHeldError(RefusedError):
    """Somebody else has the lease."""


class LeaseLostError(SurveyorError):
    """The lease is not ours any more: nothing more is written."""

    exit_code = ExitCode.RUNNING


@dataclass(slots=True)
class Lease:
    """Ours, while `session` owns the znode; 0 once it was let go."""

    client: KazooClient
    holder: LeaseHolder
    say: Callable[[str], None]
    session: int = 0

    def take(self, timeout: float) -> None:
        """Take it, once nobody else has it; raise LeaseHeldError where somebody keeps it."""
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
                self.say(
                    f"surveyor: {holder_of(other)} has the lease of this cluster; waiting for it, "
                    f"{timeout:g} s at most: that of a process that was killed ends by then",
                )
                waiting = True
            time.sleep(_POLL_SECONDS)

    def _try_create(self) -> bool:
        """Try to create it; tell whether it is ours, also where the answer was lost."""
        try:
            await_result(self.client.create_async(LEASE, encode_holder(self.holder), ephemeral=True, makepath=True))
        except (NodeExistsError, *LOST):
            pass
        except NoAuthError:
            raise RefusedError(
                f"ZooKeeper does not let us create {LEASE} (NoAuth), which keeps two commits apart: let somebody who "
                "may create /surveyor for us, or set commit_lease = false for this cluster in the --conf file, and see "
                "to it that only one commit runs at a time",
            ) from None
        node = with_retries(lambda: read_latest(self.client, LEASE))
        session = session_of(self.client)
        if node.stat is None or not session or node.stat.ephemeralOwner != session:
            return False
        self.session = session
        return True

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless it is ours: asked right before each write."""
        try:
            node = with_retries(lambda: read_latest(self.client, LEASE))
        except LOST as error:
            raise _lost(f"ZooKeeper does not answer, {type(error).__name__}") from None
        if not self.session or node.stat is None or node.stat.ephemeralOwner != self.session:
            raise _lost("nobody has it now" if node.stat is None else f"{holder_of(node)} has it now")

    def release(self) -> None:
        """Let somebody else have it, while we go on without writing."""
        if self.session:
            self.session = 0
            try:
                await_result(self.client.delete_async(LEASE))
            except (NoNodeError, *LOST):
                pass  # it ends with our session


class NoLease(Lease):
    """Where ZooKeeper lets nobody write: everybody has it."""

    def take(self, patience: float) -> None:
        del patience

    def refuse_lost(self) -> None:
        """It cannot be lost."""

    def release(self) -> None:
        """Nobody waits for it."""


@contextmanager
def leased(hosts: str, holder: LeaseHolder, timeout: float, notify: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the lease; raise LeaseHeldError where somebody else keeps it for longer than `patience` seconds."""
    with connected(hosts) as client:
        use_kafka_acl(client)
        lease = Lease(client, holder, notify)
        lease.take(timeout)
        yield lease  # it goes with the session


def current_holder(hosts: str) -> LeaseHolder | None:
    """Who has the lease; None where nobody has, or nobody can tell who."""
    with connected(hosts) as client:
        node = read_latest(client, LEASE)
    try:
        return None if node.stat is None else decode_holder(node.data)
    except MalformedZnodeError:
        return None


def holder_of(node: Znode) -> str:
    """Say who has it."""
    try:
        return str(decode_holder(node.data))
    except MalformedZnodeError:
        return f"somebody that this version does not understand ({node.data!r:.200})"


def _held_message(node: Znode, own: LeaseHolder) -> str:
    advice = "wait until it is done, or interrupt it, then run this again"
    if node.stat is not None and not node.stat.ephemeralOwner:
        advice = f"it was created by hand and stays until it is deleted: `delete {LEASE}` in zookeeper-shell"
    elif _plan_of(node) == own.plan:
        advice = "interrupt it and run this again: what it asked for goes on, and this goes on where it is"
    return f"{holder_of(node)} has the lease of this cluster ({LEASE}), and only one may at a time: {advice}"


def _lost(why: str) -> LeaseLostError:
    return LeaseLostError(
        f"the lease {LEASE} is not ours any more ({why}). Nothing more is written; what was asked for goes on in the "
        "cluster. Run the same command again to go on",
    )


def _plan_of(node: Znode) -> str | None:
    try:
        return decode_holder(node.data).plan
    except MalformedZnodeError:
        return None
