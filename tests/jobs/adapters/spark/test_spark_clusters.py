"""A Spark that others run, for real: a Connect server without a JVM here, and a standalone cluster under spark-submit.

The cluster of the large tree has more partitions than the driver reads by itself, so executors read ZooKeeper. Plans
made there have the same ids as plans made in the tests' own session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.core.addresses import LOOPBACK
from jobs.core.errors import ExitCode
from schemas.rows import Row
from tests.jobs.adapters.conftest import warehouse_at
from tests.jobs.adapters.spark.conftest import DUE, PARTITIONS, TOPICS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.documented_commands import deployed, said_here, shown
from tests.jobs.support.commands.user_shell import bare, home
from tests.jobs.support.outside.spark_servers import ConnectServer, as_options, begun_with, standalone
from tests.jobs.support.warehouses import azurite
from tests.jobs.support.warehouses.mini_dfs import MiniDfs
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.spark_settings import QUICK, QUICK_JVM

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SURVEYOR: Final = str(Path(sys.executable).parent / "surveyor")

SMALL: Final = QUICK | {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.memory": "600m",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
"""Small executors, none of which begins without the other, and a log of the work of each."""

OTHER_STORES: Final = [("azure_folder", "azure"), ("gcs_folder", "gcs")]
"""ADLS and GCS: the fixture of a folder, and the jars."""

OF_STORES: Final = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "HADOOP_")


@pytest.fixture(scope="module")
def server(s3_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server with the jars and the keys of S3, and the user of HDFS."""
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            warehouse_at(s3_address, patch, "connect")
            patch.setenv("HADOOP_USER_NAME", MiniDfs.user)
            server = running.enter_context(ConnectServer(tmp_path_factory.mktemp("connect"), jars="s3"))
        yield server


def _run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of the tests' Spark; that there is no Java is for `variables` to change."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    given = kept | {"JAVA_HOME": "/nonexistent"} | variables
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=300)


