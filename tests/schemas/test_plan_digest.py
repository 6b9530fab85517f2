"""A plan's id: every part of a plan affects it."""

from typing import Any, Final

from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BooleanType, DataType, StringType, StructType

from schemas.rows import Row
from schemas.tables import CHANGES, OPERATIONS, REJECTIONS
from tests.plan_digest import plan_id

SCHEMAS: Final = {"changes": CHANGES, "operations": OPERATIONS, "rejections": REJECTIONS}
WORST: Final = st.sampled_from(
    ["null", "", "|", "\n", "[1, 2]", "t", "Ünï·码🜁", "\x00", "e\u0301", "\uffff", "\U0010ffff"]
)
TEXTS: Final = st.one_of(WORST, st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
INTS: Final = st.integers(-(2**31), 2**31 - 1)


def _values(data_type: DataType) -> st.SearchStrategy[Any]:
    if isinstance(data_type, ArrayType):
        return st.lists(st.none() | INTS, max_size=3)
    if isinstance(data_type, StringType):
        return TEXTS
    return st.booleans() if isinstance(data_type, BooleanType) else INTS


def _rows(schema: StructType) -> st.SearchStrategy[list[Row]]:
    """Rows with arbitrary values in a few columns and nulls elsewhere."""
    columns = {column.name: _values(column.dataType) for column in schema}
    named = st.sampled_from(schema.names).flatmap(lambda name: st.tuples(st.just(name), columns[name]))
    some = st.lists(named, max_size=6).map(dict)
    return st.lists(some, max_size=8)


TABLES: Final = st.fixed_dictionaries({name: _rows(schema) for name, schema in SCHEMAS.items()})
NOTHING: Final[dict[str, list[Row]]] = {"changes": [], "operations": [], "rejections": []}


def test_every_column_but_its_own_counts() -> None:
    """Any edited, missing or additional row gives another plan id."""
    rows = {name: dict.fromkeys(schema.names) for name, schema in SCHEMAS.items()}
    whole = {name: [row] for name, row in rows.items()}
    edited = [
        whole | {name: [row | {column: 0}]}
        for name, row in rows.items()
        for column in row.keys() - {"cluster", "plan_id"}
    ]
    fewer = [whole | {name: []} for name in rows]
    more = [whole | {name: [row, row]} for name, row in rows.items()]
    ids = [plan_id("header", tables) for tables in (whole, *edited, *fewer, *more)] + [plan_id("other", whole)]
    assert len(set(ids)) == len(ids)


def test_the_order_of_rows_does_not_count() -> None:
    names = dict.fromkeys(CHANGES.names)
    rows = [names | {"topic": topic, "partition": number} for topic in ("a", "b") for number in range(3)]
    assert plan_id("", NOTHING | {"changes": rows}) == plan_id("", NOTHING | {"changes": rows[::-1]})
