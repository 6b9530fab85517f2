"""One channel per broker: a queue of batches, a connection, and a thread that sends one request at a time.

Corresponds to `ControllerChannelManager` with its `RequestSendThread`, and to `ControllerBrokerRequestBatch`. The
resident controller queues batches and never waits. A commit queues one batch and waits for responses (`delivery.py`).
Batches that are queued while a broker is busy are merged: a later notice about a partition replaces an earlier one, and
the flags `is_new` and `delete_partition` are kept. A request is repeated until it is answered, its deadline passes or
its broker is dropped. A broker that has registered again gets a new queue, as it has lost the state of earlier
requests.
"""

import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition, Event, RLock, Thread
from typing import Final, Self

from msgspec.structs import replace as with_values

from jobs.adapters.brokers.connection import DISCONNECTED, RETRY_BACKOFF_SECONDS, BrokerConnection
from jobs.adapters.brokers.control_encoding import ControlBatch, DeadlineExceededError, EncodedRequests, Request
from jobs.adapters.brokers.listeners import (
    PLAINTEXT_LISTENER,
    AuthenticationFailedError,
    Listener,
    UnreachableBrokerError,
)
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.core.logs import module_logger
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Broker
from schemas.text import partition_name

_LOG: Final = module_logger(__name__)
_MAX_EXAMPLES: Final = 3
"""Partitions that the log names of a request that cannot be sent."""

STARTING_BACKOFF_SECONDS: Final = 0.02
STARTING_SECONDS: Final = 30.0
"""Retry interval for a broker that was never connected, and how long it applies. A broker registers before it listens,
and serves clients once it listens."""

AUTHENTICATION_BACKOFF_SECONDS: Final = 1.0
"""Retry interval for a broker that refuses our authentication, as certificates and users may change."""

OnResponse = Callable[[BrokerResponse], None]
"""Called with each response, in the thread of its broker."""


@dataclass(frozen=True, slots=True)
class QueuedBatch:
    """A batch queued for one broker; the encoded messages may be shared with other brokers."""

    messages: EncodedRequests
    on_response: OnResponse
    send_live_brokers: bool = False
    """Whether to send the live brokers even without partitions."""
    is_starting: bool = False
    """Whether the broker is starting; all metadata is sent first then (`KafkaController.onBrokerStartup`)."""
    queued_at: float = field(default_factory=time.monotonic)

    def requests(self, broker_id: int) -> list[Request]:
        """Return the requests for the broker, in order.

        Every UpdateMetadata contains the live brokers; one without partitions is sent only if they changed. A starting
        broker gets all metadata first. Otherwise it would return no topics to clients until it has opened all logs.
        """
        live_brokers, *others = self.messages.requests(broker_id)
        metadata = [request for request in others if request.api == UPDATE_METADATA]
        if self.is_starting and metadata:
            return [*metadata, *(request for request in others if request.api != UPDATE_METADATA)]
        return [live_brokers, *others] if self.send_live_brokers or not others else others

    def unanswered(self, broker: Broker, request: Request) -> BrokerResponse:
        """Return the response without data of a broker that did not answer a request."""
        return BrokerResponse(broker, self.messages.batch.controller_epoch, request.api, request.notices, None)


