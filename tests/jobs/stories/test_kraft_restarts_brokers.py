"""Restarts of KRaft nodes: of controllers that are no brokers, and of combined nodes by the loop of the page.

No acks=all producer fails, and a quorum remains.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.kraft_controllers import SeparatedKRaftCluster
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.kafka.rolling_restarts import TOO_FEW, ImpatientTraffic, run_loop
from tests.jobs.support.rows.input_files import reassignment_file

UNSAFE, UNREADABLE = 23, 22
MAX_STATUS_SECONDS = 8.0
_REPLICAS = ("topic", "partition", "replicas")


@pytest.fixture
def cluster() -> Iterator[EmbeddedKRaftCluster]:
    with EmbeddedKRaftCluster(3, racks={1: "a", 2: "a", 3: "a"}, heap="320m") as running:
        yield running


@pytest.fixture
def surveyor(cluster: EmbeddedKRaftCluster, tmp_path: Path) -> Surveyor:
    return Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")


def test_controllers_that_are_no_brokers_restart_one_at_a_time(tmp_path: Path) -> None:
    """The quorum alone decides on them; the order of restarts has the brokers, and names the controllers.

    Brokers send the requests of a plan on to them.
    """
    with SeparatedKRaftCluster(controllers=3, brokers=2) as cluster:
        surveyor = Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")
        create_topics(AdminClient({"bootstrap.servers": cluster.bootstrap}), NewTopic("orders", 3, 2))
        controllers = [*cluster.controllers]

        def verdict(*nodes: int) -> Any:  # noqa: ANN401 - JSON
            return surveyor("whatif", "--restart", ",".join(map(str, nodes)), "--json").json

        def are_safe() -> bool:
            return all(verdict(node)["verdict"] == "safe" for node in controllers)

        assert eventually(are_safe)
        snapshot = surveyor.json("snapshot")
        leader = snapshot["controller_id"]
        assert leader in controllers
        (row,) = surveyor.warehouse.rows("snapshots")
        assert ([voter["voter_id"] for voter in row["voters"]], row["controller_epoch"]) == (
            controllers,
            snapshot["controller_epoch"],
        )
        assert [broker["broker_id"] for broker in surveyor.warehouse.rows("brokers")] == [*cluster.brokers]

        turned = {(t, p): [*reversed(replicas)] for t, p, replicas in surveyor.rows("partitions", *_REPLICAS)}
        file = reassignment_file(tmp_path, *((t, p, replicas) for (t, p), replicas in turned.items()))
        surveyor.json("plan", "reassign", "--reassignment-json-file", file, "--name", "turned")
        assert surveyor.json("commit", "turned", "--apply", "--yes", "--wait")["status"] == "committed"
        surveyor.json("snapshot")
        assert {(t, p): replicas for t, p, replicas in surveyor.rows("partitions", *_REPLICAS)} == turned

        followers = [node for node in controllers if node != leader]
        both = verdict(*followers)
        assert (both["verdict"], both["quorum"]["current"], both["quorum"]["needed"]) == ("unsafe", [leader], 2)
        order = surveyor.json("whatif", "--restart-order")
        assert [(row["broker_id"], row["is_controller"]) for row in order["rows"]] == [(1, False), (2, False)]
        listed = ", ".join(map(str, controllers))
        assert any(f"restart the controllers {listed} " in warning for warning in order["warnings"]), order["warnings"]

        cluster.controllers[leader].kill()
        assert eventually(lambda: surveyor.json("status")["controller_id"] in followers)
        assert eventually(lambda: all(verdict(node)["verdict"] != "safe" for node in followers))
        down = verdict(leader)
        assert (down["verdict"], down["brokers"][0]["is_live"]) == ("unknown", False)
        assert verdict(1)["verdict"] == "safe"
        found = {row["check"]: row for row in surveyor("doctor", "--json").json["findings"]}
        assert (found["quorum"]["state"], found["brokers"]["state"]) == ("warning", "fine")
        assert f"not up to date: {leader} (" in found["quorum"]["found"]
        refuse_without_quorum(cluster, surveyor, followers)
        cluster.controllers[leader].start()
        cluster.controllers[leader].wait_ready()
        assert eventually(are_safe)


def refuse_without_quorum(cluster: SeparatedKRaftCluster, surveyor: Surveyor, followers: list[int]) -> None:
    """Without a majority nothing that brokers report is known to be current: no snapshot, and a status in seconds."""
    lost = cluster.controllers[followers[0]]
    lost.kill()
    try:
        assert eventually(lambda: surveyor.json("status")["controller_id"] is None)  # the leader resigns after seconds
        began = time.monotonic()
        assert surveyor.json("status")["controller_id"] is None
        assert time.monotonic() - began < MAX_STATUS_SECONDS
        ran = surveyor("snapshot")
    finally:
        lost.start()
        lost.wait_ready()
    assert ran.code == UNREADABLE
    assert "no contact with the quorum's leader" in ran.stderr


def test_a_rolling_restart(cluster: EmbeddedKRaftCluster, surveyor: Surveyor, tmp_path: Path) -> None:
    """All nodes are in one rack."""
    new = NewTopic(
        "orders", 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], config={"min.insync.replicas": "2"}
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create_topics(admin, new)
    safe = [(0, "safe")] * 3

    def verdicts() -> list[tuple[int, str]]:
        ran = [surveyor("whatif", "--restart", str(node), "--json") for node in cluster.nodes]
        return [(done.code, done.json.get("verdict")) for done in ran]

    assert eventually(lambda: verdicts() == safe)
    leader = surveyor.json("status")["controller_id"]
    both = surveyor("whatif", "--restart", ",".join(str(node) for node in cluster.nodes if node != leader), "--json")
    quorum = both.json["quorum"]
    assert (both.code, quorum["needed"], quorum["current"]) == (UNSAFE, 2, [leader])
    assert [row["wave"] for row in surveyor.json("whatif", "--restart-order")["rows"]] == [1, 2, 3]
    expected = [*sorted(cluster.nodes.keys() - {leader}), leader]

    def act(action: str, node: int) -> None:
        if action == "stop":
            cluster.nodes[node].stop()
        else:
            cluster.nodes[node].start()
            cluster.nodes[node].wait_ready()

    with ImpatientTraffic(cluster.bootstrap, "orders") as traffic:
        asked = run_loop(
            "is_live == false",
            {"SURVEYOR_BOOTSTRAP_SERVERS": surveyor.hosts},
            surveyor,
            tmp_path,
            act,
        )
    assert asked == [(action, node) for node in expected for action in ("stop", "start")]
    assert TOO_FEW.isdisjoint(traffic.codes), traffic.failed
    assert traffic.acknowledged <= traffic.stored(3)
