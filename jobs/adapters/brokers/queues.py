"""A queue to each broker for a controller that stays: in order, one request in flight, none waiting for another broker.

Corresponds to `ControllerChannelManager` with its `RequestSendThread`, and to `ControllerBrokerRequestBatch`: what is
told while a broker is busy is put together, so that a later word about a partition takes the place of an earlier one,
and what was to be new or deleted stays so. A request is sent until it is answered, or until its broker is dropped; a
broker that has registered anew gets a queue of its own, as it knows nothing of what was told before.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Event, Thread
from typing import Final

from msgspec.structs import replace as with_values

from jobs.adapters.brokers.answers import Answer
from jobs.adapters.brokers.channel import ANSWER, DISCONNECTED, PAUSE, Channel
from jobs.adapters.brokers.control_messages import Announcement, Messages, Request, Row, TooLateError
from jobs.adapters.brokers.listeners import PLAIN, CannotTellError, Listener, NotLetInError
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, Notice

_EVER: Final = float("inf")
"""A deadline for encoding: who stays has time."""

LET_IN: Final = 1.0
"""Seconds after which a broker that does not let us in is tried again: certificates and users change meanwhile."""

Heard = Callable[[Answer], None]
"""Takes an answer, in the thread of the broker that gave it."""


@dataclass(frozen=True, slots=True)
class _Wave:
    """What one broker is told at once; the messages may be shared with other brokers."""

    messages: Messages
    alone: bool = False
    """Whether the brokers alive are news by themselves."""


@dataclass(slots=True)
class Queue:
    """What is still to be told to one broker under one registration, and the thread that does."""

    broker: Row
    client_id: str
    heard: Heard
    listener: Listener = PLAIN
    _waves: list[_Wave] = field(default_factory=list)
    _something: Condition = field(default_factory=Condition)
    _over: Event = field(default_factory=Event)
    _busy: bool = False
    _channel: Channel | None = None

    def start(self) -> None:
        Thread(target=self._run, daemon=True, name=f"tell-{self.broker['broker_id']}").start()

    def put(self, wave: _Wave) -> None:
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
                self._tell(wave)
            with self._something:
                self._busy = False
        if self._channel is not None:
            self._channel.close()

    def _next(self) -> _Wave | None:
        with self._something:
            while not self._waves and not self._over.is_set():
                self._something.wait()
            if self._over.is_set():
                return None
            waves, self._waves = self._waves, []
            self._busy = True
        return waves[0] if len(waves) == 1 else _together(waves, self.broker)

    def _tell(self, wave: _Wave) -> None:
        requests = wave.messages.requests(self.broker["broker_id"])
        # who is alive is said in every UpdateMetadata: alone only where that is news
        for request in requests if wave.alone or len(requests) == 1 else requests[1:]:
            answer = self._until_answered(wave.messages, request)
            if answer is None:
                return
            self.heard(answer)

    def _until_answered(self, messages: Messages, request: Request) -> Answer | None:
        told = Answer(self.broker, messages.announcement.controller_epoch, request.api, request.notices, None)
        while not self._over.is_set():
            try:
                channel = self._connected()
                version = channel.version(request)
                channel.send(request.api, version, messages.body(request, version, self.broker), self._over, _soon())
                return replace(told, version=version, data=channel.answer(self._over, _soon()))
            except NotLetInError:
                self._lose()
                self._over.wait(LET_IN)
            except CannotTellError:
                return told
            except DISCONNECTED:
                self._lose()
                self._over.wait(PAUSE)
        return None

    def _connected(self) -> Channel:
        if self._channel is not None and self._channel.broker["endpoints"] != self.broker["endpoints"]:
            self._lose()  # it was being made while the broker moved
        if self._channel is None:
            self._channel = Channel.to(self.broker, self.client_id, lambda: None, ANSWER, self.listener)
        return self._channel

    def _lose(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _soon() -> float:
    return time.monotonic() + ANSWER


def _together(waves: Sequence[_Wave], broker: Row) -> _Wave:
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
    return _Wave(Messages(announcement, _EVER), alone=any(wave.alone for wave in waves))


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
class Queues:
    """The queues of a controllership: one to each registration of a broker."""

    client_id: str
    heard: Heard
    listener: Listener = PLAIN
    _queues: dict[int, Queue] = field(default_factory=dict)

    def tell(self, announcement: Announcement, alone: Iterable[int] = ()) -> None:
        """Put into the queues what is due; `alone`: brokers to which the brokers alive are news by themselves."""
        messages, newsworthy = Messages(announcement, _EVER), frozenset(alone)
        self.keep(announcement.brokers)
        told = {broker for notice in announcement.notices for broker in notice.brokers}
        for broker in sorted((told | newsworthy) & self._queues.keys() & announcement.live):
            self._queues[broker].put(_Wave(messages, alone=broker in newsworthy))

    def keep(self, brokers: Sequence[Row]) -> None:
        """Have a queue for each of these registrations, and drop the others with all that was waiting there.

        A registration may be written again, with other endpoints (`KafkaZkClient.updateBrokerInfo`).
        """
        rows = {row["broker_id"]: row for row in brokers}
        for broker_id, queue in list(self._queues.items()):
            if rows.get(broker_id, {}).get("broker_epoch") != queue.broker["broker_epoch"]:
                queue.stop()
                del self._queues[broker_id]
            elif rows[broker_id]["endpoints"] != queue.broker["endpoints"]:
                queue.move(rows[broker_id])
        for broker_id in rows.keys() - self._queues.keys():
            self._queues[broker_id] = queue = Queue(rows[broker_id], self.client_id, self.heard, self.listener)
            queue.start()

    @property
    def idle(self) -> list[int]:
        """Brokers that have answered everything."""
        return sorted(broker for broker, queue in self._queues.items() if queue.is_idle)

    @property
    def busy(self) -> list[int]:
        """Brokers that have not."""
        return sorted(self._queues.keys() - set(self.idle))

    def stop(self) -> None:
        """Drop everything."""
        self.keep([])
