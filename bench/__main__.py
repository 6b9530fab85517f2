"""`make bench`: how fast the parts are, as ratios against a baseline in the same run.

Absolute times mean little on a shared machine; each ratio divides two times measured side by side. ZooKeeper is
embedded, its znodes are synthetic, and the Spark session is warm. A missed target does not fail the run.
"""

import argparse
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from bench.clusters.synthetic import TOPIC_SIZE, cluster
from bench.cold import bench_cold, bench_shell
from bench.engines import TARGETS, bench_engines, bench_generate, bench_jobs
from bench.failover import bench_failover
from bench.figures import Driver, Figure, describe
from bench.fleet import CLUSTERS, bench_fleet
from bench.kraft import bench_kraft
from bench.load_plans import bench_load_plans
from bench.load_rollup import bench_load_rollup
from bench.load_show import bench_load_show
from bench.notification import CHANGE_COUNT, bench_notification
from bench.parts import bench_planning, bench_writing
from bench.placement import bench_placement
from bench.report import Report
from bench.resident import bench_resident
from bench.sampling import bench_sampling
from bench.snapshots import UNCHANGED, WARM_UP, Sample, SnapshotBench
from bench.takeover import bench_takeover
from jobs.adapters.embedded.processes import exit_on_sigterm
from jobs.adapters.spark.session import start_session
from jobs.runtime.console import log

REPEATS = 3
TURNS = 9

BEGIN, END = "<!-- begin: make bench -->", "<!-- end: make bench -->"
"""Where a Markdown file has its figures."""


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    with exit_on_sigterm():
        report = run(options)
    if report.failed and options.markdown not in {None, "-"}:
        options.markdown = "-"  # half a report replaces none
    if options.json:
        sys.stdout.write(report.json() + "\n")
    elif options.markdown is None:
        report.show()
    elif options.markdown == "-":
        sys.stdout.write(report.markdown() + "\n")
    else:
        fill_in(Path(options.markdown), report.markdown())
        log(report.verdict)
    if report.failed:
        sys.exit(f"not measured, see above: {', '.join(report.failed)}")


def run(options: argparse.Namespace) -> Report:
    """Measure everything, the small first; a server is stopped before the next one starts."""
    # before a session of ours takes memory and processors
    cold = [*bench_cold(REPEATS), bench_generate(REPEATS), *bench_jobs(), *bench_fleet(options.clusters)]
    cold += bench_engines([min(TARGETS), *options.partitions], REPEATS)
    spark = start_session("surveyor bench", {"spark.driver.memory": options.driver_memory})
    driver = Driver(spark)
    with cluster(WARM_UP) as small:
        machine = describe(spark, small.version, options.driver_memory)
        SnapshotBench(spark, driver, small).rounds(1)
        writing = bench_writing(small)
    samples: list[Sample] = []
    later: list[Figure] = []
    failed: list[str] = []
    for partitions in options.partitions:
        with cluster(partitions) as synthetic:
            snapshots = SnapshotBench(spark, driver, synthetic).rounds(options.rounds)
            warm = next(
                sample.figure.seconds for sample in snapshots if sample.cost and sample.cost.snapshot == UNCHANGED
            )
            samples += snapshots
            samples.append(Sample(bench_shell(synthetic, warm, options.rounds)))
            samples.append(Sample(bench_kraft(spark, synthetic, options.rounds)))
        samples.append(bench_sampling(partitions, options.rounds))
        samples += map(Sample, bench_load_show(partitions, options.rounds))
    works: dict[str, Callable[[], Iterable[Figure]]] = {
        "notification": lambda: [bench_notification(options.notified)],
        "fail-over": lambda: chain.from_iterable(map(bench_failover, options.failover)),
        "take-over": lambda: chain.from_iterable(map(bench_takeover, options.failover)),
        "the resident controller": bench_resident,
        "planning": lambda: bench_planning(spark, options.planned, TURNS),
        "placement": lambda: bench_placement(REPEATS),
        "plans by load": lambda: bench_load_plans(REPEATS),
        "rollup of samples": bench_load_rollup,
    }
    for name, work in works.items():
        try:
            later += work()
        except Exception:  # noqa: BLE001 - the figures of the others are reported
            traceback.print_exc()
            failed.append(name)
    costs = [sample.cost for sample in samples if sample.cost]
    return Report(machine, [*cold, *(sample.figure for sample in samples), writing, *later], costs, failed)


def fill_in(file: Path, figures: str) -> None:
    """Replace what stands between the marks."""
    text = file.read_text(encoding="utf-8")
    between = re.compile(f"(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", re.DOTALL)
    filled, replacements = between.subn(lambda _: f"\n{figures}\n", text)
    if not replacements:
        sys.exit(f"{file} has no lines {BEGIN} and {END} to write between:\n{figures}")
    file.write_text(filled, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--partitions",
        type=_sizes,
        default=[100_000, 1_000_000],
        metavar="N,...",
        help="sizes of the clusters that snapshots are taken of; 100000,1000000",
    )
    parser.add_argument(
        "--rounds", type=_positive, default=1, help="how often each snapshot is measured; the median counts; 1"
    )
    parser.add_argument(
        "--planned", type=_positive, default=500_000, metavar="N", help="partitions to plan for; 500000"
    )
    parser.add_argument(
        "--notified", type=_size, default=CHANGE_COUNT, metavar="N", help="changes sent to brokers; 100000"
    )
    parser.add_argument(
        "--failover",
        type=_sizes,
        default=[6_000, 12_000],
        metavar="N,...",
        help="partitions on real brokers, one of which is killed, twice; 6000,12000",
    )
    parser.add_argument("--driver-memory", default="8g", metavar="SIZE", help="the driver JVM's heap; 8g")
    parser.add_argument(
        "--clusters", type=_positive, default=CLUSTERS, metavar="N", help="clusters of 10,000 partitions at once; 20"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="Markdown; into FILE, between its marks, if one is given",
    )
    return parser


def _sizes(text: str) -> list[int]:
    """Whole topics only, the smallest first."""
    sizes = sorted({int(size) for size in text.split(",")})
    if sizes[0] < TOPIC_SIZE or any(size % TOPIC_SIZE for size in sizes):
        raise argparse.ArgumentTypeError(f"sizes are multiples of {TOPIC_SIZE}, the partitions of a topic")
    return sizes


def _size(text: str) -> int:
    (size,) = _sizes(text)
    return size


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
