"""A Spark that others run, for real: a Connect server without a JVM here, and a standalone cluster under spark-submit.

The cluster of the large tree has more partitions than the driver reads by itself, so executors read ZooKeeper. Plans
made there have the same ids as plans made in the tests' own session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.embedded.ports import LOOPBACK
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.adapters.spark.spark_settings import SMALL_CLUSTER_PARTITIONS
from jobs.core.errors import ExitCode
from schemas.rows import Row
from tests.jobs.support.commands.bare import bare, home
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.shown_commands import deployed, said_here, shown
from tests.jobs.support.outside.spark_servers import (
    QUICK_JVM,
    ConnectServer,
    as_options,
    begun_with,
    standalone,
)
from tests.jobs.support.warehouses.mini_dfs import MiniDfs
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.shared_spark import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TOPICS, PARTITIONS = 21, 500
SURVEYOR: Final = str(Path(sys.executable).parent / "surveyor")
assert TOPICS * PARTITIONS > SMALL_CLUSTER_PARTITIONS

SMALL: Final = QUICK | {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.memory": "600m",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
"""Small executors, none of which begins without the other, and a log of who did what."""


@pytest.fixture(scope="module")
def large(zookeeper_server: EmbeddedZooKeeper) -> Iterator[KafkaTree]:
    """Broker 1 is gone, so two partitions of three are due."""
    root = KazooClient(zookeeper_server.connect)
    root.start()
    root.ensure_path("/large")
    client = KazooClient(f"{zookeeper_server.connect}/large")
    client.start()
    tree = KafkaTree(f"{zookeeper_server.connect}/large", client)
    tree.lay_out((0, 2))
    tree.elect(0, epoch=7)
    for topic in range(TOPICS):
        tree.add_topic(f"t{topic}", {number: [number % 3, (number + 1) % 3] for number in range(PARTITIONS)})
    yield tree
    for folder in (client, root):
        folder.stop()
        folder.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


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
    return Surveyor(tree.hosts, warehouse).json("plan", "reconcile")


def test_on_a_connect_server(large: KafkaTree, server: ConnectServer, tmp_path: Path) -> None:
    """Executors read, many rows are planned for, and a snapshot of one change merges it."""
    options = ["--zookeeper", large.hosts, "--warehouse", "warehouse", "--remote", server.url]
    taken = _result([SURVEYOR, "snapshot", *options], tmp_path)
    planned = _result([SURVEYOR, "plan", "reconcile", *options], tmp_path)
    assert (taken["partitions"], planned["changes"]) == (10_500, 7_014)
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


def test_on_a_standalone_cluster(large: KafkaTree, distribution: Path, tmp_path: Path) -> None:
    """The lines of docs/deploy.md, but for where things are."""
    warehouse = tmp_path / "warehouse"
    planned = _on_a_standalone_cluster(large, distribution, tmp_path, str(warehouse), {})
    assert _locally_planned(large, warehouse)["plan_id"] == planned["plan_id"]


@pytest.mark.objects
def test_on_a_standalone_cluster_with_hdfs(
    large: KafkaTree, distribution: Path, tmp_path: Path, hdfs_folder: str
) -> None:
    """The warehouse is in no folder that the hosts share."""
    _on_a_standalone_cluster(large, distribution, tmp_path, hdfs_folder, {}, HADOOP_USER_NAME=MiniDfs.user)


@pytest.mark.objects
def test_on_a_standalone_cluster_with_s3(
    large: KafkaTree, distribution: Path, tmp_path: Path, object_store: str
) -> None:
    """As before, with the jars for S3, and the keys in the environment of driver and executors."""
    jars = {"jobs.adapters.java.jars delta": "jobs.adapters.java.jars s3"}
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    _on_a_standalone_cluster(large, distribution, tmp_path, object_store, jars, **keys)


def _on_a_standalone_cluster(
    tree: KafkaTree, distribution: Path, tmp_path: Path, warehouse: str, substitutions: dict[str, str], **variables: str
) -> Row:
    """Take a snapshot and plan by the lines of docs/deploy.md; both executors read, and at least one plans."""
    logs = tmp_path / "events"
    logs.mkdir()
    folder = deployed(tmp_path / "elsewhere", distribution)
    with standalone(tmp_path / "cluster") as master:
        substitutions |= {"spark://spark1:7077": master, "zk1:2181/kafka": tree.hosts, "/data/surveyor": warehouse}
        activate, python, *lines = (said_here(line, substitutions) for line in shown("docs/deploy.md", "spark-submit"))
        options = as_options(SMALL | {"spark.eventLog.dir": logs.as_uri()})
        snapshot, plan = (f"{activate}; {python}; {begun_with(line, *options)}" for line in lines[:2])
        user = home(tmp_path / "home")
        taken, planned = (bare(line, folder, user, **variables) for line in (f"{snapshot} --json", plan))
    assert (taken.returncode, planned.returncode) == (0, 0), taken.stderr + planned.stderr
    plan_made: Row = json.loads(planned.stdout)
    assert (json.loads(taken.stdout)["partitions"], plan_made["changes"]) == (10_500, 7_014)
    read, computed = _executors(logs)
    assert read == {"0", "1"} >= computed > set()
    return plan_made


def _executors(logs: Path) -> list[set[str]]:
    """Which executors of each application have done tasks, as its log says."""
    events = [[json.loads(line) for line in log.read_text().splitlines()] for log in sorted(logs.iterdir())]
    ended = [
        [event for event in of_application if event["Event"] == "SparkListenerTaskEnd"] for of_application in events
    ]
    return [{event["Task Info"]["Executor ID"] for event in of_application} for of_application in ended]
