"""`surveyor control --listen` as the only controller of brokers that ask it: stock brokers at their defaults, brokers
with TLS and passwords, and a rolling upgrade. No acknowledged record is lost in any of them.
"""

import base64
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography import x509
from scramp import ScramMechanism

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import LOOPBACK, free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import kafka_jars
from schemas.znodes import decode_assignment, encode_config
from tests.jobs.support.commands.control_process import (
    OURS,
    ControllerProcess,
    controller_id,
    running_controller,
    started_controller,
)
from tests.jobs.support.kafka.asked_cluster import PARTITIONS, TOPIC, Asked, asked
from tests.jobs.support.kafka.real_cluster import Flow, eventually, kafka_tree
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

USER, PASSWORD = "broker", "tr0ub4dor3"
SCRAM = "SCRAM-SHA-512"
MODULES = "org.apache.kafka.common.security"
LOGINS = {
    SCRAM: (f"{MODULES}.scram.ScramLoginModule", ""),
    "PLAIN": (f"{MODULES}.plain.PlainLoginModule", f' user_{USER}="{PASSWORD}"'),
}
"""Login modules of the brokers by mechanism, and the users that they accept."""
FEATURE = "/feature"


def test_controllers_follow_each_other(tmp_path: Path) -> None:
    """The active one is killed while a broker is down, its standby is replaced, and then Kafka's own follows."""
    standby, address = ("--standby",), f"{LOOPBACK}:{free_port()}"
    with EmbeddedCluster(3) as cluster, asked(cluster, tmp_path / "w", *standby) as story:
        with (
            Flow(cluster.bootstrap, TOPIC, PARTITIONS) as flow,
            waiting_controller(story.kafka, tmp_path / "w", "--standby", "--listen", address) as waiting,
        ):
            story.kill(1)
            story.wait_until(lambda: all(s.leader != 1 and 1 not in s.isr for s in story.states()))
            story.controller.kill()
            story.start(1)
            story.wait_until(lambda: controller_id(story.kafka) == OURS)  # a broker may be it in between
            assert "controllership taken over" in waiting.output
            third = f"{LOOPBACK}:{free_port()}"
            with running_controller(story.kafka, tmp_path / "w", "--replace", "--listen", third):
                assert eventually(lambda: "standing by again" in waiting.output)
                story.shut_down(2)
                story.start(2)
                waiting.process.send_signal(signal.SIGINT)
                waiting.process.wait(60)
            story.wait_until(lambda: controller_id(story.kafka) in cluster.brokers)
            story.shut_down(0)
            story.start(0)
        assert flow.failed == []


@contextmanager
def waiting_controller(kafka: KafkaTree, warehouse: Path, *options: str) -> Iterator[ControllerProcess]:
    """Run a standby until it waits."""
    with started_controller(kafka, warehouse, "standby.log", *options) as controller:
        assert eventually(lambda: "standing by:" in controller.output, 120), controller.output
        yield controller


