"""What brokers say of themselves: real ones, one with SASL and an authorizer, and all that do not answer."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as threads
from typing import Final

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from jobs.adapters.brokers.fanout import MAX_CONNECTIONS
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.broker_overrides import read_overrides
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import UsageError
from schemas.broker_config_defaults import APIS, KAFKA_DEFAULTS, Overrides, version_name
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.kafka.registrations import broker_at
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

SECRET: Final = "correct-horse"  # noqa: S105 - not a real password
NAMES: Final = {*KAFKA_DEFAULTS, *(version_name(api) for api in APIS)}
UNCLEAN, MIN_ISR = "unclean.leader.election.enable", "min.insync.replicas"
STATIC: Final = {
    "num.partitions": "7",
    "zookeeper.session.timeout.ms": "6000",
    "password.encoder.secret": SECRET,
    "ssl.keystore.password": SECRET,
}
PATIENT: Final = 60.0
JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="{SECRET}" user_admin="{SECRET}" user_guest="{SECRET}";'
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedCluster]:
    """Two brokers, of which broker 1 takes clients of a name only, and answers the admin's questions alone."""
    with EmbeddedCluster(1, overrides=STATIC) as running, ExitStack() as stack:
        port = free_port()
        secured = EmbeddedKafka(
            running.zookeeper_server.connect,
            1,
            running.folder / "broker-1",
            port=port,
            overrides={
                "listeners": f"PLAINTEXT://{LOOPBACK}:{port},SASL_PLAINTEXT://{LOOPBACK}:{free_port()}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS;User:admin",
            },
        )
        stack.callback(secured.kill)
        secured.start()
        secured.wait_ready()
        yield running


def registered(kafka: EmbeddedCluster) -> list[Broker]:
    hosts = kafka.zookeeper_server.connect
    with connected(ZooKeeperEndpoint(hosts)) as client:
        return read_cluster(client).brokers


def ask(
    brokers: list[Broker],
    overrides: Overrides | None = None,
    timeout_seconds: float = PATIENT,
    properties: Path | None = None,
) -> dict[int, dict[str, tuple[str | None, bool]]]:
    """What is said, and whether it is assumed, by broker and name."""
    rows, _ = read_broker_configs(brokers, properties, overrides or {}, timeout_seconds)
    configs: dict[int, dict[str, tuple[str | None, bool]]] = {}
    for row in rows:
        configs.setdefault(row.broker_id, {})[row.name] = (row.value, bool(row.assumed))
    assert len(rows) == sum(map(len, configs.values()))
    return configs


def log_in(tmp_path: Path, user: str, password: str = SECRET) -> Path:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }
    path = tmp_path / "client.properties"
    path.touch(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def alter(kafka: EmbeddedCluster, broker_id: int, name: str, value: str) -> None:
    """Set it dynamically."""
    with KafkaAdminClient(bootstrap_servers=kafka.brokers[0].address) as admin:
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id), {name: value})
        admin.alter_configs([resource], raise_on_unknown=False)


ASSUMED: Final = {name: (KAFKA_DEFAULTS.get(name), True) for name in NAMES}


def test_values_are_the_brokers_own(kafka: EmbeddedCluster) -> None:
    configs = ask(registered(kafka))

    assert {broker_id: set(settings) for broker_id, settings in configs.items()} == {0: NAMES, 1: NAMES}
    assert not any(assumed for settings in configs.values() for _, assumed in settings.values())
    assert configs[1]["num.partitions"] == ("1", False)
    expected = {
        "num.partitions": ("7", False),
        "zookeeper.session.timeout.ms": ("6000", False),
        "inter.broker.protocol.version": ("3.9-IV0", False),
        "control.plane.listener.name": (None, False),
    }
    assert {name: configs[0][name] for name in expected} == expected


def test_highest_versions_spoken(kafka: EmbeddedCluster) -> None:
    settings = ask(registered(kafka))[0]

    assert [settings[version_name(api)] for api in APIS[:4]] == [("7", False), ("4", False), ("8", False), ("3", False)]


