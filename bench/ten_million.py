"""Commands on a warehouse of ten large clusters, against one of a single cluster of the same size.

    python -m bench.ten_million 1000000 10 --keep build/ten

Each cluster has 1,000 brokers, one of which is dead, and ten of which lead none of the partitions that prefer them. The
first cluster is snapshotted; the others are copies of its rows under other names, in the same tables. All commands are
whole processes. A command for all clusters may take as much for each partition as the same command on the single
cluster, and a command on one of the ten as much as there. With `--keep` the warehouses stay in a folder, where a later
run of the same size finds them.
"""

import argparse
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from bench.clusters.synthetic import TOPIC_SIZE, Cluster, cluster, state_path
from bench.cold import run_command
from bench.dashboard import opened_dashboard
from bench.figures import Figure, median_of, processes_below, timed
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import Part
from jobs.repositories.snapshots import STATE_TABLES
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from schemas.columns import TABLE_COLUMNS
from schemas.znode_codecs import State, encode_state

PARTITIONS: Final = 1_000_000
CLUSTERS: Final = 10
BROKERS: Final = 1_000
IMBALANCED: Final = range(10, 20)
"""Brokers that lead none of the partitions that prefer them."""

FLEET: Final = (
    "plan reconcile",
    "plan elect --preferred",
    "whatif --lose brokers=1",
    "report",
)
"""Commands for all clusters."""

DASHBOARD: Final = "dashboard"

SINGLE: Final = (
    "plan reconcile",
    "plan elect --preferred",
    "plan reassign --remove-brokers 7",
    "whatif --lose brokers=1",
    "show partitions --offline",
    "show brokers",
    "show history --topic topic-00001",
    "status --snapshot 1",
    "report",
    DASHBOARD,
    "vacuum",
)
"""Commands for one cluster; the dashboard is started and opened until its first chart is drawn."""

SPARK: Final = ("plan", "whatif")
SPARK_TURNS: Final = 1
TURNS: Final = 3
"""How often a command without Spark is run on each warehouse."""

TARGET: Final = 1.0
"""What a command may take at most for each cluster, in times of the same on a single cluster."""

SAMPLE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Run:
    """A command that has ended."""

    seconds: float
    processor_seconds: float
    gigabytes: float
    """The most memory that its processes had resident together; memory that they share counts for each."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A command on some clusters of the large warehouse, against the same on a warehouse of one cluster."""

    measured: str
    clusters: int
    run: Run
    alone: Run

    @property
    def line(self) -> str:
        """The row of a Markdown table: seconds, ratio, ratio of the processor time, and memory in GB."""
        run, alone = self.run, self.alone
        seconds = f"{run.seconds / self.clusters:.1f} | {alone.seconds:.1f}"
        ratios = f"{run.seconds / self.clusters / alone.seconds:.2f} | {self.processor_ratio:.2f}"
        return f"| {self.measured} | {seconds} | {ratios} | {run.gigabytes:.1f} | {alone.gigabytes:.1f} |"

    def figures(self, target: float | None) -> list[Figure]:
        """Return the seconds, and the processor time, which has the target."""
        run, alone = self.run, self.alone
        of_processors = run.processor_seconds / self.clusters, alone.processor_seconds
        baseline = "a warehouse of a single cluster"
        return [
            Figure(self.measured, run.seconds / self.clusters, baseline, alone.seconds),
            Figure(f"{self.measured}, processor time", of_processors[0], baseline, of_processors[1], target),
        ]

    @property
    def processor_ratio(self) -> float:
        return self.run.processor_seconds / self.clusters / self.alone.processor_seconds


def bench_ten_million(partitions: int, clusters: int, keep: Path | None, only: str) -> Iterator[Comparison]:
    """Measure commands on all clusters, then on one of them."""
    names = [f"c{number}" for number in range(clusters)]
    with nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        one, all_of_them = f"{folder}/one", f"{folder}/all"
        filled = Path(folder) / f"filled-{partitions}-{clusters}"
        if not filled.exists():
            _fill(partitions, one, all_of_them, names)
            filled.touch()
        confs = {at: _conf(Path(folder), at, named) for at, named in ((one, names[:1]), (all_of_them, names))}
        fleet, single = ([command for command in commands if only in command] for commands in (FLEET, SINGLE))
        for command in fleet:
            out = f"--out {folder}/fleet" if command == "report" else ""
            runs = [f"{command} {out} --all --conf {confs[at]}" for at in (all_of_them, one)]
            yield from _compared(f"surveyor {command} --all, for each", clusters, *runs)
        for command in single:
            out = f"--out {folder}/report.html" if command == "report" else ""
            runs = [f"{command} {out} --cluster {names[0]} --warehouse {at}" for at in (all_of_them, one)]
            yield from _compared(f"surveyor {command}, of one", 1, *runs)


def _compared(measured: str, clusters: int, command: str, alone: str) -> Iterator[Comparison]:
    """Run both by turns; yield the turn with the median ratio of the processor time, nothing if a command fails."""
    turns = SPARK_TURNS if command.startswith(SPARK) else TURNS
    runs = [(_run(command), _run(alone)) for _ in range(turns)]
    figures = [Comparison(measured, clusters, run, of_one) for run, of_one in runs if run and of_one]
    if figures:
        yield median_of(figures, attrgetter("processor_ratio"))


