"""`surveyor migration prove`: each difference that a migration must not make is found, and what may change is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.snapshots.migration_proof import MigrationProof, prove
from schemas.rows import Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

Change = Callable[[Cluster], None]
DROPPED = [
    ("topic vanished", "clicks", "topic_id"),
    *(("partition vanished", "clicks-0", name) for name in ("replicas", "isr", "leader_epoch")),
]
COUNTS = {"acls": 3, "quotas": 1, "scram_credentials": 2, "controller_epoch_version": 4}
DIGESTS = {"acls_digest": "a1", "quotas_digest": "b2", "scram_digest": "c3"}


def config(broker_id: int, name: str, value: str | None, *, assumed: bool = False) -> Row:
    return {"broker_id": broker_id, "name": name, "value": value, "assumed": assumed}


def set_topic(name: str, **columns: Any) -> Change:  # noqa: ANN401 - columns of `topics`
    def change(cluster: Cluster) -> None:
        cluster.topics = [{**row, **columns} if row["topic"] == name else row for row in cluster.topics]

    return change


def set_partition(**columns: Any) -> Change:  # noqa: ANN401 - columns of `partitions`
    def change(cluster: Cluster) -> None:
        cluster.partitions["orders", 0] = {**cluster.partitions["orders", 0], **columns}

    return change


def set_count(**columns: int | str | None) -> Change:
    return lambda cluster: cluster.controller.update(columns)


def set_config(name: str, value: str | None) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.broker_configs = [
            {**row, "value": value} if row["name"] == name else row for row in cluster.broker_configs
        ]

    return change


def drop_topic(cluster: Cluster) -> None:
    cluster.topics = [row for row in cluster.topics if row["topic"] != "clicks"]
    del cluster.partitions["clicks", 0]


def set_rack(cluster: Cluster) -> None:
    cluster.brokers[0] = broker(0, 20, rack="r")


def drop_broker(cluster: Cluster) -> None:
    cluster.brokers = cluster.brokers[:1]


def silence(cluster: Cluster) -> None:
    cluster.broker_configs = [{**row, "assumed": True} for row in cluster.broker_configs]


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    """One cluster before its migration."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10), broker(1, 11)]
    cluster.topics = [topic("orders", config={"retention.ms": "1"}), topic("clicks")]
    cluster.partitions = {("orders", 0): partition([0, 1]), ("clicks", 0): partition([1])}
    cluster.broker_configs = [
        config(0, "min.insync.replicas", "2"),
        config(0, "inter.broker.protocol.version", "3.9-IV0"),
        config(0, "api.AlterPartition", "3"),
    ]
    cluster.controller |= COUNTS | DIGESTS
    cluster.snapshot()
    return cluster


def proved(cluster: Cluster, *changes: Change) -> MigrationProof:
    cluster.controller["controller_epoch_version"] = None
    for change in changes:
        change(cluster)
    after = cluster.snapshot()
    return prove(cluster.warehouse, find_snapshot(cluster.warehouse, 1), find_snapshot(cluster.warehouse, after))