def test_dynamic_settings_are_seen_in_the_broker_and_in_zookeeper(kafka: EmbeddedCluster) -> None:
    alter(kafka, 1, UNCLEAN, "true")
    alter(kafka, 0, MIN_ISR, "2")

    assert eventually(lambda: ask(registered(kafka))[1][UNCLEAN] == ("true", False))
    assert eventually(lambda: ask(registered(kafka))[0][MIN_ISR] == ("2", False))
    with connected(ZooKeeperEndpoint(kafka.zookeeper_server.connect)) as client:
        assert read_overrides(client) == ({1: {UNCLEAN: "true"}, 0: {MIN_ISR: "2"}}, [])


def test_no_secret_is_read(kafka: EmbeddedCluster, tmp_path: Path) -> None:
    alter(kafka, 0, "listener.name.plaintext.ssl.keystore.password", SECRET)
    with connected(ZooKeeperEndpoint(kafka.zookeeper_server.connect)) as client:
        written, _ = client.get("/config/brokers/0")
        overrides, _ = read_overrides(client)

    rows, _ = read_broker_configs(registered(kafka), log_in(tmp_path, "admin"), overrides, PATIENT)

    assert b"keystore.password" in written
    assert {row.name for row in rows} == NAMES
    assert not any(word in str([rows, overrides]) for word in (SECRET, "password", "jaas"))


def test_sasl(kafka: EmbeddedCluster, tmp_path: Path) -> None:
    """Broker 0 has no endpoint for such clients."""
    configs = ask(registered(kafka), properties=log_in(tmp_path, "admin"))

    assert configs[0] == ASSUMED
    assert not any(assumed for _, assumed in configs[1].values())


def test_a_guest_reads_versions_only(kafka: EmbeddedCluster, tmp_path: Path) -> None:
    settings = ask(registered(kafka), properties=log_in(tmp_path, "guest"))[1]

    assert {name for name, (_, assumed) in settings.items() if assumed} == set(KAFKA_DEFAULTS)


def test_unauthenticated_client_reads_no_configs(kafka: EmbeddedCluster, tmp_path: Path) -> None:
    assert ask(registered(kafka), properties=log_in(tmp_path, "admin", "wrong"))[1] == ASSUMED


def test_settings_of_another_broker_are_not_taken(kafka: EmbeddedCluster) -> None:
    settings = ask([broker_at(kafka.brokers[0].port, 5)])[5]

    assert settings["num.partitions"] == ("1", True)


def test_a_second_address_is_tried(kafka: EmbeddedCluster) -> None:
    endpoints = [Endpoint("L", "PLAINTEXT", LOOPBACK, port) for port in (free_port(), kafka.brokers[0].port)]
    row = Broker(broker_id=0, broker_epoch=1, endpoints=endpoints, understood=True)

    assert ask([row])[0]["num.partitions"] == ("7", False)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_silent_brokers_and_absent_ones(tmp_path: Path, protocol: str) -> None:
    """One takes the connection and never answers, one takes none, one is not there, one is not understood."""
    properties = tmp_path / "client.properties"
    properties.touch(0o600)
    properties.write_text(f"security.protocol={protocol}\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p\n")
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        full = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        ports = [silent.getsockname()[1], full.getsockname()[1], free_port()]
        brokers = [broker_at(port, broker_id, protocol) for broker_id, port in enumerate(ports)]
        opaque = Broker(broker_id=3, broker_epoch=1, understood=False)

        configs = ask([*brokers, opaque], timeout_seconds=1.0, properties=properties)

    assert configs == dict.fromkeys(range(4), ASSUMED)
    # threads that close unanswered connections are not joined, so they may still run
    assert eventually(lambda: not [thread for thread in threads() if thread.name == "ask-brokers"])


def test_many_silent_brokers_leave_time_for_others(kafka: EmbeddedCluster) -> None:
    ids = range(1, 1 + MAX_CONNECTIONS)
    with socket.create_server((LOOPBACK, 0), backlog=MAX_CONNECTIONS) as silent:
        brokers = [broker_at(silent.getsockname()[1], broker_id) for broker_id in ids]
        configs = ask([*brokers, broker_at(kafka.brokers[0].port, 0)], timeout_seconds=4.0)

    assert configs.pop(0)["num.partitions"] == ("7", False)
    assert configs == dict.fromkeys(ids, ASSUMED)


