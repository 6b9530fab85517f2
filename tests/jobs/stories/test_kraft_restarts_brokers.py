"""A rolling restart of a KRaft cluster by the loop of the page: no acks=all producer fails, and a quorum remains."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.kafka.rolling_restarts import TOO_FEW, ImpatientTraffic, run_loop

UNSAFE = 23


@pytest.fixture
def cluster() -> Iterator[EmbeddedKRaftCluster]:
    with EmbeddedKRaftCluster(3, racks={1: "a", 2: "a", 3: "a"}, heap="320m") as running:
        yield running


@pytest.fixture
def surveyor(cluster: EmbeddedKRaftCluster, tmp_path: Path) -> Surveyor:
    return Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")


def test_two_of_three_voters_may_not_restart_at_once(cluster: EmbeddedKRaftCluster, surveyor: Surveyor) -> None:
    """The cluster has no topic yet, so the quorum alone decides."""
    leader = surveyor.json("status")["controller_id"]
    both = ",".join(str(node) for node in cluster.nodes if node != leader)
    result = surveyor("whatif", "--restart", both, "--json")
    assert (result.code, result.json["rows"]) == (UNSAFE, [])
    assert (result.json["quorum"]["needed"], len(result.json["quorum"]["current"])) == (2, 1)
    waves = [row["wave"] for row in surveyor.json("plan", "restarts")["rows"]]
    assert waves == [1, 2, 3]


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
