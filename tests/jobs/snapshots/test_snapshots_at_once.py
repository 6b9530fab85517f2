"""Snapshots at the same time: each id is one reading's, whole, and none that was acknowledged is lost."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from kazoo.client import KazooClient

from jobs.adapters.delta import lock_files, spark_warehouse, warehouse_lease
from jobs.adapters.delta import warehouse as warehouse_module
from jobs.adapters.delta.lock_files import VACUUM, locked, write_locked
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import SnapshotLease
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core.errors import SnapshotLeaseLostError
from jobs.repositories.actor import this_process
from jobs.repositories.snapshots import STATE_TABLES, as_of, newest_rows
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots import snapshot
from jobs.snapshots.snapshot import TakenSnapshot, take_snapshot
from jobs.snapshots.vacuum import vacuum_warehouse
from jobs.snapshots.writer import SnapshotCounts, SnapshotWriter
from schemas.columns import TABLE_COLUMNS
from schemas.rows import Snapshot
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

PARTITIONS = range(3)
AT_ONCE = 4


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


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.repeat)])
def test_snapshots_in_one_process(surveyor: Surveyor, rounds: int) -> None:
    settings = Settings("default", str(surveyor.folder), ClusterConf(zookeeper=surveyor.hosts))
    with changing(surveyor.hosts), ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [pool.submit(take_snapshot, settings) for _ in range(rounds * AT_ONCE)]
        ids = sorted(future.result().row.snapshot_id for future in taken)

    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == ids == list(range(1, rounds * AT_ONCE + 1))


def test_snapshots_of_several_processes_while_a_vacuum_runs(surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    place = ["--json", "--zookeeper", surveyor.hosts, "--warehouse", str(surveyor.folder)]
    line = [sys.executable, "-m", "jobs.entry", "snapshot", *place]
    with changing(surveyor.hosts):
        running = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        while any(process.poll() is None for process in running):
            vacuum_warehouse(surveyor.warehouse, datetime.now(UTC), timedelta(days=1), dry_run=False)
            time.sleep(0.5)  # without a pause the lock would never be free
        said = [process.communicate(timeout=120) for process in running]

    assert [process.returncode for process in running] == [0, 0, 0], said
    assert sorted(json.loads(stdout)["snapshot_id"] for stdout, _ in said) == [2, 3, 4]
    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == [1, 2, 3, 4]


class Writing:
    """Writes snapshots, by a function that a test may replace."""

    def __init__(self) -> None:
        self.write: Callable[[SnapshotWriter], SnapshotCounts] = SnapshotWriter.write


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Writing:
    made = Writing()

    def write(writer: SnapshotWriter) -> SnapshotCounts:
        return made.write(writer)

    monkeypatch.setattr(SnapshotWriter, "write", write)
    return made


def test_an_id_taken_without_a_lock_is_not_overwritten(
    surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch, writing: Writing, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on an object store, where there are no locks: the reading is written again under the next id."""
    settings = Settings("default", str(surveyor.folder), ClusterConf(zookeeper=surveyor.hosts))
    write, others = writing.write, ["another process"]

    def overtaken(writer: SnapshotWriter) -> SnapshotCounts:
        counts = write(writer)
        while others:
            others.pop()
            assert take_snapshot(settings).row.snapshot_id == 1
        return counts

    monkeypatch.setattr(lock_files, "is_local", lambda _: False)
    writing.write = overtaken

    assert take_snapshot(settings).row.snapshot_id == 2

    assert "another process wrote snapshot 1 in the meantime" in capsys.readouterr().err
    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == [1, 2]


def change_state(hosts: str, number: int, epoch: int) -> None:
    state = State(controller_epoch=1, leader=1, leader_epoch=epoch, isr=[1])
    with connected(ZooKeeperEndpoint(hosts)) as client:
        client.set(state_path("orders", number), encode_state(state))


@pytest.fixture
def settings(surveyor: Surveyor) -> Settings:
    return Settings("default", str(surveyor.folder), ClusterConf(zookeeper=surveyor.hosts))


@pytest.fixture
def on_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warehouse is as one on an object store, where threads stand for processes: without any lock."""
    for module in (lock_files, warehouse_lease):
        monkeypatch.setattr(module, "is_local", lambda _: False)
    monkeypatch.setattr(spark_warehouse, "takes_spark_commits", lambda _: False)
    monkeypatch.setattr(snapshot, "locked", lambda *_, **__: nullcontext(enter_result=False))


@pytest.mark.usefixtures("on_a_store")
def test_a_second_snapshot_on_a_store_waits_for_the_first(
    surveyor: Surveyor, settings: Settings, writing: Writing, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would write rows of history under the same id, which the first one then replaces by its own."""
    write, second = writing.write, list[Future[TakenSnapshot]]()
    take_snapshot(settings)

    def overtaken(writer: SnapshotWriter) -> SnapshotCounts:
        if not second:
            change_state(surveyor.hosts, 1, epoch=6)
            second.append(pool.submit(take_snapshot, settings))
            said = ""
            while not second[0].done() and "waiting for another snapshot" not in said:
                said += capsys.readouterr().err
                time.sleep(0.02)
        return write(writer)

    writing.write = overtaken
    with ThreadPoolExecutor() as pool:
        first = take_snapshot(settings).row.snapshot_id
        ids = first, second[0].result().row.snapshot_id

    assert [row.snapshot_id for row in whole(surveyor.warehouse)] == [1, 2, 3]
    assert ids == (2, 3)


