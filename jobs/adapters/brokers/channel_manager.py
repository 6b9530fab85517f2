"""A queue to each broker for a controller that stays: in order, one request in flight, none waiting for another broker.

Corresponds to `ControllerChannelManager` with its `RequestSendThread`, and to `ControllerBrokerRequestBatch`: what is
told while a broker is busy is put together, so that a later word about a partition takes the place of an earlier one,
and what was to be new or deleted stays so. A request is sent until it is answered, or until its broker is dropped; a
broker that has registered anew gets a queue of its own, as it knows nothing of what was told before.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Event, RLock, Thread
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.brokers.connection import ANSWER, DISCONNECTED, PAUSE, BrokerConnection
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests, Request, Row, TooLateError
from jobs.adapters.brokers.listeners import PLAIN, AuthenticationFailedError, Listener, UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponse
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice

_EVER: Final = float("inf")
"""A deadline for encoding: who stays has time."""

STARTING_BACKOFF_SECONDS: Final = 0.02
STARTING_SECONDS: Final = 30.0
"""How soon, and for how long, a broker is tried again to which no connection was made yet: it registers before it
listens, and answers clients from then on."""

AUTHORIZED: Final = 1.0
"""Seconds after which a broker that does not let us in is tried again: certificates and users change meanwhile."""

Heard = Callable[[BrokerResponse], None]
"""Takes an answer, in the thread of the broker that gave it."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What one broker is told at once; the messages may be shared with other brokers."""

    messages: EncodedRequests
    send_live_brokers: bool = False
    """Whether the brokers alive are news by themselves."""
    introduces: bool = False
    """Whether the broker starts: then all metadata comes first (`KafkaController.onBrokerStartup`)."""

    def requests(self, broker_id: int) -> list[Request]:
        """What the broker is sent, in order; brokers alive are in every UpdateMetadata, alone only where that is news.

        A broker that starts would else answer clients without topics until it has opened the logs of all replicas.
        """
        alive, *others = self.messages.requests(broker_id)
        metadata = [request for request in others if request.api == UPDATE_METADATA]
        if self.introduces and metadata:
            return [*metadata, *(request for request in others if request.api != UPDATE_METADATA)]
        return [alive, *others] if self.send_live_brokers or not others else others


