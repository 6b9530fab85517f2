"""The rollup of samples against a bare scan of the same rows, by the same engine.

    python -m bench.load_rollup [ROWS,...] [embedded|spark]

A sample each five minutes has a row for each of a hundred thousand partitions, and the position of the group that reads
it. Of ROWS one half is in `partition_offsets` and one in `group_offsets`, and all hours are due. The bare scan reads
all columns of all rows from the same files and hashes them. The rollup is the whole command: it finds the hours,
computes them, and writes three tables. Of several numbers of ROWS the cost of a row is compared with the first one.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from bench.figures import Figure, seconds_of, timed
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.engine_choice import Engine
from jobs.adapters.spark.session import start_session
from jobs.measurement.rollup import RolledUp, roll_up
from jobs.repositories.snapshots import STATE_TABLES
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from schemas.tables import SPARK_SCHEMAS

TARGET: Final = 4.0
"""A rollup, in bare scans of its samples."""

ROWS: Final = 10_000_000
PARTITIONS: Final = 100_000
TOPIC_SIZE: Final = 100
BROKERS: Final = 100
RACKS: Final = 4
FACTOR: Final = 3
EVERY: Final = timedelta(minutes=5)
FIRST: Final = datetime(2026, 11, 2, tzinfo=UTC)
SCANS: Final = 3
"""Scans of which the fastest counts."""
TABLES: Final = ("partition_offsets", "group_offsets")
SEGMENT: Final = 1_000_000
"""Records of a segment, of which three are kept."""
MOVED: Final = 1e-4
"""Share of the leaders that move between two samples."""


def bench_load_rollup(rows: int = ROWS) -> list[Figure]:
    """Compare on both engines, in a process for each, since a process has one engine."""
    return [_in_process(rows, engine) for engine in (Engine.EMBEDDED, Engine.SPARK)]


def _in_process(rows: int, engine: Engine) -> Figure:
    command = [sys.executable, "-m", "bench.load_rollup", str(rows), engine.value]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values = json.loads(result.stdout.splitlines()[-1])
    names = {"baseline_seconds": "baseline seconds"}
    return Figure(**{name: values[names.get(name, name)] for name in Figure.__dataclass_fields__})


def compare(rows: int, engine: Engine = Engine.AUTO, partitions: int = PARTITIONS) -> Figure:
    """Store samples, scan all of them and roll them up; raise AssertionError for a wrong result."""
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        settings = Settings("bench", folder, ClusterConf(), engine=engine)
        warehouse = settings.warehouse
        with progress(f"storing {rows:,} rows of samples"):
            store_samples(warehouse, rows, partitions)
        tables = SparkWarehouse(start_session("surveyor bench", place=settings.place), warehouse)
        bare = min(seconds_of(lambda: scan(tables)) for _ in range(SCANS))
        seconds, rolled = timed(lambda: roll_up(settings))
        _check(warehouse, rolled)
        name = f"load rollup of {rows:,} rows of samples, {engine.value}"
        return Figure(name, seconds, "bare scan of the same", bare, TARGET)


def _check(warehouse: Warehouse, rolled: RolledUp) -> None:
    """Check that the records of all hours are those between the first and the last sample."""
    files = warehouse.statistics(TABLES[0], "stored_at")["min.stored_at"]
    ends = (warehouse.read(TABLES[0], ("stored_at", "=", end(files).as_py())) for end in (pc.min, pc.max))
    first, last = (pc.sum(rows["log_end"]).as_py() for rows in ends)
    loads = warehouse.read("partition_load", columns=["records_in", "covered_seconds"])
    records = pc.sum(pc.multiply(loads["records_in"], loads["covered_seconds"])).as_py()
    assert loads.num_rows == rolled.partition_rows, rolled
    assert abs(records - (last - first)) <= 1e-6 * (last - first), (records, first, last)


def scan(tables: SparkWarehouse) -> list[int]:
    """Read all columns of all samples; return a sum of their hashes for each table."""
    columns = [SPARK_SCHEMAS[table].names for table in TABLES]
    hashes = [F.sum(F.xxhash64(*names).bitwiseAND(0xFFFF)).alias("sum") for names in columns]
    return [tables.read(table).agg(of_rows).collect()[0]["sum"] for table, of_rows in zip(TABLES, hashes, strict=True)]


def store_samples(warehouse: Warehouse, rows: int, partitions: int = PARTITIONS) -> None:
    """Store a snapshot, and samples of its partitions and groups, in one file each."""
    warehouse.ensure_tables()
    topics = -(-partitions // TOPIC_SIZE)
    number = np.arange(partitions)
    topic = number // TOPIC_SIZE
    names, ids, groups = (
        pa.array([form.format(topic) for topic in range(topics)])
        for form in ("business-unit.orders-{:05}.events", "{:022}", "group-{:05}")
    )
    key = {"topic": names.take(topic), "topic_id": ids.take(topic), "partition": number % TOPIC_SIZE}
    of_topics = {"topic": names, "topic_id": ids, "deletion_requested": False}
    _store_snapshot(warehouse, of_topics, {name: key[name] for name in ("topic", "partition")})
    group = {"group_id": groups.take(topic), "group_type": "consumer"}
    racks = pa.array([f"rack-{rack}" for rack in range(RACKS)]).take(number % RACKS)
    chance = np.random.default_rng(0)
    rate, size = np.minimum(chance.lognormal(8, 2, partitions), 1e7), chance.integers(100, 2_000, partitions)
    leader, epoch, end = number % BROKERS, np.full(partitions, 5), np.zeros(partitions, np.int64)
    for count in range(rows // (2 * partitions)):
        at = FIRST + EVERY * count
        end += chance.poisson(rate)
        moved = chance.random(partitions) < MOVED
        leader, epoch = np.where(moved, (leader + 1) % BROKERS, leader), epoch + moved
        start = np.maximum(0, end // SEGMENT - 3) * SEGMENT
        answered = np.datetime64(at.replace(tzinfo=None), "us") + leader.astype("timedelta64[ms]")
        own = {**key, "sampled_at": answered, "stored_at": at + timedelta(seconds=5)}
        log = {"log_start": start, "log_end": end, "bytes": (end - start) * size + leader}
        offsets = {**own, **log, "leader": leader, "leader_epoch": epoch}
        behind = chance.integers(0, 1_000, partitions)
        positions = {**own, **group, "committed": np.maximum(0, end - behind), "member_rack": racks}
        for table, columns in zip(TABLES, (offsets, positions), strict=True):
            warehouse.append_all(table, _rows(warehouse, table, columns))


def _store_snapshot(warehouse: Warehouse, topics: dict[str, Any], partitions: dict[str, Any]) -> None:
    """Store what a rollup reads of a snapshot."""
    count = len(partitions["topic"])
    replicas = (np.arange(count)[:, None] + np.arange(FACTOR)) % BROKERS
    offsets = np.arange(count + 1) * FACTOR
    lists = {
        "replicas": pa.ListArray.from_arrays(offsets.astype(np.int32), replicas.ravel().astype(np.int32)),
        **dict.fromkeys(("adding_replicas", "removing_replicas"), pa.array([[]] * count, pa.list_(pa.int32()))),
    }
    brokers = {
        "broker_id": np.arange(BROKERS),
        "rack": pa.array([f"rack-{broker % RACKS}" for broker in range(BROKERS)]),
        "understood": True,
    }
    warehouse.append_all("topics", _rows(warehouse, "topics", topics))
    warehouse.append_all("partitions", _rows(warehouse, "partitions", {**partitions, **lists}))
    warehouse.append_all("brokers", _rows(warehouse, "brokers", brokers))
    versions = {table: warehouse.version(table) for table in STATE_TABLES}
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": FIRST, "versions": versions}])


def _rows(warehouse: Warehouse, table: str, columns: dict[str, Any]) -> pa.Table:
    """Return rows of a table from arrays, and from values that all rows have; other columns are null."""
    count = next(len(column) for column in columns.values() if isinstance(column, np.ndarray | pa.Array))
    whole = {"cluster": warehouse.cluster, **columns}
    arrays = []
    for column in schema_of(table):
        values = whole.get(column.name)
        if isinstance(values, np.ndarray):
            arrays.append(pa.array(values).cast(column.type))
        elif isinstance(values, pa.Array):
            arrays.append(values.cast(column.type))
        else:
            arrays.append(pa.repeat(pa.scalar(values, column.type), count))
    return pa.table(arrays, schema=schema_of(table))


def main(rows: Sequence[int], engine: Engine) -> None:
    figures = [compare(count, engine) for count in rows]
    costs = [figure.seconds / count for figure, count in zip(figures, rows, strict=True)]
    for count, cost in [*zip(rows, costs, strict=True)][1:]:
        sys.stdout.write(f"a row of {count:,} takes {cost / costs[0]:.2f} of the time of one of {rows[0]:,}\n")
    for figure in figures:
        sys.stdout.write(json.dumps(figure.row) + "\n")


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else str(ROWS)
    main([*map(int, given.split(","))], Engine(sys.argv[2] if len(sys.argv) > 2 else "embedded"))
