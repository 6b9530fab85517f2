"""A real migration of Kafka 3.9 brokers from ZooKeeper to KRaft: checked before, proved after; losses are found."""

from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.migrating_cluster import migrating_cluster
from tests.jobs.support.kafka.real_cluster import broker_in_control, create_topics, eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.brokers


def _set_retention(admin: AdminClient, topic: str, milliseconds: str) -> None:
    entry = ConfigEntry("retention.ms", milliseconds, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def test_a_migration_is_checked_and_proved(tmp_path: Path) -> None:
    with migrating_cluster(2) as (cluster, stack):
        with connected(ZooKeeperEndpoint(cluster.zookeeper.connect)) as client:
            tree = KafkaTree(cluster.zookeeper.connect, client)
            assert eventually(lambda: broker_in_control(tree))
        zookeeper = Surveyor(cluster.zookeeper.connect, tmp_path / "warehouse")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        create_topics(admin, NewTopic("orders", 3, 2), NewTopic("clicks", 1, 2))
        credential = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password"
        )
        admin.alter_user_scram_credentials([credential])["alice"].result()
        _set_retention(admin, "orders", "3600000")
        assert zookeeper("migration", "check").code == 0
        before = zookeeper.json("snapshot")["snapshot_id"]

        cluster.add_controller(stack)
        cluster.let_brokers_migrate()
        checked = zookeeper("migration", "check", "--json")
        assert (checked.code, checked.json["findings"][0]["state"]) == (10, "fault")
        cluster.leave_zookeeper()

        kraft = Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")

        def proof() -> dict[str, object]:
            after = kraft.json("snapshot")["snapshot_id"]
            found: dict[str, object] = kraft("migration", "prove", str(before), str(after), "--json").json
            return found

        assert eventually(lambda: proof()["proved"] is True, 120), proof()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        _set_retention(admin, "orders", "7200000")
        admin.delete_topics(["clicks"])["clicks"].result()
        deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
        admin.alter_user_scram_credentials([deletion])["alice"].result()
        planted = {
            ("topic config", "orders", "retention.ms"),
            ("topic vanished", "clicks", "topic_id"),
            *(("partition vanished", "clicks-0", column) for column in ("replicas", "isr", "leader_epoch")),
            ("count", "SCRAM credentials", "scram_credentials"),
        }

        def found() -> set[tuple[str, str, str]]:
            rows = proof()["differences"]
            assert isinstance(rows, list)
            return {(row["what"], row["subject"], row["column"]) for row in rows}

        assert eventually(lambda: found() == planted, 60), found()
