"""The load of brokers before and after a plan, computed from the tables of measured and imported load.

The engine sums the loads by broker and compares the brokers, so only a row for each resource and window is collected. A
warehouse without loads is not read. The result is stored with the plan and does not change its id.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import UnreadableError
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.plan_loads import LoadRows, plan_loads
from planner.columns.shape import with_schema
from planner.load.effect_figures import LoadFigures, load_figures
from planner.load.plan_effect import LOADS, plan_effect, plan_ends
from planner.placement.plan_figures import figures_in
from schemas.enums import EVERY_HOUR, PlanKind
from schemas.rows import PartitionLoad, ProfiledLoad


def load_before_and_after(
    tables: PlanningTables, kind: PlanKind, parameters: Mapping[str, Any], changes: DataFrame
) -> LoadFigures | None:
    """Return the figures by load of a plan with these changes; None if no load is known.

    Raise UnreadableError if the loads cannot be read.
    """
    try:
        rows = plan_loads(tables.warehouse)
        if rows is None:
            return None
        effect = plan_effect(
            tables["partitions"], plan_ends(changes), _loads(tables, rows), _counted(tables, kind, parameters)
        )
        figures = load_figures(effect.toArrow().to_pylist(), rows.title, tables.snapshot.partitions or 0)
        return _with_balance(figures, parameters)
    except PySparkException as error:  # the loads explain a plan, and must not prevent it
        raise UnreadableError(f"the loads cannot be read: {str(error).partition(chr(10))[0]}") from error


def _with_balance(figures: LoadFigures | None, parameters: Mapping[str, Any]) -> LoadFigures | None:
    """Return the figures of a plan by load with the bound of bytes."""
    placement = figures_in(parameters)
    if figures is None or placement is None or placement.load_balance is None:
        return figures
    balance = placement.load_balance
    return replace(figures, bytes=balance.bytes, bytes_bound=balance.bytes_bound)


def _loads(tables: PlanningTables, rows: LoadRows) -> DataFrame:
    """Return the loads as LOADS, of topics that exist."""
    warehouse = tables.spark_warehouse
    if rows.profile is not None:
        is_version = (F.col("profile") == rows.profile) & (F.col("version") == rows.version)
        return warehouse.read(ProfiledLoad.TABLE).where(is_version).transform(_of_topics, tables).transform(_with_loads)
    if rows.since is None:
        always = warehouse.read(PartitionLoad.TABLE).where(F.col("hour").isNull())
        return always.transform(_of_topics, tables).transform(_means)
    recent = warehouse.read(PartitionLoad.TABLE, None, ("hour", ">", rows.since)).where(F.col("hour") > rows.since)
    return recent.transform(_of_topics, tables).transform(_means)


def _of_topics(loads: DataFrame, tables: PlanningTables) -> DataFrame:
    """Leave out the loads of topics that were deleted, also if another topic has the name now."""
    topics = tables["topics"].select("topic", F.col("topic_id").alias("current_id"))
    is_same = F.coalesce(F.col("topic_id") == F.col("current_id"), F.lit(True))  # noqa: FBT003 - a Spark literal
    return loads.join(F.broadcast(topics), "topic").where(is_same)


def _means(loads: DataFrame) -> DataFrame:
    """Average the hours of each partition, the sampled ones if there are any; the newest size counts."""
    rates = (f"coalesce(avg(IF(method = 'imported', NULL, {name})), avg({name})) AS {name}" for name in _RATES)
    means = loads.groupBy("topic", "partition").agg(*map(F.expr, (*rates, _NEWEST_SIZE)))
    return means.withColumns({"window": F.lit(EVERY_HOUR)}).transform(with_schema, LOADS)


_RATES: Final = ("bytes_in", "bytes_out")

_NEWEST_SIZE: Final = "coalesce(max_by(size_bytes, hour), max(size_bytes)) AS size_bytes"
"""SQL of the size at the newest hour; imported loads of every hour have no hour."""


def _with_loads(loads: DataFrame) -> DataFrame:
    return loads.transform(with_schema, LOADS)


def _counted(
    tables: PlanningTables, kind: PlanKind, parameters: Mapping[str, Any]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the brokers that share the load before and after a plan: live, neither drained nor being emptied."""
    live = frozenset(broker.broker_id for broker in tables.live_brokers())
    drained = drained_brokers(tables.warehouse)
    emptied = {*parameters.get("remove_brokers", ()), *(old for old, _ in parameters.get("replace", ()))}
    concerned = set(parameters["brokers"]) if kind.traits.changes_drained else set()
    drained_after = drained | concerned if kind.traits.drains else drained - concerned
    return live - drained or live, live - drained_after - emptied or live
