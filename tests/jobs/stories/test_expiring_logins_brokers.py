"""Admin mode, batch mode, `surveyor control` and snapshots on brokers whose clients log in for a short time.

By OAuth tokens, and by Kerberos, also to ZooKeeper. Tokens and tickets expire, and nothing is written with those that
are not accepted.
"""

import logging
import pickle
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.brokers.oauth_tokens import TOKEN_URL, expiry_of
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.kerberos import login as kerberos_login
from jobs.adapters.zookeeper.cluster_state import TOPICS, read_cluster
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.spark_data_source import TopicReader
from jobs.core.properties import JAAS_CONFIG, TOKEN_COMMAND
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.control_process import controller_id, run_during_control
from tests.jobs.support.kafka import token_kafka
from tests.jobs.support.kafka.lasting_connections import accepted_before_and_after
from tests.jobs.support.kafka.real_cluster import broker_in_control, create_topic, eventually, kafka_tree
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token
from tests.jobs.support.kerberos.kdc import BROKER, GUEST, LIFETIME_SECONDS, USER, Kdc
from tests.jobs.support.kerberos.kerberized import REAUTHENTICATION, kerberized_cluster
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

OURS: Final = 2147483647
UNREADABLE: Final = 22
TOKEN_SECONDS: Final = 15.0
"""Seconds that a token of the command is valid."""

TICKETS: Final = pytest.param("tickets", marks=pytest.mark.kerberos)
with_tickets = pytest.mark.parametrize("started", [TICKETS], indirect=True)

_ISSUER: Final = """
import base64, json, sys, time

def part(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

now = time.time()
claims = {"sub": sys.argv[1], "iat": now, "exp": now + float(sys.argv[2])}
token = part({"alg": "none"}) + "." + part(claims) + "."
with open(sys.argv[3], "a") as issued:
    issued.write(token + "\\n")
print(token)
"""

Started = tuple[EmbeddedCluster, Kdc | None]


@pytest.fixture(scope="module", params=["tokens", TICKETS])
def started(request: pytest.FixtureRequest) -> Iterator[Started]:
    """Brokers that accept tokens; or tickets, with their KDC."""
    if request.param == "tokens":
        with token_kafka.token_cluster() as cluster:
            yield cluster, None
    else:
        with kerberized_cluster() as kerberized:
            yield kerberized


@pytest.fixture
def cluster(started: Started) -> EmbeddedCluster:
    return started[0]


@dataclass(frozen=True)
class Login:
    """A user's files, and what they lead to."""

    listener: str
    config: Path
    """client.properties with a login that expires."""
    ways: Sequence[tuple[str, ...]]
    """Options of commands, each with another kind of login; the first one expires."""
    refused: Sequence[tuple[tuple[str, ...], Sequence[str], str]]
    """Options that are not accepted, the modes to try, and what the commit says."""
    secrets: Callable[[], list[str]]
    """What no output contains."""
    expire: Callable[[], None]
    """Wait until all logins so far have expired, and connections must authenticate again."""
    issued: Callable[[], list[str]] = list
    """The tokens that were issued, which no process shows either."""
    zookeeper_config: Path | None = None
    without_znodes: tuple[str, ...] = ()
    """Options of a user that may not write the brokers' znodes."""


def _properties(folder: Path, source: str, value: str) -> Path:
    lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", source: value}
    return write_properties(folder / f"{len(list(folder.iterdir()))}.properties", lines)


def by_tokens(folder: Path) -> Login:
    script, issued_file = folder / "issuer.py", folder / "issued"
    script.write_text(_ISSUER, encoding="utf-8")
    command = [sys.executable, str(script), token_kafka.USER, str(TOKEN_SECONDS), str(issued_file)]
    config = _properties(folder, TOKEN_COMMAND, shlex.join(command))
    tokens = list[str]()

    def by_file(token: str) -> tuple[str, str]:
        tokens.append(token)
        path = folder / f"token-{len(list(folder.iterdir()))}"
        path.touch(0o600)
        path.write_text(token, encoding="utf-8")
        return "--command-config", str(_properties(folder, TOKEN_URL, path.as_uri()))

    def issued() -> list[str]:
        return issued_file.read_text(encoding="utf-8").splitlines()

    def expire() -> None:
        last = max(filter(None, map(expiry_of, issued())))
        time.sleep(max(0.0, last - time.time()) + token_kafka.REAUTHENTICATION)

    user, both = token_kafka.USER, ("batch", "admin")
    return Login(
        "TOKENS",
        config,
        [("--command-config", str(config)), by_file(unsecured_token(user))],
        [
            (by_file(unsecured_token(token_kafka.GUEST)), ("batch",), "ClusterAuthorizationFailed (31)"),
            (by_file(unsecured_token(user, lifetime=-60.0)), both, "expired at"),
            (by_file("opaque"), both, "SaslAuthenticationFailedError (58): it does not accept the token"),
        ],
        lambda: tokens if not issued_file.exists() else [*tokens, *issued()],
        expire,
        issued,
    )


