"""Listeners of clients with TLS and SASL: how clients log in, and what ends their connection without an answer.

An error in the handshake ends a producer or a consumer, so none is sent (`NetworkClient.handleServerDisconnect`).
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack
from typing import Final

import pytest
from scramp import ScramClient, ScramMechanism

from jobs.adapters.request_server.connection_quotas import ConnectionQuotas
from jobs.adapters.request_server.listen_config import ListenConfig, Security
from jobs.adapters.request_server.sasl_mechanisms import ScramCredential
from jobs.adapters.request_server.server import RequestServer
from jobs.core.errors import UsageError
from tests.jobs.adapters.request_server.clients import (
    METADATA,
    PRODUCER_IDS,
    ProducerIdHandler,
    RawClient,
    connected_to,
    framed,
    running,
    sasl_authenticate_request,
    sasl_handshake_request,
)
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

PASSWORD: Final = "hunter-2-hunter"  # noqa: S105 - not a real password
LISTEN: Final = ["127.0.0.1:0", "USERS://127.0.0.1:0"]
USERS: Final = {
    "listener.name.users.security.protocol": "SASL_PLAINTEXT",
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.users.sasl.plain.user.admin.password": PASSWORD,
}
METADATA_REQUEST: Final = framed(pack(">hhih", METADATA, 12, 1, 4) + b"test" + b"\0\1\0\0\0")


def config_of(folder: Path, lines: Mapping[str, str]) -> ListenConfig:
    return ListenConfig.of(LISTEN, [], write_properties(folder / "listen.properties", lines))


def of_clients(config: ListenConfig) -> Security:
    return config.bindings[1].security


@dataclass
class Served:
    """A server with a listener of clients."""

    port: int
    handler: ProducerIdHandler
    quotas: ConnectionQuotas
    """Those of clients."""
    asked: list[str]
    """Users whose SCRAM credentials were read."""


@contextmanager
def serving(config: ListenConfig) -> Iterator[Served]:
    handler, asked = ProducerIdHandler(), list[str]()

    def credentials(user: str, mechanism: str) -> ScramCredential | None:
        asked.append(user)
        salt, stored, server, iterations = ScramMechanism(mechanism).make_auth_info(PASSWORD, iteration_count=4096)
        return ScramCredential(salt, stored, server, iterations) if user == "alice" else None

    with running(RequestServer(config, handler, credentials)) as server:
        yield Served(server.endpoints[1].port, handler, server._for_clients.quotas, asked)  # noqa: SLF001


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(config_of(tmp_path, USERS)) as running:
        yield running


def login(client: RawClient, mechanism: str, first: bytes) -> bytes:
    """Begin to log in; return the data of the server's answer."""
    client.send(sasl_handshake_request(mechanism))
    client.receive()
    client.send(sasl_authenticate_request(first))
    return client.receive()


def log_in_by_scram(client: RawClient, user: str, password: str) -> None:
    scram = ScramClient(["SCRAM-SHA-256"], user, password)
    answer = login(client, "SCRAM-SHA-256", scram.get_client_first().encode())
    scram.set_server_first(auth_bytes(answer))
    client.send(sasl_authenticate_request(scram.get_client_final().encode()))
    scram.set_server_final(auth_bytes(client.receive()))


def auth_bytes(response: bytes) -> str:
    """Return the data of a SaslAuthenticate response of version 1."""
    error, message = unpack(">hh", response[4:8])
    assert (error, message) == (0, -1)
    (size,) = unpack(">i", response[8:12])
    return response[12 : 12 + size].decode()


def test_any_user_whose_password_is_right_is_served(served: Served) -> None:
    with connected_to(served.port) as admin, connected_to(served.port) as alice:
        login(admin, "PLAIN", f"\0admin\0{PASSWORD}".encode())
        log_in_by_scram(alice, "alice", PASSWORD)
        assert [admin.producer_ids(1), alice.producer_ids(2)] == [1, 2]

    assert [(caller.principal, caller.clients_of) for caller in served.handler.callers] == [
        ("User:admin", "USERS"),
        ("User:alice", "USERS"),
    ]


@pytest.mark.parametrize("message", [b"\0stranger\0secret", b"\0admin\0wrong", b"other\0admin\0" + PASSWORD.encode()])
def test_a_password_that_cannot_be_verified_is_not_answered(served: Served, message: bytes) -> None:
    with connected_to(served.port) as client, pytest.raises(EOFError):
        login(client, "PLAIN", message)
    assert served.handler.callers == []


@pytest.mark.parametrize("user", ["alice", "stranger"])
def test_a_wrong_password_of_scram_is_not_answered(served: Served, user: str) -> None:
    with connected_to(served.port) as client, pytest.raises(EOFError):
        log_in_by_scram(client, user, "wrong")
    assert served.handler.callers == []


@pytest.mark.parametrize("user", ["..", "u" * 300, "é" * 126])
def test_credentials_are_not_read_of_names_that_fit_no_path(served: Served, user: str) -> None:
    with connected_to(served.port) as client, pytest.raises(EOFError):
        log_in_by_scram(client, user, PASSWORD)
    assert served.asked == []


def test_a_mechanism_that_is_not_enabled_is_not_answered(served: Served) -> None:
    with connected_to(served.port) as client:
        client.send(sasl_handshake_request("GSSAPI"))
        assert client.is_closed


