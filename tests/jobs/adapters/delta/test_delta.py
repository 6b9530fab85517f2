"""Tables read on Spark: only the cluster's rows, at any version, from any writer, for any cluster name."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.session import cached_with_counts
from schemas.tables import SPARK_SCHEMAS, TOPICS

NAMES: Final = ["default", "prod eu/é%=1", "a[b]{c}*?", "x%20y", "it's", r"a\b'\\c"]
"""Some are written otherwise in a path, some otherwise by Spark than by deltalake, and some look like patterns."""


def _names(tables: SparkWarehouse, version: int | None = None) -> list[tuple[str, str]]:
    return sorted((row.cluster, row.topic) for row in tables.read("topics", version).collect())


def _topic(topic: str) -> dict[str, Any]:
    return {"topic": topic, "snapshot_id": 1, "config": {"a": "b"}, "understood": True}


pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_cluster_at_a_version_and_now(spark: SparkSession, tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(str(tmp_path), name)
    warehouse.ensure_tables()
    tables = SparkWarehouse(spark, warehouse)
    empty = warehouse.version("topics")
    warehouse.append("topics", [_topic("by deltalake")])
    then = warehouse.version("topics")
    Warehouse(str(tmp_path), "another").append("topics", [_topic("of another")])
    both = tables.frame("topics", [_topic("by deltalake"), _topic("by Spark")])
    tables.replace("topics", both)
    assert _names(tables, empty) == []
    assert _names(tables, then) == [(name, "by deltalake")]
    assert _names(tables) == [(name, "by Spark"), (name, "by deltalake")]
    assert tables.read("topics").dtypes == tables.read("topics", empty).dtypes == both.dtypes
    assert sorted(map(str, tables.read("topics").collect())) == sorted(map(str, both.select(*TOPICS.names).collect()))


def test_a_version_that_lacked_a_column_has_nulls_there(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    older = StructType([field for field in TOPICS if field.name != "config"])
    table = DeltaTable.create(warehouse.path("topics"), Schema.from_json(older.json()), partition_by=["cluster"])
    spark.createDataFrame([("default", "t")], "cluster string, topic string").write.format("delta").mode("append").save(
        warehouse.path("topics"),
    )
    warehouse.ensure_tables()
    [row] = SparkWarehouse(spark, warehouse).read("topics", table.version() + 1).collect()
    assert (row.topic, row.config, row.cluster) == ("t", None, "default")


def test_times_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    taken_at = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": taken_at, "versions": {"topics": 3}}])
    read = SparkWarehouse(spark, warehouse).read("snapshots").selectExpr("unix_micros(taken_at) AS at", "versions")
    assert [row.asDict() for row in read.collect()] == [
        {"at": int(taken_at.timestamp()) * 1_000_000 + 789, "versions": {"topics": 3}},
    ]


def test_every_table_is_there_once_ensured(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    assert {name: SparkWarehouse(spark, warehouse).read(name).columns for name in SPARK_SCHEMAS} == {
        name: schema.names for name, schema in SPARK_SCHEMAS.items()
    }


def test_rows_are_counted_as_they_are_computed(spark: SparkSession) -> None:
    rows, counts = cached_with_counts(spark.range(10), even="id % 2 = 0", large="id > 6", none="id IS NULL")
    assert counts == {"even": 5, "large": 3, "none": 0}
    assert rows.count() == 10


@pytest.mark.parametrize("words", [[[], ["a"], []], [["a"], ["b"]], [[]]])
def test_no_row_is_lost_after_an_empty_chunk(spark: SparkSession, tmp_path: Path, words: list[list[str]]) -> None:
    rows = pa.concat_tables([pa.table({"word": pa.array(some, pa.string())}) for some in words])
    frame = SparkWarehouse(spark, Warehouse(str(tmp_path), "default")).arrow(rows, "word string")
    assert sorted(row.word for row in frame.collect()) == [word for some in words for word in some]


def test_a_merge_that_another_writer_has_overtaken_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    warehouse.ensure_tables()
    warehouse.append("topics", [_topic("a"), _topic("b")])
    overtaken = tmp_path / "overtaken"

    def overtake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not overtaken.exists():
            overtaken.touch()
            DeltaTable(warehouse.path("topics")).update(
                predicate="topic = 'a'", new_values={"snapshot_id": 7}
            )  # no locks
        yield from batches

    tables = SparkWarehouse(spark, warehouse)
    vanished = F.lit(False).alias("vanished")
    changed = tables.frame("topics", [{**_topic("b"), "snapshot_id": 9}, _topic("c")]).select("*", vanished)
    tables.merge("topics", changed.mapInArrow(overtake, changed.schema), ["topic"], "vanished")
    assert overtaken.exists()
    assert sorted((row["topic"], row["snapshot_id"]) for row in warehouse.rows("topics")) == [
        ("a", 7),
        ("b", 9),
        ("c", 1),
    ]
