"""The partitions that may be in need, told by few columns and the small set of brokers.

Of a million partitions a dead broker concerns a few in a hundred; whatever a rule joins to all of them costs more than
reading them. In: PARTITIONS, BROKERS. Out: the rows of PARTITIONS that are not plainly well, each once.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.names import NO_LEADER


def in_need(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Keep what is not understood, has no state, or names a leader or an ISR member that is not registered."""
    registered = brokers.select(F.col("broker_id").alias("named"))
    return (
        partitions.withColumns({"named": F.explode(_named())})
        .join(F.broadcast(registered), "named", "left_anti")
        .select(*partitions.columns)
        .distinct()  # one for each name that is not registered
    )


def _named() -> Column:
    """The ISR and the leader; nobody, who is never registered, where a rule must look in any case."""
    leader, isr = F.col("leader"), F.col("isr")
    nobody = F.array(F.lit(NO_LEADER))
    # a lookup for each name is many times quicker than a set operation on the brokers for each row
    return (
        F.when(~F.col("understood") | leader.isNull() | isr.isNull(), nobody)
        .when(F.array_contains(isr, leader), isr)
        .otherwise(F.concat(isr, F.array(leader)))
    )
