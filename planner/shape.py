"""The last line of every public transform: exactly a table's columns, in order, of its types.

As `DataFrame.to`, which rebuilds every array by an interpreted lambda, even when nothing is to be changed: at a
million partitions that alone took longer than the rules.
"""

from pyspark.sql import Column, DataFrame
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
    found = {field.name: field.dataType for field in rows.schema}
    return rows.select(*(_column(found.get(field.name, NullType()), field) for field in schema))


def _column(found: DataType, wanted: StructField) -> Column:
    is_now, must_be = found.simpleString(), wanted.dataType.simpleString()
    if isinstance(found, NullType):
        column = F.lit(None).cast(wanted.dataType)
    elif is_now == must_be:
        column = F.col(wanted.name)
    elif (is_now, must_be) in _UPCASTS:
        column = F.col(wanted.name).cast(wanted.dataType)
    else:
        raise TypeError(f"column {wanted.name} is {is_now}, expected {must_be}")
    return column.alias(wanted.name, metadata=wanted.metadata)
