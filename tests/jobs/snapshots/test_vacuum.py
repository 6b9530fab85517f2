"""Vacuum on real tables: what goes, what stays, and that every snapshot still there is shown whole, then as before."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace
from pyspark.sql import SparkSession

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.core.errors import UnreadableError
from jobs.core.units import parse_period
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import as_of, find_snapshot
from jobs.snapshots import vacuum as job
from jobs.snapshots.vacuum import oldest_kept, vacuum_warehouse
from schemas.enums import NO_LEADER
from schemas.rows import Key, Row, Snapshot
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import CLUSTER
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic

DAY = timedelta(days=1)
AGES = (40, 35, 31, 29, 2, 0)
DROPPED, KEPT = (1, 2, 3), (4, 5, 6)
SHOWN = ("brokers", "topics", "partitions", "requests", "quarantine")
MONTH = timedelta(days=30)
SMALL = 12_000
"""Bytes of a file, instead of SHORTENED_FILE_BYTES."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Six snapshots; each changes a leader, and topics come and go. It is for copies only."""
    return _lived(Cluster(Warehouse(str(tmp_path_factory.mktemp("lived") / "warehouse"), CLUSTER)))


@pytest.fixture
def cluster(lived: Cluster, warehouse: Warehouse) -> Cluster:
    return lived.copied_to(warehouse)


def _lived(cluster: Cluster) -> Cluster:
    cluster.partitions = {("orders", number): partition([1, 2]) for number in range(3)}
    for number, age in enumerate(AGES):
        cluster.brokers = [broker(id_, 10 + number) for id_ in (1, 2)]
        cluster.topics = [topic("orders", config={"retention.ms": str(number)})]
        cluster.partitions["orders", 0] = partition([1, 2], leader_epoch=number)
        cluster.partitions[f"of {number}", 0] = partition([1])
        cluster.partitions.pop((f"of {number - 1}", 0), None)
        cluster.snapshot(age * DAY)
    return cluster


def everything(warehouse: Warehouse) -> dict[str, Any]:
    """All that each snapshot still there shows, by the version it names and by the history."""
    shown: dict[str, Any] = {}
    for row in sorted(warehouse.typed_rows(Snapshot), key=lambda row: row.snapshot_id):
        for table in SHOWN:
            shown[f"{row.snapshot_id} {table}"] = _sorted(as_of(warehouse, row, table))
        nameless = replace(row, versions={**row.versions, "partitions": 10**6})
        shown[f"{row.snapshot_id} history"] = _sorted(as_of(warehouse, nameless, "partitions"))
    return shown


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=str)


def disk(warehouse: Warehouse) -> dict[str, tuple[int, int]]:
    """Every file of the tables, log and all: its size and when it was written."""
    files = (path for path in Path(warehouse.uri).rglob("*") if path.is_file() and path.parent.name != ".locks")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def ids(warehouse: Warehouse, table: str) -> set[int]:
    return {row["snapshot_id"] for row in warehouse.rows(table)}


def run(
    warehouse: Warehouse, keep: timedelta = MONTH, *, dry_run: bool = False, now: datetime = NOW, grace_hours: int = 0
) -> dict[str, Any]:
    return vacuum_warehouse(warehouse, now, keep, dry_run=dry_run, grace_hours=grace_hours)


def test_kept_snapshots_are_shown_as_before_by_version_and_by_history(cluster: Cluster) -> None:
    before = everything(cluster.warehouse)
    run(cluster.warehouse)
    kept = {name: rows for name, rows in before.items() if int(name.split()[0]) in KEPT}
    assert everything(cluster.warehouse) == kept
    assert [kept[f"{id_} partitions"] for id_ in KEPT] == [kept[f"{id_} history"] for id_ in KEPT]


