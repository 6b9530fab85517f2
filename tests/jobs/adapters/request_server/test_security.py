"""TLS and SASL of the request server: with the client that sends our own control requests, by kafka-python."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from struct import pack, unpack
from typing import Final, NamedTuple

import pytest
from cryptography import x509
from scramp import ScramMechanism

from jobs.adapters.brokers.connection import BrokerConnection
from jobs.adapters.brokers.listeners import AuthenticationFailedError, Listener
from jobs.adapters.request_server.limits import ServerLimits
from jobs.adapters.request_server.listen_config import ListenConfig
from jobs.adapters.request_server.sasl_mechanisms import Credentials, ScramCredential
from jobs.adapters.request_server.server import RequestServer
from jobs.core.errors import UsageError
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.adapters.request_server.clients import (
    PRODUCER_IDS,
    ProducerIdHandler,
    RawClient,
    api_versions_request,
    connected_to,
    running,
    sasl_authenticate_request,
    sasl_handshake_request,
)
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.outside.keystores import TYPES, Keystores
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

PASSWORD: Final = "hunter-2-hunter"  # noqa: S105 - not a real password
WithFile = Callable[[dict[str, str]], ListenConfig]


@pytest.fixture(scope="module")
def principal(certificates: Certificates) -> str:
    """The client's principal by another library than the server's."""
    pem = certificates.client.read_bytes()
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return f"User:{certificate.subject.rfc4514_string()}"


@pytest.fixture
def configured(tmp_path: Path, certificates: Certificates) -> WithFile:
    def of(lines: dict[str, str]) -> ListenConfig:
        pem = {"ssl.certificate.location": str(certificates.server), "ssl.ca.location": str(certificates.ca)}
        secured = lines.get("security.protocol", "").endswith("SSL")
        file = write_properties(tmp_path / "listen.properties", (pem if secured else {}) | lines)
        return ListenConfig.of(["127.0.0.1:0"], [], file)

    return of


class Served(NamedTuple):
    """A running server."""

    broker: Broker
    """The server as a row of BROKERS."""
    port: int
    limits: ServerLimits


@contextmanager
def serving(config: ListenConfig, credentials: Credentials = lambda _user, _mechanism: None) -> Iterator[Served]:
    with running(RequestServer(config, ProducerIdHandler(), credentials)) as server:
        endpoint = server.endpoints[0]
        named = Endpoint("L", endpoint.security_protocol, "127.0.0.1", endpoint.port)
        broker = Broker(broker_id=9, broker_epoch=1, endpoints=[named], understood=True)
        yield Served(broker, endpoint.port, server.limits)


@pytest.fixture
def listener(tmp_path: Path, certificates: Certificates) -> Callable[[dict[str, str]], Listener]:
    """A client, by the lines of its client.properties."""

    def of(lines: dict[str, str]) -> Listener:
        trusted = {"ssl.ca.location": str(certificates.ca)} if lines["security.protocol"].endswith("SSL") else {}
        return Listener.of(write_properties(tmp_path / "client.properties", trusted | lines), "L")

    return of


@pytest.fixture
def tls(configured: WithFile, principal: str) -> Iterator[Served]:
    """A server with TLS for the client's certificate."""
    with serving(configured({"security.protocol": "SSL", "broker.principals": principal})) as server:
        yield server


@pytest.fixture
def sasl(configured: WithFile) -> Iterator[Served]:
    """A server with passwords, in plain text."""
    with serving(configured({"security.protocol": "SASL_PLAINTEXT", **SASL, **USERS})) as server:
        yield server


def served_to(server: Served, listener: Listener) -> set[int]:
    """Connect, authenticate, and ask for the versions: the APIs that are served."""
    connection = BrokerConnection.to(server.broker, "test", lambda: None, 10.0, listener)
    try:
        return {*connection.api_versions()}
    finally:
        connection.close()


def scram(user: str, password: str) -> Credentials:
    """Credentials of one user for both mechanisms."""

    def credentials(name: str, mechanism: str) -> ScramCredential | None:
        salt, stored, server, iterations = ScramMechanism(mechanism).make_auth_info(password, iteration_count=4096)
        return ScramCredential(salt, stored, server, iterations) if name == user else None

    return credentials


SASL: Final = {
    "broker.principals": "User:admin; User:kafka",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}
