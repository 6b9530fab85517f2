"""Snapshots of many clusters by one command, against one cluster, and against a command for each in turn.

All are whole processes, each kind with a warehouse that is empty at first. The clusters of the configuration file are
the same tree of one ZooKeeper under different names: a snapshot reads and stores it for each name.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.clusters.synthetic import Cluster, cluster
from bench.cold import run_command
from bench.figures import Figure, seconds_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import Part
from jobs.runtime.progress import progress

CLUSTERS: Final = 20
PARTITIONS: Final = 10_000

AS_ONE: Final = 4.0
"""What 20 clusters may take at most, in times of one."""

IN_TURN: Final = 0.35
"""What they may take at most, in times of a command for each in turn."""


def bench_fleet(clusters: int = CLUSTERS, partitions: int = PARTITIONS) -> Iterator[Figure]:
    """Measure the first snapshots of so many clusters of so many partitions."""
    names = [f"c{number:02}" for number in range(clusters)]
    with cluster(partitions) as synthetic, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        conf = _conf(synthetic, names, Path(folder))
        one = _snapshots(conf, f"{folder}/one", names[:1])
        at_once = seconds_of(
            lambda: run_command("snapshot", "--all-clusters", "--conf", conf, "--warehouse", f"{folder}/all")
        )
        in_turn = _snapshots(conf, f"{folder}/in-turn", names)
        for warehouse in ("all", "in-turn"):
            stored = [Warehouse(f"{folder}/{warehouse}", name).read("partitions").num_rows for name in names]
            assert stored == [partitions] * clusters, f"{stored} partitions are stored"
    measured = f"surveyor snapshot --all-clusters, {clusters} clusters of {partitions:,} partitions, a whole process"
    is_whole = (clusters, partitions) == (CLUSTERS, PARTITIONS)
    yield Figure(measured, at_once, "surveyor snapshot of one of them", one, AS_ONE if is_whole else None)
    yield Figure(measured, at_once, "a process for each, in turn", in_turn, IN_TURN if is_whole else None)


def _conf(synthetic: Cluster, names: list[str], folder: Path) -> str:
    path = folder / "surveyor.toml"
    path.write_text("".join(f'[clusters.{name}]\nzookeeper = "{synthetic.hosts}"\n' for name in names))
    return str(path)


def _snapshots(conf: str, warehouse: str, names: list[str]) -> float:
    """Return the seconds of a command for each cluster in turn."""
    done = list[str]()
    with progress("snapshots in turn", lambda: Part(len(done), len(names), "clusters")):

        def run() -> None:
            for name in names:
                run_command("snapshot", "--cluster", name, "--conf", conf, "--warehouse", warehouse)
                done.append(name)

        return seconds_of(run)


if __name__ == "__main__":
    for figure in bench_fleet(*map(int, sys.argv[1:])):
        print(figure.row)  # noqa: T201 - the result