def _fill(partitions: int, one: str, all_of_them: str, names: Sequence[str]) -> None:
    with cluster(partitions, _place, BROKERS) as synthetic:
        where = ("--zookeeper", synthetic.hosts, "--cluster", names[0], "--warehouse", one)
        _lead_elsewhere(synthetic)
        run_command("snapshot", *where)
        synthetic.client.delete("/brokers/ids/0")
        run_command("snapshot", *where)
    _copy(one, all_of_them, names)


def _place(topic: int, partition: int) -> list[int]:
    """Return different brokers for almost every partition, as Kafka does, which shifts the followers of each topic."""
    shift = topic * 13 % (BROKERS // 2 - 1) + 1
    return [(topic * 7 + partition + step * shift) % BROKERS for step in range(3)]


def _lead_elsewhere(synthetic: Cluster) -> None:
    """Let the second replica lead the partitions that prefer an imbalanced broker."""
    for topic in range(synthetic.topics):
        for partition in range(TOPIC_SIZE):
            replicas = _place(topic, partition)
            if replicas[0] in IMBALANCED:
                led = State(controller_epoch=1, leader=replicas[1], leader_epoch=1, isr=replicas)
                synthetic.client.set(state_path(topic, partition), encode_state(led))


def _conf(folder: Path, warehouse: str, names: Sequence[str]) -> str:
    path = folder / f"{Path(warehouse).name}.toml"
    clusters = "".join(f'[clusters.{name}]\nzookeeper = "127.0.0.1:1"\n' for name in names)
    path.write_text(f'warehouse = "{warehouse}"\n{clusters}')
    return str(path)


def _run(command: str) -> Run | None:
    """Run a command; None, and a line, if it fails."""
    try:
        with progress(f"surveyor {command}"), _Sampling() as sampling:
            if command.startswith(DASHBOARD):
                seconds = opened_dashboard(command.split()[1:])
            else:
                seconds, _ = timed(lambda: run_command(*command.split()))
    except subprocess.CalledProcessError as error:
        log(f"  {command} failed with {error.returncode}: {error.stderr[-2_000:]}")
        return None
    run = Run(seconds, sampling.processor_seconds, sampling.most_bytes / 1e9)
    log(f"  {command}: {run.seconds:.1f} s, {run.processor_seconds:.1f} s of processors, {run.gigabytes:.1f} GB")
    return run


class _Sampling:
    """The memory and the processor time of all processes below this one, sampled in a thread."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._ticks = dict[int, int]()
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._done = Event()
        self._thread = Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def processor_seconds(self) -> float:
        """Those of children that have ended are exact; of their own children, such as a JVM, the last sample counts."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        of_children = usage.ru_utime + usage.ru_stime - self._before.ru_utime - self._before.ru_stime
        return of_children + sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            pages = 0
            for pid, process in processes_below(os.getpid()).items():
                pages += process.pages
                if process.parent != os.getpid():
                    self._ticks[pid] = process.ticks
            self.most_bytes = max(self.most_bytes, pages * os.sysconf("SC_PAGE_SIZE"))


def _copy(source: str, target: str, names: Sequence[str]) -> None:
    """Write the rows of the only cluster of one warehouse for each of these names, in as many files."""
    done, of_one = list[str](), Warehouse(source, names[0])
    snapshots = sorted(of_one.rows("snapshots"), key=lambda row: row["snapshot_id"])
    Warehouse(target, names[0]).ensure_tables()
    with progress("copying clusters", lambda: Part(len(done), len(names), "clusters")):
        for name in names:
            warehouse = Warehouse(target, name)
            for table in TABLE_COLUMNS.keys() - {"snapshots", *STATE_TABLES}:
                for path in of_one.paths(table):
                    warehouse.append_all(table, _of_file(path, table, name))
            copied = dict[str, int]()
            for row in snapshots:  # one after the other, as snapshots write them
                of_snapshot = dict(row["versions"])
                for table in STATE_TABLES:
                    if copied.get(table) != of_snapshot[table]:
                        rows = of_one.read(table, version=of_snapshot[table])
                        warehouse.replace_by(table, _renamed(rows, name))
                        copied[table] = of_snapshot[table]
                versions = {table: warehouse.version(table) for table in TABLE_COLUMNS}
                warehouse.append("snapshots", [{**row, "versions": versions}])
            done.append(name)


def _of_file(path: str, table: str, name: str) -> pa.Table:
    """Read a file of a table; its column `cluster` is in the name of its folder."""
    schema = schema_of(table)
    rows = pq.ParquetFile(path).read()
    columns = [pa.array([name] * rows.num_rows) if column == "cluster" else rows[column] for column in schema.names]
    return pa.table(columns, names=schema.names).cast(schema)


def _renamed(rows: pa.Table, name: str) -> pa.Table:
    place = rows.schema.get_field_index("cluster")
    return rows.set_column(place, rows.schema.field(place), pa.array([name] * rows.num_rows, pa.string()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("partitions", type=int, nargs="?", default=PARTITIONS)
    parser.add_argument("clusters", type=int, nargs="?", default=CLUSTERS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="", help="only the commands that contain this text")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    for comparison in bench_ten_million(options.partitions, options.clusters, options.keep, options.only):
        log(comparison.line)


if __name__ == "__main__":
    main()
