"""A connection to one broker of a KRaft cluster that is in contact with the quorum's leader.

Any broker answers from its own copy of the metadata. A broker without contact to the quorum keeps answering from an old
copy. Only the leader answers DescribeQuorum: a broker whose DescribeQuorum gets no answer is used only if no other
broker answers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafka.errors import IncompatibleBrokerVersion, KafkaError, UnsupportedVersionError, for_code
from kafka.protocol.admin import DescribeQuorumRequest

from jobs.adapters.brokers.admin_client import describe_error
from jobs.adapters.brokers.connection import REFUSED_LOGINS, refusal_at
from jobs.adapters.brokers.first_answers import first_answers
from jobs.adapters.brokers.kafka_python_client import TimedAsk, connected_broker, negotiate
from jobs.adapters.brokers.permission_refusal import NOT_PERMITTED, refusal
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.option_sources import BOOTSTRAP_SERVERS, COMMAND_CONFIG, option_name
from schemas.enums import NO_CONTROLLER
from schemas.internal_topics import METADATA_TOPIC
from schemas.response_codes import NO_ERROR
from schemas.rows import Voter

T = TypeVar("T")

CONNECT_SECONDS: Final = 3.0
"""Time limit for the connection to a broker and its first answer."""

QUORUM_SECONDS: Final = 3.0
"""Time limit for a broker to get an answer of the quorum's leader.

