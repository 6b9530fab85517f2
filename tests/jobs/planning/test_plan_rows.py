"""Rows of a plan on the driver and on Spark: equal ids, counts and stored rows."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.planning.plan_draft import PlanParts, plan_rows
from schemas.rows import Row
from tests.jobs.support.rows.plan_rows import creation
from tests.plan_digest import plan_id

OPERATIONS: list[Row] = [{"sequence": 0, "kind": "create_topic", "topic": "t", "data": "{}"}]
REJECTIONS: list[Row] = [{"topic": "u", "partition": -1, "action": "elect", "code": "DRAINED", "reason": "it | is"}]


def _changes() -> list[Row]:
    moved = {"adding_before": [], "adding_after": [4, 5], "is_new": False}
    return [{**creation("tv"[partition % 2], partition, [4, 5]), **moved} for partition in range(3)]


@pytest.mark.parametrize("few", [100, 1])
@pytest.mark.parametrize("at_most", [None, 100])
def test_few_and_many_rows_are_the_same_plan(
    spark: SparkSession, tmp_path: Path, few: int, at_most: int | None
) -> None:
    warehouse = Warehouse(str(tmp_path), "c")
    warehouse.ensure_tables()
    tables = SparkWarehouse(spark, warehouse, driver_rows=few)
    contents = {"changes": _changes(), "rejections": REJECTIONS}
    rows = plan_rows(tables, _frames(tables, contents), PlanParts(OPERATIONS), at_most)
    summary = rows.summary("header")
    rows.write(summary["plan_id"])
    assert summary == {"plan_id": summary["plan_id"], "changes": 3, "rejected": 1, "moves": 6}
    stored = {name: warehouse.rows(name, ("plan_id", "=", summary["plan_id"])) for name in contents}
    assert {name: len(rows) for name, rows in stored.items()} == {"changes": 3, "rejections": 1}
    assert plan_id("header", {**stored, "operations": OPERATIONS}) == summary["plan_id"]


def test_writing_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "c")
    warehouse.ensure_tables()
    tables = SparkWarehouse(spark, warehouse)
    rows = plan_rows(tables, _frames(tables, {"changes": _changes(), "rejections": []}), PlanParts(), None)
    for _ in range(2):
        rows.write("p")
    assert len(warehouse.rows("changes")) == 3
    assert not warehouse.rows("rejections")


def _frames(tables: SparkWarehouse, rows: Mapping[str, list[Row]]) -> dict[str, DataFrame]:
    return {
        name: tables.frame(name, [{**row, "plan_id": None} for row in table_rows]) for name, table_rows in rows.items()
    }
