"""Partitions that may need a leadership change, found by a few columns and the small set of brokers.

A dead broker concerns a few in a hundred of a million partitions. Joining anything to all of them costs more than
reading them. In: PARTITIONS, BROKERS. Out: each row of PARTITIONS that may need a change, once.
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
"""The columns of PARTITIONS that rules read: those that are not derived from others."""

REFERENCED_BROKERS: Final = f"""CASE
    WHEN NOT understood OR leader IS NULL OR isr IS NULL {{}} THEN array({NO_LEADER})
    WHEN array_contains(isr, leader) THEN isr
    ELSE concat(isr, array(leader))
END"""
"""The ISR and the leader; if rules must see the partition anyway, NO_LEADER, which is never registered."""

_OR_REFERENCES_FAILED: Final = f"OR array_contains({FAILED}, leader) OR arrays_overlap({FAILED}, isr)"


def needing_attention(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return partitions that were not understood, have no state, or reference a leader or ISR member not registered.

    Also returns partitions whose leader or ISR includes a replica whose log dir failed. Kafka handles such a replica at
    once and does not wait for its leader to remove it (`onReplicasBecomeOffline`). Only SOURCE_COLUMNS are selected, as
    columns that are not needed are not even read.
    """
    failed, or_references_failed = ([FAILED], _OR_REFERENCES_FAILED) if FAILED in partitions.columns else ([], "")
    registered = brokers.select(F.col("broker_id").alias("named"))
    return (
        # a join on each broker id is many times faster than a set operation per row
        partitions.selectExpr(
            *SOURCE_COLUMNS, *failed, f"explode({REFERENCED_BROKERS.format(or_references_failed)}) AS named"
        )
        .join(F.broadcast(registered), "named", "left_anti")
        .drop("named")
        .distinct()  # a row per broker id that is not registered
    )