def by_tickets(folder: Path, kdc: Kdc) -> Login:
    """As Kafka's tools have it: sasl.jaas.config with a keytab."""

    def written(name: str, principal: str, **others: str) -> Path:
        lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
        return write_properties(
            folder / f"{name}.properties", {**lines, JAAS_CONFIG: kdc.login_module(principal), **others}
        )

    def at_brokers(principal: str) -> Path:
        return written(f"brokers-{principal}", principal, **{"sasl.kerberos.service.name": "kafka"})

    def in_zookeeper(principal: str) -> Path:
        return written(f"zookeeper-{principal.partition('/')[0]}", principal)

    def options(brokers: Path, zookeeper: Path) -> tuple[str, ...]:
        return "--command-config", str(brokers), "--zookeeper-config", str(zookeeper)

    ours, theirs, both = at_brokers(USER), in_zookeeper(BROKER), ("batch", "admin")
    return Login(
        "TICKETS",
        ours,
        [options(ours, theirs)],
        [
            (options(at_brokers(GUEST), theirs), ("batch",), "ClusterAuthorizationFailed (31)"),
            (options(at_brokers("stranger"), theirs), both, "has no key of stranger@SURVEYOR.TEST"),
            (options(ours, in_zookeeper("stranger")), ("batch",), "has no key of stranger@"),
        ],
        lambda: [str(kdc.keytab)],
        lambda: time.sleep(LIFETIME_SECONDS + REAUTHENTICATION),
        zookeeper_config=theirs,
        without_znodes=options(ours, in_zookeeper(GUEST)),
    )


@pytest.fixture
def login(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """Every test has logins of its own, and there are no tickets of the user that runs it."""
    if (kdc := started[1]) is None:
        return by_tokens(tmp_path)
    kerberos_login._login.cache_clear()  # noqa: SLF001 - as in a new process
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(lifetime=LIFETIME_SECONDS)))
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere/tickets")
    return by_tickets(tmp_path, kdc)


@pytest.fixture
def kafka(cluster: EmbeddedCluster, login: Login) -> Iterator[KafkaTree]:
    """The cluster's znodes, as the brokers' own user."""
    with kafka_tree(cluster, login.zookeeper_config) as tree:
        assert eventually(lambda: broker_in_control(tree))
        yield tree


def processes() -> str:
    """The command lines and environments of all processes that may be read."""
    lines = list[str]()
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                lines.append((folder / name).read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue  # it has ended
    return "\n".join(lines)


def refuse_shown(secrets: Sequence[str], *texts: str) -> None:
    assert secrets
    assert [secret for secret in secrets if any(secret in text for text in texts)] == []


@pytest.mark.usefixtures("spark")
def test_leaders_move_in_both_modes_and_no_secret_is_shown(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, login: Login, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    create_topic(cluster, kafka, "moves", 2)
    texts = list[str]()
    for partition, options in enumerate(login.ways):
        led, where = partial(kafka.state, "moves", partition), ("--zookeeper", kafka.hosts, *options)
        for leader, mode in ((0, ("batch", "--yes")), (1, ("admin",))):
            plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "moves", partition, leader=leader)])
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
    refuse_shown(login.secrets(), *texts, caplog.text, tables)
    if login.issued():
        refuse_shown(login.secrets(), processes())


def test_what_is_not_accepted_writes_nothing(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, login: Login
) -> None:
    create_topic(cluster, kafka, "refused", 1)
    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "refused", 0, leader=0)])
    before = kafka.client.get("/controller_epoch"), kafka.state("refused", 0)

    for options, modes, message in login.refused:
        for mode in modes:
            where = ("--zookeeper", kafka.hosts, *options)
            done = surveyor.run("commit", plan.plan_id, "--apply", "--yes", "--mode", mode, *where)
            assert done.exit_code != 0
            assert message in " ".join(done.stderr.split())
            refuse_shown(login.secrets(), done.stdout)
            assert (kafka.client.get("/controller_epoch"), kafka.state("refused", 0)) == before
            assert surveyor.commits(plan.plan_id) == []
    if login.without_znodes:
        done = surveyor.apply(kafka.hosts, plan.plan_id, *login.without_znodes)
        assert done.exit_code != 0
        assert "name the brokers' user in --zookeeper-config" in " ".join(done.stderr.split())
        assert kafka.state("refused", 0).leader == 1


