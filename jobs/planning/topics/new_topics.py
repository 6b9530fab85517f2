"""Requested new topics, and the reasons why Kafka, ZooKeeper or the snapshot do not allow them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from jobs.core.errors import Fault, RefusedError, UsageError
from jobs.planning.planning_tables import PlanningTables, since_snapshot
from jobs.planning.topics.existing_topic import name_fault
from jobs.preconditions.config_validation import config_faults
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import table_as_of
from jobs.runtime.input_files import assignment_faults, read_new_topics
from planner.topics.znode_size import size_faults, topic_bytes
from schemas.internal_topics import METADATA_TOPIC, unmet_configs
from schemas.rows import Topic
from schemas.text import join_ids
from schemas.topic_configs import conflicts
from schemas.znode_codecs import Assignment, encode_assignment, metric_name


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A new topic: sizes for the algorithm, or explicit replicas."""

    name: str
    partitions: int | None
    replication_factor: int | None
    by_hand: list[list[int]] | None
    configs: dict[str, str]

    @property
    def title(self) -> str:
        """The name, quoted if it is invalid."""
        return repr(self.name[:300]) if name_fault(self.name) else self.name

    @property
    def internal_risk(self) -> str | None:
        """The risk of creating an internal topic without the configs that its owner needs; None without one."""
        factor = self.replication_factor if self.by_hand is None else min(map(len, self.by_hand), default=None)
        unmet = unmet_configs(self.name, self.configs, factor)
        if not unmet:
            return None
        options = " ".join(f"--config {name}={value}" for name, value in unmet.items())
        return f"its owner creates it with other configs and loses records without them, add {options}"

    def is_like(self, topic: Topic, replicas: list[list[int]]) -> bool:
        """Return whether an existing topic with these replicas has the requested sizes or replicas, and configs."""
        if topic.deletion_requested or not self.configs.items() <= (topic.config or {}).items():
            return False
        if self.by_hand is not None:
            return replicas == self.by_hand
        return [*map(len, replicas)] == [self.replication_factor] * (self.partitions or 0)

    def meaning_faults(self, *, in_file: bool, unknown_allowed: bool) -> Iterator[str]:
        """Yield contradictions of the request, in the terms of a file or of the command line."""
        counts = (self.partitions, self.replication_factor)
        prefix, sizes, by_hand = "", "--partitions and --replication-factor", "--replica-assignment"
        if in_file:
            prefix, sizes, by_hand = f"topic {self.title}: ", "partitions and replication_factor", "replica_assignment"
        if self.by_hand is None and None in counts:
            yield f"{prefix}expected {sizes}, or {by_hand}"
        if self.by_hand is not None and any(count is not None for count in counts):
            yield f"{prefix}{by_hand} sets the sizes: leave out {sizes}"
        option = "config" if in_file else "--config"
        for fault in (*config_faults(self.configs, unknown_allowed=unknown_allowed), *conflicts(self.configs)):
            yield f"{prefix}{option}: {fault}"

    def placement_faults(self, tables: PlanningTables, brokers: Sequence[int], live: Sequence[int]) -> Iterator[str]:
        """Yield faults of the placement: on `brokers`, or of explicit replicas on brokers that are not live."""
        max_bytes = tables.snapshot.names.max_assignment_bytes
        if self.by_hand is not None:
            yield from (f"topic {self.title}: {fault}" for fault in assignment_faults(self.by_hand))
            unknown = sorted(set(chain.from_iterable(self.by_hand)).difference(live))
            if unknown:
                yield f"topic {self.title}: {not_alive_fault(tables, unknown, live)}"
            by_hand = Assignment(dict(enumerate(self.by_hand)), {}, {}, None)
            yield from size_faults(self.name, len(encode_assignment(by_hand)), max_bytes)
        elif self.partitions is None or self.replication_factor is None:
            return
        elif self.replication_factor > len(brokers):
            yield (
                f"topic {self.title}: replication factor {self.replication_factor} is larger than the {len(brokers)} "
                f"brokers to use ({', '.join(map(str, brokers))}); start more brokers or ask for fewer replicas"
            )
        else:
            size = topic_bytes(self.partitions, self.replication_factor, brokers)
            yield from size_faults(self.name, size, max_bytes)


def topics_in(path: Path) -> list[NewTopic]:
    """Read a file of new topics."""
    return [
        NewTopic(
            name=entry.topic,
            partitions=entry.partitions,
            replication_factor=entry.replication_factor,
            by_hand=entry.replica_assignment,
            configs=entry.config,
        )
        for entry in read_new_topics(path)
    ]


def not_alive_fault(tables: PlanningTables, unknown: Collection[int], live: Iterable[int]) -> str:
    return (
        f"brokers {join_ids(unknown)} are not live in the snapshot; live are {join_ids(live)}; "
        f"{since_snapshot(tables, unknown)}"
    )


def topic_name_faults(tables: SnapshotTables, names: Sequence[str]) -> Iterator[Fault]:
    """Yield names that are invalid, taken, or collide with others.

    Kafka's metrics replace dots by underscores, so names that differ only in these collide (`Topic.hasCollision`).
    """
    count = Counter(names)
    faults = {name: name_fault(name) for name in count}
    yield from ((UsageError, fault) for fault in faults.values() if fault is not None)
    valid = [name for name in count if faults[name] is None]
    yield from ((UsageError, f"topic {name} is requested {count[name]} times") for name in valid if count[name] > 1)
    if METADATA_TOPIC in count:
        yield (
            RefusedError,
            f"topic {METADATA_TOPIC} is KRaft's own log, which Kafka does not create; choose another name",
        )
    taken = _by_metric_name(
        table_as_of(tables.warehouse, tables.snapshot, "topics", columns=["topic"])["topic"].to_pylist()
    )
    requested = _by_metric_name(valid)
    for name in valid:
        taken_alike = taken[metric_name(name)]
        others = sorted({*taken_alike, *requested[metric_name(name)]} - {name})
        if name in taken_alike:
            snapshot_id = tables.snapshot.snapshot_id
            change = "`surveyor plan expand` adds partitions to it, `surveyor plan config` changes its configs"
            yield RefusedError, f"topic {name} exists in snapshot {snapshot_id}; choose another name; {change}"
        elif others:
            yield RefusedError, f"topic {name} collides with {others[0]}: '.' and '_' are one in metric names"


def _by_metric_name(topics: Iterable[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        grouped[metric_name(topic)].append(topic)
    return grouped
