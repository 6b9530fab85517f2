"""Records the decisions of a cycle, writes their changes under the fence, and notifies the brokers.

Corresponds to `ZkPartitionStateMachine.handleStateChanges`. The intents are recorded before the first write. Brokers
are sent the changes of each multi as soon as it is written, and no other changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.context import ControllerContext
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decision_engine import Decisions
from jobs.controller.pending_work import PendingWork
from jobs.controller.state_writer import StateWriter
from jobs.controller.write_behind import CycleRecord, WriteBehindLog
from schemas.plan import RowOutcome
from schemas.rows import Change, RejectionRecord, Snapshot


@dataclass(frozen=True, slots=True)
class DecisionWriter:
    """Writes the decisions of one controllership."""

    control: Controllership
    context: ControllerContext
    snapshot: Snapshot
    writer: StateWriter
    broker_requests: BrokerRequestBatch
    log: WriteBehindLog
    summary: CycleSummary
    pending: PendingWork

    def write(self, decided: Decisions) -> tuple[list[RowOutcome], list[RejectionRecord]]:
        """Write the decided changes, and send them; return their outcomes, and the rejections that are new."""
        rejections = self.summary.new_rejections(decided.others)
        record = self.cycle_record(decided.changes, rejections) if decided.changes or rejections else None
        if record is not None:
            self.log.record(record)
        outcomes: list[RowOutcome] = []
        try:
            for row_outcomes, written in self.writer.write(decided.changes) if decided.changes else ():
                outcomes += row_outcomes
                self.broker_requests.send_changes(written)
                self.summary.by_action.update(change.action for change in written)
        finally:
            if record is not None:
                self.log.finish(record, outcomes)
        self.pending.add(requests_due=bool(outcomes) and bool(self.context.requests))
        return outcomes, rejections

    def cycle_record(
        self,
        changes: Sequence[Change] = (),
        rejections: Sequence[RejectionRecord] = (),
        outcomes: Sequence[RowOutcome] | None = None,
    ) -> CycleRecord:
        """Make the record of a cycle, with the current broker epochs and controller epoch."""
        epochs = {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        ids = self.snapshot.snapshot_id, self.snapshot.cluster_id
        return CycleRecord(*ids, epochs, self.control.epoch, changes, rejections, outcomes)