def test_connections_that_outlive_their_login(kafka: KafkaTree, login: Login) -> None:
    """The Admin API's authenticates again by itself; one for control requests is made again."""
    accepted = accepted_before_and_after(kafka, login.config, login.listener, login.expire)
    assert accepted == [[0, 1], [0, 1]]
    assert login.listener != "TOKENS" or len(login.issued()) > 1


@pytest.mark.usefixtures("spark")
def test_a_controller_that_outlives_its_login(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, login: Login
) -> None:
    create_topic(cluster, kafka, "resident", 1)
    led, is_by_token = partial(kafka.state, "resident", 0), login.listener == "TOKENS"
    listed = list[str]()

    def act() -> None:
        assert eventually(lambda: controller_id(kafka) == OURS)
        login.expire()
        cluster.brokers[1].kill()
        cluster.brokers[1].expire()
        assert eventually(lambda: (led().leader, led().isr) == (0, [0]))
        if is_by_token:
            assert eventually(lambda: len(login.issued()) > 1)  # the state is written before brokers are notified
            listed.append(processes())
            login.expire()
        cluster.brokers[1].restart()
        assert eventually(lambda: led().isr == [0, 1])

    with run_during_control(act):
        ran = surveyor.run("control", "--apply", "--yes", "--zookeeper", kafka.hosts, *login.ways[0])

    assert ran.exit_code == 130, ran.output
    if is_by_token:
        assert len(login.issued()) > 2
        refuse_shown(login.issued(), ran.output, *listed)


@with_tickets
def test_znodes_keep_the_acl_of_the_brokers(kafka: KafkaTree, cluster: EmbeddedCluster) -> None:
    create_topic(cluster, kafka, "guarded", 1)
    acls = {str(acl.id.id) for path in ("/brokers/topics", "/controller") for acl in kafka.client.get_acls(path)[0]}

    assert acls == {"kafka", "anyone"}


@with_tickets
def test_a_service_that_the_kdc_does_not_know(kafka: KafkaTree, surveyor: Surveyor, login: Login) -> None:
    """kafka-python and kazoo do not say why; each broker has its own reason."""
    assert login.zookeeper_config is not None
    for file in (login.config, login.zookeeper_config):
        text = file.read_text(encoding="utf-8").replace("sasl.kerberos.service.name=kafka\n", "")
        file.write_text(f"{text}sasl.kerberos.service.name=kafkaesque\n", encoding="utf-8")
    kerberos_login._login.cache_clear()  # noqa: SLF001
    brokers = read_cluster(kafka.client).brokers

    _, failures = read_broker_configs(brokers, login.config, {}, 20.0)
    ran = surveyor.run("status", "--zookeeper", kafka.hosts, "--zookeeper-config", str(login.zookeeper_config))

    reason = "the KDC does not know the service kafkaesque@{}"
    assert all(reason.format("localhost") in str(failure) for failure in failures.values())
    assert failures.keys() == {0, 1}
    assert ran.exit_code == UNREADABLE
    assert reason.format("127.0.0.1") in " ".join(ran.output.split())


_EXECUTOR: Final = """
import pickle, sys

reader = pickle.load(sys.stdin.buffer)
for share in reader.partitions():
    for batch in reader.read(share):
        for row in batch.to_pylist():
            if row["kind"] == "partition" and row["topic"] == "executors":
                print(row["partition"], row["replicas"])
"""


@with_tickets
def test_executors_log_in_as_the_driver_does(cluster: EmbeddedCluster, kafka: KafkaTree, login: Login) -> None:
    """Spark pickles the reader to Python processes that have krb5.conf and the same files."""
    create_topic(cluster, kafka, "executors", 2)
    reader = TopicReader(ZooKeeperEndpoint(kafka.hosts, login.zookeeper_config), TOPICS, 2)

    done = subprocess.run(
        [sys.executable, "-c", _EXECUTOR], input=pickle.dumps(reader), check=True, capture_output=True
    )

    assert sorted(done.stdout.decode().splitlines()) == ["0 [1, 0]", "1 [1, 0]"]
