"""A plan's id and counts: a hash of its snapshot, kind, parameters and rows, so the same input gives the same plan.

`schemas.plan_digest` defines what is hashed; `jobs.repositories.plans.arrow_digest` computes the same for rows that are
not on Spark. In: CHANGES, OPERATIONS and REJECTIONS without a plan id, and the header. Out: one row with plan_id,
changes, rejected, moves.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.columns import TABLE_COLUMNS
from schemas.plan_digest import HASHED, ID_LENGTH, LINE_END, NULL, SEPARATOR

_SUMMED: Final = ("topic", "line", "moves")


def _cell(column: str, type_: object) -> str:
    """Return SQL for a value as text. Built from Columns, the cells of a line would take hundreds of calls to Spark."""
    text = f"CAST({column} AS string)"
    if isinstance(type_, dict):  # engines write the nulls of an array in different ways
        text = f"concat('[', array_join(CAST({column} AS array<string>), ', ', '{NULL}'), ']')"
    return f"coalesce({text}, '{NULL}')"


def with_lines(table: str, rows: DataFrame) -> DataFrame:
    """Add `line`, the text that the plan id covers, and `moves`, the number of replicas copied, to rows of a table."""
    types = {column["name"]: column["type"] for column in TABLE_COLUMNS[table].json["fields"]}
    line = f"concat_ws('{SEPARATOR}', {', '.join(_cell(name, types[name]) for name in HASHED[table])})"
    return rows.withColumns({"line": F.expr(line), "moves": _moves() if table == "changes" else F.lit(0)})


def _moves() -> Column:
    return F.when(~F.col("is_new"), F.size(F.array_except("adding_after", "adding_before"))).otherwise(0)


def _topic_digests(lines: DataFrame) -> DataFrame:
    hashed = F.sha2(F.concat_ws(LINE_END, F.sort_array("lines")), 256)
    return (
        lines.groupBy("table", F.coalesce("topic", F.lit(NULL)).alias("name"))
        .agg(F.collect_list("line").alias("lines"), F.count("*").alias("rows"), F.sum("moves").alias("moves"))
        .select("table", "rows", "moves", F.concat_ws(SEPARATOR, "table", "name", hashed).alias("digest"))
    )


def plan_summary(header: str, lined: Mapping[str, DataFrame]) -> DataFrame:
    """Return one row: plan_id, changes, rejected, moves.

    `lined` maps changes, operations and rejections to their rows `with_lines`. A move is a replica that is copied.
    """
    parts = (rows.select(F.lit(table).alias("table"), *_SUMMED) for table, rows in lined.items())
    text = F.concat_ws(LINE_END, F.lit(header), F.sort_array(F.collect_list("digest")))
    return (
        reduce(DataFrame.unionByName, parts)
        .transform(_topic_digests)
        .agg(
            F.substring(F.sha2(text, 256), 1, ID_LENGTH).alias("plan_id"),
            _total("rows", "changes").alias("changes"),
            _total("moves", "changes").alias("moves"),
            _total("rows", "rejections").alias("rejected"),
        )
    )


def _total(column: str, table: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("table") == table, F.col(column))), F.lit(0)).cast("bigint")
