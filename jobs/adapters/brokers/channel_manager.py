"""Request queues of the resident controller: one per broker, in order, with one request in flight.

Corresponds to `ControllerChannelManager` with its `RequestSendThread`, and to `ControllerBrokerRequestBatch`. Batches
that are queued while a broker is busy are merged: a later notice about a partition replaces an earlier one, and the
flags `is_new` and `delete_partition` are kept. A request is repeated until it is answered or its broker is dropped.
A broker that has registered again gets a new queue, as it has lost the state of earlier requests.
"""

import logging
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition, Event, RLock, Thread
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.brokers.connection import (
    DISCONNECTED,
    RESPONSE_TIMEOUT_SECONDS,
    RETRY_BACKOFF_SECONDS,
    BrokerConnection,
)
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests, Request, Row
from jobs.adapters.brokers.listeners import PLAIN, AuthenticationFailedError, Listener, UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponse
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice

_LOG: Final = logging.getLogger(__name__)
_EXAMPLES: Final = 3
"""Partitions that the log names of a request that cannot be sent."""

_NO_DEADLINE: Final = float("inf")
"""Deadline for encoding: the resident controller has no time limit."""

STARTING_BACKOFF_SECONDS: Final = 0.02
STARTING_SECONDS: Final = 30.0
"""Retry interval for a broker that was never connected, and how long it applies. A broker registers before it listens,
and serves clients once it listens."""

AUTHENTICATION_BACKOFF_SECONDS: Final = 1.0
"""Retry interval for a broker that refuses our authentication, as certificates and users may change."""

OnResponse = Callable[[BrokerResponse], None]
"""Called with each response, in the thread of its broker."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch queued for one broker; the encoded messages may be shared with other brokers."""

    messages: EncodedRequests
    send_live_brokers: bool = False
    """Whether to send the live brokers even without partitions."""
    introduces: bool = False
    """Whether the broker is starting; all metadata is sent first then (`KafkaController.onBrokerStartup`)."""

    def requests(self, broker_id: int) -> list[Request]:
        """Return the requests for the broker, in order.

        Every UpdateMetadata contains the live brokers; one without partitions is sent only if they changed. A starting
        broker gets all metadata first. Otherwise it would return no topics to clients until it has opened all logs.
        """
        alive, *others = self.messages.requests(broker_id)
        metadata = [request for request in others if request.api == UPDATE_METADATA]
        if self.introduces and metadata:
            return [*metadata, *(request for request in others if request.api != UPDATE_METADATA)]
        return [alive, *others] if self.send_live_brokers or not others else others


@dataclass(slots=True)
class BrokerQueue:
    """Pending batches for one registration of a broker, and the thread that sends them."""

    broker: Row
    client_id: str
    on_response: OnResponse
    listener: Listener = PLAIN
    _batches: list[_Pending] = field(default_factory=list)
    _not_empty: Condition = field(default_factory=Condition)
    _stopped: Event = field(default_factory=Event)
    _busy: bool = False
    _channel: BrokerConnection | None = None
    _was_connected: bool = False
    _started_at: float = field(default_factory=time.monotonic)
    is_ahead: bool = False
    """Whether only the thread for starting brokers knows this registration, and no cycle yet."""

    def start(self) -> None:
        Thread(target=self._run, daemon=True, name=f"send-{self.broker['broker_id']}").start()

    def put(self, batch: _Pending) -> None:
        with self._not_empty:
            self._batches.append(batch)
            self._not_empty.notify()

    @property
    def is_idle(self) -> bool:
        """Whether all requests are answered."""
        with self._not_empty:
            return not self._batches and not self._busy

    def update_endpoints(self, broker: Row) -> None:
        """Connect to other endpoints from now on; unanswered requests are sent again there."""
        self.broker = broker
        if channel := self._channel:
            channel.abort()

    def stop(self) -> None:
        """Drop pending batches and wake the thread, which then ends."""
        self._stopped.set()
        with self._not_empty:
            self._batches.clear()
            self._not_empty.notify()
        if channel := self._channel:
            channel.abort()

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._send(batch)
            except Exception:  # noqa: BLE001 - the next batch must not wait for a bad one
                _LOG.exception("surveyor: cannot prepare requests to broker %s", self.broker["broker_id"])
            with self._not_empty:
                self._busy = False
        if self._channel is not None:
            self._channel.close()

    def _next(self) -> _Pending | None:
        with self._not_empty:
            while not self._batches and not self._stopped.is_set():
                self._not_empty.wait()
            if self._stopped.is_set():
                return None
            batches, self._batches = self._batches, []
            self._busy = True
        return batches[0] if len(batches) == 1 else _merge(batches, self.broker)

    def _send(self, batch: _Pending) -> None:
        for request in batch.requests(self.broker["broker_id"]):
            answer = self._send_until_answered(batch.messages, request)
            if answer is None:
                return
            self.on_response(answer)

    def _send_until_answered(self, messages: EncodedRequests, request: Request) -> BrokerResponse | None:
        unanswered = BrokerResponse(self.broker, messages.batch.controller_epoch, request.api, request.notices, None)
        while not self._stopped.is_set():
            try:
                channel = self._connected()
                version = channel.version(request)
                body = self._encoded(messages, request, version)
                channel.send(request.api, version, body, self._stopped, _response_deadline())
                return replace(
                    unanswered, version=version, data=channel.receive_response(self._stopped, _response_deadline())
                )
            except AuthenticationFailedError:
                self._disconnect()
                self._stopped.wait(AUTHENTICATION_BACKOFF_SECONDS)
            except UnreachableBrokerError:
                return unanswered
            except DISCONNECTED:
                self._disconnect()
                self._stopped.wait(self._backoff)
            except Exception:  # noqa: BLE001 - what it contains is not known to be sent; the next request may be
                names = [f"{notice.topic}-{notice.partition}" for notice in request.notices[:_EXAMPLES]]
                about = f"{request.api} ({', '.join(names) or 'live brokers'}) to broker {self.broker['broker_id']}"
                _LOG.exception("surveyor: cannot send %s; it counts as not answered", about)
                self._disconnect()
                return unanswered
        return None

    def _encoded(self, messages: EncodedRequests, request: Request, version: int) -> Sequence[bytes]:
        try:
            return messages.body(request, version, self.broker)
        except struct.error as error:  # otherwise it counts as invalid data of the broker, and is repeated for ever
            raise ValueError(str(error)) from error

    @property
    def _backoff(self) -> float:
        is_starting = not self._was_connected and time.monotonic() - self._started_at < STARTING_SECONDS
        return STARTING_BACKOFF_SECONDS if is_starting else RETRY_BACKOFF_SECONDS

    def _connected(self) -> BrokerConnection:
        if self._channel is not None and self._channel.broker["endpoints"] != self.broker["endpoints"]:
            self._disconnect()  # the endpoints changed during the connect
        if self._channel is None:
            self._channel = BrokerConnection.to(
                self.broker, self.client_id, lambda: None, RESPONSE_TIMEOUT_SECONDS, self.listener
            )
            self._was_connected = True
        return self._channel

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _response_deadline() -> float:
    return time.monotonic() + RESPONSE_TIMEOUT_SECONDS


