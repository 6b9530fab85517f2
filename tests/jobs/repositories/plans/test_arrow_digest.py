"""The digest of a plan in Arrow equals that of plain Python to the byte, for the same rows as objects."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.delta.table_schemas import schema_of
from jobs.repositories.plans import arrow_digest
from schemas.tables import SPARK_SCHEMAS
from tests.plan_digest import by_topic, lines
from tests.schemas.test_plan_digest import TABLES as ROWS

CHANGES = schema_of("changes")
LISTS = st.none() | st.lists(st.integers(0, 5), max_size=4)


@given(ROWS)
def test_rows_have_the_same_text_as_objects_and_in_arrow(tables: dict[str, list[dict[str, Any]]]) -> None:
    for table, given_rows in tables.items():
        rows = [dict.fromkeys(SPARK_SCHEMAS[table].names) | row for row in given_rows]
        pairs = arrow_digest.by_topic(table, pa.Table.from_pylist(rows, schema=schema_of(table)))
        assert dict(pairs) == dict(by_topic(lines(table, rows)))
        assert len(pairs) == len(dict(pairs))


def test_rows_in_several_chunks_are_one_text() -> None:
    rows = [{"topic": "t", "partition": p, "replicas_after": [p] * p} for p in range(4)]
    parts = [pa.Table.from_pylist(rows[:1], CHANGES), pa.Table.from_pylist(rows[1:], CHANGES).slice(1)]
    whole = [dict.fromkeys(CHANGES.names) | row for row in (rows[0], *rows[2:])]
    assert arrow_digest.by_topic("changes", pa.concat_tables(parts)) == list(by_topic(lines("changes", whole)))


@given(st.lists(st.tuples(st.none() | st.booleans(), LISTS, LISTS), max_size=6))
def test_copied_replicas_are_those_added_to_existing_partitions(rows: list[tuple[bool | None, Any, Any]]) -> None:
    names = ("is_new", "adding_before", "adding_after")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], CHANGES)
    added = (len(set(after or []) - set(before or [])) for is_new, before, after in rows if is_new is False)
    assert arrow_digest.count_copied_replicas(table) == sum(added)


@pytest.mark.parametrize("table", ["changes", "rejections"])
def test_no_rows_have_no_text(table: str) -> None:
    assert arrow_digest.by_topic(table, pa.Table.from_pylist([], schema_of(table))) == []
