"""Security of connections to ZooKeeper: users, TLS, ACLs of created znodes, and error messages."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, make_acl, make_digest_acl
from pyspark.sql import SparkSession

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession, connected
from jobs.adapters.zookeeper.controllership import take_over
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint, kazoo_options
from jobs.adapters.zookeeper.kafka_acl import use_kafka_acl
from jobs.adapters.zookeeper.lease_znode import LEASE, ZnodeLease
from jobs.adapters.zookeeper.multi_operations import Create
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.plan_submission import announce_resident
from jobs.adapters.zookeeper.spark_data_source import ZooKeeperDataSource
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.errors import RefusedError, SurveyorError, UnreadableError, UsageError
from jobs.core.polling import poll_until
from schemas.lease_holder import LeaseHolder
from tests.jobs.support.outside.keystores import TYPES, Keystores
from tests.jobs.support.zookeeper.fenced_writes import OURS
from tests.jobs.support.zookeeper.guarded_zookeeper import PASSWORD, USER, GuardedZooKeeper
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot

Configured = Callable[..., ZooKeeperEndpoint]

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": USER, "sasl.password": PASSWORD}
DIGEST = {"digest.username": USER, "digest.password": PASSWORD}
ALL_READ = make_acl("world", "anyone", read=True)
CREATED = ("/controller", "/brokers/topics/new", "/surveyor/control", LEASE)
HOLDER = LeaseHolder("ann", "ops1", 7, "commit", "1f", "2026-11-22T06:00:00+00:00")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedZooKeeper]:
    with GuardedZooKeeper(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    """Makes the endpoint of a server, with a file of these keys."""

    def configure(hosts: str, keys: dict[str, str], mode: int = 0o600, name: str = "zookeeper") -> ZooKeeperEndpoint:
        path = tmp_path / f"{name}.properties"
        path.write_text("# how\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()))
        path.chmod(mode)
        return ZooKeeperEndpoint(hosts, path)

    return configure


def tls(server: GuardedZooKeeper) -> dict[str, str]:
    files = server.certificates
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.client),
    }


JAAS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.jaas.config": "org.apache.zookeeper.server.auth.DigestLoginModule required "
    f'username="{USER}" password="{PASSWORD}";',
}
OF_SASL = [make_acl("sasl", USER, all=True), ALL_READ]
OF_DIGEST = [make_digest_acl(USER, PASSWORD, all=True), ALL_READ]


@pytest.fixture
def chroot(guarded: GuardedZooKeeper) -> str:
    """An address of the test's own, of a tree that Kafka keeps."""
    return new_chroot(guarded.connect)


@pytest.fixture
def tree(chroot: str) -> Iterator[KafkaTree]:
    client = KazooClient(chroot)
    client.start()
    tree = KafkaTree(chroot, client)
    tree.lay_out()
    tree.elect(0, epoch=7)
    tree.add_topic("orders", {0: [0, 1]})
    yield tree
    client.stop()
    client.close()


def secure(tree: KafkaTree, acls: list[ACL]) -> None:
    """ACLs of brokers with zookeeper.set.acl: writable by brokers, readable by all clients."""
    for path in ("/", "/brokers/topics", "/controller_epoch", "/controller", "/admin/delete_topics"):
        tree.client.set_acls(path, acls)


@pytest.mark.parametrize(
    ("keys", "acls"), [(SASL, OF_SASL), (JAAS, OF_SASL), (DIGEST, OF_DIGEST)], ids=["sasl", "jaas", "digest"]
)
def test_a_client_with_the_brokers_identity_may_write(
    tree: KafkaTree, configured: Configured, keys: dict[str, str], acls: list[ACL]
) -> None:
    secure(tree, acls)
    with connected(tree.endpoint) as anonymous, pytest.raises(SurveyorError, match="--zookeeper-config"):
        take_over(anonymous, OURS)

    with connected(configured(tree.hosts, keys)) as client:
        held = take_over(client, OURS)
        assert held.commit([Create("/brokers/topics/new", b"{}")]) is None
        announce_resident(client, HOLDER)
        ZnodeLease(client, HOLDER, lambda _: None).acquire(1.0)
        made = {path: client.get_acls(path)[0] for path in CREATED}

    assert made == dict.fromkeys(made, acls)


OPERATOR = {"digest.username": "surveyor", "digest.password": "own-one"}


def test_a_user_other_than_the_brokers_can_take_the_lease(tree: KafkaTree, configured: Configured) -> None:
    """The brokers' ACL alone would deny the znodes below /surveyor to the user that creates it."""
    tree.client.set_acls("/brokers/topics", OF_SASL)
    endpoint = configured(tree.hosts, OPERATOR)
    with ZooKeeperCluster(endpoint) as cluster:
        before = tree.dump()
        assert cluster.lease_refusal() is None
        assert tree.dump() == before
        with cluster.lease(HOLDER, 1.0, lambda _: None) as lease:
            lease.refuse_lost()
            acls, _ = tree.client.get_acls("/surveyor")
        assert tree.client.get_children("/surveyor") == []
    assert acls[:2] == OF_SASL
    assert [(acl.id.scheme, acl.id.id.partition(":")[0]) for acl in acls[2:]] == [("digest", "surveyor")]


