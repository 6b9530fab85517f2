"""Snapshots of a real ZooKeeper: what is read, what is written again, and what a bad znode does."""

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core.errors import ExitCode
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.racks import rack_of_each
from jobs.repositories.snapshots import STATE_TABLES, as_of, find_snapshot, rows_as_of
from jobs.runtime.pace import Pace
from jobs.runtime.settings import Settings
from jobs.snapshots import reader as snapshot_read
from jobs.snapshots import snapshot
from jobs.snapshots import writer as snapshot_write
from jobs.snapshots.snapshot import take_snapshot
from jobs.snapshots.writer import SnapshotWriter
from schemas.columns import TABLE_COLUMNS
from schemas.rows import Broker, Snapshot
from schemas.tables import SPARK_SCHEMAS
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import CLUSTER_ID, NO_PORT, TOPIC_ID, KafkaTree, registration, state_path

pytestmark = pytest.mark.usefixtures("spark")

NOISE = b"\xff\x00" * 450_000


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path, pace: Pace) -> Surveyor:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    return Surveyor(tree.hosts, tmp_path / "warehouse", pace=pace)


BOTH_WAYS = pytest.mark.parametrize("pace", [Pace(), Pace(small_cluster=-1)], ids=["by the driver", "by executors"])
"""Small clusters are read by the driver, larger ones by executors: to the same end."""


