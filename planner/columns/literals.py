"""Literals of Spark. They are functions, because a Column needs a session, which does not exist at import."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def true() -> Column:
    return F.lit(True)  # noqa: FBT003 - a Spark literal


def false() -> Column:
    return F.lit(False)  # noqa: FBT003 - a Spark literal
