"""Rows of a table that are computed in portions and written in one commit.

If the driver commits, the portions wait in files of a temporary folder, so that its memory does not grow with them and
the table's lock is not held while they are computed. Spark keeps them on its executors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.adapters.delta.spark_warehouse import SparkWarehouse, cache_and_count


@dataclass(slots=True)
class PendingRows:
    """Rows for a table; `folder` is an empty one."""

    tables: SparkWarehouse
    table: str
    folder: Path
    count: int = 0
    files: list[Path] = field(default_factory=list)
    frames: list[DataFrame] = field(default_factory=list)

    def add(self, rows: DataFrame) -> None:
        """Compute rows with the table's columns."""
        if self.tables.is_committed_by_driver:
            for part in self.tables.parts(self.table, rows):
                self._store(part)
        else:
            kept, count = cache_and_count(rows)
            self.frames.append(kept)
            self.count += count

    def _store(self, part: pa.Table) -> None:
        path = self.folder / f"{self.table}-{len(self.files)}.arrow"
        with pa.ipc.new_file(path, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
            file.write_table(part)
        self.files.append(path)
        self.count += part.num_rows

    def replace(self, where: str) -> None:
        """Replace the cluster's rows that satisfy `where` by these; idempotent."""
        if not self.count:
            self.tables.warehouse.delete(self.table, where)
        elif self.frames:
            self.tables.replace(self.table, reduce(DataFrame.unionByName, self.frames), where)
        else:
            self.tables.warehouse.replace_in_parts(self.table, self._batches, where)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            with pa.OSFile(str(path)) as source:
                yield from pa.ipc.open_file(source).read_all().to_batches()
