"""Partitions that no rule can tell apart are decided on once, and what was decided among the same brokers holds.

After a failure thousands of partitions differ in their names, epochs and versions alone. No rule of leadership goes by
these: a leader epoch is raised by one, whatever it was. So of those that are alike one is decided on, and the others
get what it gets; a test decides on each by itself, and finds the same. What a request names, what moves and what is
deleted always stands for itself, as rules about these do look at names and epochs.

In: the memory and keys. Out: kinds of partitions, and rows of DECISIONS.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from jobs.adapters.delta.warehouse import Row
from jobs.controller.context import ControllerContext, PartitionInfo
from schemas.enums import NO_VERSION
from schemas.rows import Key

MAX_CACHED_CLASSES: Final = 100_000
"""Kinds of partitions of which is known what to do, before what was asked for longest ago goes; some 2 kB each."""


@dataclass(frozen=True, slots=True)
class PartitionClass:
    """Partitions that are alike; without a likeness one that stands for itself."""

    key: Hashable
    members: list[Key]

    @property
    def first(self) -> Key:
        """The one that is decided on."""
        return self.members[0]


@dataclass(slots=True)
class DecisionCache:
    """What was decided of kinds of partitions, by who was there; rules are told nothing else."""

    by_brokers: dict[bytes, dict[Hashable, list[Row]]] = field(default_factory=dict)
    """The latest asked about last."""

    def for_brokers(self, brokers: Sequence[Row]) -> dict[Hashable, list[Row]]:
        """What is known where these are the brokers; it may be added to."""
        there = msgspec.json.encode(brokers)
        known = self.by_brokers[there] = self.by_brokers.pop(there, {})
        while len(self.by_brokers) > 1 and sum(map(len, self.by_brokers.values())) > MAX_CACHED_CLASSES:
            del self.by_brokers[next(iter(self.by_brokers))]
        return known


def group_by_class(memory: ControllerContext, keys: Collection[Key], apart: Collection[Key]) -> list[PartitionClass]:
    """Find which of `keys` are alike; those in `apart` stand for themselves alone."""
    topics: dict[str, Hashable] = {}
    members_of: dict[Hashable, list[Key]] = defaultdict(list)
    alone = []
    for key in keys:
        row = memory.partitions.get(key)
        if row is None:
            continue
        if key in apart:
            alone.append(PartitionClass(None, [key]))
            continue
        if row.topic not in topics:
            topics[row.topic] = _topic_key(memory.topics.get(row.topic))
        members_of[topics[row.topic], frozenset(memory.failed.get(key, ())), *_class_key(row)].append(key)
    return [*alone, *(PartitionClass(likeness, members) for likeness, members in members_of.items())]


def _topic_key(topic: Row | None) -> Hashable:
    """All columns of TOPICS that a rule of leadership goes by."""
    if topic is None:
        return None
    config = tuple(sorted((topic["config"] or {}).items()))
    return topic["understood"], topic["deletion_requested"], topic["topic_id"] is None, config


def _class_key(row: PartitionInfo) -> tuple[Hashable, ...]:
    """All columns of PARTITIONS, but for the names, and of epochs and versions only whether there is one."""
    return (
        tuple(row.replicas),
        tuple(row.adding_replicas),
        tuple(row.removing_replicas),
        None if row.isr is None else tuple(row.isr),
        row.leader,
        row.leader_recovery_state,
        row.understood,
        row.leader_epoch is None,
        row.controller_epoch is None,
        row.state_version is None,
    )


def expand(
    memory: ControllerContext, kinds: Iterable[PartitionClass], known: Mapping[Hashable, Sequence[Row]]
) -> Iterator[Row]:
    """Yield what is known of kinds of partitions, for each of their members."""
    for kind in kinds:
        for row in known[kind.key]:
            for key in kind.members:
                yield row | _of_its_own(memory, row, memory.partitions[key])


def _of_its_own(memory: ControllerContext, row: Row, partition: PartitionInfo) -> dict[str, Any]:
    """The columns of a decision in which a partition differs from who stood for it."""
    before, after = row["leader_epoch_before"], row["leader_epoch_after"]
    raised = None if before is None or after is None else after - before
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": memory.topic_id(partition.topic),
        "topic_version": partition.topic_version,
        "leader_epoch_before": partition.leader_epoch,
        "leader_epoch_after": after if raised is None else (partition.leader_epoch or 0) + raised,
        "controller_epoch_before": partition.controller_epoch,
        "state_version": NO_VERSION if partition.state_version is None else partition.state_version,
    }
