"""Snapshots at the same time: each id is one reading's, whole, and none that was acknowledged is lost."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from jobs.adapters.delta import locks
from jobs.adapters.delta.locks import VACUUM, locked
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.repositories.snapshots import as_of, newest_rows
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.snapshot import take_snapshot
from jobs.snapshots.vacuum import vacuum_warehouse
from jobs.snapshots.writer import SnapshotWriter
from schemas.rows import Snapshot
from schemas.znodes import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.shared_spark import way_to

pytestmark = pytest.mark.usefixtures("spark")

PARTITIONS = range(3)
ROUNDS, AT_ONCE = 3, 4
ON_A_WARM_SPARK = "from tests.shared_spark import join\nfrom jobs.entry import main\njoin()\nmain()"


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic("orders", {number: [0, 1] for number in PARTITIONS})
    return Surveyor(tree.hosts, tmp_path / "warehouse")


@contextmanager
def changing(hosts: str) -> Iterator[None]:
    """All states change together, again and again: a reading shows one epoch in all of them, or two neighbours."""
    over = threading.Event()

    def change(client: KazooClient) -> None:
        epoch = 5
        while not over.wait(0.02):
            epoch += 1
            multi = client.transaction()
            for number in PARTITIONS:
                state = State(controller_epoch=1, leader=epoch % 2, leader_epoch=epoch, isr=[0, 1])
                multi.set_data(state_path("orders", number), encode_state(state))
            multi.commit()

    with connected(ZooKeeperEndpoint(hosts)) as client:
        thread = threading.Thread(target=change, args=(client,))
        thread.start()
        yield
        over.set()
        thread.join()


def whole(warehouse: Warehouse) -> list[Snapshot]:
    """The rows of `snapshots`; the tables of each are those of one reading, in the order of the ids."""
    rows = sorted(warehouse.typed_rows(Snapshot), key=lambda row: row.snapshot_id)
    epochs = list[int]()
    for row in rows:
        snapshot_id = row.snapshot_id
        partitions = as_of(warehouse, row, "partitions")
        by_history = newest_rows(warehouse.read("partition_history", ("snapshot_id", "<=", snapshot_id))).to_pylist()
        key = ("partition", "leader_epoch", "leader", "snapshot_id")
        assert sorted([part[name] for name in key] for part in partitions) == sorted(
            [part[name] for name in key] for part in by_history
        )
        (written_by,) = {broker["snapshot_id"] for broker in as_of(warehouse, row, "brokers")}
        assert written_by <= snapshot_id  # brokers are written only if they changed
        leader_epochs = {part["leader_epoch"] for part in partitions}
        assert len(partitions) == row.partitions == len(PARTITIONS)
        assert max(leader_epochs) - min(leader_epochs) <= 1
        epochs.append(max(leader_epochs))
    assert epochs == sorted(epochs)
    return rows


def test_snapshots_in_one_process(surveyor: Surveyor) -> None:
    settings = Settings("default", str(surveyor.folder), ClusterConf(zookeeper=surveyor.hosts))
    with changing(surveyor.hosts), ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [pool.submit(take_snapshot, settings) for _ in range(ROUNDS * AT_ONCE)]
        ids = sorted(future.result()["snapshot_id"] for future in taken)

    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == ids == list(range(1, ROUNDS * AT_ONCE + 1))


def test_snapshots_of_several_processes_while_a_vacuum_runs(surveyor: Surveyor, spark: SparkSession) -> None:
    surveyor.json("snapshot")
    place = ["--json", "--zookeeper", surveyor.hosts, "--warehouse", str(surveyor.folder)]
    line = [sys.executable, "-c", ON_A_WARM_SPARK, "snapshot", *place]
    variables = os.environ | way_to(spark)
    with changing(surveyor.hosts):
        running = [
            subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
            for _ in range(3)
        ]
        while any(process.poll() is None for process in running):
            vacuum_warehouse(surveyor.warehouse, datetime.now(UTC), timedelta(days=1), dry_run=False)
            time.sleep(0.5)  # without a pause the lock would never be free
        said = [process.communicate(timeout=120) for process in running]

    assert [process.returncode for process in running] == [0, 0, 0], said
    assert sorted(json.loads(stdout)["snapshot_id"] for stdout, _ in said) == [2, 3, 4]
    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == [1, 2, 3, 4]


def test_an_id_that_another_process_takes_by_no_lock_is_not_overwritten(
    surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on an object store, where there are no locks: the reading is written again under the next id."""
    settings = Settings("default", str(surveyor.folder), ClusterConf(zookeeper=surveyor.hosts))
    write, others = SnapshotWriter.write, ["another process"]

    def overtaken(writer: SnapshotWriter) -> dict[str, int]:
        counts = write(writer)
        while others:
            others.pop()
            assert take_snapshot(settings)["snapshot_id"] == 1
        return counts

    monkeypatch.setattr(locks, "is_local", lambda _: False)
    monkeypatch.setattr(SnapshotWriter, "write", overtaken)

    assert take_snapshot(settings)["snapshot_id"] == 2

    assert "another process wrote snapshot 1 in the meantime" in capsys.readouterr().err
    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == [1, 2]


def test_a_vacuum_waits_for_a_snapshot_that_names_its_versions_last(surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    now, day = datetime.now(UTC), timedelta(days=1)
    with ThreadPoolExecutor() as pool:
        with locked(str(surveyor.folder), VACUUM, shared=True):
            vacuum = pool.submit(vacuum_warehouse, surveyor.warehouse, now, day, dry_run=False)
            assert vacuum_warehouse(surveyor.warehouse, now, day, dry_run=True)["oldest_snapshot"] == 1
            with pytest.raises(TimeoutError):
                vacuum.result(0.5)
        assert vacuum.result(60)["oldest_snapshot"] == 1
