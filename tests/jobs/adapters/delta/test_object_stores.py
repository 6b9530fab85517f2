"""Warehouses on S3, HDFS, ADLS and GCS: every operation, and that no commit that was acknowledged is lost."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import boto3
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import PermissionDeniedError
from pyspark.sql import SparkSession

from jobs.adapters.delta import store_check
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.store_check import require_conditional_writes
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.table_schemas import checks_of, create_all
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import disk_error_message, takes_spark_commits
from jobs.adapters.embedded.ports import free_port
from jobs.core.errors import SurveyorError, UnreadableError
from jobs.repositories.foreign_changes import foreign_changes
from schemas.columns import CHECKS, TABLE_COLUMNS
from schemas.rows import Row
from tests.jobs.adapters.conftest import BUCKET, engines
from tests.jobs.support.warehouses.gcs_stand_in import GcsServer
from tests.jobs.support.warehouses.mini_dfs import MiniDfs

WRITERS, ROUNDS = 4, 5

pytestmark = pytest.mark.objects

in_every_store = pytest.mark.parametrize(
    "warehouse", ["object_store", "hdfs_folder", "azure_folder", "gcs_folder"], indirect=True
)
"""Also on ADLS and GCS, which Spark reads in test_whole_job_on_stores.py."""


@pytest.fixture(params=["object_store", "hdfs_folder"])
def warehouse(request: pytest.FixtureRequest) -> Warehouse:
    warehouse = Warehouse(request.getfixturevalue(request.param), "default")
    warehouse.ensure_tables()
    return warehouse


def event(subject: str, snapshot_id: int = 1) -> Row:
    return {"snapshot_id": snapshot_id, "kind": "broker", "subject": subject, "before": None, "after": "1"}


def partition(number: int, snapshot_id: int = 1, **columns: Any) -> Row:  # noqa: ANN401
    lists = {"replicas": [1], "adding_replicas": [], "removing_replicas": [], "isr": [1]}
    return {"snapshot_id": snapshot_id, "topic": "t", "partition": number, "leader": 1, **lists} | columns


def subjects(warehouse: Warehouse) -> list[str]:
    return sorted(row["subject"] for row in warehouse.rows("events"))


def assert_committed_once(warehouse: Warehouse, table: str) -> None:
    """On S3 deltalake alone commits; on HDFS Spark may, too, because no commit replaces another there."""
    spark = {"Apache-Spark/4.2.0 Delta-Lake/4.4.0"} if takes_spark_commits(warehouse.uri) else set()
    assert engines(warehouse.path(table)) == {"delta-rs"} | spark


@pytest.mark.parametrize("store", ["object_store", "hdfs_folder"])
def test_a_new_warehouse_is_created_by_several_processes(store: str, request: pytest.FixtureRequest) -> None:
    """They also add constraints, each in a commit that changes the protocol and may conflict."""
    warehouses = [
        Warehouse(f"{request.getfixturevalue(store)}/new", name) for name in ("east", "west", "north", "south")
    ]

    with ThreadPoolExecutor(len(warehouses)) as pool:
        list(pool.map(Warehouse.ensure_tables, warehouses))

    constrained = {name: checks_of(DeltaTable(warehouses[0].path(name))) for name in CHECKS}
    assert constrained == {name: set(checks) for name, checks in CHECKS.items()}
    for number, warehouse in enumerate(warehouses):
        warehouse.append("events", [event(str(number))])
    assert [subjects(warehouse) for warehouse in warehouses] == [["0"], ["1"], ["2"], ["3"]]


def test_a_table_without_its_constraints_gets_them(tmp_path: Path) -> None:
    """As a process leaves it that is killed between the creation of a table and that of its constraints."""
    warehouse = Warehouse(str(tmp_path), "default")
    with ThreadPoolExecutor() as pool:
        create_all(pool, [warehouse.path("partitions")])

    warehouse.ensure_tables()

    assert checks_of(DeltaTable(warehouse.path("partitions"))) == set(CHECKS["partitions"])


@in_every_store
def test_every_operation(warehouse: Warehouse) -> None:
    warehouse.ensure_tables()  # what is there is kept
    warehouse.append("events", [event("a"), event("b"), event("c", 2)])
    warehouse.delete("events", "subject = 'b'")
    assert subjects(warehouse) == ["a", "c"]
    warehouse.replace("events", [event("d")], "snapshot_id = 1")
    assert warehouse.insert("events", event("e"), ("subject", "=", "e")) is None
    assert warehouse.insert("events", event("e"), ("subject", "=", "e")) is not None
    warehouse.update("events", "subject = 'c'", after="'9'")
    warehouse.compact("events")

    assert subjects(warehouse) == ["c", "d", "e"]
    assert warehouse.rows("events", ("subject", "=", "c"))[0]["after"] == "9"
    assert warehouse.clusters() == []
    assert all(warehouse.has(table) for table in TABLE_COLUMNS)


@in_every_store
def test_files_and_log_are_removed_once_no_version_needs_them(warehouse: Warehouse) -> None:
    for number in range(25):
        warehouse.replace("events", [event(str(number))])
    files = TableFiles(warehouse.path("events"))
    assert len(files.data()) == 25

    assert files.remove_unneeded({warehouse.version("events")}, grace_hours=0) == 24
    assert files.clean_log({warehouse.version("events")}) > 0
    assert subjects(warehouse) == ["24"]


@pytest.mark.parametrize("at_once", [2, 200_000], ids=["in parts", "at once"])
def test_what_spark_computes_is_committed_by_deltalake(spark: SparkSession, warehouse: Warehouse, at_once: int) -> None:
    tables = SparkWarehouse(spark, warehouse, driver_rows=at_once)
    tables.replace("partitions", tables.frame("partitions", [partition(number) for number in range(7)]))
    assert [row["partition"] for row in rows_of(warehouse)] == [*range(7)]

    changed = [partition(3, 2, leader=2) | {"vanished": False}, partition(4) | {"vanished": True}, partition(9)]
    tables.merge("partitions", with_vanished(tables, changed), ["topic", "partition"], "vanished")
    assert [row["partition"] for row in rows_of(warehouse)] == [0, 1, 2, 3, 5, 6, 9]
    assert [row["leader"] for row in rows_of(warehouse) if row["partition"] == 3] == [2]

    tables.replace("partitions", tables.frame("partitions", []), "partition > 1")
    assert [row["partition"] for row in rows_of(warehouse)] == [0, 1]
    assert_committed_once(warehouse, "partitions")


def rows_of(warehouse: Warehouse) -> list[Row]:
    return sorted(warehouse.rows("partitions"), key=lambda row: row["partition"])


def with_vanished(tables: SparkWarehouse, rows: Iterable[Row]) -> Any:  # noqa: ANN401
    return tables.frame("partitions", [{"vanished": False} | row for row in rows])


def test_no_acknowledged_commit_is_lost(spark: SparkSession, warehouse: Warehouse) -> None:
    """Threads append, replace and insert, and Spark replaces; each row that was acknowledged is there in the end."""
    tables = SparkWarehouse(spark, warehouse)

    def write(writer: int) -> list[str]:
        acknowledged = []
        for number in range(ROUNDS):
            name = f"{writer}-{number}"
            if writer == 0:
                tables.replace("events", tables.frame("events", [event(name)]), f"subject = '{name}'")
            elif number % 2:
                warehouse.append("events", [event(name)])
            else:
                warehouse.replace("events", [event(name)], f"subject = '{name}'")
            acknowledged.append(name)
        return acknowledged

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = sorted(name for names in pool.map(write, range(WRITERS)) for name in names)

    assert subjects(warehouse) == acknowledged
    assert_committed_once(warehouse, "events")


@in_every_store
def test_of_two_that_insert_the_same_one_wins(warehouse: Warehouse) -> None:
    """As two snapshots that take the same number."""
    row = {"snapshot_id": 7, "taken_at": datetime.now(UTC)}
    with ThreadPoolExecutor(WRITERS) as pool:
        found = [*pool.map(lambda _: warehouse.insert("snapshots", row, ("snapshot_id", "=", 7)), range(WRITERS))]

    assert found.count(None) == 1
    assert len(warehouse.rows("snapshots")) == 1


def test_a_store_with_conditional_writes_passes(object_store: str) -> None:
    require_conditional_writes(object_store)
    require_conditional_writes(object_store)

    prefix = object_store.partition(f"{BUCKET}/")[2]
    assert boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)["KeyCount"] == 0


@pytest.mark.parametrize("store", ["azure_folder", "gcs_folder"])
def test_adls_and_gcs_pass(store: str, request: pytest.FixtureRequest) -> None:
    folder: str = request.getfixturevalue(store)
    require_conditional_writes(folder)
    require_conditional_writes(folder)


def test_each_commit_on_gcs_is_put_on_the_condition_that_there_is_none(gcs_server: GcsServer, gcs_folder: str) -> None:
    warehouse = Warehouse(gcs_folder, "default")
    warehouse.ensure_tables()
    warehouse.append("events", [event("a")])
    commits = {path: condition for path, condition in gcs_server.conditions.items() if path.endswith(".json")}
    assert set(commits.values()) == {"0"}


def test_a_store_that_ignores_conditions_is_refused(careless_store: str) -> None:
    with pytest.raises(SurveyorError, match="ignores conditional writes"):
        require_conditional_writes(careless_store)


@pytest.mark.parametrize(
    ("denied", "named"),
    [(["put"], "write"), (["list_with_delimiter"], "list"), (["get", "delete"], "read, delete")],
    ids=["write", "list", "read and delete"],
)
def test_permissions_that_are_missing_are_named(
    object_store: str, monkeypatch: pytest.MonkeyPatch, denied: list[str], named: str
) -> None:
    def deny(*_: object, **__: object) -> NoReturn:
        raise PermissionDeniedError("Client error with status 403 Forbidden: <Code>AccessDenied</Code>")

    for function in denied:
        monkeypatch.setattr(store_check, function, deny)
    with pytest.raises(SurveyorError, match=f"cannot be written: access is denied: .* there; refused: {named}$"):
        require_conditional_writes(object_store)


def test_hdfs_that_can_be_written_passes(hdfs_server: MiniDfs, hdfs_folder: str) -> None:
    warehouse = Warehouse(hdfs_folder, "default")
    warehouse.ensure_tables()
    require_conditional_writes(hdfs_folder)
    require_conditional_writes(hdfs_folder)

    assert set(hdfs_server.children(hdfs_folder)) == set(TABLE_COLUMNS)


def test_hdfs_refuses_a_user_without_permission(hdfs_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "guest")
    with pytest.raises(SurveyorError, match="cannot be written: access is denied"):
        require_conditional_writes(hdfs_folder)
    with pytest.raises(OSError, match="Permission denied") as refused:
        Warehouse(hdfs_folder, "default").ensure_tables()
    assert (disk_error_message(refused.value) or "").startswith("the store of the warehouse: access is denied")


def test_hdfs_in_safe_mode_can_be_read(hdfs_server: MiniDfs, hdfs_folder: str) -> None:
    warehouse = Warehouse(hdfs_folder, "default")
    warehouse.ensure_tables()
    warehouse.append("events", [event("a")])
    with hdfs_server.safe_mode():
        assert subjects(warehouse) == ["a"]
        with pytest.raises(SurveyorError, match="cannot be written: HDFS is in safe mode"):
            require_conditional_writes(hdfs_folder)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"hdfs://127.0.0.1:{free_port()}/surveyor", "no server answers at its address"),
        ("hdfs://no-such-host.invalid:8020/surveyor", "its host is not known to this machine"),
    ],
    ids=["no server", "no host"],
)
def test_hdfs_that_is_not_there_is_one_line(url: str, reason: str) -> None:
    with pytest.raises(SurveyorError, match=f"cannot be written: {reason}"):
        require_conditional_writes(url)
    with pytest.raises(UnreadableError, match=reason):
        Warehouse(url, "default").rows("events")


SPARK = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"


def test_the_doctor_names_what_spark_committed_on_s3(object_store: str) -> None:
    """Spark puts its commits unconditionally there, also those of OPTIMIZE and VACUUM."""
    warehouse = Warehouse(object_store, "default")
    warehouse.ensure_tables()
    warehouse.append("events", [event("a")])
    assert not [*foreign_changes(warehouse)]
    version = warehouse.opened("events").version() + 1
    commit = {"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE", "operationParameters": {}, "engineInfo": SPARK}}
    key = f"{object_store.removeprefix(f's3://{BUCKET}/')}/events/_delta_log/{version:020}.json"
    boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=json.dumps(commit))

    [found] = [*foreign_changes(warehouse)]

    assert found.description == f"table events on S3 was written by {SPARK}"
    assert not found.is_fault


@pytest.mark.repeat
@in_every_store
def test_a_foreign_optimize_at_the_same_time_loses_nothing(warehouse: Warehouse) -> None:
    """It is deltalake's; rows are appended, replaced and updated while it compacts and vacuums the table."""
    ended = Event()

    def optimize() -> int:
        compacted = 0
        while not ended.is_set():
            table = warehouse.opened("events")
            with suppress(DeltaError):  # a conflict, which is the other program's to retry
                compacted += table.optimize.compact(target_size=1 << 20)["numFilesAdded"]
                table.vacuum(dry_run=False)
        return compacted

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(optimize)
        try:
            for number in range(20):
                warehouse.append("events", [event(f"{number}"), event("replaced", number + 2)])
                warehouse.replace("events", [event("last", number + 2)], f"snapshot_id = {number + 2}")
                warehouse.update("events", f"subject = '{number}'", after="'9'")
        finally:
            ended.set()

    assert other.result() > 0
    assert subjects(warehouse) == sorted([*map(str, range(20)), *["last"] * 20])
    assert {row["after"] for row in warehouse.rows("events") if row["subject"] != "last"} == {"9"}
