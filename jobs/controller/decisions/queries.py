"""The questions of a controller that stays: queries that are built once, and asked of whatever rows are put there.

In: rows of the tables that a cycle looks at. Out: rows of DECISIONS, DELETIONS and NOTICES.
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
    """What is asked; each is built once."""

    LEADERSHIP = auto()
    EVERYTHING = auto()
    """Reassignments and preferred elections, too."""
    DELETIONS = auto()
    STOP = auto()
    """What brokers are told first of topics that are deleted."""
    DELETE = auto()
    """What they are told next."""


@dataclass(slots=True)
class DecisionQueries:
    """What can be asked in one session about the cluster of this name.

    Whoever decides puts all that a question looks at before asking it, so nothing is left of what was asked before.
    """

    spark: SparkSession
    cluster: str
    allow_unclean: bool
    _files: ParameterTables = field(init=False)
    _cycle: Cycle = field(init=False)
    _asking: SparkSession = field(init=False)
    _prepared: dict[Query, PreparedQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files = ParameterTables(self.spark, _SHAPES)
        self._cycle = Cycle(self._tables())
        self._asking = with_minimal_optimizer(self.spark)

    @classmethod
    def of(cls, spark: SparkSession, cluster: str, *, allow_unclean: bool) -> "DecisionQueries":
        """Questions in a session of their own."""
        return cls(with_settings(spark, ONE_TASK), cluster, allow_unclean)

    def put(self, table: str, rows: Sequence[Any]) -> None:
        """Replace the rows that are asked about."""
        self._files.put(table, rows)

    def run(self, question: Query) -> list[Row]:
        """Ask about the rows that were put last."""
        if question not in self._prepared:
            self._prepared[question] = PreparedQuery.of(self._build(question), self._asking)
        return self._prepared[question].run()

    def _build(self, question: Query) -> DataFrame:
        match question:
            case Query.LEADERSHIP:
                return Cycle(replace(self._cycle.tables, moves=False)).decisions
            case Query.EVERYTHING:
                return self._cycle.decisions
            case Query.DELETIONS:
                return self._cycle.deletions
            case Query.STOP | Query.DELETE:
                return self._cycle.deletion_notices(delete=question is Query.DELETE)

    def _tables(self) -> CycleInput:
        named = {
            name: frame.withColumns({"cluster": F.lit(self.cluster)}) for name, frame in self._files.frames.items()
        }
        failed = F.expr(f"coalesce({FAILED}, {EMPTY})")
        named["partitions"] = named["partitions"].withColumns({FAILED: failed})
        return CycleInput(**named, moves=True, stays=True, allow_unclean=self.allow_unclean)