def _merge(batches: Sequence[_Pending], broker: Row) -> _Pending:
    """Merge the pending batches of one broker, in the order in which they were queued."""
    newest = batches[-1].messages.batch
    own_notices = (
        notice
        for wave in batches
        for request in wave.messages.requests(broker["broker_id"])
        for notice in request.notices
    )
    known = {row["broker_id"]: row for row in newest.brokers}
    brokers = [*{**known, broker["broker_id"]: broker}.values()]
    announcement = replace(newest, brokers=brokers, notices=[*merged(own_notices, broker["broker_id"])])
    alone, introduces = (any(getattr(wave, name) for wave in batches) for name in ("send_live_brokers", "introduces"))
    return _Pending(EncodedRequests(announcement, _NO_DEADLINE), send_live_brokers=alone, introduces=introduces)


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
    on_response: OnResponse
    listener: Listener = PLAIN
    _queues: dict[int, BrokerQueue] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def send(self, batch: ControlBatch, alone: Iterable[int] = (), introduced: Collection[int] = frozenset()) -> None:
        """Queue a batch for its recipients.

        `alone` are brokers that get the live brokers even without partitions. `introduced` are starting brokers, which
        get all metadata before anything else.
        """
        messages, newsworthy = EncodedRequests(batch, _NO_DEADLINE), frozenset(alone)
        recipients = {broker for notice in batch.notices for broker in notice.brokers}
        with self._lock:
            self.retain(batch.brokers)
            for broker in sorted((recipients | newsworthy) & self._queues.keys() & batch.live):
                wave = _Pending(messages, send_live_brokers=broker in newsworthy, introduces=broker in introduced)
                self._queues[broker].put(wave)

    def send_ahead(self, broker: Row, announcement: ControlBatch) -> None:
        """Send a batch to a starting broker that no cycle knows yet; its queue is kept until a cycle knows it."""
        broker_id, wave = broker["broker_id"], _Pending(EncodedRequests(announcement, _NO_DEADLINE), introduces=True)
        with self._lock:
            queue = self._queues.get(broker_id)
            if queue is not None and queue.broker["broker_epoch"] > broker["broker_epoch"]:
                return
            if queue is None or queue.broker["broker_epoch"] < broker["broker_epoch"]:
                if queue is not None:
                    queue.stop()
                self._queues[broker_id] = queue = BrokerQueue(broker, self.client_id, self.on_response, self.listener)
                queue.is_ahead = True
                queue.start()
            queue.put(wave)

    def drop_ahead(self, broker_id: int) -> None:
        """Drop the queue of a broker that deregistered before any cycle knew it."""
        with self._lock:
            if broker_id in self._queues and self._queues[broker_id].is_ahead:
                self._queues.pop(broker_id).stop()

    def retain(self, brokers: Sequence[Row]) -> None:
        """Keep a queue for each of these registrations; drop all others with their pending batches.

        A registration may be rewritten with other endpoints (`KafkaZkClient.updateBrokerInfo`).
        """
        with self._lock:
            self._retain({row["broker_id"]: row for row in brokers})

    def _retain(self, rows: Mapping[int, Row]) -> None:
        for broker_id, queue in list(self._queues.items()):
            if queue.is_ahead and rows.get(broker_id, {}).get("broker_epoch", 0) < queue.broker["broker_epoch"]:
                continue
            queue.is_ahead = False
            if rows.get(broker_id, {}).get("broker_epoch") != queue.broker["broker_epoch"]:
                queue.stop()
                del self._queues[broker_id]
            elif rows[broker_id]["endpoints"] != queue.broker["endpoints"]:
                queue.update_endpoints(rows[broker_id])
        for broker_id in rows.keys() - self._queues.keys():
            self._queues[broker_id] = queue = BrokerQueue(
                rows[broker_id], self.client_id, self.on_response, self.listener
            )
            queue.start()

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

    def stop(self) -> None:
        """Drop all queues."""
        with self._lock:
            for queue in self._queues.values():
                queue.is_ahead = False
            self.retain([])
