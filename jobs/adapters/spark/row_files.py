"""Queries that are asked again and again about other rows, and analyzed once.

To build a query of a few hundred expressions takes Spark half a second, whatever it is about; to ask it of a thousand
rows takes less. So its tables are files whose content changes: a JSON document is read whole each time, by its path and
not by what was found of it before. Only where driver and executors are one process, as nobody else sees the files.
Measured with `python -m tests.bench.failover`.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


class RowFiles:
    """Tables of these shapes, empty at first; their folder is Spark's own and goes with it, killed or not."""

    def __init__(self, spark: SparkSession, shapes: Mapping[str, StructType]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rows-", dir=SparkFiles.getRootDirectory()))
        for name in shapes:
            self.put(name, [])
        # a value of another type than said must not become null, and be decided on
        read = spark.read.option("multiLine", value=True).option("mode", "FAILFAST")
        self.frames = {
            name: read.schema(shape).json(str(self._path(name))).coalesce(1) for name, shape in shapes.items()
        }

    def put(self, name: str, rows: Sequence[Any]) -> None:
        """Replace the rows of a table; dictionaries or structs, what they do not say is null."""
        self._path(name).write_bytes(msgspec.json.encode(rows))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def again(question: DataFrame) -> DataFrame:
    """The same question about the rows that are there now.

    What a physical plan has exchanged or broadcast is kept with it, so there must be a new one.
    """
    return question.select("*")
