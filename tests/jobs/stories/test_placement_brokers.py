"""The whole story of a cluster that grows and shrinks, on real brokers: a fourth is added, the first is removed, the
replication factor goes to three and back. A producer with acks=all and a consumer lose nothing. A broker dies that has
the only copy of some records: that is never moved, and all records exist when it is back.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.core.errors import ExitCode
from schemas.enums import NO_LEADER
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import Traffic, eventually
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

TOPIC: Final = "orders"
PARTITIONS: Final = 6
LOST: Final = "lost"
"""Its records are on DEAD alone, and it may elect uncleanly."""
KEPT: Final = "kept"
"""Another broker has its records, too."""
DEAD: Final = 2
RECORDS: Final = 100
MOVES_A_WAVE: Final = 2


def replicas(kafka: KafkaTree) -> dict[int, list[int]]:
    return kafka.assignment(TOPIC).partitions


def held(kafka: KafkaTree) -> list[int]:
    """How many replicas each broker holds, ascending."""
    return sorted(Counter(broker for brokers in replicas(kafka).values() for broker in brokers).values())


def led(kafka: KafkaTree) -> dict[int, int]:
    """The leader of each partition."""
    return {partition: kafka.state(TOPIC, partition).leader for partition in range(PARTITIONS)}


def preferred(kafka: KafkaTree) -> dict[int, int]:
    return {partition: brokers[0] for partition, brokers in replicas(kafka).items()}


def brought_about(surveyor: Surveyor, *question: str) -> dict[str, Any]:
    """Survey, plan in waves, commit to the end; the plan's result."""
    plan: dict[str, Any] = surveyor.json(
        "plan", "reassign", *question, "--topics", TOPIC, "--max-moves-per-broker", str(MOVES_A_WAVE)
    )
    done = surveyor.json("commit", plan["plan_id"], "--apply", "--wait")
    assert done["status"] == "committed", done
    assert surveyor.json("verify", plan["plan_id"])["is_complete"]
    return plan


def lead_as_preferred_again(kafka: KafkaTree, surveyor: Surveyor, folder: Path) -> None:
    """Reverse the order of two lists, which keeps their leaders; a plan without moves elects their first replicas."""
    reversed_lists = [(TOPIC, partition, replicas(kafka)[partition][::-1]) for partition in range(2)]
    plan = surveyor.json("plan", "reassign", "--reassignment-json-file", reassignment_file(folder, *reversed_lists))
    surveyor.json("commit", plan["plan_id"], "--apply", "--wait")
    assert led(kafka) != preferred(kafka)
    evened = brought_about(surveyor, "--rebalance")
    counts = Counter(led(kafka).values())
    assert (evened["moves"], led(kafka) == preferred(kafka)) == (0, True)
    assert evened["led_per_broker"][1] == [min(counts.values()), max(counts.values())] == [1, 2]


def test_a_cluster_grows_and_shrinks(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, tmp_path: Path
) -> None:
    made = cluster_surveyor.json(
        "plan", "assign", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "2"
    )
    cluster_surveyor.json("commit", made["plan_id"], "--mode", "admin", "--apply")
    last = f"/brokers/topics/{TOPIC}/partitions/{PARTITIONS - 1}/state"
    assert eventually(lambda: bool(kafka.client.exists(last)))

    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        cluster.add_broker(3)
        added = brought_about(cluster_surveyor, "--add-brokers", "3")
        assert (added["moves"], added["lower_bound"], held(kafka)) == (3, 3, [3, 3, 3, 3])
        assert led(kafka) == preferred(kafka)

        removed = brought_about(cluster_surveyor, "--remove-brokers", "0")
        assert (removed["moves"], held(kafka)) == (3, [4, 4, 4])
        assert all(0 not in brokers for brokers in replicas(kafka).values())
        assert led(kafka) == preferred(kafka)

        before = preferred(kafka)
        tripled = brought_about(cluster_surveyor, "--replication-factor", "3")
        assert (tripled["moves"], {len(brokers) for brokers in replicas(kafka).values()}) == (PARTITIONS, {3})
        assert preferred(kafka) == before

        halved = brought_about(cluster_surveyor, "--replication-factor", "2")
        assert (halved["moves"], {len(brokers) for brokers in replicas(kafka).values()}) == (0, {2})
        assert preferred(kafka) == before

        evened = brought_about(cluster_surveyor, "--rebalance")
        counts = Counter(led(kafka).values())
        assert (held(kafka), led(kafka) == preferred(kafka)) == ([3, 3, 3, 3], True)
        assert [min(counts.values()), max(counts.values()), len(counts)] == [1, 2, 4]
        assert evened["led_per_broker"] == [[0, 2], [1, 2]]
        evenness = cluster_surveyor.json("verify", evened["plan_id"])["evenness"]
        assert evenness["now"] == evenness["planned"] == {"replicas_per_broker": [3, 3], "led_per_broker": [1, 2]}
        lead_as_preferred_again(kafka, cluster_surveyor, tmp_path)

    assert traffic.failed == []
    assert traffic.stored(PARTITIONS) >= traffic.acknowledged
    assert cluster_surveyor.json("plan", "reassign", "--replication-factor", "2", "--topics", TOPIC)["changes"] == 0


