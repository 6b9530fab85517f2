"""Admin mode, batch mode, `surveyor control` and snapshots on brokers and a ZooKeeper with Kerberos.

Tickets expire, the KDC stops, and nothing is written with those that are not accepted.
"""

import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.brokers.reported_configs import read_configs_and_failures
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.kerberos import login
from jobs.adapters.zookeeper.cluster import TOPICS, read_cluster
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.source import TopicReader
from jobs.core.properties import JAAS_CONFIG
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.control_process import controller_id, run_during_control
from tests.jobs.support.kafka.lasting_connections import accepted_before_and_after
from tests.jobs.support.kafka.real_cluster import broker_in_control, create_topic, eventually, kafka_tree
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.kerberos.kdc import BROKER, GUEST, LIFETIME_SECONDS, USER, Kdc
from tests.jobs.support.kerberos.kerberized import REAUTHENTICATION, kerberized_cluster
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

OURS: Final = 2147483647
UNREADABLE: Final = 22
Kerberized = tuple[EmbeddedCluster, Kdc]


@pytest.fixture(scope="module")
def kerberized() -> Iterator[Kerberized]:
    with kerberized_cluster() as started:
        yield started


@pytest.fixture
def cluster(kerberized: Kerberized) -> EmbeddedCluster:
    return kerberized[0]


@pytest.fixture
def kdc(kerberized: Kerberized) -> Kdc:
    return kerberized[1]


@pytest.fixture(autouse=True)
def short_tickets(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has logins of its own, and there are no tickets of the user that runs it."""
    login._login.cache_clear()  # noqa: SLF001 - as in a new process
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(lifetime=LIFETIME_SECONDS)))
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere/tickets")


@dataclass(frozen=True)
class Identity:
    """The properties files of a principal for brokers and of one for ZooKeeper."""

    brokers: Path
    zookeeper_config: Path

    @property
    def options(self) -> tuple[str, ...]:
        return "--command-config", str(self.brokers), "--zookeeper-config", str(self.zookeeper_config)


def identity(folder: Path, kdc: Kdc, principal: str = USER, *, in_zookeeper: str = BROKER) -> Identity:
    """As Kafka's tools have it: sasl.jaas.config with a keytab."""

    def written(name: str, principal: str, **others: str) -> Path:
        lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
        return write_properties(
            folder / f"{name}.properties", {**lines, JAAS_CONFIG: kdc.login_module(principal), **others}
        )

    service = {"sasl.kerberos.service.name": "kafka"}
    return Identity(
        written(f"brokers-{principal}", principal, **service),
        written(f"zookeeper-{in_zookeeper.partition('/')[0]}", in_zookeeper),
    )


@pytest.fixture
def ours(tmp_path: Path, kdc: Kdc) -> Identity:
    return identity(tmp_path, kdc)


@pytest.fixture
def kafka(cluster: EmbeddedCluster, ours: Identity) -> Iterator[KafkaTree]:
    """The cluster's znodes, as the brokers' own principal."""
    with kafka_tree(cluster, ours.zookeeper_config) as tree:
        assert eventually(lambda: broker_in_control(tree))
        yield tree


@pytest.mark.usefixtures("spark")
def test_leaders_move_in_both_modes_and_no_key_is_shown(  # noqa: PLR0913, PLR0917 - fixtures
    cluster: EmbeddedCluster,
    kafka: KafkaTree,
    surveyor: Surveyor,
    ours: Identity,
    kdc: Kdc,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    create_topic(cluster, kafka, "moves", 1)
    led, where = partial(kafka.state, "moves", 0), ("--zookeeper", kafka.hosts, *ours.options)
    texts = list[str]()
    for leader, mode in ((0, ("batch", "--yes")), (1, ("admin",))):
        plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "moves", 0, leader=leader)])
        dry = surveyor.run("commit", plan.plan_id, *where, "--mode", mode[0])
        assert dry.exit_code == 0, dry.output
        assert led().leader != leader
        done = surveyor.run("commit", plan.plan_id, *where, "--apply", "--mode", *mode)
        assert done.exit_code == 0, done.stderr
        assert led().leader == leader
        texts += [dry.output, done.output]
    for command in (("snapshot",), ("plan", "elect", "--preferred"), ("doctor",)):
        done = surveyor.run(*command, *where)
        assert done.exit_code == 0, done.output
        texts.append(" ".join(done.output.split()))
    assert "every broker can be notified of what batch mode writes" in texts[-1]
    assert "settings 2 brokers returned their configs" in texts[-1]

    assert {row["error"] for row in surveyor.warehouse.rows("answers")} == {0}
    tables = str({name: surveyor.warehouse.rows(name) for name in SPARK_SCHEMAS})
    assert not any(str(kdc.keytab) in text for text in (*texts, caplog.text, tables))


def test_znodes_keep_the_acl_of_the_brokers(kafka: KafkaTree, cluster: EmbeddedCluster) -> None:
    create_topic(cluster, kafka, "guarded", 1)
    acls = {str(acl.id.id) for path in ("/brokers/topics", "/controller") for acl in kafka.client.get_acls(path)[0]}

    assert acls == {"kafka", "anyone"}


