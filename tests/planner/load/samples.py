"""Samples of partitions and groups as rows, and the loads that the rules compute from them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from planner.load.hourly_loads import group_load, partition_load, sampled_names
from planner.load.hourly_loads import hourly_loads as computed_loads
from schemas.rows import Row
from schemas.tables import GROUP_OFFSETS, PARTITION_OFFSETS, TOPICS
from tests.planner.frames import CLUSTER, TOPIC_ID, frame, topic_row

HOUR: Final = datetime(2026, 11, 1, 10, tzinfo=UTC)
"""The hour in which samples begin."""

HOURS: Final = range(int(HOUR.timestamp()) // 3600 - 1, int(HOUR.timestamp()) // 3600 + 24)
"""Hours that are computed, counted from 1970."""


def at(minute: float) -> datetime:
    """Return a time, in minutes after HOUR."""
    return HOUR + timedelta(minutes=minute)


def sample(minute: float, log_end: int | None, size: int | None, **columns: object) -> Row:
    """Return a row of PARTITION_OFFSETS: broker 1 leads with epoch 5, and nothing was deleted yet.

    >>> sample(90, 7, 70, leader=2)["sampled_at"].isoformat()
    '2026-11-01T11:30:00+00:00'
    """
    return {
        "cluster": CLUSTER,
        "sampled_at": at(minute),
        "stored_at": at(minute + 1),
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "leader": 1,
        "leader_epoch": 5,
        "log_start": 0,
        "log_end": log_end,
        "bytes": size,
        **columns,
    }


def position(minute: float, committed: int, **columns: object) -> Row:
    """Return a row of GROUP_OFFSETS."""
    return {
        "cluster": CLUSTER,
        "sampled_at": at(minute),
        "stored_at": at(minute + 1),
        "group_id": "g",
        "group_type": "consumer",
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "committed": committed,
        **columns,
    }


def hourly_loads(
    spark: SparkSession, samples: Iterable[Row], positions: Iterable[Row] = (), topics: Iterable[Row] = ()
) -> tuple[DataFrame, DataFrame]:
    """Return PARTITION_LOAD and GROUP_LOAD of samples."""
    offsets, groups = frame(spark, samples, PARTITION_OFFSETS), frame(spark, positions, GROUP_OFFSETS)
    names = sampled_names(offsets, groups, frame(spark, topics or [topic_row()], TOPICS))
    loads = computed_loads(offsets, groups, names, HOURS)
    return partition_load(loads, CLUSTER, 0), group_load(loads, CLUSTER)
