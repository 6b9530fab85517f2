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

from jobs.adapters.brokers.connection import DISCONNECTED, RETRY_BACKOFF_SECONDS, BrokerConnection, ConnectionPool
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests, Request, Row, TooLateError
from jobs.adapters.brokers.listeners import UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.core.signals import interrupted
from schemas.response_codes import ResponseMeaning

STOP_REPLICA_WAIT_SECONDS: Final = 3.0
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
    last_activity: float = 0.0
    answers: list[BrokerResponse] = field(default_factory=list)
    encoding: bool = False
    finished: bool = False
    started: bool = False
    stopped: Event = field(default_factory=Event)
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
        quiet = 0.0 if self.encoding else time.monotonic() - self.last_activity
        return (not self.finished or self.is_stale) and not self.stopped.is_set() and quiet < UNRESPONSIVE_SECONDS

    @property
    def is_stale(self) -> bool:
        """Whether the broker says that it has registered anew."""
        return self.finished and any(
            answer.request_meaning is ResponseMeaning.STALE_BROKER_EPOCH for answer in self.answers
        )

    def start(self, *, silent: bool = False) -> None:
        if not self.started:
            self.started = True
            self.last_activity = float("-inf") if silent else time.monotonic()
            Thread(target=self._send, daemon=True, name=f"tell-{self.broker_id}").start()

    def stop(self) -> None:
        """Ask no more, and wake the thread up from whatever it waits for; a channel with nothing on it stays."""
        self.stopped.set()
        channel = self._channel
        if channel is not None:
            channel.abort()

    def responses(self) -> list[BrokerResponse]:
        """An answer for each request, also for those that there is none to."""
        answered = list(self.answers)
        remaining = self.messages.requests(self.broker_id)[len(answered) :]
        return [*answered, *map(self._answer, remaining)]

    def _answer(self, request: Request) -> BrokerResponse:
        return BrokerResponse(self.broker, self.messages.batch.controller_epoch, request.api, request.notices, None)

    def _on_activity(self) -> None:
        self.last_activity = time.monotonic()

    def _send(self) -> None:
        try:
            while not self.stopped.is_set() and time.monotonic() < self.deadline:
                with suppress(*DISCONNECTED):
                    self._send_remaining()
                    break
                self.stopped.wait(RETRY_BACKOFF_SECONDS)
        except (UnreachableBrokerError, TooLateError):
            pass
        finally:
            self.finished = True
            self.wake.set()

    def _send_remaining(self) -> None:
        """Send what is not answered yet, on one channel; what was lost on the way is sent again, on another one."""
        self._channel = channel = self.channels.to(self.broker, self._on_activity, self.deadline - time.monotonic())
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
        self._on_activity()
        self.encoding = False
        if self.stopped.is_set():
            raise ConnectionAbortedError
        channel.send(request.api, version, body, self.stopped, self.deadline)
        return replace(
            self._answer(request), version=version, data=channel.receive_response(self.stopped, self.deadline)
        )


@dataclass(slots=True)
class _Delivery:
    """All tellings of one announcement, the newest of each broker."""

    batch: ControlBatch
    deadline: float
    read_current: RefreshBrokers
    channels: ConnectionPool
    silent: Collection[int]
    wake: Event = field(default_factory=Event)
    deliveries: dict[int, _BrokerDelivery] = field(default_factory=dict)
    addressed_brokers: set[int] = field(default_factory=set)
    """Those that somebody waits for until the deadline; one that registers meanwhile may be among them."""
    _last_refresh: float = field(default_factory=time.monotonic)

    def prepare(self, brokers: Sequence[Row]) -> None:
        messages = EncodedRequests(self.batch, self.deadline)
        self.addressed_brokers = self.batch.addressed_brokers
        for broker in brokers:
            self.deliveries[broker["broker_id"]] = _BrokerDelivery(messages, self.channels, broker, self.wake)

    def start(self, brokers: Collection[int]) -> None:
        for broker in brokers:
            self.deliveries[broker].start(silent=broker in self.silent)

    def wait(self, brokers: Callable[[], Iterable[int]], until: float) -> None:
        """Wait until these are told, or cannot be waited for, and look now and then who is registered."""
        while time.monotonic() < min(until, self.deadline) and not interrupted():
            self.refresh_brokers()
            if not any(self.deliveries[broker].is_waited_for for broker in brokers() if broker in self.deliveries):
                return
            self.wake.wait(RETRY_BACKOFF_SECONDS)
            self.wake.clear()

    def refresh_brokers(self) -> None:
        """Give up who is gone, and begin anew with who registered anew: it knows nothing of what it was told."""
        stale = any(telling.is_stale for telling in self.deliveries.values())
        if time.monotonic() - self._last_refresh < (RETRY_BACKOFF_SECONDS if stale else BROKER_REFRESH_SECONDS):
            return
        self._last_refresh = time.monotonic()
        renewed = self.read_current()
        now = {row["broker_id"]: row for row in renewed.brokers if self.channels.listener.endpoint(row) is not None}
        for broker in self.deliveries.keys() - now.keys():
            self.deliveries[broker].stop()
        known = {broker: telling.broker["broker_epoch"] for broker, telling in self.deliveries.items()}
        anew = {broker: row for broker, row in now.items() if known.get(broker) != row["broker_epoch"]}
        if anew:
            for broker in anew.keys() & known.keys():
                self.deliveries[broker].stop()
            self.batch = replace(renewed, brokers=[*now.values()])
            self.prepare([*anew.values()])
            self.start(anew)


def deliver(
    batch: ControlBatch,
    deadline: float,
    read_current: RefreshBrokers | None = None,
    silent: Collection[int] = (),
    channels: ConnectionPool | None = None,
) -> list[BrokerResponse]:
    """Tell every live broker, in parallel, until the deadline (of time.monotonic); return an answer for each request.

    Returns as soon as those that are told more than metadata have answered, or are not waited for any more. Those that
    stop replicas come first; the others wait for them, `STOP_REPLICA_WAIT_SECONDS` seconds at most. `silent`: known not
    to answer. `channels` are left open; without them there are some for this announcement alone.
    """
    if channels is None:
        with ConnectionPool(str(batch.controller_id)) as own:
            return deliver(batch, deadline, read_current, silent, own)
    delivery = _Delivery(batch, deadline, read_current or (lambda: batch), channels, silent)
    delivery.prepare(batch.brokers)
    try:
        stopping = batch.stopping & delivery.deliveries.keys()
        delivery.start(stopping)
        delivery.wait(lambda: stopping, time.monotonic() + STOP_REPLICA_WAIT_SECONDS)
        delivery.start(delivery.deliveries)
        delivery.wait(lambda: delivery.addressed_brokers, deadline)
        all_brokers = list(delivery.deliveries)
        delivery.wait(lambda: all_brokers, time.monotonic() + GRACE_SECONDS)
    finally:
        for telling in delivery.deliveries.values():
            telling.stop()
    return [answer for telling in delivery.deliveries.values() for answer in telling.responses()]
