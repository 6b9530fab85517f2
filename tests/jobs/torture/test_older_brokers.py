"""Batch mode and the resident controller on brokers of 2.4 to 2.8, and on current ones with the protocol of 2.4."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.java.jars import OLDER_KAFKAS, kafka_jars
from jobs.adapters.zookeeper.controllership import controllership
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.held_controllership import commit_held
from tests.jobs.support.kafka.asked_cluster import asked
from tests.jobs.support.kafka.controlled_cluster import TOPIC as ASKED
from tests.jobs.support.kafka.real_cluster import Traffic, broker_in_control, eventually, kafka_tree, topic_metadata
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.torture

OURS: Final = 2147483647
TOPIC, MADE = "orders", "made"
REPLICAS: Final = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}


def older_kafka(version: str) -> type[EmbeddedKafka]:
    """Return the broker of a version, at its own defaults."""

    class OlderKafka(EmbeddedKafka):
        @property
        def jars(self) -> list[Path]:
            return kafka_jars(version)

    return OlderKafka


KAFKAS: Final[Mapping[str, tuple[type[EmbeddedKafka], dict[str, str]]]] = {
    **{version: (older_kafka(version), {}) for version in OLDER_KAFKAS},
    "2.8.2 as 2.4": (older_kafka("2.8.2"), {"inter.broker.protocol.version": "2.4"}),
    "3.9.2 as 2.4": (EmbeddedKafka, {"inter.broker.protocol.version": "2.4"}),
}


@pytest.fixture(params=KAFKAS)
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    kind, overrides = KAFKAS[request.param]
    with EmbeddedCluster(0) as running:
        for broker_id in REPLICAS:
            folder = running.folder / f"broker-{broker_id}"
            running.brokers[broker_id] = kind(running.zookeeper_server.connect, broker_id, folder, overrides=overrides)
            running.brokers[broker_id].start()
        for broker in running.brokers.values():
            broker.wait_ready()
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as tree:
        assert eventually(lambda: broker_in_control(tree))
        new = NewTopic(TOPIC, len(REPLICAS), replica_assignment=list(REPLICAS.values()))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([new])[TOPIC].result()
        assert eventually(lambda: tree.client.exists(f"/brokers/topics/{TOPIC}/partitions/2/state") is not None)
        assert eventually(lambda: all(len(tree.state(TOPIC, partition).isr) == 3 for partition in REPLICAS))
        yield tree


def all_brokers_see(cluster: EmbeddedCluster, topic: str, leaders: list[int], isr: set[int]) -> bool:
    """Whether each running broker returns this metadata to its clients."""
    running = [broker for broker in cluster.brokers.values() if broker.is_running()]
    metadata = [topic_metadata(broker.address, topic) for broker in running]
    return all(
        [partitions[number][0] for number in sorted(partitions)] == leaders
        and all({*row[2]} == isr for row in partitions.values())
        for partitions in metadata
    )


def test_leaders_isrs_and_topics_are_changed(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    surveyor = Surveyor(kafka.hosts, tmp_path / "warehouse")
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        moves = store_plan(
            warehouse, kafka, [election(kafka, TOPIC, number, REPLICAS[number][1]) for number in REPLICAS]
        )
        moved = surveyor("commit", moves.plan_id, "--mode", "batch", "--apply", "--yes")
        assert moved.code == 0, moved.stderr
        assert "LeaderAndIsr accepted by brokers 0, 1, 2" in moved.stderr
        assert eventually(lambda: all_brokers_see(cluster, TOPIC, [1, 2, 0], {0, 1, 2}))

        made = [creation(MADE, number, replicas[:2], topic_id=None) for number, replicas in REPLICAS.items()]
        plan = store_plan(warehouse, kafka, made, [topic_creation(MADE, topic_id=None)])
        created = surveyor("commit", plan.plan_id, "--mode", "batch", "--apply", "--yes")
        assert created.code == 0, created.stderr
        assert eventually(
            lambda: [topic_metadata(it.address, MADE)[2][0] for it in cluster.brokers.values()] == [2, 2, 2]
        )

        with controllership(kafka.endpoint, OURS) as held:
            cluster.brokers[1].kill()
            cluster.brokers[1].expire()
            without: dict[str, Any] = {"isr_after": [0, 2], "leader_and_isr_to": [0, 2], "requires_dead": [1]}
            shrunk = [election(kafka, TOPIC, number, [2, 2, 0][number], **without) for number in REPLICAS]
            plan = store_plan(warehouse, kafka, shrunk)
            assert commit_held(surveyor, plan.plan_id, held).status == "committed"
            assert eventually(lambda: all_brokers_see(cluster, TOPIC, [2, 2, 0], {0, 2}))
        cluster.brokers[1].restart()
        assert eventually(lambda: all(len(kafka.state(TOPIC, number).isr) == 3 for number in REPLICAS))

    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged
    assert {row["error"] for row in warehouse.rows("answers")} == {0}


def test_they_ask_the_resident_controller(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """From 2.7 on they ask for ISRs, from 3.0 on for producer ids, and all of them before they shut down."""
    with asked(cluster, tmp_path) as story:
        with Traffic(cluster.bootstrap, ASKED) as traffic:
            story.lose_and_shut_down()
        assert traffic.failed == []
        assert "warning:" not in story.controller.output