@dataclass(slots=True)
class BrokerQueue:
    """Pending batches for one registration of a broker, and the thread that sends them."""

    broker: Broker
    client_id: str
    listener: Listener = PLAINTEXT_LISTENER
    is_provisional: bool = False
    """Whether only `BrokerStartup` knows this registration, and no cycle yet."""
    is_stopped: bool = False
    authentication_failed: bool = False
    """Whether the broker refused our authentication since the last batch was queued; it is tried again."""
    last_activity: float = float("-inf")
    """Time of time.monotonic of the broker's last sign of life, or of the last encoding of a request."""
    _batches: list[QueuedBatch] = field(default_factory=list)
    _changed: Condition = field(default_factory=Condition)
    _is_busy: bool = False
    _sent_at: float = 0.0
    """When the oldest batch that is being sent was queued."""
    _cancelled: Event = field(default_factory=Event)
    """Set to cancel the batch that is being sent; each batch gets a new one."""
    _connection: BrokerConnection | None = None
    _was_connected: bool = False
    _started_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        Thread(target=self._run, daemon=True, name=f"send-{self.broker.broker_id}").start()

    def put(self, batch: QueuedBatch) -> None:
        with self._changed:
            self.authentication_failed = False
            self._batches.append(batch)
            self._changed.notify()

    @property
    def is_idle(self) -> bool:
        """Whether all requests are answered, cancelled or too late, and the responses were handed over."""
        with self._changed:
            return not self._batches and not self._is_busy

    @property
    def backlog(self) -> tuple[int, float]:
        """The number of batches that wait, and the age in seconds of the oldest, or of the one that is being sent."""
        with self._changed:
            times = [*([self._sent_at] if self._is_busy else []), *(batch.queued_at for batch in self._batches)]
            return len(self._batches), max(0.0, time.monotonic() - min(times)) if times else 0.0

    def update_endpoints(self, broker: Broker) -> None:
        """Connect to other endpoints from now on; unanswered requests are sent again there."""
        self.broker = broker
        if connection := self._connection:
            connection.abort()

    def cancel(self) -> None:
        """Drop all batches; a connection on which no response is pending stays open.

        No response is handed over after this returns.
        """
        with self._changed:
            self._batches.clear()
            if self._is_busy:
                self._cancelled.set()
                if connection := self._connection:
                    connection.abort()

    def stop(self) -> None:
        """Drop all batches and end the thread, which closes the connection."""
        with self._changed:
            self.is_stopped = True
            self.cancel()
            self._changed.notify()

    def _run(self) -> None:
        while batches := self._next():
            try:
                self._send(batches)
            except Exception as error:  # noqa: BLE001 - the next batch must not wait for a bad one
                broker, kind = self.broker.broker_id, type(error).__name__
                _LOG.exception("surveyor: cannot prepare requests to broker %s: %s: %s", broker, kind, error)
            del batches  # or the requests of a full state stay in memory until the next batch
        self._disconnect()

    def _next(self) -> list[QueuedBatch]:
        with self._changed:
            while not self._batches and not self.is_stopped:
                self._changed.wait()
            if self.is_stopped:
                return []
            batches, self._batches = self._batches, []
            self._is_busy, self._cancelled, self._sent_at = True, Event(), batches[0].queued_at
        return batches

    def _send(self, batches: Sequence[QueuedBatch]) -> None:
        try:
            batch = batches[0] if len(batches) == 1 else _merge(batches, self.broker)
            requests = batch.requests(self.broker.broker_id)
            for number, request in enumerate(requests, start=1):
                response = self._send_until_answered(batch, request)
                with self._changed:
                    if response is None or self._cancelled.is_set():
                        break
                    # idle together with the last response: a cancellation in between would abort the connection
                    self._is_busy = number < len(requests)
                    batch.on_response(response)
        finally:
            with self._changed:
                self._is_busy = False

    def _send_until_answered(self, batch: QueuedBatch, request: Request) -> BrokerResponse | None:
        """Return the response; None if the batch was cancelled or its deadline has passed.

        A request that cannot be sent gets a response without data.
        """
        messages, unanswered = batch.messages, batch.unanswered(self.broker, request)
        while not self._cancelled.is_set() and time.monotonic() < messages.deadline:
            try:
                connection = self._connected(messages.deadline)
                version = connection.version(request)
                body = self._encode(messages, request, version)
                connection.send(request.api, version, body, self._cancelled, messages.deadline)
                data = connection.receive_response(self._cancelled, messages.deadline)
                return replace(unanswered, version=version, data=data)
            except AuthenticationFailedError:
                self.authentication_failed = True
                self._disconnect()
                self._cancelled.wait(AUTHENTICATION_BACKOFF_SECONDS)
            except UnreachableBrokerError:
                return unanswered
            except DeadlineExceededError:
                return None
            except DISCONNECTED:
                self._disconnect()
                self._cancelled.wait(self._backoff)
            except Exception as error:  # noqa: BLE001 - whether brokers got this request is unknown; the next one is sent
                names = [partition_name(notice.topic, notice.partition) for notice in request.notices[:_MAX_EXAMPLES]]
                about = f"{request.api} ({', '.join(names) or 'live brokers'}) to broker {self.broker.broker_id}"
                kind = type(error).__name__
                _LOG.exception("surveyor: cannot send %s; it counts as not answered: %s: %s", about, kind, error)
                self._disconnect()
                return unanswered
        return None

    def _encode(self, messages: EncodedRequests, request: Request, version: int) -> list[bytes]:
        """Encode a request; the broker counts as active while it has nothing to answer."""
        self.last_activity = float("inf")
        try:
            return messages.body(request, version, self.broker.zk_broker_epoch)
        except struct.error as error:  # otherwise it counts as invalid data of the broker, and is repeated for ever
            raise ValueError(str(error)) from error
        finally:
            self._on_activity()

    def _on_activity(self) -> None:
        self.last_activity = time.monotonic()

    @property
    def _backoff(self) -> float:
        is_starting = not self._was_connected and time.monotonic() - self._started_at < STARTING_SECONDS
        return STARTING_BACKOFF_SECONDS if is_starting else RETRY_BACKOFF_SECONDS

    def _connected(self, deadline: float) -> BrokerConnection:
        former = self._connection
        if former is not None and (former.aborted or former.broker.endpoints != self.broker.endpoints):
            self._disconnect()  # aborted while idle, or the endpoints changed during the connect
        if self._connection is None:
            self._connection = BrokerConnection.to(
                self.broker, self.client_id, self._on_activity, deadline - time.monotonic(), self.listener
            )
            self._was_connected = True
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _merge(batches: Sequence[QueuedBatch], broker: Broker) -> QueuedBatch:
    """Merge the pending batches of one broker, in the order in which they were queued."""
    newest, broker_id = batches[-1], broker.broker_id
    notices = (
        notice for batch in batches for request in batch.messages.requests(broker_id) for notice in request.notices
    )
    brokers = {row.broker_id: row for row in newest.messages.batch.brokers} | {broker_id: broker}
    merged_batch = replace(newest.messages.batch, brokers=[*brokers.values()], notices=[*merged(notices, broker_id)])
    return QueuedBatch(
        EncodedRequests(merged_batch, newest.messages.deadline),
        newest.on_response,
        send_live_brokers=any(batch.send_live_brokers for batch in batches),
        is_starting=any(batch.is_starting for batch in batches),
        queued_at=batches[0].queued_at,
    )


