"""Znodes that their ACL does not let us read: each is quarantined, and what does not rest on it is read as usual."""

from pathlib import Path
from typing import Final

import pytest
from kazoo.security import make_acl, make_digest_acl

from jobs.adapters.delta.warehouse import Warehouse
from jobs.snapshots.health import health_of
from schemas.enums import UNKNOWN_EPOCH, Outcome
from tests.jobs.support.commands.command_line import Surveyor as CommandLine
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.support.zookeeper.live_view import live_view

pytestmark = pytest.mark.usefixtures("spark")

REASON: Final = "its ACL does not let this client read it (NoAuth); name the brokers' user in --zookeeper-config"
ONLY_BROKERS: Final = [make_digest_acl("broker", "secret", all=True)]
UNREADABLE: Final = 22

# path, and the partitions that are not understood because of it
SINGLE_ZNODES: Final[dict[str, set[tuple[str, int]]]] = {
    "/brokers/topics/orders": {("orders", 0), ("orders", 1)},
    state_path("orders", 1): {("orders", 1)},
    "/config/topics/orders": set(),
    "/brokers/ids/1": set(),
    "/admin/reassign_partitions": set(),
    "/admin/preferred_replica_election": set(),
    "/admin/delete_topics": set(),
    "/isr_change_notification": set(),
    "/isr_change_notification/isr_change_0000000001": set(),
    "/log_dir_event_notification": set(),
    "/log_dir_event_notification/log_dir_event_0000000001": set(),
    "/config/brokers/1": set(),
    "/cluster/id": set(),
}
NOT_QUARANTINED: Final = {"/brokers/topics/orders/partitions", "/config/brokers", "/config/users", "/config/users/u"}
WHOLE_CLUSTER: Final = ("/controller", "/controller_epoch", "/brokers/ids", "/brokers/topics")


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    tree.add_topic("clicks", {0: [2, 0]})
    for path in {*SINGLE_ZNODES, *NOT_QUARANTINED}:
        if not tree.client.exists(path):
            tree.write(path, b"{}" if path.startswith("/config/") else b'{"version":1,"partitions":[]}')
    return Surveyor(tree.hosts, tmp_path / "warehouse")


@pytest.mark.parametrize(("path", "unknown"), SINGLE_ZNODES.items(), ids=SINGLE_ZNODES)
def test_one_forbidden_znode_is_quarantined(
    surveyor: Surveyor, tree: KafkaTree, path: str, unknown: set[tuple[str, int]]
) -> None:
    tree.client.set_acls(path, ONLY_BROKERS)

    surveyor.json("snapshot")

    quarantined = {
        row["path"]: (row["reason"][: len(REASON)], row["data"]) for row in surveyor.warehouse.rows("quarantine")
    }
    assert quarantined[path] == (REASON, None)
    partitions = surveyor.rows("partitions", "topic", "partition", "understood")
    assert {(topic, partition) for topic, partition, understood in partitions if not understood} == unknown
    assert len(partitions) == 3
    health = health_of(live_view(tree.endpoint), default_min_isr=1, threshold=0.1)
    assert (health.partitions, health.not_understood, health.live) == (3, len(unknown), [0, 1, 2])


@pytest.mark.parametrize("path", sorted(NOT_QUARANTINED))
def test_a_folder_that_only_brokers_list_costs_nothing_else(surveyor: Surveyor, tree: KafkaTree, path: str) -> None:
    tree.client.set_acls(path, ONLY_BROKERS)

    snapshot = surveyor("snapshot", "--json")

    assert (snapshot.code, snapshot.json["partitions"]) == (0, 3)
    assert path not in {row["path"] for row in surveyor.warehouse.rows("quarantine")}
    assert ("/config/brokers cannot be listed" in snapshot.stderr) == (path == "/config/brokers")
    assert live_view(tree.endpoint).partitions.num_rows == 3


