"""Events between two snapshots: the changes that Kafka's ZooKeeper handlers react to, as rows for users.

Kafka's controller queues a `ControllerEvent` for each: BrokerChange, BrokerModifications, TopicChange,
PartitionModifications, TopicDeletion, ZkPartitionReassignment, PartitionReassignmentIsrChange, ReplicaLeaderElection,
IsrChangeNotification, LogDirEventNotification and ControllerChange. Here events are for dashboards and never trigger
anything: decisions are made from the current state. Znodes that cannot be decoded produce no event. In: the same table
before and after. Out: EVENTS.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.sentences import sentence
from planner.columns.shape import false, full_outer_join, with_schema
from schemas import reasons
from schemas.enums import EventKind, PartitionState, RequestKind
from schemas.tables import EVENTS

_REQUESTED: Final = {
    RequestKind.DELETE_TOPIC: EventKind.DELETION_REQUESTED,
    RequestKind.REASSIGN: EventKind.REASSIGNMENT_REQUESTED,
    RequestKind.PREFERRED_ELECTION: EventKind.PREFERRED_ELECTION_REQUESTED,
    RequestKind.LOG_DIR: EventKind.LOG_DIR_FAILED,
}

EventCase = tuple[EventKind, Column, Column, Column]
"""An event: its kind, the condition, and the text before and after."""


def _text(column: str) -> Column:
    return F.col(column).cast("string")


def _broker() -> Column:
    return sentence(reasons.BROKER, broker=F.col("broker_id"))


def _partition() -> Column:
    """Name the partition, or only the topic; null without a topic."""
    partition = sentence(reasons.PARTITION, topic=F.col("topic"), partition=F.col("partition"))
    return F.coalesce(partition, F.col("topic"))


def _events(pairs: DataFrame, subject: Column, cases: Sequence[EventCase]) -> DataFrame:
    """Return one row per case whose condition holds."""
    candidates = F.array(
        *(
            F.when(
                F.coalesce(holds, false()),
                F.struct(F.lit(kind.value).alias("kind"), old.alias("before"), new.alias("after")),
            )
            for kind, holds, old, new in cases
        ),
    )
    events = pairs.select("cluster", subject.alias("subject"), F.explode(F.array_compact(candidates)).alias("event"))
    return events.select("cluster", "subject", "event.*")


def broker_events(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return events of brokers that joined, failed, registered again (other czxid) or changed endpoints; BROKERS in."""
    pairs = full_outer_join(before, after, ["broker_id"], ["broker_epoch", "endpoints", "understood"])
    old, new = _text("b.broker_epoch"), _text("a.broker_epoch")
    both = F.col("b").isNotNull() & F.col("a").isNotNull()
    same_epoch = F.col("b.broker_epoch") == F.col("a.broker_epoch")
    legible = F.col("b.understood") & F.col("a.understood")
    moved = F.col("b.endpoints") != F.col("a.endpoints")
    cases = [
        (EventKind.BROKER_JOINED, F.col("b").isNull(), old, new),
        (EventKind.BROKER_FAILED, F.col("a").isNull(), old, new),
        (EventKind.BROKER_BOUNCED, both & ~same_epoch, old, new),
        (
            EventKind.BROKER_CHANGED,
            both & same_epoch & legible & moved,
            F.to_json("b.endpoints"),
            F.to_json("a.endpoints"),
        ),
    ]
    return _events(pairs, _broker(), cases)


def partition_events(pairs: DataFrame) -> DataFrame:
    """Return events of leader changes, ISR changes and lost states.

    In: pairs of `planner.history.snapshot_diff.join_versions`.
    """
    removed, added = F.array_except("b.isr", "a.isr"), F.array_except("a.isr", "b.isr")
    isr = _text("b.isr"), _text("a.isr")
    cases = [
        (EventKind.LEADER_CHANGED, F.col("b.leader") != F.col("a.leader"), _text("b.leader"), _text("a.leader")),
        (EventKind.ISR_SHRUNK, F.size(removed) > 0, *isr),
        (EventKind.ISR_EXPANDED, F.size(added) > 0, *isr),
        (EventKind.STATE_VANISHED, _state_vanished(), _leadership("b"), _leadership("a")),
    ]
    understood = pairs.where("b.understood AND a.understood")
    return _events(understood, _partition(), cases)


