"""Several processes write for several clusters at once: nothing acknowledged is lost, and no number is given twice.

`WAREHOUSE_ROUNDS=200` makes as many rounds, in which each process takes a snapshot, stores a plan and records a commit.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import as_of
from schemas.rows import Snapshot
from tests.jobs.support.warehouses.warehouse_writer import SHARED_PLAN

ROUNDS: Final = int(os.environ.get("WAREHOUSE_ROUNDS", "1"))
CLUSTERS: Final = ("a", "b")
WORKERS: Final = 2
"""Processes for each cluster."""

Lines = dict[str, list[dict[str, Any]]]


def written_at_once(folder: str) -> Lines:
    """Run the writers; return the lines of each cluster."""
    for cluster in CLUSTERS:
        warehouse = Warehouse(folder, cluster)
        warehouse.ensure_tables()
        warehouse.append("plans", [{"plan_id": SHARED_PLAN, "status": "planned", "changes": 1}])
    command = [sys.executable, "-m", "tests.jobs.support.warehouses.warehouse_writer", folder]
    running = [
        (cluster, subprocess.Popen([*command, cluster, f"{cluster}{worker}", str(ROUNDS)], stdout=PIPE, stderr=PIPE))
        for cluster in CLUSTERS
        for worker in range(WORKERS)
    ]
    lines: Lines = {cluster: [] for cluster in CLUSTERS}
    ended = [(cluster, process, *process.communicate(timeout=300 + 60 * ROUNDS)) for cluster, process in running]
    for cluster, process, stdout, stderr in ended:
        assert process.returncode == 0, stderr.decode()
        lines[cluster] += map(json.loads, stdout.splitlines())
    return lines


def check(folder: str, lines: Lines) -> None:
    for cluster in CLUSTERS:
        warehouse = Warehouse(folder, cluster)
        keys: dict[str, list[Any]] = {
            kind: [line["key"] for line in lines[cluster] if line["kind"] == kind and "key" in line]
            for kind in ("snapshot", "plan", "commit")
        }
        assert all(max(Counter(numbers).values()) == 1 for numbers in keys.values())
        snapshots = warehouse.typed_rows(Snapshot)
        stored = [row.snapshot_id for row in snapshots]
        assert len(stored) == len(set(stored))
        assert set(stored) >= set(keys["snapshot"])
        assert Counter(row["snapshot_id"] for row in warehouse.rows("events")) >= Counter(keys["snapshot"])
        assert {row["plan_id"] for row in warehouse.rows("plans")} >= {SHARED_PLAN, *keys["plan"]}
        assert {row["plan_id"] for row in warehouse.rows("changes")} >= set(keys["plan"])
        assert {row["attempt"] for row in warehouse.rows("commits")} >= set(keys["commit"])
        for snapshot in snapshots:
            brokers = as_of(warehouse, snapshot, "brokers")
            assert [row["snapshot_id"] for row in brokers] == [snapshot.snapshot_id]


def report(lines: Lines) -> None:
    every = [line for of_process in lines.values() for line in of_process]
    refused = Counter(f"{line['kind']}: {line['refused']}" for line in every if "refused" in line)
    print(f"{len(every)} writes, {sum(refused.values())} refused after retries: {dict(refused)}")  # noqa: T201 - with -s


def test_in_a_folder(tmp_path: Path) -> None:
    lines = written_at_once(str(tmp_path / "warehouse"))

    report(lines)
    assert not [line for of_process in lines.values() for line in of_process if "refused" in line]
    check(str(tmp_path / "warehouse"), lines)


STORES: Final = [pytest.param(store, marks=pytest.mark.repeat) for store in ("hdfs_folder", "azure_folder")]


@pytest.mark.objects
@pytest.mark.parametrize("store", ["object_store", *STORES])
def test_on_a_store(store: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(store)
    lines = written_at_once(folder)

    report(lines)
    check(folder, lines)
