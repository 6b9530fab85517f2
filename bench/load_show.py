"""`surveyor show load` against a bare read of the rows that it needs.

    python -m bench.load_show 1000000 [ROUNDS]

The warehouse has the newest snapshot of simulated brokers and one hour of loads of all its partitions. The bare read is
of this hour's rows and of the partitions of the snapshot, by Arrow.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from bench.clusters.simulated_kraft import simulated_kraft
from bench.figures import Figure, median_of, seconds_of
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.session import start_session
from jobs.console_output.loads import show_load
from jobs.repositories.loads import HOUR, NOW, read_assignment, with_assignment
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.cli_enums import LoadGrouping
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.snapshot import take_snapshot
from planner.load.broker_sums import loads_of_brokers
from tests.jobs.support.kafka.paged_brokers import LISTED

BROKERS: Final = 100

SHOWN: Final = (LoadGrouping.BROKER, LoadGrouping.TOPIC, LoadGrouping.PARTITION)


def bench_load_show(partitions: int, rounds: int, engine: Engine = Engine.AUTO) -> Iterator[Figure]:
    """Measure each grouping so many times; of each, return the round with the median ratio."""
    with (
        simulated_kraft(partitions, LISTED, brokers=BROKERS) as addresses,
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
    ):
        settings = Settings("bench", folder, ClusterConf(bootstrap_servers=addresses), engine=engine)
        with progress(f"a snapshot and loads of {partitions:,} partitions"):
            take_snapshot(settings)
        _store_loads(settings, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - HOUR)
        for by in SHOWN:
            yield median_of([_figure(settings, by, partitions) for _ in range(rounds)], attrgetter("ratio"))


def _figure(settings: Settings, by: LoadGrouping, partitions: int) -> Figure:
    shown = StringIO()
    with redirect_stdout(shown):
        seconds = seconds_of(lambda: show_load(settings, by, NOW, top=20))
    assert shown.getvalue(), by
    bare = seconds_of(lambda: _read(settings))
    return Figure(f"show load --by {by.value}, {partitions:,} partitions", seconds, "bare read of its rows", bare)


def _read(settings: Settings) -> None:
    warehouse = settings.warehouse
    hour = warehouse.latest("partition_load", "hour")
    assert warehouse.read("partition_load", ("hour", "=", hour)).num_rows
    assert read_assignment(warehouse, last_snapshot(warehouse)).num_rows


def _store_loads(settings: Settings, hour: datetime) -> None:
    """Store random loads of all partitions of the snapshot, and their sums by broker."""
    warehouse = settings.warehouse
    assignment = read_assignment(warehouse, last_snapshot(warehouse))
    random, count, schema = np.random.default_rng(1), assignment.num_rows, schema_of("partition_load")
    columns = {
        "cluster": pa.repeat(warehouse.cluster, count),
        "hour": pa.repeat(pa.scalar(hour, schema.field("hour").type), count),
        **{name: assignment[name] for name in ("topic", "partition", "leader")},
        **{name: random.lognormal(8, 2, count) for name in ("records_in", "bytes_in", "bytes_out", "max_5min")},
        "size_bytes": random.integers(2**20, 2**36, count),
        "covered_seconds": np.full(count, 3_600.0),
        "samples": np.full(count, 12),
        "method": pa.repeat("delta_size", count),
    }
    unknown = pa.nulls(count)
    rows = pa.table([columns.get(name, unknown) for name in schema.names], schema.names).cast(schema)
    warehouse.append_all("partition_load", rows)
    brokers = loads_of_brokers(with_assignment(rows, assignment))
    warehouse.append("broker_load", [replace(row, hour=hour) for row in brokers])


if __name__ == "__main__":
    start_session("surveyor bench", place=Place(Engine.EMBEDDED))
    for figure in bench_load_show(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, Engine.EMBEDDED):
        print(figure.row)  # noqa: T201 - the result
