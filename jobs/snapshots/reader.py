"""Reads a snapshot: small state on the driver, topics and partitions on Spark, broker configs from the brokers.

The executors' result is staged once, because reading again would show a later state. The topics of a tiny cluster are
read on the driver. Broker configs are requested in the background from the start, so that a broker that does not
respond costs no time while Spark starts.
"""

import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final

from kazoo.client import KazooClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.brokers.admin import read_properties
from jobs.adapters.brokers.configs import (
    DYNAMIC_CONFIGS,
    Overrides,
    configured_brokers,
    read_broker_configs,
    read_overrides,
)
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.session import SMALL_CLUSTER_PARTITIONS, default_parallelism, task_progress
from jobs.adapters.zookeeper.cluster import TOPICS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import children, connected, sync, with_retries
from jobs.adapters.zookeeper.multi_read import children_of
from jobs.adapters.zookeeper.source import READ, read_in_process, read_on_executors
from jobs.core.errors import UnreadableError
from jobs.runtime.console import log
from jobs.runtime.progress import Phases
from jobs.runtime.settings import Settings
from schemas.rows import Broker, BrokerConfig, QuarantinedZnode
from schemas.text import pluralise
from schemas.znodes import FORBIDDEN_REASON

_UNREADABLE: Final = re.compile(rf"{UnreadableError.__name__}: (.+)")
"""Matches the error of an executor within the stack traces of Python, Java and Scala."""

TASKS_PER_CORE: Final = 8
"""Spark tasks per core: enough to balance the load; each task adds a cost to every later pass."""

TOPICS_PER_COUNT: Final = 1000
"""Topics whose partitions are counted before each check of the limit."""

TALLY_COLUMNS: Final = ("kind", "rows", "read", "decoded")
"""Columns of the tally by kind of row."""

CONFIG_TIMEOUT_SECONDS: Final = 10.0
"""Time limit for the config requests to all brokers, which run while Spark starts and reads."""


@dataclass(frozen=True, slots=True)
class DriverMetadata:
    """What the driver reads before Spark starts, so that an unreadable cluster is reported at once."""

    state: ClusterState
    tiny: bool
    """Whether there are so few partitions that Spark's parallelism costs more than it saves."""
    configs: Future[list[BrokerConfig]]
    """The broker configs, which are still being requested."""


@dataclass(frozen=True, slots=True)
class StagedMetadata:
    """Everything that was read for a snapshot."""

    state: ClusterState
    broker_configs: list[BrokerConfig]
    staged: DataFrame
    counts: dict[str, int]
    """Number of staged rows by kind."""
    quarantine: list[QuarantinedZnode]
    """Znodes that executors could not parse."""
    zxid_after: int

    def rows_of_kind(self, kind: str) -> DataFrame:
        return self.staged.where(F.col("kind") == kind)


def read_driver_metadata(settings: Settings) -> DriverMetadata:
    """Read brokers, controller, requests and dynamic broker configs, and start the config requests to the brokers."""
    with connected(settings.zookeeper) as client:
        state = with_retries(lambda: read_cluster(client))
        overrides, quarantine = with_retries(lambda: read_overrides(client))
        tiny = with_retries(lambda: _is_tiny(client))
    state.quarantine += quarantine
    return DriverMetadata(state, tiny, _request_broker_configs(settings, state.brokers, overrides))


def _is_tiny(client: KazooClient) -> bool:
    """Count partition znodes without reading them, and stop above the limit."""
    paths = [f"{TOPICS}/{topic}/partitions" for topic in children(client, TOPICS) or []]
    counted = 0
    for start in range(0, len(paths), TOPICS_PER_COUNT):
        chunk = paths[start : start + TOPICS_PER_COUNT]
        counted += sum(map(len, children_of(client, chunk, permitted=True)))
        if counted > SMALL_CLUSTER_PARTITIONS:
            return False
    return True


