"""Partitions added to a topic, by Kafka's algorithm or with explicit replicas."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from jobs.core.errors import RefusedError, UsageError, raise_any
from jobs.planning.internal_topic_permission import NOT_ALLOWED, InternalTopics
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.planning_tables import PlanningTables, requests_of
from jobs.planning.topics.existing_topic import ExistingTopic, find_topic, is_assignment_understood
from jobs.planning.topics.new_partition_placement import (
    SPREAD_LATER,
    crowded,
    may_crowd,
    place_topics,
    placed_frame,
    racks_of,
    racks_parameter,
)
from jobs.planning.topics.new_topics import not_alive_fault
from planner.rules.replica_placement import start_of_round
from planner.topics.creation import expansion_changes
from planner.topics.znode_size import size_faults, topic_bytes
from schemas.enums import PlanKind
from schemas.operation_data import ExpandedTopic
from schemas.rows import Broker
from schemas.text import pluralise


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandRequest:
    """The request of `plan expand`."""

    topic: str
    partitions: int
    by_hand: list[list[int]] | None
    rack_aware: bool
    internal: InternalTopics = NOT_ALLOWED

    def check(self) -> None:
        """Refuse expansions that lose groups' offsets, transactions and the like, before anything is read."""
        risk = (
            "its number of partitions determines where its owner looks for its records, so it does not find them after "
            "an expansion"
        )
        self.internal.refuse([self.topic], risk)

    def plan(self, tables: PlanningTables) -> PlanDraft:
        """Plan the added partitions on a snapshot."""
        topic = find_topic(tables, self.topic)
        _refuse_unsettled(tables, topic)
        existing = len(topic.partitions)
        now = [row.replicas for row in topic.partitions]
        if self.partitions == existing and (self.by_hand is None or self.by_hand == now[-len(self.by_hand) :]):
            parameters = {"topic": self.topic, "existing": existing, "partitions": self.partitions}
            return PlanDraft(PlanKind.EXPAND, parameters, changes=None)
        if self.partitions <= existing:
            raise RefusedError(
                f"topic {self.topic} has {pluralise(existing, 'partition')}: --partitions "
                f"{self.partitions} adds none, and Kafka "
                "cannot remove any; ask for more",
            )
        registered = tables.live_brokers()
        live = sorted((row for row in registered if row.understood), key=lambda row: row.broker_id)
        placement: dict[str, Any] = {"topic": self.topic, "existing": existing, "partitions": self.partitions}
        if self.by_hand is None:
            placement |= self._placement(tables, topic, live)
        else:
            placement["replica_assignment"] = self._added(tables, topic, live, self.by_hand)
        # Kafka's fixed start is the first shift too
        row = placement | {"first_partition": existing, "shift": placement.get("start_index")}
        placed = place_topics([row], placement)
        assignments = placed_frame(tables.spark_warehouse, placed).withColumns(
            {"topic_id": F.lit(topic.row.topic_id).cast("string")}
        )
        version = topic.row.topic_version
        changes = expansion_changes(assignments, tables["brokers"], tables.warehouse.cluster, version)
        placement |= tables.racks.parameter if self.rack_aware else {}
        placement |= self.internal.parameters
        data = ExpandedTopic(existing=existing, partitions=self.partitions, topic_id=topic.row.topic_id)
        replicas = len(topic.partitions[0].replicas)
        if self.rack_aware and (self.by_hand is not None or may_crowd(replicas, live)):
            placement |= crowded(placed, live, SPREAD_LATER)
        return PlanDraft(PlanKind.EXPAND, placement, changes, operations=[data.operation(self.topic)])

    def _placement(self, tables: PlanningTables, topic: ExistingTopic, live: list[Broker]) -> dict[str, Any]:
        """Return the input of the algorithm."""
        first, brokers = topic.partitions[0].replicas, [row.broker_id for row in live]
        racks = racks_of(live, "give --replica-assignment,") if self.rack_aware else {}
        if len(first) > len(brokers):
            raise RefusedError(
                f"partition 0 of {topic.name} has {pluralise(len(first), 'replica')}, and only "
                f"{pluralise(len(brokers), 'broker', 'is', 'are')} live in "
                f"the snapshot ({', '.join(map(str, brokers))}); start the others, snapshot again",
            )
        size, max_bytes = topic_bytes(self.partitions, len(first), brokers), tables.snapshot.names.max_assignment_bytes
        raise_any((RefusedError, fault) for fault in size_faults(topic.name, size, max_bytes))
        start = start_of_round(brokers, first[0])
        placement = {"brokers": brokers, "replication_factor": len(first), "start_index": start}
        return placement | racks_parameter(racks)

    def _added(
        self, tables: PlanningTables, topic: ExistingTopic, live: list[Broker], by_hand: list[list[int]]
    ) -> list[list[int]]:
        """Return the assignment of the added partitions, checked as in `AdminZkClient`."""
        now = [row.replicas for row in topic.partitions]
        added = self.partitions - len(now)
        if len(by_hand) not in {added, self.partitions}:
            raise UsageError(
                f"--replica-assignment has {pluralise(len(by_hand), 'partition')}: give the {added} that "
                "are added, or all "
                f"{self.partitions} as kafka-topics takes them",
            )
        if len(by_hand) == self.partitions and by_hand[: len(now)] != now:
            raise RefusedError(
                f"--replica-assignment moves partitions that {topic.name} has already; "
                "leave those out, or move them with `plan reassign`",
            )
        assignment = by_hand[-added:]
        if len(assignment[0]) != len(now[0]):
            raise RefusedError(
                f"--replica-assignment has replication factor {len(assignment[0])}, partition 0 of {topic.name} has "
                f"{len(now[0])}; all need the same",
            )
        ids = [row.broker_id for row in live]
        unknown = sorted({broker for replicas in assignment for broker in replicas}.difference(ids))
        if unknown:
            raise RefusedError(not_alive_fault(tables, unknown, ids))
        return assignment


def _refuse_unsettled(tables: PlanningTables, topic: ExistingTopic) -> None:
    """Refuse what Kafka would refuse, and a topic whose partitions cannot be counted."""
    requested = [row.key for row in requests_of(tables) if row.topic == topic.name]
    moving = sorted({*topic.moving, *(partition for _, partition in requested)})
    if moving:
        raise RefusedError(
            f"a reassignment of {topic.name} is running (partitions {', '.join(map(str, moving))}), and Kafka adds "
            "none during it (REASSIGNMENT_IN_PROGRESS); wait for it, then snapshot and plan again",
        )
    numbers = [row.partition for row in topic.partitions]
    not_understood = [row.partition for row in topic.partitions if row.understood is False]
    if not is_assignment_understood(topic.row):
        name = tables.snapshot.names.topic(topic.name)
        reason = "is not understood: `surveyor show quarantine` shows why"
        raise RefusedError(f"topic {topic.name} cannot be added to: {name} {reason}; repair it first")
    if not_understood or not numbers or numbers != list(range(len(numbers))):
        subject = (
            f"partitions {not_understood} are not understood"
            if not_understood
            else f"its partitions are {numbers}, not 0 to n - 1"
        )
        raise RefusedError(f"topic {topic.name} cannot be added to: {subject}; repair it first")
