"""A KRaft cluster with an authorizer: what a client may not read is unknown, and nothing else is.

Its clients log in by PLAIN; two of them by Kerberos and by OAUTHBEARER, and these carry out a plan.
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, untyped
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.oauth_tokens import TOKEN_URL
from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.kerberos import login
from jobs.core.addresses import LOOPBACK
from jobs.core.properties import JAAS_CONFIG
from jobs.snapshots.cluster_view import SOURCE_COLUMNS, view_now
from jobs.snapshots.health import health_of
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.kafka.kraft_cluster import kafka_tool, words_of_zookeeper
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.kafka.secured_kafka import PASSWORD, write_properties
from tests.jobs.support.kafka.token_kafka import JAAS as TOKEN_JAAS
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token
from tests.jobs.support.kerberos.kdc import BROKER, GUEST, USER, Kdc

USERS = ("blind", "partial", "reader", "granted")
"""Users without any permission, with DESCRIBE on the cluster and one topic, and with all that a snapshot reads. The
last one has no permission until a test grants it all."""

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_JAAS = " ".join([_LOGIN, *(f'user_{name}="{PASSWORD}"' for name in USERS)]) + ";"

Guarded = dict[str, Cluster]

NO_WAREHOUSE = Warehouse("none", "guarded")


@dataclass(frozen=True, slots=True)
class GuardedCluster:
    """The address for users, that for the administrator, and the client.properties of each user.

    `tickets` and `tokens` are the addresses for those who log in by Kerberos and by OAUTHBEARER.
    """

    outside: str
    inside: str
    files: dict[str, Path]
    tickets: str
    tokens: str
    kdc: Kdc

    def doctor(self, user: str, warehouse: Path) -> Ran:
        surveyor = Surveyor(self.outside, warehouse, "--bootstrap-server")
        return surveyor("doctor", "--json", "--command-config", str(self.files[user]))


def _overrides(cluster: GuardedCluster, controller: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{cluster.inside},CONTROLLER://{controller},SASL_PLAINTEXT://{cluster.outside},"
        f"TICKETS://{cluster.tickets},TOKENS://{cluster.tokens}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "TICKETS:SASL_PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
        "listener.name.tickets.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.tickets.gssapi.sasl.jaas.config": cluster.kdc.login_module(BROKER),
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": TOKEN_JAAS,
        "sasl.kerberos.service.name": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
    }


def _allow(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as started:
        yield started


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[GuardedCluster]:
    """A cluster with the topics `open`, which `partial` sees, and `hidden`."""
    cluster = EmbeddedKRaftCluster(1, heap="320m")
    node = cluster.nodes[1]
    folder = tmp_path_factory.mktemp("users")
    files = {user: write_properties(folder / user, _properties(user)) for user in USERS}
    outside, tickets, tokens = f"{LOOPBACK}:{free_port()}", f"localhost:{free_port()}", f"{LOOPBACK}:{free_port()}"
    described = GuardedCluster(outside, node.address, files, tickets, tokens, kdc)
    node.overrides |= _overrides(described, f"{LOOPBACK}:{node.controller_port}")
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.krb5_conf()}")
            running.enter_context(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = [NewTopic(name, 2, 1, config={"retention.ms": "1000"}) for name in ("open", "hidden")]
        create_topics(admin, *topics)
        allowed = [
            _allow("partial", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
            _allow("partial", ResourceType.TOPIC, "open", AclOperation.DESCRIBE),
            *(_allow("reader", ResourceType.TOPIC, "*", right) for right in _READS),
            *(_allow("reader", ResourceType.BROKER, "kafka-cluster", right) for right in _READS),
        ]
        for granted in admin.create_acls(allowed).values():
            granted.result()
        reader = KRaftCluster(outside, NO_WAREHOUSE, files["reader"])
        assert eventually(lambda: len(view_now(reader).configs) == len(topics))
        yield described


_READS = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)


def _properties(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


@pytest.fixture(scope="module")
def sources(guarded: GuardedCluster) -> Guarded:
    return {user: KRaftCluster(guarded.outside, NO_WAREHOUSE, file) for user, file in guarded.files.items()}


def _faults(source: Cluster) -> dict[str, str]:
    return {row.path: row.reason for row in source.read_live(None, SOURCE_COLUMNS).quarantine}


def test_a_reader_reads_everything(sources: Guarded) -> None:
    view = view_now(sources["reader"])
    assert view.configs == {name: {"retention.ms": "1000"} for name in ("open", "hidden")}
    assert (view.quarantined, view.controller_id) == (0, 1)
    assert view.partitions["understood"].to_pylist() == [True] * 4
    assert {row.endpoints[0].security_protocol for row in view.brokers if row.endpoints} == {"SASL_PLAINTEXT"}


def test_topics_that_may_not_be_described_are_named(sources: Guarded) -> None:
    """They are left out of a list of all topics without an error, and would look deleted."""
    faults = _faults(sources["partial"])
    assert "DESCRIBE on the topic" in faults["DescribeTopicPartitions/hidden"]
    assert "DESCRIBE_CONFIGS on the topic" in faults["DescribeConfigs/open"]
    assert set(faults) == {"DescribeTopicPartitions/hidden", "DescribeConfigs/open"}
    view = view_now(sources["partial"])
    assert view.configs == {"open": None, "hidden": None}
    assert view.controller_id == 1
    assert view.partitions["topic"].to_pylist() == ["open"] * 2


def test_without_permissions_nothing_counts_as_healthy(sources: Guarded) -> None:
    faults = _faults(sources["blind"])
    assert set(faults) == {"DescribeQuorum", "ListPartitionReassignments", "DescribeLogDirs"}
    assert "DESCRIBE on the cluster" in faults["DescribeQuorum"]
    assert "may be left out" in faults["DescribeLogDirs"]
    health = health_of(view_now(sources["blind"]), default_min_isr=1, threshold=0.1)
    assert (health.controller_id, health.controller_epoch) == (None, None)
    assert health.quarantined == len(faults)


@pytest.mark.usefixtures("spark")
def test_a_sample_lacks_only_the_topics_that_may_not_be_described(guarded: GuardedCluster, tmp_path: Path) -> None:
    """Leaders are those of a snapshot by a user with more permissions."""
    surveyor = Surveyor(guarded.outside, tmp_path / "warehouse", "--bootstrap-server")
    surveyor.json("snapshot", "--command-config", str(guarded.files["reader"]))
    sampled = surveyor.json("load", "sample", "--command-config", str(guarded.files["partial"]))
    assert sampled["missing"] == [{"partitions": 2, "reason": "TopicAuthorizationFailedError (29)"}]
    assert (sampled["partitions"], sampled["silent"], sampled["refusals"]) == (2, [], [])
    rows = surveyor.warehouse.rows("partition_offsets")
    assert sorted((row["topic"], row["partition"], row["log_end"]) for row in rows) == [("open", 0, 0), ("open", 1, 0)]


@pytest.mark.parametrize(
    ("user", "state", "found"),
    [
        ("reader", "fine", "none is missing that reading needs"),
        (
            "partial",
            "warning",
            (
                "missing: DESCRIBE on the topic (DescribeTopicPartitions/hidden); DESCRIBE_CONFIGS on the cluster "
                "(broker 1, <default>); DESCRIBE_CONFIGS on the topic (DescribeConfigs/open)"
            ),
        ),
        (
            "blind",
            "fault",
            (
                "missing: DESCRIBE on the cluster (DescribeQuorum, ListPartitionReassignments, DescribeLogDirs); "
                "DESCRIBE_CONFIGS on the cluster (broker 1, <default>)"
            ),
        ),
    ],
)
def test_doctor_names_the_permissions_that_are_missing(
    guarded: GuardedCluster, tmp_path: Path, user: str, state: str, found: str
) -> None:
    ran = guarded.doctor(user, tmp_path)
    findings = {row["check"]: row for row in ran.json["findings"]}
    assert (findings["permissions"]["state"], findings["permissions"]["found"]) == (state, found)
    assert ran.code == int(state == "fault")
    assert ("quorum" in findings) == (user != "blind")


def test_the_command_that_doctor_suggests_grants_what_is_missing(guarded: GuardedCluster, tmp_path: Path) -> None:
    def permissions() -> dict[str, str]:
        rows = guarded.doctor("granted", tmp_path).json["findings"]
        return next(row for row in rows if row["check"] == "permissions")

    before = permissions()
    command = shlex.split(before["advice"].partition(" grants ")[0].replace("User:NAME", "User:granted"))
    assert (before["state"], command[0]) == ("fault", "kafka-acls")
    kafka_tool("kafka.admin.AclCommand", "--bootstrap-server", guarded.inside, *command[1:])
    assert eventually(lambda: permissions()["state"] == "fine")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("user", ["blind", "partial"])
def test_no_sentence_about_a_missing_permission_is_about_zookeeper(
    guarded: GuardedCluster, tmp_path: Path, user: str
) -> None:
    surveyor = Surveyor(guarded.outside, tmp_path / "warehouse", "--bootstrap-server")
    options = ["--command-config", str(guarded.files[user])]
    live = {"snapshot", "status", "doctor", "--now", "plan", "--restart-order", "--restart"}
    said = {}
    for command in (
        ["snapshot"],
        ["status"],
        ["doctor"],
        ["show", "quarantine"],
        ["show", "partitions", "--now"],
        ["plan", "elect", "--preferred"],
        ["plan", "config", "--topic", "open", "--set", "retention.ms=2"],
        ["plan", "expand", "--topic", "open", "--partitions", "3"],
        ["plan", "expand", "--topic", "hidden", "--partitions", "3"],
        ["plan", "delete", "--topics", "open,hidden"],
        ["plan", "drain", "--brokers", "1"],
        ["whatif", "--restart-order"],
        ["whatif", "--restart", "1"],
    ):
        ran = surveyor(*command, *(options if live.intersection(command) else []))
        assert ran.code in ({0, 1} if command == ["doctor"] else {0, 2, 22, 23}), (command, ran)
        said[" ".join(command)] = words_of_zookeeper(ran.stdout, ran.stderr)
    assert {command: lines for command, lines in said.items() if lines} == {}


def test_unknown_throttles_are_named_with_what_helps(guarded: GuardedCluster, tmp_path: Path) -> None:
    surveyor = Surveyor(guarded.outside, tmp_path, "--bootstrap-server")
    status = surveyor.json("status", "--command-config", str(guarded.files["partial"]))
    assert (
        "throttles set in the config of topic hidden, the config of topic open are unknown: this client may not read "
        "it; `surveyor doctor` names the permission"
    ) in status["warnings"]


@pytest.mark.usefixtures("spark")
def test_a_topic_that_is_hidden_later_keeps_its_last_rows(guarded: GuardedCluster, tmp_path: Path) -> None:
    files = guarded.files
    surveyor = Surveyor(guarded.outside, tmp_path / "warehouse", "--bootstrap-server")
    before = surveyor.json("snapshot", "--command-config", str(files["reader"]))
    after = surveyor.json("snapshot", "--command-config", str(files["partial"]))
    assert (before["partitions"], before["quarantined"]) == (4, 0)
    assert (after["partitions"], after["quarantined"]) == (4, 2)
    columns = ("topic", "partition", "leader", "understood")
    assert surveyor.rows("partitions", *columns) == [
        *(("hidden", partition, 1, False) for partition in (0, 1)),
        *(("open", partition, 1, True) for partition in (0, 1)),
    ]


def _login(cluster: GuardedCluster, folder: Path, mechanism: str, user: str) -> tuple[str, str, str]:
    """The address for a mechanism, and the options with which `user` logs in there."""
    lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "GSSAPI":
        address = cluster.tickets
        lines |= {"sasl.kerberos.service.name": "kafka", JAAS_CONFIG: cluster.kdc.login_module(user)}
    else:
        address, token = cluster.tokens, folder / f"token-{user}"
        token.touch(0o600)
        token.write_text(unsecured_token(user), encoding="utf-8")
        lines |= {TOKEN_URL: token.as_uri()}
    return address, "--command-config", str(write_properties(folder / f"{mechanism}-{user}", lines))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
def test_a_plan_is_carried_out_by_tickets_and_by_tokens(
    guarded: GuardedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    """A user without permissions logs in and reads nothing; the super user's plan is carried out and verified."""
    login._login.cache_clear()  # noqa: SLF001 - as in a new process
    monkeypatch.setenv("KRB5_CONFIG", str(guarded.kdc.krb5_conf()))
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere/tickets")
    address, *guest = _login(guarded, tmp_path, mechanism, GUEST)
    _, *user = _login(guarded, tmp_path, mechanism, USER)
    surveyor = Surveyor(address, tmp_path / "warehouse", "--bootstrap-server")

    findings = {row["check"]: row for row in surveyor("doctor", "--json", *guest).json["findings"]}
    assert findings["permissions"]["found"].startswith("missing: DESCRIBE on the cluster (DescribeQuorum")
    taken = surveyor.json("snapshot", *user)
    assert (taken["partitions"], taken["quarantined"]) == (4, 0)
    sampled = surveyor.json("load", "sample", *user)
    assert (sampled["partitions"], sampled["missing"], sampled["refusals"]) == (4, [], [])
    surveyor.json("plan", "config", "--topic", "open", "--set", "retention.ms=1001", "--name", "longer", *user)
    committed = surveyor.json("commit", "longer", "--apply", "--yes", *user)
    assert committed["status"] == "committed"
    assert surveyor.json("verify", "longer", *user)["complete"] == 1
    restored = surveyor.json("plan", "config", "--topic", "open", "--set", "retention.ms=1000", *user)
    assert surveyor("commit", restored["plan_id"], "--apply", "--yes", *user).code == 0
