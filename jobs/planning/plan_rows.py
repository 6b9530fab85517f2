"""Rows of a plan computed on Spark: their id and counts first, then the rows themselves.

Few rows are collected once as Arrow, and the driver computes the id and writes them. Many rows stay on Spark, which
does the same in several jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.spark_warehouse import MAX_DRIVER_ROWS, SparkWarehouse, counted
from jobs.adapters.delta.warehouse import AnyRow, columns_of
from jobs.repositories.plans import arrow_digest
from jobs.repositories.plans.record_builders import PlanRows, plan_condition
from planner.columns.plan_digest import plan_summary, with_lines
from schemas.rows import Row
from schemas.tables import SPARK_SCHEMAS

OPERATIONS: Final = "operations"


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """The rows of a plan in addition to changes and rejections, which are few or none."""

    operations: Sequence[AnyRow] = ()
    evidence: DataFrame | None = None

    def write(self, tables: SparkWarehouse, plan_id: str) -> None:
        tables.warehouse.replace(
            OPERATIONS, [{**columns_of(row), "plan_id": plan_id} for row in self.operations], plan_condition(plan_id)
        )
        if self.evidence is not None:
            tables.replace("evidence", _owned(self.evidence, tables, plan_id), plan_condition(plan_id))


def plan_rows(tables: SparkWarehouse, rows: Mapping[str, DataFrame], extra: ExtraRows, at_most: int | None) -> PlanRows:
    """Collect a plan's rows if they are few, else leave them on Spark; `at_most` is an upper bound if known."""
    if at_most is None:
        computed = {table: counted(frame) for table, frame in rows.items()}
        rows, at_most = {table: frame for table, (frame, _) in computed.items()}, sum(n for _, n in computed.values())
    if at_most <= MAX_DRIVER_ROWS:
        return _ArrowRows(tables, {table: frame.toArrow() for table, frame in rows.items()}, extra)
    return _SparkRows(tables, rows, extra)


@dataclass(frozen=True, slots=True)
class _ArrowRows:
    tables: SparkWarehouse
    rows: Mapping[str, pa.Table]
    extra: ExtraRows

    def summary(self, header: str) -> Row:
        return arrow_digest.summary(
            header, {**self.rows, OPERATIONS: arrow_digest.in_arrow(OPERATIONS, self.extra.operations)}
        )

    def write(self, plan_id: str) -> None:
        warehouse = self.tables.warehouse
        owner = {"plan_id": plan_id, "cluster": warehouse.cluster}
        for table, rows in self.rows.items():
            if rows.num_rows:
                names = SPARK_SCHEMAS[table].names
                columns = [_repeated(owner[name], rows) if name in owner else rows[name] for name in names]
                warehouse.replace_by(table, pa.table(columns, names=names), plan_condition(plan_id))
        self.extra.write(self.tables, plan_id)


@dataclass(frozen=True, slots=True)
class _SparkRows:
    tables: SparkWarehouse
    rows: Mapping[str, DataFrame]
    extra: ExtraRows

    def summary(self, header: str) -> Row:
        tables = {**self.rows, OPERATIONS: self.tables.frame(OPERATIONS, self.extra.operations)}
        lined = {table: with_lines(table, rows) for table, rows in tables.items()}
        return plan_summary(header, lined).collect()[0].asDict()

    def write(self, plan_id: str) -> None:
        for table, rows in self.rows.items():
            owned = _owned(rows, self.tables, plan_id).select(*SPARK_SCHEMAS[table].names)
            self.tables.replace(table, owned, plan_condition(plan_id))
        self.extra.write(self.tables, plan_id)


def _owned(rows: DataFrame, tables: SparkWarehouse, plan_id: str) -> DataFrame:
    return rows.withColumns({"plan_id": F.lit(plan_id), "cluster": F.lit(tables.warehouse.cluster)})


def _repeated(text: str, rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(text), rows.num_rows)
