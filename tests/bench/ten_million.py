"""Commands on a warehouse of ten large clusters, against one of a single cluster of the same size.

    python -m tests.bench.ten_million 1000000 10 --keep build/ten

Each cluster has 1,000 brokers, one of which is dead, and ten of which lead none of the partitions that prefer them. The
first cluster is snapshotted; the others are copies of its rows under other names, in the same tables. All commands are
whole processes. A command for all clusters may take as much for each partition as the same command on the single
cluster, and a command on one of the ten as much as there. With `--keep` the warehouses stay in a folder, where a later
run of the same size finds them.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

import pyarrow as pa

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import Part
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from schemas.columns import TABLE_COLUMNS
from schemas.znodes import State, encode_state
from tests.bench.clusters.synthetic import TOPIC_SIZE, Cluster, cluster, state_path
from tests.bench.cold import run_command
from tests.bench.dashboard import opened_dashboard
from tests.bench.figures import timed

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
    "status --as-of 1",
    "report",
    DASHBOARD,
    "vacuum",
)
"""Commands for one cluster; the dashboard is started and opened until its first chart is drawn."""

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
        ratios = [
            value / self.clusters / of_one
            for value, of_one in (
                (run.seconds, alone.seconds),
                (run.processor_seconds, alone.processor_seconds),
            )
        ]
        by_both = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        return f"| {self.measured} | {seconds} | {by_both} | {run.gigabytes:.1f} | {alone.gigabytes:.1f} |"


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
            quick, slow = (_run(f"{command} {out} --all --conf {confs[at]}") for at in (one, all_of_them))
            if quick and slow:
                yield Comparison(f"surveyor {command} --all, for each", clusters, slow, quick)
        for command in single:
            out = f"--out {folder}/report.html" if command == "report" else ""
            quick, slow = (_run(f"{command} {out} --cluster {names[0]} --warehouse {at}") for at in (one, all_of_them))
            if quick and slow:
                yield Comparison(f"surveyor {command}, of one", 1, slow, quick)


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
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            pages = 0
            for pid, (ticks, resident) in _processes_below(os.getpid()).items():
                self._ticks[pid] = ticks
                pages += resident
            self.most_bytes = max(self.most_bytes, pages * os.sysconf("SC_PAGE_SIZE"))


def _processes_below(root: int) -> dict[int, tuple[int, int]]:
    """Return the ticks of processor time and the resident pages of each process below one, by id."""
    parents, used = dict[int, int](), dict[int, tuple[int, int]]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12]), int(fields[21]))

    def is_below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return {pid: of_process for pid, of_process in used.items() if pid != root and is_below(pid)}


def _copy(source: str, target: str, names: Sequence[str]) -> None:
    """Write the rows of the only cluster of one warehouse for each of these names."""
    done = list[str]()
    Warehouse(target, names[0]).ensure_tables()
    with progress("copying clusters", lambda: Part(len(done), len(names), "clusters")):
        for name in names:
            of_one, warehouse = Warehouse(source, names[0]), Warehouse(target, name)
            for table in TABLE_COLUMNS:
                if table not in {"snapshots", "partitions"}:
                    warehouse.append_all(table, _renamed(of_one.read(table), name))
            snapshots = sorted(of_one.rows("snapshots"), key=lambda row: row["snapshot_id"])
            for row in snapshots:  # their partitions one after the other, as snapshots write them
                version = dict(row["versions"])["partitions"]
                warehouse.replace_by("partitions", _renamed(of_one.read("partitions", version=version), name))
                versions = {table: warehouse.version(table) for table in TABLE_COLUMNS}
                warehouse.append("snapshots", [{**row, "versions": versions}])
            done.append(name)


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
