"""`surveyor plan expand`: partitions added to a topic, by Kafka's rule or by hand."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pyspark.sql import functions as F

from jobs.adapters.delta.lake import Row
from jobs.basics.errors import ExitCode, RefusedError, UsageError, raise_any
from jobs.planning.new_partitions import assign_topics, racks_of, racks_told
from jobs.planning.new_topics import not_alive
from jobs.planning.plan import Planned, Planning, question, report_plan
from jobs.planning.topics import AllowInternal, KnownTopic, Topic, find_topic, operation, topic_name
from jobs.records.snapshots import SnapshotTables, as_of
from jobs.runtime.inputs import parse_replica_assignment
from jobs.runtime.settings import Settings
from planner.topics.creation import expansion_changes, start_of_round
from planner.topics.topic_size import size_faults, topic_bytes
from schemas.names import INTERNAL_TOPICS, OperationKind, PlanKind, RequestKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandRequest:
    """What was asked for on the command line."""

    topic: str
    partitions: int
    by_hand: list[list[int]] | None
    rack_aware: bool
    allow_internal: bool = False

    def check(self) -> None:
        """Refuse what loses groups' offsets and transactions, before anything is read."""
        if self.topic in INTERNAL_TOPICS and not self.allow_internal:
            raise RefusedError(
                f"{self.topic} is Kafka's own: the number of its partitions says in which one a group or a transaction "
                "is kept, so with more of them theirs are no longer found; say --allow-internal if nothing is kept yet",
            )

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan the partitions to be added on a snapshot."""
        topic = find_topic(at, self.topic)
        _refuse_unsettled(at, topic)
        existing = len(topic.partitions)
        if self.partitions <= existing:
            raise RefusedError(
                f"topic {self.topic} has {existing} partitions: --partitions {self.partitions} adds none, and Kafka "
                "takes none away; ask for more",
            )
        registered = as_of(at.tables.lake, at.snapshot, "brokers")
        live = sorted((row for row in registered if row["understood"]), key=lambda row: row["broker_id"])
        placement: dict[str, Any] = {"topic": self.topic, "existing": existing, "partitions": self.partitions}
        if self.by_hand is None:
            placement |= self._placement(topic, live)
        else:
            placement["replica_assignment"] = self._added(topic, live, self.by_hand)
        # Kafka's fixed start is the first shift too
        row = placement | {"first_partition": existing, "shift": placement.get("start_index")}
        assigned = assign_topics(at.tables.spark, [row], placement)
        assignments = assigned.withColumns({"topic_id": F.lit(topic.row["topic_id"]).cast("string")})
        version = topic.row["topic_version"]
        changes = expansion_changes(assignments, at["brokers"], at.tables.lake.cluster, version)
        data = {"existing": existing, "partitions": self.partitions, "topic_id": topic.row["topic_id"]}
        expansion = operation(0, OperationKind.EXPAND_TOPIC, self.topic, json.dumps(data, sort_keys=True))
        return Planned(PlanKind.EXPAND, placement, changes, operations=[expansion])

    def _placement(self, topic: KnownTopic, live: list[Row]) -> dict[str, Any]:
        """Settle what the algorithm needs."""
        first, brokers = topic.partitions[0]["replicas"], [row["broker_id"] for row in live]
        racks = racks_of(live, "give --replica-assignment,") if self.rack_aware else {}
        if len(first) > len(brokers):
            raise RefusedError(
                f"partition 0 of {topic.name} has {len(first)} replicas, and only {len(brokers)} brokers are alive in "
                f"the snapshot ({', '.join(map(str, brokers))}); start the others, snapshot again",
            )
        size = topic_bytes(self.partitions, len(first), brokers)
        raise_any((RefusedError, said) for said in size_faults(topic.name, size))
        start = start_of_round(brokers, first[0])
        placement = {"brokers": brokers, "replication_factor": len(first), "start_index": start}
        return placement | racks_told(racks)

    def _added(self, topic: KnownTopic, live: list[Row], said: list[list[int]]) -> list[list[int]]:
        """Return the assignment of the partitions to be added, checked as `AdminZkClient` does."""
        now = [row["replicas"] for row in topic.partitions]
        added = self.partitions - len(now)
        if len(said) not in {added, self.partitions}:
            raise UsageError(
                f"--replica-assignment has {len(said)} partitions: give the {added} that are added, or all "
                f"{self.partitions} as kafka-topics takes them",
            )
        if len(said) == self.partitions and said[: len(now)] != now:
            raise RefusedError(
                f"--replica-assignment moves partitions that {topic.name} has already; "
                "leave those out, or move them with `plan reassign`",
            )
        wanted = said[-added:]
        if len(wanted[0]) != len(now[0]):
            raise RefusedError(
                f"--replica-assignment has replication factor {len(wanted[0])}, partition 0 of {topic.name} has "
                f"{len(now[0])}; all need the same",
            )
        ids = [row["broker_id"] for row in live]
        unknown = sorted({broker for replicas in wanted for broker in replicas}.difference(ids))
        if unknown:
            raise RefusedError(not_alive(unknown, ids))
        return wanted


def _refuse_unsettled(at: SnapshotTables, topic: KnownTopic) -> None:
    """Refuse what Kafka would, and a topic whose partitions cannot be counted."""
    asked = as_of(at.tables.lake, at.snapshot, "requests", ("topic", "=", topic.name))
    requested = [row["partition"] for row in asked if row["kind"] == RequestKind.REASSIGN]
    moving = sorted({*topic.moving, *requested})
    if moving:
        raise RefusedError(
            f"a reassignment of {topic.name} is running (partitions {', '.join(map(str, moving))}), and Kafka adds "
            "none meanwhile (REASSIGNMENT_IN_PROGRESS); wait for it, snapshot and plan again",
        )
    numbers = [row["partition"] for row in topic.partitions]
    opaque = [row["partition"] for row in topic.partitions if row["understood"] is False]
    if opaque or not numbers or numbers != list(range(len(numbers))):
        what = f"partitions {opaque} are not understood" if opaque else f"its partitions are {numbers}, not 0 to n - 1"
        raise RefusedError(f"topic {topic.name} cannot be added to: {what}; mend it first")


@question
def expand(
    settings: Settings,
    *,
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, help="How many it is to have, with those there are.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(help="Replicas by hand, 1:2,2:0: of the added partitions, or of all as kafka-topics takes them."),
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    allow_internal: AllowInternal = False,
    planning: Planning,
) -> ExitCode:
    """Plan more partitions for a topic; records of a key may land in another one afterwards."""
    asked = ExpandRequest(
        topic=topic_name(topic),
        partitions=partitions,
        by_hand=None if replica_assignment is None else parse_replica_assignment(replica_assignment),
        rack_aware=not disable_rack_aware,
        allow_internal=allow_internal,
    )
    asked.check()
    return report_plan(settings, planning, asked.plan)
