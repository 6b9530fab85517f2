"""A cycle of a small cluster, and the effect of its changes, as plain rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from planner.columns.broker_sets import FAILED_COLUMN, with_drained
from planner.reconciliation.cycle import Cycle, CycleInput
from schemas.enums import DrainMode, RequestKind
from schemas.rows import Row
from schemas.tables import ANSWERS, BROKER_CONFIGS, BROKER_IDS, BROKERS, DRAINED, PARTITIONS, REQUESTS, TOPICS
from tests.planner.frames import as_rows, broker_row, frame, topic_row

WITH_FAILED = StructType([*PARTITIONS, StructField(FAILED_COLUMN, BROKER_IDS)])


def request_row(kind: RequestKind, topic: str = "t", partition: int | None = 0, **columns: object) -> Row:
    return {"cluster": "test", "kind": kind.value, "topic": topic, "partition": partition, "path": "/admin", **columns}


def stopped_row(partition: int, broker: int, leader_epoch: int, topic: str = "t") -> Row:
    return {"topic": topic, "partition": partition, "broker_id": broker, "leader_epoch": leader_epoch}


def cycle_of(  # noqa: PLR0913 - a table each
    spark: SparkSession,
    partitions: Sequence[Row],
    live: Collection[int],
    requests: Sequence[Row] = (),
    *,
    stopped: Iterable[Mapping[str, Any]] = (),
    topics: Sequence[Row] | None = None,
    configs: Sequence[Row] = (),
    is_resident: bool = True,
    drained: Mapping[int, DrainMode] | None = None,
) -> Cycle:
    marks = [{"broker_id": broker, "mode": mode.value} for broker, mode in (drained or {}).items()]
    brokers = frame(spark, [broker_row(broker) for broker in sorted(live)], BROKERS)
    failed = any(FAILED_COLUMN in row for row in partitions)
    return Cycle(
        CycleInput(
            partitions=frame(spark, partitions, WITH_FAILED if failed else PARTITIONS),
            topics=frame(spark, topics if topics is not None else [topic_row()], TOPICS),
            brokers=brokers.transform(with_drained, frame(spark, marks, DRAINED)) if marks else brokers,
            broker_configs=frame(spark, configs, BROKER_CONFIGS),
            requests=frame(spark, requests, REQUESTS),
            stopped=frame(spark, stopped, ANSWERS),
            is_resident=is_resident,
        )
    )


def decisions(cycle: Cycle) -> list[Row]:
    """DECISIONS by partition, those with a change first."""
    return sorted(as_rows(cycle.decisions), key=lambda row: (row["partition"], row["action"] is None))


def carried_out(partition: Row, change: Row) -> Row:
    """The partition after a change was written."""
    return partition | {
        "replicas": change["replicas_after"],
        "adding_replicas": change["adding_after"],
        "removing_replicas": change["removing_after"],
        "leader": change["leader_after"],
        "isr": change["isr_after"],
        "leader_epoch": change["leader_epoch_after"],
        "state_version": change["state_version"] + 1,
        "topic_version": partition["topic_version"] + (change["replicas_before"] != change["replicas_after"]),
    }
