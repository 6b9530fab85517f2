"""Sizes on real brokers: reported, shown, balanced by; and a throttled move as `verify` sees it, from start to end."""

import os
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree

pytestmark = [
    pytest.mark.usefixtures("spark"),
    # small fetches, so that a throttled follower gets its bytes a few at a time
    pytest.mark.cluster(2, overrides={"replica.fetch.max.bytes": "32768"}),
]

RECORD = 20_000
RECORDS = {"big": 200, "middle": 60, "little": 20}
"""4 MB, 1.2 MB and 0.4 MB, all on broker 0."""

SLOW, QUICK = "100000", "100000000"
"""Bytes a second: the throttled move takes some 40 s, of which the test sees the beginning."""


@pytest.fixture(autouse=True, scope="module")
def filled(cluster: EmbeddedCluster) -> None:
    """A broker is the controller, and broker 0 has records in three topics."""
    with kafka_tree(cluster) as tree:
        assert eventually(lambda: broker_in_control(tree))
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics({topic: {"assignments": {0: [0]}} for topic in RECORDS})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    for topic, count in RECORDS.items():
        for _ in range(count):
            producer.produce(topic, os.urandom(RECORD))
    assert producer.flush(30) == 0
    admin.close()


def _throttle(cluster: EmbeddedCluster, topic: str, rate: str) -> None:
    """As kafka-reassign-partitions --throttle does, for all replicas of the topic."""
    sides = ("leader", "follower")
    rates: dict[str, Any] = {f"{side}.replication.throttled.rate": ("SET", rate) for side in sides}
    replicas: dict[str, Any] = {f"{side}.replication.throttled.replicas": ("SET", "*") for side in sides}
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker), dict(rates)) for broker in cluster.brokers]
    resources.append(ConfigResource(ConfigResourceType.TOPIC, topic, dict(replicas)))
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    for resource in resources:
        admin.alter_configs([resource], incremental=True, raise_on_unknown=False)
    admin.close()


def _copying(surveyor: Surveyor, plan: str, measured: str) -> Any:  # noqa: ANN401 - JSON
    return surveyor.json("verify", plan, "--measure", measured)["copying"]


def _moving(surveyor: Surveyor, plan: str) -> Any:  # noqa: ANN401 - JSON
    """The first look that sees bytes arrive: a throttled follower gets them by fits and starts."""
    looks = (_copying(surveyor, plan, "4s") for _ in range(6))
    return next(look for look in looks if look["seconds_left"])


def test_sizes_are_reported_and_balanced_and_a_move_is_watched(
    cluster: EmbeddedCluster, cluster_surveyor: Surveyor
) -> None:
    cluster_surveyor.json("snapshot")
    report = cluster_surveyor.json("sizes")
    assert (report["brokers"], report["silent"], report["failed_log_dirs"]) == (2, [], [])
    sizes = {row[0]: row[1] for row in cluster_surveyor.rows("sizes", "topic", "bytes")}
    assert {topic: size // RECORD for topic, size in sizes.items()} == RECORDS
    assert [row["bytes"] for row in cluster_surveyor.json("show", "sizes")["rows"]] == [sum(sizes.values())]
    assert [row["broker_id"] for row in cluster_surveyor.json("show", "sizes", "--topic", "big")["rows"]] == [0]

    disks = cluster_surveyor.rows("log_dirs", "broker_id", "total_bytes", "usable_bytes")
    assert {row[0] for row in disks} == {0, 1}
    assert all(0 < usable < total for _, total, usable in disks)
    assert cluster_surveyor.json("show", "sizes")["rows"][0]["usable_bytes"] > 0

    plan = cluster_surveyor.json("plan", "reassign", "--rebalance", "--by-size", "--topics", "big")
    assert (plan["moves"], plan["moves_bytes"]) == (1, sizes["big"])
    rest = sizes["middle"] + sizes["little"]
    assert plan["bytes_by_broker"] == {"0": [sum(sizes.values()), rest], "1": [0, sizes["big"]]}

    _throttle(cluster, "big", SLOW)
    cluster_surveyor.json("commit", plan["plan_id"], "--mode", "admin", "--apply")
    assert eventually(lambda: 0 < _copying(cluster_surveyor, plan["plan_id"], "0s")["bytes_done"] < sizes["big"])
    progress = _moving(cluster_surveyor, plan["plan_id"])
    (partition,), (broker,) = progress["partitions"], progress["brokers"]
    assert 0 < progress["bytes_done"] < progress["bytes_total"] == sizes["big"]
    assert (partition["topic"], partition["partition"], broker["broker_id"]) == ("big", 0, 1)
    assert 0 < partition["lag"] < RECORDS["big"]
    assert broker["seconds_left"] == progress["seconds_left"] < 600
    assert abs(partition["lag"] - (progress["bytes_total"] - progress["bytes_done"]) / RECORD) < 2
    shown = cluster_surveyor("verify", plan["plan_id"], "--measure", "0s").stdout
    assert "copying 1 replica: " in shown
    assert " of 3.8 MiB (" in shown
    assert "broker 1 receives 1 replica" in shown

    _throttle(cluster, "big", QUICK)
    assert eventually(
        lambda: bool(cluster_surveyor.json("verify", plan["plan_id"], "--measure", "0s")["is_complete"]), seconds=40
    )
    assert _copying(cluster_surveyor, plan["plan_id"], "3s") is None

    assert eventually(lambda: cluster_surveyor.json("sizes")["bytes"] == sum(sizes.values()))
    cluster.brokers[1].kill()
    report = cluster_surveyor.json("sizes")
    assert (report["brokers"], report["bytes"], [row["broker_id"] for row in report["silent"]]) == (1, rest, [1])
    kept = {(0, "middle"), (0, "little"), (1, "big")}
    assert set(cluster_surveyor.rows("sizes", "broker_id", "topic")) == kept
