"""Commands on a warehouse of ten large clusters, against one of a single cluster of the same size.

    python -m tests.bench.ten_million 1000000 10

Each cluster has 1,000 brokers, one of which is dead. The first is snapshotted; the others are copies of its rows under
other names, in the same tables. All commands are whole processes. A command for all clusters may take as much for each
partition as the same command on the single cluster, and a command on one of the ten as much as there.
"""

import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import Part
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from schemas.columns import TABLE_COLUMNS
from tests.bench.clusters.synthetic import cluster
from tests.bench.cold import run_command
from tests.bench.figures import Figure, timed

PARTITIONS: Final = 1_000_000
CLUSTERS: Final = 10
BROKERS: Final = 1_000

FLEET: Final[tuple[tuple[str, ...], ...]] = (
    ("plan", "reconcile"),
    ("plan", "elect"),
    ("whatif", "--lose", "brokers=1"),
    ("report",),
)
"""Commands for all clusters."""

SINGLE: Final[tuple[tuple[str, ...], ...]] = (
    ("plan", "reconcile"),
    ("plan", "elect"),
    ("plan", "reassign", "--remove-brokers", "7"),
    ("whatif", "--lose", "brokers=1"),
    ("show", "partitions", "--offline"),
    ("show", "brokers"),
    ("status", "--as-of", "1"),
    ("report",),
    ("vacuum",),
)
"""Commands for one cluster."""


def bench_ten_million(partitions: int = PARTITIONS, clusters: int = CLUSTERS) -> Iterator[Figure]:
    """Measure commands on all clusters, then on one of them."""
    names = [f"c{number}" for number in range(clusters)]
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        one, all_of_them = f"{folder}/one", f"{folder}/all"
        confs = {
            warehouse: _conf(Path(folder), warehouse, named)
            for warehouse, named in ((one, names[:1]), (all_of_them, names))
        }
        with cluster(partitions, _place, BROKERS) as synthetic:
            where = ("--zookeeper", synthetic.hosts, "--cluster", names[0], "--warehouse", one)
            run_command("snapshot", *where)
            synthetic.client.delete("/brokers/ids/0")
            run_command("snapshot", *where)
        _copy(one, all_of_them, names)
        for command in FLEET:
            out = ("--out", f"{folder}/fleet") if command[0] == "report" else ()
            quick, slow = (
                _seconds(*command, *out, "--all", "--parallel", "1", "--conf", confs[at]) for at in (one, all_of_them)
            )
            measured = f"surveyor {' '.join(command)} --all, {clusters} clusters of {partitions:,} partitions"
            yield Figure(f"{measured}, for each", slow / clusters, "one such cluster", quick, 1.0)
        for command in SINGLE:
            out = ("--out", f"{folder}/report.html") if command[0] == "report" else ()
            quick, slow = (
                _seconds(*command, *out, "--cluster", names[0], "--warehouse", at) for at in (one, all_of_them)
            )
            measured = f"surveyor {' '.join(command)}, one of {clusters} clusters of {partitions:,} partitions"
            yield Figure(measured, slow, "the same cluster alone", quick, 1.0)


def _place(topic: int, partition: int) -> list[int]:
    return [(topic * 7 + partition + step) % BROKERS for step in range(3)]


def _conf(folder: Path, warehouse: str, names: Sequence[str]) -> str:
    path = folder / f"{Path(warehouse).name}.toml"
    clusters = "".join(f'[clusters.{name}]\nzookeeper = "127.0.0.1:1"\n' for name in names)
    path.write_text(f'warehouse = "{warehouse}"\n{clusters}')
    return str(path)


def _seconds(*command: str) -> float:
    with progress(f"surveyor {' '.join(command[:3])}"):
        seconds, _ = timed(lambda: run_command(*command))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    log(f"  {' '.join(command)}: {seconds:.1f} s, largest process so far {peak:.1f} GB")
    return seconds


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


if __name__ == "__main__":
    for figure in bench_ten_million(*map(int, sys.argv[1:])):
        log(f"{figure.measured}: {figure.seconds:.2f} / {figure.baseline_seconds:.2f} = {figure.ratio:.2f}")
