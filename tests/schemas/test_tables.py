"""The tables: a comment for every column, keys, checks, and what a plan's id covers."""

import pytest
from pyspark.sql.types import StructType

from schemas.columns import CHECKS, KEY_COLUMNS, TABLE_COLUMNS
from schemas.plan_digest import HASHED
from schemas.tables import SPARK_SCHEMAS


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_cluster_comes_first(table: str) -> None:
    assert SPARK_SCHEMAS[table].names[0] == "cluster"


def _without_comment(schema: StructType) -> list[str]:
    missing = [column.name for column in schema if not isinstance(column.metadata["comment"], str)]
    nested = [getattr(column.dataType, "elementType", None) for column in schema]
    return missing + [name for inner in nested if isinstance(inner, StructType) for name in _without_comment(inner)]


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_every_column_says_what_it_is(table: str) -> None:
    assert _without_comment(StructType.fromJson(TABLE_COLUMNS[table].json)) == []


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_every_column_may_be_null_for_spark(table: str) -> None:
    """`.to(SCHEMA)` refuses other schemas; Delta's constraints enforce non-null columns."""
    assert [column.name for column in SPARK_SCHEMAS[table] if not column.nullable] == []


@pytest.mark.parametrize("table", SPARK_SCHEMAS)
def test_keys_are_columns(table: str) -> None:
    assert KEY_COLUMNS[table]
    assert set(KEY_COLUMNS[table]) <= set(SPARK_SCHEMAS[table].names)


def test_checks_speak_of_columns() -> None:
    words = {
        (table, word)
        for table, checks in CHECKS.items()
        for check in checks.values()
        for word in check.replace("(", " ").replace(")", " ").split()
        if word.isidentifier() and word.islower() and word != "cardinality"
    }
    assert {(table, word) for table, word in words if word not in SPARK_SCHEMAS[table].names} == set()
    changes = {("changes", "isr_before"), ("changes", "isr_after")}
    expected = {("partitions", "partition"), *changes, ("sizes", "bytes")}
    assert words == expected


def test_a_plans_id_covers_all_but_itself() -> None:
    """In the order of names, so that a column's position in its table does not matter."""
    expected = {name: tuple(sorted(set(SPARK_SCHEMAS[name].names) - {"cluster", "plan_id"})) for name in HASHED}
    assert expected.keys() == {"changes", "operations", "rejections"}
    assert expected == HASHED
