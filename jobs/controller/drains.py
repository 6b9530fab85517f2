"""Resident drains: brokers whose replicas a plan has stopped before a planned shutdown, until they register again.

Kafka has no such state. A drained broker is treated like a broker in controlled shutdown
(`ControllerContext.shuttingDownBrokerIds`): no request starts its replicas.
"""

from dataclasses import dataclass

from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.write_behind import EndedDrains, WriteBehindLog
from jobs.runtime.console import LogLine
from schemas.enums import DrainMode


@dataclass(frozen=True, slots=True)
class Drains:
    """The drains that hold under one controllership."""

    engine: DecisionEngine
    context: ControllerContext
    broker_requests: BrokerRequestBatch
    log: WriteBehindLog
    log_line: LogLine

    def refresh(self) -> None:
        """Read which brokers are drained."""
        self.engine.refresh_drained()
        self.end_finished()

    def end_finished(self) -> None:
        """End the resident drains of brokers that have registered again.

        Such a broker is sent the full state, as any other.
        """
        ended = self.engine.end_drains(
            {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        )
        for mark in ended:
            self.log_line(f"  broker {mark.broker_id} is no longer drained: it has registered again")
        if ended:
            self.log.record(EndedDrains(ended))
        self.note_stopped_brokers()

    def note_stopped_brokers(self) -> None:
        """Note which brokers are not to be sent what would start replicas that a drain or a shutdown has stopped."""
        self.context.shutting_down &= self.context.brokers.keys()
        drained = {row.broker_id for row in self.engine.drained if row.mode == DrainMode.RESIDENT}
        self.broker_requests.drained_brokers = frozenset(drained | self.context.shutting_down)
