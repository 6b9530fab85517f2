"""Delivery of one batch of control requests by a commit, which waits for the responses until a deadline.

Corresponds to the callers of `ControllerChannelManager.sendRequest`; `channel_manager.py` sends. UpdateMetadata with
the live brokers is sent first, because a follower ignores a LeaderAndIsr whose leader it does not know and returns no
error. Brokers that stop replicas get their requests before all others, as in `KafkaController.doControlledShutdown`: a
follower that still fetches from the leader of the new ISR would be added to that ISR again. Brokers that deregister are
dropped, brokers that register again are sent everything again, and unresponsive brokers do not delay the others.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

from jobs.adapters.brokers.channel_manager import BrokerQueue, ChannelManager, QueuedBatch
from jobs.adapters.brokers.connection import RETRY_BACKOFF_SECONDS
from jobs.adapters.brokers.control_encoding import ControlBatch, EncodedRequests
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.core.signals import is_interrupted


@dataclass(frozen=True, slots=True)
class DeliverySeconds:
    """How long a delivery waits."""

    stop_replica: float = 3.0
    """Maximum seconds that other brokers wait for brokers that stop replicas.

    During this time the partitions that those brokers led have no leader.
    """
    unresponsive: float = 5.0
    """Seconds without a sign of life after which a broker is no longer waited for."""
    grace: float = 1.0
    """Seconds to wait for brokers that only get UpdateMetadata, after the other brokers have answered."""
    refresh: float = 1.0
    """Seconds between two reads of the registered brokers."""


_SECONDS: Final = DeliverySeconds()

RefreshBrokers = Callable[[], ControlBatch]
"""Reads the brokers registered now and returns the batch to send to them."""


@dataclass(slots=True)
class _Recipient:
    """One registration of a broker, and its responses so far."""

    queue: BrokerQueue
    messages: EncodedRequests
    wake: Event
    """Set to wake the waiting main thread."""
    unresponsive_seconds: float
    batch: QueuedBatch = field(init=False)
    responses: list[BrokerResponse] = field(default_factory=list)
    started_at: float | None = None
    """When the batch was queued; negative infinity for a broker that is waited for only if it shows activity."""

    def __post_init__(self) -> None:
        self.batch = QueuedBatch(self.messages, self._receive, send_live_brokers=True)

    def _receive(self, response: BrokerResponse) -> None:
        self.responses.append(response)
        self.wake.set()

    @property
    def is_stale(self) -> bool:
        """Whether the broker reported that it has registered again since."""
        return self.queue.is_idle and any(response.refuses_broker_epoch for response in self.responses)

    @property
    def is_waited_for(self) -> bool:
        """Whether to wait for this broker.

        True while requests are pending or the broker reported a newer registration, if it was active recently.
        """
        if self.started_at is None or self.queue.is_stopped or self.queue.authentication_failed:
            return False
        is_quiet = time.monotonic() - max(self.started_at, self.queue.last_activity) >= self.unresponsive_seconds
        return not is_quiet and (not self.queue.is_idle or self.is_stale)

    def start(self, *, silent: bool = False) -> None:
        if self.started_at is None:
            self.started_at = float("-inf") if silent else time.monotonic()
            self.queue.put(self.batch)

    def all_responses(self) -> list[BrokerResponse]:
        """Return one response per request; unanswered requests have a response without data."""
        requests = self.batch.requests(self.queue.broker.broker_id)[len(self.responses) :]
        return [*self.responses, *(self.batch.unanswered(self.queue.broker, request) for request in requests)]


@dataclass(slots=True)
class _Delivery:
    """The delivery of one batch to the newest registration of each broker."""

    channels: ChannelManager
    batch: ControlBatch
    deadline: float
    read_current: RefreshBrokers
    silent: Collection[int]
    seconds: DeliverySeconds
    wake: Event = field(default_factory=Event)
    recipients: dict[int, _Recipient] = field(default_factory=dict)
    addressed_brokers: set[int] = field(default_factory=set)
    """Brokers waited for until the deadline; a broker that registers in the meantime may be one of them."""
    _last_refresh: float = field(default_factory=time.monotonic)

    def prepare(self, brokers: Iterable[int]) -> None:
        messages = EncodedRequests(self.batch, self.deadline)
        self.addressed_brokers = self.batch.addressed_brokers
        for broker in brokers:
            queue = self.channels.queue_of(broker)
            self.recipients[broker] = _Recipient(queue, messages, self.wake, self.seconds.unresponsive)

    def start(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self.recipients[broker].start(silent=broker in self.silent)

    def wait(self, brokers: Callable[[], Iterable[int]], until: float) -> None:
        """Wait until these brokers have answered or need not be waited for; refresh the registered brokers."""
        while time.monotonic() < min(until, self.deadline) and not is_interrupted():
            self.refresh_brokers()
            if not any(self.recipients[broker].is_waited_for for broker in brokers() if broker in self.recipients):
                return
            self.wake.wait(RETRY_BACKOFF_SECONDS)
            self.wake.clear()

    def refresh_brokers(self) -> None:
        """Drop deregistered brokers; send everything again to brokers that registered again.

        A broker that registered again has lost the state of earlier requests.
        """
        stale = any(recipient.is_stale for recipient in self.recipients.values())
        if time.monotonic() - self._last_refresh < (RETRY_BACKOFF_SECONDS if stale else self.seconds.refresh):
            return
        self._last_refresh = time.monotonic()
        current = self.read_current()
        brokers = [row for row in current.brokers if self.channels.listener.endpoint(row) is not None]
        self.channels.retain(brokers)
        registered = [row.broker_id for row in brokers if self._is_new_registration(row.broker_id)]
        if registered:
            self.batch = replace(current, brokers=brokers)
            self.prepare(registered)
            self.start(registered)

    def _is_new_registration(self, broker_id: int) -> bool:
        recipient = self.recipients.get(broker_id)
        return recipient is None or recipient.queue is not self.channels.queue_of(broker_id)


def deliver(
    channels: ChannelManager,
    batch: ControlBatch,
    deadline: float,
    read_current: RefreshBrokers | None = None,
    silent: Collection[int] = (),
    *,
    seconds: DeliverySeconds = _SECONDS,
) -> list[BrokerResponse]:
    """Send a batch to every live broker in parallel until the deadline; return a response for each request.

    `deadline` is a time of time.monotonic. Return as soon as the brokers that get more than UpdateMetadata have
    answered or are no longer waited for. Brokers that stop replicas come first; the others wait for them for at most
    `seconds.stop_replica` seconds. `silent` are brokers known not to respond. Afterwards nothing more is sent, and
    `channels` keeps the connections.
    """
    delivery = _Delivery(channels, batch, deadline, read_current or (lambda: batch), silent, seconds)
    channels.retain(batch.brokers)
    delivery.prepare(row.broker_id for row in batch.brokers)
    try:
        stopping = batch.stopping & delivery.recipients.keys()
        delivery.start(stopping)
        delivery.wait(lambda: stopping, time.monotonic() + seconds.stop_replica)
        delivery.start(delivery.recipients)
        delivery.wait(lambda: delivery.addressed_brokers, deadline)
        all_brokers = list(delivery.recipients)
        delivery.wait(lambda: all_brokers, time.monotonic() + seconds.grace)
    finally:
        channels.cancel()
    return [response for recipient in delivery.recipients.values() for response in recipient.all_responses()]