USERS: Final = {f"sasl.plain.user.{name}.password": PASSWORD for name in ("kafka", "guest")}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_by_its_password(
    configured: WithFile, listener: Callable[[dict[str, str]], Listener], protocol: str, mechanism: str
) -> None:
    config = configured({"security.protocol": protocol, **SASL, **USERS})
    client = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": "kafka"}

    with serving(config, scram("kafka", PASSWORD)) as broker:
        served = served_to(broker, listener({**client, "sasl.password": PASSWORD}))
        assert served == {17, 18, 36, PRODUCER_IDS}
        with pytest.raises(AuthenticationFailedError):
            served_to(broker, listener({**client, "sasl.password": "another"}))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_users_that_are_no_brokers_are_refused(
    configured: WithFile,
    listener: Callable[[dict[str, str]], Listener],
    capsys: pytest.CaptureFixture[str],
    mechanism: str,
) -> None:
    config = configured({"security.protocol": "SASL_PLAINTEXT", **SASL, **USERS})
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.password": PASSWORD}

    with serving(config, scram("guest", PASSWORD)) as broker:
        for user in ("guest", "stranger"):
            with pytest.raises(AuthenticationFailedError):
                served_to(broker, listener({**client, "sasl.username": user}))
    logged = capsys.readouterr().err
    assert "User:guest is not among broker.principals" in logged
    assert PASSWORD not in logged


@pytest.mark.parametrize("user", ["..", "guest", "u" * 100_000, "a/../b"])
def test_credentials_are_read_of_brokers_only(
    configured: WithFile, capsys: pytest.CaptureFixture[str], user: str
) -> None:
    """A user's name is part of a path in ZooKeeper, where one of a megabyte would end the session."""
    asked = list[str]()
    config = configured({"security.protocol": "SASL_PLAINTEXT", **SASL, **USERS})
    with serving(config, lambda name, _: asked.append(name)) as server:
        for name in (user, "kafka"):
            with connected_to(server.port) as client:
                first = f"n,,n={name},r=nonce".encode()
                client.send(sasl_handshake_request("SCRAM-SHA-256") + sasl_authenticate_request(first))
                client.receive()
                assert b",i=4096" in client.receive()  # the same answer to both
                client.send(sasl_authenticate_request(b"c=biws,r=nonce,p=AAAA"))
                client.receive()
                assert client.is_closed
    assert asked == ["kafka"]
    assert len(capsys.readouterr().err) < 1000


def test_unknown_clients_make_way_for_others_of_fewer(sasl: Served) -> None:
    sasl.limits.max_unauthenticated_connections = 3
    port = sasl.port
    with connected_to(port) as alone, ExitStack() as stack:
        crowd = [stack.enter_context(connected_to(port, source="127.0.0.2")) for _ in range(8)]
        assert all(client.is_closed for client in crowd[:6])
        assert alone.api_versions(3)[0] == 0
        assert crowd[-1].api_versions(3)[0] == 0


def test_brokers_that_have_authenticated_do_not_wait(sasl: Served) -> None:
    sasl.limits.max_share = 1e-6
    with connected_to(sasl.port) as client:
        client.send(sasl_handshake_request("PLAIN"))
        client.receive()
        client.send(sasl_authenticate_request(f"\0kafka\0{PASSWORD}".encode()))
        client.receive()
        sasl.limits.burst_seconds = 0.0

        assert [client.producer_ids(1) for _ in range(20)] == [1] * 20


def test_mechanisms_that_are_not_enabled_are_refused(sasl: Served) -> None:
    with connected_to(sasl.port) as client:
        errors = list[int]()
        for mechanism in ("GSSAPI", "plain", "", "PLAIN", "SCRAM-SHA-256"):
            client.send(sasl_handshake_request(mechanism))
            errors.append(unpack(">h", client.receive()[4:6])[0])
        assert errors == [33, 33, 33, 0, 34]  # one mechanism only
        client.send(sasl_authenticate_request(b"\0stranger\0password"))
        assert unpack(">h", client.receive()[4:6]) == (58,)
        assert client.is_closed
    with connected_to(sasl.port) as client:
        client.send(sasl_authenticate_request(f"\0kafka\0{PASSWORD}".encode()))  # without a handshake
        assert client.is_closed


