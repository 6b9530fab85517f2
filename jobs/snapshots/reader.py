"""Reads a snapshot: small state on the driver, topics and partitions on Spark, broker configs from the brokers.

The executors' result is staged once, because reading again would show a later state. The topics of a tiny cluster are
read on the driver. Broker configs are requested in the background from the start, so that a broker that does not
respond costs no time while Spark starts.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Thread

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.clusters.interface import Cluster, ClusterMetadata, ConfigDefaults
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.session import task_progress
from jobs.runtime.console import log
from jobs.runtime.progress import Phases
from jobs.runtime.settings import Settings
from jobs.snapshots.topic_reading import StagedRowCount, stage_topics
from schemas.broker_config_defaults import VERSION_PREFIX
from schemas.rows import Broker, BrokerConfig, QuarantinedZnode
from schemas.security_digests import SecurityReading
from schemas.text import join_ids, pluralise


@dataclass(frozen=True, slots=True)
class DriverMetadata:
    """Metadata that the driver reads before Spark starts, so that an unreadable cluster is reported at once."""

    metadata: ClusterMetadata
    tiny: bool
    """Whether there are so few partitions that Spark's parallelism costs more than it saves."""
    configs: Future[list[BrokerConfig]]
    """The broker configs, which are still being requested."""


@dataclass(frozen=True, slots=True)
class StagedMetadata:
    """Everything that was read for a snapshot."""

    metadata: ClusterMetadata
    broker_configs: list[BrokerConfig]
    staged: DataFrame
    counts: dict[str, int]
    """Number of staged rows by kind."""
    quarantine: list[QuarantinedZnode]
    """Metadata of topics and partitions that could not be decoded."""
    position_after: int | None
    security: SecurityReading

    def rows_of_kind(self, kind: str) -> DataFrame:
        return self.staged.where(F.col("kind") == kind)


def allow_any_cluster(metadata: ClusterMetadata) -> None:
    """Permit a snapshot of every cluster."""


def read_driver_metadata(
    settings: Settings, cluster: Cluster, refuse: Callable[[ClusterMetadata], None] = allow_any_cluster
) -> DriverMetadata:
    """Read brokers, controller, requests and dynamic broker configs, and start the config requests to the brokers.

    `refuse` may raise an error for what was read, before brokers are asked and Spark starts.
    """
    reading = cluster.read_driver_metadata(settings.pace.small_cluster)
    refuse(reading.metadata)
    configs = _request_broker_configs(settings, reading.metadata.live_brokers, reading.settings)
    return DriverMetadata(reading.metadata, reading.is_small, configs)


def _request_broker_configs(
    settings: Settings, brokers: Sequence[Broker], known: ConfigDefaults
) -> Future[list[BrokerConfig]]:
    """Request the broker configs in a daemon thread, which does not keep the process alive."""
    read_properties(settings.conf.command_config)  # errors in the file are reported before Spark starts
    response: Future[list[BrokerConfig]] = Future()

    def request() -> None:
        try:
            configs, _ = read_broker_configs(
                brokers,
                settings.conf.command_config,
                known.overrides,
                settings.pace.configs,
                defaults=known.defaults,
            )
        except BaseException as error:  # noqa: BLE001 - raised where the result is used
            response.set_exception(error)
        else:
            response.set_result(configs)

    Thread(target=request, daemon=True, name="broker-configs").start()
    return response


def stage(cluster: Cluster, tables: SparkWarehouse, small: DriverMetadata, phases: Phases) -> StagedMetadata:
    """Stage topics and partitions, then wait for the broker configs, which have a time limit."""
    with phases.of("read", "reading topics and partitions", partial(task_progress, tables.spark)):
        staged, tallies = stage_topics(cluster, tables, tiny=small.tiny)
        configs = small.configs.result()
    counts = _counts(phases, tallies)
    _warn_of_silent_brokers(configs)
    quarantine = _quarantine(staged) if "quarantine" in counts else []
    end = cluster.read_end()
    for warning in end.warnings:
        log(f"surveyor: {warning}")
    return StagedMetadata(small.metadata, configs, staged, counts, quarantine, end.position, end.security)


def _quarantine(staged: DataFrame) -> list[QuarantinedZnode]:
    rows = staged.where(F.col("kind") == "quarantine").select("path", "data", "reason", "blocks", "mend")
    return [QuarantinedZnode(**row.asDict()) for row in rows.collect()]


def _counts(phases: Phases, tallies: Sequence[StagedRowCount]) -> dict[str, int]:
    """Return the number of rows by kind; split the time of the phase `read` into `read` and `decode`."""
    kinds = {tally.kind: tally for tally in tallies}
    if task := kinds.get("task"):
        decoding = phases.seconds["read"] * task.decoded / (task.read + task.decoded)
        phases.add("decode", decoding)
        phases.add("read", -decoding)
    return {kind: tally.rows for kind, tally in kinds.items()}


def _warn_of_silent_brokers(configs: list[BrokerConfig]) -> None:
    answered = {row.broker_id for row in configs if row.name.startswith(VERSION_PREFIX) and not row.assumed}
    silent = {row.broker_id for row in configs} - answered
    if silent:
        log(
            f"surveyor: {pluralise(len(silent), 'broker')} did not report their configs, Kafka's defaults "
            f"are assumed: {_names(silent)}; `surveyor doctor` reports the reasons"
        )


def _names(broker_ids: set[int]) -> str:
    shown = sorted(broker_ids)[:10]
    return join_ids(shown) + (", ..." if len(broker_ids) > len(shown) else "")
