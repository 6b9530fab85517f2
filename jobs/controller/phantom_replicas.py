"""Rewrites the assignments of new topics that name the controller as a replica, before their first states.

While this controller is among the live brokers, a broker that creates a topic may assign replicas to it
(`planner.rules.phantom_replacement`). No broker has been sent such a partition: its first state is written afterwards.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from msgspec.structs import replace

from jobs.adapters.zookeeper.connection import read
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi import SetData
from jobs.adapters.zookeeper.precondition_reader import topic_path
from jobs.controller.context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from planner.rules.phantom_replacement import without_phantom
from schemas.rows import Key
from schemas.text import pluralise
from schemas.znodes import MalformedZnodeError, decode_assignment, encode_assignment


@dataclass(slots=True)
class PhantomReplicas:
    """Rewrites assignments under one controllership."""

    control: Controllership
    context: ControllerContext
    reader: MetadataReader
    log_line: Callable[[str], None]

    def replace_all(self) -> set[Key]:
        """Rewrite the assignments of partitions without a state that name us; return the partitions that changed."""
        pending = self.pending()
        topics = {topic for topic, _ in pending}
        for topic in sorted(topics):
            self._rewrite(topic, {partition for name, partition in pending if name == topic})
        return self.reader.refresh_topics(topics) if topics else set()

    def pending(self) -> set[Key]:
        """Return the partitions whose first state must wait, because they have a replica on us."""
        rows = (self.context.partitions[key] for key in self.context.of_broker(self.control.controller_id))
        return {
            row.key
            for row in rows
            if self.control.controller_id in row.replicas and not row.had_state and row.understood
        }

    def _rewrite(self, topic: str, pending: Collection[int]) -> None:
        """Rewrite a topic; if it has changed since, or no broker is alive, the next cycle tries again."""
        znode = read(self.control.client, topic_path(topic))
        if znode.version is None:
            return
        try:
            assignment = decode_assignment(znode.data)
        except MalformedZnodeError:
            return  # it is read again, and is in quarantine then
        racks = {broker: self.context.brokers[broker].rack for broker in self.context.live}
        replaced = {
            partition: replicas
            for partition, replicas in without_phantom(assignment.partitions, self.control.controller_id, racks).items()
            if partition in pending
        }
        if not replaced:
            return
        data = encode_assignment(replace(assignment, partitions=assignment.partitions | replaced))
        if self.control.commit([SetData(topic_path(topic), data, znode.version)]) is None:
            count = pluralise(len(replaced), "replica")
            self.log_line(f"  topic {topic}: moved {count} from the controller's id to live brokers")
