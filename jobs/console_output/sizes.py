"""Output of `surveyor show sizes`: recorded sizes by broker, or of a topic by partition and broker. It needs no JVM."""

from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.filtered_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse, as_rows
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.console_output.tables import table_parts
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.units import format_bytes
from jobs.preconditions.copy_volume import usable_bytes
from jobs.runtime.console import CommandResult
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from schemas.rows import Row

BROKER_COLUMNS: Final = ("broker_id", "log_dirs", "replicas", "future", "bytes", "largest", "taken_at")
FREE: Final = "free"
"""Text column for `usable_bytes`."""

REPLICA_COLUMNS: Final = ("topic", "partition", "broker_id", "log_dir", "bytes", "offset_lag", "is_future")


def by_broker(logs: pa.Table) -> list[Row]:
    """Aggregate rows of SIZES by broker: non-empty log dirs, replicas, future replicas and bytes.

    `bytes` includes future logs, because they occupy disk space.
    """
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
    rows = as_rows(grouped.select(["broker_id", *aggregated]).rename_columns(list(BROKER_COLUMNS)))
    # a replica that is moving to another log dir counts once
    return sorted(({**row, "replicas": row["replicas"] - row["future"]} for row in rows), key=itemgetter("broker_id"))


def show_sizes(settings: Settings, topic: str | None) -> None:
    """Show bytes by broker, or of a topic by partition and broker, as recorded by `surveyor sizes`."""
    columns: tuple[str, ...] = BROKER_COLUMNS
    if topic is None:
        rows = by_broker(_read(settings.warehouse))
        if usable := usable_bytes(settings.warehouse):
            rows = [{**row, "usable_bytes": usable.get(row["broker_id"])} for row in rows]
            columns = (*(name for name in columns if name != "future" or any(row["future"] for row in rows)), FREE)
        title = f"sizes of {settings.cluster}: {format_bytes(sum(row['bytes'] for row in rows))}"
    else:
        rows, columns = _of_topic(settings.warehouse, topic), REPLICA_COLUMNS
        title = f"sizes of {topic}: {format_bytes(sum(row['bytes'] for row in rows))} in {len(rows)} logs"
    counts = ("bytes", "largest", "usable_bytes")
    shown = [{**row, **{name: format_bytes(row[name]) for name in counts if row.get(name) is not None}} for row in rows]
    shown = [{**row, FREE: row["usable_bytes"]} if "usable_bytes" in row else row for row in shown]
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


def _of_topic(warehouse: Warehouse, topic: str) -> list[Row]:
    rows = as_rows(_read(warehouse, ("topic", "=", topic)).select([*REPLICA_COLUMNS, "taken_at"]))
    if not rows:
        raise UsageError(f"no broker reported a topic {topic!r}; run `surveyor sizes` again, or check its name")
    return sorted(rows, key=itemgetter("partition", "broker_id", "is_future"))
