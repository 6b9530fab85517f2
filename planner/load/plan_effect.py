"""The load of brokers before and after a plan, by resource and window; `load_figures` compares the brokers.

Corresponds to Cruise Control's `BrokerStats` before and after a proposal, with the load of each partition in each
window of the week instead of the share of its topic. A replica receives the bytes that producers write, as leader or
as follower. A leader sends these to each follower, and to readers the bytes that they read. In: PARTITIONS, the ends of
a plan, LOADS. Out: EFFECT, one row per broker and window.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from planner.columns.shape import with_schema
from planner.load.load_figures import MEASURES, MEASURES_OF, SIDES
from planner.load.resources import RESOURCES
from schemas.tables import PARTITION_KEY


def _schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


LOADS: Final = _schema(
    topic=StringType(),
    partition=IntegerType(),
    window=StringType(),
    **dict.fromkeys(MEASURES, DoubleType()),
)
"""The load of one partition in one window, with the meaning and units of `load_profiles`; null is unknown."""

EFFECT: Final = _schema(
    window=StringType(),
    broker_id=IntegerType(),
    **{f"{resource}_{side}": DoubleType() for resource in RESOURCES for side in SIDES},
    **{f"{resource}_known": LongType() for resource in RESOURCES},
    leads=LongType(),
    copied=DoubleType(),
)
"""Loads of a broker before and after, in the unit of the resource, null if no load of its replicas is known.

`in_known` and the like count its replicas with a known load, `leads` its partitions with a load that it leads before.
Replicas of known size that the plan adds to it take `copied` bytes.
"""

_HELD: Final = "array_contains({replicas}, broker_id)"

_SENT: Final = "coalesce(bytes_in, 0D) * (size({replicas}) - 1) + coalesce(bytes_out, 0D)"

_LOAD: Final = {
    "disk": f"IF({_HELD}, size_bytes, 0D)",
    "in": f"IF({_HELD}, bytes_in, 0D)",
    "out": f"IF({{leader}} = broker_id AND coalesce(bytes_in, bytes_out) IS NOT NULL, {_SENT}, 0D)",
    "cpu": f"CASE WHEN {{leader}} = broker_id THEN cpu_leader WHEN {_HELD} THEN cpu_follower ELSE 0D END",
}
"""The load of a replica by resource, in SQL: bytes, bytes per second twice, and percent of all cores."""


def with_topic_means(loads: DataFrame, partitions: DataFrame) -> DataFrame:
    """Replace each unknown load of these partitions by the mean of its topic in the window, as plans by load do."""
    keys = partitions.select(*PARTITION_KEY)
    means = (
        loads.join(keys, PARTITION_KEY).groupBy("topic", "window").agg(*(F.avg(m).alias(f"mean_{m}") for m in MEASURES))
    )
    rows = keys.join(means, "topic").join(loads, [*PARTITION_KEY, "window"], "left")
    filled = (F.coalesce(name, f"mean_{name}").alias(name) for name in MEASURES)
    return rows.select(*PARTITION_KEY, "window", *filled).transform(with_schema, LOADS)


def plan_ends(changes: DataFrame) -> DataFrame:
    """Return the replicas and the leader of each changed partition after its last wave, from CHANGES."""
    return changes.groupBy(*PARTITION_KEY).agg(
        F.expr("max_by(replicas_after, wave) AS replicas_after"),
        F.expr("max_by(leader_after, wave) AS leader_after"),
    )


def plan_effect(partitions: DataFrame, ends: DataFrame, loads: DataFrame) -> DataFrame:
    """Return the loads of brokers before and after a plan as EFFECT; partitions without a load are left out."""
    before_and_after = partitions.select(*PARTITION_KEY, "replicas", "leader").join(ends, PARTITION_KEY, "left")
    return (
        before_and_after.selectExpr(
            *PARTITION_KEY,
            "replicas AS before",
            "coalesce(replicas_after, replicas) AS after",
            "leader AS leader_before",
            "coalesce(leader_after, leader) AS leader_after",
        )
        .join(loads, PARTITION_KEY)
        .transform(_by_replica)
        .transform(_by_broker)
        .transform(with_schema, EFFECT)
    )


def _by_replica(partitions: DataFrame) -> DataFrame:
    """Return one row per replica and window, of the lists before and after."""
    lists = ("before", "after", "leader_before", "leader_after", "window", *MEASURES)
    replicas = partitions.selectExpr(*lists, "explode(array_union(before, after)) AS broker_id")
    loads = (
        f"{load.format(replicas=side, leader=f'leader_{side}')} AS {resource}_{side}"
        for resource, load in _LOAD.items()
        for side in SIDES
    )
    return replicas.selectExpr(
        "window",
        "broker_id",
        *loads,
        *(f"coalesce({', '.join(some)}) AS {resource}_known" for resource, some in MEASURES_OF.items()),
        "IF(leader_before = broker_id, 1L, 0L) AS leads",
        f"IF({_HELD.format(replicas='before')}, 0D, size_bytes) AS copied",
    )


def _by_broker(replicas: DataFrame) -> DataFrame:
    """Sum the loads of each broker in each window; null if no load on the resource is known of its replicas."""
    sums = (f"sum({resource}_{side}) AS {resource}_{side}" for resource in RESOURCES for side in SIDES)
    counts = (f"count({resource}_known) AS {resource}_known" for resource in RESOURCES)
    totals = (F.expr(column) for column in (*sums, *counts, "sum(leads) AS leads", "sum(copied) AS copied"))
    return replicas.groupBy("window", "broker_id").agg(*totals)
