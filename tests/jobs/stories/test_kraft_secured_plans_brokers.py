"""Plans carried out on Kafka 4 without ZooKeeper, over TLS, with passwords of SCRAM and an authorizer.

The operator has the permissions that docs/kraft.md names, and no others; the auditor may read and change nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, untyped
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.java.jars import NEWER_KAFKA
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.kafka.planned_kafka import election
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.kafka.secured_kafka import PASSWORD, write_properties
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

pytestmark = pytest.mark.usefixtures("spark")

OPERATOR, AUDITOR = "operator", "auditor"
_READS = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
_RIGHTS: Final[dict[str, dict[Any, tuple[Any, ...]]]] = {
    OPERATOR: {
        ResourceType.BROKER: (*_READS, AclOperation.ALTER, AclOperation.ALTER_CONFIGS),
        ResourceType.TOPIC: (
            *(*_READS, AclOperation.CREATE, AclOperation.ALTER),
            *(AclOperation.ALTER_CONFIGS, AclOperation.DELETE),
        ),
    },
    AUDITOR: {ResourceType.BROKER: _READS, ResourceType.TOPIC: _READS, ResourceType.GROUP: (AclOperation.DESCRIBE,)},
}
"""Permissions on the cluster, and on all topics and groups."""

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
NODES = (1, 2)
APPLY = ("--apply", "--yes", "--json")


def _overrides(certificates: Certificates, inside: str, controller: str, outside: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{inside},CONTROLLER://{controller},SASL_SSL://{outside}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }


@dataclass(frozen=True, slots=True)
class Secured:
    """The cluster, and Surveyor as a user; the administrator is inside, without a password."""

    admin: AdminClient
    inside: str
    outside: str
    warehouse: Path
    files: Mapping[str, Path]

    def run(self, user: str, *arguments: str) -> Ran:
        surveyor = Surveyor(self.outside, self.warehouse, "--bootstrap-server")
        return surveyor(*arguments, "--command-config", str(self.files[user]))

    def json(self, *arguments: str) -> Any:  # noqa: ANN401
        ran = self.run(OPERATOR, *arguments, "--json")
        assert ran.code == 0, f"{arguments}: {ran.code}: {ran.stderr}{ran.stdout}"
        return ran.json

    def plan(self, name: str, *question: str) -> None:
        self.json("plan", *question, "--name", name)

    def carry_out(self, name: str, *question: str, options: tuple[str, ...] = ()) -> None:
        """Plan, commit and verify."""
        self.plan(name, *question)
        ran = self.run(OPERATOR, "commit", name, *options, *APPLY)
        assert (ran.code, ran.json["status"]) == (0, "committed"), ran
        assert eventually(lambda: self.json("verify", name)["complete"] >= 1), name

    def refused(self, name: str, *question: str) -> str:
        """Plan on the newest snapshot, and commit as the auditor; return what the commit says."""
        self.json("plan", *question, "--name", name)
        ran = self.run(AUDITOR, "commit", name, "--apply", "--yes")
        assert ran.code == 1, ran
        return ran.stdout + ran.stderr

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and replicas."""
        known = self.admin.list_topics(topic, timeout=90).topics[topic].partitions
        return {number: (row.leader, list(row.replicas)) for number, row in sorted(known.items())}

    def config(self, kind: str, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type[kind], name)
        (answer,) = self.admin.describe_configs([resource]).values()
        return {entry.name: entry.value for entry in answer.result().values() if entry.source in {1, 2}}


def _grant(admin: AdminClient) -> None:
    names = {ResourceType.BROKER: "kafka-cluster", ResourceType.TOPIC: "*", ResourceType.GROUP: "*"}
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    acls = [
        AclBinding(kind, names[kind], literal, f"User:{user}", "*", operation, allow)
        for user, rights in _RIGHTS.items()
        for kind, operations in rights.items()
        for operation in operations
    ]
    for created in admin.create_acls(acls).values():
        created.result()
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = [UserScramCredentialUpsertion(user, mechanism, PASSWORD.encode()) for user in _RIGHTS]
    for altered in admin.alter_user_scram_credentials([*users]).values():
        altered.result()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates.made_in(folder / "certificates")
    cluster = EmbeddedKRaftCluster(len(NODES), heap="320m", kafka_version=NEWER_KAFKA)
    outside = {node: f"{LOOPBACK}:{free_port()}" for node in NODES}
    for number, node in cluster.nodes.items():
        controller = f"{LOOPBACK}:{node.controller_port}"
        node.overrides |= _overrides(certificates, node.address, controller, outside[number])
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        _grant(admin)
        files = {
            user: write_properties(
                folder / f"{user}.properties",
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": user,
                    "sasl.password": PASSWORD,
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(certificates.ca),
                },
            )
            for user in _RIGHTS
        }

        def lets_in(user: str, address: str) -> bool:
            try:
                reading = KRaftCluster(address, Warehouse("none", "secured"), files[user]).read_driver_metadata(0)
            except SurveyorError:
                return False
            return not reading.metadata.quarantine and len(reading.metadata.live_brokers) == len(NODES)

        assert eventually(lambda: all(lets_in(user, address) for address in outside.values() for user in _RIGHTS))
        yield Secured(admin, cluster.bootstrap, ",".join(outside.values()), folder / "warehouse", files)


def _targets(folder: Path, topic: str, *replicas: list[int]) -> list[str]:
    file = reassignment_file(folder, *((topic, number, goal) for number, goal in enumerate(replicas)))
    return ["--reassignment-json-file", file]


