"""Snapshots, plans and their commits on KRaft brokers of other versions, which answer other requests.

Topics are listed by other requests before 4.1 and partitions before 3.8, and before 4.0 no fenced broker is listed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.java.jars import OTHER_KRAFT_KAFKAS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.kraft_cluster import described
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.rows.input_files import reassignment_file

pytestmark = [pytest.mark.torture, pytest.mark.usefixtures("spark")]

APPLY: Final = ("--apply", "--yes")


OLDEST, *LATER = OTHER_KRAFT_KAFKAS


@pytest.fixture(params=[OLDEST, *(pytest.param(version, marks=pytest.mark.repeat) for version in LATER)])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedKRaftCluster]:
    with EmbeddedKRaftCluster(2, heap="320m", kafka_version=request.param) as running:
        yield running


def test_a_cluster_is_read_and_plans_are_carried_out(cluster: EmbeddedKRaftCluster, tmp_path: Path) -> None:
    surveyor = Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    create_topics(admin, NewTopic("orders", 2, replica_assignment=[[1], [2]], config={"retention.ms": "3600000"}))
    assert eventually(lambda: len(described(cluster, 1).partitions) == 2)

    def partitions() -> dict[tuple[str, int], tuple[int, list[int], list[int]]]:
        columns = ("topic", "partition", "leader", "replicas", "isr")
        rows = surveyor.rows("partitions", *columns)
        return {(topic, number): (leader, replicas, isr) for topic, number, leader, replicas, isr in rows}

    def carried_out(name: str, *question: str) -> None:
        surveyor.json("plan", *question, "--name", name)
        assert surveyor.json("commit", name, *APPLY, "--wait")["status"] == "committed"

    taken = surveyor.json("snapshot")
    assert (taken["partitions"], taken["quarantined"]) == (2, 0)
    assert partitions() == {key: row[:3] for key, row in described(cluster, 1).partitions.items()}
    targets = reassignment_file(tmp_path, ("orders", 0, [2, 1]), ("orders", 1, [2]))
    carried_out("move", "reassign", "--reassignment-json-file", targets)
    assert eventually(lambda: described(cluster, 1).partitions["orders", 0][:3] == (1, [2, 1], [1, 2]))
    carried_out("lead", "elect", "--preferred")
    carried_out("keep", "config", "--topic", "orders", "--set", "retention.ms=7200000")
    carried_out("grow", "expand", "--topic", "orders", "--partitions", "3")
    surveyor.json("snapshot")
    now = described(cluster, 1)
    assert now.partitions["orders", 0][:3] == (2, [2, 1], [1, 2])
    assert len(now.partitions) == 3
    assert {key: (leader, replicas, sorted(isr)) for key, (leader, replicas, isr) in partitions().items()} == {
        key: (row[0], row[1], sorted(row[2])) for key, row in now.partitions.items()
    }
    assert surveyor.rows("topics", "topic", "config") == [("orders", {"retention.ms": "7200000"})]
