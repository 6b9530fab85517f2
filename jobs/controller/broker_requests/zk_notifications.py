"""Handles and deletes the notifications that brokers leave in ZooKeeper.

Corresponds to `KafkaController.processIsrChangeNotification` and `processLogDirEventNotification`.
"""

from dataclasses import dataclass, field

from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.broker_requests.responses import ResponseHandler
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from jobs.execution.batch.znode_removal import delete_all
from schemas.enums import RequestKind
from schemas.rows import Key


@dataclass(slots=True)
class NotificationHandler:
    """Handles notifications under one controllership."""

    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    broker_requests: BrokerRequestBatch
    responses: ResponseHandler
    _log_dirs: dict[str, int] = field(default_factory=dict)
    """By path, log dir events whose brokers were sent a request and have not responded yet."""

    def delete_all(self) -> None:
        """Delete old notifications before everything is read, which makes them unnecessary."""
        self.reader.refresh(())
        old = {row.path for kind in (RequestKind.ISR_CHANGE, RequestKind.LOG_DIR) for row in self.context.of_kind(kind)}
        delete_all(self.control, old)

    def isr_changes(self) -> set[Key]:
        """Read ISRs that leaders have changed, and send them to all brokers; return the changed partitions."""
        notified = self.context.of_kind(RequestKind.ISR_CHANGE)
        if not notified:
            return set()
        keys = {row.key for row in notified}
        changed = self.reader.refresh_partitions(keys)
        self.broker_requests.send_metadata(keys)  # also if a change was read before its notification
        delete_all(self.control, {row.path for row in notified})
        return changed

    def log_dirs(self) -> None:
        """Ask brokers that report a failed log dir which replicas it held.

        A broker has responded once its queue is idle; the notification is deleted then.
        """
        for row in self.context.of_kind(RequestKind.LOG_DIR):
            if row.broker_id is not None and row.path not in self._log_dirs:
                self._log_dirs[row.path] = row.broker_id
                self.broker_requests.ask_for_log_dirs(row.broker_id)
        if self._log_dirs and self.responses.is_quiet:
            busy = set(self.broker_requests.channels.busy)
            finished = {path for path, broker in self._log_dirs.items() if broker not in busy}
            delete_all(self.control, finished)
            self._log_dirs = {path: broker for path, broker in self._log_dirs.items() if path not in finished}
