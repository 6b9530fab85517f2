"""The difference between a snapshot and the one before, with rows kept for znodes that could not be decoded.

A partition whose state, or whose topic's assignment, could not be decoded keeps its last row, marked: it did not
vanish. Only differences are written, so an unchanged cluster costs no rows. A later version of the topic's znode alone
is not a change of the partition, as another partition of the topic was moved. The row gets the new version, which
commits check, and history does not grow. In: partitions as read and as they were, topics. Out: PARTITIONS rows.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from planner.columns.shape import false, full_outer_join, with_schema
from schemas.enums import PartitionState
from schemas.tables import PARTITION_KEY, PARTITIONS

CELLS_PER_TOPIC: Final = 16
"""Cells per topic: more cells locate a change more precisely, fewer are aggregated faster."""

_COMPARED = [name for name in PARTITIONS.names if name not in {"snapshot_id", "cluster", "vanished"}]


def keep_last_understood(partitions: DataFrame, topics: DataFrame, previous: DataFrame) -> DataFrame:
    """Replace partitions that could not be decoded by their previous row, and restore the rows of topics not read.

    If some partitions of a topic, or only its config, were decoded, the partitions just read are kept.
    """
    has_replicas = F.size("replicas") > 0
    is_lacking = ~has_replicas | F.col("leader").isNull()
    lacking = partitions.where(~F.col("understood") & is_lacking).select(*PARTITION_KEY)
    not_understood = topics.where(~F.col("understood")).select("topic")
    with_replicas = partitions.where(has_replicas)
    read = with_replicas.join(F.broadcast(not_understood), "topic", "left_semi").select("topic").distinct()
    unread = not_understood.join(F.broadcast(read), "topic", "left_anti")
    previous_rows = previous.withColumns({"understood": false()})
    last_known = previous_rows.join(F.broadcast(unread), "topic", "left_semi").unionByName(
        previous_rows.join(F.broadcast(lacking), PARTITION_KEY, "left_semi").join(
            F.broadcast(unread), "topic", "left_anti"
        ),
    )
    current = partitions.join(F.broadcast(last_known.select(*PARTITION_KEY)), PARTITION_KEY, "left_anti")
    return current.unionByName(last_known, allowMissingColumns=True).transform(with_schema, PARTITIONS)


def changed_cells(now: DataFrame, before: DataFrame) -> DataFrame:
    """Return the cells (a few partitions of a topic each) in which any row is new, changed or missing: `cell`.

    Equal fingerprints cancel out, so neither rows nor keys have to be joined. About one change in 2^64 would be missed.
    """
    prints = (rows.select(cell().alias("cell"), fingerprint().alias("print")) for rows in (now, before))
    return (
        reduce(DataFrame.unionAll, prints)
        .groupBy("cell")
        .agg(F.bit_xor("print").alias("left"))
        .where(F.col("left") != 0)
        .select("cell")
    )


def filter_cells(partitions: DataFrame, cells: DataFrame) -> DataFrame:
    """Keep the partitions of these cells."""
    return partitions.withColumns({"cell": cell()}).join(cells, "cell", "left_semi").drop("cell")


def cell() -> Column:
    """Return the cell of a partition; one task reads all partitions of a topic and so aggregates whole cells."""
    return F.xxhash64("topic", F.col("partition") % CELLS_PER_TOPIC)


def fingerprint() -> Column:
    """Hash all compared columns of a row, including which columns are null and how long the arrays are.

    Spark's hash skips nulls and does not separate arrays: [1], [2, 3] has the same hash as [1, 2], [3].
    """
    return F.xxhash64(*_COMPARED, *(_extent(PARTITIONS[name].dataType, name) for name in _COMPARED))


def _extent(data_type: DataType, name: str) -> Column:
    if isinstance(data_type, ArrayType):
        return F.when(F.col(name).isNotNull(), F.size(name)).otherwise(-1)
    return F.col(name).isNull()


def with_snapshot_id(partitions: DataFrame, snapshot_id: int) -> DataFrame:
    """Return all rows as rows of this snapshot, for a first snapshot."""
    return partitions.withColumns({"snapshot_id": F.lit(snapshot_id).cast("bigint")}).transform(with_schema, PARTITIONS)


def join_versions(before: DataFrame, now: DataFrame) -> DataFrame:
    """Return pairs of the partitions that are new, changed or missing, ignoring the snapshot that wrote them.

    `b` and `a` are the rows before and after, null if missing.
    """
    return full_outer_join(before, now, PARTITION_KEY, [*_COMPARED, "snapshot_id"]).where(_differs(_COMPARED))


def has_changed() -> Column:
    """Return whether a pair is a change of the partition: false if only the version of its topic's znode grew.

    A lower version is a change: the topic was deleted and created again.
    """
    is_later = F.coalesce(F.col("a.topic_version") >= F.col("b.topic_version"), false())
    return _differs([name for name in _COMPARED if name != "topic_version"]) | ~is_later


def _differs(columns: Sequence[str]) -> Column:
    return F.expr(" OR ".join(f"NOT (a.{name} <=> b.{name})" for name in columns))


def difference(differing: DataFrame, snapshot_id: int) -> DataFrame:
    """Return one row per pair that differs: the current row, or the last one as NonExistent.

    It is stamped with `snapshot_id` if the partition changed, else with the snapshot that it had before.
    """
    last = F.col("b").withField("partition_state", F.lit(PartitionState.NON_EXISTENT.value))
    this = F.lit(snapshot_id).cast("bigint")
    stamp = F.when(has_changed(), this).otherwise(F.coalesce("b.snapshot_id", this))
    row = F.coalesce("a", last).withField("snapshot_id", stamp)
    return (
        differing.select("cluster", row.alias("row"), F.col("a").isNull().alias("vanished"))
        .select("cluster", "row.*", "vanished")
        .transform(with_schema, PARTITIONS)
    )


def has_vanished() -> Column:
    """Return whether a row of history marks a missing partition; rows of older versions mark it only by the state."""
    return F.expr(f"coalesce(vanished, partition_state <=> '{PartitionState.NON_EXISTENT}')")


def resized_topics(differing: DataFrame) -> DataFrame:
    """Return the topics whose set of partitions changed: topic."""
    return differing.where(F.col("a").isNull() | F.col("b").isNull()).select("topic").distinct()
