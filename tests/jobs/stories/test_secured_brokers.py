"""Batch mode and `surveyor control` on brokers that want TLS, users and permissions, over each kind of listener.

What they keep is kept, and what they guard in ZooKeeper stays guarded.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.security import ACL
from msgspec.structs import replace as with_values

from jobs.adapters.brokers.admin_client import bootstrap, connected_admin, read_properties
from jobs.adapters.brokers.connection import unreachable_reasons
from jobs.adapters.brokers.listeners import PLAINTEXT_LISTENER, Listener
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.cluster_state import read_brokers, read_cluster
from jobs.core.addresses import LOOPBACK
from schemas.stored_plan import Plan
from schemas.tables import SPARK_SCHEMAS
from schemas.znode_codecs import Endpoint
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.control_process import controller_id, run_during_control
from tests.jobs.support.kafka.kafka_tools import ELECTIONS, MOVES, TOPICS, Tools, java_login
from tests.jobs.support.kafka.real_cluster import Traffic, create_topic, eventually, kafka_tree, topic_metadata
from tests.jobs.support.kafka.secured_kafka import (
    GUEST,
    PASSWORD,
    USER,
    ZOOKEEPER_CONFIG,
    secured_cluster,
    write_properties,
)
from tests.jobs.support.outside.keystores import TYPES, Keystores
from tests.jobs.support.rows.operation_rows import deletion
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

OURS: Final = 2147483647
REFUSED: Final = 23

_BY_SASL: Final = {"security.protocol": "SASL_SSL", "sasl.username": USER, "sasl.password": PASSWORD}
LOGINS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "PLAIN at the control plane": ("CONTROL", {**_BY_SASL, "sasl.mechanism": "PLAIN"}),
    "SCRAM-SHA-512 at the control plane": ("CONTROL", {**_BY_SASL, "sasl.mechanism": "SCRAM-SHA-512"}),
    "SCRAM-SHA-256": ("USERS", {**_BY_SASL, "sasl.mechanism": "SCRAM-SHA-256"}),
    "a certificate": ("MUTUAL", {"security.protocol": "SSL"}),
}
"""Listener, and the lines of client.properties in addition to certificates."""


@dataclass(frozen=True)
class ListenerLogin:
    """How a command learns of a listener."""

    config: Path
    conf: Path
    listener: str

    @property
    def options(self) -> tuple[str, ...]:
        return ("--command-config", str(self.config), "--conf", str(self.conf))

    @property
    def spoken(self) -> Listener:
        return Listener.of(self.config, self.listener)


ListenerLogins = dict[str, ListenerLogin]

Secured = tuple[EmbeddedCluster, Certificates]


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_cluster() as started:
        yield started


@pytest.fixture
def cluster(secured: Secured) -> EmbeddedCluster:
    return secured[0]


@pytest.fixture
def kafka(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaTree]:
    """With who commits, in ZooKeeper, who the brokers are there."""
    config = write_properties(tmp_path / "zookeeper.properties", ZOOKEEPER_CONFIG)
    monkeypatch.setenv("SURVEYOR_ZOOKEEPER_CONFIG", str(config))
    with kafka_tree(cluster, config) as tree:
        assert eventually(lambda: all(map(knows_controller, cluster.brokers.values())))
        yield tree


def knows_controller(broker: EmbeddedKafka) -> bool:
    """Whether a broker returns the controller to clients, which wait for a minute if there is none."""
    return AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).controller_id in {0, 1}


@pytest.fixture
def logins(secured: Secured, tmp_path: Path) -> ListenerLogins:
    return {
        login: ListenerLogin(written(tmp_path, secured[1], login), conf(tmp_path, listener), listener)
        for login, (listener, _) in LOGINS.items()
    }


def written(folder: Path, certificates: Certificates, login: str, **changed: str) -> Path:
    """The client.properties of a login, but for what was changed; `_` stands for a dot."""
    by_certificate = {"ssl.certificate.location": certificates.client, "ssl.key.location": certificates.client}
    key_files = {} if "sasl.mechanism" in LOGINS[login][1] else {key: str(path) for key, path in by_certificate.items()}
    others = {key.replace("_", "."): value for key, value in changed.items()}
    return write_properties(
        folder / f"{len(list(folder.iterdir()))}.properties",
        {**LOGINS[login][1], "ssl.ca.location": str(certificates.ca), **key_files, **others},
    )


@pytest.mark.parametrize("kind", TYPES)
def test_a_certificate_in_a_keystore(kafka: KafkaTree, secured: Secured, tmp_path: Path, kind: str) -> None:
    """The Admin API, settings, and control requests."""
    stores = Keystores.of(secured[1], tmp_path, kind).client_properties
    config = write_properties(tmp_path / "client.properties", {"security.protocol": "SSL", **stores})
    state, listener = read_cluster(kafka.client), Listener.of(config, "MUTUAL")
    settings = read_properties(config)
    assert state.controller is not None

    with connected_admin(bootstrap(state.brokers, settings), settings, state.controller.broker_id) as admin:
        assert admin.reassignments() == {}
    assert unreachable_reasons(state.brokers, "test", listener) == {}
    assert read_broker_configs(state.brokers, config, {}, 60.0)[1] == {}


def conf(folder: Path, listener: str) -> Path:
    path = folder / f"{listener}.toml"
    path.write_text(f'[clusters.default]\ncontrol_listener = "{listener}"\n', encoding="utf-8")
    return path


def refused(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, *options: str) -> str:
    """What a commit says that is refused, and has written nothing."""
    epoch = kafka.client.get("/controller_epoch")
    done = surveyor.apply(kafka.hosts, plan.plan_id, *options)
    assert (done.exit_code, kafka.client.get("/controller_epoch")) == (REFUSED, epoch), done.stderr
    assert surveyor.commits(plan.plan_id) == []
    assert PASSWORD not in done.output
    return done.stderr


def is_sampled_whole(surveyor: Surveyor, kafka: KafkaTree, login: ListenerLogin, partitions: int) -> bool:
    """Take a sample of load; a leader that was just elected has no end to report before a follower has fetched."""
    sampled = surveyor.run("load", "sample", "--zookeeper", kafka.hosts, "--json", *login.options)
    assert sampled.exit_code == 0, sampled.output
    result = json.loads(sampled.stdout)
    assert [result[name] for name in ("missing_groups", "silent", "refusals")] == [[]] * 3
    assert all("OffsetNotAvailableError" in row["reason"] for row in result["missing"])
    return not result["missing"] and result["partitions"] >= partitions


def test_leaders_move_over_each_listener(
    cluster: EmbeddedCluster,
    kafka: KafkaTree,
    surveyor: Surveyor,
    logins: ListenerLogins,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    create_topic(cluster, kafka, "moves", len(logins))
    with Traffic(cluster.bootstrap, "moves") as traffic:
        for partition, login in enumerate(logins.values()):
            plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "moves", partition, leader=0)])
            done = surveyor.apply(kafka.hosts, plan.plan_id, *login.options)
            assert done.exit_code == 0, done.stderr
            assert "LeaderAndIsr accepted by brokers 0, 1" in done.stderr
            assert PASSWORD not in done.output
            assert eventually(partial(is_sampled_whole, surveyor, kafka, login, len(logins)))

    assert [kafka.state("moves", partition).leader for partition in range(len(logins))] == [0] * len(logins)
    assert {row["error"] for row in surveyor.warehouse.rows("answers")} == {0}
    assert traffic.failed == []
    assert traffic.stored(len(logins)) >= traffic.acknowledged
    tables = {name: surveyor.warehouse.rows(name) for name in SPARK_SCHEMAS}
    assert tables["commits"]
    assert PASSWORD not in str(tables)
    assert PASSWORD not in caplog.text


@pytest.mark.usefixtures("spark")
def test_a_resident_controller_and_what_it_leaves_to_kafkas_controller(
    secured: Secured, kafka: KafkaTree, surveyor: Surveyor, logins: ListenerLogins, tmp_path: Path
) -> None:
    """It sends requests over SASL_SSL; what it creates in ZooKeeper is the brokers', as if they had made it.

    As it cannot ask their authorizer, it refuses Kafka's tools at once, also those of a super user.
    """
    cluster = secured[0]
    create_topic(cluster, kafka, "theirs", 1)
    login = logins["SCRAM-SHA-512 at the control plane"]
    made = store_plan(
        surveyor.warehouse, kafka, [creation("ours", 0, [1, 0], None)], [topic_creation("ours", None, None)]
    )
    assert surveyor.apply(kafka.hosts, made.plan_id, *login.options).exit_code == 0
    led = partial(kafka.state, "ours")
    acls = dict[str, list[ACL]]()

    def act() -> None:
        assert eventually(lambda: controller_id(kafka) == OURS)
        acls["/controller"] = kafka.client.get_acls("/controller")[0]
        cluster.brokers[1].kill()
        cluster.brokers[1].expire()
        assert eventually(lambda: (led().leader, led().isr) == (0, [0]))
        assert eventually(lambda: leader_known_to(cluster.brokers[0], "ours") == 0)
        cluster.brokers[1].restart()
        assert eventually(lambda: led().isr == [0, 1])
        tools_are_refused(kafka, secured, tmp_path)

    listen = listen_options(secured, tmp_path)
    with run_during_control(act):
        ran = surveyor.run("control", "--apply", "--yes", "--zookeeper", kafka.hosts, *login.options, *listen)
    assert ran.exit_code == 130, ran.output
    assert "requests of Kafka's tools at MUTUAL, USERS are refused; the error names the command" in ran.stderr

    assert eventually(lambda: all(map(knows_controller, cluster.brokers.values())))
    elect_preferred(cluster, "ours")
    assert eventually(lambda: led().leader == 1)
    paths = (
        "/brokers/topics/{}",
        "/brokers/topics/{}/partitions",
        "/brokers/topics/{}/partitions/0",
        state_path("{}", 0),
    )
    for path in (*paths, "/config/topics/{}"):
        acls[path] = kafka.client.get_acls(path.format("ours"))[0]
        assert acls[path] == kafka.client.get_acls(path.format("theirs"))[0]
    assert {tuple(acl.id.scheme for acl in some) for some in acls.values()} == {("sasl", "world")}
    going = deletion(surveyor.warehouse, kafka, "ours")
    assert surveyor.apply(kafka.hosts, going.plan_id, *login.options).exit_code == 0
    assert eventually(lambda: kafka.client.exists("/brokers/topics/ours") is None)
    assert PASSWORD not in ran.output


def leader_known_to(broker: EmbeddedKafka, topic: str) -> int | None:
    """The leader of the first partition; None if librdkafka asked the controller, which leaves topics to brokers."""
    try:
        leader, _, _ = topic_metadata(broker.address, topic)[0]
    except KafkaException:
        return None
    return int(leader)


def listen_options(secured: Secured, folder: Path) -> list[str]:
    """Addresses for brokers, and for the clients of two listeners."""
    config = {
        "control.plane.listen": f"{LOOPBACK}:{free_port()}",
        "control.plane.security.protocol": "SASL_SSL",
        "broker.principals": "User:broker",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.user.broker.password": PASSWORD,
        "ssl.certificate.location": str(secured[1].server),
        "ssl.ca.location": str(secured[1].ca),
        "listener.name.users.security.protocol": "SASL_SSL",
        "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.mutual.security.protocol": "SSL",
    }
    addresses = [f"{prefix}{LOOPBACK}:{free_port()}" for prefix in ("", "USERS://", "MUTUAL://")]
    file = write_properties(folder / "listen.properties", config)
    return [*(option for address in addresses for option in ("--listen", address)), "--listen-config", str(file)]


def tools_are_refused(kafka: KafkaTree, secured: Secured, folder: Path) -> None:
    """By errors that name the command to use; what brokers answer still works."""
    [endpoint] = [e for e in read_brokers(kafka.client)[0].endpoints or () if e.listener == "USERS"]
    login = java_login(folder, secured[1].ca, PASSWORD, "SCRAM-SHA-256", USER)
    tools, ours = Tools(f"{endpoint.host}:{endpoint.port}", login), ("--topic", "ours")
    assert "use `surveyor plan assign`" in tools.refusal(TOPICS, "--create", "--topic", "refused-here")
    assert "use `surveyor plan delete`" in tools.refusal(TOPICS, "--delete", *ours)
    assert "use `surveyor status` or `surveyor plan reassign`" in tools.refusal(MOVES, "--list")
    election = ("--election-type", "preferred", *ours, "--partition", "0")
    assert "use `surveyor plan elect`" in tools.refusal(ELECTIONS, *election)
    assert "PartitionCount: 1" in tools.shown(TOPICS, "--describe", *ours)
    assert kafka.client.get_children("/brokers/topics").count("ours") == 1


def elect_preferred(cluster: EmbeddedCluster, topic: str) -> None:
    """By Kafka's own controller."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result()


