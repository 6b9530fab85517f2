"""Evidence for partitions whose ISR is gone: which replica was in the ISR last, and when, for each candidate leader.

Kafka elects the first live replica of the assignment. A replica that was in the ISR when a snapshot was taken has
everything that was acknowledged before it, so the latest such snapshot loses least. Ties are decided by fewer leader
epochs since, then by the larger log, then by the order of the assignment. In: partitions with their live replicas,
PARTITION_HISTORY, SNAPSHOTS and, if known, log sizes. Out: EVIDENCE without a plan id.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from planner.columns.shape import with_schema
from planner.history.snapshot_diff import has_vanished
from schemas.tables import EVIDENCE, PARTITION_KEY


def ranked_evidence(
    offline: DataFrame,
    history: DataFrame,
    snapshots: DataFrame,
    sizes: DataFrame | None = None,
) -> DataFrame:
    """Return one EVIDENCE row per candidate; rank 1 is `chosen`.

    `offline` has topic, partition, leader_epoch, `live_replicas` (the candidates in order) and `kafkas` (the replica
    that Kafka would elect; Kafka does not know of drained brokers). `snapshots` are those up to the snapshot planned
    on. `sizes` has topic, partition, broker_id and log_size.
    """
    numbered = F.posexplode("live_replicas").alias("position", "broker_id")
    candidates = offline.select("cluster", *PARTITION_KEY, "leader_epoch", "kafkas", numbered)
    last_in_isr = candidates.join(_last_in_isr(offline, history, snapshots), [*PARTITION_KEY, "broker_id"], "left")
    by_size = last_in_isr.withColumns({"log_size": F.lit(None).cast("bigint")})
    if sizes is not None:
        log_sizes = sizes.select(*PARTITION_KEY, "broker_id", "log_size")
        by_size = last_in_isr.join(log_sizes, [*PARTITION_KEY, "broker_id"], "left")
    best = Window.partitionBy(*PARTITION_KEY).orderBy(*_best_first())
    return (
        by_size.withColumns({"epochs_since": F.col("leader_epoch") - F.col("epoch_then")})
        .withColumns({"rank": F.row_number().over(best), "kafkas_choice": F.col("broker_id") == F.col("kafkas")})
        .withColumns({"chosen": F.col("rank") == 1})
        .transform(with_schema, EVIDENCE)
    )


def log_sizes(sizes: DataFrame) -> DataFrame:
    """Return the last known bytes of each replica from SIZES, as `ranked_evidence` needs them, without future logs."""
    last = F.max_by("bytes", "taken_at").alias("log_size")
    return sizes.where(~F.col("is_future")).groupBy(*PARTITION_KEY, "broker_id").agg(last)


def _best_first() -> list[Column]:
    return [
        F.col("last_in_isr_snapshot").desc_nulls_last(),
        F.col("epochs_since").asc_nulls_last(),
        F.col("log_size").desc_nulls_last(),
        F.col("position").asc(),
    ]


def _last_in_isr(offline: DataFrame, history: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Return one row per replica that a snapshot saw in the ISR: the last such snapshot, and its leader epoch.

    A row of history holds from its snapshot until the next row of its partition.
    """
    newest_last = Window.partitionBy(*PARTITION_KEY).orderBy("snapshot_id")
    rows = (
        history.transform(_filter_same_topic, offline)
        .withColumns({"until": F.lead("snapshot_id").over(newest_last)})
        .select(*PARTITION_KEY, "snapshot_id", "until", "isr", "understood", F.col("leader_epoch").alias("epoch_then"))
    )
    member = (
        rows.where("understood")
        .withColumns({"broker_id": F.explode("isr")})
        .groupBy(*PARTITION_KEY, "broker_id")
        .agg(F.max_by(F.struct("snapshot_id", "until", "epoch_then"), "snapshot_id").alias("last"))
        .select(*PARTITION_KEY, "broker_id", "last.*")
    )
    taken = snapshots.select(F.col("snapshot_id").alias("id"), "taken_at")
    within = (F.col("id") >= F.col("snapshot_id")) & (F.col("until").isNull() | (F.col("id") < F.col("until")))
    return (
        member.join(F.broadcast(taken), within, "left")
        .groupBy(*PARTITION_KEY, "broker_id", "epoch_then", "snapshot_id")
        .agg(F.max("id").alias("newest"), F.max("taken_at").alias("last_in_isr_at"))
        .withColumns({"last_in_isr_snapshot": F.coalesce("newest", "snapshot_id")})
    )


def _filter_same_topic(history: DataFrame, offline: DataFrame) -> DataFrame:
    """Keep the rows of these partitions, without rows of an earlier topic of the same name."""
    last_vanished = F.max(F.when(has_vanished(), F.col("snapshot_id"))).over(Window.partitionBy(*PARTITION_KEY))
    epochs = offline.select(*PARTITION_KEY, F.col("leader_epoch").alias("epoch_now"))
    return (
        history.join(F.broadcast(epochs), PARTITION_KEY)
        .withColumns({"gone": F.coalesce(last_vanished, F.lit(0).cast("bigint"))})
        # a row without a state ends the history before it
        .where((F.col("snapshot_id") > F.col("gone")) & (F.coalesce("leader_epoch", "epoch_now") <= F.col("epoch_now")))
    )
