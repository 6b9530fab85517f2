"""The load of brokers before and after a plan, computed from the tables of measured and imported load.

The engine sums the loads by broker, so only a row for each window and broker is collected. A warehouse without loads is
not read. The result is stored with the plan and does not change its id.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import UnreadableError
from jobs.measurement.load_summary import read_capacities
from jobs.measurement.profiles import stored_loads
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.drained_brokers import able_brokers, drained_brokers
from jobs.repositories.load_basis import LoadRows, plan_loads
from jobs.runtime.settings import Settings
from planner.columns.shape import with_schema
from planner.load.load_figures import LoadFigures
from planner.load.plan_effect import LOADS, plan_effect, plan_ends, with_topic_means
from planner.load.resource_effects import load_figures
from planner.load.sharing_brokers import Shares, sharing_brokers
from planner.placement.plan_figures import figures_in
from schemas.enums import EVERY_HOUR, PlanKind, PlanTraits
from schemas.rows import PartitionLoad, ProfiledLoad


def load_before_and_after(
    settings: Settings, tables: PlanningTables, kind: PlanKind, parameters: Mapping[str, Any], changes: DataFrame
) -> LoadFigures | None:
    """Return the figures by load of a plan with these changes; None if no load is known.

    Raise UnreadableError if the loads cannot be read.
    """
    try:
        rows = plan_loads(tables.warehouse, parameters.get("profile"), parameters.get("window"))
        if rows is None:
            return None
        partitions, loads = tables["partitions"], window_loads(tables, rows)
        if parameters.get("by_load"):  # the loads that the plan was made with
            loads = with_topic_means(loads, partitions)
        effect = plan_effect(partitions, plan_ends(changes), loads).toArrow()
        sharing = brokers_with_shares(settings, tables, kind.traits, parameters)
        figures = load_figures(effect, sharing, rows.title, tables.snapshot.partitions or 0)
        return _with_balance(figures, parameters)
    except PySparkException as error:  # the loads explain a plan, and must not prevent it
        raise UnreadableError(f"the loads cannot be read: {str(error).partition(chr(10))[0]}") from error


def _with_balance(figures: LoadFigures | None, parameters: Mapping[str, Any]) -> LoadFigures | None:
    """Return the figures of a plan by load with the bound of bytes, and with the partitions whose load is known."""
    placement = figures_in(parameters)
    if figures is None or placement is None or placement.load_balance is None or placement.loads is None:
        return figures
    balance, known = placement.load_balance, placement.loads.known
    return replace(figures, bytes=balance.bytes, bytes_bound=balance.bytes_bound, partitions=known)


def window_loads(tables: PlanningTables, rows: LoadRows) -> DataFrame:
    """Return the loads of these rows as LOADS, of topics that exist."""
    warehouse = tables.spark_warehouse
    if rows.profile is not None:
        profiles = warehouse.read(ProfiledLoad.TABLE)  # first: it starts the engine, whose columns the rest is made of
        is_version = (F.col("profile") == rows.profile) & (F.col("version") == rows.version)
        return profiles.where(is_version).transform(_of_topics, tables).transform(_with_loads)
    loads = stored_loads(warehouse, rows.window.hours).transform(_of_topics, tables)
    return loads.transform(_means, F.lit(EVERY_HOUR))


def loads_by_hour(tables: PlanningTables, since: datetime) -> DataFrame:
    """Return the loads of the hours after `since` as LOADS; a window is the start of its hour in seconds since 1970."""
    recent = tables.spark_warehouse.read(PartitionLoad.TABLE, None, ("hour", ">", since))
    loads = recent.where(F.col("hour") > since).transform(_of_topics, tables)
    return loads.transform(_means, F.unix_seconds("hour").cast("string"))


def _of_topics(loads: DataFrame, tables: PlanningTables) -> DataFrame:
    """Leave out the loads of topics that were deleted, also if another topic has the name now."""
    topics = tables["topics"].select("topic", F.col("topic_id").alias("current_id"))
    is_same = F.coalesce(F.col("topic_id") == F.col("current_id"), F.lit(True))  # noqa: FBT003 - a Spark literal
    return loads.join(F.broadcast(topics), "topic").where(is_same)


def _means(loads: DataFrame, window: Column) -> DataFrame:
    """Average the hours of each partition and window, the sampled ones if there are any; the newest size counts.

    A load of every hour counts where no hour has a value.
    """
    sources = "IF(method = 'imported', NULL, {0})", "IF(hour IS NULL, NULL, {0})", "{0}"
    rates = (f"coalesce({', '.join(f'avg({one.format(name)})' for one in sources)}) AS {name}" for name in _RATES)
    in_windows = loads.withColumns({"window": window})
    means = in_windows.groupBy("topic", "partition", "window").agg(*map(F.expr, (*rates, _NEWEST_SIZE)))
    return means.transform(with_schema, LOADS)


_RATES: Final = ("bytes_in", "bytes_out")

_NEWEST_SIZE: Final = "coalesce(max_by(size_bytes, hour), max(size_bytes)) AS size_bytes"
"""SQL of the size at the newest hour; imported loads of every hour have no hour."""


def _with_loads(loads: DataFrame) -> DataFrame:
    return loads.transform(with_schema, LOADS)


def brokers_with_shares(
    settings: Settings, tables: PlanningTables, traits: PlanTraits, parameters: Mapping[str, Any]
) -> tuple[Shares, Shares]:
    """Return the brokers that share the load before and after a plan; those being emptied do not after it."""
    drained = drained_brokers(tables.warehouse)
    emptied = {*parameters.get("remove_brokers", ()), *(old for old, _ in parameters.get("replace", ()))}
    concerned = set(parameters["brokers"]) if traits.changes_drained else set()
    drained_after = drained | concerned if traits.drains else drained - concerned
    live = tables.live_brokers()
    before, after = (able_brokers(live, excluded) for excluded in (drained, drained_after | emptied))
    capacities = read_capacities(settings, before | after)
    return sharing_brokers(before, capacities), sharing_brokers(after, capacities)