def test_a_refused_or_unauthorized_user_writes_nothing(
    cluster: EmbeddedCluster,
    kafka: KafkaTree,
    surveyor: Surveyor,
    secured: Secured,
    tmp_path: Path,
) -> None:
    create_topic(cluster, kafka, "refused", 1)
    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "refused", 0, leader=0)])
    control = ("--conf", str(conf(tmp_path, "CONTROL")))

    def error_of(login: str, *options: str, **changed: str) -> str:
        config = written(tmp_path, secured[1], login, **changed)
        return refused(surveyor, kafka, plan, "--command-config", str(config), *options)

    plain = "PLAIN at the control plane"
    assert "ClusterAuthorizationFailed (31)" in error_of(plain, *control, sasl_username=GUEST)
    assert "needs ClusterAction on the Cluster" in error_of(plain, *control, sasl_username=GUEST)
    for login in (plain, "SCRAM-SHA-512 at the control plane"):
        for mode in ("batch", "admin"):
            wrong = error_of(login, *control, "--mode", mode, sasl_password="wrong")  # noqa: S106 - it is
            assert "SaslAuthenticationFailedError (58)" in wrong
    assert "it accepts SCRAM-SHA-256, not PLAIN" in error_of(plain, "--conf", str(conf(tmp_path, "USERS")))
    assert "it does not accept our certificate" in error_of(plain, security_protocol="SSL")
    assert "has no SASL_PLAINTEXT endpoint; it has INSIDE (PLAINTEXT), CONTROL (SASL_SSL)" in error_of(
        plain, security_protocol="SASL_PLAINTEXT"
    )
    named = error_of("a certificate", *control)
    assert "has no SSL endpoint called CONTROL; it has" in named
    assert "control_listener" in named


