"""Commands on a warehouse with a year of snapshots, one every five minutes, against a young one of the same cluster.

    python -m bench.year 10000 105120

The rows of the year are made here, as nightly vacuums would have left them: a partition changes every hour, brokers,
their configs and topics every day, and each snapshot has the imbalance of every broker. All commands are whole
processes, in turn on both warehouses. The young one begins with a few days of a year ago, so that a vacuum deletes the
same day from both. The dashboard is started and opened until its first chart is drawn.
"""

import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.clusters.synthetic import Cluster, cluster
from bench.cold import run_command
from bench.dashboard import opened_dashboard
from bench.figures import Figure, median_of, seconds_of
from jobs.adapters.delta.warehouse import MAX_FILE_ROWS, Warehouse
from jobs.core.units import Part
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.snapshots.vacuum import SHORTENED_FILE_BYTES

PARTITIONS: Final = 10_000
SNAPSHOTS: Final = 105_120
"""A year's, one every five minutes."""

PER_HOUR: Final = 12
PER_DAY: Final = 24 * PER_HOUR

DAILY: Final = ("brokers", "broker_configs", "topics")
"""Tables of which every day has a version of its own."""

COMMANDS: Final = (
    ("snapshot",),
    ("plan", "reconcile"),
    ("show", "history", "--topic", "topic-00001"),
    ("status",),
    ("dashboard",),
    ("vacuum", "--keep"),
)

SPARK: Final = ("snapshot", "plan")
"""Commands with a JVM."""

TARGET: Final = 1.5
"""What a command may take at most, in times of the same on the young warehouse."""


