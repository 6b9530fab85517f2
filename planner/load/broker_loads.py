"""The load of brokers, summed over the replicas that they hold.

A leader gets what producers write, and sends it to each follower and to readers. A reader with a rack is served as
`RackAwareReplicaSelector` does it, if the brokers have it configured: by the leader if it is in that rack, else by a
replica there, else by the leader. Corresponds to Cruise Control's `ClusterModel`, whose brokers send everything as
leaders. Any window of loads will do: hours, or those of a profile.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from planner.columns.shape import with_schema
from planner.load.interval_parts import sum_of
from schemas.tables import BROKER_LOAD, PARTITION_KEY

_COUNTS: Final = ("leaders", "replicas", "size_bytes")
_RATES: Final = ("bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks")

BROKER_SUMS: Final = StructType([BROKER_LOAD[name] for name in ("hour", "broker_id", *_COUNTS, *_RATES)])
"""The columns of sums by hour."""


def replica_loads(
    loads: DataFrame, partitions: DataFrame, brokers: DataFrame, window: Sequence[str], *, are_nearest_read: bool
) -> DataFrame:
    """Sum loads by `window` and broker: `leaders`, `replicas`, and rates and sizes as in BROKER_LOAD.

    `loads` has topic, partition, leader (null: the stored one), bytes_in, bytes_out, bytes_out_by_rack, size_bytes and
    `window`; `partitions` has topic, partition, replicas and leader, `brokers` broker_id and rack. A partition that is
    not stored counts for its leader only. If the leader is not a stored replica, it takes the place of the last one.
    """
    placed = loads.transform(_placed, partitions, window)
    racks = F.broadcast(brokers.select("broker_id", "rack"))
    written = placed.transform(_written, window)
    read = placed.transform(_read, racks, window, are_nearest_read=are_nearest_read)
    return written.unionByName(read, allowMissingColumns=True).transform(add_up, window)


def add_up(parts: DataFrame, window: Sequence[str] = ("hour",)) -> DataFrame:
    """Sum the loads of brokers; parts may be replicas, or sums of some of them."""
    rates = (sum_of(F.col(rate)).alias(rate) for rate in _RATES)
    return parts.groupBy(*window, "broker_id").agg(*(F.sum(count).alias(count) for count in _COUNTS), *rates)


def broker_load(sums: DataFrame, cluster: str, cpu: DataFrame) -> DataFrame:
    """Return BROKER_LOAD from the sums of `replica_loads` by hour and the CPU of brokers: hour, broker_id and cpu.

    A broker without a rate has 0 of it if it is known of some broker in that hour, else null.
    """
    in_hour = Window.partitionBy("hour")
    written, read = (
        F.max(F.coalesce(*names)).over(in_hour) for names in (("bytes_in", "replication_in"), ("bytes_out",))
    )
    rates = {
        rate: F.when((read if rate == "bytes_out" else written).isNotNull(), F.coalesce(rate, F.lit(0.0)))
        for rate in _RATES
        if rate != "across_racks"
    }
    counts = {count: F.coalesce(count, F.lit(0)) for count in ("leaders", "replicas")}
    return (
        sums.join(F.broadcast(cpu), ["hour", "broker_id"], "left")
        .withColumns({"cluster": F.lit(cluster), **rates, **counts})
        .transform(with_schema, BROKER_LOAD)
    )


def cpu_of_brokers(metrics: DataFrame) -> DataFrame:
    """Return the mean CPU of brokers by hour, from BROKER_METRICS."""
    of_broker = metrics.where((F.col("metric") == "cpu") & F.col("topic").isNull())
    hour = F.date_trunc("hour", F.col("sampled_at")).alias("hour")
    return of_broker.groupBy(hour, "broker_id").agg(F.avg("value").alias("cpu"))


def _placed(loads: DataFrame, partitions: DataFrame, window: Sequence[str]) -> DataFrame:
    """Add the replicas, of which the leader is the first."""
    stored = partitions.select(*PARTITION_KEY, "replicas", F.col("leader").alias("stored_leader"))
    leader = F.coalesce("leader", F.when(F.col("stored_leader") >= 0, F.col("stored_leader")), F.col("replicas")[0])
    followers = F.slice(F.array_remove("replicas", F.col("leader")), 1, F.size("replicas") - 1)
    columns = (*window, *PARTITION_KEY, "bytes_in", "bytes_out", "bytes_out_by_rack", "size_bytes")
    return (
        loads.join(stored, PARTITION_KEY, "left")
        .withColumns({"leader": leader})
        .where(F.col("leader").isNotNull())
        .select(*columns, "leader", F.coalesce(followers, F.array().cast("array<int>")).alias("followers"))
    )


def _written(placed: DataFrame, window: Sequence[str]) -> DataFrame:
    """Return a row for each replica, with what is written to it, and what its leader sends to others but by rack."""
    is_leader = F.col("broker_id") == F.col("leader")
    to_racks = F.coalesce(F.aggregate(F.map_values("bytes_out_by_rack"), F.lit(0.0), lambda a, b: a + b), F.lit(0.0))
    replicas = placed.select("*", F.explode(F.concat(F.array("leader"), F.col("followers"))).alias("broker_id"))
    return replicas.select(
        *window,
        "broker_id",
        is_leader.cast("bigint").alias("leaders"),
        F.lit(1).cast("bigint").alias("replicas"),
        F.when(is_leader, F.col("bytes_in")).alias("bytes_in"),
        F.when(~is_leader, F.col("bytes_in")).alias("replication_in"),
        F.when(is_leader, F.col("bytes_out") - to_racks).alias("bytes_out"),
        F.when(is_leader, F.col("bytes_in") * F.size("followers")).alias("replication_out"),
        "size_bytes",
    )


def _read(placed: DataFrame, racks: DataFrame, window: Sequence[str], *, are_nearest_read: bool) -> DataFrame:
    """Return a row for each replica that serves readers of a rack; replicas of one rack share them."""
    readers = placed.where(F.col("bytes_out_by_rack").isNotNull()).select(
        *window, *PARTITION_KEY, "leader", "followers", F.explode(F.map_entries("bytes_out_by_rack")).alias("reads")
    )
    replicas = readers.select(
        *(*window, *PARTITION_KEY, "leader"),
        F.col("reads.key").alias("reader_rack"),
        F.col("reads.value").alias("read"),
        F.explode(F.concat(F.array("leader"), F.col("followers"))).alias("broker_id"),
    ).join(racks, "broker_id", "left")
    is_leader, is_near = F.col("broker_id") == F.col("leader"), F.col("rack").eqNullSafe(F.col("reader_rack"))
    readers_of_rack = Window.partitionBy(*window, *PARTITION_KEY, "reader_rack")
    counted = replicas.withColumns(
        {
            "near": F.sum(is_near.cast("int")).over(readers_of_rack),
            "is_leader_near": F.max((is_leader & is_near).cast("int")).over(readers_of_rack),
        }
    )
    is_near_served = (F.col("near") > 0) & (F.col("is_leader_near") == 0)
    near_share = is_near.cast("double") / F.greatest("near", F.lit(1))
    of_leader = is_leader.cast("double")
    share = F.when(is_near_served, near_share).otherwise(of_leader) if are_nearest_read else of_leader
    read = F.col("read") * share
    return counted.select(
        *window,
        "broker_id",
        read.alias("bytes_out"),
        F.when(is_near, F.lit(0.0)).otherwise(read).alias("across_racks"),
    ).where("bytes_out > 0")