def test_what_restarts_change_may_change(cluster: Cluster) -> None:
    proof = proved(
        cluster,
        lambda cluster: cluster.controller.update({"controller_id": 3000, "controller_epoch": 2}),
        lambda cluster: cluster.brokers.__setitem__(0, broker(0, 20, port=9999)),
        set_partition(leader=1, leader_epoch=9, isr=[1, 0], topic_version=None, state_version=None),
        set_config("inter.broker.protocol.version", "3.0-IV1"),
        set_config("api.AlterPartition", None),
    )
    assert (proof.differences, proof.unknown, proof.is_proved) == ([], [], True)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (set_count(cluster_id="another"), [("cluster changed", "cluster", "cluster_id")]),
        (drop_topic, DROPPED),
        (lambda cluster: cluster.topics.append(topic("new")), [("topic created", "new", "topic_id")]),
        (set_topic("orders", topic_id="another"), [("topic changed", "orders", "topic_id")]),
        (set_topic("orders", config={}), [("topic config", "orders", "retention.ms")]),
        (set_partition(replicas=[1, 0]), [("partition changed", "orders-0", "replicas")]),
        (set_partition(adding_replicas=[2]), [("partition changed", "orders-0", "adding_replicas")]),
        (set_partition(isr=[0]), [("partition changed", "orders-0", "isr")]),
        (set_partition(leader_epoch=4), [("partition changed", "orders-0", "leader_epoch")]),
        (
            set_partition(leader=-1, leader_epoch=6, partition_state="Offline"),
            [("partition changed", "orders-0", "partition_state")],
        ),
        (drop_broker, [("broker gone", "broker 1", "broker_epoch")]),
        (set_rack, [("broker changed", "broker 0", "rack")]),
        (set_config("min.insync.replicas", "1"), [("broker config", "broker 0", "min.insync.replicas")]),
        (set_count(acls=2), [("count", "ACLs", "acls")]),
        (set_count(quotas=2), [("count", "quotas", "quotas")]),
        (set_count(acls_digest="d4"), [("content", "ACLs", "acls_digest")]),
        (set_count(quotas_digest="d4"), [("content", "quotas", "quotas_digest")]),
        (set_count(scram_digest="d4"), [("content", "SCRAM credentials", "scram_digest")]),
    ],
)  # fmt: skip
def test_each_planted_difference_is_found(cluster: Cluster, change: Change, found: list[tuple[str, str, str]]) -> None:
    proof = proved(cluster, change)
    assert [(row.what, row.subject, row.column) for row in proof.differences] == found
    assert not proof.is_proved


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        (silence, ["settings of broker 0 after"]),
        (set_count(acls=None), ["number of ACLs after"]),
        (set_count(scram_credentials=None), ["number of SCRAM credentials after"]),
        (set_count(quotas_digest=None), ["content of quotas after"]),
    ],
)
def test_what_is_unknown_proves_nothing(cluster: Cluster, change: Change, unknown: list[str]) -> None:
    proof = proved(cluster, change)
    assert (proof.differences, proof.unknown, proof.is_proved) == ([], unknown, False)


