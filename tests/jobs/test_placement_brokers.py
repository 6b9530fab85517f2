"""The whole story of a cluster that grows and shrinks, on real brokers: a fourth is added, the first is removed, the
replication factor goes to three and back. A producer with acks=all and a consumer lose nothing.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.embedded_cluster import EmbeddedCluster
from schemas.znodes import decode_assignment
from tests.jobs.commands import Surveyor
from tests.jobs.kafka_tree import KafkaTree
from tests.jobs.real_cluster import Traffic, broker_in_control, eventually, kafka_tree

pytestmark = pytest.mark.usefixtures("spark")

TOPIC: Final = "orders"
PARTITIONS: Final = 6
MOVES_A_WAVE: Final = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as running:
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as tree:
        assert eventually(lambda: broker_in_control(tree))
        yield tree


@pytest.fixture
def surveyor(kafka: KafkaTree, tmp_path: Path) -> Surveyor:
    return Surveyor(kafka.hosts, tmp_path / "warehouse")


def replicas(kafka: KafkaTree) -> dict[int, list[int]]:
    return decode_assignment(kafka.client.get(f"/brokers/topics/{TOPIC}")[0]).partitions


def held(kafka: KafkaTree) -> list[int]:
    """How many replicas each broker holds, ascending."""
    return sorted(Counter(broker for brokers in replicas(kafka).values() for broker in brokers).values())


def brought_about(surveyor: Surveyor, *question: str) -> dict[str, Any]:
    """Survey, plan in waves, commit to the end; the plan's result."""
    surveyor.json("snapshot")
    plan: dict[str, Any] = surveyor.json(
        "plan", "reassign", *question, "--topics", TOPIC, "--max-moves-per-broker", str(MOVES_A_WAVE)
    )
    done = surveyor.json("commit", plan["plan_id"], "--apply", "--wait")
    assert done["status"] == "committed", done
    assert surveyor.json("verify", plan["plan_id"])["is_complete"]
    return plan


def test_a_cluster_grows_and_shrinks(cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor) -> None:
    surveyor.json("snapshot")
    made = surveyor.json(
        "plan", "assign", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "2"
    )
    surveyor.json("commit", made["plan_id"], "--mode", "admin", "--apply")
    last = f"/brokers/topics/{TOPIC}/partitions/{PARTITIONS - 1}/state"
    assert eventually(lambda: bool(kafka.client.exists(last)))

    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        cluster.add_broker(3)
        added = brought_about(surveyor, "--add-brokers", "3")
        assert (added["moves"], added["lower_bound"], held(kafka)) == (3, 3, [3, 3, 3, 3])

        removed = brought_about(surveyor, "--remove-brokers", "0")
        assert (removed["moves"], held(kafka)) == (3, [4, 4, 4])
        assert all(0 not in brokers for brokers in replicas(kafka).values())

        led = {partition: brokers[0] for partition, brokers in replicas(kafka).items()}
        tripled = brought_about(surveyor, "--replication-factor", "3")
        assert (tripled["moves"], {len(brokers) for brokers in replicas(kafka).values()}) == (PARTITIONS, {3})
        assert {partition: brokers[0] for partition, brokers in replicas(kafka).items()} == led

        halved = brought_about(surveyor, "--replication-factor", "2")
        assert (halved["moves"], {len(brokers) for brokers in replicas(kafka).values()}) == (0, {2})
        assert {partition: brokers[0] for partition, brokers in replicas(kafka).items()} == led

    assert traffic.failed == []
    assert traffic.stored(PARTITIONS) >= traffic.acknowledged
    surveyor.json("snapshot")
    assert surveyor.json("plan", "reassign", "--replication-factor", "2", "--topics", TOPIC)["changes"] == 0
