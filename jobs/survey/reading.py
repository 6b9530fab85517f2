"""The reading half of a snapshot: the small state by the driver, topics and partitions by Spark, configs by brokers.

The executors' reading is staged once: a second one would see another moment.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.brokers.configs import read_broker_configs, read_overrides
from jobs.adapters.delta.lake import Row
from jobs.adapters.delta.spark_tables import Tables
from jobs.adapters.spark.session import tasks_done
from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import connected, persistently, sync
from jobs.adapters.zookeeper.source import ZooKeeperDataSource
from jobs.basics.errors import UnreadableError
from jobs.runtime.console import Phases, say
from jobs.runtime.settings import Settings

_UNREADABLE: Final = re.compile(rf"{UnreadableError.__name__}: (.+)")
"""What an executor said, in the midst of stack traces of three languages."""

TASKS_A_CORE: Final = 8
"""Enough for cores to end at about the same time; what each task costs comes again with every later pass."""

BROKERS_PATIENCE: Final = 10.0
"""Seconds that brokers have to tell their settings, all of them together; they are asked while Spark reads."""


@dataclass(frozen=True, slots=True)
class Small:
    """What the driver reads before Spark starts, so that an unreadable cluster is said at once."""

    state: ClusterState
    overrides: dict[int | None, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was read."""

    state: ClusterState
    broker_configs: list[Row]
    staged: DataFrame
    counts: dict[str, int]
    """Rows staged, by kind."""
    quarantine: list[Row]
    """What executors could not understand."""
    zxid_after: int

    def of(self, kind: str) -> DataFrame:
        return self.staged.where(F.col("kind") == kind)


def read_small(settings: Settings) -> Small:
    """Read brokers, controller, requests and dynamic broker configs."""
    with connected(settings.zookeeper) as client:
        state = persistently(lambda: read_cluster(client, settings.zookeeper))
        overrides, quarantine = persistently(lambda: read_overrides(client))
    state.quarantine += quarantine
    return Small(state, overrides)


def read_all(settings: Settings, tables: Tables, small: Small, phases: Phases) -> Reading:
    """Stage topics and partitions, and ask the brokers meanwhile."""
    brokers, command_config = small.state.brokers, settings.conf.command_config
    tasks = partial(tasks_done, tables.spark)
    with ThreadPoolExecutor(1) as pool, phases.of("read", "reading topics and partitions", tasks):
        asked = pool.submit(read_broker_configs, brokers, command_config, small.overrides, BROKERS_PATIENCE)
        staged = _stage(settings, tables)
        configs = asked.result()
    counts = _tally(phases, staged)
    _warn_of_silent_brokers(configs)
    quarantine = _quarantine(staged) if "quarantine" in counts else []
    with connected(settings.zookeeper) as client:
        persistently(lambda: sync(client))
        zxid_after = client.last_zxid
    return Reading(small.state, configs, staged, counts, quarantine, zxid_after)


def _quarantine(staged: DataFrame) -> list[Row]:
    found = staged.where(F.col("kind") == "quarantine").select("path", "data", "reason")
    return [row.asDict() for row in found.collect()]


def _stage(settings: Settings, tables: Tables) -> DataFrame:
    tables.spark.dataSource.register(ZooKeeperDataSource)
    source = tables.spark.read.format("zookeeper").option("zookeeper", settings.zookeeper)
    source = source.option("tasks", str(TASKS_A_CORE * tables.spark.sparkContext.defaultParallelism))
    try:
        return source.load().localCheckpoint()
    except (PySparkException, Py4JError) as error:
        said = _UNREADABLE.search(str(error))
        if said is None:
            raise
        raise UnreadableError(said[1]) from None


def _tally(phases: Phases, staged: DataFrame) -> dict[str, int]:
    """Count the rows of each kind; the executors' share of the reading that was decoding becomes a phase of its own."""
    spent = F.sum("read_seconds").alias("read"), F.sum("decode_seconds").alias("decoded")
    kinds = {row["kind"]: row for row in staged.groupBy("kind").agg(F.count("*").alias("rows"), *spent).collect()}
    if "task" in kinds:
        read, decoded = kinds["task"]["read"], kinds["task"]["decoded"]
        decoding = phases.seconds["read"] * decoded / (read + decoded)
        phases.add("decode", decoding)
        phases.add("read", -decoding)
    return {kind: row["rows"] for kind, row in kinds.items()}


def _warn_of_silent_brokers(configs: list[Row]) -> None:
    answered = {row["broker_id"] for row in configs if row["name"].startswith("api.") and not row["assumed"]}
    silent = {row["broker_id"] for row in configs} - answered
    if silent:
        say(
            f"surveyor: {len(silent)} brokers did not tell their settings, Kafka's defaults are assumed: {_few(silent)}"
        )


def _few(broker_ids: set[int]) -> str:
    shown = sorted(broker_ids)[:10]
    return ", ".join(map(str, shown)) + (", ..." if len(broker_ids) > len(shown) else "")