def test_what_is_unknown_on_both_sides_proves_nothing(warehouse: Warehouse) -> None:
    """It does not differ: settings that a broker never returned, and a znode that cannot be decoded."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10)]
    cluster.broker_configs = [config(0, "min.insync.replicas", "1", assumed=True)]
    cluster.quarantine = [{"path": "/brokers/topics/orders", "reason": "not JSON"}]
    cluster.controller |= COUNTS | DIGESTS
    cluster.snapshot()
    after = cluster.snapshot()
    proof = prove(warehouse, *(find_snapshot(warehouse, number) for number in (1, after)), is_rolled_back=True)
    assert proof.differences == []
    assert proof.unknown == [
        "/brokers/topics/orders before and after",
        "settings of broker 0 before",
        "settings of broker 0 after",
    ]


def test_topics_queued_for_deletion_may_be_gone(warehouse: Warehouse) -> None:
    cluster = Cluster(warehouse)
    cluster.topics = [topic("orders"), topic("clicks", deletion_requested=True)]
    cluster.partitions = {("orders", 0): partition([0]), ("clicks", 0): partition([1])}
    cluster.controller |= COUNTS | DIGESTS
    cluster.snapshot()

    proof = proved(cluster, drop_topic)

    assert (proof.differences, proof.deleted_topics, proof.is_proved) == ([], ["clicks"], True)


def test_a_topic_named_as_a_deleted_partition_is_kept(warehouse: Warehouse) -> None:
    cluster = Cluster(warehouse)
    cluster.topics = [topic("orders", deletion_requested=True), topic("orders-1", config={"retention.ms": "1"})]
    cluster.partitions = {("orders", 1): partition([0]), ("orders-1", 0): partition([1])}
    cluster.controller |= COUNTS | DIGESTS
    cluster.snapshot()

    proof = proved(
        cluster,
        lambda cluster: cluster.partitions.__delitem__(("orders", 1)),
        lambda cluster: cluster.topics.__delitem__(0),
        set_topic("orders-1", config={}),
    )

    assert [row.subject for row in proof.differences] == ["orders-1"]


@pytest.mark.parametrize(
    ("change", "code"), [(set_count(acls=3), 0), (set_count(acls=2), 10), (set_count(acls=None), 10)]
)
def test_the_exit_code_is_the_verdict(surveyor: Surveyor, cluster: Cluster, change: Change, code: int) -> None:
    cluster.controller["controller_epoch_version"] = None
    change(cluster)
    cluster.snapshot()
    ran = surveyor.run("migration", "prove", "1", "2")
    assert ran.exit_code == code, ran.stdout
    assert ("ACLs" in ran.stdout) == bool(code)


def test_what_was_none_before_need_not_be_known_after(cluster: Cluster) -> None:
    """Without an authorizer brokers of KRaft list no ACLs."""
    cluster.controller["acls"] = 0
    cluster.snapshot()
    cluster.controller |= {"controller_epoch_version": None, "acls": None}
    after = cluster.snapshot()

    assert prove(
        cluster.warehouse, find_snapshot(cluster.warehouse, 2), find_snapshot(cluster.warehouse, after)
    ).is_proved


@pytest.mark.parametrize("ids", [("1", "1"), ("2", "2"), ("2", "1")])
def test_snapshots_of_the_wrong_sources_are_refused(surveyor: Surveyor, cluster: Cluster, ids: tuple[str, str]) -> None:
    cluster.controller["controller_epoch_version"] = None
    cluster.snapshot()
    ran = surveyor.run("migration", "prove", *ids)
    assert (ran.exit_code, "BEFORE is a snapshot from ZooKeeper" in ran.stderr) == (2, True)


@pytest.mark.parametrize("ids", [("1", "1"), ("2", "1")])
@pytest.mark.parametrize("command", [("migration", "prove"), ("report", "--migration")])
def test_a_snapshot_that_is_not_newer_proves_nothing(
    surveyor: Surveyor, cluster: Cluster, tmp_path: Path, command: tuple[str, str], ids: tuple[str, str]
) -> None:
    cluster.snapshot()
    page = tmp_path / "proof.html"
    arguments = ids if command[0] == "migration" else (",".join(ids), "--out", str(page))

    ran = surveyor.run(*command, *arguments, "--rolled-back")

    assert ran.exit_code == 2
    assert f"AFTER, snapshot {ids[1]}, is not newer than BEFORE, snapshot {ids[0]}" in ran.stderr
    assert not page.exists()


def test_a_snapshot_of_the_migration_itself_is_none_before_it(surveyor: Surveyor, cluster: Cluster) -> None:
    """Nothing differs, and what the controller had changed earlier cannot be seen."""
    cluster.controller["migration"] = "/migration names KRaft controller 3000"
    cluster.snapshot()
    cluster.controller |= {"migration": None, "controller_epoch_version": None}
    cluster.snapshot()

    ran = surveyor.run("migration", "prove", "2", "3")

    assert ran.exit_code == 10
    assert "not known: what the migration had changed before snapshot 2: /migration names KRaft" in ran.stdout
    assert surveyor.run("migration", "prove", "1", "3").exit_code == 0


def test_a_rolled_back_migration_is_proved_in_zookeeper(surveyor: Surveyor, cluster: Cluster) -> None:
    """Only if the user says that it was rolled back; a snapshot from KRaft proves nothing then."""
    cluster.snapshot()
    cluster.controller["acls_digest"] = "d4"
    cluster.snapshot()
    cluster.controller |= {"acls_digest": "a1", "migration": "/migration names KRaft controller 3000"}
    cluster.snapshot()
    cluster.controller["controller_epoch_version"] = None
    cluster.snapshot()
    ran = [surveyor.run("migration", "prove", "1", after, "--rolled-back") for after in ("2", "3", "4", "5")]
    assert [done.exit_code for done in ran] == [0, 10, 10, 2]
    assert "not known: whether the rollback is complete: /migration names KRaft controller 3000" in ran[2].stdout
    assert surveyor.run("migration", "prove", "1", "2").exit_code == 2


LATER_EPOCHS = (
    "{present}, and {count} a later controller epoch: {named}. No leader can be elected there; a take-over with a "
    "later epoch repairs it: surveyor reconcile --apply"
)
SET_BACK = (
    "/controller_epoch is 6, earlier than controller epoch 7, the latest recorded one: brokers refuse the controller; "
    "a take-over with a later epoch repairs it: surveyor reconcile --apply"
)
NO_ELECTION: list[tuple[list[Change], list[str], list[str]]] = [
    ([set_partition(controller_epoch=7)], [], []),
    ([set_partition(controller_epoch=12)],
     [LATER_EPOCHS.format(present="/controller_epoch is 7", count="1 partition has", named="orders-0 (12)")], []),
    ([set_count(controller_epoch=0), set_partition(controller_epoch=7)],
     [LATER_EPOCHS.format(present="/controller_epoch is missing", count="1 partition has", named="orders-0 (7)")], []),
    ([set_count(controller_epoch=6), set_partition(controller_epoch=6)], [SET_BACK], []),
    ([set_count(controller_epoch=None)], [], ["the controller epoch in snapshot 2"]),
    ([set_count(controller_id=-1)],
     ["no broker is the controller, and no leader can be elected: start the brokers, then: surveyor doctor"], []),
    ([set_count(migration="/controller is persistent")], [],
     ["whether the rollback is complete: /controller is persistent"]),
]  # fmt: skip
"""Changes after the rollback, faults, and what is unknown."""


@pytest.mark.parametrize(("changes", "faults", "unknown"), NO_ELECTION)
def test_a_rolled_back_cluster_must_elect_leaders(
    surveyor: Surveyor, cluster: Cluster, changes: list[Change], faults: list[str], unknown: list[str]
) -> None:
    for change in changes:
        change(cluster)
    cluster.snapshot()

    ran = surveyor.run("migration", "prove", "1", "2", "--rolled-back", "--json")

    result = json.loads(ran.stdout)
    of_epochs = [row for row in result["differences"] if row["subject"] != "controller"]
    assert (result["faults"], result["unknown"], of_epochs) == (faults, unknown, [])
    assert (ran.exit_code, result["proved"]) == ((10, False) if faults or unknown else (0, True))


@pytest.mark.parametrize(("rack", "code"), [(None, 0), ("<b>r", 10)])
def test_the_report_is_for_an_auditor(
    surveyor: Surveyor, cluster: Cluster, tmp_path: Path, rack: str | None, code: int
) -> None:
    cluster.controller["controller_epoch_version"] = None
    cluster.brokers[0] = broker(0, 20, rack=rack)
    cluster.snapshot()
    page = tmp_path / "proof.html"

    ran = surveyor.run("report", "--migration", "1,2", "--out", str(page), "--json")

    result = json.loads(ran.stdout)
    text = page.read_text(encoding="utf-8")
    assert (ran.exit_code, result["proved"], result["bytes"]) == (code, code == 0, len(text.encode()))
    assert ("Everything that was compared is still there." in text) == (code == 0)
    assert ("<td>&lt;b&gt;r</td>" in text) == (code != 0)
    assert "<b>r" not in text


def entry(kind: str, subject: str, entries: int = 1, digest: str = "e1") -> Row:
    return {"kind": kind, "subject": subject, "entries": entries, "digest": digest}


def set_entries(*rows: Row) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.security = [*rows]

    return change


BEFORE = (entry("acl", "TOPIC orders (LITERAL)", 3), entry("quota", "user a"), entry("scram", "alice", 2))
AFTER_ENTRIES = [
    ([set_count(acls_digest="d4"), set_entries(entry("acl", "TOPIC orders (LITERAL)", 3, "f2"), *BEFORE[1:])],
     [("content", "ACLs of TOPIC orders (LITERAL)", "digest", "e1", "f2")]),
    ([set_count(acls=4), set_entries(entry("acl", "TOPIC new (LITERAL)"), *BEFORE)],
     [("count", "ACLs", "acls", 3, 4), ("content", "ACLs of TOPIC new (LITERAL)", "entries", None, 1)]),
    ([set_count(scram_credentials=1), set_entries(*BEFORE[:2], entry("scram", "alice", 1, "f2"))],
     [("count", "SCRAM credentials", "scram_credentials", 2, 1),
      ("content", "SCRAM credentials of alice", "entries", 2, 1)]),
    ([set_count(quotas_digest="d4"), set_entries(*BEFORE)], [("content", "quotas", "quotas_digest", "b2", "d4")]),
    ([set_entries(*BEFORE)], []),
]  # fmt: skip
"""What changes after the migration, and what is found. Only the total decides whether something differs."""


@pytest.mark.parametrize(("changes", "found"), AFTER_ENTRIES)
def test_differing_acls_and_the_like_are_named(cluster: Cluster, changes: list[Change], found: list[Any]) -> None:
    cluster.security = [*BEFORE]
    cluster.snapshot()
    cluster.controller["controller_epoch_version"] = None
    for change in changes:
        change(cluster)
    after = find_snapshot(cluster.warehouse, cluster.snapshot())
    assert prove(cluster.warehouse, find_snapshot(cluster.warehouse, 2), after).differences == found


def test_a_snapshot_without_entries_shows_that_the_content_differs(cluster: Cluster) -> None:
    """It was taken by a Surveyor without the table."""
    before = find_snapshot(cluster.warehouse, 1)
    before = replace(before, versions={key: value for key, value in before.versions.items() if key != "security"})
    cluster.controller |= {"controller_epoch_version": None, "acls_digest": "d4"}
    cluster.security = [*BEFORE]
    after = find_snapshot(cluster.warehouse, cluster.snapshot())
    proof = prove(cluster.warehouse, before, after)
    assert [(row.subject, row.column) for row in proof.differences] == [("ACLs", "acls_digest")]


@pytest.mark.parametrize(("digest", "code"), [("a1", 0), ("d4", 10)])
def test_the_report_says_that_a_migration_was_rolled_back(
    surveyor: Surveyor, cluster: Cluster, tmp_path: Path, digest: str, code: int
) -> None:
    cluster.controller["acls_digest"] = digest
    cluster.snapshot()
    page = tmp_path / "proof.html"

    ran = surveyor.run("report", "--migration", "1,2", "--rolled-back", "--out", str(page))

    text = page.read_text(encoding="utf-8")
    assert (ran.exit_code, "report of the rolled-back migration" in ran.stdout) == (code, True), ran.stderr
    assert ("to KRaft, rolled back</h1>" in text, "from KRaft" in text, "after, from ZooKeeper" in text) == (
        True,
        False,
        True,
    )
    assert ("Everything that was compared is still there." in text) == (code == 0)
    assert ("acls_digest" in text) == (code != 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--migration", "1"], "--migration 1: expected the ids of two snapshots"),
        (["--migration", "1,x"], "--migration 1,x: expected the ids of two snapshots"),
        (["--migration", "1,2", "--snapshot", "1"], "omit --plan and --snapshot"),
        (["--migration", "1,9"], "no snapshot 9"),
        (["--migration", "1,1"], "snapshot 1 is from ZooKeeper; BEFORE is a snapshot from ZooKeeper"),
        (["--rolled-back"], "add --migration BEFORE,AFTER"),
    ],
)
def test_other_ids_are_refused(
    surveyor: Surveyor, cluster: Cluster, tmp_path: Path, options: list[str], said: str
) -> None:
    assert cluster.warehouse.exists()
    ran = surveyor.run("report", *options, "--out", str(tmp_path / "proof.html"))
    assert (ran.exit_code, said in ran.stderr) == (2, True), ran.stderr
    assert not (tmp_path / "proof.html").exists()