def test_what_brokers_answer_is_listed_and_ends_the_connection(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected_to(served.port) as client:
        login(client, "PLAIN", f"\0admin\0{PASSWORD}".encode())
        assert client.api_versions(3)[1].keys() == {17, 18, 36, METADATA, PRODUCER_IDS}
        client.send(METADATA_REQUEST)
        assert client.is_closed
    assert capsys.readouterr().err == ""


def test_nothing_is_served_before_the_login(served: Served) -> None:
    for request in (METADATA_REQUEST, framed(pack(">hhih", PRODUCER_IDS, 0, 1, 4) + b"test" + b"\0" + bytes(13))):
        with connected_to(served.port) as client:
            client.send(request)
            assert client.is_closed
    assert served.handler.callers == []


@pytest.mark.parametrize("client_auth", ["required", "requested", "none"])
def test_certificates_of_clients(tmp_path: Path, certificates: Certificates, client_auth: str) -> None:
    """The listener has its own `ssl.client.auth`, and shares the other files."""
    lines = {
        "ssl.certificate.location": str(certificates.server),
        "ssl.ca.location": str(certificates.ca),
        "ssl.client.auth": "none",
        "listener.name.users.security.protocol": "SSL",
        "listener.name.users.ssl.client.auth": client_auth,
    }
    with serving(config_of(tmp_path, lines)) as served:
        is_served = [_asks_over_tls(served.port, certificates, own) for own in (None, certificates.client)]

    assert is_served == [client_auth != "required", True]
    anonymous = [caller.principal == "User:ANONYMOUS" for caller in served.handler.callers]
    assert anonymous == {"required": [False], "requested": [True, False], "none": [True, True]}[client_auth]


def _asks_over_tls(port: int, certificates: Certificates, own: Path | None) -> bool:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if own is not None:
        context.load_cert_chain(own)
    with ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        try:
            connection = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            return RawClient(connection).producer_ids(1) == 1
        except (OSError, EOFError):
            return False


def test_a_listener_has_users_of_its_own(tmp_path: Path) -> None:
    """A broker's password is none of a client; mechanisms are shared unless the listener has its own."""
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "broker.principals": "User:kafka",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.plain.user.kafka.password": PASSWORD,
        "listener.name.users.security.protocol": "SASL_PLAINTEXT",
    }
    security = of_clients(config_of(tmp_path, lines))

    assert (security.mechanisms, security.passwords, security.is_for_clients) == (("SCRAM-SHA-256",), {}, True)
    assert of_clients(config_of(tmp_path, lines | USERS)).passwords == {"admin": PASSWORD}


def test_a_tls_listener_requires_certificates_by_default(tmp_path: Path, certificates: Certificates) -> None:
    lines = {
        "ssl.certificate.location": str(certificates.server),
        "ssl.ca.location": str(certificates.ca),
        "ssl.client.auth": "none",
        "listener.name.users.security.protocol": "SSL",
    }
    assert of_clients(config_of(tmp_path, lines)).client_auth == "required"


def test_a_listener_may_have_a_certificate_of_another_kind(tmp_path: Path, certificates: Certificates) -> None:
    lines = {
        "ssl.certificate.location": str(tmp_path / "absent.pem"),
        "listener.name.users.security.protocol": "SSL",
        "listener.name.users.ssl.client.auth": "none",
        "listener.name.users.ssl.keystore.location": str(certificates.server),
        "listener.name.users.ssl.keystore.type": "PEM",
    }
    assert of_clients(config_of(tmp_path, lines)).tls is not None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"listener.name.users.broker.principals": "User:a"}, "is not known; after listener.name.users. known are"),
        ({"listener.name.others.ssl.client.auth": "none"}, "belongs to no address"),
        ({"listener.name.USERS.ssl.client.auth": "none"}, "belongs to no address: its listener, in lower case"),
        ({"listener.name.users.security.protocol": "SASL_SLL"}, "did you mean SASL_SSL"),
        ({"listener.name.users.security.protocol": "SASL_PLAINTEXT"}, "sasl.enabled.mechanisms is None"),
        (USERS | {"listener.name.users.sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms is 'GSSAPI'"),
        (
            USERS | {"listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"},
            "cannot be verified here: .* use the brokers, and `surveyor plan`",
        ),
        (
            {name: value for name, value in USERS.items() if not name.endswith("password")},
            "PLAIN needs the users to verify",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "broker.principals": "User:kafka",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
            },
            "it is one or more of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, separated",
        ),
        ({"listener.name.users.security.protocol": "SSL"}, "the certificate of this server"),
    ],
)
def test_settings_of_a_listener_that_cannot_be_meant_are_refused(
    tmp_path: Path, lines: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        config_of(tmp_path, lines)


def test_the_key_of_a_listener_must_not_be_readable_by_all(tmp_path: Path, certificates: Certificates) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(certificates.server.read_bytes())
    key.chmod(0o644)
    lines = {
        "listener.name.users.security.protocol": "SSL",
        "listener.name.users.ssl.client.auth": "none",
        "listener.name.users.ssl.certificate.location": str(key),
    }
    with pytest.raises(UsageError, match="chmod o="):
        config_of(tmp_path, lines)
