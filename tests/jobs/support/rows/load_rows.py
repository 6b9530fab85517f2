"""Rows of the tables of loads, as the rollup writes them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from jobs.adapters.delta.warehouse import Warehouse
from schemas.rows import Row

HOUR: Final = timedelta(hours=1)

HOT_AND_COLD: Final = {"hot": {0: [0, 1], 1: [0, 1]}, "cold": {0: [1, 2], 1: [2, 0]}}
"""Replicas of two topics by partition."""
HOT: Final = {"bytes_in": 100.0, "bytes_out": 300.0, "size_bytes": 1000}
COLD: Final = {"bytes_in": 10.0, "bytes_out": 10.0, "size_bytes": 100}
PARTITION_LOADS: Final = {("hot", 0): HOT, ("hot", 1): HOT, ("cold", 0): COLD, ("cold", 1): COLD}


def broker_row(hour: datetime | None, broker: int, rate: float = 0.0, **columns: Any) -> Row:  # noqa: ANN401
    """A broker that leads 10 partitions of three replicas: `rate` from producers, and as much to readers."""
    rates = {"bytes_in": rate, "replication_in": 2 * rate, "bytes_out": rate, "replication_out": 2 * rate}
    return {"hour": hour, "broker_id": broker, "leaders": 10, "replicas": 30, **rates, **columns}


def partition_row(hour: datetime | None, topic: str, partition: int, rate: float | None, **columns: Any) -> Row:  # noqa: ANN401
    """A partition of broker 0 that was sampled during the whole hour, with as much to readers as from producers."""
    sampled = {"leader": 0, "covered_seconds": 3600.0, "samples": 12, "method": "delta_size"}
    rates = {"records_in": rate, "bytes_in": rate, "bytes_out": rate, "max_5min": rate}
    return {"hour": hour, "topic": topic, "partition": partition, **sampled, **rates, **columns}


def store_hours(warehouse: Warehouse, hours: Sequence[datetime], rates: Sequence[float], brokers: int = 2) -> None:
    """Store brokers with the same rate in each hour, and a partition of each hour."""
    for hour, rate in zip(hours, rates, strict=True):
        warehouse.append("broker_load", [broker_row(hour, broker, rate) for broker in range(brokers)])
        warehouse.append("partition_load", [partition_row(hour, "orders", 0, rate)])
