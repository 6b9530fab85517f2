"""A plan's identity and counts: a hash of its snapshot, kind, parameters and rows, so the same input is the same plan.

In: CHANGES, OPERATIONS and REJECTIONS without a plan id, and the header. Out: one row: plan_id, changes, rejected,
moves. `schemas.digest` computes the same id again from the stored rows.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.digest import HASHED, ID_LENGTH, NULL, SEPARATOR


def _cell(column: str) -> Column:
    return F.coalesce(F.col(column).cast("string"), F.lit(NULL))


def _lines(table: str, rows: DataFrame) -> DataFrame:
    """A row's text, and how many replicas it has copied."""
    line = F.concat_ws(SEPARATOR, *(_cell(column) for column in HASHED[table]))
    return rows.select(
        F.lit(table).alias("table"),
        _cell("topic").alias("name"),
        line.alias("line"),
        (_moves() if table == "changes" else F.lit(0)).alias("moves"),
    )


def _moves() -> Column:
    return F.when(~F.col("is_new"), F.size(F.array_except("adding_after", "adding_before"))).otherwise(0)


def _topic_digests(lines: DataFrame) -> DataFrame:
    hashed = F.sha2(F.concat_ws("\n", F.sort_array(F.collect_list("line"))), 256)
    return lines.groupBy("table", "name").agg(
        F.concat_ws(SEPARATOR, "table", "name", hashed).alias("digest"),
        F.count("*").alias("rows"),
        F.sum("moves").alias("moves"),
    )


def plan_summary(header: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row: plan_id, changes, rejected, moves.

    `tables` maps changes, operations and rejections to their rows. A move is a replica that this plan has copied.
    """
    lines = reduce(DataFrame.unionByName, (_lines(table, rows) for table, rows in tables.items()))
    text = F.concat_ws("\n", F.lit(header), F.sort_array(F.collect_list("digest")))
    return lines.transform(_topic_digests).agg(
        F.substring(F.sha2(text, 256), 1, ID_LENGTH).alias("plan_id"),
        _total("rows", "changes").alias("changes"),
        _total("moves", "changes").alias("moves"),
        _total("rows", "rejections").alias("rejected"),
    )


def _total(column: str, table: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("table") == table, F.col(column))), F.lit(0)).cast("bigint")