def test_a_slow_tls_handshake_ends(
    tls: Served,
    listener: Callable[[dict[str, str]], Listener],
    certificates: Certificates,
) -> None:
    tls.limits.handshake_seconds = 3.0
    own = {"security.protocol": "SSL", "ssl.certificate.location": str(certificates.client)}
    with connected_to(tls.port) as slow:
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
        sent = 0
        with suppress(ConnectionError):
            for sent in range(400):
                slow.send(hello[sent : sent + 1])
                if sent == 5:
                    assert served_to(tls, listener(own)) == {18, PRODUCER_IDS}
                time.sleep(0.05)
        assert 5 < sent < 399  # twenty seconds


def test_nothing_is_served_before_authentication(sasl: Served) -> None:
    with connected_to(sasl.port) as client:
        assert client.api_versions(3)[1].keys() == {17, 18, 36, PRODUCER_IDS}
        with pytest.raises(EOFError):
            client.producer_ids(1)


@pytest.mark.parametrize("protocol", ["sasl", "tls"])
def test_clients_must_log_in_in_time(request: pytest.FixtureRequest, protocol: str) -> None:
    server: Served = request.getfixturevalue(protocol)
    server.limits.handshake_seconds = 0.2
    with connected_to(server.port) as client:
        assert client.is_closed


@pytest.mark.parametrize("protocol", ["sasl", "tls"])
def test_unknown_clients_make_way_for_others(
    request: pytest.FixtureRequest,
    listener: Callable[[dict[str, str]], Listener],
    certificates: Certificates,
    protocol: str,
) -> None:
    server: Served = request.getfixturevalue(protocol)
    server.limits.max_unauthenticated_connections = 2
    user = {"sasl.mechanism": "PLAIN", "sasl.username": "kafka", "sasl.password": PASSWORD}
    own = {
        "sasl": {"security.protocol": "SASL_PLAINTEXT", **user},
        "tls": {"security.protocol": "SSL", "ssl.certificate.location": str(certificates.client)},
    }
    with connected_to(server.port) as first, connected_to(server.port):
        assert served_to(server, listener(own[protocol]))
        assert first.is_closed


def test_a_broker_by_its_certificate(
    configured: WithFile,
    listener: Callable[[dict[str, str]], Listener],
    certificates: Certificates,
    principal: str,
) -> None:
    own = {"security.protocol": "SSL", "ssl.certificate.location": str(certificates.client)}

    with serving(configured({"security.protocol": "SSL", "broker.principals": principal})) as broker:
        assert served_to(broker, listener(own)) == {18, PRODUCER_IDS}
        with pytest.raises((AuthenticationFailedError, OSError, EOFError, ssl.SSLError)):
            served_to(broker, listener({"security.protocol": "SSL"}))
    with (
        serving(configured({"security.protocol": "SSL", "broker.principals": "User:CN=broker"})) as broker,
        pytest.raises((AuthenticationFailedError, OSError, EOFError, ssl.SSLError)),
    ):
        served_to(broker, listener(own))


