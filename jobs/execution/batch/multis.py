"""The multis for changes: each fenced, proving its premises, and bounded in bytes as in rows.

A topic whose znode is large, or that grows, is written in a multi of its own, before those of its states. A crash in
between leaves a topic without some states: the next commit finds it as it planned it and goes on, and so would Kafka's
controller, to which such a topic is a new one (`onPartitionCreation`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.client import TransactionRequest

from jobs.adapters.zookeeper.cluster import BROKER_IDS, CONFIGS, TOPICS
from jobs.adapters.zookeeper.connection import Znode, create_null, set_data
from jobs.adapters.zookeeper.controllership import Controllership, check_absent, check_registered
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.assessment.premises import adds_partition, state_path, topic_path
from jobs.execution.batch.topic_znodes import TopicZnodes
from schemas.names import NO_VERSION
from schemas.rows import Change
from schemas.znodes import encode_state

MULTI_BYTES: Final = 1 << 19
"""What a multi of states does not exceed: half of jute.maxbuffer (1 MB), beyond which servers close the connection."""

ALONE: Final = 1 << 17
"""Bytes of a topic that no longer shares a multi with states."""

_OPERATION: Final = 60
"""Bytes of an operation around its path and data, at most: header, lengths, ACL, version."""

_STATE: Final = 160
"""Bytes of a state without its ISR, at most."""

_IN_ISR: Final = 12
"""Bytes of a broker in an ISR, at most."""


@dataclass(slots=True)
class FencedMultis:
    """Makes multis under one controllership."""

    control: Controllership
    topics: TopicZnodes

    def batches(self, changes: Sequence[Change], most: int) -> Iterator[list[Change]]:
        """Cut changes into what fits into a multi each, `most` of them at most."""
        batch: list[Change] = []
        size, counted = 0, set[str]()
        for change in changes:
            more = self._row_bytes(change)
            topic = self._shared_bytes(change.topic)
            if batch and (len(batch) >= most or size + more + topic * (change.topic not in counted) > MULTI_BYTES):
                yield batch
                batch, size, counted = [], 0, set()
            size += more + topic * (change.topic not in counted)
            counted.add(change.topic)
            batch.append(change)
        if batch:
            yield batch

    def _row_bytes(self, change: Change) -> int:
        """At most three paths, the longest of them its state's, and the state."""
        path = len(self.control.client.chroot) + len(state_path(change))
        return 3 * (path + _OPERATION) + _OPERATION + _STATE + _IN_ISR * len(change.isr_after)

    def _shared_bytes(self, topic: str) -> int:
        """What a topic to be created adds to the multi of its first state: itself, its configuration, its folder."""
        if topic not in self.topics.creations or self._is_large(topic):
            return 0
        path = len(f"{self.control.client.chroot}{TOPICS}/{topic}/partitions")
        return 3 * (path + _OPERATION) + sum(map(len, self.topics.created(topic)))

    def _is_large(self, topic: str) -> bool:
        return sum(map(len, self.topics.created(topic))) > ALONE

    def missing(self, due: Sequence[Change]) -> list[str]:
        """Topics that must be written in a multi of their own before the states of these changes."""
        grows = dict.fromkeys(topic_path(change) for change in due if adds_partition(change))
        made = {change.topic: None for change in due if change.topic in self.topics.creations}
        large = [f"{TOPICS}/{topic}" for topic in made if self._is_large(topic)]
        found = read_many(self.control.client, [*grows, *large])
        return [_name(znode) for znode in found if self._is_missing(znode, grows=znode.path in grows)]

    def _is_missing(self, znode: Znode, *, grows: bool) -> bool:
        if grows:
            return znode.stat is not None and self.topics.grown(_name(znode), znode.data) is not None
        return znode.stat is None

    def of_topic(self, topic: str, due: Sequence[Change]) -> TransactionRequest:
        """Make or grow one topic, if the premises of the changes due to it hold."""
        mine = [change for change in due if change.topic == topic]
        multi = self._begin(mine)
        found, config = read_many(self.control.client, [f"{TOPICS}/{topic}", f"{CONFIGS}/{topic}"])
        if topic in self.topics.creations:
            self._create(multi, topic, config_exists=config.stat is not None)
        else:
            data = self.topics.grown(topic, found.data) or found.data or b""
            multi.set_data(found.path, data, mine[0].topic_version)
        return multi

    def of_states(self, due: Sequence[Change]) -> TransactionRequest:
        """Write the states of these changes, and make the small topics among theirs that are not there."""
        multi = self._begin(due)
        found = self._existing(due)
        for change in {change.topic: change for change in reversed(due)}.values():
            self._add_topic(multi, change, found)
        for change in due:
            self._add_state(multi, change, found)
        return multi

    def _begin(self, due: Sequence[Change]) -> TransactionRequest:
        multi = self.control.transaction()
        for broker in sorted({broker for change in due for broker in leans_on(change)}):
            check_registered(multi, broker)
        for broker in sorted({broker for change in due for broker in change.requires_dead}):
            check_absent(multi, broker)
        return multi

    def _existing(self, due: Sequence[Change]) -> dict[str, Znode]:
        """Read the znodes that a creation needs, there or not."""
        paths: list[str] = []
        for change in due:
            if change.state_version == NO_VERSION:
                topic = topic_path(change)
                paths += [topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions"]
                paths.append(state_path(change).rsplit("/", 1)[0])
        return {znode.path: znode for znode in read_many(self.control.client, list(dict.fromkeys(paths)))}

    def _add_topic(self, multi: TransactionRequest, change: Change, found: dict[str, Znode]) -> None:
        """Check a topic's version, or create it with all its partitions."""
        topic, path = change.topic, topic_path(change)
        if adds_partition(change):
            multi.check(path, self._grown_version(change, found[path]))
        elif topic not in self.topics.creations:
            multi.check(path, change.topic_version)
        elif found[path].stat is not None or self._is_large(topic):
            multi.check(path, found[path].version or 0)
        else:
            self._create(multi, topic, config_exists=found[f"{CONFIGS}/{topic}"].stat is not None)
        if change.state_version == NO_VERSION and found[f"{path}/partitions"].stat is None:
            create_null(multi, f"{path}/partitions")

    def _grown_version(self, change: Change, topic: Znode) -> int:
        """The version of a topic that has the planned partitions; of one that has not, one it is not at any more."""
        grown = topic.stat is None or self.topics.grown(change.topic, topic.data) is not None
        return int(change.topic_version) if grown or topic.version is None else topic.version

    def _create(self, multi: TransactionRequest, topic: str, *, config_exists: bool) -> None:
        assignment, config = self.topics.created(topic)
        if config_exists:
            multi.set_data(f"{CONFIGS}/{topic}", config)
        else:
            multi.create(f"{CONFIGS}/{topic}", config)
        multi.create(f"{TOPICS}/{topic}", assignment)

    def _add_state(self, multi: TransactionRequest, change: Change, found: dict[str, Znode]) -> None:
        path = state_path(change)
        if change.state_version != NO_VERSION:
            set_data(multi, path, self._state(change), change.state_version)
            return
        parent = path.rsplit("/", 1)[0]
        if found[parent].stat is None:
            create_null(multi, parent)
        multi.create(path, self._state(change))

    def _state(self, change: Change) -> bytes:
        return encode_state(change.state_after(self.control.epoch))


def leans_on(change: Change) -> set[int]:
    """Brokers that must be registered when a change is written."""
    leader = change.leader_after
    return set(change.requires_live) | ({leader} if leader >= 0 else set())


def touched(change: Change) -> set[str]:
    """Znodes that only some changes touch or count on, this one among them."""
    topic, state = topic_path(change), state_path(change)
    own = {topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions", state.rsplit("/", 1)[0], state}
    return own | {f"{BROKER_IDS}/{broker}" for broker in leans_on(change) | set(change.requires_dead)}


def _name(topic: Znode) -> str:
    return topic.path.rsplit("/", 1)[1]
