"""What brokers answered to a controller that stays, and what follows from it for the next cycle.

Corresponds to `processLeaderAndIsrResponseReceived` and `processTopicDeletionStopReplicaResponseReceived`; what an
error code means is said in `schemas.response_codes`. Answers come in threads of the brokers' queues and are read by the
cycle alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from jobs.adapters.brokers.responses import BrokerResponse
from jobs.adapters.zookeeper.cluster import BROKER_IDS
from jobs.controller.broker_requests.retries import RetryQueue
from jobs.controller.context import ControllerContext
from jobs.controller.write_behind import WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from schemas.notices import STOP_REPLICA, UPDATE_METADATA
from schemas.response_codes import KAFKA_STORAGE_ERROR, NONE, STALE_CONTROLLER_EPOCH, ResponseMeaning
from schemas.rows import Key


@dataclass(slots=True)
class ResponseEffects:
    """What follows from some answers."""

    partitions: set[Key] = field(default_factory=set)
    """Partitions to be looked at."""
    stopped: bool = False
    """Whether replicas were stopped, for which a deletion may wait."""
    untold: set[int] = field(default_factory=set)
    """Brokers that say they have registered anew: they know nothing of what they were told."""
    of_later_epoch: dict[int, int] = field(default_factory=dict)
    """Brokers that have heard of a later controller epoch than ours, and our epoch that they refused."""


@dataclass(slots=True)
class ResponseHandler:
    """Takes answers in, and wakes the controller."""

    context: ControllerContext
    watches: ZkWatches
    log: WriteBehindLog
    retries: RetryQueue
    _answers: SimpleQueue[BrokerResponse] = field(default_factory=SimpleQueue)

    def receive(self, answer: BrokerResponse) -> None:
        """Take an answer, in whatever thread."""
        self._answers.put(answer)
        self.watches.signal()

    @property
    def is_quiet(self) -> bool:
        """Whether every answer was read."""
        return self._answers.empty()

    def drain(self) -> ResponseEffects:
        """Read what came since the last time."""
        heard = ResponseEffects()
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                return heard
            self.log.record(answer)
            self._take(answer, heard)

    def _take(self, answer: BrokerResponse, heard: ResponseEffects) -> None:
        broker = answer.broker["broker_id"]
        if answer.broker["broker_epoch"] != self.context.brokers.get(broker, {}).get("broker_epoch"):
            return  # of a registration that is over
        if answer.request_meaning is ResponseMeaning.STALE_BROKER_EPOCH:
            self.watches.signal(BROKER_IDS)
            heard.untold.add(broker)
            return
        if answer.error == STALE_CONTROLLER_EPOCH:
            heard.of_later_epoch[broker] = answer.controller_epoch
        errors = answer.errors()
        self.retries.on_response(answer, errors)
        if answer.api != UPDATE_METADATA:
            self._take_partitions(answer, errors, broker, heard)

    def _take_partitions(
        self, answer: BrokerResponse, errors: Sequence[int], broker: int, heard: ResponseEffects
    ) -> None:
        heard.stopped |= answer.api == STOP_REPLICA
        for notice, error in zip(answer.notices, errors, strict=True):
            key = notice.topic, notice.partition
            if answer.api == STOP_REPLICA and error == NONE:
                # what is heard late of a deletion says nothing of a topic that was kept, or made anew
                if notice.delete_partition and (notice.leader_epoch >= 0 or self.context.is_queued(notice.topic)):
                    self.context.stopped.setdefault(key, {})[broker] = notice.leader_epoch
                    heard.partitions.add(key)
            elif self._is_news_of_log_dir(key, broker, error):
                heard.partitions.add(key)

    def _is_news_of_log_dir(self, key: Key, broker: int, error: int) -> bool:
        """KAFKA_STORAGE_ERROR takes a replica offline, NONE brings it back, other codes say nothing.

        Also where it was told to stop: that may have taken the place of a LeaderAndIsr that was to find it out, and who
        waits for replicas to stop, as Kafka does not, must not wait for one that cannot.
        """
        known = broker in self.context.failed.get(key, ())
        if error == KAFKA_STORAGE_ERROR and not known:
            self.context.failed[key].add(broker)
            return True
        if error == NONE and known:
            self.context.failed[key].discard(broker)
            return True
        return False