def _result(command: list[str], folder: Path, **variables: str) -> Any:  # noqa: ANN401 - whatever the command said
    done = _run([*command, "--json"], folder, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _locally_planned(tree: KafkaTree, warehouse: Path) -> Any:  # noqa: ANN401 - as above
    return Surveyor(tree.hosts, warehouse, plans_on_stored=True).json("plan", "reconcile")


def test_on_a_connect_server(large: KafkaTree, server: ConnectServer, tmp_path: Path) -> None:
    """Executors read, many rows are planned for, and a snapshot of one change merges it."""
    options = ["--zookeeper", large.hosts, "--warehouse", "warehouse", "--remote", server.url]
    taken = _result([SURVEYOR, "snapshot", *options], tmp_path)
    planned = _result([SURVEYOR, "plan", "reconcile", "--no-refresh", *options], tmp_path)
    assert (taken["partitions"], planned["changes"]) == (TOPICS * PARTITIONS, DUE)
    assert _locally_planned(large, tmp_path / "warehouse")["plan_id"] == planned["plan_id"]
    large.touch(state_path("t3", 3))
    again = _result([SURVEYOR, "snapshot", *options], tmp_path)
    written = Surveyor(large.hosts, tmp_path / "warehouse").rows("partitions", "snapshot_id", "topic", "partition")
    assert again["partitions"] == len(written) == 10_500
    assert [row for row in written if row[0] == 2] == [(2, "t3", 3)]


def test_a_tiny_cluster_on_a_connect_server(tree: KafkaTree, server: ConnectServer, tmp_path: Path) -> None:
    """Snapshot and plan in one process, the server named by the environment; then the cost of losses."""
    tree.add_topic("orders", {number: [0, 1, 2] for number in range(6)})
    tree.unregister(0)
    options = ["--zookeeper", tree.hosts, "--warehouse", str(tmp_path / "warehouse")]
    cycle = _result([SURVEYOR, "reconcile", *options], tmp_path, SPARK_REMOTE=f"{server.url}/;user_id=me")
    losses = _result([SURVEYOR, "whatif", "--lose", "brokers=1", *options, "--remote", server.url], tmp_path)
    assert cycle["due"] == 6
    assert losses["scenarios"] == 2
    assert _locally_planned(tree, tmp_path / "warehouse")["plan_id"] == cycle["plan_id"]


@pytest.mark.repeat
@pytest.mark.objects
def test_on_a_connect_server_with_a_store(
    tree: KafkaTree, server: ConnectServer, object_store: str, tmp_path: Path
) -> None:
    """The client tells the server which endpoint S3 has."""
    tree.add_topic("orders", {number: [0, 1, 2] for number in range(6)})
    tree.unregister(0)
    options = ["--warehouse", object_store, "--remote", server.url]
    cycle = _result([SURVEYOR, "reconcile", "--zookeeper", tree.hosts, *options], tmp_path, **of_stores())
    losses = _result([SURVEYOR, "whatif", "--lose", "brokers=1", *options], tmp_path, **of_stores())
    assert cycle["due"] == 6
    assert losses["scenarios"] == 2


def of_stores() -> dict[str, str]:
    """The variables that tell where a store is, and give its keys."""
    return {name: value for name, value in os.environ.items() if name.startswith(OF_STORES)}


def test_what_the_server_does_not_see_is_said(tree: KafkaTree, server: ConnectServer, tmp_path: Path) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]})
    Surveyor(tree.hosts, tmp_path / "warehouse").json("snapshot")
    for file in (tmp_path / "warehouse" / "partitions").glob("*/*.parquet"):
        file.unlink()
    options = ["--warehouse", str(tmp_path / "warehouse"), "--remote", server.url]
    done = _run([SURVEYOR, "plan", "reconcile", *options], tmp_path)
    assert done.returncode == ExitCode.ERROR
    assert "the warehouse must be a folder that this machine, Spark's driver and its executors share" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def master(s3_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster of two hosts, of which the executors have the keys of S3 and ADLS and the user of HDFS."""
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            warehouse_at(s3_address, patch, "executors")
            patch.setenv("HADOOP_USER_NAME", MiniDfs.user)
            patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.KEY)
            url = running.enter_context(standalone(tmp_path_factory.mktemp("standalone")))
        yield url


@dataclass(frozen=True, slots=True)
class Submission:
    """The lines of docs/deploy.md on the standalone cluster, but for where things are."""

    tree: KafkaTree
    folder: Path
    user: Path
    logs: Path
    before: list[str]
    lines: list[str]

    def run(self, line: str, **variables: str) -> Row:
        """Run a line, which prints one JSON object."""
        options = as_options(SMALL | {"spark.eventLog.dir": self.logs.as_uri()})
        command = "; ".join([*self.before, begun_with(line, *options)])
        done = bare(command, self.folder, self.user, **variables)
        assert done.returncode == 0, done.stderr
        result: Row = json.loads(done.stdout)
        return result

    def plan_at_once(self, **variables: str) -> None:
        """Take a snapshot and plan on it in one application: executors read ZooKeeper, and the tables."""
        refreshed = f"{self.lines[1]} --zookeeper {self.tree.hosts}"
        assert self.run(refreshed, **variables)["changes"] == DUE
        assert self.executors() == [{"0", "1"}]

    def executors(self) -> list[set[str]]:
        """Which executors of each application have done tasks, as its log says."""
        logs = ([json.loads(line) for line in log.read_text().splitlines()] for log in sorted(self.logs.iterdir()))
        return [
            {event["Task Info"]["Executor ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"}
            for events in logs
        ]


Submit = Callable[..., Submission]


@pytest.fixture
def submit(large: KafkaTree, master: str, distribution: Path, tmp_path: Path) -> Submit:
    """Make a submission with a warehouse, and the jars that it needs."""

    def made(warehouse: str, jars: str = "delta") -> Submission:
        places = {"spark://spark1:7077": master, "zk1:2181/kafka": large.hosts, "/data/surveyor": warehouse}
        places |= {"jobs.adapters.java.jars delta": f"jobs.adapters.java.jars {jars}"}
        activate, python, *lines = (said_here(line, places) for line in shown("docs/deploy.md", "spark-submit"))
        (tmp_path / "events").mkdir()
        folder, user = deployed(tmp_path / "elsewhere", distribution), home(tmp_path / "home")
        return Submission(large, folder, user, tmp_path / "events", [activate, python], lines)

    return made


@pytest.mark.repeat
def test_on_a_standalone_cluster(large: KafkaTree, submit: Submit, tmp_path: Path) -> None:
    """Both executors read ZooKeeper for the snapshot, and at least one plans."""
    warehouse = tmp_path / "warehouse"
    submission = submit(str(warehouse))
    snapshot, plan, *_ = submission.lines
    taken, planned = submission.run(f"{snapshot} --json"), submission.run(plan)
    assert (taken["partitions"], planned["changes"]) == (TOPICS * PARTITIONS, DUE)
    read, computed = submission.executors()
    assert read == {"0", "1"} >= computed > set()
    assert _locally_planned(large, warehouse)["plan_id"] == planned["plan_id"]


@pytest.mark.repeat
@pytest.mark.objects
def test_on_a_standalone_cluster_with_hdfs(submit: Submit, hdfs_folder: str) -> None:
    """The warehouse is in no folder that the hosts share."""
    submit(hdfs_folder).plan_at_once(HADOOP_USER_NAME=MiniDfs.user)


@pytest.mark.objects
def test_on_a_standalone_cluster_with_s3(submit: Submit, object_store: str) -> None:
    """As before, with the jars for S3, and the keys in the environment of driver and executors."""
    submit(object_store, jars="s3").plan_at_once(**of_stores())


@pytest.mark.repeat
@pytest.mark.objects
@pytest.mark.parametrize(("store", "jars"), OTHER_STORES)
def test_on_a_standalone_cluster_with_another_store(
    submit: Submit, store: str, jars: str, request: pytest.FixtureRequest
) -> None:
    """Executors read the file with the key of GCS under the path that it has here."""
    submit(request.getfixturevalue(store), jars=jars).plan_at_once(**of_stores())