def test_rows_of_dropped_snapshots_go(cluster: Cluster) -> None:
    result = run(cluster.warehouse)
    assert {table: ids(cluster.warehouse, table) for table in ("snapshots", "events", "imbalance")} == {
        "snapshots": set(KEPT),
        "events": set(KEPT),
        "imbalance": set(KEPT),
    }
    history = sorted(
        (row["topic"], row["partition"], row["snapshot_id"]) for row in cluster.warehouse.rows("partition_history")
    )
    assert history == [
        ("of 3", 0, 4),
        ("of 3", 0, 5),
        ("of 4", 0, 5),
        ("of 4", 0, 6),
        ("of 5", 0, 6),
        ("orders", 0, 4),
        ("orders", 0, 5),
        ("orders", 0, 6),
        ("orders", 1, 1),
        ("orders", 2, 1),
    ]
    dropped = {row["table"]: row["rows_dropped"] for row in result["tables"] if row["rows_dropped"]}
    assert dropped == {"snapshots": 3, "events": 3, "imbalance": 3, "partition_history": 9}
    assert (result["snapshots_dropped"], result["oldest_snapshot"], result["rows_dropped"]) == (3, 4, 18)


def test_what_ifs_of_dropped_snapshots_go(cluster: Cluster) -> None:
    whatifs = [{"snapshot_id": id_, "lose": "racks=1", "scenario": "rack a"} for id_ in (*DROPPED, *KEPT)]
    cluster.warehouse.replace("whatif", whatifs)
    run(cluster.warehouse)
    assert ids(cluster.warehouse, "whatif") == set(KEPT)


