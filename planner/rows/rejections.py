"""The rejection row: a partition that was asked for or is in need, and gets no change, and why.

In: partitions with the columns `code` and `reason`. Out: REJECTIONS without a plan id.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.rows.shape import shaped
from schemas.names import Action
from schemas.tables import REJECTIONS


def as_rejections(partitions: DataFrame, action: Action | Column) -> DataFrame:
    """Keep the rows that have a `code` as rejections of `action`."""
    wanted = F.lit(action.value) if isinstance(action, Action) else action
    return partitions.where(F.col("code").isNotNull()).withColumns({"action": wanted}).transform(shaped, REJECTIONS)
