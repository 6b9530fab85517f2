"""Takes the controller out of the assignments of new topics, before their partitions get a leader and an ISR.

A broker assigns the replicas of an auto-created topic to any live broker of its metadata
(`AutoTopicCreationManager.createTopicsInZk`), and a controller that brokers send requests to is among them, although it
stores nothing. No broker has been sent such a partition: its first state is written afterwards.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_operations import SetData
from jobs.adapters.zookeeper.znode_reads import read
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from schemas.rows import Key
from schemas.text import pluralise
from schemas.znode_codecs import MalformedZnodeError, decode_assignment, encode_assignment
from schemas.znode_paths import topic_path


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
        """Rewrite a topic; if it has changed since, or no broker is live, the next cycle tries again."""
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


def without_phantom(
    assignment: Mapping[int, Sequence[int]], phantom: int, racks: Mapping[int, str | None]
) -> dict[int, list[int]]:
    """Return the replicas of the partitions that name the phantom, with another broker in its place.

    `assignment`: all partitions of a topic. `racks`: the brokers that may get a replica. Brokers without a
    replica of the partition are ordered by three criteria: a rack that has no other replica, few replicas of the topic
    at that place, which keeps preferred leaders even, and few replicas. If every broker has a replica, the list gets
    shorter. A partition that would have no replica is left out.

    >>> without_phantom({0: [9, 1], 1: [1, 2], 2: [2, 9]}, 9, {1: None, 2: None, 3: None})
    {0: [3, 1], 2: [2, 3]}
    >>> without_phantom({0: [1, 9, 2]}, 9, {1: None, 2: None})
    {0: [1, 2]}
    """
    places = [(place, broker) for replicas in assignment.values() for place, broker in enumerate(replicas)]
    at_place, in_all = Counter(places), Counter(broker for _, broker in places)
    replaced = {}
    for partition, replicas in sorted(assignment.items()):
        if phantom not in replicas:
            continue
        place = replicas.index(phantom)
        others = [broker for broker in replicas if broker != phantom]
        used_racks = {racks.get(broker) for broker in others} - {None}
        candidates = sorted(
            (racks[broker] in used_racks, at_place[place, broker], in_all[broker], broker)
            for broker in racks
            if broker not in others and broker != phantom
        )
        if candidates:
            replacement = candidates[0][-1]
            at_place[place, replacement] += 1
            in_all[replacement] += 1
            others.insert(place, replacement)
        if others:
            replaced[partition] = others
    return replaced
