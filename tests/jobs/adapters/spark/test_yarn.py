"""Cluster mode on a real YARN, with an HDFS for what is submitted and a warehouse on S3; no folder is shared.

    HADOOP=1 .venv/bin/pytest -m torture tests/jobs/adapters/spark/test_yarn.py

The commands are those of docs/deploy.md, with the packed environment of `make dist`. The cluster has more partitions
than a driver reads by itself, so executors read ZooKeeper.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from jobs.core.errors import ExitCode
from tests.airflow.inside_airflow import InsideAirflow
from tests.jobs.adapters.conftest import warehouse_at
from tests.jobs.adapters.spark.conftest import DUE
from tests.jobs.conftest import DISK
from tests.jobs.support.commands.documented_commands import said_here, shown
from tests.jobs.support.commands.user_shell import bare, home
from tests.jobs.support.outside.spark_servers import HOME, as_options, begun_with
from tests.jobs.support.outside.yarn import Yarn
from tests.jobs.support.warehouses.mini_dfs import MiniDfs
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.spark_settings import QUICK, QUICK_JVM

pytestmark = [
    pytest.mark.torture,
    pytest.mark.objects,
    pytest.mark.spark,
    pytest.mark.skipif("HADOOP" not in os.environ, reason="set HADOOP=1: an application on YARN takes a minute"),
]

KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""What the machines of the cluster have; all other variables come with the application."""

ON_YARN: Final = {"conn_type": "spark", "host": "yarn", "extra": json.dumps({"deploy-mode": "cluster"})}

SMALL: Final = QUICK | {
    "spark.yarn.jars": f"local:{HOME}/jars/*",  # else 460 MB are uploaded each time
    "spark.executor.instances": "1",
    "spark.executor.memory": "600m",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
"""One small executor, and JVMs that start quickly."""


@dataclass(frozen=True)
class Submission:
    """What docs/deploy.md shows, but for where things are."""

    folder: Path
    user: Path
    yarn: Yarn
    warehouse: str
    before: list[str]
    snapshot: str
    plan: str
    show: str

    def submit(self, line: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.run(begun_with(line, *as_options(SMALL | settings)))

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        hadoop = {"HADOOP_CONF_DIR": str(self.yarn.conf), "HADOOP_USER_NAME": MiniDfs.user}
        return bare("; ".join([*self.before, line]), self.folder, self.user, **keys, **hadoop)


@pytest.fixture(scope="module")
def yarn(hdfs_server: MiniDfs, s3_address: str) -> Iterator[Yarn]:
    """Its machines have the keys of S3."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="surveyor-yarn-", dir=DISK)))
        with pytest.MonkeyPatch.context() as patch:
            warehouse_at(s3_address, patch, "yarn")
            server = running.enter_context(Yarn(folder, hdfs_server.url, KEYS))
        yield server


PREFIXES: Final = ("spark.yarn.appMasterEnv", "spark.executorEnv")


def sent_with(prefix: str) -> dict[str, str]:
    """Spark's settings that give a process what it must know of S3."""
    return {f"{prefix}.{name}": os.environ[name] for name in ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")}


@pytest.fixture
def submission(large: KafkaTree, yarn: Yarn, object_store: str, checkout: Path, tmp_path: Path) -> Submission:
    names = ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")
    sent = {
        f"--conf {prefix}.AWS_REGION=eu-central-1": " ".join(
            f"--conf {prefix}.{name}={os.environ[name]}" for name in names
        )
        for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv")
    }
    places = {"zk1:2181/kafka": large.hosts, "s3://bucket/surveyor": object_store, **sent}
    activate, *_ = shown("docs/deploy.md", "spark-submit")
    lines = [said_here(line, places) for line in shown("docs/deploy.md", "YARN and Kubernetes")]
    snapshot, plan, show = lines
    return Submission(checkout, home(tmp_path / "home"), yarn, object_store, [activate], snapshot, plan, show)


def test_snapshot_plan_and_show(submission: Submission) -> None:
    """The lines of docs/deploy.md, each of which sends the packed environment."""
    for line in (submission.snapshot, submission.plan):
        done = submission.submit(line)
        assert done.returncode == 0, done.stderr + submission.yarn.output()
    planned = submission.run(f"{submission.show} --json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["changes"] == DUE


@pytest.fixture
def variables(submission: Submission, hdfs_server: MiniDfs, tmp_path: Path) -> dict[str, str]:
    """Those of Airflow's worker; the environment is on HDFS already, and a file is sent along."""
    archive = hdfs_server.put(submission.folder / "dist" / "surveyor-environment.tar.gz")
    (tmp_path / "zookeeper.properties").write_text("security.protocol=PLAINTEXT\n")
    settings = SMALL | sent_with(PREFIXES[0]) | sent_with(PREFIXES[1])
    settings |= {
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.dist.archives": f"{archive}#environment",
        "spark.yarn.dist.files": str(tmp_path / "zookeeper.properties"),
        "spark.pyspark.python": "./environment/bin/python",
        "spark.yarn.appMasterEnv.SURVEYOR_ZOOKEEPER_CONFIG": "zookeeper.properties",
    }
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return keys | {
        "AIRFLOW_CONN_SURVEYOR_SPARK": json.dumps(ON_YARN),
        "HADOOP_CONF_DIR": str(submission.yarn.conf),
        "HADOOP_USER_NAME": MiniDfs.user,
        "SPARK_CONF_DIR": str(conf),
        "SURVEYOR_WAREHOUSE": submission.warehouse,
        "SURVEYOR_STABLE_FOR": "1",
    }


@pytest.fixture
def airflow(large: KafkaTree, tmp_path: Path) -> Iterator[InsideAirflow]:
    (tmp_path / "airflow").mkdir()
    with InsideAirflow(tmp_path / "airflow", large.hosts, tmp_path, "") as inside:
        yield inside


def test_airflow_takes_results_from_the_tables(
    airflow: InsideAirflow, submission: Submission, variables: dict[str, str]
) -> None:
    """Executors find the file that was sent along."""
    done = airflow.run("leader_balance", submitted=True, variables=variables)
    assert done.state == "success", airflow.log.read_text()[-5000:] + submission.yarn.output()
    assert done.results["snapshot"] == {"snapshot_id": 1}
    assert (done.results["plan"]["snapshot_id"], done.results["plan"]["changes"]) == (1, 0)
    assert done.states["commit"] == "skipped"


def test_airflow_takes_the_exit_code_from_spark_submit(airflow: InsideAirflow, variables: dict[str, str]) -> None:
    """The driver reaches no ZooKeeper."""
    refused = airflow.run("snapshot", submitted=True, variables=variables | {"SURVEYOR_ZOOKEEPER": "127.0.0.1:1"})
    assert refused.states["snapshot"] == "failed"
    assert f"exit code {ExitCode.UNREADABLE}: see the driver's log on the cluster" in airflow.log.read_text()
