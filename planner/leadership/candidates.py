"""The partitions that may be in need, told by few columns and the small set of brokers.

Of a million partitions a dead broker concerns a few in a hundred; whatever a rule joins to all of them costs more than
reading them. In: PARTITIONS, BROKERS. Out: the rows of PARTITIONS that are not plainly well, each once.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED
from schemas.enums import NO_LEADER
from schemas.tables import PARTITIONS

_DERIVED: Final = {
    "snapshot_id",
    "partition_state",
    "offline_replicas",
    "under_replicated",
    "under_min_isr",
    "vanished",
}

SOURCE_COLUMNS: Final = [name for name in PARTITIONS.names if name not in _DERIVED]
"""What rules look at: the columns of PARTITIONS that do not follow from others."""

REFERENCED_BROKERS: Final = f"""CASE
    WHEN NOT understood OR leader IS NULL OR isr IS NULL {{}} THEN array({NO_LEADER})
    WHEN array_contains(isr, leader) THEN isr
    ELSE concat(isr, array(leader))
END"""
"""The ISR and the leader; where a rule must look in any case, NO_LEADER, which is never registered."""

_OR_REFERENCES_FAILED: Final = f"OR array_contains({FAILED}, leader) OR arrays_overlap({FAILED}, isr)"


def needing_attention(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Keep what is not understood, has no state, or names a leader or an ISR member that is not registered.

    Also what is led by a replica whose log dir failed, or has one in its ISR: Kafka takes it out at once, and does not
    wait for its leader to miss it (`onReplicasBecomeOffline`).
    Of the columns those that are LOOKED_AT: one that is not needed is not even read.
    """
    failed, or_references_failed = ([FAILED], _OR_REFERENCES_FAILED) if FAILED in partitions.columns else ([], "")
    registered = brokers.select(F.col("broker_id").alias("named"))
    return (
        # a lookup for each name is many times quicker than a set operation on the brokers for each row
        partitions.selectExpr(
            *SOURCE_COLUMNS, *failed, f"explode({REFERENCED_BROKERS.format(or_references_failed)}) AS named"
        )
        .join(F.broadcast(registered), "named", "left_anti")
        .drop("named")
        .distinct()  # one for each name that is not registered
    )