def test_a_denied_lease_leaves_no_znode(tree: KafkaTree, configured: Configured) -> None:
    """A client without credentials has no identity that an ACL could have, and a closed root denies all."""
    tree.client.set_acls("/brokers/topics", OF_SASL)
    with ZooKeeperCluster(tree.endpoint) as anonymous:
        needs_user = anonymous.lease_refusal()
        assert needs_user is not None
        with pytest.raises(RefusedError) as refused, anonymous.lease(HOLDER, 1.0, lambda _: None):
            pytest.fail("denied")
    assert str(refused.value) == needs_user
    assert tree.client.exists("/surveyor") is None

    tree.client.set_acls("/", OF_SASL)
    with ZooKeeperCluster(configured(tree.hosts, OPERATOR)) as operator:
        absent = operator.lease_refusal()
    assert absent is not None
    assert "ask an administrator to create /surveyor, with the brokers' ACL and an entry for digest:surveyor" in absent


def test_the_lease_names_the_entry_that_an_acl_lacks(tree: KafkaTree, configured: Configured) -> None:
    tree.client.set_acls("/brokers/topics", OF_SASL)
    tree.client.create("/surveyor", acl=OF_SASL)
    with ZooKeeperCluster(configured(tree.hosts, OPERATOR)) as operator:
        denied = operator.lease_refusal()
    assert denied is not None
    assert "add to the ACL of /surveyor an entry for digest:surveyor with the permissions cdr" in denied


def test_unsecured_znodes_stay_open(tree: KafkaTree, configured: Configured) -> None:
    """Brokers without zookeeper.set.acl are other users than we are and must still be able to write."""
    with connected(configured(tree.hosts, SASL)) as client:
        take_over(client, OURS)
        assert client.get_acls("/controller")[0] == client.get_acls("/brokers/topics")[0]
        assert [acl.id.scheme for acl in client.get_acls("/controller")[0]] == ["world"]


def test_a_masked_acl_is_not_copied(tree: KafkaTree, configured: Configured) -> None:
    ours = make_digest_acl("surveyor", "other", read=True, write=True, create=True, delete=True)
    secure(tree, [make_digest_acl(USER, PASSWORD, all=True), ours])
    endpoint = configured(tree.hosts, {"digest.username": "surveyor", "digest.password": "other"})
    with (
        connected(endpoint) as client,
        pytest.raises(SurveyorError, match=r"hidden from Surveyor.*nothing was written"),
    ):
        use_kafka_acl(client)


def test_by_tls_with_a_certificate(guarded: GuardedZooKeeper, configured: Configured) -> None:
    """Its key may stand in the same file, which need not be named twice."""
    for keys in (tls(guarded), {key: value for key, value in tls(guarded).items() if key != "ssl.key.location"}):
        with connected(configured(guarded.secure, keys)) as client:
            assert read(client, "/zookeeper").stat is not None
    with (
        pytest.raises(UnreadableError, match=r"whether it requires TLS \(--zookeeper-config\)"),
        connected(ZooKeeperEndpoint(guarded.secure), 2.0),
    ):
        pass


@pytest.mark.parametrize("kind", TYPES)
def test_by_tls_with_keystores(guarded: GuardedZooKeeper, configured: Configured, tmp_path: Path, kind: str) -> None:
    stores = Keystores.of(guarded.certificates, tmp_path, kind).client_properties
    with connected(configured(guarded.secure, {"security.protocol": "SSL", **stores})) as client:
        assert read(client, "/zookeeper").stat is not None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (SASL | {"sasl.password": "wrong-one"}, "does not accept the user or the password"),
        (
            SASL | {"security.protocol": "PLAINTEXT", "digest.user": "x"},
            "'digest.user' is not known or has no value; known are ",
        ),
        (SASL | {"security.protocol": "TLS"}, "security.protocol is 'TLS'; it is one of PLAINTEXT, SSL, "),
        (SASL | {"sasl.mechanism": "PLAIN"}, "sasl.mechanism is 'PLAIN'; it is one of DIGEST-MD5, GSSAPI"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "GSSAPI needs sasl.kerberos.keytab and sasl.kerberos.principal"),
        ({"security.protocol": "${PROTOCOL}"}, ", line 2: security.protocol has the placeholder ${PROTOCOL}, which"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "SASL needs sasl.username and sasl.password"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, "ssl.ca.location: No such file or directory"),
        ({"security.protocol": "SSL", "ssl.ca.location": __file__}, "ssl.ca.location: not the PEM file it should be"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(
    chroot: str, configured: Configured, keys: dict[str, str], message: str
) -> None:
    endpoint = configured(chroot, keys)
    with pytest.raises((UsageError, UnreadableError)) as caught, connected(endpoint, 5.0) as client:
        read(client, "/")
    assert message in str(caught.value)
    assert str(endpoint.config) in str(caught.value)
    assert not any(secret in str(caught.value) for secret in (PASSWORD, "wrong-one"))


@pytest.mark.parametrize("given", [{}, {"ssl.key.password": "wrong-one"}])
def test_no_prompt_for_the_password_of_a_key(
    guarded: GuardedZooKeeper, configured: Configured, tmp_path: Path, given: dict[str, str]
) -> None:
    """OpenSSL would, for as long as there is a terminal; and a wrong one is not shown."""
    key = serialization.load_pem_private_key(guarded.certificates.client.read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(PASSWORD.encode())
    (tmp_path / "key.pem").touch(0o600)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted)
    )
    keys = tls(guarded) | {"ssl.key.location": str(tmp_path / "key.pem")}
    endpoint = configured(guarded.secure, keys | given)
    with pytest.raises(UsageError, match=r"ssl\.key\.password: not the PEM file it should be") as refused:
        kazoo_options(endpoint.config)
    assert "wrong-one" not in str(refused.value)
    endpoint = configured(guarded.secure, keys | {"ssl.key.password": PASSWORD})
    assert kazoo_options(endpoint.config)["use_ssl"]


