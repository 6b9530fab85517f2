"""`plan assign`: new topics, their replicas placed by the algorithm or given, checked against a snapshot."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import Fault, RefusedError, UsageError, raise_any
from jobs.planning.broker_features import config_notes, have_topic_ids
from jobs.planning.internal_topic_permission import NOT_ALLOWED, InternalTopics
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.planning_tables import PlanningTables
from jobs.planning.topics.new_partition_placement import (
    BALANCED,
    RACK_AWARE,
    SIMPLE,
    SPREAD_LATER,
    STRATEGIES,
    crowded,
    may_crowd,
    place_topics,
    placed_frame,
    racks_of,
    racks_parameter,
)
from jobs.planning.topics.new_topics import NewTopic, not_alive_fault, topic_name_faults
from jobs.repositories.snapshots import rows_as_of
from planner.topics.creation import creation_changes
from schemas.enums import PlanKind
from schemas.operation_data import CreatedTopic
from schemas.rows import Broker, Partition, Row, Snapshot, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRequest:
    """The request of `plan assign`."""

    topics: Sequence[NewTopic]
    from_file: bool
    brokers: list[int] | None
    start_index: int | None
    shift: int | None
    strategy: str
    rack_aware: bool
    unknown_config_allowed: bool = False
    internal: InternalTopics = NOT_ALLOWED

    def check(self) -> None:
        """Refuse contradictory options before anything is read; the faults of a file are reported together later."""
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if not self.from_file:
            raise_any(self._meaning_faults())

    def plan(self, tables: PlanningTables) -> PlanDraft:
        """Plan the topics on a snapshot."""
        if self._is_done(tables):
            return PlanDraft(PlanKind.ASSIGN, {"exist": self._names}, changes=None)
        registered = tables.live_brokers()
        live = sorted(row.broker_id for row in registered if row.understood)
        if not live:
            raise RefusedError(
                f"no broker is live in the snapshot, so none can hold {', '.join(self._names[:3])}; "
                "start brokers, then run `surveyor snapshot` again",
            )
        brokers = self.brokers or live
        racks = self._racks([row for row in registered if row.broker_id in brokers])
        raise_any(self._faults(tables, brokers, live, racks))
        usable = [row for row in registered if row.broker_id in (brokers if self._by_rule else live)]
        return self._planned(tables, brokers, usable, racks if isinstance(racks, dict) else {})

    @property
    def _names(self) -> list[str]:
        return [topic.name for topic in self.topics]

    def _is_done(self, tables: PlanningTables) -> bool:
        """Return whether all topics exist as they are requested."""
        of_topics = tables.warehouse, tables.snapshot
        rows = {row.topic: row for row in rows_as_of(*of_topics, Topic, ("topic", "in", self._names))}
        if not rows or rows.keys() != {*self._names}:
            return False
        partitions = rows_as_of(*of_topics, Partition, ("topic", "in", self._names))
        replicas: dict[str, list[list[int]]] = {name: [] for name in rows}
        for row in sorted(partitions, key=attrgetter("partition")):
            replicas[row.topic].append(row.replicas or [])
        return all(topic.is_like(rows[topic.name], replicas[topic.name]) for topic in self.topics)

    @property
    def _by_rule(self) -> list[NewTopic]:
        return sorted((topic for topic in self.topics if topic.by_hand is None), key=lambda topic: topic.name)

    def _meaning_faults(self) -> Iterator[Fault]:
        for topic in self.topics:
            for fault in topic.meaning_faults(in_file=self.from_file, unknown_allowed=self.unknown_config_allowed):
                yield UsageError, fault
            if (risk := topic.internal_risk) is not None:
                for fault in self.internal.faults([topic.name], risk):
                    yield RefusedError, fault

    def _racks(self, brokers: Sequence[Broker]) -> dict[int, str] | Fault:
        if not (self.rack_aware and self.strategy in RACK_AWARE and self._by_rule):
            return {}
        try:
            return racks_of(brokers, "leave them out with --brokers, place replicas manually,")
        except RefusedError as error:
            return RefusedError, str(error)

    def _faults(
        self, tables: PlanningTables, brokers: list[int], live: list[int], racks: dict[int, str] | Fault
    ) -> Iterator[Fault]:
        yield from self._meaning_faults()
        yield from topic_name_faults(tables, self._names)
        unknown = sorted(set(brokers) - set(live))
        if unknown:
            yield RefusedError, not_alive_fault(tables, unknown, live)
        if isinstance(racks, tuple):
            yield racks
        for topic in self.topics:
            for fault in topic.placement_faults(tables, brokers, live):
                yield RefusedError, fault

    def _planned(
        self, tables: PlanningTables, brokers: list[int], usable: Sequence[Broker], racks: dict[int, str]
    ) -> PlanDraft:
        by_topic = {topic.name: _by_hand(topic) for topic in self.topics if topic.by_hand}
        by_topic |= zip((topic.name for topic in self._by_rule), self._placements(len(brokers)), strict=True)
        names = sorted(by_topic)
        rows = [by_topic[name] for name in names]
        with_ids = have_topic_ids(tables)
        ids = {name: new_topic_id(tables.snapshot, name) if with_ids else None for name in self._names}
        configs = {topic.name: topic.configs for topic in self.topics}
        settled: dict[str, Any] = {"strategy": self.strategy, "brokers": brokers} if self._by_rule else {}
        settled |= racks_parameter(racks)
        placed = place_topics(rows, settled)
        assignments = placed_frame(tables.spark_warehouse, placed).join(F.broadcast(_topic_ids(tables, ids)), "topic")
        changes = creation_changes(assignments, tables["brokers"], tables.warehouse.cluster)
        details = [_operation_data(tables, ids[name], configs[name]) for name in names]
        operations = [
            data.operation(name, number) for number, (name, data) in enumerate(zip(names, details, strict=True))
        ]
        topic_parameters = [_parameters_of(row) | data.columns for row, data in zip(rows, details, strict=True)]
        parameters = settled | ({"topics": topic_parameters} if self.from_file else topic_parameters[0])
        parameters |= {"allow_unknown_config": True} if self.unknown_config_allowed else {}
        parameters |= tables.racks.parameter if self.rack_aware else {}
        parameters |= self.internal.parameters
        if self._may_crowd(usable):
            parameters |= crowded(placed, usable, self._crowding_advice)
        return PlanDraft(PlanKind.ASSIGN, parameters, changes, operations=operations)

    def _may_crowd(self, brokers: Sequence[Broker]) -> bool:
        """Return whether new partitions may have more replicas in one rack than necessary, unless racks are ignored."""
        sizes = [topic.replication_factor or 0 for topic in self._by_rule]
        freely = len(self._by_rule) < len(self.topics) or self.strategy == SIMPLE
        return self.rack_aware and (freely or may_crowd(max(sizes, default=0), brokers))

    @property
    def _crowding_advice(self) -> str:
        by_rule = self._by_rule and self.strategy != BALANCED
        return f"--strategy {BALANCED} spreads them; {SPREAD_LATER}" if by_rule else SPREAD_LATER

    def _placements(self, brokers: int) -> Iterator[Row]:
        """Yield the input of the algorithm; the start of the first topic is derived from its name by default."""
        topics = self._by_rule
        sizes = [topic.partitions or 0 for topic in topics]
        seed = int.from_bytes(hashlib.sha256(topics[0].name.encode()).digest()[:8]) if topics else 0
        start = seed % brokers if self.start_index is None else self.start_index
        seeded = (seed >> 32) % brokers
        kafkas = seeded if self.start_index is None else self.start_index  # Kafka's fixed start is the first shift too
        shift = kafkas if self.shift is None else self.shift
        for topic, before in zip(topics, accumulate(sizes, initial=0), strict=False):
            yield {
                "topic": topic.name,
                "first_partition": 0,
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "start_index": (start + before) % brokers if before else start,
                "shift": shift + before // brokers,
            }


def _by_hand(topic: NewTopic) -> Row:
    return {"topic": topic.name, "first_partition": 0, "replica_assignment": topic.by_hand}


def _operation_data(tables: PlanningTables, topic_id: str | None, config: dict[str, str]) -> CreatedTopic:
    return CreatedTopic(topic_id=topic_id, config=config, **config_notes(tables, config))


def _parameters_of(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "first_partition"}


def _topic_ids(tables: PlanningTables, ids: dict[str, str | None]) -> DataFrame:
    return tables.spark_warehouse.spark.createDataFrame(list(ids.items()), "topic string, topic_id string")


def new_topic_id(snapshot: Snapshot, topic: str) -> str:
    """Generate a topic id as Kafka does, deterministic for the snapshot: 22 characters of base64url.

    Ids that begin with a dash are skipped, as in Kafka, for the sake of command lines.
    """
    for attempt in range(1000):
        seed = json.dumps([snapshot.cluster_id, snapshot.zxid_after, snapshot.snapshot_id, topic, attempt])
        text = base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).decode().rstrip("=")
        if not text.startswith("-"):
            return text
    raise AssertionError("a thousand hashes in a row begin with a dash")
