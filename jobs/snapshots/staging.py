"""Stages the topics and partitions of a cluster as a DataFrame, in rows of `jobs.adapters.zookeeper.source.READ`.

ZooKeeper is read by Spark's executors, a tiny cluster by the driver. Any other source is read by the driver.
"""

import re
from functools import singledispatch
from typing import Final, NamedTuple, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import values_of
from jobs.adapters.sources.interface import ClusterSource, DriverSource, Rows
from jobs.adapters.sources.zookeeper import ZooKeeperSource
from jobs.adapters.spark.session import default_parallelism
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.source import READ, read_in_process, read_on_executors
from jobs.core.errors import UnreadableError

_UNREADABLE: Final = re.compile(rf"{UnreadableError.__name__}: (.+)")
"""Matches the error of an executor within the stack traces of Python, Java and Scala."""

TASKS_PER_CORE: Final = 8
"""Spark tasks per core: enough to balance the load; each task adds a cost to every later pass."""


class Tally(NamedTuple):
    """The rows of one kind of READ."""

    kind: str
    rows: int
    read: float
    """Seconds of all tasks; null in rows of other kinds than `task`."""
    decoded: float
    """Likewise."""


@singledispatch
def stage_topics(source: ClusterSource, tables: SparkWarehouse, *, tiny: bool) -> tuple[DataFrame, list[Tally]]:
    """Read topics and partitions once; return rows of READ, and the tally by kind of row."""
    frame, tallies = _staged(read_table(cast("DriverSource", source).read_rows()), tables)
    return (frame if tiny else frame.localCheckpoint()), tallies


@stage_topics.register
def _stage_zookeeper(source: ZooKeeperSource, tables: SparkWarehouse, *, tiny: bool) -> tuple[DataFrame, list[Tally]]:
    if tiny:
        return _staged(read_in_process(source.endpoint), tables)
    return _stage_on_executors(source.endpoint, tables)


def _staged(rows: pa.Table, tables: SparkWarehouse) -> tuple[DataFrame, list[Tally]]:
    """Tally on the driver; the rows become part of the Spark query and need no job of their own."""
    spent = [("read_seconds", "sum"), ("decode_seconds", "sum")]
    tallies = rows.group_by("kind").aggregate([("kind", "count"), *spent])
    return tables.arrow(rows, READ), [Tally(*values) for values in values_of(tallies, *tallies.column_names)]


def read_table(read: Rows) -> pa.Table:
    """Return what a driver read as one table of READ."""
    schema = to_arrow_schema(READ)
    task = [{"read_seconds": read.read_seconds, "decode_seconds": read.decode_seconds}]
    by_kind = {
        "topic": read.topics,
        "partition": read.partitions,
        "quarantine": pa.Table.from_pylist([row.columns() for row in read.quarantine], schema),
        "task": pa.Table.from_pylist(task, schema),
    }
    return pa.concat_tables([_of_kind(kind, rows, schema) for kind, rows in by_kind.items()])


def _of_kind(kind: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = {name: rows[name] for name in rows.column_names} | {"kind": pa.repeat(kind, rows.num_rows)}
    nothing = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema}
    return pa.table({**nothing, **{name: columns[name] for name in nothing if name in columns}}).cast(schema)


def _stage_on_executors(endpoint: ZooKeeperEndpoint, tables: SparkWarehouse) -> tuple[DataFrame, list[Tally]]:
    tasks = TASKS_PER_CORE * default_parallelism(tables.spark)
    read = read_on_executors(tables.spark, endpoint, tasks)
    try:
        staged = read.localCheckpoint()
    except (PySparkException, Py4JError) as error:
        match = _UNREADABLE.search(str(error))
        if match is None:
            raise
        raise UnreadableError(match[1]) from None
    spent = F.sum("read_seconds").alias("read"), F.sum("decode_seconds").alias("decoded")
    return staged, [Tally(*row) for row in staged.groupBy("kind").agg(F.count("*").alias("rows"), *spent).collect()]
