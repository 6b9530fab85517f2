"""What a snapshot makes of a reading: rows kept for znodes not understood, and the difference to the rows before.

Not understood is not vanished: a partition whose state, or whose topic's assignment, could not be decoded keeps its
last row, marked. Only differences are written, so an unchanged cluster costs no rows. In: partitions as read and as
they were, topics. Out: PARTITIONS rows.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from planner.shape import shaped
from schemas.names import PartitionState
from schemas.tables import KEYS, PARTITIONS

KEY = [*KEYS["partitions"]]
_COMPARED = [name for name in PARTITIONS.names if name not in {"snapshot_id", "cluster"}]


def keep_last_understood(partitions: DataFrame, topics: DataFrame, previous: DataFrame) -> DataFrame:
    """Replace partitions whose state is not understood by their previous row, and restore those of topics unread.

    A topic of which only the config is not understood keeps the partitions just read.
    """
    state_is_opaque = ~F.col("understood") & F.col("leader").isNull() & F.col("state_version").isNotNull()
    opaque = partitions.where(state_is_opaque).select(*KEY)
    unread = (
        topics.where(~F.col("understood"))
        .join(F.broadcast(partitions.where(~F.col("understood")).select("topic").distinct()), "topic", "left_anti")
        .select("topic")
    )
    kept = previous.withColumns({"understood": F.lit(False)})  # noqa: FBT003 - a Spark literal
    last_known = kept.join(F.broadcast(unread), "topic", "left_semi").unionByName(
        kept.join(F.broadcast(opaque), KEY, "left_semi"),
    )
    current = partitions.join(F.broadcast(last_known.select(*KEY)), KEY, "left_anti")
    return current.unionByName(last_known, allowMissingColumns=True).transform(shaped, PARTITIONS)


def changed_keys(now: DataFrame, before: DataFrame) -> DataFrame:
    """Topic and partition of the rows that are new, differ or vanished, found by a 64-bit fingerprint of each row.

    Moving fingerprints costs a tenth of moving rows; of 2^64 changes, one may be taken for none.
    """
    sides = (rows.select(*KEY, fingerprint().alias(name)) for rows, name in ((now, "is"), (before, "was")))
    is_now, was = sides
    return is_now.join(was, KEY, "full_outer").where(~F.col("is").eqNullSafe(F.col("was"))).select(*KEY)


def fingerprint() -> Column:
    """Hash all that is compared of a row, and which columns are null and how long arrays are.

    Spark's hash passes over nulls, and takes [1] beside [2, 3] for [1, 2] beside [3].
    """
    return F.xxhash64(*_COMPARED, *(_extent(PARTITIONS[name].dataType, name) for name in _COMPARED))


def _extent(data_type: DataType, name: str) -> Column:
    if isinstance(data_type, ArrayType):
        return F.when(F.col(name).isNotNull(), F.size(name)).otherwise(-1)
    return F.col(name).isNull()


def stamped(partitions: DataFrame, snapshot_id: int) -> DataFrame:
    """All rows as this snapshot's, as when there was none before."""
    return partitions.withColumns({"snapshot_id": F.lit(snapshot_id).cast("bigint")}).transform(shaped, PARTITIONS)


def difference(now: DataFrame, before: DataFrame, snapshot_id: int) -> DataFrame:
    """The rows of `now` that are new or differ from `before`, and a NonExistent row for each that vanished.

    `snapshot_id` is stamped on each of them; it is not compared.
    """
    is_now, was = (rows.select("cluster", *KEY, F.struct(*_COMPARED).alias("row")) for rows in (now, before))
    joined = is_now.alias("n").join(was.alias("b"), KEY, "full_outer")
    vanished = F.col("n.row").isNull()
    rows = joined.where(~F.col("n.row").eqNullSafe(F.col("b.row"))).select(
        F.coalesce("n.cluster", "b.cluster").alias("cluster"),
        F.when(
            vanished,
            F.col("b.row").withField("partition_state", F.lit(PartitionState.NON_EXISTENT.value)),
        )
        .otherwise(F.col("n.row"))
        .alias("row"),
    )
    return rows.select("cluster", "row.*").transform(stamped, snapshot_id)
