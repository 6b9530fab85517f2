"""Stages the topics and partitions of a cluster as a DataFrame, in rows of `jobs.adapters.zookeeper.source.READ`.

Spark's executors read in parallel: ranges of znodes from the servers of an ensemble, or shares of the topics from the
brokers of a KRaft cluster. A tiny cluster is read by the driver.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, singledispatch
from typing import Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.adapters.clusters.interface import ClusterSource, Rows
from jobs.adapters.clusters.kraft import KRaftSource
from jobs.adapters.clusters.zookeeper import ZooKeeperSource
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.session import default_parallelism
from jobs.adapters.zookeeper.multi_read import gc_paused
from jobs.adapters.zookeeper.source import READ, read_in_process, read_on_executors
from jobs.core.arrow_rows import values_of
from jobs.core.errors import MissingError, NoAnswerError, SurveyorError, UnreadableError, UsageError
from jobs.core.properties import on_executor
from schemas.rows import QuarantinedZnode

_KINDS: Final[dict[str, type[SurveyorError]]] = {
    UnreadableError.__name__: UnreadableError,
    NoAnswerError.__name__: UnreadableError,
    UsageError.__name__: UsageError,
    MissingError.__name__: MissingError,
}
_ON_EXECUTOR: Final = re.compile(rf"\b({'|'.join(_KINDS)}): (.+)")
"""Matches the error of an executor within the stack traces of Python, Java and Scala."""

_SHIPPING: Final = (
    "Spark's executors need what the driver needs, under the same path on every host; or send files with "
    "spark-submit --files FILE,..., and name them without a folder"
)

TASKS_PER_CORE: Final = 8
"""Spark tasks per core, enough to balance the load; each task adds a cost to every later pass."""

TORN: Final = "torn"
"""Kind of the rows that name topics to be read again."""


class StagedRowCount(NamedTuple):
    """The rows of one kind of READ."""

    kind: str
    rows: int
    read: float
    """Seconds of reading, of all tasks; null in rows of other kinds than `task`."""
    decoded: float
    """Seconds of decoding, of all tasks; null in rows of other kinds than `task`."""


@singledispatch
def stage_topics(
    source: ClusterSource, tables: SparkWarehouse, *, tiny: bool
) -> tuple[DataFrame, list[StagedRowCount]]:
    """Read topics and partitions once; return rows of READ, and the tally by kind of row."""
    raise NotImplementedError(f"no way to stage topics from {source}")


@stage_topics.register
def _stage_zookeeper(
    source: ZooKeeperSource, tables: SparkWarehouse, *, tiny: bool
) -> tuple[DataFrame, list[StagedRowCount]]:
    if tiny:
        return _staged(read_in_process(source.session), tables)
    tasks = TASKS_PER_CORE * default_parallelism(tables.spark)
    return _checkpointed(read_on_executors(tables.spark, source.session, tasks))


@stage_topics.register
def _stage_kraft(source: KRaftSource, tables: SparkWarehouse, *, tiny: bool) -> tuple[DataFrame, list[StagedRowCount]]:
    if tiny:
        return _staged(read_table(source.read_rows()), tables)
    sent = source.with_absolute_config()
    shares = source.shares(TASKS_PER_CORE * default_parallelism(tables.spark))

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                with gc_paused():
                    executor_source = replace(sent, command_config=on_executor(sent.command_config))
                    rows = read_table(_on_one_line(partial(executor_source.read_share, shares, number)))
                yield from rows.to_batches()

    count = len(shares.topics)
    staged, tallies = _checkpointed(tables.spark.range(0, count, 1, max(1, count)).mapInArrow(read, READ))
    torn = [row["topic"] for row in staged.where(F.col("kind") == TORN).select("topic").collect()]
    again = source.read_again(shares, torn)
    if again is None and not shares.quarantine:
        return staged, tallies
    return _with_again(staged, again, shares.quarantine, tables)


def _staged(rows: pa.Table, tables: SparkWarehouse) -> tuple[DataFrame, list[StagedRowCount]]:
    """Tally on the driver; the rows become part of the Spark query and need no separate job."""
    spent = [("read_seconds", "sum"), ("decode_seconds", "sum")]
    tallies = rows.group_by("kind").aggregate([("kind", "count"), *spent])
    return tables.arrow(rows, READ), [StagedRowCount(*values) for values in values_of(tallies, *tallies.column_names)]


def read_table(read: Rows) -> pa.Table:
    """Return what one process read as one table of READ."""
    schema = to_arrow_schema(READ)
    task = [{"read_seconds": read.read_seconds, "decode_seconds": read.decode_seconds}]
    by_kind = {
        "topic": read.topics,
        "partition": read.partitions,
        "quarantine": pa.Table.from_pylist([row.columns() for row in read.quarantine], schema),
        TORN: pa.table({"topic": pa.array(read.torn, pa.string())}),
        "task": pa.Table.from_pylist(task, schema),
    }
    return pa.concat_tables([_of_kind(kind, rows, schema) for kind, rows in by_kind.items()])


def _of_kind(kind: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = {name: rows[name] for name in rows.column_names} | {"kind": pa.repeat(kind, rows.num_rows)}
    nothing = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema}
    return pa.table({**nothing, **{name: columns[name] for name in nothing if name in columns}}).cast(schema)


def _with_again(
    staged: DataFrame, again: Rows | None, quarantine: Sequence[QuarantinedZnode], tables: SparkWarehouse
) -> tuple[DataFrame, list[StagedRowCount]]:
    """Replace the rows of topics that were read again, and add to the quarantine."""
    none = pa.table({})
    rows = again or Rows(topics=none, partitions=none, quarantine=[], read_seconds=0.0, decode_seconds=0.0)
    more = read_table(replace(rows, quarantine=[*rows.quarantine, *quarantine], torn=()))
    names = [*rows.torn]
    of_topic = F.coalesce("topic", F.split_part("path", F.lit("/"), F.lit(2)), F.lit(""))
    kept = staged.where(~of_topic.isin(names)) if names else staged
    return _checkpointed(kept.where(F.col("kind") != TORN).unionByName(tables.arrow(more, READ)))


def _on_one_line(read: Callable[[], Rows]) -> Rows:
    """Read on an executor, from whose error the driver takes one line."""
    try:
        return read()
    except UnreadableError as error:
        raise UnreadableError("; ".join(line.strip() for line in str(error).splitlines())) from None


def _checkpointed(read: DataFrame) -> tuple[DataFrame, list[StagedRowCount]]:
    """Read once, keep the rows, and count them by kind."""
    try:
        staged = read.localCheckpoint()
    except (PySparkException, Py4JError) as error:
        match = _ON_EXECUTOR.search(str(error))
        if match is None:
            raise
        kind = _KINDS[match[1]]
        raise kind(match[2], advice="" if kind is UnreadableError else _SHIPPING) from None
    spent = F.sum("read_seconds").alias("read"), F.sum("decode_seconds").alias("decoded")
    return staged, [
        StagedRowCount(*row) for row in staged.groupBy("kind").agg(F.count("*").alias("rows"), *spent).collect()
    ]
