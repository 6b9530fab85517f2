"""`plan assign`: a new topic, by the algorithm or by hand, checked against the brokers and topics of a snapshot."""

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.lake import Row
from jobs.errors import RefusedError, UsageError
from jobs.planning import Planned
from jobs.snapshots import SnapshotTables, as_of
from planner.assignment import assign_topic, kafka_replicas, simple_replicas
from planner.creation import creation_changes
from planner.rack_aware import LISTS, assign_rack_aware, rack_aware_lists
from schemas.names import OperationKind, PlanKind

STRATEGIES: Final = ("kafka", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRequest:
    """What was asked for on the command line."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    by_hand: list[list[int]] | None
    brokers: list[int] | None
    start_index: int | None
    shift: int | None
    strategy: str
    rack_aware: bool
    configs: dict[str, str]

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is read."""
        counts = (self.partitions, self.replication_factor)
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.by_hand is None and None in counts:
            raise UsageError("say --partitions and --replication-factor, or --replica-assignment")
        if self.by_hand is not None and any(count is not None for count in counts):
            raise UsageError("--replica-assignment says it all: leave out --partitions and --replication-factor")

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan the topic on a snapshot."""
        _refuse_existing(at, self.topic)
        brokers = as_of(at.tables.lake, at.snapshot, "brokers")
        live = sorted(row["broker_id"] for row in brokers if row["understood"])
        _refuse_unknown(self.topic, self._named(), live)
        topic_id = new_topic_id(at.snapshot, self.topic)
        parameters: dict[str, Any] = {"topic": self.topic, "topic_id": topic_id, "config": self.configs}
        if self.by_hand is None:
            placement = self._placement(self.brokers or live, brokers)
            parameters |= placement
            assigned = _by_algorithm(at, self.topic, placement)
        else:
            parameters["replica_assignment"] = self.by_hand
            assigned = _by_hand(at, self.topic, self.by_hand)
        assignments = assigned.withColumns({"topic_id": F.lit(topic_id)})
        changes = creation_changes(assignments, at["brokers"], at.tables.lake.cluster)
        return Planned(PlanKind.ASSIGN, parameters, changes, operations=[_creation(self.topic, topic_id, self.configs)])

    def _named(self) -> list[int]:
        by_hand = [broker for replicas in self.by_hand or [] for broker in replicas]
        return [*(self.brokers or []), *by_hand]

    def _placement(self, brokers: list[int], registered: list[Row]) -> dict[str, Any]:
        """Settle what the algorithm needs; start index and shift come from the topic's name unless given."""
        racks: dict[int, str] = {}
        if self.rack_aware and self.strategy == "kafka":
            racks = _racks([row for row in registered if row["broker_id"] in brokers])
        if self.replication_factor is None or self.replication_factor > len(brokers):
            raise RefusedError(
                f"replication factor {self.replication_factor} is larger than the {len(brokers)} brokers to use "
                f"({', '.join(map(str, brokers))}); start more brokers or ask for fewer replicas",
            )
        seed = int.from_bytes(hashlib.sha256(self.topic.encode()).digest()[:8])
        start = seed % len(brokers) if self.start_index is None else self.start_index
        seeded = (seed >> 32) % len(brokers)
        kafkas = seeded if self.start_index is None else self.start_index  # Kafka's fixed start is the first shift too
        return {
            "strategy": self.strategy,
            "brokers": brokers,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "start_index": start,
            "shift": kafkas if self.shift is None else self.shift,
            **({"racks": {str(broker): rack for broker, rack in sorted(racks.items())}} if racks else {}),
        }


def new_topic_id(snapshot: Row, topic: str) -> str:
    """Make a topic id as Kafka writes them, the same for the same snapshot: 22 characters of base64url.

    Ids that begin with a dash are passed over, as Kafka does for the sake of command lines.
    """
    for attempt in range(1000):
        seed = json.dumps([snapshot["cluster_id"], snapshot["zxid_after"], snapshot["snapshot_id"], topic, attempt])
        text = base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).decode().rstrip("=")
        if not text.startswith("-"):
            return text
    raise AssertionError("a thousand hashes in a row begin with a dash")