def test_what_is_not_accepted_writes_nothing(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, tmp_path: Path, kdc: Kdc
) -> None:
    create_topic(cluster, kafka, "refused", 1)
    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "refused", 0, leader=0)])

    def error_of(identity: Identity, mode: str) -> str:
        before = kafka.client.get("/controller_epoch"), kafka.state("refused", 0)
        options = ("--zookeeper", kafka.hosts, *identity.options)
        done = surveyor.run("commit", plan.plan_id, "--apply", "--yes", "--mode", mode, *options)
        assert done.exit_code != 0
        assert (kafka.client.get("/controller_epoch"), kafka.state("refused", 0)) == before
        assert surveyor.commits(plan.plan_id) == []
        return " ".join(done.stderr.split())

    assert "ClusterAuthorizationFailed (31)" in error_of(identity(tmp_path, kdc, GUEST), "batch")
    stranger = identity(tmp_path, kdc, "stranger")
    for mode in ("batch", "admin"):
        assert "has no key of stranger@SURVEYOR.TEST" in error_of(stranger, mode)
    assert "has no key of stranger@" in error_of(identity(tmp_path, kdc, in_zookeeper="stranger"), "batch")
    guest = identity(tmp_path, kdc, in_zookeeper=GUEST)
    done = surveyor.apply(kafka.hosts, plan.plan_id, *guest.options)
    assert done.exit_code != 0
    assert "name the brokers' user in --zookeeper-config" in " ".join(done.stderr.split())
    assert kafka.state("refused", 0).leader == 1


def test_a_service_that_the_kdc_does_not_know(kafka: KafkaTree, surveyor: Surveyor, ours: Identity) -> None:
    """kafka-python and kazoo do not say why; each broker has its own reason."""
    for file in (ours.brokers, ours.zookeeper_config):
        text = file.read_text(encoding="utf-8").replace("sasl.kerberos.service.name=kafka\n", "")
        file.write_text(f"{text}sasl.kerberos.service.name=kafkaesque\n", encoding="utf-8")
    login._login.cache_clear()  # noqa: SLF001
    brokers = read_cluster(kafka.client).brokers

    _, failures = read_configs_and_failures(brokers, ours.brokers, {}, 20.0)
    ran = surveyor.run("status", "--zookeeper", kafka.hosts, "--zookeeper-config", str(ours.zookeeper_config))

    reason = "the KDC does not know the service kafkaesque@{}"
    assert all(reason.format("localhost") in str(failure) for failure in failures.values())
    assert failures.keys() == {0, 1}
    assert ran.exit_code == UNREADABLE
    assert reason.format("127.0.0.1") in " ".join(ran.output.split())


def expire() -> None:
    """Wait until every ticket that was there has expired, and connections must authenticate again."""
    time.sleep(LIFETIME_SECONDS + REAUTHENTICATION)


def test_connections_that_outlive_their_tickets(kafka: KafkaTree, ours: Identity) -> None:
    """The Admin API's authenticates again by itself; one for control requests is made again."""
    assert accepted_before_and_after(kafka, ours.brokers, "TICKETS", expire) == [[0, 1], [0, 1]]


@pytest.mark.usefixtures("spark")
def test_a_controller_that_outlives_its_tickets(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, ours: Identity
) -> None:
    create_topic(cluster, kafka, "resident", 1)
    led = partial(kafka.state, "resident", 0)

    def act() -> None:
        assert eventually(lambda: controller_id(kafka) == OURS)
        expire()
        cluster.brokers[1].kill()
        cluster.brokers[1].expire()
        assert eventually(lambda: (led().leader, led().isr) == (0, [0]))
        cluster.brokers[1].restart()
        assert eventually(lambda: led().isr == [0, 1])

    with run_during_control(act):
        ran = surveyor.run("control", "--apply", "--yes", "--zookeeper", kafka.hosts, *ours.options)

    assert ran.exit_code == 130, ran.output


_EXECUTOR: Final = """
import pickle, sys

reader = pickle.load(sys.stdin.buffer)
for share in reader.partitions():
    for batch in reader.read(share):
        for row in batch.to_pylist():
            if row["kind"] == "partition" and row["topic"] == "executors":
                print(row["partition"], row["replicas"])
"""


def test_executors_log_in_as_the_driver_does(cluster: EmbeddedCluster, kafka: KafkaTree, ours: Identity) -> None:
    """Spark pickles the reader to Python processes that have krb5.conf and the same files."""
    create_topic(cluster, kafka, "executors", 2)
    reader = TopicReader(ZooKeeperEndpoint(kafka.hosts, ours.zookeeper_config), TOPICS, 2)

    done = subprocess.run(
        [sys.executable, "-c", _EXECUTOR], input=pickle.dumps(reader), check=True, capture_output=True
    )

    assert sorted(done.stdout.decode().splitlines()) == ["0 [1, 0]", "1 [1, 0]"]