A broker keeps the request as long as there is no leader. An election takes about two seconds."""

REQUEST_SECONDS: Final = 30.0
"""Time limit for the answer to each further request."""

UNKNOWN: Final = -1
"""An offset or a time that the leader of the quorum does not know."""

UNSUPPORTED: Final = (IncompatibleBrokerVersion, UnsupportedVersionError)
"""Errors that kafka-python raises for a request that a broker does not know."""

FAILURES: Final = (KafkaError, OSError, IndexError, RuntimeError)
"""Errors that kafka-python raises if a broker cannot be reached, or does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The quorum as DescribeQuorum reports it; values that it does not know are None."""

    leader_id: int
    leader_epoch: int
    high_watermark: int | None
    voters: Sequence[Voter]
    leader_time_ms: int | None = None
    """Wall clock of the leader in milliseconds since 1970, None from brokers before Kafka 3.4."""


Described = Quorum | int | str
"""The quorum as a broker describes it, the error code of a refusal, or why there is no answer of its leader."""


class StaleMetadataError(Exception):
    """A broker has no contact with the quorum's leader, or did not catch up with it in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSession:
    """A connection to a broker."""

    send: TimedAsk
    quorum: Quorum | None
    quorum_fault: str | None
    """Reason why the quorum cannot be described, None if it can."""
    has_controller: bool
    """Whether the broker is in contact with the quorum's leader; it forwards requests there."""

    @property
    def may_not_describe_cluster(self) -> bool:
        """Whether this client lacks DESCRIBE on the cluster."""
        return self.quorum is None and self.has_controller

    def describe_quorum(self) -> Quorum:
        """Describe the quorum now; raise UnreadableError without permission, StaleMetadataError without a leader."""
        described = _describe_quorum(self.send)
        if isinstance(described, Quorum):
            return described
        if isinstance(described, str):
            raise StaleMetadataError(described)
        raise UnreadableError(f"it is unknown whether what brokers say is current: {refusal(described, 'cluster')}")

    def ask(self, request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Send a request and return its response."""
        return self.send(request, REQUEST_SECONDS)


def read_from_broker(addresses: Sequence[str], settings: dict[str, str], read: Callable[[BrokerSession], T]) -> T:
    """Return what `read` returns for the first broker that answers all its requests.

    `settings` come from `read_properties`. A broker for which `read` raises StaleMetadataError is used only if no
    other one answers, like one without contact to the quorum's leader. Raise UnreadableError if no broker answers, and
    UsageError if the cluster keeps its metadata in ZooKeeper.
    """
    faults: dict[str, str] = {}
    errors: dict[str, Exception] = {}
    without_quorum: list[str] = []
    for address, described in describe_quorum_at(addresses, settings, errors):
        if isinstance(described, str):
            without_quorum.append(address)
            faults[address] = described
            continue
        try:
            with connected_broker(address, settings) as send:
                return read(open_session(send, described))
        except StaleMetadataError as error:
            without_quorum.append(address)
            faults[address] = f"{error} (the broker at {address})"
        except FAILURES as error:
            errors[address] = error
    for address in without_quorum:
        try:
            with connected_broker(address, settings) as send:
                return read(open_session(send, faults[address]))
        except FAILURES as error:
            errors[address] = error
    faults |= {address: describe_error(error) for address, error in errors.items()}
    closed = [address for address, error in errors.items() if isinstance(error, REFUSED_LOGINS)]
    refusals = {address: refusal for address in closed if (refusal := refusal_at(address, settings)) is not None}
    listed = "\n  ".join(f"{address}: {fault}" for address, fault in (faults | refusals).items())
    subject = "no broker accepted the connection" if faults.keys() == refusals.keys() else "no broker answered"
    raise UnreadableError(
        f"{subject}:\n  {listed}\ncheck {option_name(BOOTSTRAP_SERVERS)}, {option_name(COMMAND_CONFIG)} and that "
        "brokers run"
    )


def describe_quorum_at(
    addresses: Sequence[str], settings: dict[str, str], errors: dict[str, Exception]
) -> Iterator[tuple[str, Described]]:
    """Yield addresses whose broker answers, and how it describes the quorum, in the order of `first_answers`.

    Raise UsageError if the cluster keeps its metadata in ZooKeeper.
    """

    def describe(address: str) -> Described | type[UsageError]:
        with connected_broker(address, settings) as send:
            try:
                return _describe_quorum(send)
            except UNSUPPORTED:
                return UsageError

    for address, described in first_answers(addresses, describe, CONNECT_SECONDS + QUORUM_SECONDS, errors):
        if isinstance(described, type):
            raise described(
                f"the broker at {address} does not describe a quorum, so its cluster keeps its metadata in ZooKeeper; "
                "give --zookeeper HOST:PORT[,...][/chroot]"
            )
        yield address, described


def open_session(send: TimedAsk, described: Described | None = None) -> BrokerSession:
    """Return a session on a connection to a broker, which is asked for the quorum if `described` is None."""
    described = _describe_quorum(send) if described is None else described
    if isinstance(described, Quorum):
        return BrokerSession(send=send, quorum=described, quorum_fault=None, has_controller=True)
    if isinstance(described, str):
        return BrokerSession(send=send, quorum=None, quorum_fault=described, has_controller=False)
    return BrokerSession(send=send, quorum=None, quorum_fault=refusal(described, "cluster"), has_controller=True)


def describe_quorum(session: BrokerSession) -> Quorum | None:
    """Describe the quorum again, None if it cannot be described."""
    if session.quorum is None:
        return None
    described = _describe_quorum(session.send)
    return described if isinstance(described, Quorum) else None


def _describe_quorum(send: TimedAsk) -> Described:
    negotiate(send, CONNECT_SECONDS)
    try:
        response = send(DescribeQuorumRequest(topics=[(METADATA_TOPIC, [(0,)])]), QUORUM_SECONDS)
    except UNSUPPORTED:
        raise
    except FAILURES as error:
        return f"it has no contact with the quorum's leader ({describe_error(error)})"
    if response.error_code in NOT_PERMITTED:
        return int(response.error_code)
    if response.error_code != NO_ERROR:
        return f"it has no contact with the quorum's leader ({for_code(response.error_code).__name__})"
    (partition,) = response.topics[0].partitions
    if partition.error_code in NOT_PERMITTED:
        return int(partition.error_code)
    if partition.error_code != NO_ERROR or partition.leader_id == NO_CONTROLLER:
        return f"the quorum has no leader ({for_code(partition.error_code).__name__})"
    states = {voter.replica_id: voter for voter in partition.current_voters}
    return Quorum(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=_known(partition.high_watermark),
        voters=[_voter(states[voter], states.get(partition.leader_id)) for voter in sorted(states)],
        # of the leader itself, this is its current time
        leader_time_ms=_known(getattr(states.get(partition.leader_id), "last_caught_up_timestamp", None)),
    )


def _voter(state: Any, leader: Any | None) -> Voter:  # noqa: ANN401 - kafka-python is untyped
    """Return a voter; its lag, in offsets and milliseconds, is computed as by kafka-metadata-quorum."""
    return Voter(
        voter_id=state.replica_id,
        log_end_offset=_known(state.log_end_offset),
        lag=_behind(state, leader, "log_end_offset"),
        lag_ms=_behind(state, leader, "last_caught_up_timestamp"),
    )


def _behind(state: Any, leader: Any | None, name: str) -> int | None:  # noqa: ANN401
    """Return how far a voter is behind the leader, None if unknown, as are times before version 1 (Kafka 3.3)."""
    value, last = (_known(getattr(row, name, None)) for row in (state, leader))
    return None if value is None or last is None else last - value


def _known(value: int | None) -> int | None:
    return None if value == UNKNOWN else value
