"""What leaders ask of the controller, as Kafka 2.7 to 3.9 with ZooKeeper: AlterPartition and ControlledShutdown.

Corresponds to `DefaultAlterPartitionManager` and `NodeToControllerRequestThread`: a broker has one AlterPartition
request in flight, with all pending proposals of its partitions. If the answer is lost, or the controller is another
one, the whole request is sent again. Errors are handled as in `Partition.submitAlterPartition`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas.rows import Key
from tests.jobs.controller.broker_apis.asking import Proposed, alter_partition_request

if TYPE_CHECKING:
    from concurrent.futures import Future

NONE, UNKNOWN_PARTITION, NOT_CONTROLLER, INVALID_REQUEST, NOT_ATTEMPTED = 0, 3, 41, 42, 55
FENCED_LEADER, STALE_BROKER, INVALID_VERSION, UNKNOWN_TOPIC_ID, INELIGIBLE = 74, 77, 95, 100, 107

IDS_SINCE: Final = 2
"""First version of AlterPartition with topic ids instead of names."""

GIVES_UP: Final = frozenset({NOT_ATTEMPTED, INELIGIBLE})
"""The leader goes back to its last committed ISR."""

STAYS_PENDING: Final = frozenset({UNKNOWN_PARTITION, INVALID_REQUEST, FENCED_LEADER, INVALID_VERSION, UNKNOWN_TOPIC_ID})
"""The leader waits for a LeaderAndIsr with a later leader epoch."""

NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAdw"
"""The id of no topic."""


@dataclass(eq=False, slots=True)
class Proposal:
    """An ISR that a leader proposes; each proposal is a thing of its own, whatever its values."""

    key: Key
    topic_id: str | None
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    recovery: int = 0
    may_change: bool = True
    """Whether it may be accepted; a forged one may not."""
    changes: int = 0
    """The number of states that were written for it."""
    stopping: dict[int, frozenset[int]] = field(default_factory=dict)
    """By controller epoch, the brokers whose controlled shutdown was granted when it was sent for the first time."""


class PartitionResponse(NamedTuple):
    """The answer for a partition: the error code, and the state if there is none."""

    code: int
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(eq=False, slots=True)
class IsrRequest:
    """An AlterPartition request that a broker sends; it may be sent several times."""

    broker: int
    broker_epoch: int
    version: int
    proposals: tuple[Proposal, ...]
    future: "Future[Any] | None" = None
    """None while it is not sent, because the broker knows no controller or cannot connect to it; it has an exception
    once the connection is lost.
    """

    is_final: bool = False
    """Whether all of it was answered with errors that cannot become a success, or with success."""

    def entity(self) -> Any:  # noqa: ANN401 - of kio
        topics: dict[str, list[Proposed]] = defaultdict(list)
        for proposal in self.proposals:
            name = proposal.key[0] if self.version < IDS_SINCE else proposal.topic_id or NO_ID
            topics[name].append(
                Proposed(
                    proposal.isr, proposal.leader_epoch, proposal.partition_epoch, proposal.recovery, proposal.key[1]
                )
            )
        return alter_partition_request(self.version, self.broker, self.broker_epoch, topics)

    def answers(self, response: Any) -> Iterator[tuple[Proposal, PartitionResponse]]:  # noqa: ANN401 - of kio
        """Yield the answer to each proposal, which are in the order of the request."""
        of_topics: dict[Any, dict[int, Any]] = {}
        for data in response.topics:
            name = data.topic_name if self.version < IDS_SINCE else data.topic_id
            of_topics[name] = {partition.partition_index: partition for partition in data.partitions}
        names = list(dict.fromkeys(self._names()))
        by_name = dict(zip(names, of_topics.values(), strict=True))
        for proposal, name in zip(self.proposals, self._names(), strict=True):
            data = by_name[name][proposal.key[1]]
            yield (
                proposal,
                PartitionResponse(
                    int(data.error_code), data.leader_id, data.leader_epoch, (*data.isr,), data.partition_epoch
                ),
            )

    def _names(self) -> list[str]:
        return [
            proposal.key[0] if self.version < IDS_SINCE else proposal.topic_id or NO_ID for proposal in self.proposals
        ]


@dataclass(slots=True)
class AlterPartitionManager:
    """The proposals of one broker process."""

    broker: int
    broker_epoch: int
    version: int
    """The latest version that the broker knows; requests that need ids of topics without one have an earlier version.
    """
    send: Callable[[IsrRequest], None]
    unsent: dict[Key, Proposal] = field(default_factory=dict)
    in_flight: IsrRequest | None = None
    finished: IsrRequest | None = None
    """The last request that was answered for good."""
    lost_answers: int = 0
    """How many answers are lost from now on."""

    def submit(self, proposal: Proposal) -> bool:
        """Queue a proposal; return whether it was queued, which it is not while another one of the partition is."""
        return self.unsent.setdefault(proposal.key, proposal) is proposal

    def receive(self) -> list[tuple[Proposal, PartitionResponse]]:
        """Return the answers that have arrived; without a connection or a controller, send the request again."""
        isr_request = self.in_flight
        if isr_request is None:
            return []
        if isr_request.future is not None and not isr_request.future.done():
            return []
        is_lost = self.lost_answers > 0 and isr_request.future is not None
        self.lost_answers -= is_lost
        if isr_request.future is None or isr_request.future.exception() or is_lost:
            self.send(isr_request)
            return []
        response = isr_request.future.result()
        if response.error_code not in {NONE, NOT_CONTROLLER}:
            self.in_flight = None
            return []
        answers = [] if response.error_code else [*isr_request.answers(response)]
        if response.error_code or any(answer.code == NOT_CONTROLLER for _, answer in answers):
            self.send(isr_request)
            return []
        self.in_flight, self.finished = None, isr_request
        isr_request.is_final = all(answer.code in {NONE, FENCED_LEADER, INVALID_VERSION} for _, answer in answers)
        for proposal, _ in answers:
            self.unsent.pop(proposal.key, None)
        return answers

    def propose(self) -> None:
        """Send all proposals in one request, unless a request is in flight."""
        if self.in_flight is None and self.unsent:
            self.in_flight = self.isr_request((*self.unsent.values(),))
            self.send(self.in_flight)

    def isr_request(self, proposals: tuple[Proposal, ...]) -> IsrRequest:
        has_ids = all(proposal.topic_id is not None for proposal in proposals)
        version = self.version if has_ids else min(self.version, IDS_SINCE - 1)
        return IsrRequest(self.broker, self.broker_epoch, version, proposals)
