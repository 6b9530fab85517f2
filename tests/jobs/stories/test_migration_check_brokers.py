"""`surveyor migration check` on real brokers of Kafka 3.9: nothing is in the way, until a broker is gone."""

from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import broker_in_control, create_topics, eventually, kafka_tree

pytestmark = pytest.mark.cluster(2)

COUNTED = (
    "0 ACLs of 0 resource patterns, 1 SCRAM credential, 0 quotas, 0 delegation tokens, dynamic configs of 0 brokers"
)


def _found(surveyor: Surveyor, code: int) -> dict[str, tuple[str, str]]:
    ran = surveyor("migration", "check", "--json")
    assert ran.code == code, ran.stdout
    return {row["check"]: (row["state"], row["found"]) for row in ran.json["findings"]}


def test_a_stock_cluster_may_migrate_until_a_broker_is_gone(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with kafka_tree(cluster) as tree:
        assert eventually(lambda: broker_in_control(tree))
    surveyor = Surveyor(cluster.zookeeper_server.connect, tmp_path / "warehouse")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    create_topics(admin, NewTopic("orders", 3, 2))
    credential = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pw")
    admin.alter_user_scram_credentials([credential])["alice"].result()

    found = _found(surveyor, 0)
    assert found == {
        "started": ("fine", "no KRaft controller has taken over"),
        "brokers": ("fine", "2 registered; no replica is on another one"),
        "release": ("fine", "3.9-IV0"),
        "protocol": ("fine", "inter.broker.protocol.version 3.9-IV0"),
        "topics": ("fine", "1 topic with 3 partitions"),
        "carried over": (
            "fine",
            COUNTED,
        ),
    }
    assert not surveyor.folder.exists()

    cluster.brokers[1].kill()
    gone = ("fault", "broker 1 is not registered and has 3 replicas: the migration waits for it")
    assert eventually(lambda: _found(surveyor, 10)["brokers"] == gone)
