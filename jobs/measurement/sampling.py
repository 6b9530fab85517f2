"""One sample of a cluster, requested from its brokers and stored."""

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import UnreadableError
from jobs.core.units import Part
from jobs.measurement.leaders import read_leaders
from jobs.measurement.partition_samples import BrokerAnswer, sample_partitions
from jobs.repositories.snapshots import refuse_other_cluster_id
from jobs.runtime.console import CommandResult, Result, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from jobs.snapshots.sizes import SilentBroker, listed, no_response_message
from schemas.text import by_reason, pluralise


class MissingPartitions(Struct, frozen=True, kw_only=True):
    """Partitions without a sample for one reason."""

    partitions: int
    reason: str


class StoredSample(Struct, frozen=True, kw_only=True):
    """Summary of a stored sample; fields as in the JSON."""

    stored_at: datetime
    brokers: int
    topics: int
    partitions: int
    missing: list[MissingPartitions]
    silent: list[SilentBroker]
    without_sizes: list[SilentBroker]

    @property
    def json(self) -> Result:
        fields: Result = msgspec.to_builtins(self)
        return fields


def take_sample(settings: Settings) -> StoredSample:
    """Request and store a sample.

    Raise UnreadableError if no broker responded, and OtherClusterError if another cluster has the name; then
    nothing is stored.
    """
    warehouse, config = settings.warehouse, read_properties(settings.conf.command_config)
    with settings.connect() as cluster:
        cluster_id, registered = cluster.read_brokers()
        refuse_other_cluster_id(warehouse, cluster_id, settings.address)
        brokers = [row for row in registered if row.is_live]
        with progress("reading the leaders of partitions"):
            leaders = read_leaders(warehouse, cluster)
        counts: Counter[str] = Counter()

        def detail() -> Part:
            return Part(
                counts["brokers"], len(brokers), f"have responded, {pluralise(counts['partitions'], 'partition')}"
            )

        def count(answer: BrokerAnswer) -> None:
            counts.update(brokers=1, partitions=len(answer.rows))

        with progress("asking brokers for offsets and sizes", detail):
            sampled = sample_partitions(cluster, brokers, config, leaders, count)
    if not sampled.log_dirs:
        raise UnreadableError(no_response_message(sampled.silent, settings.address_option, "its offsets"))
    stored_at = datetime.now(UTC)
    with progress("writing the sample"):
        warehouse.ensure_tables()
        warehouse.append_all("partition_offsets", _complete(sampled.rows, warehouse, stored_at))
    return StoredSample(
        stored_at=stored_at,
        brokers=len(sampled.log_dirs),
        topics=pc.count_distinct(sampled.rows["topic"]).as_py(),
        partitions=sampled.rows.num_rows,
        missing=[MissingPartitions(partitions=count, reason=reason) for reason, count in sampled.missing.items()],
        silent=[SilentBroker(broker_id=broker, reason=reason) for broker, reason in sampled.silent.items()],
        without_sizes=[
            SilentBroker(broker_id=broker, reason=reason) for broker, reason in sampled.without_sizes.items()
        ],
    )


def _complete(rows: pa.Table, warehouse: Warehouse, stored_at: datetime) -> pa.Table:
    """Add the cluster and the time at which a whole sample is stored."""
    schema = schema_of("partition_offsets")
    for name, value in (("cluster", warehouse.cluster), ("stored_at", stored_at)):
        column = schema.field(name)
        rows = rows.append_column(column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return rows.select(schema.names)


def report_sample(settings: Settings) -> CommandResult:
    """Take a sample, log warnings, and return a summary."""
    stored = take_sample(settings)
    for warning in _warnings(stored):
        log(f"surveyor: {warning}", logging.WARNING)
    counts = (
        f"{pluralise(stored.partitions, 'partition')} of {pluralise(stored.topics, 'topic')} on "
        f"{pluralise(stored.brokers, 'broker')}"
    )
    steps = [suggestion(settings, "sum up the samples by hours", "load", "rollup")]
    return CommandResult(stored.json, f"sample of {settings.cluster}: {counts}", steps=steps)


def _warnings(stored: StoredSample) -> Iterator[str]:
    if stored.silent:
        lines = by_reason({row.broker_id: row.reason for row in stored.silent})
        brokers = pluralise(len(stored.silent), "broker")
        yield f"{brokers} did not respond, the sample lacks the partitions that they lead:\n  {listed(lines)}"
    if stored.without_sizes:
        lines = by_reason({row.broker_id: row.reason for row in stored.without_sizes})
        brokers = pluralise(len(stored.without_sizes), "broker")
        yield f"{brokers} did not report log dirs, so sizes are unknown:\n  {listed(lines)}"
    if stored.missing:
        lines = [f"{pluralise(row.partitions, 'partition')}: {row.reason}" for row in stored.missing]
        partitions = pluralise(sum(row.partitions for row in stored.missing), "partition")
        yield f"the sample lacks {partitions}:\n  {listed(lines)}"
