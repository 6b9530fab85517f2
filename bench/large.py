"""`make bench-large`: the large benchmarks, as rows with ratio and target, like those of `make bench`.

A warehouse with a year of snapshots, ten million partitions in ten clusters, and three million in a single one. Each
is also a command of its own, which has further options.
"""

import argparse
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench import ten_million, year
from bench.figures import Cost, Figure
from bench.report import Report
from bench.snapshots import WARM_UP, bench_sizes
from jobs.adapters.embedded.processes import exit_on_sigterm

YEAR, TEN_MILLION, SIZES = "year", "ten-million", "sizes"


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    with exit_on_sigterm():
        report = run(options)
    if options.markdown:
        sys.stdout.write(report.markdown() + "\n")
    else:
        report.show()
    if report.failed:
        sys.exit(f"not measured, see above: {', '.join(report.failed)}")


def run(options: argparse.Namespace) -> Report:
    """Measure what `only` names; Spark is started in this process at last, as it keeps its memory."""
    figures, costs, failed = list[Figure](), list[Cost](), list[str]()

    def compare_clusters() -> Iterable[Figure]:
        partitions, clusters = options.ten_million
        is_full = (partitions, clusters) == (ten_million.PARTITIONS, ten_million.CLUSTERS)
        for comparison in ten_million.bench_ten_million(partitions, clusters, options.keep, ""):
            yield from comparison.figures(ten_million.TARGET if is_full else None)

    def measure_sizes() -> Iterable[Figure]:
        measured = bench_sizes(options.sizes, options.driver_memory)
        costs.extend(cost for cost in measured if cost.partitions != WARM_UP)
        return ()

    works: dict[str, Callable[[], Iterable[Figure]]] = {
        YEAR: lambda: year.bench_year(*options.year),
        TEN_MILLION: compare_clusters,
        SIZES: measure_sizes,
    }
    for name in options.only:
        try:
            figures.extend(works[name]())
        except Exception:  # noqa: BLE001 - the figures of the others are reported
            traceback.print_exc()
            failed.append(name)
    machine = {"cores": len(os.sched_getaffinity(0)), "Python": platform.python_version()}
    return Report(machine, figures, costs, failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-large", description=__doc__)
    add = parser.add_argument
    add("--only", type=lambda text: text.split(","), default=[YEAR, TEN_MILLION, SIZES], help="year,ten-million,sizes")
    add("--year", type=_numbers, default=[year.PARTITIONS, year.SNAPSHOTS], help="PARTITIONS,SNAPSHOTS[,ROUNDS]")
    add(
        "--ten-million",
        type=_numbers,
        default=[ten_million.PARTITIONS, ten_million.CLUSTERS],
        help="PARTITIONS of each cluster,CLUSTERS",
    )
    add("--keep", type=Path, help="folder for the warehouses of ten-million, where a later run finds them")
    add("--sizes", type=_numbers, default=[1_000_000, 3_000_000], help="partitions of single clusters")
    add("--driver-memory", default="7g", help="heap of the driver's JVM for the sizes")
    add("--markdown", action="store_true", help="Markdown on stdout")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main(sys.argv[1:])
