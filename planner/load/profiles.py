"""The windows of the week that plans are made for, and the load of partitions in them.

A window is an hour of the week, in UTC, in which the bytes in or out of all brokers, or of one broker, are the highest.
A few such hours tell of each broker how much it must carry at most. Of each partition the 95th percentile over the
weeks counts, by the nearest rank: of fewer than twenty weeks it is the highest. In: BROKER_LOAD and PARTITION_LOAD by
hour. Out: LOAD_PROFILES without a profile and a version.

The CPU of a partition is modelled from the hours in which that of brokers was measured: see `cpu_model`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from math import ceil
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.load.cpu_model import MEASURED, MODEL_COLUMNS, RATE_UNIT, TERMS, CpuModel, product_name
from planner.load.findings import used_by
from planner.load.resources import IN, OUT
from schemas.enums import EVERY_HOUR
from schemas.rows import BrokerLoad
from schemas.tables import PARTITION_KEY

PERCENTILE: Final = 0.95

MIN_WINDOWS, MAX_WINDOWS = 3, 8

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

HOUR_SECONDS: Final = 3600

MIN_GROWTH_HOURS: Final = 6
"""Hours between the oldest and the newest size from which on their difference is the growth of a log."""

_PARTITION: Final = ("topic", "topic_id", "partition")


def window_name(day: int, hour: int) -> str:
    """Return the hour of a week that begins on Monday.

    >>> window_name(0, 20)
    'Mon 20:00'
    """
    return f"{DAYS[day]} {hour:02}:00"


def peak_windows(loads: Iterable[BrokerLoad]) -> list[str]:
    """Return the windows of a profile, in the order of the week: those of the cluster's and of each broker's peaks.

    The windows of the total come first, then those of the brokers with the highest peaks.

    >>> from datetime import UTC, datetime
    >>> def load(hour, broker, bytes_in):
    ...     rates = {"replication_in": 0, "bytes_out": 0, "replication_out": 0, "leaders": 1, "replicas": 1}
    ...     time = datetime(2026, 11, 30, hour, tzinfo=UTC)
    ...     return BrokerLoad(hour=time, broker_id=broker, bytes_in=bytes_in, **rates)
    >>> peak_windows([load(1, 1, 9), load(1, 2, 1), load(2, 1, 6), load(2, 2, 5), load(3, 1, 1), load(3, 2, 8)])
    ['Mon 01:00', 'Mon 02:00', 'Mon 03:00']
    """
    of_hours: dict[int, dict[tuple[int | None, str], float]] = {}
    for load in loads:
        if load.hour is None:
            continue
        rates = used_by(load)
        at = of_hours.setdefault(int(load.hour.timestamp()) // HOUR_SECONDS, {})
        for resource, rate in ((name, rates[name]) for name in (IN, OUT) if name in rates):
            at[load.broker_id, resource] = rate
            at[None, resource] = at.get((None, resource), 0.0) + rate
    peaks = _percentiles(of_hours)
    ranked = sorted(
        (
            (key[0] is not None, -rate, place_in_week(window), window)
            for key, by in peaks.items()
            for window, rate in by.items()
        )
    )
    best: dict[tuple[int | None, str], str] = {
        key: min(by, key=lambda window: (-by[window], place_in_week(window))) for key, by in peaks.items()
    }
    of_brokers = sorted(
        (key for key in best if key[0] is not None), key=lambda key: (-peaks[key][best[key]], key[0] or 0, key[1])
    )
    of_total = sorted(key for key in best if key[0] is None)
    chosen = list(dict.fromkeys(best[key] for key in (*of_total, *of_brokers)))[:MAX_WINDOWS]
    further = [window for _, _, _, window in ranked if window not in chosen]
    chosen += list(dict.fromkeys(further))[: max(MIN_WINDOWS - len(chosen), 0)]
    return sorted(chosen, key=place_in_week)


def _percentiles(
    of_hours: Mapping[int, Mapping[tuple[int | None, str], float]],
) -> dict[tuple[int | None, str], dict[str, float]]:
    """Return by broker, None for all, and resource the percentile of each window over the weeks."""
    weeks: dict[tuple[int | None, str], dict[str, list[float]]] = {}
    for hour in sorted(of_hours):
        for key, rate in of_hours[hour].items():
            weeks.setdefault(key, {}).setdefault(_window_of(hour), []).append(rate)
    return {
        key: {window: sorted(rates)[ceil(PERCENTILE * len(rates)) - 1] for window, rates in by.items()}
        for key, by in weeks.items()
    }


def _window_of(hour: int) -> str:
    """Return the window of an hour since 1970, which began on a Thursday."""
    day, hour_of_day = divmod(hour, 24)
    return window_name((day + DAYS.index("Thu")) % len(DAYS), hour_of_day)


def place_in_week(window: str) -> tuple[int, str]:
    """Return the order of windows.

    >>> sorted(["Thu 20:00", "Mon 21:00", "Mon 09:00"], key=place_in_week)
    ['Mon 09:00', 'Mon 21:00', 'Thu 20:00']
    >>> sorted(["always"], key=place_in_week)  # the only window of loads of every hour
    ['always']
    """
    return (0 if window == EVERY_HOUR else DAYS.index(window[:3])), window


def profiled_loads(hours: DataFrame, windows: Sequence[str]) -> DataFrame:
    """Return the loads of partitions in each window, with their newest size and growth, from rows of PARTITION_LOAD.

    A partition without hours in a window has no row for it, unless it has loads of every hour: these have no hour, and
    count in each window of which no hour has a value.
    """
    of_every_hour = F.col("hour").isNull()
    names = F.array(*map(F.lit, windows))
    in_windows = hours.where("hour IS NOT NULL").withColumns({"window": _window(windows)}).where("window IS NOT NULL")
    sizes = (
        hours.where("size_bytes IS NOT NULL")
        .groupBy(*_PARTITION)
        .agg(
            F.coalesce(F.max_by("size_bytes", "hour"), F.max("size_bytes")).alias("size_bytes"),
            F.min_by("size_bytes", "hour").alias("first_size"),
            (F.unix_seconds(F.max("hour")) - F.unix_seconds(F.min("hour"))).alias("seconds"),
        )
    )
    grows = F.col("seconds") >= MIN_GROWTH_HOURS * HOUR_SECONDS
    growth = F.when(grows, (F.col("size_bytes") - F.col("first_size")) / F.col("seconds"))
    rates = (
        in_windows.unionByName(hours.where(of_every_hour).withColumns({"window": F.explode(names)}))
        .groupBy(*_PARTITION, "window")
        .agg(_percentile("bytes_in"), _percentile("bytes_out"))
    )
    sized = sizes.select(*_PARTITION, "size_bytes", growth.alias("growth"))
    return _joined(rates, sized)


def _joined(rates: DataFrame, sizes: DataFrame) -> DataFrame:
    """Join by partition; the topic id may be null."""
    left, right = rates.alias("rates"), sizes.alias("sizes")
    same = [F.col(f"rates.{name}").eqNullSafe(F.col(f"sizes.{name}")) for name in _PARTITION]
    joined = left.join(right, same[0] & same[1] & same[2], "left")
    return joined.select("rates.*", "sizes.size_bytes", "sizes.growth")


def _window(windows: Iterable[str]) -> Column:
    """Return the window of an hour, null for the hours of no window. The first of January 1970 was a Thursday."""
    number = F.pmod(F.expr("unix_seconds(hour) div 3600") + DAYS.index("Thu") * 24, F.lit(7 * 24))
    hours = {DAYS.index(name[:3]) * 24 + int(name[4:6]): name for name in windows if name != EVERY_HOUR}
    return F.coalesce(
        F.lit(None).cast("string"), *(F.when(number == hour, F.lit(name)) for hour, name in hours.items())
    )


def _percentile(column: str) -> Column:
    rates = F.sort_array(F.collect_list(F.when(F.col("hour").isNotNull(), F.col(column))))
    rank = F.greatest(F.ceil(F.size(rates) * PERCENTILE).cast("int"), F.lit(1))
    return F.coalesce(F.array_min(F.slice(rates, rank, 1)), F.max(column)).alias(column)


def measured_brokers(loads: DataFrame, metrics: DataFrame) -> DataFrame:
    """Return the hours of brokers of which CPU and rates are known: `cpu`, and TERMS in bytes per second.

    `loads` is BROKER_LOAD, and `metrics` BROKER_METRICS, which counts where a load has no rate, as before the first
    sample. CPU that was imported after the hour was computed counts too.
    """
    hour = F.date_trunc("hour", F.col("sampled_at")).alias("hour")
    means = (
        F.avg(F.when(F.col("metric") == name, F.col("value"))).alias(f"measured_{name}") for name in (*_RATES, "cpu")
    )
    measured = metrics.where("topic IS NULL").groupBy(hour, "broker_id").agg(*means)
    rows = loads.select("hour", "broker_id", *_RATES, "cpu").join(measured, ["hour", "broker_id"], "full")
    known = {name: F.coalesce(name, f"measured_{name}") for name in _RATES}
    terms = known["bytes_in"], known["bytes_out"] + known["replication_out"], known["replication_in"]
    columns = {**dict(zip(TERMS, terms, strict=True)), "cpu": F.coalesce("measured_cpu", "cpu")}
    return rows.select(*(column.alias(name) for name, column in columns.items())).dropna()


_RATES: Final = ("bytes_in", "bytes_out", "replication_in", "replication_out")


def cpu_sums(measured: DataFrame) -> DataFrame:
    """Return one row with the sums that `cpu_model.fitted_model` needs, from `measured_brokers`."""
    scaled = measured.select(*((F.col(name) / RATE_UNIT).alias(name) for name in TERMS), "cpu")
    products = (
        F.sum(F.col(first) * F.col(second)).alias(product_name(first, second))
        for first, second in combinations_with_replacement(MEASURED, 2)
    )
    return scaled.agg(F.count("*").alias("count"), F.sum("cpu").alias("cpu"), *products)


def with_cpu(loads: DataFrame, partitions: DataFrame, model: CpuModel | None) -> DataFrame:
    """Add `cpu_leader` and `cpu_follower` in percent of all cores, null if CPU is not modelled, and the model.

    `partitions` has topic, partition and replicas; one that it lacks counts without followers.
    """
    values = {name: getattr(model, name.removeprefix("cpu_"), None) for name in MODEL_COLUMNS}
    stored = {name: F.lit(value).cast("double") for name, value in values.items()}
    if model is None or not model.is_modelled:
        none = F.lit(None).cast("double")
        return loads.withColumns({"cpu_leader": none, "cpu_follower": none, **stored})
    followers = F.coalesce(F.size("replicas") - 1, F.lit(0))
    received, read = (F.coalesce(name, F.lit(0.0)) for name in ("bytes_in", "bytes_out"))
    leader = received * model.leader_in + (read + received * followers) * model.leader_out
    is_known = F.coalesce("bytes_in", "bytes_out").isNotNull()
    columns = {"cpu_leader": F.when(is_known, leader), "cpu_follower": F.when(is_known, received * model.follower_in)}
    replicas = partitions.select(*PARTITION_KEY, "replicas")
    return loads.join(replicas, PARTITION_KEY, "left").withColumns({**columns, **stored}).drop("replicas")
