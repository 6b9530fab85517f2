"""The whole job on a warehouse in S3, HDFS, ADLS or GCS: commands as an operator runs them, each in its own JVM."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.columns import TABLE_COLUMNS
from tests.jobs.adapters.conftest import engines
from tests.jobs.support.outside.dashboard import dashboard
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TOPIC = "orders"


@dataclass(frozen=True)
class Commands:
    """`surveyor` with the cluster and the warehouse given."""

    hosts: str
    warehouse: str

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        where = ["--zookeeper", self.hosts, "--warehouse", self.warehouse]
        command = [sys.executable, "-m", "jobs.entry", *arguments, *where]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=own_environment())

    def json(self, *arguments: str) -> Any:  # noqa: ANN401
        ran = self.run(*arguments, "--json")
        assert ran.returncode == 0, ran.stderr + ran.stdout
        return json.loads(ran.stdout)


def own_environment() -> Mapping[str, str]:
    """The environment without what makes the tests' Spark quick."""
    return {name: value for name, value in os.environ.items() if name not in {"SPARK_REMOTE", "SPARK_CONF_DIR"}}


REPEATED = [pytest.param(store, marks=pytest.mark.repeat) for store in ("hdfs_folder", "azure_folder", "gcs_folder")]


@pytest.mark.spark
@pytest.mark.objects
@pytest.mark.first("S3: a snapshot, a plan, and the pages that show them")
@pytest.mark.parametrize("store", ["object_store", *REPEATED])
def test_the_whole_job(tree: KafkaTree, store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder: str = request.getfixturevalue(store)
    surveyor = Commands(tree.hosts, folder)
    tree.add_topic(TOPIC, {0: [0, 1], 1: [1, 2]})
    surveyor.json("snapshot")
    tree.unregister(0)
    plan = surveyor.json("plan", "reconcile", "--name", "repair")  # the second snapshot is in its JVM

    assert (plan["snapshot_id"], plan["changes"]) == (2, 1)
    assert [row["leader_after"] for row in surveyor.json("show", "plan", "repair")["rows"]] == [1]
    [found] = [finding["found"] for finding in surveyor.json("doctor")["findings"] if finding["check"] == "warehouse"]
    assert found == f"{folder} can be written, and no commit overwrites another"
    surveyor.json("vacuum", "--keep", "1h")
    reported = surveyor.run("report", "--out", str(tmp_path / "report.html"))  # by the views of DuckDB
    assert (reported.returncode, TOPIC in (tmp_path / "report.html").read_text()) == (0, True), reported.stderr
    assert f"'{folder}/plans'" in surveyor.run("catalog").stdout
    page = dashboard(folder, "default")
    assert [element.value for element in (*page.exception, *page.error)] == []
    assert any(element.value.startswith("snapshot 2 ") for element in page.text)
    used = {engine.partition("/")[0] for table in TABLE_COLUMNS for engine in engines(f"{folder}/{table}")}
    assert used == {"delta-rs"}
