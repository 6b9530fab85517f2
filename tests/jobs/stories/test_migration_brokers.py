"""A real migration of Kafka 3.9 brokers from ZooKeeper to KRaft: checked, proved, changed, rolled back."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest

from jobs.adapters.embedded.migrating_cluster import CONTROLLER_ID, MigratingCluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.real_cluster import broker_in_control, create_topics, delete_topic, eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.brokers

CREDENTIAL = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password")


def _set_retention(admin: AdminClient, topic: str, milliseconds: str) -> None:
    entry = ConfigEntry("retention.ms", milliseconds, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def _set_quota(admin: KafkaAdminClient, entity: dict[str, str | None], rate: float) -> None:
    """Set the producer's rate of a user or client; kafka-python's Admin client has no quotas."""
    row = AlterClientQuotasRequest.EntryData
    parts = [row.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    quota = row.OpData(key="producer_byte_rate", value=rate, remove=False)
    request = AlterClientQuotasRequest(entries=[row(entity=parts, ops=[quota])], validate_only=False)
    (entry,) = admin._manager.run(admin._send_request_to_controller, request).entries  # noqa: SLF001
    assert entry.error_code == 0


def _acl(principal: str, pattern: ResourcePatternType) -> AclBinding:
    right = AclOperation.DESCRIBE_CONFIGS
    return AclBinding(ResourceType.TOPIC, "orders", pattern, principal, "*", right, AclPermissionType.ALLOW)


def _prepare(admin: AdminClient, bootstrap: str) -> None:
    """Create topics, a SCRAM credential, ACLs and quotas."""
    create_topics(admin, NewTopic("orders", 3, 2), NewTopic("clicks", 1, 2))
    admin.alter_user_scram_credentials([CREDENTIAL])["alice"].result()
    _set_retention(admin, "orders", "3600000")
    acls = [_acl("User:alice", ResourcePatternType.LITERAL), _acl("User:bob", ResourcePatternType.PREFIXED)]
    for created in admin.create_acls(acls).values():
        created.result()
    with KafkaAdminClient(bootstrap_servers=bootstrap) as quotas:
        entities: list[dict[str, str | None]] = [
            {"user": "al@ice"},
            {"user": None, "client-id": "c 1"},
            {"client-id": None},
        ]
        for entity in entities:
            _set_quota(quotas, entity, 2048.0)


def _change_during_migration(admin: AdminClient, bootstrap: str) -> None:
    """Change what a migration must not, some of it without a change of its number."""
    _set_retention(admin, "orders", "7200000")
    create_topics(admin, NewTopic("new", 1, 2))
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["alice"].result()
    _replace_acl(admin, of="User:alice", by="User:carol")
    with KafkaAdminClient(bootstrap_servers=bootstrap) as client:
        _set_quota(client, {"user": "al@ice"}, 4096.0)
        _reverse_replicas(client)


def _undo(admin: AdminClient, bootstrap: str) -> None:
    _set_retention(admin, "orders", "3600000")
    delete_topic(admin, "new")
    admin.alter_user_scram_credentials([CREDENTIAL])["alice"].result()
    _replace_acl(admin, of="User:carol", by="User:alice")
    with KafkaAdminClient(bootstrap_servers=bootstrap) as client:
        _set_quota(client, {"user": "al@ice"}, 2048.0)
        _reverse_replicas(client)


def _replace_acl(admin: AdminClient, *, of: str, by: str) -> None:
    (new,) = admin.create_acls([_acl(by, ResourcePatternType.LITERAL)]).values()
    new.result()
    any_of_it = AclOperation.ANY, AclPermissionType.ANY
    (gone,) = admin.delete_acls(
        [AclBindingFilter(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, of, "*", *any_of_it)]
    ).values()
    assert len(gone.result()) == 1


def _reverse_replicas(client: KafkaAdminClient) -> None:
    """Give orders-0 the replicas that it has, in reverse order."""
    (topic,) = client.describe_topics(["orders"])
    replicas = next(row["replica_nodes"] for row in topic["partitions"] if row["partition_index"] == 0)
    moved = TopicPartition("orders", 0)
    assert client.alter_partition_reassignments({moved: replicas[::-1]}) == {moved: None}


SIGN = f"/migration names KRaft controller {CONTROLLER_ID}"

CHANGED = {
    ("topic config", "orders", "retention.ms"),
    ("topic created", "new", "topic_id"),
    *(("partition created", "new-0", column) for column in ("replicas", "isr")),
    ("partition changed", "orders-0", "replicas"),
    ("count", "SCRAM credentials", "scram_credentials"),
    ("content", "SCRAM credentials of alice", "entries"),
    ("content", "ACLs of TOPIC orders (LITERAL)", "digest"),
    ("content", "quotas of user al@ice", "digest"),
}

VANISHED = {
    ("topic vanished", "clicks", "topic_id"),
    *(("partition vanished", "clicks-0", column) for column in ("replicas", "isr", "leader_epoch")),
}


@pytest.mark.first("migration: to KRaft and back")
def test_a_migration_is_checked_proved_changed_and_rolled_back(tmp_path: Path) -> None:
    """What was changed in KRaft is found there, and again after the rollback, as the controller wrote it to ZooKeeper.

    The migration that is completed is that of the demo (test_demo.py).
    """
    with MigratingCluster(2) as cluster:
        zookeeper = Surveyor(cluster.zookeeper_server.connect, tmp_path / "warehouse")
        _await_controller(cluster)
        _prepare(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}), cluster.bootstrap)
        assert zookeeper("migration", "check").code == 0
        before = zookeeper.json("snapshot")["snapshot_id"]

        def proof(surveyor: Surveyor, *options: str) -> Any:  # noqa: ANN401 - JSON
            after = surveyor.json("snapshot")["snapshot_id"]
            return surveyor("migration", "prove", str(before), str(after), *options, "--json").json

        kraft = Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")
        cluster.add_controller()
        assert zookeeper("migration", "check").code == 0
        cluster.enable_migration()
        cluster.restart_brokers()
        cluster.wait_until_copied()
        _has_started(zookeeper)
        cluster.leave_zookeeper()
        cluster.restart_brokers()
        _has_started(zookeeper)
        assert eventually(lambda: proof(kraft)["proved"] is True, 240), proof(kraft)
        _ask_about_restarts(kraft, cluster)

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        _change_during_migration(admin, cluster.bootstrap)

        def found(surveyor: Surveyor, *options: str) -> set[tuple[str, str, str]]:
            differences = proof(surveyor, *options)["differences"]
            return {(row["what"], row["subject"], row["column"]) for row in differences}

        assert eventually(lambda: found(kraft) == CHANGED), found(kraft)
        _undo(admin, cluster.bootstrap)

        for broker in cluster.brokers:  # a rollback begins with brokers of ZooKeeper, migration enabled
            broker.is_kraft = False
        cluster.restart_brokers()
        _has_started(zookeeper)
        assert proof(zookeeper, "--rolled-back")["unknown"] == [f"whether the rollback is complete: {SIGN}"]
        cluster.roll_back()
        _await_controller(cluster)
        assert eventually(lambda: zookeeper("migration", "check").code == 0)
        assert eventually(lambda: proof(zookeeper, "--rolled-back")["proved"] is True, 240)
        _report_rollback(zookeeper, before, tmp_path / "proof.html")
        # the earlier client may still look for the controller of KRaft, which is gone
        delete_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), "clicks")
        assert eventually(lambda: found(zookeeper, "--rolled-back") == VANISHED), found(zookeeper, "--rolled-back")


def _has_started(zookeeper: Surveyor) -> None:
    """The check finds that the migration has begun, and judges nothing else."""
    checked = zookeeper("migration", "check", "--json")
    found = [(row["check"], row["state"], row["found"]) for row in checked.json["findings"]]
    assert (checked.code, found) == (10, [("started", "fault", SIGN)])


def _report_rollback(zookeeper: Surveyor, before: int, page: Path) -> None:
    """Without --rolled-back the two snapshots prove nothing about KRaft."""
    ids = f"{before},{zookeeper.json('snapshot')['snapshot_id']}"
    report = ["report", "--migration", ids, "--out", str(page)]
    assert (zookeeper(*report).code, page.exists()) == (2, False)
    assert zookeeper(*report, "--rolled-back").code == 0
    text = page.read_text()
    assert "Everything that was compared is still there." in text
    assert "after, from ZooKeeper" in text


def _ask_about_restarts(kraft: Surveyor, cluster: MigratingCluster) -> None:
    """The leader of the quorum is a controller only: no broker comes last for it, and the quorum decides."""
    assert kraft.json("status")["controller_id"] == CONTROLLER_ID
    checked = {row["check"]: row for row in kraft("doctor", "--json").json["findings"]}
    assert (checked["quorum"]["state"], checked["brokers"]["state"]) == ("fine", "fine")
    assert f"leader {CONTROLLER_ID}" in checked["quorum"]["found"]
    order = kraft.json("whatif", "--restart-order")
    assert [row["broker_id"] for row in order["rows"]] == [broker.broker_id for broker in cluster.brokers]
    assert not any(row["is_controller"] or row["loses_quorum"] for row in order["rows"])
    assert any(f"restart the controllers {CONTROLLER_ID} " in warning for warning in order["warnings"])
    broker, controller = (kraft("whatif", "--restart", str(node), "--json").json for node in (0, CONTROLLER_ID))
    assert (broker["verdict"], broker["quorum"]) == ("safe", None)
    assert (controller["verdict"], controller["brokers"][0]["is_live"], controller["unread"]) == ("unsafe", True, [])
    assert (controller["quorum"]["needed"], controller["quorum"]["current"]) == (1, [])


def _await_controller(cluster: MigratingCluster) -> None:
    with connected(ZooKeeperEndpoint(cluster.zookeeper_server.connect)) as client:
        tree = KafkaTree(cluster.zookeeper_server.connect, client)
        assert eventually(lambda: broker_in_control(tree))
