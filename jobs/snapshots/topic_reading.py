"""Reads topics and partitions into a DataFrame, in rows of `jobs.adapters.zookeeper.spark_data_source.READ`.

Spark's executors read shares of the topics in parallel, from the servers of an ensemble or the brokers of a KRaft
cluster. A tiny cluster is read by the driver.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.adapters.clusters.interface import Cluster, Rows, Shares
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.session import default_parallelism
from jobs.adapters.zookeeper.spark_data_source import READ
from jobs.core.arrow_rows import values_of
from jobs.core.errors import MissingError, NoAnswerError, SurveyorError, UnreadableError, UsageError
from jobs.core.garbage_collection import gc_paused
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


def stage_topics(cluster: Cluster, tables: SparkWarehouse, *, tiny: bool) -> tuple[DataFrame, list[StagedRowCount]]:
    """Read topics and partitions once; return rows of READ, and the tally by kind of row."""
    shares = None if tiny else cluster.shares(TASKS_PER_CORE * default_parallelism(tables.spark))
    if shares is None:
        return _staged(pa.concat_tables(map(read_table, cluster.read_rows())), tables)
    staged, tallies = _checkpointed(read_on_executors(tables.spark, shares))
    is_torn = any(tally.kind == TORN for tally in tallies)
    rows = staged.where(F.col("kind") == TORN).select("topic").collect() if is_torn else []
    again = shares.read_again([row["topic"] for row in rows])
    if again is None and not shares.quarantine:
        return staged, tallies
    return _with_again(staged, again, shares.quarantine, tables)


def read_on_executors(spark: SparkSession, shares: Shares) -> DataFrame:
    """Read the shares on executors, as rows of READ.

    This does not use the data source `zookeeper`, which starts a Python process to create it and another to split it,
    before an executor starts the reading process. Spark's start and the first znode then take 6 s instead of 3 s.
    """

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from _batches(shares, number)

    count = len(shares.topics)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(read, READ)


def _batches(shares: Shares, number: int) -> Iterator[pa.RecordBatch]:
    """Read one share on an executor, from whose error the driver takes one line."""
    try:
        with gc_paused():
            for rows in shares.read(number):
                yield from read_table(rows).to_batches()
    except UnreadableError as error:
        raise UnreadableError("; ".join(line.strip() for line in str(error).splitlines())) from None


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