@pytest.mark.usefixtures("on_a_store")
@pytest.mark.parametrize("is_written", [False, True], ids=["before the first write", "before the row in snapshots"])
def test_a_snapshot_that_lost_its_lease_writes_nothing_more(
    surveyor: Surveyor, settings: Settings, writing: Writing, *, is_written: bool
) -> None:
    """It was stopped for a while, and another process has begun the next snapshot."""
    warehouse, write = surveyor.warehouse, writing.write
    take_snapshot(settings)
    change_state(surveyor.hosts, 1, epoch=6)
    versions = dict[str, int]()

    def stopped(writer: SnapshotWriter) -> SnapshotCounts:
        counts = write(writer) if is_written else None
        warehouse.delete("leases", "true")
        SnapshotLease(warehouse, this_process("snapshot"), print).acquire(0.0)
        versions.update({table: warehouse.version(table) for table in TABLE_COLUMNS})
        return counts or write(writer)

    writing.write = stopped
    with pytest.raises(SnapshotLeaseLostError, match="this snapshot was not completed"):
        take_snapshot(settings)

    assert {table: warehouse.version(table) for table in TABLE_COLUMNS} == versions
    assert len(warehouse.rows("snapshots")) == 1


@pytest.mark.usefixtures("on_a_store")
def test_a_snapshot_without_its_lease_repeats_no_write(
    surveyor: Surveyor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped after its last check, and another process has written history under the same id."""
    warehouse = surveyor.warehouse
    take_snapshot(settings)
    change_state(surveyor.hosts, 1, epoch=6)
    row = next(row for row in warehouse.rows("partition_history") if row["partition"] == 2)
    theirs = row | {"snapshot_id": 2, "leader_epoch": 7}
    stopped = list[str]()

    def stopping(delta: DeltaTable, rows: Any, **options: Any) -> None:  # noqa: ANN401 - deltalake's
        if delta.table_uri.rstrip("/").endswith("/partition_history") and not stopped:
            stopped.append("for a while")
            warehouse.delete("leases", "true")
            SnapshotLease(warehouse, this_process("snapshot"), print).acquire(0.0)
            warehouse.replace("partition_history", [theirs], "snapshot_id >= 2")
        write_deltalake(delta, rows, **options)

    monkeypatch.setattr(warehouse_module, "write_deltalake", stopping)
    with pytest.raises(SnapshotLeaseLostError, match="this snapshot was not completed"):
        take_snapshot(settings)

    assert stopped
    assert warehouse.rows("partition_history", ("snapshot_id", "=", 2)) == [theirs]
    assert len(warehouse.rows("snapshots")) == 1


@pytest.mark.usefixtures("on_a_store")
@pytest.mark.parametrize(
    "by_spark",
    [pytest.param(False, id="by deltalake"), pytest.param(True, id="by Spark, as on HDFS", marks=pytest.mark.jvm)],
)
def test_the_lease_is_checked_in_each_attempt_at_a_write(
    surveyor: Surveyor, settings: Settings, monkeypatch: pytest.MonkeyPatch, *, by_spark: bool
) -> None:
    steps, check = list[str](), SnapshotLease.refuse_lost
    settings.warehouse.ensure_tables()  # any process may add constraints, without the lease

    def checked(lease: SnapshotLease) -> None:
        steps.append("check")
        check(lease)

    def written(warehouse: str, table: str, write: Callable[[], Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is
        def attempt() -> Any:  # noqa: ANN401 - as it is
            steps.append(table)
            return write()

        return write_locked(warehouse, table, attempt, *arguments, **options)

    monkeypatch.setattr(SnapshotLease, "refuse_lost", checked)
    for module in (warehouse_module, spark_warehouse):
        monkeypatch.setattr(module, "write_locked", written)
    if by_spark:
        monkeypatch.setattr(spark_warehouse, "takes_spark_commits", lambda _: True)
        monkeypatch.setattr(spark_warehouse, "MAX_DRIVER_ROWS", 0)
    for epoch in range(6, 8):
        take_snapshot(settings)
        change_state(surveyor.hosts, 1, epoch)
    take_snapshot(settings)

    attempts = [(step, after) for step, after in pairwise(steps) if step not in {"check", "leases"}]
    assert {table for table, _ in attempts} >= {"brokers", "topics", "partitions", "partition_history", "snapshots"}
    assert {after for _, after in attempts} == {"check"}


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_snapshot_names_versions_with_its_own_rows(
    surveyor: Surveyor, settings: Settings, writing: Writing, *, is_changed: bool
) -> None:
    """Another process writes in between without any lock; what this one did not write is as in the last snapshot."""
    warehouse, write = surveyor.warehouse, writing.write
    take_snapshot(settings)
    if is_changed:
        change_state(surveyor.hosts, 1, epoch=6)

    def followed(writer: SnapshotWriter) -> SnapshotCounts:
        counts = write(writer)
        for table in STATE_TABLES:
            warehouse.delete(table, "true")
        return counts

    writing.write = followed
    take_snapshot(settings)

    first, second = whole(warehouse)
    assert len(as_of(warehouse, second, "topics")) == 1
    assert as_of(warehouse, second, "brokers") == as_of(warehouse, first, "brokers")
    assert as_of(warehouse, second, "broker_configs") == as_of(warehouse, first, "broker_configs")


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
