"""Prepared queries: analyzed and optimized once, and run many times on changing rows.

Spark takes half a second to build a query of a few hundred expressions, and less to run it on a thousand rows. So the
tables of a query are JSON files whose content changes. Spark reads a JSON document again in each run, and only its path
is part of the plan. Driver and executors must be one process, which has the files. Measured with
`python -m tests.bench.failover`.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from jobs.adapters.spark.session import with_settings


class ParameterTables:
    """Tables with these schemas, initially empty, in Spark's own temporary folder, which is removed with Spark."""

    def __init__(self, spark: SparkSession, shapes: Mapping[str, StructType]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rows-", dir=SparkFiles.getRootDirectory()))
        for name in shapes:
            self.put(name, [])
        # a value of a wrong type must raise an error, as a null could lead to a wrong decision
        read = spark.read.option("multiLine", value=True).option("mode", "FAILFAST")
        self.frames = {
            name: read.schema(shape).json(str(self._path(name))).coalesce(1) for name, shape in shapes.items()
        }

    def put(self, name: str, rows: Sequence[Any]) -> None:
        """Replace the rows of a table by dictionaries or structs; missing columns are null."""
        self._path(name).write_bytes(msgspec.json.encode(rows))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """An optimized query; no optimizer rule looks at rows, so the plan is valid for any rows.

    The query must not use the current time, which the optimizer would write into the plan. The controller's election
    query for four partitions took 0.19 s this way and 0.28 s with all rules in each run, and the query for all due
    changes, with 17 scans, 0.47 s and 0.65 s (medians of 25 runs, warm).
    """

    _plan: Any
    _session: SparkSession
    _datasets: Any

    @classmethod
    def of(cls, query: DataFrame, session: SparkSession) -> "PreparedQuery":
        """Optimize a query, to be run in a session of `with_minimal_optimizer`."""
        datasets = getattr(session.sparkContext._jvm, "org.apache.spark.sql.classic.Dataset")  # noqa: SLF001 - see ask
        return cls(query._jdf.queryExecution().optimizedPlan(), session, datasets)  # noqa: SLF001 - as above

    def run(self) -> list[dict[str, Any]]:
        """Run the query on the current rows.

        A physical plan keeps its exchanged and broadcast data, so each run makes a new one. PySpark cannot make a
        DataFrame from an optimized plan, but Spark's JVM classes can.
        """
        dataset = self._datasets.ofRows(self._session._jsparkSession, self._plan)  # noqa: SLF001 - as above
        rows: list[dict[str, Any]] = DataFrame(dataset, self._session).toArrow().to_pylist()
        return rows


def with_minimal_optimizer(session: SparkSession) -> SparkSession:
    """Return a copy of the session whose optimizer only has the rules that Spark does not allow to exclude."""
    optimizer = session._jsparkSession.sessionState().optimizer()  # noqa: SLF001 - it knows its rules
    rules = {
        rule.ruleName() for batch in _scala_items(optimizer.defaultBatches()) for rule in _scala_items(batch.rules())
    }
    spared = rules.difference(_scala_items(optimizer.nonExcludableRules()))
    return with_settings(session, {"spark.sql.optimizer.excludedRules": ",".join(sorted(spared))})


def _scala_items(some: Any) -> Iterator[Any]:  # noqa: ANN401 - a Seq of Scala
    iterator = some.iterator()
    while iterator.hasNext():
        yield iterator.next()