def test_plans_are_carried_out_with_the_permissions_that_the_docs_name(secured: Secured, tmp_path: Path) -> None:
    secured.carry_out("make", "assign", "--topic", "work", "--replica-assignment", "1,1")
    secured.carry_out("extend", "expand", "--topic", "work", "--partitions", "3")
    secured.carry_out("configure", "config", "--topic", "work", "--set", "retention.ms=3600000")
    assert secured.config("TOPIC", "work") == {"retention.ms": "3600000"}

    goals = ([2], [2], [1, 2])
    secured.carry_out(
        "move", "reassign", *_targets(tmp_path, "work", *goals), options=("--wait", "--throttle", "50MB/s")
    )
    assert eventually(lambda: [replicas for _, replicas in secured.partitions("work").values()] == [*goals])
    assert eventually(lambda: not any(secured.config("BROKER", str(node)) for node in NODES))
    rolled = secured.json("rollback", "move", "--name", "back", "--apply", "--yes")
    assert rolled["status"] == "committed"
    assert eventually(lambda: [len(replicas) for _, replicas in secured.partitions("work").values()] == [1, 1, 1])

    with connected_admin(secured.inside.split(","), {}) as admin:
        assert admin.reassign({("work", 0): [1, 2]}) == {("work", 0): 0}
        assert eventually(lambda: not admin.reassignments())
        assert admin.reassign({("work", 0): [2, 1]}) == {("work", 0): 0}
    assert eventually(lambda: secured.partitions("work")[0] == (1, [2, 1]))
    secured.carry_out("lead", *election(tmp_path, "work"))
    assert eventually(lambda: secured.partitions("work")[0] == (2, [2, 1]))
    secured.carry_out("drain", "drain", "--brokers", "2", options=("--wait",))
    assert eventually(lambda: secured.partitions("work")[0] == (1, [1, 2]))
    secured.carry_out("undrain", "undrain", "--brokers", "2", options=("--wait",))

    secured.carry_out("remove", "delete", "--topics", "work")
    assert eventually(lambda: "work" not in secured.admin.list_topics(timeout=90).topics)


def test_a_sample_lacks_only_the_groups_that_may_not_be_described(secured: Secured) -> None:
    create_topics(secured.admin, NewTopic("read", 2, replica_assignment=[[1, 2], [2, 1]]))
    assert eventually(lambda: [leader for leader, _ in secured.partitions("read").values()] == [1, 2])
    producer = Producer({"bootstrap.servers": secured.inside})
    for number in range(7):
        producer.produce("read", b"record", partition=number % 2)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": secured.inside, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("read", 0, 4), TopicPartition("read", 1, 2)], asynchronous=False)
    consumer.close()
    warehouse = Surveyor(secured.outside, secured.warehouse, "--bootstrap-server").warehouse
    sampled = {}
    for user in (OPERATOR, AUDITOR):
        ran = secured.run(user, "load", "sample", "--json")
        assert ran.code == 0, ran
        result = ran.json
        assert [result[name] for name in ("missing", "silent", "refusals")] == [[], [], []]
        rows = {
            table: sorted(
                (row["partition"], row[offset])
                for row in warehouse.rows(table, ("topic", "=", "read"))
                if row["stored_at"].isoformat() == datetime.fromisoformat(result["stored_at"]).isoformat()
            )
            for table, offset in (("partition_offsets", "log_end"), ("group_offsets", "committed"))
        }
        sampled[user] = rows, {row["group_id"]: row["reason"] for row in result["missing_groups"]}
    ends, committed = [(0, 4), (1, 3)], [(0, 4), (1, 2)]
    rows, refused = sampled[OPERATOR]
    assert rows == {"partition_offsets": ends, "group_offsets": []}
    assert refused == {"readers": "GroupAuthorizationFailedError (30)"}
    assert sampled[AUDITOR] == ({"partition_offsets": ends, "group_offsets": committed}, {})


def test_a_principal_without_rights_learns_the_missing_operation(secured: Secured, tmp_path: Path) -> None:
    secured.carry_out("theirs", "assign", "--topic", "theirs", "--replica-assignment", "1:2")
    with connected_admin(secured.inside.split(","), {}) as admin:
        assert admin.reassign({("theirs", 0): [2, 1]}) == {("theirs", 0): 0}
    assert eventually(lambda: secured.partitions("theirs")[0] == (1, [2, 1]))
    secured.json("snapshot")
    needed = {
        "CREATE on the topic": ["assign", "--topic", "more", "--replica-assignment", "1"],
        "ALTER on the topic": ["expand", "--topic", "theirs", "--partitions", "2"],
        "ALTER_CONFIGS on the topic": ["config", "--topic", "theirs", "--set", "retention.ms=1"],
        "ALTER on the cluster": ["reassign", *_targets(tmp_path, "theirs", [1])],
        "DELETE on the topic": ["delete", "--topics", "theirs"],
    }
    said = {
        permission: secured.refused(f"refused{number}", *question)
        for number, (permission, question) in enumerate(needed.items())
    }
    said["elect: ALTER on the cluster"] = secured.refused("refused-election", *election(tmp_path, "theirs"))
    for permission, text in said.items():
        named = f"his client needs the permission {permission.removeprefix('elect: ')}"
        assert [line.count(named) for line in text.splitlines() if "the controller refused" in line] == [1], text
    assert secured.partitions("theirs") == {0: (1, [2, 1])}
