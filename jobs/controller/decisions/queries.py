"""The queries of the resident controller: built once, and run on any rows of the tables that a cycle reads.

They return rows of DECISIONS, DELETIONS and NOTICES.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.prepared_queries import ParameterTables, PreparedQuery, with_minimal_optimizer
from jobs.adapters.spark.session import ONE_TASK, with_settings
from planner.columns.broker_sets import DRAIN_MODE, EMPTY, FAILED
from planner.reconciliation.cycle import Cycle, CycleInput
from schemas.tables import BROKER_IDS, PARTITIONS, TABLES

_SHAPES: Final = {
    "partitions": StructType([*PARTITIONS, StructField(FAILED, BROKER_IDS)]),
    "topics": TABLES["topics"],
    "brokers": StructType([*TABLES["brokers"], StructField(DRAIN_MODE, StringType())]),
    "broker_configs": TABLES["broker_configs"],
    "requests": TABLES["requests"],
    "stopped": TABLES["answers"],
}


class Query(Enum):
    """A query, built when it is first run."""

    LEADERSHIP = auto()
    EVERYTHING = auto()
    """Leadership, reassignments and preferred elections."""
    DELETIONS = auto()
    STOP = auto()
    """The first notices for topics that are being deleted."""
    DELETE = auto()
    """The second notices for topics that are being deleted."""


@dataclass(slots=True)
class DecisionQueries:
    """The queries about one cluster, in one Spark session.

    The caller must replace all input tables before running a query, so that no rows remain from the previous one.
    """

    spark: SparkSession
    cluster: str
    allow_unclean: bool
    _parameters: ParameterTables = field(init=False)
    _cycle: Cycle = field(init=False)
    _query_session: SparkSession = field(init=False)
    _prepared: dict[Query, PreparedQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._parameters = ParameterTables(self.spark, _SHAPES)
        self._cycle = Cycle(self._tables())
        self._query_session = with_minimal_optimizer(self.spark)

    @classmethod
    def of(cls, spark: SparkSession, cluster: str, *, allow_unclean: bool) -> "DecisionQueries":
        """Make queries in a session of their own."""
        return cls(with_settings(spark, ONE_TASK), cluster, allow_unclean)

    def put(self, table: str, rows: Sequence[Any]) -> None:
        """Replace the rows of an input table."""
        self._parameters.put(table, rows)

    def run(self, query: Query) -> list[Row]:
        """Run a query on the rows that were put last."""
        if query not in self._prepared:
            self._prepared[query] = PreparedQuery.of(self._build(query), self._query_session)
        return self._prepared[query].run()

    def _build(self, query: Query) -> DataFrame:
        match query:
            case Query.LEADERSHIP:
                return Cycle(replace(self._cycle.tables, moves=False)).decisions
            case Query.EVERYTHING:
                return self._cycle.decisions
            case Query.DELETIONS:
                return self._cycle.deletions
            case Query.STOP | Query.DELETE:
                return self._cycle.deletion_notices(delete=query is Query.DELETE)

    def _tables(self) -> CycleInput:
        named = {
            name: frame.withColumns({"cluster": F.lit(self.cluster)}) for name, frame in self._parameters.frames.items()
        }
        failed = F.expr(f"coalesce({FAILED}, {EMPTY})")
        named["partitions"] = named["partitions"].withColumns({FAILED: failed})
        return CycleInput(**named, moves=True, is_resident=True, allow_unclean=self.allow_unclean)