@dataclass(slots=True)
class BrokerQueue:
    """What is still to be told to one broker under one registration, and the thread that does."""

    broker: Row
    client_id: str
    heard: Heard
    listener: Listener = PLAIN
    _waves: list[_Pending] = field(default_factory=list)
    _something: Condition = field(default_factory=Condition)
    _over: Event = field(default_factory=Event)
    _busy: bool = False
    _channel: BrokerConnection | None = None
    _was_connected: bool = False
    _since: float = field(default_factory=time.monotonic)
    is_ahead: bool = False
    """Whether only the thread for starting brokers knows the registration, and no cycle yet."""

    def start(self) -> None:
        Thread(target=self._run, daemon=True, name=f"tell-{self.broker['broker_id']}").start()

    def put(self, wave: _Pending) -> None:
        with self._something:
            self._waves.append(wave)
            self._something.notify()

    @property
    def is_idle(self) -> bool:
        """Whether everything was answered."""
        with self._something:
            return not self._waves and not self._busy

    def move(self, broker: Row) -> None:
        """Speak to a broker at other endpoints from now on; what was not answered is sent there again."""
        self.broker = broker
        if channel := self._channel:
            channel.abort()

    def stop(self) -> None:
        """Drop what is waiting, and wake the thread from whatever it waits for."""
        self._over.set()
        with self._something:
            self._waves.clear()
            self._something.notify()
        if channel := self._channel:
            channel.abort()

    def _run(self) -> None:
        while wave := self._next():
            with suppress(TooLateError):
                self._send(wave)
            with self._something:
                self._busy = False
        if self._channel is not None:
            self._channel.close()

    def _next(self) -> _Pending | None:
        with self._something:
            while not self._waves and not self._over.is_set():
                self._something.wait()
            if self._over.is_set():
                return None
            waves, self._waves = self._waves, []
            self._busy = True
        return waves[0] if len(waves) == 1 else _merge(waves, self.broker)

    def _send(self, wave: _Pending) -> None:
        for request in wave.requests(self.broker["broker_id"]):
            answer = self._until_answered(wave.messages, request)
            if answer is None:
                return
            self.heard(answer)

    def _until_answered(self, messages: EncodedRequests, request: Request) -> BrokerResponse | None:
        told = BrokerResponse(self.broker, messages.announcement.controller_epoch, request.api, request.notices, None)
        while not self._over.is_set():
            try:
                channel = self._connected()
                version = channel.version(request)
                channel.send(request.api, version, messages.body(request, version, self.broker), self._over, _soon())
                return replace(told, version=version, data=channel.answer(self._over, _soon()))
            except AuthenticationFailedError:
                self._lose()
                self._over.wait(AUTHORIZED)
            except UnreachableBrokerError:
                return told
            except DISCONNECTED:
                self._lose()
                self._over.wait(self._backoff)
        return None

    @property
    def _backoff(self) -> float:
        is_starting = not self._was_connected and time.monotonic() - self._since < STARTING_SECONDS
        return STARTING_BACKOFF_SECONDS if is_starting else PAUSE

    def _connected(self) -> BrokerConnection:
        if self._channel is not None and self._channel.broker["endpoints"] != self.broker["endpoints"]:
            self._lose()  # it was being made while the broker moved
        if self._channel is None:
            self._channel = BrokerConnection.to(self.broker, self.client_id, lambda: None, ANSWER, self.listener)
            self._was_connected = True
        return self._channel

    def _lose(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _soon() -> float:
    return time.monotonic() + ANSWER


def _merge(waves: Sequence[_Pending], broker: Row) -> _Pending:
    """Put together what waits for one broker, in the order in which it was queued."""
    newest = waves[-1].messages.announcement
    mine = (
        notice
        for wave in waves
        for request in wave.messages.requests(broker["broker_id"])
        for notice in request.notices
    )
    known = {row["broker_id"]: row for row in newest.brokers}
    brokers = [*{**known, broker["broker_id"]: broker}.values()]
    announcement = replace(newest, brokers=brokers, notices=[*merged(mine, broker["broker_id"])])
    alone, introduces = (any(getattr(wave, name) for wave in waves) for name in ("alone", "introduces"))
    return _Pending(EncodedRequests(announcement, _EVER), send_live_brokers=alone, introduces=introduces)


def merged(notices: Iterable[Notice], broker_id: int) -> Iterator[Notice]:
    """The latest word to one broker on each partition, by API; new and deleted replicas stay so.

    A replica that is told to follow or lead after it was told to stop is not stopped any more, and the other way round.
    """
    latest: dict[tuple[str, str, int], Notice] = {}
    for notice in notices:
        key = notice.api, notice.topic, notice.partition
        before = latest.pop(key, None)
        if before is not None:
            notice = with_values(  # noqa: PLW2901 - what came before leaves its mark on it
                notice,
                is_new=notice.is_new or before.is_new,
                delete_partition=notice.delete_partition or before.delete_partition,
            )
        opposite = {LEADER_AND_ISR: STOP_REPLICA, STOP_REPLICA: LEADER_AND_ISR}.get(notice.api)
        if opposite is not None:
            latest.pop((opposite, notice.topic, notice.partition), None)
        latest[key] = notice
    yield from (with_values(notice, brokers=(broker_id,)) for notice in latest.values())


@dataclass(slots=True)
class ChannelManager:
    """The queues of a controllership: one to each registration of a broker."""

    client_id: str
    heard: Heard
    listener: Listener = PLAIN
    _queues: dict[int, BrokerQueue] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def send(
        self, announcement: ControlBatch, alone: Iterable[int] = (), introduced: Collection[int] = frozenset()
    ) -> None:
        """Put into the queues what is due; `alone`: brokers to which the brokers alive are news by themselves.

        `introduced`: brokers that start, and get all metadata before anything else.
        """
        messages, newsworthy = EncodedRequests(announcement, _EVER), frozenset(alone)
        told = {broker for notice in announcement.notices for broker in notice.brokers}
        with self._lock:
            self.retain(announcement.brokers)
            for broker in sorted((told | newsworthy) & self._queues.keys() & announcement.live):
                wave = _Pending(messages, send_live_brokers=broker in newsworthy, introduces=broker in introduced)
                self._queues[broker].put(wave)

    def send_ahead(self, broker: Row, announcement: ControlBatch) -> None:
        """Send this to a broker that starts, and that no cycle knows yet; its queue is kept until one does."""
        broker_id, wave = broker["broker_id"], _Pending(EncodedRequests(announcement, _EVER), introduces=True)
        with self._lock:
            queue = self._queues.get(broker_id)
            if queue is not None and queue.broker["broker_epoch"] > broker["broker_epoch"]:
                return
            if queue is None or queue.broker["broker_epoch"] < broker["broker_epoch"]:
                if queue is not None:
                    queue.stop()
                self._queues[broker_id] = queue = BrokerQueue(broker, self.client_id, self.heard, self.listener)
                queue.is_ahead = True
                queue.start()
            queue.put(wave)

    def drop_ahead(self, broker_id: int) -> None:
        """Drop the queue of a broker that went before any cycle knew of it."""
        with self._lock:
            if broker_id in self._queues and self._queues[broker_id].is_ahead:
                self._queues.pop(broker_id).stop()

    def retain(self, brokers: Sequence[Row]) -> None:
        """Have a queue for each of these registrations, and drop the others with all that was waiting there.

        A registration may be written again, with other endpoints (`KafkaZkClient.updateBrokerInfo`).
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
                queue.move(rows[broker_id])
        for broker_id in rows.keys() - self._queues.keys():
            self._queues[broker_id] = queue = BrokerQueue(rows[broker_id], self.client_id, self.heard, self.listener)
            queue.start()

    @property
    def idle(self) -> list[int]:
        """Brokers that have answered everything."""
        with self._lock:
            return sorted(broker for broker, queue in self._queues.items() if queue.is_idle)

    @property
    def busy(self) -> list[int]:
        """Brokers that have not."""
        with self._lock:
            return sorted(self._queues.keys() - set(self.idle))

    def stop(self) -> None:
        """Drop everything."""
        with self._lock:
            for queue in self._queues.values():
                queue.is_ahead = False
            self.retain([])
