"""`surveyor control --listen` as the only controller of brokers that ask it: stock brokers at their defaults, brokers
with TLS and passwords, and a rolling upgrade. No acknowledged record is lost in any of them.
"""

import base64
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import pack
from types import MappingProxyType

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from scramp import ScramMechanism

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.cluster_state import read_brokers
from jobs.core.addresses import LOOPBACK
from schemas.znode_codecs import encode_config
from tests.jobs.support.commands.control_process import (
    OURS,
    ControllerProcess,
    controller_id,
    idle_controller,
    running_controller,
    started_controller,
)
from tests.jobs.support.kafka.asked_cluster import AskedCluster, asked
from tests.jobs.support.kafka.controlled_cluster import PARTITIONS, TOPIC
from tests.jobs.support.kafka.hostile_clients import hostile_clients, listener_port, megabytes
from tests.jobs.support.kafka.kafka_tools import ELECTIONS, MOVES, TOPICS, Tools, java_login
from tests.jobs.support.kafka.real_cluster import Flow, eventually, kafka_tree, throttle
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Hold, ZooKeeperProxy

USER, PASSWORD = "broker", "tr0ub4dor3"
ALICE, GUEST = "alice", "guest"
"""Users of clients: ZooKeeper has the password of the first, and brokers that of the second."""
SCRAM = "SCRAM-SHA-512"
MODULES = "org.apache.kafka.common.security"
LOGINS = {
    SCRAM: (f"{MODULES}.scram.ScramLoginModule", ""),
    "PLAIN": (f"{MODULES}.plain.PlainLoginModule", f' user_{USER}="{PASSWORD}"'),
}
"""Login modules of the brokers by mechanism, and the users that they accept."""
FEATURE = "/feature"
FENCED = 20
MAX_MEGABYTES = 600
BAD_VERSION = pack(">i", -103)
"""ZooKeeper's error code, in a response."""


