"""Sends a broker that starts all metadata at once, in a separate thread, before the cycle decides anything.

Corresponds to the first step of `KafkaController.onBrokerStartup`. A broker serves clients as soon as it listens.
Without metadata it responds that topics do not exist, which some clients treat as final. A cycle may spend a second on
a decision, so this thread does not wait for it. The cycle later sends the same again, with the states of the broker's
replicas; both use one queue, in order. This thread reads only data that a cycle replaces as a whole, or that can be
copied at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

from kazoo.exceptions import NoAuthError, NoNodeError

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, read_brokers
from jobs.adapters.zookeeper.connection import LOST, await_result
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.controller_context import ControllerContext, partition_notification
from jobs.core.errors import SurveyorError
from jobs.runtime.console import log
from schemas.notices import UPDATE_METADATA, Notice
from schemas.rows import Broker

RECONNECT_BACKOFF_SECONDS: Final = 0.1


@dataclass(slots=True)
class BrokerStartup:
    """Sends metadata to starting brokers during one controllership."""

    control: Controllership
    context: ControllerContext
    channels: ChannelManager
    batch_of: Callable[[Sequence[Broker], Sequence[Notice]], ControlBatch]
    is_failing: Callable[[int], bool]
    """Whether the failure of a broker is not completely written, so that its known state is outdated."""
    reread_seconds: float = 2.0
    """Seconds after which registrations are read again if no watch fired: a watch may be lost with a connection."""
    _sent: dict[int, int] = field(default_factory=dict)
    """Broker epochs of the registrations that metadata was sent to."""
    _logged_error: str | None = None
    """The last unexpected error, which is logged once."""
    _changed: Event = field(default_factory=Event)
    _stopped: Event = field(default_factory=Event)

    def start(self) -> None:
        Thread(target=self._run, daemon=True, name="broker-startup").start()

    def stop(self) -> None:
        self._stopped.set()
        self._changed.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._changed.clear()
            try:
                self.check()
            except LOST:
                self._stopped.wait(RECONNECT_BACKOFF_SECONDS)
            except SurveyorError:
                return  # the cycle meets the same error, and reports it
            except Exception as error:  # noqa: BLE001 - a later broker that starts must not go without metadata
                if str(error) != self._logged_error:
                    self._logged_error = str(error)
                    log(f"surveyor: cannot send metadata to brokers that start: {type(error).__name__}: {error}")
                self._changed.wait(self.reread_seconds)
            else:
                self._changed.wait(self.reread_seconds)

    def check(self) -> None:
        """Send metadata to brokers that are registered and not known to any cycle yet."""
        client, registered = self.control.client, self._registered()
        for broker in self._sent.keys() - registered - self.context.brokers.keys():
            self.channels.drop_provisional(broker)
            del self._sent[broker]
        if not registered - self.context.brokers.keys():
            return
        rows = read_brokers(client)
        self.control.refuse_lost()
        for row in rows:
            if self._starts(row):
                self._send(row)

    def _registered(self) -> set[int]:
        """Read the registered broker ids, and watch for changes."""
        reading = self.control.client.get_children_async(BROKER_IDS, watch=lambda _: self._changed.set())
        try:
            return {int(name) for name in await_result(reading) if name.isdecimal()}
        except (NoNodeError, NoAuthError):
            return set()  # the cycle reports it

    def _starts(self, row: Broker) -> bool:
        """Return whether a broker has registered and is not in the context yet. A restarted broker does not count."""
        is_new = row.broker_id not in self.context.brokers and not self.is_failing(row.broker_id)
        return is_new and row.understood and self._sent.get(row.broker_id) != row.broker_epoch

    def _send(self, row: Broker) -> None:
        live_brokers = [other for other in self.context.brokers.copy().values() if other.understood]
        notices = [*self._metadata(row.broker_id)]
        batch = self.batch_of([*live_brokers, row], notices)
        self._sent[row.broker_id] = row.zk_broker_epoch
        self.channels.send_to_starting(row, batch)

    def _metadata(self, broker: int) -> Iterator[Notice]:
        context, recipients = self.context, (broker,)
        for row in context.partitions.copy().values():
            if row.has_decoded_state and not context.is_queued(row.topic):
                yield partition_notification(row, context.topic_id(row.topic), UPDATE_METADATA, recipients)