def transact(bootstrap: str, name: str) -> None:
    """Commit a transaction: the producer's id comes from the controller if its broker has no more."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("ledger", name.encode())
    producer.commit_transaction(60)


def committed(bootstrap: str, count: int) -> set[str]:
    """Read the records of all committed transactions."""
    settings = {"group.id": "ledger", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([Position("ledger", 0, 0)])
    names, deadline = set[str](), time.monotonic() + 60
    while len(names) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            names.add((message.value() or b"").decode())
    consumer.close()
    return names


def test_stock_brokers_at_their_defaults(tmp_path: Path) -> None:
    """A broker dies and comes back, another shuts down and comes back, and topics are created by their first record."""
    with EmbeddedCluster(3) as cluster, asked(cluster, tmp_path / "w") as story:
        with Flow(cluster.bootstrap, TOPIC, PARTITIONS) as flow:
            story.kill(1)
            story.wait_until(lambda: all(s.leader != 1 and 1 not in s.isr for s in story.states()))
            transact(cluster.bootstrap, "while-one-is-dead")
            story.start(1)

            epochs = [state.leader_epoch for state in story.states()]
            led = [p for p, state in enumerate(story.states()) if state.leader == 2]
            story.shut_down(2)
            assert led
            assert {p for p, s in enumerate(story.states()) if s.leader == 2 or 2 in s.isr} == set()
            assert [s.leader_epoch for s in story.states()] == [epoch + 1 for epoch in epochs]
            story.start(2)

            for number in range(4):  # every few of them would get a replica on the controller
                producer = Producer({"bootstrap.servers": cluster.bootstrap})
                producer.produce(f"auto{number}", b"first")
                assert producer.flush(60) == 0
            transact(cluster.bootstrap, "at-the-end")
        assert flow.failed == []
        assert committed(cluster.bootstrap, 2) == {"while-one-is-dead", "at-the-end"}

        topics = story.kafka.client.get_children("/brokers/topics")
        assignments = [decode_assignment(story.kafka.client.get(f"/brokers/topics/{name}")[0]) for name in topics]
        assert OURS not in {
            b for assignment in assignments for replicas in assignment.partitions.values() for b in replicas
        }
        assert all(assignment.topic_id for assignment in assignments)
        assert story.kafka.client.exists(FEATURE)
        assert controller_id(story.kafka) == OURS
        assert "warning:" not in story.controller.output


def test_a_rolling_upgrade_of_the_protocol(tmp_path: Path) -> None:
    """From 2.6, where leaders write ISRs themselves, to 3.9, where they ask; one broker at a time."""
    old = {"inter.broker.protocol.version": "2.6"}
    with EmbeddedCluster(3, overrides=old) as cluster, asked(cluster, tmp_path / "w") as story:
        assert decode_assignment(story.kafka.client.get(f"/brokers/topics/{TOPIC}")[0]).topic_id is None
        with Flow(cluster.bootstrap, TOPIC, PARTITIONS) as flow:
            for broker in cluster.brokers:
                story.shut_down(broker)
                cluster.brokers[broker].overrides = {}
                story.start(broker)
        assert flow.failed == []

        def topic_id() -> str | None:
            return decode_assignment(story.kafka.client.get(f"/brokers/topics/{TOPIC}")[0]).topic_id

        story.wait_until(lambda: topic_id() is not None)  # all brokers know topic ids now
        story.kill(0)
        story.wait_until(lambda: all(0 not in state.isr for state in story.states()))
        story.start(0)  # its followers' leaders ask by the topic's id


class PasswordKafka(EmbeddedKafka):
    """CLIENTS in plain text; brokers speak with each other by passwords over TLS, and CONTROL wants a certificate."""

    certificates: Certificates
    mechanism: str

    def properties(self) -> dict[str, str]:
        protocols = {"CLIENTS": "PLAINTEXT", "INSIDE": "SASL_SSL", "CONTROL": "SSL"}
        login, users = LOGINS[self.mechanism]
        return {
            **super().properties(),
            "listeners": f"CLIENTS://{self.address},INSIDE://{LOOPBACK}:0,CONTROL://{LOOPBACK}:0",
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "inter.broker.listener.name": "INSIDE",
            "control.plane.listener.name": "CONTROL",
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "listener.name.inside.sasl.enabled.mechanisms": self.mechanism,
            f"listener.name.inside.{self.mechanism.lower()}.sasl.jaas.config": (
                f'{login} required username="{USER}" password="{PASSWORD}"{users};'
            ),
            "listener.name.control.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
        }


@dataclass
class Secured:
    """A cluster of such brokers, and what a controller needs for them."""

    cluster: EmbeddedCluster
    certificates: Certificates
    mechanism: str

    def listen_config(self, folder: Path) -> Path:
        """Write the file of `--listen-config`."""
        login = {f"sasl.plain.user.{USER}.password": PASSWORD} if self.mechanism == "PLAIN" else {}
        return write_properties(
            folder / "listen.properties",
            {
                "security.protocol": "SASL_SSL",
                "sasl.enabled.mechanisms": self.mechanism,
                **login,
                "ssl.certificate.location": str(self.certificates.client),
                "ssl.ca.location": str(self.certificates.ca),
                "ssl.client.auth": "required",
                "broker.principals": f"User:{USER};User:{_subject(self.certificates.server)}",
                "control.plane.listen": f"{LOOPBACK}:{free_port()}",
                "control.plane.security.protocol": "SSL",
            },
        )


@pytest.fixture
def secured(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Secured]:
    """Three such brokers in two racks; a password of SCRAM is in ZooKeeper before the first one starts."""
    running, mechanism = EmbeddedCluster(0), str(request.param)
    with running:
        certificates = Certificates.made_in(tmp_path / "certificates")
        if mechanism == SCRAM:
            with kafka_tree(running) as tree:
                _write_scram_user(tree)
        for broker_id in range(3):
            folder = running.folder / f"broker-{broker_id}"
            broker = PasswordKafka(running.zookeeper.connect, broker_id, folder, rack=f"rack-{broker_id % 2}")
            broker.certificates, broker.mechanism = certificates, mechanism
            broker.start()
            running.brokers[broker_id] = broker
        for started in running.brokers.values():
            started.wait_ready()
        yield Secured(running, certificates, mechanism)


def _write_scram_user(tree: KafkaTree) -> None:
    salt, stored, server, iterations = ScramMechanism(SCRAM).make_auth_info(PASSWORD, iteration_count=4096)
    parts = {"salt": salt, "stored_key": stored, "server_key": server}
    text = ",".join(f"{name}={_base64(value)}" for name, value in parts.items())
    tree.write(f"/config/users/{USER}", encode_config({SCRAM: f"{text},iterations={iterations}"}))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _subject(file: Path) -> str:
    pem = file.read_bytes()
    return x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :]).subject.rfc4514_string()


@pytest.mark.parametrize("secured", LOGINS, indirect=True)
def test_brokers_with_certificates_and_passwords(tmp_path: Path, secured: Secured) -> None:
    """ISRs are asked for at the control plane, by TLS; controlled shutdowns at the inter-broker listener, by SASL."""
    cluster, config = secured.cluster, secured.listen_config(tmp_path)
    with asked(cluster, tmp_path / "w", "--listen-config", str(config)) as story:
        with Flow(cluster.bootstrap, TOPIC, PARTITIONS) as flow:
            story.lose_and_shut_down()
        assert flow.failed == []
        brokers = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).brokers
        assert OURS not in brokers  # clients do not see it
        assert (
            "warning: clients of listener CLIENTS do not find the controller: kafka-topics" in story.controller.output
        )
        assert PASSWORD not in story.controller.output


@pytest.mark.parametrize("secured", ["PLAIN"], indirect=True)
def test_clients_with_a_listener_of_their_own(tmp_path: Path, secured: Secured) -> None:
    """Kafka's tools work there although brokers ask elsewhere, and topics are created although brokers have racks."""
    cluster, options = secured.cluster, ("--listen-config", str(secured.listen_config(tmp_path)))
    with asked(cluster, tmp_path / "w", *options, "--listen", f"CLIENTS://{LOOPBACK}:{free_port()}") as story:
        tools, topics = Tools(cluster.bootstrap), f"{TOOLS}.TopicCommand"
        tools.shown(topics, "--create", "--topic", "made", "--partitions", "2", "--replication-factor", "2")
        assert "PartitionCount: 2" in tools.shown(topics, "--describe", "--topic", "made")
        tools.shown(f"{TOOLS}.reassign.ReassignPartitionsCommand", "--list")
        election = ("--election-type", "preferred", "--all-topic-partitions")
        tools.shown(f"{TOOLS}.LeaderElectionCommand", *election)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        racks = {node.id: node.rack for node in admin.describe_cluster(request_timeout=30).result(60).nodes}
        assert racks == {0: "rack-0", 1: "rack-1", 2: "rack-0", OURS: "rack-0"}
        for number in range(4):
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            producer.produce(f"auto{number}", b"first")
            assert producer.flush(60) == 0
        assert OURS not in {
            b for n in range(4) for replicas in assignment(story, f"auto{n}").values() for b in replicas
        }
        with Flow(cluster.bootstrap, TOPIC, PARTITIONS) as flow:
            story.shut_down(2)
            story.start(2)
        assert flow.failed == []
        assert committed_group(cluster.bootstrap) == 0
        tools.shown(topics, "--delete", "--topic", "made")
        assert "do not find the controller" not in story.controller.output


