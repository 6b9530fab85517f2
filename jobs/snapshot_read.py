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

from jobs.adapters.broker_configs import read_broker_configs, read_overrides
from jobs.adapters.cluster import ClusterState, read_cluster
from jobs.adapters.delta import Tables
from jobs.adapters.lake import Row
from jobs.adapters.spark import tasks_done
from jobs.adapters.zookeeper import connected, persistently, sync
from jobs.adapters.zookeeper_source import ZooKeeperDataSource
from jobs.console import say
from jobs.errors import UnreadableError
from jobs.phases import Phases
from jobs.settings import Settings

_UNREADABLE: Final = re.compile(rf"{UnreadableError.__name__}: (.+)")
"""What an executor said, in the midst of stack traces of three languages."""

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
    _split_decoding(phases, staged)
    _warn_of_silent_brokers(configs)
    found = staged.where(F.col("kind") == "quarantine").select("path", "data", "reason").collect()
    with connected(settings.zookeeper) as client:
        persistently(lambda: sync(client))
        zxid_after = client.last_zxid
    return Reading(small.state, configs, staged, [row.asDict() for row in found], zxid_after)


def _stage(settings: Settings, tables: Tables) -> DataFrame:
    tables.spark.dataSource.register(ZooKeeperDataSource)
    source = tables.spark.read.format("zookeeper").option("zookeeper", settings.zookeeper)
    try:
        return source.load().localCheckpoint()
    except (PySparkException, Py4JError) as error:
        said = _UNREADABLE.search(str(error))
        if said is None:
            raise
        raise UnreadableError(said[1]) from None


def _split_decoding(phases: Phases, staged: DataFrame) -> None:
    """Count the executors' share of the reading that went into decoding as a phase of its own."""
    spent = staged.where(F.col("kind") == "task").agg(F.sum("read_seconds"), F.sum("decode_seconds")).first()
    read, decoded = (value or 0.0 for value in spent or (0.0, 0.0))
    decoding = phases.seconds["read"] * decoded / (read + decoded) if read + decoded else 0.0
    phases.add("decode", decoding)
    phases.add("read", -decoding)


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
