"""Delivery of control requests (UpdateMetadata, LeaderAndIsr, StopReplica) to brokers by a commit.

Corresponds to `ControllerChannelManager` and `AbstractControllerBrokerRequestBatch`. Each broker gets its requests in
order, with one in flight, and lost requests are sent again. UpdateMetadata with the live brokers is sent first, because
a follower ignores a LeaderAndIsr whose leader it does not know and returns no error. Brokers that stop replicas get
their requests before all others, as in `KafkaController.doControlledShutdown`: a follower that still fetches from the
leader of the new ISR would be added to that ISR again. Deletions of replicas are sent in a later batch. Each broker has
its own thread, so brokers do not wait for each other. Brokers that deregister are dropped, brokers that register again
are sent everything again, and unresponsive brokers do not delay the others.
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
"""Maximum seconds that other brokers wait for brokers that stop replicas.

During this time the partitions that those brokers led have no leader.
"""

UNRESPONSIVE_SECONDS: Final = 5.0
"""Seconds without a sign of life after which a broker is no longer waited for."""

GRACE_SECONDS: Final = 1.0
"""Seconds to wait for brokers that only get UpdateMetadata, after the other brokers have answered."""

BROKER_REFRESH_SECONDS: Final = 1.0
"""Seconds between two reads of the registered brokers."""

RefreshBrokers = Callable[[], ControlBatch]
"""Reads the brokers registered now and returns the batch to send to them."""


@dataclass(slots=True)
class _BrokerDelivery:
    """The delivery to one registration of a broker, and its responses so far."""

    messages: EncodedRequests
    channels: ConnectionPool
    broker: Row
    wake: Event
    """Set to wake the waiting main thread."""
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
        """Whether to wait for this broker.

        That is so while requests are pending or the broker reported a newer registration, and it was active recently.
        """
        quiet = 0.0 if self.encoding else time.monotonic() - self.last_activity
        return (not self.finished or self.is_stale) and not self.stopped.is_set() and quiet < UNRESPONSIVE_SECONDS

    @property
    def is_stale(self) -> bool:
        """Whether the broker reported that it has registered again since."""
        return self.finished and any(
            answer.request_meaning is ResponseMeaning.STALE_BROKER_EPOCH for answer in self.answers
        )

    def start(self, *, silent: bool = False) -> None:
        if not self.started:
            self.started = True
            self.last_activity = float("-inf") if silent else time.monotonic()
            Thread(target=self._send, daemon=True, name=f"send-{self.broker_id}").start()

    def stop(self) -> None:
        """Stop sending and wake the thread; a connection without a pending request stays open."""
        self.stopped.set()
        channel = self._channel
        if channel is not None:
            channel.abort()

    def responses(self) -> list[BrokerResponse]:
        """Return one response per request; unanswered requests have a response without data."""
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
        """Send the unanswered requests on one connection; after a loss the caller sends them again on another."""
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
    """The deliveries of one batch: the newest registration of each broker."""

    batch: ControlBatch
    deadline: float
    read_current: RefreshBrokers
    channels: ConnectionPool
    silent: Collection[int]
    wake: Event = field(default_factory=Event)
    deliveries: dict[int, _BrokerDelivery] = field(default_factory=dict)
    addressed_brokers: set[int] = field(default_factory=set)
    """Brokers waited for until the deadline; a broker that registers in the meantime may be one of them."""
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
        """Wait until these brokers have answered or need not be waited for; refresh the registered brokers."""
        while time.monotonic() < min(until, self.deadline) and not interrupted():
            self.refresh_brokers()
            if not any(self.deliveries[broker].is_waited_for for broker in brokers() if broker in self.deliveries):
                return
            self.wake.wait(RETRY_BACKOFF_SECONDS)
            self.wake.clear()

    def refresh_brokers(self) -> None:
        """Stop deliveries to deregistered brokers; start again for brokers that registered again.

        A broker that registered again has lost the state of earlier requests.
        """
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
    """Send a batch to every live broker in parallel until the deadline; return a response for each request.

    `deadline` is a time of time.monotonic. Returns as soon as the brokers that get more than UpdateMetadata have
    answered or are no longer waited for. Brokers that stop replicas come first; the others wait for them for at most
    STOP_REPLICA_WAIT_SECONDS. `silent` are brokers known not to respond. `channels` are left open; without them,
    connections are made for this batch alone.
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