@BOTH_WAYS
def test_everything_is_read(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.write("/config/topics/orders", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    tree.write("/admin/delete_topics/orders", b"")
    result = surveyor.json("snapshot")
    counted = {name: result[name] for name in ("snapshot_id", "brokers", "topics", "partitions", "quarantined")}
    assert counted == {"snapshot_id": 1, "brokers": 3, "topics": 1, "partitions": 3, "quarantined": 0}
    ((*controller, before, after),) = surveyor.rows(
        "snapshots", "controller_id", "controller_epoch", "cluster_id", "zxid_before", "zxid_after"
    )
    assert (controller, before <= after) == ([0, 7, CLUSTER_ID], True)
    assert surveyor.rows("topics", "topic", "config", "deletion_requested") == [
        ("orders", {"min.insync.replicas": "2"}, True),
    ]
    assert surveyor.rows("partitions", "partition", "replicas", "leader", "isr", "leader_epoch", "partition_state") == [
        (0, [0, 1], 0, [0, 1], 5, "Online"),
        (1, [1, 2], 1, [1, 2], 5, "Online"),
        (2, [2, 0], 2, [2, 0], 5, "Online"),
    ]
    assert surveyor.rows("requests", "kind", "topic") == [("delete_topic", "orders")]
    broker_epochs = {row["broker_id"]: row["broker_epoch"] for row in surveyor.warehouse.rows("brokers")}
    assert broker_epochs == {id_: tree.client.get(f"/brokers/ids/{id_}")[1].czxid for id_ in (0, 1, 2)}


def test_an_unchanged_cluster_adds_no_history_to_tables_that_deltalake_reads(surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    surveyor.json("snapshot")
    assert surveyor.rows("partition_history", "snapshot_id", "partition") == [(1, 0), (1, 1), (1, 2)]
    assert surveyor.rows("snapshots", "snapshot_id", "partitions") == [(1, 3), (2, 3)]
    for name, schema in SPARK_SCHEMAS.items():
        table = DeltaTable(surveyor.warehouse.path(name))
        assert [field.name for field in table.schema().fields] == schema.names
        assert table.protocol().min_reader_version == 1


def test_an_unchanged_cluster_adds_no_version_of_its_state(surveyor: Surveyor, tree: KafkaTree) -> None:
    for _ in range(2):
        surveyor("snapshot")
    tree.client.set("/brokers/ids/1", registration(rack="b"))
    surveyor("snapshot")
    first, second, third = sorted(surveyor.warehouse.typed_rows(Snapshot), key=lambda row: row.snapshot_id)

    def written(before: Snapshot, after: Snapshot) -> set[str]:
        return {table for table in STATE_TABLES if after.versions[table] != before.versions[table]}

    assert written(first, second) == set()
    assert {"brokers"} <= written(second, third) <= {"brokers", "broker_configs"}
    assert {row["snapshot_id"] for row in surveyor.warehouse.rows("brokers")} == {3}


def test_only_the_difference_is_written(surveyor: Surveyor, tree: KafkaTree) -> None:
    surveyor.json("snapshot")
    tree.touch("/brokers/topics/orders/partitions/1/state")
    tree.client.delete("/brokers/topics/orders/partitions/2/state")
    tree.add_topic("payments", {0: [1]})
    surveyor.json("snapshot")
    assert surveyor.rows("partition_history", "snapshot_id", "topic", "partition", "partition_state")[3:] == [
        (2, "orders", 1, "Online"),
        (2, "orders", 2, "New"),
        (2, "payments", 0, "Online"),
    ]
    assert surveyor.rows("partitions", "topic", "partition", "snapshot_id") == [
        ("orders", 0, 1),
        ("orders", 1, 2),
        ("orders", 2, 2),
        ("payments", 0, 2),
    ]


def test_a_moved_partition_changes_no_other_of_its_topic(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Its topic's znode has a later version, which commits of the others check: their rows have it."""
    surveyor.json("snapshot")
    moved = Assignment({0: [1, 0], 1: [1, 2], 2: [2, 0]}, {}, {}, TOPIC_ID)
    tree.write("/brokers/topics/orders", encode_assignment(moved))
    surveyor.json("snapshot")
    tree.touch("/brokers/topics/orders")
    surveyor.json("snapshot")

    assert surveyor.rows("partition_history", "snapshot_id", "partition")[3:] == [(2, 0)]
    assert surveyor.rows("partitions", "partition", "topic_version", "snapshot_id") == [(0, 2, 2), (1, 2, 1), (2, 2, 1)]
    rows = [
        [
            row["snapshot_id"]
            for row in surveyor.json("show", "history", "--topic", "orders", "--partition", number)["rows"]
        ]
        for number in ("0", "1")
    ]
    assert rows == [[1, 2], [1]]
    (second,) = surveyor.warehouse.typed_rows(Snapshot, ("snapshot_id", "=", 2))
    lost = replace(second, versions=second.versions | {"partitions": 10**6})
    for row in (second, lost):  # by the table's version, and by the history where that was removed
        versions = {part["partition"]: part["topic_version"] for part in as_of(surveyor.warehouse, row, "partitions")}
        assert versions == {0: 1, 1: 1, 2: 1}

    plan = surveyor.json("plan", "drain", "--brokers", "1", "--mode", "resident")
    changes = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    assert {change["topic_version"] for change in changes} == {2}


def test_vanished_topic_leaves_the_table_and_stays_in_history(surveyor: Surveyor, tree: KafkaTree) -> None:
    surveyor.json("snapshot")
    tree.client.delete("/brokers/topics/orders", recursive=True)
    surveyor.json("snapshot")
    assert surveyor.rows("partitions", "topic") == []
    assert {row[1] for row in surveyor.rows("partition_history", "snapshot_id", "partition_state") if row[0] == 2} == {
        "NonExistent",
    }
    assert surveyor.json("show", "partitions", "--snapshot", "1")["rows"][0]["partition_state"] == "Online"


def test_partitions_of_a_topic_being_deleted_are_not_offline(surveyor: Surveyor, tree: KafkaTree) -> None:
    """They stay in the table as long as they are there; what is as it was makes no row."""
    surveyor.json("snapshot")
    tree.write("/admin/delete_topics/orders", b"")
    state = b'{"controller_epoch":8,"leader":-1,"version":1,"leader_epoch":6,"isr":[1]}'
    tree.write("/brokers/topics/orders/partitions/0/state", state)
    for _ in range(2):
        surveyor.json("snapshot")
        assert ("orders", 0, "NonExistent") in surveyor.rows("partitions", "topic", "partition", "partition_state")
    newest = [row for row in surveyor.rows("partition_history", "snapshot_id", "partition", "vanished") if row[0] > 1]
    assert newest == [(2, 0, False)]
    tree.client.delete("/brokers/topics/orders", recursive=True)
    surveyor.json("snapshot")
    assert surveyor.rows("partitions", "topic") == []
    assert surveyor.json("show", "partitions", "--snapshot", "3")["rows"] != []


@BOTH_WAYS
def test_bad_states_keep_their_last_rows_and_spoil_nothing_else(surveyor: Surveyor, tree: KafkaTree) -> None:
    garbage = [b"", b"{", b"null", b"\xff", NOISE, b'{"leader":1}', b'{"isr":[]}']
    tree.add_topic("bad", {partition: [1, 2] for partition in range(len(garbage))})
    surveyor.json("snapshot")
    for partition, data in enumerate(garbage):
        tree.client.set(f"/brokers/topics/bad/partitions/{partition}/state", data)
    assert surveyor.json("snapshot")["quarantined"] == len(garbage)
    kept = [("bad", partition, 1, False) for partition in range(len(garbage))]
    good = [("orders", 0, 0, True), ("orders", 1, 1, True), ("orders", 2, 2, True)]
    assert surveyor.rows("partitions", "topic", "partition", "leader", "understood") == kept + good
    paths = [(f"/brokers/topics/bad/partitions/{partition}/state",) for partition in range(len(garbage))]
    assert surveyor.rows("quarantine", "path") == paths


@BOTH_WAYS
def test_a_bad_topic_keeps_its_partitions(surveyor: Surveyor, tree: KafkaTree) -> None:
    surveyor.json("snapshot")
    tree.client.set("/brokers/topics/orders", b"not json")
    assert surveyor.json("snapshot")["partitions"] == 3
    assert surveyor.rows("partitions", "partition", "leader", "understood") == [
        (0, 0, False),
        (1, 1, False),
        (2, 2, False),
    ]
    assert surveyor.rows("partition_history", "snapshot_id", "partition_state")[3:] == [(2, "Online")] * 3


def test_crash_before_the_last_row_changes_no_complete_snapshot(
    surveyor: Surveyor,
    tree: KafkaTree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    surveyor.json("snapshot")
    tree.touch("/brokers/topics/orders/partitions/0/state")
    tree.client.delete("/brokers/topics/orders/partitions/1/state")
    with monkeypatch.context() as patched:
        patched.setattr(snapshot_write, "imbalance", _crash)
        assert surveyor("snapshot").code == 1
    before = surveyor.json("show", "partitions")
    tree.touch("/brokers/topics/orders/partitions/0/state")
    tree.write(
        "/brokers/topics/orders/partitions/1/state",
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}',
    )
    surveyor.json("snapshot")
    history = surveyor.rows("partition_history", "snapshot_id", "partition", "state_version")
    assert [row["state_version"] for row in before["rows"]] == [0, 0, 0]
    assert history == [(1, 0, 0), (1, 1, 0), (1, 2, 0), (2, 0, 2)]
    assert surveyor.rows("partitions", "partition", "state_version") == [(0, 2), (1, 0), (2, 0)]


def test_what_crashed_snapshots_saw_and_is_gone_leaves_nothing(
    surveyor: Surveyor,
    tree: KafkaTree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    surveyor.json("snapshot")
    tree.add_topic("ghost", {0: [0, 1]})
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotWriter, "write_imbalance", _crash)
        assert surveyor("snapshot").code == 1
    assert ("ghost",) in surveyor.rows("partitions", "topic")
    tree.client.delete("/brokers/topics/ghost", recursive=True)
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotWriter, "changed_since", _crash_second(SnapshotWriter.changed_since))
        assert surveyor("snapshot").code == 1
    surveyor.json("snapshot")
    surveyor.json("snapshot")
    topics = {table: set(surveyor.rows(table, "topic")) for table in ("topics", "partitions", "partition_history")}
    assert [*topics.values()] == [{("orders",)}] * len(topics)
    assert surveyor.rows("events", "kind", "subject") == []


def _crash_second(method: Callable[..., object]) -> Callable[..., object]:
    calls = iter((method, _crash))

    def called(*arguments: object) -> object:
        return next(calls)(*arguments)

    return called


def _crash(*_: object) -> None:
    raise RuntimeError("killed")


def test_a_fleet_is_named_by_the_file_alone(surveyor: Surveyor) -> None:
    assert surveyor("snapshot", "--all-clusters").code == 2


def test_snapshots_of_two_clusters_at_once_do_not_conflict(surveyor: Surveyor) -> None:
    surveyor.warehouse.ensure_tables()
    names = ("east", "west", "north")
    settings = [settings_of(str(surveyor.folder), surveyor.hosts, cluster=name) for name in names]
    with ThreadPoolExecutor(len(names)) as pool:
        taken = [list(pool.map(take_snapshot, settings)) for _ in range(2)]
    assert [[snapshot.row.snapshot_id for snapshot in round_] for round_ in taken] == [[1, 1, 1], [2, 2, 2]]
    partitions = DeltaTable(surveyor.warehouse.path("partitions")).to_pyarrow_table()["cluster"].to_pylist()
    assert sorted(partitions) == sorted(names * 3)


def test_what_brokers_do_not_say_is_assumed(surveyor: Surveyor, tree: KafkaTree, fake_brokers: FakeBrokers) -> None:
    for broker in range(3):
        fake_brokers[broker].close()
    tree.write(
        "/config/brokers/<default>", b'{"version":1,"config":{"min.insync.replicas":"2","ssl.key.password":"x"}}'
    )
    ran = surveyor("snapshot")
    assert "3 brokers did not report their configs" in ran.stderr
    rows = surveyor.rows("broker_configs", "broker_id", "name", "value", "assumed")
    assert (1, "min.insync.replicas", "2", False) in rows
    assert (1, "unclean.leader.election.enable", "false", True) in rows
    assert "ssl.key.password" not in {name for _, name, _, _ in rows}
    assert len(surveyor.json("show", "configs")["rows"]) == len(rows)


def test_a_registration_without_a_broker_id_is_quarantined_and_not_alive(surveyor: Surveyor, tree: KafkaTree) -> None:
    names = ["abc", "007", "99999999999", "-1"]
    for name in names:
        tree.write(f"/brokers/ids/{name}", tree.client.get("/brokers/ids/1")[0])
    state = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":5,"isr":[1]}'
    tree.write("/brokers/topics/orders/partitions/1/state", state)
    surveyor.json("snapshot")
    assert surveyor.rows("quarantine", "path") == sorted((f"/brokers/ids/{name}",) for name in names)
    assert surveyor.rows("brokers", "broker_id") == [(0,), (1,), (2,)]
    assert surveyor.rows("partitions", "partition", "partition_state")[1] == (1, "Offline")


SEEN = ("broker_id", "snapshot_id", "host", "port", "rack")


def test_brokers_that_are_gone_are_kept_as_they_were_last_seen(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Broker 2 leaves, broker 1 registers in a way that is not understood; then 1 is understood again."""
    for broker in (1, 2):
        tree.unregister(broker)
        tree.register(broker, registration(rack=f"r{broker}"))
    surveyor.json("snapshot")
    assert surveyor.rows("brokers_last_seen", *SEEN) == []
    tree.unregister(2)
    tree.write("/brokers/ids/1", b"{")
    surveyor.json("snapshot")
    surveyor.json("snapshot")
    (one, two) = surveyor.rows("brokers_last_seen", *SEEN)
    assert [one[:2], two[:2], one[4], two[4]] == [(1, 1), (2, 1), "r1", "r2"]
    assert two[2:4] == ("127.0.0.1", NO_PORT)
    tree.write("/brokers/ids/1", registration(rack="r9"))
    surveyor.json("snapshot")
    assert [row[0] for row in surveyor.rows("brokers_last_seen", *SEEN)] == [2]
    warehouse = surveyor.warehouse
    snapshots = [find_snapshot(warehouse, number) for number in (1, 2, 3, 4)]
    racks = [rack_of_each(rows_as_of(warehouse, at, Broker), brokers_last_seen(warehouse, at)) for at in snapshots]
    expected = [{"r1", "r2"}, {"r1", "r2"}, {"r1", "r2"}, {"r9", "r2"}]
    assert [{rack for rack in of.values() if rack} for of in racks] == expected


def test_an_older_warehouse_knows_failed_brokers_by_events(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.unregister(2)
    tree.register(2, registration(rack="r2"))
    surveyor.json("snapshot")
    tree.unregister(2)
    surveyor.json("snapshot")
    last = find_snapshot(surveyor.warehouse)
    versions = {name: version for name, version in last.versions.items() if name != "brokers_last_seen"}
    older = replace(last, versions=versions)
    surveyor.warehouse.replace("snapshots", [older.columns()], "snapshot_id = 2")
    surveyor.warehouse.replace("brokers_last_seen", [])
    assert brokers_last_seen(surveyor.warehouse, older)[2].rack == "r2"
    surveyor.json("snapshot")
    assert surveyor.rows("brokers_last_seen", "broker_id", "snapshot_id", "rack") == [(2, 1, "r2")]


def test_a_controller_that_is_not_understood_makes_no_event(surveyor: Surveyor, tree: KafkaTree) -> None:
    surveyor.json("snapshot")
    kept = {path: tree.client.get(path)[0] for path in ("/controller", "/controller_epoch")}
    for path in kept:
        tree.client.set(path, b"zz")
    assert "controller unreadable" in surveyor("snapshot").stdout
    for path, data in kept.items():
        tree.client.set(path, data)
    surveyor.json("snapshot")
    assert surveyor.rows("events", "kind") == []
    assert surveyor.rows("snapshots", "snapshot_id", "controller_id", "controller_epoch")[1] == (2, None, None)


@BOTH_WAYS
def test_seconds_by_phase(surveyor: Surveyor) -> None:
    seconds = surveyor.json("snapshot")["seconds_by_phase"]
    assert set(seconds) == {"read", "start", "decode", "difference", "write"}
    assert min(seconds.values()) >= 0 < sum(seconds.values())


@BOTH_WAYS
def test_a_reading_that_fails_half_way_is_one_message(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(settings: Settings, source: Cluster, _: object) -> snapshot_read.DriverMetadata:
        reading = read_small(settings, source)
        assert isinstance(source, ZooKeeperCluster)
        source.endpoint, source.timeout = ZooKeeperEndpoint(f"127.0.0.1:{free_port()}"), 0.1
        if reading.tiny:  # read by this session, and by executors otherwise
            source.__exit__()
        return reading

    read_small = snapshot_read.read_driver_metadata
    monkeypatch.setattr(snapshot, "read_driver_metadata", small)
    ran = surveyor("snapshot")
    assert (ran.code, ran.stderr.count("no ZooKeeper answered"), "Traceback" in ran.stderr) == (22, 1, False)


def test_many_changes_and_few_leave_the_same_table(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.add_topic("wide", {partition: [0, 1] for partition in range(30)})
    surveyor.json("snapshot")
    tree.touch("/brokers/topics/wide/partitions/7/state")
    tree.client.delete("/brokers/topics/orders", recursive=True)
    tree.add_topic("new", {0: [1]})
    tables = []
    for share in (1.0, 0.0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(snapshot_write, "MAX_MERGE_SHARE", share)
            other = Surveyor(surveyor.hosts, surveyor.folder.with_name(f"copy-{share}"))
            shutil.copytree(surveyor.folder, other.folder)
            other.json("snapshot")
            tables.append(other.rows("partitions", "topic", "partition", "snapshot_id", "state_version", "leader"))
    assert tables[0] == tables[1]
    assert {topic for topic, *_ in tables[0]} == {"wide", "new"}
    assert {(row[1], row[2]) for row in tables[0] if row[0] == "wide" and row[2] > 1} == {(7, 2)}


def test_an_unusual_cluster_is_reported_in_the_result_file(
    surveyor: Surveyor,
    tree: KafkaTree,
    tmp_path: Path,
) -> None:
    for broker in (0, 1, 2):
        tree.unregister(broker)
    tree.write("/migration", b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":4}')
    file = tmp_path / "result.json"
    ran = surveyor("snapshot", "--json", "--result-file", str(file))
    assert (ran.code, file.read_text()) == (0, ran.stdout)
    assert "no broker is registered" in ran.stderr
    assert "migration to KRaft is in progress" in ran.stderr


def test_topics_that_are_gone_are_reported_by_the_snapshot_and_later(surveyor: Surveyor, tree: KafkaTree) -> None:
    """The next snapshot and a plan on it report them again."""
    surveyor.json("snapshot")
    tree.client.delete("/brokers/topics/orders", recursive=True)
    commands = ("snapshot", "snapshot", "plan reconcile --snapshot 3", "status")

    gone = "1 of 1 topics of snapshot 1 are gone: orders"
    reported = [surveyor(*command.split()) for command in commands]

    assert [(ran.code, gone in " ".join(f"{ran.stderr} {ran.stdout}".split())) for ran in reported] == [(0, True)] * 4


def test_an_unread_topic_counts_alike_in_snapshots_and_now(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.add_topic("payments", {0: [2, 0]})
    surveyor.json("snapshot")
    tree.write("/brokers/topics/orders", b"hello")
    tree.unregister(2)
    surveyor.json("snapshot")

    counts = ("partitions", "offline", "not_understood", "under_replicated", "gone", "quarantined")
    now, then = (surveyor.json("status", *options) for options in ((), ("--snapshot", "2")))
    assert {name: now[name] for name in counts} == {name: then[name] for name in counts}
    assert (now["partitions"], now["offline"], now["not_understood"]) == (4, 1, 3)
    for table, columns in (
        ("brokers", ("broker_id", "live", "leaders", "replicas")),
        ("partitions", ("topic", "partition", "replicas", "leader", "isr", "understood")),
    ):
        shown = (surveyor.json("show", table, *options)["rows"] for options in ((), ("--now",)))
        then_rows, now_rows = ([[row[name] for name in columns] for row in rows] for rows in shown)
        assert now_rows == then_rows
    assert re.search(r"^surveyor_not_understood_partitions\{.*\} 3\.0$", surveyor("metrics").stdout, re.MULTILINE)


def test_another_cluster_under_the_same_name_is_refused(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Its partitions would continue the history of the first one, from which elections take the last ISR."""
    surveyor.json("snapshot")
    surveyor.json("snapshot")
    tree.client.set("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    tree.unregister(2)
    refused = surveyor("snapshot")
    status = surveyor.json("status")

    assert refused.code == ExitCode.REFUSED
    assert f"with id {CLUSTER_ID}, and {tree.hosts} is that of AAAAAAAAAAAAAAAAAAAAAA" in refused.stderr
    assert surveyor.rows("snapshots", "snapshot_id") == [(1,), (2,)]
    assert status["warehouse_fault"] in refused.stderr
    assert status["last_snapshot"] is None
    for others in ("sizes", "cancel --throttles", "cancel --throttles --apply --yes", "cancel --partitions orders-0"):
        done = surveyor(*others.split())
        assert (done.code, status["warehouse_fault"] in done.stderr) == (ExitCode.REFUSED, True), others
    shown = surveyor("show", "brokers", "--now", "--json")
    assert status["warehouse_fault"] in shown.stderr + shown.stdout
    assert [row["last_seen_at"] for row in json.loads(shown.stdout)["rows"]] == [None] * 3
    assert surveyor.json("snapshot", "--cluster", "again")["snapshot_id"] == 1


def test_the_same_cluster_under_another_name_is_warned_of(surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    first, second = (surveyor("snapshot", "--cluster", "again") for _ in range(2))

    warning = f"snapshots of this cluster, with id {CLUSTER_ID}, under another name, too: default"
    assert [(ran.code, warning in ran.stderr) for ran in (first, second)] == [(0, True), (0, False)]


def test_a_history_of_two_clusters_is_continued_by_neither(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Neither cluster can tell which rows of the history are its own."""
    surveyor.json("snapshot")
    surveyor.json("snapshot")
    warehouse = surveyor.warehouse
    warehouse.update("snapshots", "snapshot_id = 2", cluster_id="'AAAAAAAAAAAAAAAAAAAAAA'")

    first = surveyor("snapshot")
    tree.client.set("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    second = surveyor("snapshot")

    assert (first.code, second.code) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert "snapshot 2 and others of cluster" in first.stderr
    assert f"snapshot 1 and others of cluster 'default' in {warehouse.uri} are of the cluster with id {CLUSTER_ID}" in (
        second.stderr
    )


def test_an_id_that_cannot_be_read_is_that_of_the_last_snapshots(surveyor: Surveyor, tree: KafkaTree) -> None:
    surveyor.json("snapshot")
    tree.client.set("/cluster/id", b"")
    assert surveyor.json("snapshot")["snapshot_id"] == 2
    tree.client.set("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    assert surveyor("snapshot").code == ExitCode.REFUSED


OF_A_MOMENT = {"taken_at", "seconds", "versions", "zxid_before", "zxid_after"}
LOST = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":7,"isr":[2,1]}'
CONFIG = b'{"version":1,"config":{"min.insync.replicas":"4"}}'
MOVES = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[2,1]}]}'
ACLS = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
QUOTAS = b'{"version":1,"config":{"producer_byte_rate":"1024","consumer_byte_rate":"1024"}}'


def _tables(surveyor: Surveyor) -> dict[str, Any]:
    names = {
        name: [column for column in TABLE_COLUMNS[name].names if column not in OF_A_MOMENT] for name in TABLE_COLUMNS
    }
    return {name: sorted(map(repr, surveyor.rows(name, *columns))) for name, columns in names.items()}


def test_every_table_has_the_rows_of_a_snapshot(tree: KafkaTree, tmp_path: Path) -> None:
    """Of a cluster where little is as it should be: offline, leaderless, without state, deleted, asked to move."""
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 1, 0], 3: [1]})
    tree.write("/config/topics/orders", CONFIG)
    tree.add_topic("gone", {0: [1, 0], 1: [0, 1]})
    tree.add_topic("new", {0: [0, 2]})
    tree.write(state_path("orders", 2), LOST)
    tree.client.delete(state_path("new", 0))
    tree.write("/admin/delete_topics/gone", b"")
    tree.write("/admin/reassign_partitions", MOVES)
    tree.write("/kafka-acl/Topic/orders", ACLS)
    tree.write("/config/users/al%40ice", QUOTAS)
    tree.unregister(1)
    taken, written = (Surveyor(tree.hosts, tmp_path / name) for name in ("taken", "written"))
    taken.json("snapshot")
    write_first_snapshot(written)
    assert _tables(written) == _tables(taken)
    security = taken.rows("security", "kind", "subject", "entries", "snapshot_id")
    assert security == [("acl", "TOPIC orders (LITERAL)", 1, 1), ("quota", "user al@ice", 2, 1)]
