"""Responses of brokers to the resident controller, and their effects on the next cycle.

Corresponds to `processLeaderAndIsrResponseReceived` and `processTopicDeletionStopReplicaResponseReceived`;
`schemas.response_codes` defines the meaning of error codes. Responses arrive in the threads of the brokers' queues, and
only the cycle reads them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from jobs.adapters.brokers.responses import BrokerResponse
from jobs.adapters.zookeeper.cluster_state import BROKER_IDS
from jobs.controller.broker_requests.retries import RetryQueue
from jobs.controller.controller_context import ControllerContext
from jobs.controller.pending_work import DueWork, drained
from jobs.controller.write_behind import WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.runtime.console import LogLine
from schemas.notices import STOP_REPLICA, UPDATE_METADATA
from schemas.response_codes import KAFKA_STORAGE_ERROR, NO_ERROR
from schemas.rows import Key


@dataclass(slots=True)
class SilentBrokers:
    """The brokers that were reported, until they respond or are no longer registered."""

    log_line: LogLine
    seconds: float = 30.0
    """Seconds without a response after which a broker is reported; the session of a dead broker has ended then (18 s).
    """
    _reported: set[int] = field(default_factory=set)

    def report(self, ages: Mapping[int, float]) -> None:
        """Log which brokers have begun or ceased to be silent.

        `ages`: by registered broker, the seconds for which its oldest request has waited.
        """
        silent = {broker for broker, age in ages.items() if age >= self.seconds}
        for broker in sorted(silent - self._reported):
            self.log_line(
                f"surveyor: warning: broker {broker} is registered and has not responded for {ages[broker]:.0f} s: "
                "requests to it wait. Make sure that it runs",
                logging.WARNING,
            )
        for broker in sorted((self._reported - silent) & ages.keys()):
            self.log_line(f"  broker {broker} responds again")
        self._reported = silent


@dataclass(slots=True)
class ResponseEffects(DueWork):
    """The effects of some responses. Requests are due if replicas were stopped: a deletion may wait for them."""

    bounced_brokers: set[int] = field(default_factory=set)
    """Brokers that have registered again by their responses, so that they have lost the state sent to them."""
    refused_epochs: dict[int, int] = field(default_factory=dict)
    """Brokers that know a later controller epoch than ours, with our epoch that they refused."""


@dataclass(slots=True)
class ResponseHandler:
    """Receives responses, and wakes the controller."""

    context: ControllerContext
    watches: ZkWatches
    log: WriteBehindLog
    retries: RetryQueue
    _responses: SimpleQueue[BrokerResponse] = field(default_factory=SimpleQueue)

    def receive(self, response: BrokerResponse) -> None:
        """Queue a response; may be called from any thread."""
        self._responses.put(response)
        self.watches.signal()

    @property
    def is_quiet(self) -> bool:
        """Whether every response was read."""
        return self._responses.empty()

    def drain(self) -> ResponseEffects:
        """Read all responses that have arrived since the last call."""
        effects = ResponseEffects()
        for response in drained(self._responses):
            self.log.record(response)
            self._handle(response, effects)
        return effects

    def _handle(self, response: BrokerResponse, effects: ResponseEffects) -> None:
        broker = response.broker_id
        if not self.context.is_registered(broker, response.broker_epoch):
            return  # the response belongs to an earlier registration
        if response.refuses_broker_epoch:
            self.watches.signal(BROKER_IDS)
            effects.bounced_brokers.add(broker)
            return
        if response.refuses_controller_epoch:
            effects.refused_epochs[broker] = response.controller_epoch
        errors = response.errors()
        self.retries.on_response(response, errors)
        if response.api != UPDATE_METADATA:
            self._handle_partitions(response, errors, broker, effects)

    def _handle_partitions(
        self, response: BrokerResponse, errors: Sequence[int], broker: int, effects: ResponseEffects
    ) -> None:
        effects.requests_due |= response.api == STOP_REPLICA
        for notice, error in zip(response.notices, errors, strict=True):
            key = notice.topic, notice.partition
            if response.api == STOP_REPLICA and error == NO_ERROR:
                # a late response to a deletion does not apply to a topic that was kept, or created again
                if notice.delete_partition and (notice.leader_epoch >= 0 or self.context.is_queued(notice.topic)):
                    self.context.stopped.setdefault(key, {})[broker] = notice.leader_epoch
                    effects.partitions.add(key)
            elif self._update_log_dir_failure(key, broker, error):
                effects.partitions.add(key)

    def _update_log_dir_failure(self, key: Key, broker: int, error: int) -> bool:
        """Record whether the log dir of a replica failed; return whether that changed.

        KAFKA_STORAGE_ERROR takes a replica offline, NO_ERROR brings it back, and other codes are no evidence of either.
        This also holds for responses to StopReplica: the request may have replaced a LeaderAndIsr that was to find out,
        and a deletion or reassignment must not wait for a replica that cannot stop. Kafka does not wait for it either.
        """
        was_failed = broker in self.context.failed.get(key, ())
        if error == KAFKA_STORAGE_ERROR and not was_failed:
            self.context.failed[key].add(broker)
            return True
        if error == NO_ERROR and was_failed:
            self.context.failed[key].discard(broker)
            return True
        return False