def test_controllers_follow_each_other(tmp_path: Path) -> None:
    """The active one is killed while a broker is down, and one of two standbys follows it. That one is replaced, its
    successor stops in the midst of an AlterPartition, a standby follows again, and then Kafka's own.
    """
    with EmbeddedCluster(3) as cluster, asked(cluster, tmp_path, "--standby") as story, ExitStack() as stack:
        with Flow(cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            standbys = [stack.enter_context(waiting_controller(story.kafka, tmp_path / "w", n)) for n in range(2)]
            story.kill(1)
            story.wait_until(lambda: all(s.leader != 1 and 1 not in s.isr for s in story.states()))
            story.controller.kill()
            story.start(1)
            story.wait_until(lambda: controller_id(story.kafka) == OURS)  # a broker may be it in between
            [winner] = [standby for standby in standbys if "controllership taken over" in standby.output]
            with ZooKeeperProxy(story.kafka.hosts) as proxy:
                through_proxy = KafkaTree(proxy.hosts.rstrip("/"), story.kafka.client)
                options = ("--replace", "--listen", f"{LOOPBACK}:{free_port()}")
                with running_controller(through_proxy, tmp_path / "w", *options) as third:
                    assert eventually(lambda: "standing by again" in winner.output)
                    story.shut_down(2)
                    story.wait_until(lambda: all(2 not in state.isr for state in story.states()))
                    stop_in_alter_partition(story, third, proxy)
                    assert third.process.wait(60) == FENCED
            for standby in standbys:
                standby.process.send_signal(signal.SIGINT)
                standby.process.wait(60)
            story.wait_until(lambda: controller_id(story.kafka) in cluster.brokers)
            story.shut_down(0)
            story.start(0)
        assert flow.failed == []


def stop_in_alter_partition(story: AskedCluster, active: ControllerProcess, proxy: ZooKeeperProxy) -> None:
    """Start broker 2, and stop the active controller when its write of an ISR is on its way to ZooKeeper.

    A standby takes over in the meantime. The write is refused by the fence although its session lives, and the leader
    gets its answer from the new controller.
    """
    hold = proxy.hold(
        Hold(
            lambda op, frame: op == MULTI and f"/topics/{TOPIC}/partitions/".encode() in frame,
            lambda: active.process.send_signal(signal.SIGSTOP),
        )
    )
    story.cluster.brokers[2].start()
    assert hold.held.wait(60)
    before = int(story.kafka.client.get("/controller_epoch")[0])
    with idle_controller(story.kafka):  # the standbys take over from it
        story.wait_until(lambda: controller_id(story.kafka) == OURS)
    hold.released.set()
    assert hold.answered.wait(60)
    assert BAD_VERSION in hold.response
    active.process.send_signal(signal.SIGCONT)
    story.wait_until(story.is_whole)
    assert {state.controller_epoch for state in story.states() if 2 in state.isr} == {before + 2}


@contextmanager
def waiting_controller(kafka: KafkaTree, warehouse: Path, number: int) -> Iterator[ControllerProcess]:
    """Run a standby until it waits."""
    options = ("--standby", "--listen", f"{LOOPBACK}:{free_port()}")
    with started_controller(kafka, warehouse, f"standby-{number}.log", *options) as controller:
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
    names, deadline = set[str](), time.monotonic() + 180
    while len(names) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            names.add((message.value() or b"").decode())
    consumer.close()
    return names


def test_stock_brokers_at_their_defaults(tmp_path: Path) -> None:
    """A broker dies and comes back, another shuts down and comes back, and topics are created by their first record.

    Then the same happens while hostile clients attack, and Kafka's own tools do their work.
    """
    with EmbeddedCluster(3) as cluster, asked(cluster, tmp_path) as story:
        with Flow(cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
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
            assert committed(cluster.bootstrap, 2) == {"while-one-is-dead", "at-the-end"}

            topics = story.kafka.client.get_children("/brokers/topics")
            assignments = [story.kafka.assignment(name) for name in topics]
            assert OURS not in {
                b for assignment in assignments for replicas in assignment.partitions.values() for b in replicas
            }
            assert all(assignment.topic_id for assignment in assignments)
            assert story.kafka.client.exists(FEATURE)
            assert controller_id(story.kafka) == OURS
            # The first record created ledger with one replica, which may be on the broker that stopped.
            warnings = [line for line in story.controller.output.splitlines() if "warning:" in line]
            assert [line for line in warnings if "warning: ledger-0: no in-sync replica is live" not in line] == []
            with hostile_clients(listener_port(story)):
                story.lose_and_shut_down()
        assert flow.failed == []
        assert megabytes(story.controller.process.pid) < MAX_MEGABYTES
        assert "Traceback" not in story.controller.output
        kafkas_own_tools_do_their_work(story, tmp_path)


def test_a_rolling_upgrade_of_the_protocol(tmp_path: Path) -> None:
    """From 2.6, where leaders write ISRs themselves, to 3.9, where they ask; one broker at a time."""
    old = {"inter.broker.protocol.version": "2.6"}
    with EmbeddedCluster(3, overrides=old) as cluster, asked(cluster, tmp_path) as story:
        assert story.kafka.assignment(TOPIC).topic_id is None
        with Flow(cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            for broker in cluster.brokers:
                story.shut_down(broker)
                cluster.brokers[broker].overrides = {}
                story.start(broker)
        assert flow.failed == []

        def topic_id() -> str | None:
            return story.kafka.assignment(TOPIC).topic_id

        story.wait_until(lambda: topic_id() is not None)  # all brokers know topic ids now
        story.kill(0)
        story.wait_until(lambda: all(0 not in state.isr for state in story.states()))
        story.start(0)  # its followers' leaders ask by the topic's id


class PasswordKafka(EmbeddedKafka):
    """Brokers speak with each other by passwords over TLS, and CONTROL wants a certificate.

    The others are for clients: CLIENTS in plain text, USERS with passwords over TLS, and TLS.
    """

    certificates: Certificates
    mechanism: str

    def properties(self) -> dict[str, str]:
        protocols = {"CLIENTS": "PLAINTEXT", "INSIDE": "SASL_SSL", "CONTROL": "SSL", "USERS": "SASL_SSL", "TLS": "SSL"}
        addresses = [f"{name}://{LOOPBACK}:0" for name in protocols if name != "CLIENTS"]
        login, users = LOGINS[self.mechanism]
        return {
            **super().properties(),
            "listeners": ",".join([f"CLIENTS://{self.address}", *addresses]),
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "inter.broker.listener.name": "INSIDE",
            "control.plane.listener.name": "CONTROL",
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "listener.name.inside.sasl.enabled.mechanisms": self.mechanism,
            f"listener.name.inside.{self.mechanism.lower()}.sasl.jaas.config": (
                f'{login} required username="{USER}" password="{PASSWORD}"{users};'
            ),
            "listener.name.control.ssl.client.auth": "required",
            "listener.name.users.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
            "listener.name.users.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{GUEST}="{PASSWORD}";'
            ),
            f"listener.name.users.{SCRAM.lower()}.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
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

    def listen_config(self, folder: Path, of_clients: Mapping[str, str] = MappingProxyType({})) -> Path:
        """Write the file of `--listen-config`, with settings of clients."""
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
                **of_clients,
            },
        )


@pytest.fixture
def secured(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Secured]:
    """Three such brokers in two racks; a password of SCRAM is in ZooKeeper before the first one starts."""
    running, mechanism = EmbeddedCluster(0), str(request.param)
    with running:
        certificates = Certificates.made_in(tmp_path / "certificates")
        with kafka_tree(running) as tree:
            for user in (USER, ALICE):
                _write_scram_user(tree, user)
        for broker_id in range(3):
            folder = running.folder / f"broker-{broker_id}"
            broker = PasswordKafka(running.zookeeper_server.connect, broker_id, folder, rack=f"rack-{broker_id % 2}")
            broker.certificates, broker.mechanism = certificates, mechanism
            broker.start()
            running.brokers[broker_id] = broker
        for started in running.brokers.values():
            started.wait_ready()
        yield Secured(running, certificates, mechanism)


def _write_scram_user(tree: KafkaTree, user: str) -> None:
    salt, stored, server, iterations = ScramMechanism(SCRAM).make_auth_info(PASSWORD, iteration_count=4096)
    parts = {"salt": salt, "stored_key": stored, "server_key": server}
    text = ",".join(f"{name}={_base64(value)}" for name, value in parts.items())
    tree.write(f"/config/users/{user}", encode_config({SCRAM: f"{text},iterations={iterations}"}))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _subject(file: Path) -> str:
    pem = file.read_bytes()
    return x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :]).subject.rfc4514_string()