def test_a_check_of_broker_access_has_no_effect(
    cluster: EmbeddedCluster, kafka: KafkaTree, logins: ListenerLogins
) -> None:
    """They take it for one that is late, and go by their own controller as before."""
    brokers = read_cluster(kafka.client).brokers

    untold = [unreachable_reasons(brokers, str(OURS), login.spoken) for login in logins.values()]

    create_topic(cluster, kafka, "afterwards", 1)
    assert untold == [{}] * len(logins)
    late = "StopReplica request with broker epoch 0 smaller than the current broker epoch"
    assert all(late in broker.log_of_this_run() for broker in cluster.brokers.values())


def test_what_brokers_speak_where_they_are_said_to_speak_something_else(
    kafka: KafkaTree, logins: ListenerLogins
) -> None:
    """As behind a proxy that ends TLS, or with listeners registered by mistake."""
    broker = read_cluster(kafka.client).brokers[0]
    ports = {endpoint.listener: endpoint.port for endpoint in broker.endpoints or ()}

    def reason(listener: Listener, port: int) -> str:
        endpoint = Endpoint("L", listener.security_protocol, "127.0.0.1", port)
        return unreachable_reasons([with_values(broker, endpoints=[endpoint])], "test", listener)[0]

    by_certificate = Listener.of(logins["a certificate"].config, None)

    assert "the listener uses TLS, and the request was plain text" in reason(PLAINTEXT_LISTENER, ports["MUTUAL"])
    assert "does that listener use TLS?" in reason(by_certificate, ports["INSIDE"])


def test_doctor_checks_that_requests_reach_brokers(
    kafka: KafkaTree, surveyor: Surveyor, logins: ListenerLogins, secured: Secured, tmp_path: Path
) -> None:
    def doctor(login: ListenerLogin) -> str:
        done = surveyor.run("doctor", "--zookeeper", kafka.hosts, *login.options)
        assert PASSWORD not in done.output
        return " ".join(done.stdout.split())

    scram = "SCRAM-SHA-512 at the control plane"
    mistyped = written(tmp_path, secured[1], scram, sasl_password=f"{PASSWORD}?")
    by_scram = doctor(logins[scram])

    assert "settings 2 brokers returned their configs" in by_scram
    assert "every broker can be notified of what batch mode writes" in by_scram
    assert "the brokers' control-plane listener is CONTROL" in doctor(logins["a certificate"])
    assert "(SaslAuthenticationFailedError (58): see sasl.username and sasl.password)" in doctor(
        replace(logins[scram], config=mistyped)
    )