def test_two_clusters_of_one_ensemble_keep_their_own_credentials(tree: KafkaTree, configured: Configured) -> None:
    """Also if a connection to the other one is made in between, and in bulk reads."""
    owners = {"ours": DIGEST, "theirs": {"digest.username": "other", "digest.password": "secret"}}
    endpoints = {name: configured(f"{tree.hosts}/{name}", keys, name=name) for name, keys in owners.items()}
    for name, keys in owners.items():
        tree.write(f"/{name}/znode", name.encode())
        tree.client.set_acls(f"/{name}/znode", [make_digest_acl(*keys.values(), read=True)])

    with connected(endpoints["ours"]) as ours, connected(endpoints["theirs"]) as theirs:
        both = [read_many(client, ["/znode"])[0].data for client in (ours, theirs)]
    with connected(endpoints["ours"]) as ours:
        again = read(ours, "/znode").data
    with (
        connected(replace(endpoints["theirs"], config=endpoints["ours"].config)) as wrong,
        pytest.raises(UnreadableError, match="denies Surveyor permission to read /znode"),
    ):
        read(wrong, "/znode")

    assert (both, again) == ([b"ours", b"theirs"], b"ours")
    assert pickle.loads(pickle.dumps(endpoints["ours"])) == endpoints["ours"]  # noqa: S301 - executors get it


def test_a_late_refusal_names_the_user(chroot: str, configured: Configured) -> None:
    """Kazoo says for a moment only that it was the user; then it is closed like any other client."""
    endpoint = configured(chroot, SASL | {"sasl.password": "wrong-one"})

    def read_once_closed() -> None:
        with connected(endpoint, 5.0) as client:
            poll_until(lambda: client.client_state, lambda state: state == KeeperState.CLOSED, 10.0)
            client.get("/")

    with pytest.raises(UnreadableError, match="does not accept the user"):
        read_once_closed()


def test_a_session_connects_again_after_a_refusal(chroot: str, configured: Configured) -> None:
    """A server that stops during a handshake seems to refuse the user, and a standby has one session for its life."""
    with ZooKeeperSession(configured(chroot, SASL | {"sasl.password": "wrong-one"}), 5.0) as zookeeper:
        with suppress(UnreadableError), zookeeper.connected() as client:
            poll_until(lambda: client.client_state, lambda state: state == KeeperState.CLOSED, 10.0)
        configured(chroot, SASL)
        with zookeeper.connected() as client:
            assert read(client, "/").stat is not None


def test_a_password_that_all_users_may_read_is_refused(chroot: str, configured: Configured) -> None:
    endpoint = configured(chroot, SASL, mode=0o644)
    with pytest.raises(UsageError, match=f"chmod o= {endpoint.config}"), connected(endpoint):
        pass
    with connected(configured(chroot, {"security.protocol": "plaintext"}, mode=0o644)):
        pass


def test_executors_speak_as_the_driver_does(spark: SparkSession, tree: KafkaTree, configured: Configured) -> None:
    tree.client.set_acls("/brokers/topics", [make_acl("sasl", USER, all=True)])
    endpoint = configured(tree.hosts, SASL)
    spark.dataSource.register(ZooKeeperDataSource)
    read_by = spark.read.format("zookeeper").option("zookeeper", tree.hosts)
    rows = read_by.option("config", str(endpoint.config)).load().where("kind = 'partition'").collect()
    assert [(row.topic, row.partition, row.replicas) for row in rows] == [("orders", 0, [0, 1])]