def test_a_hundred_silent_brokers_are_asked_at_once() -> None:
    """None is answered before all have been asked; so a hundred take the time that one takes."""
    connections: list[socket.socket] = []

    def take_all() -> None:
        with suppress(TimeoutError):
            while len(connections) < 100:
                connections.append(silent.accept()[0])
        for connection in connections:
            connection.close()

    with socket.create_server((LOOPBACK, 0), backlog=100) as silent:
        silent.settimeout(PATIENT / 4)
        taking = Thread(target=take_all)
        taking.start()
        brokers = [broker_at(silent.getsockname()[1], broker_id) for broker_id in range(100)]
        rows, _ = read_broker_configs(brokers, None, {}, PATIENT, PATIENT)
        taking.join()

    assert len(connections) == 100
    assert all(row.assumed for row in rows)


def test_one_unresponsive_broker_does_not_take_all_the_time() -> None:
    started = time.monotonic()
    with socket.create_server((LOOPBACK, 0), backlog=100) as silent:
        configs = ask([broker_at(silent.getsockname()[1], 1)], timeout_seconds=PATIENT)

    assert configs == {1: ASSUMED}
    assert time.monotonic() - started < PATIENT / 2


def test_a_name_that_does_not_resolve_in_time_delays_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = Event()

    def look_up(*_: object) -> list[object]:
        resolved.wait()
        return []

    monkeypatch.setattr("socket.getaddrinfo", look_up)

    assert ask([broker_at(1, 0)], timeout_seconds=0.2) == {0: ASSUMED}
    resolved.set()
    assert eventually(lambda: not [thread for thread in threads() if thread.name == "ask-brokers"])


def test_one_that_talks_nonsense() -> None:
    """It answers, but not as Kafka does, and closes."""
    with socket.create_server((LOOPBACK, 0)) as nonsense:
        nonsense.settimeout(PATIENT)

        def talk() -> None:
            connection, _ = nonsense.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        talker = Thread(target=talk)
        talker.start()
        configs = ask([broker_at(nonsense.getsockname()[1], 0)])
        talker.join()

    assert configs == {0: ASSUMED}


def test_dynamic_settings_hold_for_a_broker_that_does_not_answer() -> None:
    overrides: dict[int | None, dict[str, str | None]] = {
        None: {UNCLEAN: "true", MIN_ISR: "2"},
        0: {MIN_ISR: "3", "ssl.keystore.password": SECRET},
    }

    overrides[2] = {UNCLEAN: None, MIN_ISR: " 4 "}  # what it says for itself cannot be read

    configs = ask([broker_at(free_port(), number) for number in (0, 1, 2)], overrides)

    assert configs == {
        0: ASSUMED | {UNCLEAN: ("true", False), MIN_ISR: ("3", False)},
        2: ASSUMED | {MIN_ISR: ("4", False)},
        1: ASSUMED | {UNCLEAN: ("true", False), MIN_ISR: ("2", False)},
    }


def test_no_brokers_to_ask() -> None:
    assert ask([]) == {}


def test_client_properties_that_are_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x\n")

    with pytest.raises(UsageError, match="jaas"):
        ask([], properties=path)


def test_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    ask([broker_at(free_port(), 0)])

    assert capfd.readouterr() == ("", "")


def test_overrides_that_are_kept(tree: KafkaTree) -> None:
    """Only the listed names are stored. Malformed data is reported without its content: it may hold a password."""
    assert read_overrides(tree.client) == ({}, [])
    written = f'{{"version":1,"config":{{"{MIN_ISR}":"2","ssl.keystore.password":"{SECRET}"}}}}'.encode()
    for name in ("<default>", "7", "seven", "\u0664"):
        tree.write(f"/config/brokers/{name}", written)
    tree.write("/config/brokers/8", written[:-2])
    tree.write("/config/brokers/9", f'{{"config":{{"{MIN_ISR}":2,"{UNCLEAN}":"true"}}}}'.encode())

    overrides, quarantine = read_overrides(tree.client)

    assert overrides == {None: {MIN_ISR: "2"}, 7: {MIN_ISR: "2"}, 9: {MIN_ISR: None, UNCLEAN: "true"}}
    blocks = {"8": None, "9": "broker start", "seven": "broker start", "\u0664": None}
    assert {row.path.removeprefix("/config/brokers/"): row.blocks for row in quarantine} == blocks
    assert SECRET not in str(quarantine)
