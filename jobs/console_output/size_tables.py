"""Output of `surveyor show sizes`: recorded sizes by broker, or of a topic by partition and broker."""

from datetime import datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.console_output.stored_tables import table_parts
from jobs.core.arrow_rows import as_rows, values_of
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.units import format_bytes
from jobs.repositories.log_dirs import usable_bytes
from jobs.runtime.console import CommandResult
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings

FREE_COLUMN: Final = "free"
"""Text column for `usable_bytes`."""

REPLICA_COLUMNS: Final = ("topic", "partition", "broker_id", "log_dir", "bytes", "offset_lag", "is_future")


class BrokerSizes(NamedTuple):
    """The logs of a broker; the fields are columns of `surveyor show sizes`."""

    broker_id: int
    log_dirs: int
    """Log dirs that are not empty."""
    replicas: int
    future: int
    """Replicas that are moving to another log dir."""
    bytes: int
    """Future logs are included, because they occupy disk space."""
    largest: int
    taken_at: datetime


def by_broker(logs: pa.Table) -> list[BrokerSizes]:
    """Aggregate rows of SIZES by broker."""
    future = pc.fill_null(logs["is_future"], False)  # noqa: FBT003 - null means not a future log
    counted = logs.append_column("future", future.cast(pa.int64()))
    grouped = counted.group_by("broker_id").aggregate(
        [
            ("log_dir", "count_distinct"),
            ("topic", "count"),
            ("future", "sum"),
            ("bytes", "sum"),
            ("bytes", "max"),
            ("taken_at", "min"),
        ],
    )
    aggregated = ("log_dir_count_distinct", "topic_count", "future_sum", "bytes_sum", "bytes_max", "taken_at_min")
    sizes = (BrokerSizes(*values) for values in values_of(grouped, "broker_id", *aggregated))
    # a replica that is moving to another log dir counts once
    return sorted(broker._replace(replicas=broker.replicas - broker.future) for broker in sizes)


def show_sizes(settings: Settings, topic: str | None) -> None:
    """Show bytes by broker, or of a topic by partition and broker, as recorded by `surveyor sizes`."""
    columns: tuple[str, ...] = BrokerSizes._fields
    if topic is None:
        brokers = by_broker(_read(settings.warehouse))
        rows = [broker._asdict() for broker in brokers]
        if usable := usable_bytes(settings.warehouse):
            rows = [broker._asdict() | {"usable_bytes": usable.get(broker.broker_id)} for broker in brokers]
            moving = any(broker.future for broker in brokers)
            columns = (*(name for name in columns if name != "future" or moving), FREE_COLUMN)
        title = f"sizes of {settings.cluster}: {format_bytes(sum(broker.bytes for broker in brokers))}"
    else:
        logs = _of_topic(settings.warehouse, topic)
        rows, columns = as_rows(logs), REPLICA_COLUMNS
        title = f"sizes of {topic}: {format_bytes(pc.sum(logs['bytes']).as_py())} in {len(rows)} logs"
    counts = ("bytes", "largest", "usable_bytes")
    shown = [{**row, **{name: format_bytes(row[name]) for name in counts if row.get(name) is not None}} for row in rows]
    shown = [{**row, FREE_COLUMN: row["usable_bytes"]} if "usable_bytes" in row else row for row in shown]
    emit(settings, CommandResult({"rows": rows}, *table_parts(settings, title, columns, shown)))


def _read(warehouse: Warehouse, *filters: Filter) -> pa.Table:
    """Read the table `sizes`; raise UnreadableError if nothing was recorded yet."""
    if not warehouse.exists():
        raise no_warehouse(warehouse.uri, "run `surveyor sizes` first")
    logs = warehouse.read("sizes", *filters)
    if not logs.num_rows and not (filters and warehouse.read("sizes", columns=["broker_id"]).num_rows):
        raise UnreadableError(
            f"no sizes of cluster {warehouse.cluster!r} in {warehouse.uri}; "
            "run `surveyor sizes` first, or check --cluster",
        )
    return logs


def _of_topic(warehouse: Warehouse, topic: str) -> pa.Table:
    logs = _read(warehouse, ("topic", "=", topic)).select([*REPLICA_COLUMNS, "taken_at"])
    if not logs.num_rows:
        raise UsageError(f"no broker reported a topic {topic!r}; run `surveyor sizes` again, or check its name")
    return logs.sort_by([(column, "ascending") for column in ("partition", "broker_id", "is_future")])
