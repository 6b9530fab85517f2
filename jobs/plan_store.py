"""A plan's rows on their way to the tables: their id and counts first, then the rows themselves.

Few rows come to the driver once, as Arrow, and it computes the id and writes them; many stay on Spark, which does the
same by more jobs. In: a plan's content. Out: its summary (plan_id, changes, rejected, moves), and its rows stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta import FEW, Tables, counted
from jobs.adapters.lake import Row, quoted
from planner.plan import plan_summary, with_lines
from schemas.digest import cell, lines, plan_id_of
from schemas.tables import TABLES

OPERATIONS: Final = "operations"


class PlanRows(Protocol):
    """The rows of a plan that has no id yet."""

    def summary(self, header: str) -> Row:
        """Return plan_id, changes, rejected and moves."""

    def write(self, plan_id: str) -> None:
        """Store the changes and rejections under the plan's id."""


def plan_rows(
    tables: Tables, rows: Mapping[str, DataFrame], operations: Sequence[Row], at_most: int | None
) -> PlanRows:
    """Take a plan's changes and rejections to where they are few enough to be; `at_most`: more there cannot be."""
    lined = {table: with_lines(table, found) for table, found in rows.items()}
    if at_most is None:
        found = {table: counted(frame) for table, frame in lined.items()}
        lined, at_most = {table: frame for table, (frame, _) in found.items()}, sum(n for _, n in found.values())
    if at_most <= FEW:
        return _OnDriver(tables, {table: frame.toArrow() for table, frame in lined.items()}, operations)
    return _OnSpark(tables, lined, operations)


@dataclass(frozen=True, slots=True)
class _OnDriver:
    tables: Tables
    rows: Mapping[str, pa.Table]
    operations: Sequence[Row]

    def summary(self, header: str) -> Row:
        lined = {table: _lines(rows) for table, rows in self.rows.items()}
        counts = {table: rows.num_rows for table, rows in self.rows.items()}
        return {
            "plan_id": plan_id_of(header, lined | {OPERATIONS: lines(OPERATIONS, self.operations)}),
            "changes": counts["changes"],
            "rejected": counts["rejections"],
            "moves": pc.sum(self.rows["changes"]["moves"], min_count=0).as_py(),
        }

    def write(self, plan_id: str) -> None:
        lake = self.tables.lake
        owner = {"plan_id": plan_id, "cluster": lake.cluster}
        for table, rows in self.rows.items():
            if rows.num_rows:
                names = TABLES[table].names
                columns = [_repeated(owner[name], rows) if name in owner else rows[name] for name in names]
                lake.replace_by(table, pa.table(columns, names=names), _mine(plan_id))


@dataclass(frozen=True, slots=True)
class _OnSpark:
    tables: Tables
    rows: Mapping[str, DataFrame]
    operations: Sequence[Row]

    def summary(self, header: str) -> Row:
        known = {**self.rows, OPERATIONS: with_lines(OPERATIONS, self.tables.frame(OPERATIONS, self.operations))}
        return plan_summary(header, known).collect()[0].asDict()

    def write(self, plan_id: str) -> None:
        owner = {"plan_id": F.lit(plan_id), "cluster": F.lit(self.tables.lake.cluster)}
        for table, rows in self.rows.items():
            self.tables.replace(table, rows.withColumns(owner).select(*TABLES[table].names), _mine(plan_id))


def _lines(rows: pa.Table) -> list[tuple[str, str]]:
    return list(zip(map(cell, rows["topic"].to_pylist()), rows["line"].to_pylist(), strict=True))


def _repeated(text: str, rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(text), rows.num_rows)


def _mine(plan_id: str) -> str:
    return f"plan_id = {quoted(plan_id)}"