@pytest.mark.parametrize("path", ["/config/brokers", "/config/brokers/1", "/config/topics/orders"])
def test_throttles_that_cannot_be_read_are_unknown(tree: KafkaTree, tmp_path: Path, path: str) -> None:
    """In a cluster with zookeeper.set.acl=true only brokers list /config/brokers."""
    tree.add_topic("orders", {0: [0, 1]})
    tree.write("/config/brokers/1", b'{"version":1,"config":{"leader.replication.throttled.rate":"7"}}')
    tree.write("/config/topics/orders", b'{"version":1,"config":{"leader.replication.throttled.replicas":"0:1"}}')
    surveyor = Surveyor(tree.hosts, tmp_path / "none")
    known = surveyor.json("status")
    tree.client.set_acls(path, ONLY_BROKERS)

    status, cancelled = surveyor.json("status"), surveyor.json("cancel", "--throttles")
    checks = {row["check"]: row for row in surveyor.json("doctor")["findings"]}
    shown = " ".join(surveyor("status").stdout.split())

    reason = "not understood" if path.startswith("/config/topics/") else REASON
    text = f"throttles set in {path} are unknown: {reason}"
    assert (known["throttled_brokers"], known["throttled_topics"], known["warnings"]) == (["1"], ["orders"], [])
    assert [len(output["warnings"]) for output in (status, cancelled)] == [1, 1]
    assert all(output["warnings"][0].startswith(text) for output in (status, cancelled))
    assert f"not known {text}" in shown
    assert (checks["throttles"]["state"], checks["throttles"]["found"].startswith(text)) == ("warning", True)
    assert status["quarantined"] == (path != "/config/brokers")


def test_no_throttle_is_known_where_none_can_be_read(tree: KafkaTree, tmp_path: Path) -> None:
    surveyor = Surveyor(tree.hosts, tmp_path / "none")
    before = surveyor("cancel", "--throttles")
    tree.write("/config/brokers/1", b"{}")
    tree.client.set_acls("/config/brokers", ONLY_BROKERS)

    assert (before.stdout, surveyor("cancel", "--throttles").stdout) == (
        "no throttle is set\n",
        "no throttle is known\n",
    )


@pytest.mark.parametrize("path", WHOLE_CLUSTER)
def test_what_everything_rests_on_must_be_readable(surveyor: Surveyor, tree: KafkaTree, path: str) -> None:
    tree.client.set_acls(path, ONLY_BROKERS)

    done = surveyor("status")

    denial = f"an ACL denies Surveyor permission to read {path} (NoAuth)"
    assert (done.code, denial in done.stderr) == (UNREADABLE, True)


def test_a_forbidden_broker_is_alive_and_unknown(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.client.set_acls("/brokers/ids/1", ONLY_BROKERS)

    surveyor.json("snapshot")

    rows = surveyor.rows("brokers", "broker_id", "broker_epoch", "understood", "host")
    assert [row for row in rows if row[0] == 1] == [(1, UNKNOWN_EPOCH, False, None)]


def test_a_forbidden_config_is_unknown(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.client.set_acls("/config/topics/orders", ONLY_BROKERS)

    surveyor.json("snapshot")

    rows = dict(surveyor.rows("topics", "topic", "config"))
    assert rows == {"orders": None, "clicks": {}}


def test_a_commit_leaves_out_what_it_cannot_read(warehouse: Warehouse, tree: KafkaTree) -> None:
    tree.add_topic("t", {partition: [0, 1, 2] for partition in range(3)})
    command = CommandLine(warehouse)
    plan = store_plan(warehouse, tree, [election(tree, "t", partition, leader=1) for partition in range(3)]).plan_id
    tree.client.set_acls(state_path("t", 1), [make_acl("world", "anyone", write=True)])

    done = command.apply(tree.hosts, plan)

    assert command.outcomes(plan) == {0: Outcome.APPLIED, 1: Outcome.STALE, 2: Outcome.APPLIED}
    assert f"{state_path('t', 1)} is not understood ({REASON}" in done.output