def assigned(kafka: KafkaTree, topic: str) -> list[int]:
    return kafka.assignment(topic).partitions[0]


def stored(cluster: EmbeddedCluster, topic: str) -> list[int]:
    """Read a topic without a group, for which Kafka would make a topic of its own, whose replicas count here."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    values: list[int] = []

    def complete() -> bool:
        values.extend(int(record.value) for batch in consumer.poll(timeout_ms=500).values() for record in batch)
        return len(values) >= RECORDS

    eventually(complete)
    consumer.close()
    return values


@pytest.fixture
def lost_and_kept(cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor) -> Iterator[None]:
    """Both topics, with all records in each."""
    cluster_surveyor.json("snapshot")
    unclean = ("--config", "unclean.leader.election.enable=true")
    for topic, replicas in ((LOST, f"{DEAD}"), (KEPT, f"{DEAD}:1")):
        made = cluster_surveyor.json("plan", "assign", "--topic", topic, "--replica-assignment", replicas, *unclean)
        cluster_surveyor.json("commit", made["plan_id"], "--mode", "admin", "--apply")
        assert eventually(lambda: bool(kafka.client.exists(state_path(topic, 0))))  # noqa: B023 - waited for here
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        for topic in (LOST, KEPT):
            producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    yield
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for deleted in admin.delete_topics([LOST, KEPT]).values():
        deleted.result()  # a client that is gone before it was heard has deleted nothing
    assert eventually(lambda: not any(kafka.client.exists(f"/brokers/topics/{topic}") for topic in (LOST, KEPT)))


@pytest.mark.usefixtures("lost_and_kept")
def test_what_a_dead_broker_alone_has_is_not_moved_away(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, tmp_path: Path
) -> None:
    cluster.brokers[DEAD].kill()
    cluster.brokers[DEAD].expire()
    assert eventually(lambda: kafka.state(LOST).leader == NO_LEADER and kafka.state(KEPT).isr == [1])
    emptied = cluster_surveyor.json("plan", "reassign", "--remove-brokers", f"{DEAD}", "--topics", f"{LOST}|{KEPT}")
    (rejection,) = cluster_surveyor.warehouse.rows("rejections", ("plan_id", "=", emptied["plan_id"]))
    assert (emptied["moves"], rejection["topic"], rejection["code"]) == (1, LOST, "NO_LIVE_LEADER")
    replaced = cluster_surveyor.json("plan", "reassign", "--replace", f"{DEAD}=0", "--topics", LOST)
    assert (replaced["changes"], replaced["rejected"]) == (0, 1)
    file = tmp_path / "targets.json"
    file.write_text(json.dumps({"partitions": [{"topic": LOST, "partition": 0, "replicas": [0]}]}))
    assert cluster_surveyor("plan", "reassign", "--reassignment-json-file", str(file)).code == ExitCode.REFUSED

    done = cluster_surveyor.json("commit", emptied["plan_id"], "--apply", "--wait", "--max-wait", "60s")
    assert (done["status"], assigned(kafka, LOST), DEAD in assigned(kafka, KEPT)) == ("committed", [DEAD], False)

    for broker in (0, DEAD):  # a broker that comes back makes the controller look for leaders
        cluster.brokers[broker].restart()
    assert eventually(lambda: kafka.state(LOST).leader == DEAD)
    for topic in (LOST, KEPT):
        assert eventually(lambda: kafka.state(topic).leader != NO_LEADER)  # noqa: B023 - waited for here
        assert stored(cluster, topic) == list(range(RECORDS))
