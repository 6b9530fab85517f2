"""The sizes of logs, as the last `surveyor sizes` stored them, and what a plan copies by these sizes."""

from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import StoredRows, values_of
from jobs.repositories.copy_volume import Volume, copying, volume

MAX_FILTERED_TOPICS: Final = 100
"""Number of topics up to which sizes are read for these topics only."""

_LOG_COLUMNS: Final = ("topic", "partition", "broker_id", "bytes")


def stored_volume(warehouse: Warehouse, changes: StoredRows) -> Volume:
    """Add up what the reassignments among the changes copy."""
    moves = copying(changes)
    return volume(moves, _logs_of(warehouse, moves.values("topic")) if len(moves) else _no_logs())


def _logs_of(warehouse: Warehouse, topics: list[str]) -> pa.Table:
    """Read the logs of these topics, and maybe of others, without future logs."""
    if not warehouse.has("sizes"):
        return _no_logs()
    few_topics = [("topic", "in", topics)] if len(topics) <= MAX_FILTERED_TOPICS else []
    return warehouse.read("sizes", ("is_future", "=", False), *few_topics, columns=list(_LOG_COLUMNS))


def _no_logs() -> pa.Table:
    return schema_of("sizes", *_LOG_COLUMNS).empty_table()


def bytes_by_broker(warehouse: Warehouse) -> tuple[dict[int, int], datetime | None]:
    """Return the bytes of the logs of each broker with any, and the time of the oldest answer."""
    if not warehouse.has("sizes"):
        return {}, None
    logs = warehouse.read("sizes", ("is_future", "=", False), columns=["broker_id", "bytes", "taken_at"])
    grouped = logs.group_by("broker_id").aggregate([("bytes", "sum")])
    return dict(values_of(grouped, "broker_id", "bytes_sum")), pc.min(logs["taken_at"]).as_py()
