"""What a snapshot makes of a reading: rows kept for znodes not understood, and the difference to the rows before.

Not understood is not vanished: a partition whose znode, or whose topic's, could not be decoded keeps its last row,
marked. Only differences are written, so an unchanged cluster costs no rows. In: partitions as read and as they were,
topics. Out: PARTITIONS rows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.names import PartitionState
from schemas.tables import PARTITIONS

_KEY = ["topic", "partition"]
_COMPARED = [name for name in PARTITIONS.names if name not in {"snapshot_id", "cluster"}]


def keep_last_understood(partitions: DataFrame, topics: DataFrame, previous: DataFrame) -> DataFrame:
    """Replace partitions not understood by their previous row, and restore those of topics not understood."""
    opaque_topics = topics.where(~F.col("understood")).select("topic")
    kept = previous.withColumns({"understood": F.lit(False)})  # noqa: FBT003 - a Spark literal
    in_opaque_topics = kept.join(opaque_topics, "topic", "left_semi")
    not_understood = kept.join(partitions.where(~F.col("understood")).select(*_KEY), _KEY, "left_semi")
    last_known = in_opaque_topics.unionByName(not_understood).dropDuplicates(_KEY)
    current = partitions.join(last_known.select(*_KEY), _KEY, "left_anti")
    return current.unionByName(last_known, allowMissingColumns=True).to(PARTITIONS)


def difference(now: DataFrame, before: DataFrame, snapshot_id: int) -> DataFrame:
    """The rows of `now` that are new or differ from `before`, and a NonExistent row for each that vanished.

    `snapshot_id` is stamped on each of them; it is not compared.
    """
    is_now, was = (rows.select("cluster", *_KEY, F.struct(*_COMPARED).alias("row")) for rows in (now, before))
    joined = is_now.alias("n").join(was.alias("b"), _KEY, "full_outer")
    vanished = F.col("n.row").isNull()
    rows = joined.where(~F.col("n.row").eqNullSafe(F.col("b.row"))).select(
        F.coalesce("n.cluster", "b.cluster").alias("cluster"),
        F.lit(snapshot_id).cast("bigint").alias("snapshot_id"),
        F.when(
            vanished,
            F.col("b.row").withField("partition_state", F.lit(PartitionState.NON_EXISTENT.value)),
        )
        .otherwise(F.col("n.row"))
        .alias("row"),
    )
    return rows.select("cluster", "snapshot_id", "row.*").to(PARTITIONS)
