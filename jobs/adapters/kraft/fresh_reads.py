"""Readings of a KRaft cluster that are not older than a moment, by a broker that has caught up with the quorum.

A broker answers from its copy of the metadata log, which it fetches from the quorum's leader. Each response to a fetch
carries the leader's high watermark. So once a broker has fetched twice after a moment, it knows all that was committed
by then. The leader reports the last fetch of each node (DescribeQuorum). A broker applies what it has fetched within
milliseconds, so a reading may be older by that much. The leader itself does not fetch and needs no check.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from jobs.adapters.brokers.admin import bootstrap, describe_error
from jobs.adapters.brokers.fanout import connected_broker
from jobs.adapters.kraft.cluster import read_cluster
from jobs.adapters.kraft.session import FAILURES, BehindError, Quorum, Session, open_session, read_from_broker
from jobs.core.errors import UnreadableError
from schemas.rows import Broker

T = TypeVar("T")

CATCH_UP_SECONDS: Final = 10.0
"""Seconds for a broker to catch up with the quorum; it fetches at least every half second."""

CONTACT_SECONDS: Final = 15.0
"""Seconds for some broker to answer and to have contact with the quorum's leader, as after its death."""

_POLL_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5


@dataclass(slots=True)
class FreshReads:
    """Reads from a broker that has caught up with the quorum, and from another such broker if that one fails.

    `settings` are those of `read_properties`.
    """

    addresses: Sequence[str]
    settings: dict[str, str]
    broker: Broker | None = None
    """The broker that has caught up."""

    @property
    def protocol(self) -> str:
        return self.settings.get("security_protocol", "PLAINTEXT")

    def sync(self) -> None:
        """Make later readings no older than this call."""
        self._attempt(lambda session, broker: catch_up(session, [broker.broker_id]))

    def read(self, read: Callable[[Session], T]) -> T:
        """Return what `read` returns; raise UnreadableError if no broker can be read that has caught up."""
        return self._attempt(lambda session, _: read(session))

    def _attempt(self, read: Callable[[Session, Broker], T]) -> T:
        until = time.monotonic() + CONTACT_SECONDS
        while True:
            faults: dict[str, str] = {}
            for broker, is_new in self._candidates(faults):
                for address in bootstrap([broker], self.settings):
                    try:
                        return self._read_from(address, broker, read, is_new=is_new)
                    except (BehindError, *FAILURES) as error:
                        faults[address] = describe_error(error)
                self.broker = None
            if time.monotonic() >= until:
                listed = "\n  ".join(f"{address}: {fault}" for address, fault in faults.items())
                raise UnreadableError(
                    f"no broker answered that has contact with the quorum's leader:\n  {listed}\ncheck "
                    "--bootstrap-server (SURVEYOR_BOOTSTRAP_SERVERS), --command-config and that the quorum has a leader"
                )
            time.sleep(_PAUSE_SECONDS)

    def _candidates(self, faults: dict[str, str]) -> Iterable[tuple[Broker, bool]]:
        """The broker in use, then the live ones, the quorum's leader first; these must catch up first."""
        if self.broker is not None:
            yield self.broker, False
        try:
            leader, brokers = read_from_broker(self.addresses, self.settings, self._leader_and_brokers)
        except UnreadableError as error:
            faults["--bootstrap-server"] = str(error).partition("\ncheck")[0]
            return
        ordered = sorted(brokers, key=lambda broker: broker.broker_id != leader)
        yield from ((broker, True) for broker in ordered if broker.is_live)

    def _leader_and_brokers(self, session: Session) -> tuple[int | None, list[Broker]]:
        leader = None if session.quorum is None else session.quorum.leader_id
        return leader, read_cluster(session, self.protocol)[1]

    def _read_from(self, address: str, broker: Broker, read: Callable[[Session, Broker], T], *, is_new: bool) -> T:
        with connected_broker(address, self.settings) as send:
            session = open_session(send)
            if not session.has_controller:
                raise BehindError(str(session.quorum_fault))
            if is_new:
                catch_up(session, [broker.broker_id])
            result = read(session, broker)
        self.broker = broker
        return result


def catch_up(session: Session, brokers: Collection[int]) -> None:
    """Wait until these brokers know all that was committed before this call; raise BehindError after some seconds.

    A broker that the quorum does not know, or a client that may not describe it, cannot be waited for.
    """
    first = session.describe_quorum()
    last, fetched, until = first, dict.fromkeys(brokers, 0), time.monotonic() + CATCH_UP_SECONDS
    while waiting := [node for node in brokers if not _knows(node, first, last, fetched[node])]:
        if time.monotonic() >= until:
            raise BehindError(f"broker {waiting[0]} does not catch up with the metadata log of the quorum")
        time.sleep(_POLL_SECONDS)
        now = session.describe_quorum()
        if now.leader_epoch != first.leader_epoch:  # another leader has another clock
            first, fetched = now, dict.fromkeys(brokers, 0)
        else:
            for node in brokers:
                fetched[node] += _timestamp(now, node) != _timestamp(last, node)
        last = now


def _knows(node: int, first: Quorum, last: Quorum, fetches: int) -> bool:
    """Whether a node knows what was committed at the time of `first`; `fetches` counts its fetches since."""
    if node == first.leader_id == last.leader_id:
        return True
    fetch = last.fetches.get(node)
    if fetch is None or fetch.log_end_offset is None or first.high_watermark is None:
        return False
    has_records = fetch.log_end_offset >= first.high_watermark
    return has_records and (fetch.timestamp_ms is None or fetches >= 2)  # noqa: PLR2004


def _timestamp(quorum: Quorum, node: int) -> int | None:
    fetch = quorum.fetches.get(node)
    return None if fetch is None else fetch.timestamp_ms
