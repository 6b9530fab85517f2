"""The ISRs that leaders change by AlterPartition, as the cycle takes them over from the thread that writes them.

Corresponds to what follows a successful write in `KafkaController.alterPartitions`: UpdateMetadata to all brokers, and
the next steps of reassignments (`maybeCompleteReassignment`).
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.bounced_brokers import BouncedBrokers
from jobs.controller.broker_apis.isr_writer import IsrWriter
from jobs.controller.broker_protocols import ALTER_ISR_SINCE, earliest_protocol
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import PendingWork
from jobs.controller.plan_inbox import PlanInbox
from jobs.runtime.console import LogLine
from planner.rules.alter_partition import IsrCandidates
from schemas.rows import Key
from schemas.text import partition_name, with_others


@dataclass(slots=True)
class IsrChanges:
    """The changes of one controllership."""

    control: Controllership
    context: ControllerContext
    engine: DecisionEngine
    reader: MetadataReader
    broker_requests: BrokerRequestBatch
    bounced: BouncedBrokers
    pending: PendingWork
    plan_inbox: PlanInbox | None
    log_line: LogLine
    writer: IsrWriter = field(init=False)
    _has_warned_of_silence: bool = False

    def __post_init__(self) -> None:
        self.writer = IsrWriter(self.control, self.context, self.candidates, self.reader.watches.signal)

    def candidates(self) -> IsrCandidates:
        """Return which brokers may be in an ISR; called in the thread of the ISR writer."""
        absent = self.context.shutting_down | self.bounced.ids
        epochs = {row.broker_id: row.zk_broker_epoch for row in [*self.context.brokers.values()]}
        return IsrCandidates(
            {broker: epoch for broker, epoch in epochs.items() if broker not in absent},
            self.broker_requests.drained_brokers,
        )

    def publish(self) -> set[Key]:
        """Send brokers the ISRs that leaders have changed; return the partitions to be decided on.

        A change of an ISR makes the next step of a reassignment or of a request due, or the removal of a member that
        has failed since the change was written. The failure was decided on without it.
        """
        requested_keys, outdated = self.writer.drain_written()
        if not (requested_keys or outdated):
            return set()
        changed = self.reader.refresh_partitions(outdated)
        self.broker_requests.send_metadata(requested_keys | outdated)
        due = self.context.moving | self.context.requested_partitions
        serving = self.bounced.serving
        rows = ((key, self.context.partitions.get(key)) for key in requested_keys)
        with_failed = {key for key, row in rows if row is not None and not serving.issuperset(row.isr or ())}
        return changed | (requested_keys & due) | with_failed

    def refresh_states(self, keys: Collection[Key]) -> None:
        """Bring the context up to date on these partitions, right before they are decided on.

        If leaders leave ISRs to this process, it writes all states itself: only the later writes of the ISR writer are
        missing. If another client has changed a state, the multi is refused by its version, and
        the state is read. Otherwise leaders write ISRs themselves and notify seconds later. The states that a plan
        writes arrive batch by batch.
        """
        if self._leaders_ask and not (self.plan_inbox and self.plan_inbox.is_busy):
            self.pending.add(self.publish())
        else:
            self.reader.refresh_partitions(keys)

    @property
    def _leaders_ask(self) -> bool:
        """Whether all leaders leave changes of ISRs to this process."""
        protocol = earliest_protocol(self.engine.broker_configs, self.context.brokers.keys())
        return self.writer.is_started and protocol is not None and protocol >= ALTER_ISR_SINCE

    def warn_if_no_requests(self) -> None:
        """Warn once if live replicas are not in sync and no leader requests an ISR: brokers may not reach us."""
        if not self._leaders_ask or self.writer.has_received_requests or self._has_warned_of_silence:
            return
        able = {*self.context.live} - self.context.shutting_down - self.broker_requests.drained_brokers
        waiting = [
            partition_name(row.topic, row.partition)
            for row in self.context.partitions.values()
            if row.leader in able
            and able.intersection(row.replicas) - {*(row.isr or ())} - self.context.failed.get(row.key, set())
        ]
        if waiting:
            self._has_warned_of_silence = True
            addresses = sorted(
                {f"{endpoint.host}:{endpoint.port}" for endpoint in self.broker_requests.endpoints.announced}
            )
            self.log_line(
                f"surveyor: warning: {with_others(waiting[0], len(waiting))}: live replicas are not in sync, and since "
                "the take-over no broker has asked for an ISR. Make sure that brokers can connect to "
                f"{', '.join(addresses)} (--advertise)",
                logging.WARNING,
            )