TOOLS = "org.apache.kafka.tools"


@dataclass
class Tools:
    """Kafka's own command line tools, as Kafka 3.9.2 brings them."""

    bootstrap: str

    def run(self, tool: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run a tool; none may wait longer than a minute."""
        java = [str(find_java()), "-cp", ":".join(map(str, kafka_jars()))]
        command = [*java, tool, "--bootstrap-server", self.bootstrap, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def shown(self, tool: str, *options: str) -> str:
        """Run a tool that succeeds; return what it prints."""
        result = self.run(tool, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def test_kafkas_own_tools(tmp_path: Path) -> None:
    """Each does its work, or says why not, and no call ends by a time-out."""
    topics, moves = f"{TOOLS}.TopicCommand", f"{TOOLS}.reassign.ReassignPartitionsCommand"
    elections = f"{TOOLS}.LeaderElectionCommand"
    with EmbeddedCluster(3) as cluster, asked(cluster, tmp_path / "w") as story:
        tools = Tools(cluster.bootstrap)
        created = ("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "2")
        assert "Created topic made" in tools.shown(topics, *created, "--config", "retention.ms=5000")
        assert "topic made exists" in tools.run(topics, *created).stdout
        assert "PartitionCount: 2" in tools.shown(topics, "--describe", "--topic", "made")
        tools.shown(topics, "--alter", "--topic", "made", "--partitions", "3")
        assert "PartitionCount: 3" in tools.shown(topics, "--describe", "--topic", "made")

        # a follower takes a megabyte each 11 s, however low the rate, and all of it before it has heard of the throttle
        throttle(cluster, "made")
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(500):
            producer.produce("made", b"x" * 20_000, partition=0)
        assert producer.flush(60) == 0
        before = assignment(story, "made")
        [joining] = {0, 1, 2} - {*before[0]}
        target = [joining, before[0][1]]
        file = tmp_path / "moves.json"
        entry = {"topic": "made", "partition": 0, "replicas": target}
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        named = ("--reassignment-json-file", str(file))
        tools.shown(moves, *named, "--execute", "--throttle", "10000")
        assert "made-0" in tools.shown(moves, "--list")
        assert "made-0 is still in progress" in tools.shown(moves, *named, "--verify")
        tools.shown(moves, *named, "--cancel")  # answered once it has begun; it ends with the next AlterPartition
        story.wait_until(lambda: {*assignment(story, "made")[0]} == {*before[0]})
        tools.shown(moves, *named, "--execute")
        story.wait_until(lambda: "made-0 is completed" in tools.shown(moves, *named, "--verify"))

        tools.shown(elections, "--election-type", "preferred", "--all-topic-partitions")
        assert story.kafka.state("made").leader == joining
        assert "Valid replica already elected" in tools.shown(
            elections, "--election-type", "unclean", "--topic", "made", "--partition", "0"
        )
        users = ("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config")
        refused = tools.run("kafka.admin.ConfigCommand", *users, "SCRAM-SHA-256=[password=x]")
        assert "Surveyor is the controller, and does not change users" in refused.stdout + refused.stderr
        tools.shown(topics, "--delete", "--topic", "made")
        assert "made" not in tools.shown(topics, "--list").split()
        assert committed_group(cluster.bootstrap) == 0


def assignment(story: Asked, topic: str) -> Mapping[int, Sequence[int]]:
    return decode_assignment(story.kafka.client.get(f"/brokers/topics/{topic}")[0]).partitions


def throttle(cluster: EmbeddedCluster, topic: str) -> None:
    """Throttle the replicas of a topic; return once all brokers know, who take the topic's change before their own."""
    sides, admin = ("leader", "follower"), AdminClient({"bootstrap.servers": cluster.bootstrap})
    lists = {f"{side}.replication.throttled.replicas": "*" for side in sides}
    rates = {f"{side}.replication.throttled.rate": "10000" for side in sides}
    resources = [config(ResourceType.TOPIC, topic, lists)]
    resources += [config(ResourceType.BROKER, str(broker), rates) for broker in cluster.brokers]
    for resource in resources:
        admin.incremental_alter_configs([resource])[resource].result(60)

    def is_known_to(broker: int) -> bool:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        entries = admin.describe_configs([resource])[resource].result(60)
        return all(name in entries and entries[name].value == rate for name, rate in rates.items())

    assert all(eventually(lambda: is_known_to(broker)) for broker in cluster.brokers)  # noqa: B023 - waited for here


def config(kind: ResourceType, name: str, values: Mapping[str, str]) -> ConfigResource:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()]
    return ConfigResource(kind, name, incremental_configs=entries)


def committed_group(bootstrap: str) -> int:
    """Read with a consumer group, whose coordinator clients find through any broker; return the lag of a commit."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, b"last", partition=0)
    assert producer.flush(60) == 0
    deadline, message = time.monotonic() + 60, None
    while time.monotonic() < deadline and message is None:
        message = consumer.poll(1)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    [position] = consumer.committed([Position(TOPIC, message.partition() or 0)], timeout=30)
    consumer.close()
    return int(position.offset) - int(message.offset() or 0) - 1