def test_files_that_only_dropped_snapshots_needed_go(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    old = DeltaTable(
        warehouse.path("brokers"),
        version=warehouse.rows("snapshots", ("snapshot_id", "=", 1))[0]["versions"]["brokers"],
    )
    result = run(warehouse)
    brokers = next(row for row in result["tables"] if row["table"] == "brokers")
    assert (brokers["files_before"], brokers["files_after"]) == (6, 3)
    assert (
        brokers["bytes_after"] == sum(TableFiles(warehouse.path("brokers")).data().values()) < brokers["bytes_before"]
    )
    assert not [uri for uri in old.file_uris() if Path(uri).exists()]


def test_small_files_are_joined(cluster: Cluster) -> None:
    events = DeltaTable(cluster.warehouse.path("events"))
    assert len(events.file_uris()) == 6
    run(cluster.warehouse)
    assert len(DeltaTable(cluster.warehouse.path("events")).file_uris()) == 1


def test_files_that_a_later_vacuum_shortens_stay_small(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion of a table's oldest rows writes the other rows of their files again."""
    monkeypatch.setattr(job, "SHORTENED_FILE_BYTES", SMALL)
    topics = [sha256(str(number).encode()).hexdigest() for number in range(300)]
    for start in range(0, 300, 50):
        of_day = topics[start : start + 50]
        events = [{"snapshot_id": KEPT[0], "kind": "TopicCreated", "subject": topic} for topic in of_day]
        cluster.warehouse.append("events", events)
        place = {"broker_id": 1, "partition": 0, "log_dir": "/data", "bytes": 1}
        cluster.warehouse.append("sizes", [{**place, "topic": topic} for topic in of_day])
    run(cluster.warehouse)
    sizes = {name: [file["size_bytes"] for file in _files(cluster.warehouse, name)] for name in ("events", "sizes")}
    assert max(sizes["events"]) <= SMALL < sum(sizes["events"])
    assert len(sizes["events"]) <= 4
    assert len(sizes["sizes"]) == 1


def _files(warehouse: Warehouse, table: str) -> list[Row]:
    return as_rows(pa.table(DeltaTable(warehouse.path(table)).get_add_actions()))


def test_a_dry_run_touches_nothing_and_tells_the_same(cluster: Cluster) -> None:
    before = disk(cluster.warehouse)
    planned = run(cluster.warehouse, dry_run=True)
    assert disk(cluster.warehouse) == before
    done = run(cluster.warehouse)
    same = ("oldest_snapshot", "snapshots_dropped", "rows_dropped", "files_before", "bytes_before")
    assert {name: planned[name] for name in same} == {name: done[name] for name in same}
    assert planned["files_after"] < planned["files_before"]


def test_a_second_run_does_nothing_more(cluster: Cluster) -> None:
    run(cluster.warehouse)
    before, shown = disk(cluster.warehouse), everything(cluster.warehouse)
    again = run(cluster.warehouse)
    assert (disk(cluster.warehouse), everything(cluster.warehouse), again["rows_dropped"]) == (before, shown, 0)


@pytest.mark.parametrize("step", ["delete", "transform_rows", "compact"])
def test_a_crash_is_mended_by_running_again(
    lived: Cluster,
    cluster: Cluster,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    twin = lived.copied_to(Warehouse(str(tmp_path / "twin"), CLUSTER))
    run(twin.warehouse)
    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, step, _second_time_dies(getattr(Warehouse, step)))
        with pytest.raises(KeyboardInterrupt):
            run(cluster.warehouse)
    run(cluster.warehouse)
    assert everything(cluster.warehouse) == everything(twin.warehouse)
    tables = ("events", "imbalance", "partition_history")
    assert [_sorted(cluster.warehouse.rows(name)) for name in tables] == [
        _sorted(twin.warehouse.rows(name)) for name in tables
    ]


def _second_time_dies(step: Callable[..., None]) -> Callable[..., None]:
    calls: list[int] = []

    def dying(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 2 or step.__name__ == "transform_rows":
            raise KeyboardInterrupt
        step(*arguments)

    return dying


def test_other_clusters_keep_rows_and_versions(cluster: Cluster) -> None:
    other = _lived(Cluster(Warehouse(cluster.warehouse.uri, "other")))
    before = everything(other.warehouse), {name: _sorted(other.warehouse.rows(name)) for name in SPARK_SCHEMAS}
    run(cluster.warehouse, timedelta(0))
    assert (
        everything(other.warehouse),
        {name: _sorted(other.warehouse.rows(name)) for name in SPARK_SCHEMAS},
    ) == before
    assert ids(cluster.warehouse, "snapshots") == {6}


def test_partitions_of_the_newest_snapshot_of_each_cluster_keep_their_version(cluster: Cluster) -> None:
    """No snapshot of one cluster has been taken for weeks, while another cluster writes to the same tables."""
    warehouse = cluster.warehouse
    other = _lived(Cluster(Warehouse(warehouse.uri, "other")))
    for number in range(12):  # more than the log entries between two checkpoints
        other.partitions["orders", 0] = partition([1, 2], leader_epoch=100 + number)
        other.snapshot()

    run(other.warehouse, timedelta(0), now=NOW + 30 * DAY)

    newest, older = (find_snapshot(warehouse, id_).versions["partitions"] for id_ in (6, 5))
    assert warehouse.read("partitions", version=newest).num_rows == len(cluster.partitions)
    with pytest.raises(UnreadableError):
        warehouse.read("partitions", version=older)
    assert _sorted(as_of(warehouse, find_snapshot(warehouse, 5), "partitions"))


def test_evidence_stays(cluster: Cluster) -> None:
    plan = {"plan_id": "p", "snapshot_id": 1, "created_at": NOW - 100 * DAY, "status": "committed"}
    commit = {"plan_id": "p", "attempt": 1, "action": "elect", "outcome": "applied"}
    cluster.warehouse.append("plans", [plan])
    cluster.warehouse.append("commits", [commit])
    run(cluster.warehouse)
    assert [len(cluster.warehouse.rows(name)) for name in ("plans", "commits")] == [1, 1]


def test_old_plans_that_change_nothing_go(cluster: Cluster) -> None:
    """With or without a name, and what they rejected; not those that work on topics, drain, or were committed."""
    common = {"created_at": NOW - 100 * DAY, "status": "planned", "kind": "reconcile", "changes": 0, "snapshot_id": 1}
    plans: list[Row] = [
        {"plan_id": "old"},
        {"plan_id": "named", "names": ["n"], "name": "n"},
        {"plan_id": "new", "created_at": NOW - timedelta(hours=23)},
        {"plan_id": "deletes", "kind": "delete"},
        {"plan_id": "drains", "kind": "drain"},
        {"plan_id": "done", "status": "committed"},
        {"plan_id": "moves", "changes": 1},
    ]
    cluster.warehouse.append("plans", [common | plan for plan in plans])
    cluster.warehouse.append("operations", [{"plan_id": "deletes", "sequence": 0}])
    cluster.warehouse.append(
        "rejections", [{"plan_id": name, "topic": "t", "partition": 0, "code": "c"} for name in ("old", "new")]
    )
    dry = run(cluster.warehouse, dry_run=True)
    run(cluster.warehouse)

    assert {row["table"]: row["rows_dropped"] for row in dry["tables"]}["plans"] == 2
    assert {row["plan_id"] for row in cluster.warehouse.rows("plans")} == {"new", "deletes", "drains", "done", "moves"}
    assert {row["plan_id"] for row in cluster.warehouse.rows("rejections")} == {"new"}


def test_a_snapshot_under_way_is_not_disturbed(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    rows = [{**broker(1, 99), "snapshot_id": 7}]
    warehouse.replace("brokers", rows)
    named = warehouse.version("brokers")
    warehouse.replace("brokers", [])  # another writer: what the snapshot is about to name is no longer the newest
    before = set(TableFiles(warehouse.path("brokers")).data())
    run(warehouse, grace_hours=1)
    assert set(TableFiles(warehouse.path("brokers")).data()) == before
    assert [row["broker_epoch"] for row in warehouse.rows("brokers", version=named)] == [99]


def test_snapshots_are_taken_meanwhile(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(lambda: [_one_more(cluster) for _ in range(8)])
        while not taking.done():
            run(warehouse, timedelta(0), now=NOW + DAY, grace_hours=1)
        epochs = taking.result()
    run(warehouse, timedelta(0), now=NOW + DAY, grace_hours=1)
    last = find_snapshot(warehouse)
    assert (last.snapshot_id, ids(warehouse, "snapshots")) == (6 + len(epochs), {6 + len(epochs)})
    for snapshot in (last, replace(last, versions={"partitions": 10**6})):
        leader_epochs = {
            (r["topic"], r["partition"]): r["leader_epoch"] for r in as_of(warehouse, snapshot, "partitions")
        }
        assert leader_epochs == {key: row["leader_epoch"] for key, row in cluster.partitions.items()}


def _one_more(cluster: Cluster) -> int:
    epoch = 100 + len(cluster.partitions)
    cluster.partitions["orders", 0] = partition([1, 2], leader_epoch=epoch)
    cluster.partitions["more", epoch] = partition([1])
    cluster.snapshot()
    return epoch


def test_a_conflicting_vacuum_reads_again(cluster: Cluster) -> None:
    warehouse, versions = cluster.warehouse, list[int]()

    def make(rows: pa.Table) -> pa.Table:
        versions.append(rows.num_rows)
        if len(versions) == 1:  # by a writer that knows no locks
            DeltaTable(warehouse.path("partition_history")).delete("snapshot_id <= 2")
        return rows.slice(0)  # another table, which is written

    warehouse.transform_rows("partition_history", ("snapshot_id", "<=", 4), make)
    assert (len(versions), min(ids(warehouse, "partition_history"))) == (2, 3)


def test_the_log_goes_up_to_the_checkpoint_that_kept_versions_need(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    for row in warehouse.rows("snapshots", ("snapshot_id", "in", [2, 4, 5])):
        DeltaTable(warehouse.path("brokers"), version=row["versions"]["brokers"]).create_checkpoint()
    shown = everything(warehouse)
    run(warehouse)
    fourth = find_snapshot(warehouse, 4).versions["brokers"]
    entries = Path(warehouse.path("brokers"), "_delta_log").iterdir()
    log = sorted(int(path.name[:20]) for path in entries if path.name[:20].isdigit())
    assert log[0] == fourth
    assert {name: rows for name, rows in shown.items() if int(name[0]) in KEPT} == everything(warehouse)


def test_partitions_are_rebuilt_after_a_foreign_vacuum(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    before = everything(warehouse)
    DeltaTable(warehouse.path("partitions")).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert everything(warehouse) == before


def test_rows_rebuilt_from_history_pass_filters_as_of_their_snapshot(cluster: Cluster) -> None:
    """The row that counts is a partition's newest one, and not its newest one that passes the filter."""
    warehouse = cluster.warehouse
    offline = partition([1, 2], leader=NO_LEADER, partition_state="Offline")
    cluster.partitions["orders", 1] = offline
    cluster.snapshot()
    cluster.partitions |= {("orders", 1): partition([1, 2], leader_epoch=9), ("orders", 2): offline}
    snapshot = find_snapshot(warehouse, cluster.snapshot())
    unversioned = replace(snapshot, versions={**snapshot.versions, "partitions": 10**6})
    conditions: list[tuple[str, str, Any]] = [
        *(("partition_state", "=", "Offline"), ("leader", "=", NO_LEADER), ("leader_epoch", "<", 6)),
        *(("topic_version", "=", 0), ("snapshot_id", "in", [1, 7])),
        *(("topic", "in", ["orders", "of 4"]), ("partition", "=", 1)),
    ]

    def passing(row: Snapshot) -> list[list[Row]]:
        return [_sorted(as_of(warehouse, row, "partitions", condition)) for condition in conditions]

    assert passing(unversioned) == passing(snapshot)


def test_other_tables_say_that_something_else_removed_their_files(cluster: Cluster) -> None:
    warehouse = cluster.warehouse
    DeltaTable(warehouse.path("brokers")).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    ran = Surveyor(warehouse).run("show", "brokers", "--snapshot", "1")
    assert (ran.exit_code, "table brokers" in ran.stderr, "has lost a file" in ran.stderr) == (22, True, True)


@pytest.mark.jvm
@pytest.mark.parametrize(("snapshot_id", "keep"), [(4, MONTH), (5, DAY), (6, DAY)])
def test_a_vacuum_keeps_what_a_query_reads(
    cluster: Cluster, spark: SparkSession, snapshot_id: int, keep: timedelta
) -> None:
    """It drops the versions of `partitions` of snapshot 4, the whole snapshot 5, and nothing of the newest one."""
    warehouse = cluster.warehouse
    snapshot = replace(find_snapshot(warehouse, snapshot_id), taken_at=datetime.now(UTC) - DAY)
    tables = SnapshotTables(SparkWarehouse(spark, warehouse), snapshot)
    queries = {name: tables[name].select("topic", "snapshot_id") for name in ("partitions", "topics")}
    before = {name: sorted(query.collect()) for name, query in queries.items()}
    run(warehouse, keep)

    spark.catalog.clearCache()
    assert {name: sorted(query.collect()) for name, query in queries.items()} == before


@pytest.mark.jvm
def test_tables_stay_readable_by_spark(cluster: Cluster, spark: SparkSession) -> None:
    warehouse = cluster.warehouse
    DeltaTable(
        warehouse.path("partitions"), version=find_snapshot(warehouse, 4).versions["partitions"]
    ).create_checkpoint()
    run(warehouse)
    for name in ("snapshots", "events", "partitions", "partition_history"):
        rows = spark.read.format("delta").load(warehouse.path(name))
        assert (name, rows.count()) == (name, len(warehouse.rows(name)))
    for id_ in KEPT:
        row = find_snapshot(warehouse, id_)
        rows = SnapshotTables(SparkWarehouse(spark, warehouse), row)["partitions"].select("topic", "partition")
        assert {tuple(r) for r in rows.collect()} == _keys_at(warehouse, row)
    for id_ in KEPT[1:]:  # versions of the first one, which is older than a week, are removed
        row = find_snapshot(warehouse, id_)
        version = spark.read.format("delta").option("versionAsOf", row.versions["partitions"])
        keys = {tuple(r) for r in version.load(warehouse.path("partitions")).select("topic", "partition").collect()}
        assert keys == _keys_at(warehouse, row)


def _keys_at(warehouse: Warehouse, snapshot: Snapshot) -> set[Key]:
    return {(row["topic"], row["partition"]) for row in as_of(warehouse, snapshot, "partitions")}


def test_dropped_snapshots_are_one_clear_error(cluster: Cluster) -> None:
    run(cluster.warehouse)
    ran = Surveyor(cluster.warehouse).run("show", "partitions", "--snapshot", "2")
    assert (ran.exit_code, ran.stderr) == (
        2,
        (
            "surveyor: no snapshot 2 of cluster 'default', dropped by `surveyor vacuum`; "
            "the oldest is 4, the newest is 6\n"
        ),
    )


def test_history_still_shows_the_row_that_a_dropped_snapshot_wrote(cluster: Cluster) -> None:
    run(cluster.warehouse)
    ran = Surveyor(cluster.warehouse).run("show", "history", "--topic", "orders", "--partition", "1", "--json")
    assert [(row["snapshot_id"], row["taken_at"]) for row in json.loads(ran.stdout)["rows"]] == [(1, None)]


def _recently(warehouse: Warehouse) -> None:
    """Let the snapshots be as old as they say by this machine's clock."""
    late = datetime.now(UTC) - NOW
    for row in warehouse.rows("snapshots"):
        taken_at = row["taken_at"] + late
        warehouse.replace("snapshots", [{**row, "taken_at": taken_at}], f"snapshot_id = {row['snapshot_id']}")


@pytest.mark.parametrize(
    ("keep", "left"), [((), {4, 5, 6}), (("--keep", "8w"), {1, 2, 3, 4, 5, 6}), (("--keep", "47h"), {6})]
)
def test_the_command_keeps_the_given_number(cluster: Cluster, keep: tuple[str, ...], left: set[int]) -> None:
    _recently(cluster.warehouse)
    ran = Surveyor(cluster.warehouse).run("vacuum", *keep, "--json")
    assert (ran.exit_code, ids(cluster.warehouse, "snapshots")) == (0, left)


def test_the_retention_may_stand_in_the_conf(cluster: Cluster, tmp_path: Path) -> None:
    _recently(cluster.warehouse)
    conf = tmp_path / "surveyor.toml"
    conf.write_text('[clusters.default]\nretention = "1w"\n')
    ran = Surveyor(cluster.warehouse).run("vacuum", "--dry-run", "--json", "--conf", str(conf))
    result = json.loads(ran.stdout)
    assert (result["keep"], result["dry_run"], result["snapshots_dropped"]) == ("1w", True, 4)


def test_people_see_a_table_and_what_would_go(cluster: Cluster) -> None:
    _recently(cluster.warehouse)
    ran = Surveyor(cluster.warehouse).run("vacuum", "--dry-run")
    assert "3 snapshots would be deleted; the oldest is then 4" in ran.stdout


@pytest.mark.parametrize("keep", ["", "30", "d", "-1d", "1.5d", "30 d", "30m", "30D", "٣d", "123456d", "30d\n"])
def test_wrong_periods_are_usage_errors(cluster: Cluster, keep: str) -> None:
    before = disk(cluster.warehouse)
    ran = Surveyor(cluster.warehouse).run("vacuum", f"--keep={keep}")
    assert (ran.exit_code, "is no period" in ran.stderr, disk(cluster.warehouse)) == (2, True, before)


def test_wrong_retention_in_the_conf_is_a_usage_error(warehouse: Warehouse, tmp_path: Path) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text('[clusters.default]\nretention = "a month"\n')
    ran = Surveyor(warehouse).run("vacuum", "--conf", str(conf))
    assert (ran.exit_code, "retention" in ran.stderr) == (2, True)


def test_no_warehouse(warehouse: Warehouse) -> None:
    ran = Surveyor(warehouse).run("vacuum")
    assert (ran.exit_code, Path(warehouse.uri).exists()) == (22, False)


def test_samples_without_a_snapshot_are_deleted(warehouse: Warehouse) -> None:
    warehouse.ensure_tables()
    ages = [timedelta(days=days) for days in (1, 20)]
    row = {"topic": "a", "partition": 0, "leader": 1, "stored_at": NOW}
    warehouse.append("partition_offsets", [{**row, "sampled_at": datetime.now(UTC) - age} for age in ages])
    ran = Surveyor(warehouse).run("vacuum")
    assert (ran.exit_code, len(warehouse.rows("partition_offsets"))) == (0, 1)
    assert "0 snapshots deleted; " in ran.stdout
    assert "oldest" not in ran.stdout


CASES = [
    # ages in days of snapshots 1, 2, ...; keep; the oldest kept
    ([3, 2, 1], "2d", 2),
    ([3, 2, 1], "8w", 1),
    ([3, 2, 1], "12h", 3),
    ([3, 1, 2, 0], "1d", 2),  # a clock that was set back: all that is later than a kept one stays
    ([0], "0h", 1),
    ([9], "0h", 1),
]


@pytest.mark.parametrize(("ages", "keep", "oldest"), CASES)
def test_the_oldest_kept(ages: list[int], keep: str, oldest: int) -> None:
    taken = pa.array([NOW - age * DAY for age in ages], pa.timestamp("us", "UTC"))
    snapshots = pa.table({"snapshot_id": list(range(1, len(ages) + 1)), "taken_at": taken})
    assert oldest_kept(snapshots, NOW, parse_period("--keep", keep)) == oldest


def test_the_last_state_of_a_lost_one_is_kept(warehouse: Warehouse) -> None:
    """Or it would be new, and its first live replica lead; one that vanished in between is new."""
    cluster = Cluster(warehouse)
    stateless = partition([1, 2], leader=None, isr=None, leader_epoch=None, partition_state="New")
    cluster.partitions = {("orders", 0): partition([1, 2], leader_epoch=4), ("again", 0): partition([1, 2])}
    cluster.snapshot(40 * DAY)
    cluster.partitions = {("orders", 0): partition([1, 2], leader_epoch=5)}
    cluster.snapshot(39 * DAY)
    cluster.partitions = {("orders", 0): stateless, ("again", 0): stateless}
    cluster.snapshot(38 * DAY)
    cluster.snapshot()
    run(warehouse)
    rows = warehouse.rows("partition_history")
    kept = sorted((row["topic"], row["snapshot_id"], row["leader_epoch"]) for row in rows)
    assert kept == [("again", 3, None), ("orders", 2, 5), ("orders", 3, None)]


def test_loads_have_their_own_retention(cluster: Cluster) -> None:
    """Samples stay for two weeks and hours for a year, whatever the retention of snapshots; imports have no age."""
    warehouse, minute = cluster.warehouse, timedelta(minutes=1)
    of_partition = {"topic": "orders", "partition": 0}
    of_group = {"group_id": "g", "topic": "orders"}
    rows: dict[str, tuple[str, timedelta, Row]] = {
        "partition_offsets": ("sampled_at", 14 * DAY, {**of_partition, "stored_at": NOW, "leader": 1}),
        "group_offsets": (
            "sampled_at",
            14 * DAY,
            {**of_group, "stored_at": NOW, "group_type": "classic", "partition": 0},
        ),
        "broker_metrics": ("sampled_at", 14 * DAY, {"broker_id": 1, "metric": "cpu", "value": 1.0, "source": "file"}),
        "partition_load": ("hour", 365 * DAY, {**of_partition, "samples": 1, "method": "delta_size"}),
        "broker_load": ("hour", 365 * DAY, {"broker_id": 1}),
        "group_load": ("hour", 365 * DAY, of_group),
    }
    for name, (column, kept, row) in rows.items():
        warehouse.append(name, [{**row, column: NOW - kept + minute}, {**row, column: NOW - kept - minute}])
    warehouse.append("partition_load", [{**of_partition, "hour": None, "method": "imported"}])
    for profile, count in (("default", 12), ("night", 3)):
        row = {"profile": profile, "created_at": NOW, "window": "Mon 20:00", "partition": 0}
        topics = ("orders", "bills")
        warehouse.append(
            "load_profiles",
            [{**row, "version": n + 1, "topic": name} for n in range(count) for name in topics],
        )

    dry = run(warehouse, timedelta(hours=1), dry_run=True)
    done = run(warehouse, timedelta(hours=1))

    assert {name: {row[column] for row in warehouse.rows(name)} for name, (column, _, _) in rows.items()} == {
        name: {NOW - kept + minute, *([None] if name == "partition_load" else [])}
        for name, (_, kept, _) in rows.items()
    }
    versions = {(row["profile"], row["version"]) for row in warehouse.rows("load_profiles")}
    assert versions == {*(("default", n) for n in range(3, 13)), *(("night", n) for n in range(1, 4))}
    dropped = [{row["table"]: row["rows_dropped"] for row in result["tables"]} for result in (dry, done)]
    assert dropped[0] == dropped[1]
    assert {name: dropped[0][name] for name in (*rows, "load_profiles")} == dict.fromkeys(rows, 1) | {
        "load_profiles": 4
    }