@pytest.mark.parametrize("kind", TYPES)
def test_a_broker_by_keystores(tmp_path: Path, certificates: Certificates, principal: str, kind: str) -> None:
    """Both sides have stores as keytool makes them."""
    stores, ssl_only = Keystores.of(certificates, tmp_path, kind), {"security.protocol": "SSL"}
    server = {**ssl_only, "broker.principals": principal, **stores.properties(stores.server)}
    config = ListenConfig.of(["127.0.0.1:0"], [], write_properties(tmp_path / "listen.properties", server))
    client = write_properties(tmp_path / "client.properties", {**ssl_only, **stores.client_properties})

    with serving(config) as broker:
        assert served_to(broker, Listener.of(client, "L")) == {18, PRODUCER_IDS}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"security.protocol": "SASL_SLL"}, "did you mean SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "broker.principals is missing"),
        ({"security.protocol": "SASL_PLAINTEXT", "broker.principals": "User:kafka"}, "sasl.enabled.mechanisms is None"),
        (
            {"security.protocol": "SASL_PLAINTEXT", **SASL, "sasl.enabled.mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms is 'GSSAPI'",
        ),
        ({"security.protocol": "SASL_PLAINTEXT", **SASL}, r"PLAIN needs the users to verify, sasl\.plain\.user\.NAME"),
        (
            {"security.protocol": "SSL", "broker.principals": "User:kafka", "ssl.client.auth": "none"},
            "ssl.client.auth must be required",
        ),
        ({"security.protocol": "SSL", "broker.principals": "User:a;CN=b"}, "has 'CN=b', as which no broker can log in"),
        ({"sasl.mechanism": "PLAIN"}, "'sasl.mechanism' is not known"),
        ({"control.plane.listen": "nowhere"}, "control.plane.listen 'nowhere' is not an address"),
    ],
)
def test_files_that_would_accept_any_client_are_refused(
    configured: WithFile, lines: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        configured(lines)


def test_addresses_that_brokers_cannot_connect_to_are_refused() -> None:
    with pytest.raises(UsageError, match="give --advertise HOST:PORT"):
        ListenConfig.of(["0.0.0.0:9093"], [], None)

    [binding] = ListenConfig.of(["0.0.0.0:9093"], ["surveyor.example:9094"], None).bindings
    assert (binding.port, binding.advertised_host, binding.advertised_port) == (9093, "surveyor.example", 9094)


def test_clients_of_a_listener_have_an_address_of_their_own(tmp_path: Path) -> None:
    """It is plain text, whatever brokers use."""
    lines = {"control.plane.listen": "127.0.0.1:9095"}
    config = ListenConfig.of(
        ["clients://0.0.0.0:9094", "0.0.0.0:9093", "OTHERS://127.0.0.1:9096"],
        ["surveyor.example:19093", "CLIENTS://surveyor.example:19094"],
        write_properties(tmp_path / "listen.properties", lines),
    )

    assert [
        (binding.listener, binding.port, binding.advertised_host, binding.advertised_port)
        for binding in config.bindings
    ] == [
        ("CLIENTS", 9094, "surveyor.example", 19094),
        (None, 9093, "surveyor.example", 19093),
        ("OTHERS", 9096, "127.0.0.1", 9096),
        (None, 9095, "127.0.0.1", 9095),
    ]


def test_clients_of_a_listener_need_no_login(tmp_path: Path) -> None:
    lines = {"security.protocol": "SASL_PLAINTEXT", **SASL, **USERS}
    file = write_properties(tmp_path / "listen.properties", lines)

    config = ListenConfig.of(["127.0.0.1:0", "CLIENTS://127.0.0.1:0"], [], file)

    assert [(binding.listener, binding.security_protocol) for binding in config.bindings] == [
        (None, "SASL_PLAINTEXT"),
        ("CLIENTS", "PLAINTEXT"),
    ]


@pytest.mark.parametrize(
    ("listen", "advertise", "message"),
    [
        (["CLIENTS://127.0.0.1:0"], [], "--listen HOST:PORT is missing"),
        (["127.0.0.1:0", "127.0.0.1:1"], [], "another address without the name of a listener, 127.0.0.1:0"),
        (["127.0.0.1:0", "A://127.0.0.1:1", "a://127.0.0.1:2"], [], "another address of listener A, 127.0.0.1:1"),
        (["127.0.0.1:0"], ["127.0.0.1:1", "127.0.0.1:2"], "--advertise '127.0.0.1:2': there is another address"),
        (["127.0.0.1:0"], ["A://127.0.0.1:1"], "--advertise A://HOST:PORT needs --listen A://HOST:PORT"),
        (["127.0.0.1:0", "A://0.0.0.0:1"], ["127.0.0.1:2"], "give --advertise A://HOST:PORT"),
        (["127.0.0.1:0", "A://nowhere"], [], "'nowhere' is not an address"),
        (["A b://127.0.0.1:1"], [], "'A b://127.0.0.1:1' is not an address"),
    ],
)
def test_addresses_that_contradict_each_other_are_refused(
    listen: list[str], advertise: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ListenConfig.of(listen, advertise, None)


def test_the_control_plane_may_have_another_protocol(configured: WithFile) -> None:
    config = configured(
        {
            "security.protocol": "SASL_SSL",
            **SASL,
            **USERS,
            "control.plane.listen": "127.0.0.1:0",
            "control.plane.security.protocol": "PLAINTEXT",
        }
    )

    assert [binding.security_protocol for binding in config.bindings] == ["SASL_SSL", "PLAINTEXT"]


def test_a_large_request_over_tls(tls: Served, certificates: Certificates) -> None:
    """Larger than what the server buffers before it pauses."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(certificates.client)
    with (
        socket.create_connection(("127.0.0.1", tls.port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        client = RawClient(connection)
        for size in (100, 2_000_000, 100):
            client.send(api_versions_request(3, "x" * size))
            assert client.receive()[:4] == pack(">i", 7)
