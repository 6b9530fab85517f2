"""A cache of decisions: partitions that no rule can distinguish are decided on once, for one set of brokers.

After a failure thousands of partitions differ only in their names, epochs and versions. No rule of leadership depends
on these; a leader epoch is raised by one, whatever it was. So one partition of each class is decided on, and the
decision is applied to the others; a test decides on each partition separately and compares. A partition that is named
by a request, moves or is being deleted is always a class of its own, because rules for these do depend on names and
epochs.
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
"""Classes of partitions in the cache, of some 2 kB each.

Beyond these, the least recently used set of brokers is dropped.
"""


@dataclass(frozen=True, slots=True)
class PartitionClass:
    """A class of partitions with the same key. A class without a key holds exactly one partition."""

    key: Hashable
    members: list[Key]

    @property
    def first(self) -> Key:
        """The partition that is decided on."""
        return self.members[0]


@dataclass(slots=True)
class DecisionCache:
    """Decisions by class of partitions, for each set of brokers; decisions depend on nothing else."""

    by_brokers: dict[bytes, dict[Hashable, list[Row]]] = field(default_factory=dict)
    """Ordered by use, the most recently used last."""

    def for_brokers(self, brokers: Sequence[Row]) -> dict[Hashable, list[Row]]:
        """Return the cached decisions for these brokers; the caller may add to them."""
        cache_key = msgspec.json.encode(brokers)
        cached = self.by_brokers[cache_key] = self.by_brokers.pop(cache_key, {})
        while len(self.by_brokers) > 1 and sum(map(len, self.by_brokers.values())) > MAX_CACHED_CLASSES:
            del self.by_brokers[next(iter(self.by_brokers))]
        return cached


def group_by_class(
    context: ControllerContext, keys: Collection[Key], separate: Collection[Key]
) -> list[PartitionClass]:
    """Group `keys` into classes; those in `separate` get a class of their own."""
    topics: dict[str, Hashable] = {}
    members_of: dict[Hashable, list[Key]] = defaultdict(list)
    singletons = []
    for key in keys:
        row = context.partitions.get(key)
        if row is None:
            continue
        if key in separate:
            singletons.append(PartitionClass(None, [key]))
            continue
        if row.topic not in topics:
            topics[row.topic] = _topic_key(context.topics.get(row.topic))
        members_of[topics[row.topic], frozenset(context.failed.get(key, ())), *_class_key(row)].append(key)
    return [*singletons, *(PartitionClass(class_key, members) for class_key, members in members_of.items())]


def _topic_key(topic: Row | None) -> Hashable:
    """Return all columns of TOPICS that a rule of leadership depends on."""
    if topic is None:
        return None
    config = tuple(sorted((topic["config"] or {}).items()))
    return topic["understood"], topic["deletion_requested"], topic["topic_id"] is None, config


def _class_key(row: PartitionInfo) -> tuple[Hashable, ...]:
    """Return all columns of PARTITIONS without names; of epochs and versions only whether they exist."""
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
    context: ControllerContext, classes: Iterable[PartitionClass], cached: Mapping[Hashable, Sequence[Row]]
) -> Iterator[Row]:
    """Yield the cached decisions, once for each member of a class."""
    for partition_class in classes:
        for row in cached[partition_class.key]:
            for key in partition_class.members:
                yield row | _own_columns(context, row, context.partitions[key])


def _own_columns(context: ControllerContext, row: Row, partition: PartitionInfo) -> dict[str, Any]:
    """Return the columns of a decision that differ between the members of a class."""
    before, after = row["leader_epoch_before"], row["leader_epoch_after"]
    raised = None if before is None or after is None else after - before
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": context.topic_id(partition.topic),
        "topic_version": partition.topic_version,
        "leader_epoch_before": partition.leader_epoch,
        "leader_epoch_after": after if raised is None else (partition.leader_epoch or 0) + raised,
        "controller_epoch_before": partition.controller_epoch,
        "state_version": NO_VERSION if partition.state_version is None else partition.state_version,
    }
