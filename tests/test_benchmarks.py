"""Each benchmark that starts no real brokers runs to its end on a small cluster; what it measures is not judged."""

import pytest
from pyspark.sql import SparkSession

from bench.clusters.synthetic import cluster
from bench.figures import Driver, Figure
from bench.kraft import bench_kraft
from bench.kraft_commit import commit_seconds
from bench.load_rollup import compare
from bench.load_show import bench_load_show
from bench.notification import bench_notification
from bench.parts import bench_planning, bench_writing
from bench.report import Report
from bench.sampling import bench_sampling
from bench.snapshots import SnapshotBench
from bench.ten_million import Comparison, Run
from jobs.runtime.pace import DEFAULT
from tests.jobs.support.kafka.paged_brokers import LISTED, NOT_PAGED

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


def test_rows_of_the_large_benchmarks() -> None:
    """A command for all clusters is compared per cluster; the processor time has the target."""
    compared = Comparison("surveyor report --all, for each", 10, Run(20.0, 30.0, 1.0), Run(4.0, 2.0, 1.0))
    report = Report({"cores": 2}, compared.figures(1.0), [])

    rows = [(figure.seconds, figure.ratio, figure.target, figure.met) for figure in report.figures]
    assert rows == [(2.0, 0.5, None, None), (3.0, 1.5, 1.0, False)]
    assert report.missed == ["surveyor report --all, for each, processor time"]


@pytest.mark.repeat
def test_planning(spark: SparkSession) -> None:
    plan, imbalance = bench_planning(spark, 2_000, 1)
    assert plan.measured == "plan one dead broker of 100, stored, 2,000 partitions"
    assert imbalance.measured == "imbalance, 2,000 partitions"
    assert plan.ratio > 0 < imbalance.ratio


@pytest.mark.repeat
def test_snapshots_and_writing(spark: SparkSession) -> None:
    with cluster(1_000) as small:
        samples = SnapshotBench(spark, Driver(spark), small).rounds(1)
        writing = bench_writing(small)
    assert [sample.figure.measured.split(",")[0] for sample in samples] == [
        "bare read: read and decode 1",
        "first snapshot",
        "unchanged snapshot",
        "snapshot",
    ]
    assert [sample.cost.partitions for sample in samples if sample.cost] == [1_000] * 3
    assert writing.measured == "write 1,000 states, 1,000 in a fenced multi"


@pytest.mark.repeat
@pytest.mark.parametrize("newest", [LISTED, NOT_PAGED])
def test_simulated_kraft_brokers(spark: SparkSession, newest: str) -> None:
    """Of more partitions than the driver reads alone."""
    with cluster(DEFAULT.small_cluster + 100) as synthetic:
        figure = bench_kraft(spark, synthetic, 1, newest)
    assert figure.measured.endswith(" 10,100 partitions")
    assert (figure.baseline, figure.target) == ("first snapshot from ZooKeeper", None)
    assert figure.ratio > 0


@pytest.mark.repeat
@pytest.mark.usefixtures("spark")
def test_a_sample_of_simulated_brokers() -> None:
    sample = bench_sampling(2_000, 1)
    assert (sample.figure.measured, sample.figure.target) == ("sample of 100 simulated brokers, 2,000 partitions", None)
    assert sample.cost is not None
    assert sample.cost.bytes_added > 0


@pytest.mark.repeat
@pytest.mark.usefixtures("spark")
def test_loads_are_shown() -> None:
    figures = {figure.measured: figure.ratio for figure in bench_load_show(2_000, 1)}
    assert [*figures] == [f"show load --by {by}, 2,000 partitions" for by in ("broker", "topic", "partition")]
    assert min(figures.values()) > 0


@pytest.mark.repeat
@pytest.mark.usefixtures("spark")
def test_a_commit_to_simulated_kraft_brokers() -> None:
    """Two requests, of which the second is sent while the moves of the first run; all are applied."""
    assert commit_seconds(2_000, topic_size=200) > 0


def test_notification() -> None:
    figure = bench_notification(100)
    assert figure.measured == "hold the controllership: 100 changes written, 30 brokers notified"


def test_a_report_names_what_could_not_be_measured() -> None:
    report = Report({"cores": 2}, [Figure("reading", 1.0, "scan", 2.0, 0.6)], [], ["planning"])
    assert report.missed == ["planning (not measured)"]
    assert report.verdict == "TARGETS MISSED: 1\nplanning (not measured)"


@pytest.mark.repeat
@pytest.mark.usefixtures("spark")
def test_a_rollup_against_a_bare_scan() -> None:
    """The records of all hours are checked against the samples."""
    figure = compare(4_000, partitions=200)
    assert (figure.measured, figure.baseline) == (
        "load rollup of 4,000 rows of samples, auto",
        "bare scan of the same",
    )
