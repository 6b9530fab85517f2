"""The shape of rows: exactly a table's columns, in order, of its types; and a table before and after, side by side.

`shaped` is the last line of every public transform. `DataFrame.to` would do, but rebuilds every array by an interpreted
lambda, even when nothing is to be changed: at a million partitions that alone took longer than the rules.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StructField, StructType

_UPCASTS = {("int", "bigint"), ("int", "double"), ("bigint", "double")}


def shaped(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return `rows` with the columns of `schema`; absent ones are null, others are left out.

    Raises TypeError for a column of a type that would lose values.

    >>> from pyspark.sql.types import LongType, StringType
    >>> schema = StructType([StructField("id", LongType()), StructField("who", StringType())])
    >>> shaped(spark.range(1), schema).show()
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
    """A column in SQL, which takes a tenth of the calls to Spark that Columns do."""
    is_now, must_be = kind.simpleString(), column.dataType.simpleString()
    if isinstance(kind, NullType):
        return f"CAST(NULL AS {must_be}) AS {column.name}"
    if is_now == must_be:
        return column.name
    if (is_now, must_be) in _UPCASTS:
        return f"CAST({column.name} AS {must_be}) AS {column.name}"
    raise TypeError(f"column {column.name} is {is_now}, expected {must_be}")


def paired(before: DataFrame, after: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Join a table before and after on its key: `b` and `a` hold the columns, null where a row was or is not.

    Shapes: the rows of one cluster in, one row a key out, with `cluster`; an empty key pairs one row with one row.
    """
    was, is_now = (
        rows.select("cluster", *key, F.struct(*columns).alias(name)) for rows, name in ((before, "b"), (after, "a"))
    )
    is_now = is_now.withColumnRenamed("cluster", "now")
    joined = was.join(is_now, list(key), "full_outer") if key else was.crossJoin(is_now)
    return joined.withColumns({"cluster": F.coalesce("cluster", "now")})
