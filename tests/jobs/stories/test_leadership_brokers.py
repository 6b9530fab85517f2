"""Leadership on real brokers that are drained, killed and elected, with the oldest and newest way to change ISRs.

Producers with acks=all lose nothing, but for the unclean election, which loses at most what its plan said.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.controllership import Controllership, controllership
from jobs.adapters.zookeeper.znode_reads import read
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.held_controllership import commit_held
from tests.jobs.support.kafka.real_cluster import Traffic, broker_in_control, eventually, topic_metadata
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

B = 1
OLD = "2.6"
OURS = 2147483647
REPLICAS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}
WITHOUT_B = [{0: 0, 1: other, 2: 2} for other in (0, 2)]
"""The leaders once B leads nothing: which broker takes its partition depends on what they lead of other topics."""
BOTH = pytest.mark.parametrize("spoken", ["default", OLD], indirect=True)
"""For what is not the same with the older protocol."""


@pytest.fixture(scope="module", params=["default", pytest.param(OLD, marks=pytest.mark.repeat)])
def spoken(request: pytest.FixtureRequest) -> str:
    """At 2.6 leaders change ISRs in ZooKeeper themselves, at the default they ask the controller."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(spoken: str) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, overrides={"inter.broker.protocol.version": spoken} if spoken == OLD else {}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster, kafka: KafkaTree) -> str:
    """A topic of the test's own, created by Kafka's controller."""
    name = f"{request.node.originalname}.topic"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(name, num_partitions=len(REPLICAS), replica_assignment=list(REPLICAS.values()))
    admin.create_topics([new])[name].result()
    assert eventually(lambda: in_sync(kafka, name))
    assert eventually(lambda: everything_in_sync(kafka))
    return name


@BOTH
def test_topics_have_ids_where_brokers_know_of_them(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor
) -> None:
    cluster_surveyor.json("snapshot")
    by_hand = ":".join(map(str, REPLICAS[0]))
    plan = cluster_surveyor.json("plan", "assign", "--topic", "batch.topic", "--replica-assignment", by_hand)

    cluster_surveyor.json("commit", plan["plan_id"], "--mode", "batch", "--apply")

    older = "inter.broker.protocol.version" in cluster.brokers[0].overrides
    written = kafka.client.get("/brokers/topics/batch.topic")[0]
    assert (b"topic_id" in written, b'"version":2' in written) == (not older, older)
    errors = [row["error"] for row in cluster_surveyor.warehouse.rows("answers", ("topic", "=", "batch.topic"))]
    assert set(errors) <= {0}
    assert eventually(lambda: all(0 in topic_metadata(it.address, "batch.topic") for it in cluster.brokers.values()))


def in_sync(kafka: KafkaTree, topic: str) -> bool:
    paths = [f"/brokers/topics/{topic}/partitions/{partition}/state" for partition in REPLICAS]
    if not all(kafka.client.exists(path) for path in paths):
        return False
    return all(sorted(kafka.state(topic, partition).isr) == [0, 1, 2] for partition in REPLICAS)


def places(kafka: KafkaTree) -> dict[tuple[str, int], list[int]]:
    """The assigned brokers of all topics, also of earlier tests."""
    topics = kafka.client.get_children("/brokers/topics")
    return {(topic, partition): replicas for topic in topics for partition, replicas in orders(kafka, topic).items()}


def everything_in_sync(kafka: KafkaTree) -> bool:
    """An ISR that changes between a snapshot and the commit makes a row of the plan stale, whatever its topic."""
    return all({*replicas} == {*kafka.state(*place).isr} for place, replicas in places(kafka).items())


def leaders(kafka: KafkaTree, topic: str) -> dict[int, int]:
    return {partition: kafka.state(topic, partition).leader for partition in REPLICAS}


def orders(kafka: KafkaTree, topic: str) -> dict[int, list[int]]:
    return kafka.assignment(topic).partitions