@pytest.mark.repeat
@pytest.mark.parametrize("secured", [SCRAM], indirect=True)
def test_brokers_with_certificates_and_passwords(tmp_path: Path, secured: Secured) -> None:
    """ISRs are asked for at the control plane, by TLS; controlled shutdowns at the inter-broker listener, by SASL.

    Brokers that use PLAIN do the same in the next story.
    """
    cluster, config = secured.cluster, secured.listen_config(tmp_path)
    with asked(cluster, tmp_path, "--listen-config", str(config)) as story:
        with Flow(cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            story.lose_and_shut_down()
        assert flow.failed == []
        brokers = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).brokers
        assert OURS not in brokers  # clients do not see it
        assert (
            "warning: clients of listener CLIENTS, TLS, USERS do not find the controller: kafka-topics"
            in story.controller.output
        )
        assert PASSWORD not in story.controller.output


@pytest.mark.parametrize("secured", ["PLAIN"], indirect=True)
def test_clients_with_listeners_of_their_own(tmp_path: Path, secured: Secured) -> None:
    """Kafka's tools work there although brokers ask elsewhere, and topics are created although brokers have racks."""
    cluster, config = secured.cluster, secured.listen_config(tmp_path, OF_CLIENTS)
    addresses = [f"{name}://{LOOPBACK}:{free_port()}" for name in ("CLIENTS", "USERS", "TLS")]
    options = [option for address in addresses for option in ("--listen", address)]
    with asked(cluster, tmp_path, "--listen-config", str(config), *options) as story:
        login = partial(java_login, tmp_path, secured.certificates.ca, PASSWORD)
        plain = Tools(cluster.bootstrap)
        users = {
            ALICE: Tools(bootstrap_of(story, "USERS"), login(SCRAM, ALICE)),
            GUEST: Tools(bootstrap_of(story, "USERS"), login("PLAIN", GUEST)),
        }
        tls = Tools(bootstrap_of(story, "TLS"), login())
        made = ("--topic", "made")
        create = ("--create", *made, "--partitions", "2", "--replication-factor", "2")
        users[ALICE].shown(TOPICS, *create)
        assert "PartitionCount: 2" in tls.shown(TOPICS, "--describe", *made)
        assert "made" in users[GUEST].shown(TOPICS, "--list").split()  # of any broker; the controller is not asked
        users[ALICE].shown(MOVES, "--list")
        election = ("--election-type", "preferred", "--all-topic-partitions")
        tls.shown(ELECTIONS, *election)
        use_by_librdkafka(story, secured)
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
        with Flow(cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            story.lose_and_shut_down()
        assert flow.failed == []
        assert committed_group(cluster.bootstrap) == 0
        users[ALICE].shown(TOPICS, "--delete", *made)
        assert "made" not in plain.shown(TOPICS, "--list").split()
        assert "do not find the controller" not in story.controller.output
        assert "clients of listener USERS that log in by PLAIN do not reach the controller" in story.controller.output
        assert PASSWORD not in story.controller.output


OF_CLIENTS = {
    "listener.name.users.security.protocol": "SASL_SSL",
    "listener.name.users.sasl.enabled.mechanisms": SCRAM,
    "listener.name.tls.security.protocol": "SSL",
    "listener.name.tls.ssl.client.auth": "none",
}
"""Settings of the listeners USERS and TLS; users of PLAIN, as brokers accept at USERS, cannot be verified here."""


def bootstrap_of(story: AskedCluster, listener: str) -> str:
    """The address of broker 0 at a listener."""
    [endpoint] = [e for e in read_brokers(story.kafka.client)[0].endpoints or () if e.listener == listener]
    return f"{endpoint.host}:{endpoint.port}"


def use_by_librdkafka(story: AskedCluster, secured: Secured) -> None:
    """Create a topic, write and read with a group at USERS, by a client that asks each node for metadata at first."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap_of(story, "USERS"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.certificates.ca),
        "sasl.mechanism": SCRAM,
        "sasl.username": ALICE,
        "sasl.password": PASSWORD,
    }
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("by-rdkafka", 1, 2)])["by-rdkafka"].result(60)
    producer = Producer(settings)
    producer.produce("by-rdkafka", b"first")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "rdkafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-rdkafka"])
    message = next(filter(None, (consumer.poll(1) for _ in range(180))))
    assert message.value() == b"first"
    consumer.close()


def kafkas_own_tools_do_their_work(story: AskedCluster, folder: Path) -> None:
    """Each does it, or says why not, and no call ends by a time-out."""
    cluster = story.cluster
    tools = Tools(cluster.bootstrap)
    created = ("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "2")
    assert "Created topic made" in tools.shown(TOPICS, *created, "--config", "retention.ms=86400000")
    assert "topic made exists" in tools.run(TOPICS, *created).stdout
    assert "PartitionCount: 2" in tools.shown(TOPICS, "--describe", "--topic", "made")
    tools.shown(TOPICS, "--alter", "--topic", "made", "--partitions", "3")
    assert "PartitionCount: 3" in tools.shown(TOPICS, "--describe", "--topic", "made")

    throttle(cluster, "made", 10_000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(500):
        producer.produce("made", b"x" * 20_000, partition=0)
    assert producer.flush(60) == 0
    before = assignment(story, "made")
    [joining] = {0, 1, 2} - {*before[0]}
    target = [joining, before[0][1]]
    named = ("--reassignment-json-file", reassignment_file(folder, ("made", 0, target)))
    tools.shown(MOVES, *named, "--execute", "--throttle", "10000")
    assert "made-0" in tools.shown(MOVES, "--list")
    assert "made-0 is still in progress" in tools.shown(MOVES, *named, "--verify")
    tools.shown(MOVES, *named, "--cancel")  # answered once it has begun; it ends with the next AlterPartition
    story.wait_until(lambda: {*assignment(story, "made")[0]} == {*before[0]})
    tools.shown(MOVES, *named, "--execute")
    story.wait_until(lambda: "made-0 is completed" in tools.shown(MOVES, *named, "--verify"))

    tools.shown(ELECTIONS, "--election-type", "preferred", "--all-topic-partitions")
    assert story.kafka.state("made").leader == joining
    assert "Valid replica already elected" in tools.shown(
        ELECTIONS, "--election-type", "unclean", "--topic", "made", "--partition", "0"
    )
    users = ("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config")
    refused = tools.run("kafka.admin.ConfigCommand", *users, "SCRAM-SHA-256=[password=x]")
    assert "Surveyor is the controller, and does not change users" in refused.stdout + refused.stderr
    tools.shown(TOPICS, "--delete", "--topic", "made")
    assert "made" not in tools.shown(TOPICS, "--list").split()
    assert committed_group(cluster.bootstrap) == 0


def assignment(story: AskedCluster, topic: str) -> Mapping[int, Sequence[int]]:
    return story.kafka.assignment(topic).partitions


def committed_group(bootstrap: str) -> int:
    """Read with a consumer group, whose coordinator clients find through any broker; return the lag of a commit."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, b"last", partition=0)
    assert producer.flush(60) == 0
    deadline, message = time.monotonic() + 180, None
    while time.monotonic() < deadline and message is None:
        message = consumer.poll(1)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    [position] = consumer.committed([Position(TOPIC, message.partition() or 0)], timeout=30)
    consumer.close()
    return int(position.offset) - int(message.offset() or 0) - 1
