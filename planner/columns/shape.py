"""The shape of rows (exactly a table's columns, in order, of its types) and the join of a table before and after.

`with_schema` is the last line of every public transform. `DataFrame.to` would do the same, but it rebuilds every array
with an interpreted lambda even if no type changes. At a million partitions that alone took longer than the rules.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StructField, StructType

_UPCASTS = {("int", "bigint"), ("int", "double"), ("bigint", "double")}


def with_schema(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return `rows` with the columns of `schema`: missing ones are null, others are dropped.

    Raise TypeError for a column whose type cannot be cast without losing values.

    >>> from pyspark.sql.types import LongType, StringType
    >>> schema = StructType([StructField("id", LongType()), StructField("who", StringType())])
    >>> with_schema(spark.range(1), schema).show()
    +---+----+
    | id| who|
    +---+----+
    |  0|NULL|
    +---+----+
    <BLANKLINE>
    """
    types = {field.name: field.dataType for field in rows.schema}
    return rows.selectExpr(*(_column(types.get(field.name, NullType()), field) for field in schema))


def _column(kind: DataType, column: StructField) -> str:
    """Return a column in SQL, which takes a tenth of the calls to Spark that a Column takes."""
    actual, expected = kind.simpleString(), column.dataType.simpleString()
    if isinstance(kind, NullType):
        return f"CAST(NULL AS {expected}) AS {column.name}"
    if actual == expected:
        return column.name
    if (actual, expected) in _UPCASTS:
        return f"CAST({column.name} AS {expected}) AS {column.name}"
    raise TypeError(f"column {column.name} is {actual}, expected {expected}")


def full_outer_join(before: DataFrame, after: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Full outer join of a table before (`b`) and after (`a`) on its key, each a struct of `columns`, null if missing.

    In: the rows of one cluster. Out: one row per key, with `cluster`. An empty key pairs one row with one row.
    """
    old, new = (
        rows.select("cluster", *key, F.struct(*columns).alias(name)) for rows, name in ((before, "b"), (after, "a"))
    )
    new = new.withColumnRenamed("cluster", "now")
    joined = old.join(new, list(key), "full_outer") if key else old.crossJoin(new)
    return joined.withColumns({"cluster": F.coalesce("cluster", "now")})


def true() -> Column:
    return F.lit(True)  # noqa: FBT003 - a Spark literal


def false() -> Column:
    return F.lit(False)  # noqa: FBT003 - a Spark literal
