"""The warehouse on Spark: what grows with the cluster is read and written as DataFrames.

Every write names its cluster in the predicate, is idempotent (replaceWhere or MERGE on keys), and is retried a
bounded number of times when another writer came in between.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
from delta import exceptions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from jobs.adapters.delta.files import TableFiles
from jobs.adapters.delta.locks import locked
from jobs.adapters.delta.warehouse import MAX_WRITE_ATTEMPTS, Row, Warehouse, quoted, schema_of
from jobs.adapters.spark.session import cached_with_counts
from schemas.tables import TABLES

MAX_DRIVER_ROWS: Final = 200_000
"""Rows up to which the driver writes them itself: a tenth of a gigabyte at most."""

_CONFLICTS: Final = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
)
"""What PySpark raises, once these are imported; without them it knows no Delta, and raises py4j's own."""

_CONFLICT: Final = "DELTA_CONCURRENT_"
"""How Delta's conditions begin that another writer's commit brings about (`DELTA_CONCURRENT_APPEND` and others)."""

PARTITIONED_BY: Final = "cluster"
"""The column that every table is partitioned by: its values are in the names of folders, not in the files."""


@dataclass(frozen=True, slots=True)
class SparkWarehouse:
    """The cluster's tables in a session, or in one that is started once it is needed.

    Whatever deltalake answers is found out without it: most questions that have to be refused are refused in a second.
    """

    session: SparkSession | Callable[[], SparkSession]
    warehouse: Warehouse
    one_task: bool = False
    """Whether each table is a single partition, for a session of ONE_TASK."""

    @property
    def spark(self) -> SparkSession:
        return self.session() if callable(self.session) else self.session

    def read(self, table: str, version: int | None = None) -> DataFrame:
        """Read the cluster's rows, at a Delta version or now.

        deltalake says in which files they are: Spark takes longer to find a version than to read most tables. Two
        columns of a million rows took 0.09 to 0.14 s so and 0.22 to 0.29 s through Delta's own reader, by turns, warm.
        """
        schema = TABLES[table]
        paths = self.warehouse.paths(table, version)
        if not paths:
            return self.arrow(schema_of(table).empty_table(), schema)
        stored = StructType([field for field in schema if field.name != PARTITIONED_BY])
        rows = self.spark.read.schema(stored).parquet(*map(_as_glob, paths))
        cluster = f"{self._cluster} AS {PARTITIONED_BY}"
        return self._coalesced(rows.selectExpr(*(cluster if name == PARTITIONED_BY else name for name in schema.names)))

    def frame(self, table: str, rows: Sequence[Row]) -> DataFrame:
        """Make a DataFrame of a table's shape from rows of the driver; absent columns are null."""
        schema = schema_of(table)
        filled = [{**row, "cluster": self.warehouse.cluster} for row in rows]
        return self.arrow(pa.Table.from_pylist(filled, schema=schema), TABLES[table])

    def arrow(self, rows: pa.Table, schema: StructType) -> DataFrame:
        """Make a DataFrame of Arrow's rows: they become part of the query, where lists would start a Python worker."""
        whole = rows if rows.num_rows else rows.schema.empty_table()  # Spark sees no types where no chunks are
        return self._coalesced(self.spark.createDataFrame(whole, schema))

    def _coalesced(self, rows: DataFrame) -> DataFrame:
        return rows.coalesce(1) if self.one_task else rows

    def replace(self, table: str, rows: DataFrame, where: str = "true") -> None:
        """Replace the cluster's rows that satisfy `where`; running it again changes nothing."""
        predicate = f"cluster = {self._cluster} AND ({where})"
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", predicate)
        self._commit(table, lambda: writer.save(self.warehouse.path(table)))

    def replace_counted(self, table: str, rows: DataFrame, count: int, where: str = "true") -> None:
        """As `replace`, by `count` rows: few by way of the driver, which spares what Spark's write always takes."""
        if count <= MAX_DRIVER_ROWS:
            self.warehouse.replace_by(table, self.collect_arrow(table, rows), where)
        else:
            self.replace(table, rows, where)

    def collect_arrow(self, table: str, rows: DataFrame) -> pa.Table:
        """Bring rows of a table's columns to the driver, where they fit."""
        return rows.select(*TABLES[table].names).toArrow().cast(schema_of(table))

    def copy(self, source: str, target: str) -> None:
        """Make the cluster's rows of `target` those of `source`, file by file: quicker than to encode rows again.

        A million rows, much alike and therefore 0.6 MB, took 0.01 s so and 10 to 12 s as `replace`, by turns, warm.
        """
        files = self.warehouse.files(source)
        copied = [replace(file, path=f"{file.path.rpartition('/')[0]}/{uuid4()}.parquet") for file in files]
        of, to = (TableFiles(self.warehouse.path(table)) for table in (source, target))
        of.copy_to(to, {file.path: copy.path for file, copy in zip(files, copied, strict=True)})
        self.warehouse.add_files(target, copied)

    def merge(self, table: str, changed: DataFrame, keys: Sequence[str], vanished: str) -> None:
        """Upsert rows by their keys; those that satisfy `vanished` are deleted instead."""
        same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        place, cluster = (text.replace("{", "{{").replace("}", "}}") for text in (self._sql_path(table), self._cluster))
        sql = f"""
            MERGE INTO {place} t USING {{changed}} s ON t.cluster = {cluster} AND {same}
            WHEN MATCHED AND s.{vanished} THEN DELETE
            WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED AND NOT s.{vanished} THEN INSERT *
        """
        self._commit(table, lambda: self.spark.sql(sql, changed=changed))

    def _commit(self, table: str, write: Callable[[], object]) -> None:
        """Commit while no other process commits to the table: Spark replaces a commit that comes in between."""
        conflict = retry_if_exception(_is_conflict)
        again = Retrying(
            retry=conflict, stop=stop_after_attempt(MAX_WRITE_ATTEMPTS), wait=wait_exponential(0.2), reraise=True
        )
        with locked(self.warehouse.warehouse, table):
            again(write)

    @property
    def _cluster(self) -> str:
        return _literal(self.warehouse.cluster)

    def _sql_path(self, table: str) -> str:
        """Name a table by its path in SQL, where Delta's own API would want a plugin of a Spark Connect server."""
        return f"delta.`{self.warehouse.path(table).replace('`', '``')}`"


def _literal(text: str) -> str:
    """Write text as a literal of Spark's SQL, where a backslash escapes what follows; deltalake's is `lake.quoted`."""
    return quoted(text.replace("\\", r"\\"))


def _as_glob(path: str) -> str:
    """Write a path as the pattern that only it matches: Spark takes every path for one."""
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)


def counted(rows: DataFrame) -> tuple[DataFrame, int]:
    """Compute rows once, for all that is derived from them, and tell how many there are."""
    kept, counts = cached_with_counts(rows, all="true")
    return kept, counts["all"]


def _is_conflict(error: BaseException) -> bool:
    """Whether another writer was quicker: by its class, or by Delta's name for it, which is all that a server tells."""
    if isinstance(error, _CONFLICTS):
        return True
    return isinstance(error, PySparkException) and (error.getCondition() or "").startswith(_CONFLICT)
