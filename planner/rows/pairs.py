"""A table before and after: its rows side by side, for what compares two snapshots."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


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
