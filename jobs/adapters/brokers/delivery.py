"""Control requests to brokers: UpdateMetadata, LeaderAndIsr, StopReplica; in order per broker, one in flight, retried.

Corresponds to `ControllerChannelManager` and `AbstractControllerBrokerRequestBatch`. The live brokers are told first:
a follower answers a LeaderAndIsr whose leader it does not know with no error and ignores it. Brokers that stop replicas
are told before all others, as `KafkaController.doControlledShutdown` does: a follower that still fetches from a leader
of the new ISR is taken back into it. Replicas that are deleted come in an announcement of their own, later. Each broker
has a thread of its own, so that none waits for another; who is no longer registered is not asked any more, who
registers anew is told everything anew, and for who is silent nobody waits.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Final

from jobs.adapters.brokers.connection import DISCONNECTED, PAUSE, BrokerConnection, ConnectionPool
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests, Request, Row, TooLateError
from jobs.adapters.brokers.listeners import UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.core.signals import interrupted
from schemas.response_codes import ResponseMeaning

STOPPING: Final = 3.0
"""Seconds that the others wait at most for brokers that stop replicas: until then nobody leads what those led."""

UNRESPONSIVE_SECONDS: Final = 5.0
"""Seconds without a sign of life after which nobody waits for a broker any more."""

GRACE_SECONDS: Final = 1.0
"""Seconds that brokers which are told metadata only are waited for, once those that are told more have answered."""

BROKER_REFRESH_SECONDS: Final = 1.0
"""Seconds between two looks at who is registered."""

RefreshBrokers = Callable[[], ControlBatch]
"""Reads which brokers are registered now, and what is due to be told to them."""


@dataclass(slots=True)
class _BrokerDelivery:
    """One broker, under one registration, and what it answered so far."""

    messages: EncodedRequests
    channels: ConnectionPool
    broker: Row
    wake: Event
    """Set when something happened that whoever waits should look at."""
    on_response: float = 0.0
    answers: list[BrokerResponse] = field(default_factory=list)
    encoding: bool = False
    finished: bool = False
    begun: bool = False
    over: Event = field(default_factory=Event)
    _channel: BrokerConnection | None = None

    @property
    def broker_id(self) -> int:
        return int(self.broker["broker_id"])

    @property
    def deadline(self) -> float:
        return self.messages.deadline

    @property
    def is_waited_for(self) -> bool:
        """Whether it is worth while to wait: it is told, or said that it registered anew, not long ago."""
        quiet = 0.0 if self.encoding else time.monotonic() - self.on_response
        return (not self.finished or self.is_stale) and not self.over.is_set() and quiet < UNRESPONSIVE_SECONDS

    @property
    def is_stale(self) -> bool:
        """Whether the broker says that it has registered anew."""
        return self.finished and any(
            answer.request_meaning is ResponseMeaning.STALE_BROKER_EPOCH for answer in self.answers
        )

    def start(self, *, silent: bool = False) -> None:
        if not self.begun:
            self.begun = True
            self.on_response = float("-inf") if silent else time.monotonic()
            Thread(target=self._send, daemon=True, name=f"tell-{self.broker_id}").start()

    def stop(self) -> None:
        """Ask no more, and wake the thread up from whatever it waits for; a channel with nothing on it stays."""
        self.over.set()
        channel = self._channel
        if channel is not None:
            channel.abort()

    def outcome(self) -> list[BrokerResponse]:
        """An answer for each request, also for those that there is none to."""
        answered = list(self.answers)
        left = self.messages.requests(self.broker_id)[len(answered) :]
        return [*answered, *map(self._answer, left)]

    def _answer(self, request: Request) -> BrokerResponse:
        return BrokerResponse(
            self.broker, self.messages.announcement.controller_epoch, request.api, request.notices, None
        )

    def _on_response(self) -> None:
        self.on_response = time.monotonic()

    def _send(self) -> None:
        try:
            while not self.over.is_set() and time.monotonic() < self.deadline:
                with suppress(*DISCONNECTED):
                    self._send_remaining()
                    break
                self.over.wait(PAUSE)
        except (UnreachableBrokerError, TooLateError):
            pass
        finally:
            self.finished = True
            self.wake.set()

    def _send_remaining(self) -> None:
        """Send what is not answered yet, on one channel; what was lost on the way is sent again, on another one."""
        self._channel = channel = self.channels.to(self.broker, self._on_response, self.deadline - time.monotonic())
        try:
            for request in self.messages.requests(self.broker_id)[len(self.answers) :]:
                self.answers.append(self._ask(channel, request))
        except DISCONNECTED:
            self.channels.drop(channel)
            raise
        finally:
            self._channel = None

    def _ask(self, channel: BrokerConnection, request: Request) -> BrokerResponse:
        version = channel.version(request)
        self.encoding = True
        body = self.messages.body(request, version, self.broker)
        self._on_response()
        self.encoding = False
        if self.over.is_set():
            raise ConnectionAbortedError
        channel.send(request.api, version, body, self.over, self.deadline)
        return replace(self._answer(request), version=version, data=channel.answer(self.over, self.deadline))


@dataclass(slots=True)
class _Delivery:
    """All tellings of one announcement, the newest of each broker."""

    announcement: ControlBatch
    deadline: float
    renew: RefreshBrokers
    channels: ConnectionPool
    silent: Collection[int]
    wake: Event = field(default_factory=Event)
    tellings: dict[int, _BrokerDelivery] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    """Those that somebody waits for until the deadline; one that registers meanwhile may be among them."""
    _looked: float = field(default_factory=time.monotonic)

    def prepare(self, brokers: Sequence[Row]) -> None:
        messages = EncodedRequests(self.announcement, self.deadline)
        self.named = self.announcement.named
        for broker in brokers:
            self.tellings[broker["broker_id"]] = _BrokerDelivery(messages, self.channels, broker, self.wake)

    def start(self, brokers: Collection[int]) -> None:
        for broker in brokers:
            self.tellings[broker].start(silent=broker in self.silent)

    def wait(self, brokers: Callable[[], Iterable[int]], until: float) -> None:
        """Wait until these are told, or cannot be waited for, and look now and then who is registered."""
        while time.monotonic() < min(until, self.deadline) and not interrupted():
            self.refresh_brokers()
            if not any(self.tellings[broker].is_waited_for for broker in brokers() if broker in self.tellings):
                return
            self.wake.wait(PAUSE)
            self.wake.clear()

    def refresh_brokers(self) -> None:
        """Give up who is gone, and begin anew with who registered anew: it knows nothing of what it was told."""
        stale = any(telling.is_stale for telling in self.tellings.values())
        if time.monotonic() - self._looked < (PAUSE if stale else BROKER_REFRESH_SECONDS):
            return
        self._looked = time.monotonic()
        renewed = self.renew()
        now = {row["broker_id"]: row for row in renewed.brokers if self.channels.listener.endpoint(row) is not None}
        for broker in self.tellings.keys() - now.keys():
            self.tellings[broker].stop()
        known = {broker: telling.broker["broker_epoch"] for broker, telling in self.tellings.items()}
        anew = {broker: row for broker, row in now.items() if known.get(broker) != row["broker_epoch"]}
        if anew:
            for broker in anew.keys() & known.keys():
                self.tellings[broker].stop()
            self.announcement = replace(renewed, brokers=[*now.values()])
            self.prepare([*anew.values()])
            self.start(anew)


def deliver(
    announcement: ControlBatch,
    deadline: float,
    renew: RefreshBrokers | None = None,
    silent: Collection[int] = (),
    channels: ConnectionPool | None = None,
) -> list[BrokerResponse]:
    """Tell every live broker, in parallel, until the deadline (of time.monotonic); return an answer for each request.

    Returns as soon as those that are told more than metadata have answered, or are not waited for any more. Those that
    stop replicas come first; the others wait for them, `STOPPING` seconds at most. `silent`: known not to answer.
    `channels` are left open; without them there are some for this announcement alone.
    """
    if channels is None:
        with ConnectionPool(str(announcement.controller_id)) as own:
            return deliver(announcement, deadline, renew, silent, own)
    this = _Delivery(announcement, deadline, renew or (lambda: announcement), channels, silent)
    this.prepare(announcement.brokers)
    try:
        stopping = announcement.stopping & this.tellings.keys()
        this.start(stopping)
        this.wait(lambda: stopping, time.monotonic() + STOPPING)
        this.start(this.tellings)
        this.wait(lambda: this.named, deadline)
        everybody = list(this.tellings)
        this.wait(lambda: everybody, time.monotonic() + GRACE_SECONDS)
    finally:
        for telling in this.tellings.values():
            telling.stop()
    return [answer for telling in this.tellings.values() for answer in telling.outcome()]