def merged(notices: Iterable[Notice], broker_id: int) -> Iterator[Notice]:
    """Yield the latest notice to one broker for each API and partition, keeping `is_new` and `delete_partition`.

    A later LeaderAndIsr for a replica drops an earlier StopReplica, and the other way round.
    """
    latest: dict[tuple[str, str, int], Notice] = {}
    for notice in notices:
        key = notice.api, notice.topic, notice.partition
        previous = latest.pop(key, None)
        if previous is not None:
            notice = with_values(  # noqa: PLW2901 - flags of the replaced notice are kept
                notice,
                is_new=notice.is_new or previous.is_new,
                delete_partition=notice.delete_partition or previous.delete_partition,
            )
        opposite = {LEADER_AND_ISR: STOP_REPLICA, STOP_REPLICA: LEADER_AND_ISR}.get(notice.api)
        if opposite is not None:
            latest.pop((opposite, notice.topic, notice.partition), None)
        latest[key] = notice
    yield from (with_values(notice, brokers=(broker_id,)) for notice in latest.values())


@dataclass(slots=True)
class ChannelManager:
    """The queues of a controllership: one for each registration of a broker."""

    client_id: str
    on_response: OnResponse = lambda _: None
    """Called with the responses to what `send` and `send_to_starting` queue."""
    listener: Listener = PLAINTEXT_LISTENER
    _queues: dict[int, BrokerQueue] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send(
        self,
        batch: ControlBatch,
        live_brokers_to: Collection[int] = frozenset(),
        starting: Collection[int] = frozenset(),
    ) -> None:
        """Queue a batch for its recipients.

        `live_brokers_to` are brokers that get the live brokers even without partitions. `starting` are starting
        brokers, which get all metadata before anything else.
        """
        messages = EncodedRequests(batch)
        recipients = {*live_brokers_to}.union(*{notice.brokers for notice in batch.notices})
        with self._lock:
            self.retain(batch.brokers)
            for broker in sorted(recipients & self._queues.keys() & batch.live):
                self._queues[broker].put(
                    QueuedBatch(messages, self.on_response, broker in live_brokers_to, broker in starting)
                )

    def send_to_starting(self, broker: Broker, batch: ControlBatch) -> None:
        """Send a batch to a starting broker that no cycle knows yet; its queue is kept until a cycle knows it."""
        broker_id = broker.broker_id
        with self._lock:
            queue = self._queues.get(broker_id)
            if queue is not None and queue.broker.zk_broker_epoch > broker.zk_broker_epoch:
                return
            if queue is None or queue.broker.zk_broker_epoch < broker.zk_broker_epoch:
                if queue is not None:
                    queue.stop()
                queue = self._open(broker, is_provisional=True)
            queue.put(QueuedBatch(EncodedRequests(batch), self.on_response, is_starting=True))

    def drop_provisional(self, broker_id: int) -> None:
        """Drop the queue of a broker that deregistered before any cycle knew it."""
        with self._lock:
            if broker_id in self._queues and self._queues[broker_id].is_provisional:
                self._queues.pop(broker_id).stop()

    def backlog(self) -> tuple[dict[int, int], dict[int, float]]:
        """Return by broker the batches that wait, and the age in seconds of the oldest or of the one being sent."""
        with self._lock:
            backlogs = {broker: queue.backlog for broker, queue in self._queues.items()}
        return {broker: depth for broker, (depth, _) in backlogs.items()}, {
            broker: age for broker, (_, age) in backlogs.items()
        }

    def retain(self, brokers: Sequence[Broker]) -> None:
        """Keep a queue for each of these registrations; drop all others with their pending batches.

        A registration may be rewritten with other endpoints (`KafkaZkClient.updateBrokerInfo`).
        """
        with self._lock:
            self._retain({row.broker_id: row for row in brokers})

    def _retain(self, rows: Mapping[int, Broker]) -> None:
        for broker_id, queue in list(self._queues.items()):
            row = rows.get(broker_id)
            if queue.is_provisional and (row is None or row.zk_broker_epoch < queue.broker.zk_broker_epoch):
                continue
            queue.is_provisional = False
            if row is None or row.broker_epoch != queue.broker.broker_epoch:
                queue.stop()
                del self._queues[broker_id]
            elif row.endpoints != queue.broker.endpoints:
                queue.update_endpoints(row)
        for broker_id in rows.keys() - self._queues.keys():
            self._open(rows[broker_id])

    def _open(self, broker: Broker, *, is_provisional: bool = False) -> BrokerQueue:
        self._queues[broker.broker_id] = queue = BrokerQueue(broker, self.client_id, self.listener, is_provisional)
        queue.start()
        return queue

    def queue_of(self, broker_id: int) -> BrokerQueue:
        """Return the queue of a broker that is kept."""
        with self._lock:
            return self._queues[broker_id]

    @property
    def idle(self) -> list[int]:
        """Brokers that have answered all requests."""
        with self._lock:
            return sorted(broker for broker, queue in self._queues.items() if queue.is_idle)

    @property
    def busy(self) -> list[int]:
        """Brokers with unanswered requests."""
        with self._lock:
            return sorted(self._queues.keys() - set(self.idle))

    def cancel(self) -> None:
        """Discard all queued batches, and keep the connections that can be reused."""
        with self._lock:
            for queue in self._queues.values():
                queue.cancel()

    def stop(self) -> None:
        """Drop all queues."""
        with self._lock:
            for queue in self._queues.values():
                queue.is_provisional = False
            self.retain([])
