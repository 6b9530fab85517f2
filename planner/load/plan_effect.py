"""The load of brokers before and after a plan: the most and the least loaded one, by resource and window.

Corresponds to Cruise Control's `BrokerStats` before and after a proposal, with the load of each partition in each
window of the week instead of the share of its topic. A replica receives the bytes that producers write, as leader or
as follower. A leader sends these to each follower, and to readers the bytes that they read. In: PARTITIONS, the ends of
a plan, LOADS. Out: EFFECT, one row per resource and window, however large the cluster is.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from planner.columns.shape import with_schema
from planner.load.effect_figures import MEASURES, ROUNDING
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

_SIDES: Final = ("before", "after")

EFFECT: Final = _schema(
    resource=StringType(),
    window=StringType(),
    **{f"{name}_{side}": DoubleType() for name in ("most", "least", "mean") for side in _SIDES},
    **{f"broker_{side}": IntegerType() for side in _SIDES},
    changes=BooleanType(),
    partitions=LongType(),
    copied_bytes=DoubleType(),
)
"""Loads of the most and the least loaded broker, and the mean of the counted brokers, in the unit of the resource.

`broker_before` and `broker_after` carry the most, null if no broker has any. `changes`: the load of a broker changes.
`partitions` with a load have a leader, and replicas of known size that the plan adds take `copied_bytes`; both are the
same for all resources.
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

_KNOWN: Final = {
    "disk": "size_bytes",
    "in": "bytes_in",
    "out": "coalesce(bytes_in, bytes_out)",
    "cpu": "coalesce(cpu_leader, cpu_follower)",
}
"""SQL that is null if the load of a partition on the resource is unknown."""

RESOURCES: Final = tuple(_LOAD)


def plan_ends(changes: DataFrame) -> DataFrame:
    """Return the replicas and the leader of each changed partition after its last wave, from CHANGES."""
    return changes.groupBy(*PARTITION_KEY).agg(
        F.expr("max_by(replicas_after, wave) AS replicas_after"),
        F.expr("max_by(leader_after, wave) AS leader_after"),
    )


def plan_effect(
    partitions: DataFrame, ends: DataFrame, loads: DataFrame, counted: tuple[Collection[int], Collection[int]]
) -> DataFrame:
    """Return the loads of brokers before and after a plan as EFFECT, none for resources without a known load.

    `counted` has the brokers that share the load before and after: not those that are being emptied or drained. Those
    without a partition count too, with no load. Partitions without a load are left out.
    """
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
        .transform(_by_resource, [*map(sorted, counted)])
        .transform(with_schema, EFFECT)
    )


def _by_replica(partitions: DataFrame) -> DataFrame:
    """Return one row per replica and window, of the lists before and after."""
    lists = ("before", "after", "leader_before", "leader_after", "window", *MEASURES)
    replicas = partitions.selectExpr(*lists, "explode(array_union(before, after)) AS broker_id")
    loads = (
        f"{load.format(replicas=side, leader=f'leader_{side}')} AS {resource}_{side}"
        for resource, load in _LOAD.items()
        for side in _SIDES
    )
    return replicas.selectExpr(
        "window",
        "broker_id",
        *loads,
        *(f"{measure} AS {resource}_known" for resource, measure in _KNOWN.items()),
        "IF(leader_before = broker_id, 1L, 0L) AS leads",
        f"IF({_HELD.format(replicas='before')}, 0D, size_bytes) AS copied",
    )


def _by_broker(replicas: DataFrame) -> DataFrame:
    """Sum the loads of each broker in each window; null if no load on the resource is known of its replicas."""
    sums = (f"sum({resource}_{side}) AS {resource}_{side}" for resource in RESOURCES for side in _SIDES)
    counts = (f"count({resource}_known) AS {resource}_known" for resource in RESOURCES)
    totals = (F.expr(column) for column in (*sums, *counts, "sum(leads) AS leads", "sum(copied) AS copied"))
    return replicas.groupBy("window", "broker_id").agg(*totals)


def _by_resource(loads: DataFrame, counted: list[list[int]]) -> DataFrame:
    """Return the extremes and the mean of each resource in each window."""
    resources = (
        f"struct('{resource}' AS resource, coalesce({resource}_before, 0D) AS load_before, "
        f"coalesce({resource}_after, 0D) AS load_after, {resource}_known AS known)"
        for resource in RESOURCES
    )
    by_resource = loads.selectExpr(
        "window", "broker_id", "leads", "copied", f"explode(array({', '.join(resources)})) AS load"
    )
    marks = {f"is_counted_{side}": F.col("broker_id").isin(ids) for side, ids in zip(_SIDES, counted, strict=True)}
    rows = by_resource.select("window", "broker_id", "leads", "copied", "load.*").withColumns(marks)
    change = f"abs(load_after - load_before) > {ROUNDING} * greatest(load_after, load_before)"
    extremes = (column for side, ids in zip(_SIDES, counted, strict=True) for column in _extremes(side, len(ids)))
    sums = rows.groupBy("resource", "window").agg(
        *extremes,
        F.expr(f"max({change}) AS changes"),
        F.expr("sum(known) AS known"),
        F.expr("sum(leads) AS partitions"),
        F.expr("sum(copied) AS copied_bytes"),
    )
    most = {f"most_{side}": F.expr(f"coalesce(top_{side}.load, 0D)") for side in _SIDES}
    brokers = {f"broker_{side}": F.expr(f"IF(top_{side}.load > 0D, -top_{side}.negative, NULL)") for side in _SIDES}
    return sums.where("known > 0").withColumns(most | brokers)


def _extremes(side: str, count: int) -> list[Column]:
    """Aggregate the counted brokers, of which there are `count`; those without a row have no load."""
    load, mark = f"load_{side}", f"is_counted_{side}"
    held = f"count_if({mark}) >= {count}"
    columns = (
        f"max(IF({mark}, struct({load} AS load, -broker_id AS negative), NULL)) AS top_{side}",
        f"IF({held}, min(IF({mark}, {load}, NULL)), 0D) AS least_{side}",
        f"sum(IF({mark}, {load}, 0D)) / {count}D AS mean_{side}",
    )
    return [F.expr(column) for column in columns]