def bench_year(
    partitions: int = PARTITIONS, snapshots: int = SNAPSHOTS, rounds: int = 3, *, only: str = ""
) -> Iterator[Figure]:
    """Measure each command on both warehouses by turns; of each the round with the median ratio.

    The vacuum of each round deletes the oldest day of both. `only` names the commands that are measured, as in
    `show,vacuum`.
    """
    commands = [command for command in COMMANDS if not only or command[0] in only.split(",")]
    days = -(-snapshots // PER_DAY)
    with cluster(partitions) as synthetic, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        young, old = (Warehouse(f"{folder}/{name}", "default") for name in ("young", "old"))
        for warehouse in (young, old):
            _run(synthetic, warehouse, "snapshot")
        first = datetime.now(UTC) - timedelta(days=days)
        add_snapshots(old, snapshots, first)
        add_snapshots(young, rounds * PER_DAY, first)
        for warehouse in (young, old):
            _run(synthetic, warehouse, "snapshot")
            _run(synthetic, warehouse, "vacuum", "--keep", "60w")
        turns = [
            [
                [_timed(synthetic, at, *_with_period(command, days - number)) for at in (old, young)]
                for command in commands
            ]
            for number in range(1, rounds + 1)
        ]
        files = [sum(path.is_file() for path in Path(warehouse.uri).rglob("*")) for warehouse in (old, young)]
        kept = old.read("snapshots", columns=["snapshot_id"]).num_rows
    target = TARGET if snapshots == SNAPSHOTS else None
    for command, times in zip(commands, zip(*turns, strict=True), strict=True):
        measured = (
            f"surveyor {' '.join(command)}, {snapshots:,} snapshots of {partitions:,} partitions, a whole process"
        )
        kinds = {measured: 0} | ({} if command[0] in SPARK else {f"{measured}, processor time": 1})
        for name, kind in kinds.items():
            figures = [Figure(name, slow[kind], "a young warehouse", quick[kind], target) for slow, quick in times]
            yield median_of(figures, attrgetter("ratio"))
    yield Figure(f"files and log entries, {kept:,} snapshots", files[0], "a young warehouse", files[1])


def _timed(synthetic: Cluster, warehouse: Warehouse, *command: str) -> tuple[float, float]:
    """Return the seconds of a command, and those of its processor time without a JVM."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = seconds_of(lambda: _run(synthetic, warehouse, *command))
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime


def _run(synthetic: Cluster, warehouse: Warehouse, *command: str) -> object:
    if command[0] == "dashboard":
        return opened_dashboard(["--warehouse", warehouse.uri])
    needs_cluster = command[0] in {"snapshot", "status"}
    where = ("--zookeeper", synthetic.hosts) if needs_cluster else ()
    return run_command(*command, *where, "--warehouse", warehouse.uri)


def _with_period(command: tuple[str, ...], days: int) -> tuple[str, ...]:
    return (*command, f"{days}d") if command[-1] == "--keep" else command


def add_snapshots(warehouse: Warehouse, snapshots: int, begin: datetime) -> None:
    """Put so many snapshots from `begin` on in the place of the first one."""
    (first,) = warehouse.rows("snapshots")
    days = -(-snapshots // PER_DAY)
    versions: list[Mapping[str, int]] = []
    with progress("adding daily versions", lambda: Part(len(versions), days, "days")):
        for _ in range(days):
            for name in DAILY:
                warehouse.replace_by(name, warehouse.read(name))
            versions.append({**dict(first["versions"]), **{name: warehouse.version(name) for name in DAILY}})
    with progress("adding rows"):
        _replace_snapshots(warehouse, _snapshots(warehouse, begin, snapshots, versions))
        hourly = np.arange(1, snapshots + 1, PER_HOUR)
        rows = warehouse.read("partitions")
        changed = rows.take(pa.array(np.arange(len(hourly)) * 37 % rows.num_rows))
        warehouse.append_all("partition_history", _with_ids(changed, hourly))
        subjects = [f"{row['topic']}-{row['partition']}" for row in changed.select(["topic", "partition"]).to_pylist()]
        warehouse.append_all("events", _events(warehouse, hourly, subjects))
        _add_imbalance(warehouse, snapshots)


def _replace_snapshots(warehouse: Warehouse, rows: pa.Table) -> None:
    """Write the rows in files of the size that compaction leaves, each of consecutive snapshots."""
    warehouse.replace_by("snapshots", rows)
    (written,) = warehouse.paths("snapshots")
    per_file = -(-rows.num_rows * SHORTENED_FILE_BYTES // Path(written).stat().st_size)
    warehouse.delete("snapshots", "true")
    for start in range(0, rows.num_rows, per_file):
        warehouse.append_all("snapshots", rows.slice(start, per_file))


def _snapshots(warehouse: Warehouse, begin: datetime, count: int, versions: list[Mapping[str, int]]) -> pa.Table:
    rows = _repeated(warehouse.read("snapshots"), count)
    taken = [begin + timedelta(minutes=5 * number) for number in range(count)]
    of_day = pa.array([[*row.items()] for row in versions], rows.schema.field("versions").type)
    columns = {
        "taken_at": pa.array(taken, rows.schema.field("taken_at").type),
        "versions": of_day.take(pa.array(np.arange(count) // PER_DAY)),
    }
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return rows


def _events(warehouse: Warehouse, ids: Any, subjects: list[str]) -> pa.Table:  # noqa: ANN401 - an array of numpy
    rows = [{"kind": "LeaderChanged", "subject": subject, "before": "1", "after": "2"} for subject in subjects]
    return _with_ids(warehouse.arrow("events", [{**row, "snapshot_id": 0} for row in rows]), ids)


def _add_imbalance(warehouse: Warehouse, snapshots: int) -> None:
    """Add the rows in files of the size that compaction leaves."""
    of_one = warehouse.read("imbalance")
    files = -(-snapshots * of_one.num_rows // MAX_FILE_ROWS)
    warehouse.delete("imbalance", "true")
    for ids in np.array_split(np.arange(1, snapshots + 1), files):
        places = np.tile(np.arange(of_one.num_rows), len(ids))
        warehouse.append_all("imbalance", _with_ids(of_one.take(pa.array(places)), np.repeat(ids, of_one.num_rows)))


def _repeated(rows: pa.Table, count: int) -> pa.Table:
    """Return the rows of one snapshot for so many."""
    places = np.tile(np.arange(rows.num_rows), count)
    return _with_ids(rows.take(pa.array(places)), np.repeat(np.arange(1, count + 1), rows.num_rows))


def _with_ids(rows: pa.Table, ids: Any) -> pa.Table:  # noqa: ANN401 - an array of numpy
    place = rows.schema.get_field_index("snapshot_id")
    return rows.set_column(place, rows.schema.field(place), pa.array(ids, pa.int64()))


if __name__ == "__main__":
    for figure in bench_year(*map(int, sys.argv[1:4]), only="".join(sys.argv[4:])):
        log(f"{figure.measured}: {figure.seconds:.2f} / {figure.baseline_seconds:.2f} = {figure.ratio:.2f}")