def _by_algorithm(at: SnapshotTables, topic: str, placement: dict[str, Any]) -> DataFrame:
    if "racks" in placement:
        return _by_racks(at, topic, placement)
    brokers, factor = placement["brokers"], placement["replication_factor"]
    if placement["strategy"] == "simple":
        replicas = simple_replicas(brokers, factor)
    else:
        replicas = kafka_replicas(brokers, factor, start_index=placement["start_index"], shift=placement["shift"])
    ids = at.tables.spark.range(placement["partitions"]).select(F.col("id").cast("int").alias("partition"))
    return assign_topic(ids, topic, replicas)


def _by_racks(at: SnapshotTables, topic: str, placement: dict[str, Any]) -> DataFrame:
    racks = {int(broker): rack for broker, rack in placement["racks"].items()}
    count, factor, shift = placement["partitions"], placement["replication_factor"], placement["shift"]
    shifts = range(shift, shift + count // len(racks) + 1)
    lists = at.tables.spark.createDataFrame(list(rack_aware_lists(racks, factor, shifts)), LISTS)
    ids = at.tables.spark.range(count).select(
        F.lit(topic).alias("topic"),
        F.col("id").cast("int").alias("partition"),
        F.lit(factor).alias("replication_factor"),
        F.lit(placement["start_index"]).alias("start_index"),
        F.lit(shift).alias("shift"),
        F.lit(0).alias("first_partition"),
    )
    return assign_rack_aware(ids, lists, racks)


def _by_hand(at: SnapshotTables, topic: str, assignment: list[list[int]]) -> DataFrame:
    return at.targets(
        [{"topic": topic, "partition": number, "replicas": replicas} for number, replicas in enumerate(assignment)],
    )


def _creation(topic: str, topic_id: str, configs: dict[str, str]) -> Row:
    data = json.dumps({"topic_id": topic_id, "config": configs}, sort_keys=True)
    return {"sequence": 0, "kind": OperationKind.CREATE_TOPIC.value, "topic": topic, "data": data}


def _refuse_existing(at: SnapshotTables, topic: str) -> None:
    """Kafka's metrics write dots as underscores, so names that differ in these alone collide (`Topic.hasCollision`)."""
    same = F.translate("topic", ".", "_") == topic.replace(".", "_")
    found = [row.topic for row in at["topics"].where(same).select("topic").limit(1).collect()]
    if found == [topic]:
        raise RefusedError(f"topic {topic} exists in snapshot {at.snapshot['snapshot_id']}; choose another name")
    if found:
        raise RefusedError(f"topic {topic} collides with {found[0]}: '.' and '_' are one in metric names")


def _refuse_unknown(topic: str, named: list[int], live: list[int]) -> None:
    if not live:
        raise RefusedError(
            f"no broker is alive in the snapshot: nothing can hold {topic}; start brokers, snapshot again"
        )
    unknown = sorted(set(named) - set(live))
    if unknown:
        raise RefusedError(
            f"brokers {', '.join(map(str, unknown))} are not alive in the snapshot; "
            f"alive are {', '.join(map(str, live))}",
        )


def _racks(brokers: list[Row]) -> dict[int, str]:
    """Return each broker's rack, nothing if none has one; half of them is refused, as Kafka does."""
    racks = {row["broker_id"]: row["rack"] for row in brokers if row["rack"] is not None}
    without = sorted(row["broker_id"] for row in brokers if row["rack"] is None)
    if racks and without:
        raise RefusedError(
            f"brokers are in racks ({', '.join(sorted(set(racks.values())))}) but {', '.join(map(str, without))} "
            "are in none; set broker.rack there, give --brokers or --replica-assignment, or --disable-rack-aware",
        )
    return racks
