"""A plan's identity and counts: a hash of its snapshot, kind, parameters and rows, so the same input is the same plan.

In: CHANGES, OPERATIONS and REJECTIONS without a plan id, and the header. Out: one row: plan_id, changes, rejected,
moves. `schemas.digest` computes the same id again from the stored rows.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.digest import HASHED, ID_LENGTH, NULL, SEPARATOR


def _cell(column: str) -> Column:
    return F.coalesce(F.col(column).cast("string"), F.lit(NULL))


def _topic_digests(table: str, rows: DataFrame) -> DataFrame:
    line = F.concat_ws(SEPARATOR, *(_cell(column) for column in HASHED[table]))
    hashed = F.sha2(F.concat_ws("\n", F.sort_array(F.collect_list(line))), 256)
    return rows.groupBy(_cell("topic").alias("name")).agg(
        F.concat_ws(SEPARATOR, F.lit(table), F.col("name"), hashed).alias("line"),
    )


def plan_summary(header: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row: plan_id, changes, rejected, moves.

    `tables` maps changes, operations and rejections to their rows. A move is a replica that this plan has copied.
    """
    digests = [_topic_digests(table, rows) for table, rows in tables.items()]
    lines = digests[0]
    for more in digests[1:]:
        lines = lines.unionByName(more)
    text = F.concat_ws("\n", F.lit(header), F.sort_array(F.collect_list("line")))
    identity = lines.agg(F.substring(F.sha2(text, 256), 1, ID_LENGTH).alias("plan_id"))
    moves = F.when(~F.col("is_new"), F.size(F.array_except("adding_after", "adding_before"))).otherwise(0)
    counted = tables["changes"].agg(
        F.count("*").alias("changes"),
        F.coalesce(F.sum(moves), F.lit(0)).cast("bigint").alias("moves"),
    )
    return identity.crossJoin(counted).crossJoin(tables["rejections"].agg(F.count("*").alias("rejected")))
