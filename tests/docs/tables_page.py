"""The tables as docs/tables.md shows them, read from `schemas.columns`."""

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, StructField, StructType

from schemas.columns import CHECKS, KEY_COLUMNS, TABLE_COLUMNS
from tests.docs.markdown import code, table


def tables_page() -> str:
    """Describe every table: key, checks, and a row a column."""
    return "\n\n".join(part for name in TABLE_COLUMNS for part in _table(name))


def _table(name: str) -> Iterator[str]:
    yield f"### {name}"
    key = f"Never null: {', '.join(map(code, ('cluster', *KEY_COLUMNS[name])))}."
    checks = " and ".join(map(code, CHECKS.get(name, {}).values()))
    yield f"{key} Delta checks that {checks}." if checks else key
    yield table(["column", "type", "meaning"], list(_rows(StructType.fromJson(TABLE_COLUMNS[name].json))))


def _rows(schema: StructType, within: str = "") -> Iterator[list[str]]:
    for column in schema:
        yield [code(within + column.name), code(_type(column)), column.metadata["comment"]]
        if isinstance(column.dataType, ArrayType) and isinstance(column.dataType.elementType, StructType):
            yield from _rows(column.dataType.elementType, f"{within}{column.name}.")


def _type(column: StructField) -> str:
    """A column's type as Spark says it; a row in an array has its own lines below."""
    kind = column.dataType
    nested = isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)
    return "array<struct>" if nested else kind.simpleString()
