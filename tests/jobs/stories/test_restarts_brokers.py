"""Rolling restarts of real brokers: what is called safe lets no acks=all producer fail, and what is refused does.

The loop of docs/restarts.md is run as the page shows it. In place of ssh it has a script that asks this test.
"""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually
from tests.jobs.support.kafka.rolling_restarts import TOO_FEW, ImpatientTraffic, run_loop
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.cluster(3, racks={0: "a", 1: "b", 2: "c"})

UNSAFE = 23


def make_topic(cluster: EmbeddedCluster, kafka: KafkaTree, name: str, min_isr: int) -> None:
    replicas = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    new = NewTopic(name, 3, replica_assignment=replicas, config={"min.insync.replicas": str(min_isr)})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[name].result()
    assert eventually(lambda: kafka.client.exists(f"/brokers/topics/{name}/partitions/2/state") is not None)
    assert eventually(lambda: all(len(kafka.state(name, partition).isr) == len(replicas) for partition in range(3)))


def epochs(kafka: KafkaTree) -> dict[int, int]:
    return {broker: kafka.client.exists(f"/brokers/ids/{broker}").czxid for broker in range(3)}


def rolling_restart(cluster: EmbeddedCluster, surveyor: Surveyor, folder: Path) -> list[int]:
    """Run the loop of the page; return the brokers that it restarted, in order."""
    address = {"SURVEYOR_ZOOKEEPER": surveyor.hosts}
    asked = run_loop("broker_epoch", address, surveyor, folder, lambda _, broker: cluster.brokers[broker].restart())
    return [broker for _, broker in asked]


def test_a_rolling_restart_and_one_that_is_refused(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, tmp_path: Path
) -> None:
    make_topic(cluster, kafka, "orders", min_isr=2)
    before, controller = epochs(kafka), cluster_surveyor.json("status")["controller_id"]
    expected = [*sorted({0, 1, 2} - {controller}), controller]
    shown = cluster_surveyor("whatif", "--restart-order", "--margin", "1")
    assert "even with full ISRs a restart leaves partitions below the margin" in shown.stdout, shown.stderr

    with ImpatientTraffic(cluster.bootstrap, "orders") as traffic:
        assert rolling_restart(cluster, cluster_surveyor, tmp_path) == expected
    assert TOO_FEW.isdisjoint(traffic.codes), traffic.failed
    assert traffic.acknowledged <= traffic.stored(3)
    assert all(epoch > before[broker] for broker, epoch in epochs(kafka).items())

    assert eventually(lambda: broker_in_control(kafka))
    make_topic(cluster, kafka, "tight", min_isr=3)
    refused = cluster_surveyor("whatif", "--restart", "1", "--json")
    assert refused.code == UNSAFE, refused.stdout
    assert {(row["topic"], row["code"], row["effect"]) for row in refused.json["rows"]} == {
        ("tight", "TOO_FEW_REPLICAS", "under_min_isr")
    }
    with ImpatientTraffic(cluster.bootstrap, "tight") as traffic:
        cluster.brokers[1].stop()
        assert eventually(lambda: not TOO_FEW.isdisjoint(traffic.codes))
        lagging = cluster_surveyor("whatif", "--restart", "2", "--json")
        assert {row["topic"]: row["code"] for row in lagging.json["rows"]} == {
            "orders": "TOO_FEW_IN_SYNC",
            "tight": "TOO_FEW_REPLICAS",
        }
        down = cluster_surveyor.json("whatif", "--restart-order")["rows"][0]
        assert (down["broker_id"], down["action"], down["check"]) == (1, "start", None)
        cluster.brokers[1].start()
        cluster.brokers[1].wait_ready()
        assert eventually(lambda: len(kafka.state("tight").isr) == len(cluster.brokers))
