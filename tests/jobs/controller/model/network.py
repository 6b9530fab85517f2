"""Connects the controller's queues to the simulated brokers: the queues are real, without threads and sockets.

A `ModelQueue` is a `BrokerQueue` except for its thread and its connection, so that the real code merges what waits. The
brokers of a cluster get only the part of each batch that concerns their cluster; the rest would change nothing there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec.structs import replace as with_values

from jobs.adapters.brokers.channel_manager import BrokerQueue, QueuedBatch
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests, Request
from jobs.adapters.brokers.listeners import Listener
from jobs.adapters.brokers.responses import BrokerResponse
from schemas.notices import LEADER_AND_ISR, UPDATE_METADATA, Notice
from schemas.rows import Broker
from tests.jobs.controller.model.brokers import NONE, SimulatedBroker

MAX_BROKERS: Final = 10
"""Maximum number of brokers in a cluster: ids of cluster 7 are 70 to 79."""


def cluster_of_topic(topic: str) -> int:
    """Return the index of a topic's cluster.

    >>> cluster_of_topic("i00007.orders")
    7
    """
    return int(topic[1:6]) if topic[1:6].isdecimal() else -1


def cluster_of_broker(broker_id: int) -> int:
    return broker_id // MAX_BROKERS


@dataclass(frozen=True, slots=True)
class ModelResponse(BrokerResponse):
    """A response that need not be decoded."""

    top: int = NONE
    codes: tuple[int, ...] = ()

    @property
    def error(self) -> int:
        return self.top

    def errors(self) -> list[int]:
        return [self.top] if self.api == UPDATE_METADATA else [*self.codes]


class ModelQueue(BrokerQueue):
    """The queue of one registration; `step` does what its thread would do."""

    def __init__(self, broker: Broker, client_id: str, network: "Network") -> None:
        super().__init__(broker, client_id)
        self.network = network
        self.term = network.term

    def start(self) -> None:
        self.network.queues.append(self)

    def put(self, batch: QueuedBatch) -> None:
        self.network.on_put(self.broker.broker_id)
        own = self.network.restrict_to_cluster(batch.messages.batch, cluster_of_broker(self.broker.broker_id))
        if (own.batch.notices or batch.send_live_brokers) and self.network.accepts(self.broker.broker_id):
            self.network.deliveries += 1
            super().put(replace(batch, messages=own))

    def step(self) -> None:
        """Send what waits, and handle the responses."""
        while not self.is_idle:
            self._send(self._next())

    def _send_until_answered(self, batch: QueuedBatch, request: Request) -> BrokerResponse | None:
        broker = self.network.brokers[self.broker.broker_id]
        response = self.network.answer(self.broker, broker, batch.messages.batch, request)
        if request.api == UPDATE_METADATA and broker.process and response and response.error == NONE:
            broker.process.term = self.term
        return response


@dataclass
class Network:
    """All brokers, and the queues to them."""

    brokers: dict[int, SimulatedBroker]
    queues: list[ModelQueue] = field(default_factory=list)
    deliveries: int = 0
    on_put: Callable[[int], None] = lambda _: None
    accepts: Callable[[int], bool] = lambda _: True
    """Whether a broker's queue accepts what is put into it."""
    on_request: Callable[[SimulatedBroker, str, Notice], None] = lambda *_: None
    """Called with all notices that a broker receives."""
    term: Any = None
    """The term of the controller that sends requests."""
    _batch: ControlBatch | None = None
    _parts: dict[int, EncodedRequests] = field(default_factory=dict)
    _notices: dict[int, list[Notice]] = field(default_factory=dict)

    def queue(self, broker: Broker, client_id: str, _listener: Listener, _is_provisional: bool) -> ModelQueue:  # noqa: FBT001 - as BrokerQueue
        """Replaces the class of queues."""
        return ModelQueue(broker, client_id, self)

    def restrict_to_cluster(self, batch: ControlBatch, cluster: int) -> EncodedRequests:
        """Return the part of a batch that concerns a cluster."""
        if batch is not self._batch:
            self._batch, self._parts = batch, {}
            self._notices = _by_cluster(batch.notices)
        if cluster not in self._parts:
            rows = [row for row in batch.brokers if cluster_of_broker(row.broker_id) == cluster]
            brokers = {row.broker_id for row in rows}
            notices = [*_to_brokers(self._notices.get(cluster, []), brokers)]
            self._parts[cluster] = EncodedRequests(replace(batch, brokers=rows, notices=notices))
        return self._parts[cluster]

    def step(self, only: Callable[[SimulatedBroker], bool] = lambda _: True) -> None:
        """Let running brokers handle what waits for them."""
        self.queues = [queue for queue in self.queues if not queue.is_stopped]
        for queue in self.queues:
            broker = self.brokers[queue.broker.broker_id]
            hears = broker.process is not None and not (broker.stalled or broker.deaf)
            if hears and not queue.is_idle and only(broker):
                self.deliveries += 1
                queue.step()

    @property
    def waiting(self) -> bool:
        """Whether a running broker has requests waiting."""
        return any(not queue.is_idle for queue in self.queues if not queue.is_stopped)

    def answer(
        self, row: Broker, broker: SimulatedBroker, batch: ControlBatch, request: Request
    ) -> BrokerResponse | None:
        """Let a broker handle a request, partition by partition."""
        if broker.process is None:
            return None
        top = broker.check_epochs(row.zk_broker_epoch, batch.controller_epoch)
        codes = [top for _ in request.notices]
        if top == NONE:
            if request.api == UPDATE_METADATA:
                broker.process.alive = set(batch.live)
            codes = [self._heard(broker, request.api, notice) for notice in request.notices]
        of_partitions = tuple(codes) if top == NONE or request.api == LEADER_AND_ISR else (top,) * len(codes)
        return ModelResponse(
            row, batch.controller_epoch, request.api, request.notices, b"", 0, top=top, codes=of_partitions
        )

    def _heard(self, broker: SimulatedBroker, api: str, notice: Notice) -> int:
        self.on_request(broker, api, notice)
        return broker.apply(api, notice)


def _by_cluster(notices: Sequence[Notice]) -> dict[int, list[Notice]]:
    notices_by_cluster: dict[int, list[Notice]] = defaultdict(list)
    for notice in notices:
        notices_by_cluster[cluster_of_topic(notice.topic)].append(notice)
    return notices_by_cluster


def _to_brokers(notices: Sequence[Notice], brokers: set[int]) -> Iterator[Notice]:
    """Restrict the recipients of notices to these brokers."""
    restricted: dict[tuple[int, ...], tuple[int, ...]] = {}
    for notice in notices:
        if notice.brokers not in restricted:
            restricted[notice.brokers] = tuple(broker for broker in notice.brokers if broker in brokers)
        if restricted[notice.brokers]:
            yield with_values(notice, brokers=restricted[notice.brokers])
