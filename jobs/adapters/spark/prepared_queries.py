"""Queries that are asked again and again about other rows: analyzed and optimized once.

To build a query of a few hundred expressions takes Spark half a second, whatever it is about; to ask it of a thousand
rows takes less. So its tables are files whose content changes: a JSON document is read whole each time, by its path and
not by what was found of it before. Only where driver and executors are one process, as nobody else sees the files.
Measured with `python -m tests.bench.failover`.
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


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query as the optimizer left it: no rule of it looks at rows, so it is the same whatever they are.

    It must not ask for the time, which the optimizer writes into the plan.
    Who leads four partitions took a controller 0.19 s to ask so, and 0.28 where all rules ran each time; what is due of
    everything, a query of 17 scans, 0.47 and 0.65: medians of 25, warm.
    """

    _plan: Any
    _session: SparkSession
    _datasets: Any

    @classmethod
    def of(cls, query: DataFrame, session: SparkSession) -> "PreparedQuery":
        """Optimize a query; it is then asked in a session of `with_minimal_optimizer`."""
        datasets = getattr(session.sparkContext._jvm, "org.apache.spark.sql.classic.Dataset")  # noqa: SLF001 - see ask
        return cls(query._jdf.queryExecution().optimizedPlan(), session, datasets)  # noqa: SLF001 - as above

    def run(self) -> list[dict[str, Any]]:
        """Answer for the rows that are there now.

        What a physical plan has exchanged or broadcast is kept with it, so there is a new one each time. PySpark makes
        none of a plan that is optimized already; Spark itself does.
        """
        dataset = self._datasets.ofRows(self._session._jsparkSession, self._plan)  # noqa: SLF001 - as above
        rows: list[dict[str, Any]] = DataFrame(dataset, self._session).toArrow().to_pylist()
        return rows


def with_minimal_optimizer(session: SparkSession) -> SparkSession:
    """Return a session beside this one whose optimizer does only what Spark says no query can go without."""
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