def _state_vanished() -> Column:
    """Return whether a state existed before and is missing now although the topic still exists."""
    new = F.col("a.partition_state").eqNullSafe(PartitionState.NEW.value)
    return F.col("b.leader").isNotNull() & new & (F.col("a.topic_version") >= F.col("b.topic_version"))


def _leadership(when: str) -> Column:
    """Format leader, ISR and leader epoch; null without a state."""
    details = {name: F.col(f"{when}.{name}") for name in ("leader", "isr", "leader_epoch")}
    return sentence(reasons.STATE_NOW, **details)


def topic_events(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return events of topics that appeared, vanished or got more partitions; PARTITIONS in."""
    was_counted, counted = (
        rows.groupBy("cluster", "topic").agg(F.count("*").alias("partitions")) for rows in (before, after)
    )
    pairs = full_outer_join(was_counted, counted, ["topic"], ["partitions"])
    old, new = _text("b.partitions"), _text("a.partitions")
    cases = [
        (EventKind.TOPIC_CREATED, F.col("b").isNull(), old, new),
        (EventKind.TOPIC_VANISHED, F.col("a").isNull(), old, new),
        (EventKind.PARTITIONS_ADDED, F.col("a.partitions") > F.col("b.partitions"), old, new),
    ]
    return _events(pairs, F.col("topic"), cases)


def topic_id_events(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return events of topic ids that changed, were assigned or were lost; TOPICS in.

    A topic that only lost its id is the same topic.
    """
    pairs = full_outer_join(before, after, ["topic"], ["topic_id", "understood"])
    old, new = F.col("b.topic_id"), F.col("a.topic_id")
    both = F.col("b.understood") & F.col("a.understood")
    cases = [
        (EventKind.TOPIC_RECREATED, both & (old != new), old, new),
        (EventKind.TOPIC_ID_ASSIGNED, both & old.isNull() & new.isNotNull(), old, new),
        (EventKind.TOPIC_ID_LOST, both & old.isNotNull() & new.isNull(), old, new),
    ]
    return _events(pairs, F.col("topic"), cases)


def request_events(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return events of new requests in /admin and of newly reported log dir failures. In: REQUESTS."""
    key = ["kind", "path", "topic", "partition"]
    earlier = before.select(*(F.col(name).alias(f"known_{name}") for name in key))
    new = after.join(earlier, [F.col(name).eqNullSafe(F.col(f"known_{name}")) for name in key], "left_anti")
    kinds = F.create_map(*(F.lit(text) for pair in _REQUESTED.items() for text in pair))
    return new.where(F.col("kind").isin(*_REQUESTED)).select(
        "cluster",
        F.coalesce(_partition(), _broker()).alias("subject"),
        kinds[F.col("kind")].alias("kind"),
        F.lit(None).cast("string").alias("before"),
        F.coalesce(_text("replicas"), F.col("path")).alias("after"),
    )


def controller_events(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return events of a controller change and of a controller epoch that grew; one SNAPSHOTS row each in."""
    pairs = full_outer_join(before, after, [], ["controller_id", "controller_epoch"])
    controller, epoch = ((_text(f"b.{name}"), _text(f"a.{name}")) for name in ("controller_id", "controller_epoch"))
    cases = [
        (EventKind.CONTROLLER_MOVED, F.col("b.controller_id") != F.col("a.controller_id"), *controller),
        (EventKind.EPOCH_GREW, F.col("a.controller_epoch") > F.col("b.controller_epoch"), *epoch),
    ]
    return _events(pairs, F.lit("controller"), cases)


def as_events(frames: Sequence[DataFrame], snapshot_id: int) -> DataFrame:
    """Return all events of one snapshot, as EVENTS."""
    rows = frames[0]
    for more in frames[1:]:
        rows = rows.unionByName(more)
    return rows.withColumns({"snapshot_id": F.lit(snapshot_id).cast("bigint")}).transform(with_schema, EVENTS)