def in_trouble(kafka: KafkaTree) -> dict[str, int]:
    """What ZooKeeper has, counted here and by nothing of Surveyor's."""
    live = set(map(int, kafka.client.get_children("/brokers/ids")))
    states = [(replicas, kafka.state(*place)) for place, replicas in places(kafka).items()]
    return {
        "offline": sum(state.leader not in live for _, state in states),
        "under-replicated": sum(not {*replicas} <= {*state.isr} for replicas, state in states),
        "partitions": len(states),
    }


def facts_everywhere(surveyor: Surveyor) -> list[dict[str, int]]:
    """The same as status, show, metrics and the page of the newest snapshot say it."""
    page = surveyor.folder / "page.html"
    surveyor.json("report", "--out", str(page))
    status = surveyor.json("status")
    shown = [
        len(surveyor.json("show", "partitions", *only)["rows"]) for only in (["--offline"], ["--under-replicated"], [])
    ]
    metrics = {row["name"]: row["value"] for row in surveyor.json("metrics")["samples"]}
    facts = {name: int(n) for n, name in re.findall(r"<strong>(\d+)</strong>([\w -]+)</li>", page.read_text())}
    return [
        {"offline": offline, "under-replicated": under_replicated, "partitions": partitions}
        for offline, under_replicated, partitions in (
            (status["offline"], status["under_replicated"], status["partitions"]),
            shown,
            [int(metrics[f"surveyor_{name}partitions"]) for name in ("offline_", "under_replicated_", "")],
            [facts[name] for name in ("partitions offline", "under-replicated", "partitions")],
        )
    ]


def committed(surveyor: Surveyor, *plan: str, mode: str = "auto") -> Any:  # noqa: ANN401
    """Take a snapshot, plan, see that a dry run writes nothing, and commit."""
    planned = surveyor.json("plan", *plan)
    done = surveyor.json("commit", planned["plan_id"], "--mode", mode, "--apply", "--yes")
    assert done["status"] == "committed", done
    return planned


def killed(cluster: EmbeddedCluster, client: Any, *brokers: int) -> None:  # noqa: ANN401 - kazoo is untyped
    for broker in brokers:
        cluster.brokers[broker].kill()
        cluster.brokers[broker].expire()
    for broker in brokers:
        assert eventually(lambda: read(client, f"/brokers/ids/{broker}").stat is None)  # noqa: B023 - waited for here


def holds(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something stays as it is for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.2)
    return True


def drained_under(held: Controllership, surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "drain", "--brokers", str(B), "--mode", "resident")
    assert commit_held(surveyor, plan["plan_id"], held).status == "committed"


def responses(surveyor: Surveyor, api: str, topic: str, epoch: int) -> list[tuple[int, int]]:
    """What broker B answered to the last requests of a controller: partition and error."""
    rows = surveyor.warehouse.rows("answers", ("api", "=", api), ("broker_id", "=", B))
    return sorted((r["partition"], r["error"]) for r in rows if (r["topic"], r["controller_epoch"]) == (topic, epoch))


@BOTH
def test_resident_drain_and_undrain_under_one_controllership(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, topic: str, spoken: str
) -> None:
    """The next cycle stops what the broker led before, and undrain starts it; once it registers again none is due."""
    with Traffic(cluster.bootstrap, topic) as traffic:
        with controllership(kafka.endpoint, OURS) as held:
            led = [place for place in places(kafka) if kafka.state(*place).leader == B]
            drained_under(held, cluster_surveyor)
            # it was not stopped where it led, and comes back into these ISRs
            assert spoken != OLD or eventually(lambda: all(B in kafka.state(*place).isr for place in led))
            drained_under(held, cluster_surveyor)
            assert holds(lambda: all(B not in kafka.state(topic, p).isr for p in REPLICAS), seconds=3)
            after = leaders(kafka, topic)
            undrain = cluster_surveyor.json("plan", "undrain", "--brokers", str(B))
            assert commit_held(cluster_surveyor, undrain["plan_id"], held).status == "committed"
            assert set(responses(cluster_surveyor, "LeaderAndIsr", topic, held.epoch)) == {(p, 0) for p in REPLICAS}
            assert spoken != OLD or eventually(lambda: everything_in_sync(kafka))
            drained_under(held, cluster_surveyor)
            killed(cluster, held.client, B)
            cluster.brokers[B].restart()
            cluster_surveyor.json("snapshot")
            assert cluster_surveyor.json("show", "drained")["rows"] == []
        assert eventually(lambda: broker_in_control(kafka))
        assert eventually(lambda: in_sync(kafka, topic))

    assert after in WITHOUT_B
    assert cluster_surveyor.json("show", "drained")["rows"] == []
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged


def test_clean_recovery_and_back_to_the_preferred(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, topic: str
) -> None:
    """The leader is killed while only Surveyor could elect another."""
    with Traffic(cluster.bootstrap, topic) as traffic:
        with controllership(kafka.endpoint, OURS) as held:
            killed(cluster, held.client, B)
            cluster_surveyor.json("snapshot")
            assert facts_everywhere(cluster_surveyor) == [in_trouble(kafka)] * 4
            plan = cluster_surveyor.json("plan", "recover")
            assert commit_held(cluster_surveyor, plan["plan_id"], held).status == "committed"
            elected = kafka.state(topic, 1)
        assert eventually(lambda: broker_in_control(kafka))
        cluster.brokers[B].restart()
        assert eventually(lambda: in_sync(kafka, topic))
        committed(cluster_surveyor, "elect", "--preferred", "--imbalance-threshold", "0", mode="admin")

    assert (elected.leader, elected.isr) == (2, [2, 0])
    assert leaders(kafka, topic) == {0: 0, 1: 1, 2: 2}
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged


def test_unclean_recovery_loses_at_most_what_the_plan_said(
    cluster: EmbeddedCluster, kafka: KafkaTree, cluster_surveyor: Surveyor, topic: str
) -> None:
    """Partition 0 of [0, 1, 2]: 1 falls behind first, then 2, then the leader 0 dies; Kafka would take 1, we take 2."""
    cluster_surveyor.json("snapshot")
    with Traffic(cluster.bootstrap, topic) as before:
        killed(cluster, kafka.client, 1)
        assert eventually(lambda: kafka.state(topic, 0).isr == [0, 2])
    cluster_surveyor.json("snapshot")
    killed(cluster, kafka.client, 2)
    assert eventually(lambda: kafka.state(topic, 0).isr == [0])
    cluster_surveyor.json("snapshot")
    with Traffic(cluster.bootstrap, topic, first=1_000_000) as at_risk:
        pass
    killed(cluster, kafka.client, 0)
    for broker in (1, 2):
        cluster.brokers[broker].start()
    for broker in (1, 2):
        cluster.brokers[broker].wait_ready()
    assert eventually(lambda: broker_in_control(kafka))
    # the last thing a fail-over of Kafka's controller writes: until then a plan is stale before it is committed
    assert eventually(lambda: kafka.state(topic, 0).leader == -1)

    assert cluster_surveyor.json("plan", "recover")["changes"] == 0
    plan = cluster_surveyor.json("plan", "recover", "--partition", f"{topic}-0")
    cluster_surveyor.json("commit", plan["plan_id"], "--apply", "--yes")
    elected = kafka.state(topic, 0)
    cluster.brokers[0].restart()
    assert eventually(lambda: in_sync(kafka, topic))

    assert (elected.leader, elected.isr[0]) == (2, 2)
    (reason,) = (row["reason"] for row in cluster_surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"])))
    assert "ranked: 2 (in sync until snapshot 2" in reason
    assert "1 (in sync until snapshot 1" in reason
    stored = before.stored(len(REPLICAS))
    assert stored >= before.acknowledged
    assert not stored >= at_risk.acknowledged, "what only broker 0 had is lost: the election was unclean"
