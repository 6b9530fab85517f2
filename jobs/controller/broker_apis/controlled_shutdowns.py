"""Controlled shutdowns: brokers request them, and the next cycle carries them out, in one batch for all that wait.

Corresponds to `KafkaController.processControlledShutdown` and `doControlledShutdown`. A shutdown elects leaders, as a
failure does, so the cycle does it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, NamedTuple

from jobs.controller.broker_apis.isr_changes import IsrChanges
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.drains import Drains
from jobs.controller.pending_work import drained
from jobs.controller.state_writer import StateWriter
from jobs.runtime.console import LogLine
from schemas.enums import Outcome
from schemas.response_codes import NO_ERROR, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH
from schemas.rows import Key

BROKER_NOT_AVAILABLE: Final = 8
UNCHECKED_EPOCH: Final = -1
"""Broker epoch of a request before version 2, which is not compared."""

MAX_ATTEMPTS: Final = 3
"""Attempts to write the changes of a controlled shutdown; the broker asks again for what remains."""


class ShutdownResponse(NamedTuple):
    """The response to ControlledShutdown: an error, or the partitions that the broker still leads."""

    error: int
    remaining: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ShutdownRequest:
    """A ControlledShutdown request of one broker."""

    broker_id: int
    broker_epoch: int
    response: Future[ShutdownResponse] = field(default_factory=Future)


@dataclass(slots=True)
class ControlledShutdowns:
    """The shutdowns of one controllership."""

    context: ControllerContext
    engine: DecisionEngine
    isr_changes: IsrChanges
    drains: Drains
    writer: StateWriter
    broker_requests: BrokerRequestBatch
    wake: Callable[[], None]
    log_line: LogLine
    _waiting: SimpleQueue[ShutdownRequest] = field(default_factory=SimpleQueue)

    def submit(self, request: ShutdownRequest) -> Future[ShutdownResponse]:
        """Queue a request for the next cycle; may be called from any thread."""
        self._waiting.put(request)
        self.wake()
        return request.response

    def carry_out(self) -> None:
        """Carry out the shutdowns that brokers have requested, and respond to them.

        Partitions that a broker leads are moved first; clients of the other partitions notice nothing.
        """
        due = list[ShutdownRequest]()
        for request in drained(self._waiting):
            error = self._error_of(request)
            if error:
                request.response.set_result(ShutdownResponse(error))
            else:
                due.append(request)
        if not due:
            return
        brokers = frozenset(request.broker_id for request in due)
        for broker in sorted(brokers - self.context.shutting_down):
            self.log_line(f"  broker {broker} is shutting down")
        self.context.shutting_down |= brokers
        self.drains.note_stopped_brokers()
        self._move_leaders(brokers, {key for broker in brokers for key in self.context.led_by(broker)})
        self._move_leaders(brokers, {key for broker in brokers for key in self.context.of_broker(broker)})
        for broker in brokers:
            self.broker_requests.stop_replicas(broker)
        for request in due:
            led = self.context.led_by(request.broker_id)
            remaining = [key for key in led if len(self.context.partitions[key].replicas) > 1]
            request.response.set_result(ShutdownResponse(NO_ERROR, remaining))

    def _move_leaders(self, brokers: frozenset[int], keys: set[Key]) -> None:
        """Let others lead these partitions, and take the brokers that shut down out of their ISRs."""
        for _ in range(MAX_ATTEMPTS):
            self.isr_changes.refresh_states(keys)
            outcomes = self.writer.write(self.engine.shut_down(self.context, keys, brokers)).outcomes
            self.writer.summary.add_cycle(outcomes, ())
            if all(outcome.outcome is Outcome.APPLIED for outcome in outcomes):
                break

    def _error_of(self, request: ShutdownRequest) -> int:
        """Return the error code of a shutdown that is not carried out, 0 if it is."""
        broker = self.context.brokers.get(request.broker_id)
        if broker is None:
            return BROKER_NOT_AVAILABLE
        is_outdated = request.broker_epoch not in {UNCHECKED_EPOCH, broker.broker_epoch}
        return STALE_BROKER_EPOCH if is_outdated else NO_ERROR

    def stop(self) -> None:
        """Respond to the requests that wait as a broker does that is not the controller."""
        for request in drained(self._waiting):
            request.response.set_result(ShutdownResponse(STALE_CONTROLLER_EPOCH))
