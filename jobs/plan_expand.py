"""`surveyor plan expand`: partitions added to a topic, by Kafka's rule or by hand."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.lake import Row
from jobs.errors import ExitCode, RefusedError, UsageError
from jobs.inputs import parse_replica_assignment
from jobs.options import DetailedExitcode, command
from jobs.plan_topics import KnownTopic, Topic, find_topic, operation, topic_name
from jobs.planning import Name, Planned, SnapshotId, report_plan
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables, as_of
from planner.assignment import assign_topic
from planner.expansion import added_replicas, expansion_changes, start_of_round
from schemas.names import OperationKind, PlanKind, RequestKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandRequest:
    """What was asked for on the command line."""

    topic: str
    partitions: int
    by_hand: list[list[int]] | None
    rack_aware: bool

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
            assigned = self._by_rule(at, placement)
        else:
            placement["replica_assignment"] = self._added(topic, live, self.by_hand)
            assigned = self._as_said(at, existing, placement["replica_assignment"])
        assignments = assigned.withColumns({"topic_id": F.lit(topic.row["topic_id"]).cast("string")})
        version = topic.row["topic_version"]
        changes = expansion_changes(assignments, at["brokers"], at.tables.lake.cluster, version)
        data = {"existing": existing, "partitions": self.partitions, "topic_id": topic.row["topic_id"]}
        expansion = operation(0, OperationKind.EXPAND_TOPIC, self.topic, json.dumps(data, sort_keys=True))
        return Planned(PlanKind.EXPAND, placement, changes, operations=[expansion])

    def _placement(self, topic: KnownTopic, live: list[Row]) -> dict[str, Any]:
        """Settle what the algorithm needs."""
        first, brokers = topic.partitions[0]["replicas"], [row["broker_id"] for row in live]
        if self.rack_aware:
            _refuse_racks(live)
        if len(first) > len(brokers):
            raise RefusedError(
                f"partition 0 of {topic.name} has {len(first)} replicas, and only {len(brokers)} brokers are alive in "
                f"the snapshot ({', '.join(map(str, brokers))}); start the others, snapshot again",
            )
        start = start_of_round(brokers, first[0])
        return {"brokers": brokers, "replication_factor": len(first), "start_index": start}

    def _by_rule(self, at: SnapshotTables, placement: dict[str, Any]) -> DataFrame:
        known = placement["brokers"], placement["replication_factor"], placement["start_index"]
        new = at.tables.spark.range(placement["existing"], self.partitions)
        ids = new.select(F.col("id").cast("int").alias("partition"))
        return assign_topic(ids, self.topic, added_replicas(*known, placement["existing"]))

    def _as_said(self, at: SnapshotTables, existing: int, assignment: list[list[int]]) -> DataFrame:
        numbered = enumerate(assignment, existing)
        return at.targets([{"topic": self.topic, "partition": p, "replicas": replicas} for p, replicas in numbered])

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
            raise RefusedError(
                f"brokers {', '.join(map(str, unknown))} are not alive in the snapshot; "
                f"alive are {', '.join(map(str, ids))}",
            )
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


def _refuse_racks(brokers: list[Row]) -> None:
    racks = sorted({row["rack"] for row in brokers if row["rack"] is not None})
    if racks:
        raise RefusedError(
            f"brokers are in racks ({', '.join(racks)}) and this algorithm would not spread replicas over them; "
            "give --replica-assignment, or --disable-rack-aware to ignore racks",
        )


@command
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
    snapshot: SnapshotId = None,
    name: Name = None,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan more partitions for a topic; records of a key may land in another one afterwards."""
    asked = ExpandRequest(
        topic=topic_name(topic),
        partitions=partitions,
        by_hand=None if replica_assignment is None else parse_replica_assignment(replica_assignment),
        rack_aware=not disable_rack_aware,
    )
    return report_plan(settings, snapshot, name, asked.plan, detailed=detailed_exitcode)
