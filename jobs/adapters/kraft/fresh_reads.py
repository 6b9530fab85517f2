"""Reads of a KRaft cluster no older than a given moment, from a broker that has applied all records committed by then.

A broker answers from the newest image of the metadata that it has published. ApiVersions reports the offset of the last
record in it (`KRaftMetadataCache.features`). DescribeQuorum, which the quorum's leader answers, reports the high
watermark, which is the offset after the last committed record. Even a node that is also the
quorum's leader publishes its image later than it commits: seconds later on a busy machine.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from jobs.adapters.brokers.admin_client import bootstrap, describe_error
from jobs.adapters.brokers.fanout import Ask
from jobs.adapters.brokers.kafka_python_client import connected_broker
from jobs.adapters.kraft.cluster import NotPermittedError, RefusedReadError, read_cluster, read_last_applied
from jobs.adapters.kraft.session import (
    FAILURES,
    BrokerSession,
    Described,
    StaleMetadataError,
    describe_quorum_at,
    open_session,
    read_from_broker,
)
from jobs.core.errors import UnreadableError
from jobs.core.option_sources import BOOTSTRAP_SERVERS, COMMAND_CONFIG, option_name
from schemas.rows import Broker

T = TypeVar("T")

CATCH_UP_SECONDS: Final = 10.0
"""Seconds for a broker to catch up with the quorum; it fetches at least every half second."""

APPEND_SECONDS: Final = 0.05
"""Seconds in which changes of the controller reach its log: twice the default of controller.quorum.append.linger.ms."""

_POLL_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5


@contextmanager
def _opened(address: str, settings: dict[str, str], described: Described | None) -> Iterator[BrokerSession]:
    with connected_broker(address, settings) as send:
        yield open_session(send, described)


@dataclass(slots=True)
class FreshReads:
    """Reads from a broker that has caught up with the quorum, and from another such broker if that one fails.

    `settings` come from `read_properties`.
    """

    addresses: Sequence[str]
    settings: dict[str, str]
    broker: Broker | None = None
    """The broker that has caught up."""
    contact_seconds: float = 15.0
    """Seconds for some broker to answer and to have contact with the quorum's leader, as after its death."""
    opened: Callable[[str, dict[str, str], Described | None], AbstractContextManager[BrokerSession]] = _opened

    @property
    def protocol(self) -> str:
        return self.settings.get("security_protocol", "PLAINTEXT")

    def sync(self) -> None:
        """Make later readings no older than this call."""
        self._attempt(catch_up)

    def read(self, read: Callable[[BrokerSession], T]) -> T:
        """Return what `read` returns; raise UnreadableError if no broker can be read that has caught up.

        The reason is then the broker's refusal; another broker is asked only if that could make a difference.
        """
        return self._attempt(read)

    def _attempt(self, read: Callable[[BrokerSession], T]) -> T:
        until = time.monotonic() + self.contact_seconds
        while True:
            errors: dict[str, Exception] = {}
            for address, broker, described in self._candidates(errors):
                try:
                    return self._read_from(address, broker, read, described)
                except NotPermittedError as error:
                    raise UnreadableError(f"the broker at {address} refused a request: {error}") from None
                except (StaleMetadataError, RefusedReadError, *FAILURES) as error:
                    errors[address] = error
                self.broker = None
            if time.monotonic() >= until:
                listed = "\n  ".join(f"{address}: {_fault(error)}" for address, error in errors.items())
                raise UnreadableError(
                    f"no broker answered that has contact with the quorum's leader:\n  {listed}\ncheck "
                    f"{option_name(BOOTSTRAP_SERVERS)}, {option_name(COMMAND_CONFIG)} and that the quorum has a leader"
                )
            time.sleep(_PAUSE_SECONDS)

    def _candidates(self, errors: dict[str, Exception]) -> Iterator[tuple[str, Broker, Described | None]]:
        """Yield the broker in use, then the live ones that answer, which must catch up first.

        The quorum's leader comes before the others if it answers.
        """
        if self.broker is not None:
            for address in bootstrap([self.broker], self.settings):
                yield address, self.broker, None
        try:
            leader, brokers = read_from_broker(self.addresses, self.settings, self._leader_and_brokers)
        except (UnreadableError, RefusedReadError) as error:
            errors[option_name(BOOTSTRAP_SERVERS)] = error
            return
        ordered = sorted(brokers, key=lambda broker: broker.broker_id != leader)
        by_address = {
            address: broker for broker in ordered if broker.is_live for address in bootstrap([broker], self.settings)
        }
        for address, described in describe_quorum_at([*by_address], self.settings, errors):
            if isinstance(described, str):
                errors[address] = StaleMetadataError(described)
            else:
                yield address, by_address[address], described

    def _leader_and_brokers(self, session: BrokerSession) -> tuple[int | None, list[Broker]]:
        leader = None if session.quorum is None else session.quorum.leader_id
        return leader, read_cluster(session, self.protocol)[1]

    def _read_from(
        self, address: str, broker: Broker, read: Callable[[BrokerSession], T], described: Described | None
    ) -> T:
        """Read from a broker; `described` is what a broker that has not caught up yet said of the quorum."""
        with self.opened(address, self.settings, described) as session:
            if not session.has_controller:
                raise StaleMetadataError(str(session.quorum_fault))
            if described is not None:
                catch_up(session)
            result = read(session)
        self.broker = broker
        return result


def _fault(error: Exception) -> str:
    return str(error).partition("\ncheck")[0] if isinstance(error, UnreadableError) else describe_error(error)


def catch_up(session: BrokerSession, seconds: float | None = None) -> None:
    """Wait until the broker of this session has applied all that was committed when its quorum was described.

    Raise StaleMetadataError after `seconds`, and UnreadableError if this client may not describe the quorum.
    """
    quorum = session.quorum or session.describe_quorum()
    if quorum.high_watermark is None:
        raise StaleMetadataError("the leader of the quorum does not report what is committed")
    await_applied(session.ask, quorum.high_watermark, seconds)


def appended_end(session: BrokerSession) -> int:
    """Return the end of the leader's log once it has all that the controller did before this call, committed or not.

    The controller lists reassignments as it has them in memory (`ReplicationControlManager.listReassigningTopic`). A
    broker that has applied the log before this end knows all that such a list showed. Raise the same errors as
    `catch_up`.
    """
    time.sleep(APPEND_SECONDS)
    return log_end(session)


def log_end(session: BrokerSession) -> int:
    """Return the end of the leader's log; raise the same errors as `catch_up`."""
    quorum = session.describe_quorum()
    end = next((row.log_end_offset for row in quorum.voters if row.voter_id == quorum.leader_id), None)
    if end is None:
        raise StaleMetadataError("the leader of the quorum does not report the end of its log")
    return end


def await_applied(ask: Ask, end: int, seconds: float | None = None) -> None:
    """Wait until a broker has applied all records before `end`; raise StaleMetadataError after `seconds`."""
    limit = CATCH_UP_SECONDS if seconds is None else seconds
    until = time.monotonic() + limit
    while (last := read_last_applied(ask)) < end - 1:
        if time.monotonic() >= until:
            raise StaleMetadataError(
                f"it does not catch up with the metadata log of the quorum in {limit:g} s: it has applied offset "
                f"{last} of {end - 1}"
            )
        time.sleep(_POLL_SECONDS)