def _request_broker_configs(
    settings: Settings, brokers: Sequence[Broker], overrides: Overrides
) -> Future[list[BrokerConfig]]:
    """Request the broker configs in a daemon thread, which does not keep the process alive."""
    read_properties(settings.conf.command_config)  # errors in the file are reported before Spark starts
    response: Future[list[BrokerConfig]] = Future()

    def request() -> None:
        try:
            configs = read_broker_configs(brokers, settings.conf.command_config, overrides, CONFIG_TIMEOUT_SECONDS)
        except BaseException as error:  # noqa: BLE001 - raised where the result is used
            response.set_exception(error)
        else:
            response.set_result(configs)

    Thread(target=request, daemon=True, name="broker-configs").start()
    return response


def stage(settings: Settings, tables: SparkWarehouse, small: DriverMetadata, phases: Phases) -> StagedMetadata:
    """Stage topics and partitions, then wait for the broker configs, which have a time limit."""
    with phases.of("read", "reading topics and partitions", partial(task_progress, tables.spark)):
        staged, tallies = (_stage_on_driver if small.tiny else _stage_on_executors)(settings, tables)
        configs = small.configs.result()
    counts = _counts(phases, tallies)
    _warn_of_silent_brokers(configs)
    quarantine = _quarantine(staged) if "quarantine" in counts else []
    with connected(settings.zookeeper) as client:
        with_retries(lambda: sync(client))
        zxid_after = client.last_zxid
        if with_retries(lambda: configured_brokers(client)) is None:
            log(
                f"surveyor: {DYNAMIC_CONFIGS} cannot be listed, so settings that brokers do not report are assumed: "
                f"{FORBIDDEN_REASON}"
            )
    return StagedMetadata(small.state, configs, staged, counts, quarantine, zxid_after)


def _quarantine(staged: DataFrame) -> list[QuarantinedZnode]:
    rows = staged.where(F.col("kind") == "quarantine").select("path", "data", "reason", "blocks", "mend")
    return [QuarantinedZnode(**row.asDict()) for row in rows.collect()]


def _stage_on_driver(settings: Settings, tables: SparkWarehouse) -> tuple[DataFrame, list[Row]]:
    """Read and tally on the driver; the rows become part of the Spark query and need no job of their own."""
    rows = read_in_process(settings.zookeeper)
    spent = [("read_seconds", "sum"), ("decode_seconds", "sum")]
    tallies = rows.group_by("kind").aggregate([("kind", "count"), *spent])
    return tables.arrow(rows, READ), tallies.rename_columns(TALLY_COLUMNS).to_pylist()


def _stage_on_executors(settings: Settings, tables: SparkWarehouse) -> tuple[DataFrame, list[Row]]:
    tasks = TASKS_PER_CORE * default_parallelism(tables.spark)
    read = read_on_executors(tables.spark, settings.zookeeper, tasks)
    try:
        staged = read.localCheckpoint()
    except (PySparkException, Py4JError) as error:
        match = _UNREADABLE.search(str(error))
        if match is None:
            raise
        raise UnreadableError(match[1]) from None
    spent = F.sum("read_seconds").alias("read"), F.sum("decode_seconds").alias("decoded")
    return staged, [row.asDict() for row in staged.groupBy("kind").agg(F.count("*").alias("rows"), *spent).collect()]


def _counts(phases: Phases, tallies: Sequence[Row]) -> dict[str, int]:
    """Return the number of rows by kind; split the time of the phase `read` into `read` and `decode`."""
    kinds = {row["kind"]: row for row in tallies}
    if "task" in kinds:
        read, decoded = kinds["task"]["read"], kinds["task"]["decoded"]
        decoding = phases.seconds["read"] * decoded / (read + decoded)
        phases.add("decode", decoding)
        phases.add("read", -decoding)
    return {kind: row["rows"] for kind, row in kinds.items()}


def _warn_of_silent_brokers(configs: list[BrokerConfig]) -> None:
    answered = {row.broker_id for row in configs if row.name.startswith("api.") and not row.assumed}
    silent = {row.broker_id for row in configs} - answered
    if silent:
        log(
            f"surveyor: {pluralise(len(silent), 'broker')} did not report their configs, Kafka's defaults "
            f"are assumed: {_names(silent)}"
        )


def _names(broker_ids: set[int]) -> str:
    shown = sorted(broker_ids)[:10]
    return ", ".join(map(str, shown)) + (", ..." if len(broker_ids) > len(shown) else "")
