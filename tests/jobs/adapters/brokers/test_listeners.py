"""Which endpoint control requests go to, and what TLS and SASL come to where something does not fit: without Kafka."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from jobs.adapters.brokers import connection as broker_channel
from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.connection import (
    DISCONNECTED,
    BrokerConnection,
    authenticate,
    connection_refusal,
    refuse_unresponsive,
    unreachable_reasons,
)
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.brokers.fanout import ask_brokers
from jobs.adapters.brokers.listeners import (
    PLAINTEXT_LISTENER,
    AuthenticationFailedError,
    Listener,
    UnreachableBrokerError,
)
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.kraft.session import read_from_broker
from jobs.core.errors import RefusedError, UnreadableError, UsageError
from jobs.runtime.settings import ClusterConf, Settings
from planner.broker_requests import notices_for
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.fake_brokers import FakeBroker
from tests.jobs.support.kafka.login_refusal import refusing_logins
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates
from tests.typed_rows import typed

LOOPBACK = "127.0.0.1"
LONG = 60.0
PASSWORD = "hunter-2-hunter"  # noqa: S105 - not a real password

ENDPOINTS = [("INSIDE", "PLAINTEXT"), ("CLIENTS", "SASL_SSL"), ("CONTROL", "SASL_SSL")]


def row(port: int = 1, listeners: list[tuple[str, str]] | None = None) -> Broker:
    endpoints = [
        Endpoint(name, protocol, LOOPBACK, port + number)
        for number, (name, protocol) in enumerate(listeners or [("L", "SSL")])
    ]
    return Broker(broker_id=3, broker_epoch=1, endpoints=endpoints, understood=True)


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeBroker]]:
    """Begin a broker behind TLS, or in plain text without a certificate; `ca`: whose clients it lets in alone."""
    with ExitStack() as stack:

        def begin(certificate: Path | None = None, ca: Path | None = None) -> FakeBroker:
            listener = socket.create_server((LOOPBACK, 0))
            if certificate is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                if ca is not None:
                    context.verify_mode = ssl.CERT_REQUIRED
                    context.load_verify_locations(ca)
                # the handshake is part of the first reading, in the thread of that connection
                listener = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
            broker = FakeBroker(listener)
            stack.callback(broker.close)
            return broker

        yield begin


def by(folder: Path, **properties: object) -> Listener:
    """A listener by TLS, but for what is said otherwise; `_` stands for a dot."""
    named = {key.replace("_", "."): str(value) for key, value in properties.items()}
    return Listener.of(write_properties(folder / "client.properties", {"security.protocol": "SSL", **named}), None)


@pytest.mark.parametrize(
    ("protocol", "name", "port"),
    [
        ("PLAINTEXT", None, 1),
        ("SASL_SSL", None, 2),
        ("SASL_SSL", "CONTROL", 3),
        ("PLAINTEXT", "INSIDE", 1),
    ],
)
def test_endpoint_is_chosen_by_protocol_and_name(protocol: str, name: str | None, port: int) -> None:
    assert Listener(protocol, name).address(row(listeners=ENDPOINTS)) == (LOOPBACK, port)


@pytest.mark.parametrize(
    ("protocol", "name", "reason"),
    [
        ("SSL", None, "has no SSL endpoint; it has INSIDE (PLAINTEXT), CLIENTS (SASL_SSL), CONTROL (SASL_SSL): set"),
        ("PLAINTEXT", "CONTROL", "has no PLAINTEXT endpoint called CONTROL; it has"),
        ("SASL_SSL", "control", "or control_listener in the conf"),
    ],
)
def test_broker_without_such_an_endpoint(protocol: str, name: str | None, reason: str) -> None:
    with pytest.raises(UnreachableBrokerError) as refused:
        Listener(protocol, name).address(row(listeners=ENDPOINTS))

    assert str(refused.value).startswith("broker 3 has no")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security_protocol": "TLS"}, "security.protocol is 'TLS'; it is one of PLAINTEXT, SSL, "),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is GSSAPI by default: GSSAPI needs"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "EXTERNAL"}, "it is one of PLAIN, SCRAM-"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, "GSSAPI needs sasl.kerberos.keytab"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "SASL needs sasl.username and"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs one of",
        ),
        ({"ssl_ca_location": "/nowhere"}, "ssl.ca.location: No such file or directory"),
        ({"ssl_ca_location": __file__}, "ssl.ca.location: not the PEM file it should be (NO_CERT"),
        (
            {"ssl_certificate_location": "/nowhere"},
            "ssl.certificate.location, ssl.key.location or ssl.key.password: N",
        ),
    ],
)
def test_unsupported_properties(properties: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        by(tmp_path, sasl_password=PASSWORD, **properties)

    assert reason in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_user_in_a_login_module(tmp_path: Path) -> None:
    """As in the files of Kafka's own tools; sasl.username wins over it."""
    module = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="{PASSWORD}";'
    scram = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": module}

    found = [by(tmp_path, **scram, **others).sasl for others in ({}, {"sasl_username": "bob"})]

    assert [sasl["sasl_plain_username"] for sasl in found] == ["ann", "bob"]
    assert {sasl["sasl_plain_password"] for sasl in found} == {PASSWORD}


def test_key_with_a_password(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL does not prompt for a missing password, and a wrong one is not shown."""
    data, pem = certificates.client.read_bytes(), serialization.Encoding.PEM
    encrypted = serialization.BestAvailableEncryption(PASSWORD.encode())
    key = serialization.load_pem_private_key(data, None)
    (tmp_path / "key.pem").touch(0o600)
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encrypted))
    files = {"ssl_certificate_location": certificates.client, "ssl_key_location": tmp_path / "key.pem"}

    assert by(tmp_path, **files, ssl_key_password=PASSWORD).tls is not None
    for given in ({}, {"ssl_key_password": "wrong-one"}):
        with pytest.raises(UsageError, match=r"ssl\.key\.password: not the PEM file it should be") as refused:
            by(tmp_path, **files, **given)
        assert "wrong-one" not in str(refused.value)
        with pytest.raises(UsageError, match=r"ssl\.key\.password"):
            read_properties(tmp_path / "client.properties")


def test_the_file_is_read_once_for_a_command(tmp_path: Path) -> None:
    config = write_properties(tmp_path / "client.properties", {"security.protocol": "PLAINTEXT"})
    settings = Settings("default", "warehouse", ClusterConf(command_config=config))
    read = settings.listener
    config.unlink()

    assert settings.listener is read


def test_secrets_are_not_part_of_what_is_shown(tmp_path: Path) -> None:
    user = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": PASSWORD}

    assert PASSWORD not in repr(by(tmp_path, security_protocol="SASL_PLAINTEXT", **user))


def test_requests_by_tls_with_certificates(
    serve: Callable[..., FakeBroker], certificates: Certificates, tmp_path: Path
) -> None:
    """One is larger than a record of TLS."""
    broker = serve(certificates.server, certificates.ca)
    led = {"leader_after": 3, "leader_epoch_after": 7, "isr_after": [3], "replicas_after": [3]}
    recipients = {"leader_and_isr_to": [3], "stop_replica_to": [], "leader_recovery_state_after": 0, "state_version": 2}
    changes = [typed(topic="t", partition=number, **led, **recipients) for number in range(2000)]
    listener = by(tmp_path, ssl_ca_location=certificates.ca, ssl_certificate_location=certificates.client)

    with ChannelManager("test", listener=listener) as channels:
        announced = ControlBatch(1, 5, [row(broker.port)], notices_for(changes, {3}))
        answers = deliver(channels, announced, time.monotonic() + 60)

    assert BrokerResponses.of(answers).accepted == [3]
    assert [len(one.partitions) for one in broker.of("leader_and_isr")] == [2000]


def refusal(port: int, listener: Listener, timeout_seconds: float = LONG) -> str:
    """Why no request can be sent to a broker, reported long before the timeout, or soon after a short one."""
    began = time.monotonic()
    protocol = listener.security_protocol
    (reason,) = unreachable_reasons([row(port, [("L", protocol)])], "test", listener, timeout_seconds).values()
    assert time.monotonic() - began < LONG / 2
    return reason


def test_certificate_of_another_authority(
    serve: Callable[..., FakeBroker], certificates: Certificates, tmp_path: Path
) -> None:
    others = Certificates.made_in(tmp_path / "others")
    port, listener = serve(others.server).port, by(tmp_path, ssl_ca_location=certificates.ca)

    reason = refusal(port, listener)

    assert "its certificate does not verify: unable to get local issuer certificate" in reason
    assert connection_refusal(row(port, [("L", "SSL")]), "test", listener) == reason


def elsewhere(folder: Path) -> tuple[Path, Path]:
    """The certificate of a server on another host, and its authority's."""
    server, ca = folder / "server.pem", folder / "ca.pem"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("elsewhere.example").private_key_and_cert_chain_pem.write_to_path(server)
    return server, ca


def test_certificate_of_another_host(serve: Callable[..., FakeBroker], tmp_path: Path) -> None:
    server, ca = elsewhere(tmp_path)

    reason = refusal(serve(server).port, by(tmp_path, ssl_ca_location=ca))

    assert f"certificate is not valid for '{LOOPBACK}'" in reason


def test_certificate_of_another_host_where_names_are_not_checked(
    serve: Callable[..., FakeBroker], tmp_path: Path
) -> None:
    server, ca = elsewhere(tmp_path)
    unchecked = {"ssl_endpoint_identification_algorithm": "none"}
    listener = by(tmp_path, ssl_ca_location=ca, **unchecked)

    assert unreachable_reasons([row(serve(server).port)], "test", listener) == {}


def test_broker_that_wants_a_certificate(
    serve: Callable[..., FakeBroker], certificates: Certificates, tmp_path: Path
) -> None:
    reason = refusal(serve(certificates.server, certificates.ca).port, by(tmp_path, ssl_ca_location=certificates.ca))

    assert (
        "it does not accept our certificate (TLSV13_ALERT_CERTIFICATE_REQUIRED): see ssl.certificate.location" in reason
    )


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """Something that takes connections, says this much and closes them; its port."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve_all() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(data)

        serving = Thread(target=serve_all)
        serving.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            serving.join()


def test_plain_text_where_tls_is_spoken() -> None:
    """What is no beginning of TLS is answered with an alert."""
    with answering(b"\x15\x03\x03\x00\x02\x02\x50") as port:
        reason = refusal(port, PLAINTEXT_LISTENER)

    assert f"broker 3 at {LOOPBACK}:{port} (the listener uses TLS, and the request was plain text" in reason


def test_tls_where_plain_text_is_spoken(certificates: Certificates, tmp_path: Path) -> None:
    """Kafka closes the connection: as a request, the beginning of TLS would be too large."""
    with answering(b"") as port:
        reason = refusal(port, by(tmp_path, ssl_ca_location=certificates.ca), timeout_seconds=1.0)

    assert "it closed the connection during the TLS handshake: does that listener use TLS?" in reason


def test_broker_that_says_nothing_when_tls_begins(
    serve: Callable[..., FakeBroker], certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channel, "PROBE_TIMEOUT_SECONDS", 0.2)
    broker = serve()
    broker.stop()

    reason = refusal(broker.port, by(tmp_path, ssl_ca_location=certificates.ca), timeout_seconds=1.0)

    assert "it did not answer the TLS handshake: does that listener use TLS?" in reason


def test_reader_of_tls_is_woken_up(
    serve: Callable[..., FakeBroker], certificates: Certificates, tmp_path: Path
) -> None:
    """As the end of a commit wakes up a thread that waits for a stopped broker."""
    broker = serve(certificates.server)
    channel = BrokerConnection.to(
        row(broker.port), "test", lambda: None, 5, by(tmp_path, ssl_ca_location=certificates.ca)
    )
    broker.stop()
    raised = list[BaseException]()

    def read() -> None:
        channel.transport.set_timeout(60)
        try:
            channel.api_versions()
        except DISCONNECTED as error:
            raised.append(error)

    with closing(channel):
        reader = Thread(target=read)
        reader.start()
        time.sleep(0.2)
        channel.abort()
        reader.join(5)

    assert (reader.is_alive(), len(raised)) == (False, 1)


def test_unauthorized_user_is_refused_before_any_request(serve: Callable[..., FakeBroker]) -> None:
    broker = serve()
    broker.is_authorized = False
    registered = row(broker.port, [("L", "PLAINTEXT")])

    with pytest.raises(RefusedError) as refused:
        refuse_unresponsive([registered], 1, ())

    assert f"broker 3 at {LOOPBACK}:{broker.port} (it answers ClusterAuthorizationFailed (31)" in str(refused.value)
    assert "needs ClusterAction on the Cluster" in str(refused.value)
    assert broker.received == []


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        ("PLAIN", "SaslAuthenticationFailedError (58): see sasl.username and sasl.password"),
        ("SCRAM-SHA-256", "UnsupportedSaslMechanismError (33): it accepts PLAIN, not SCRAM-SHA-256"),
    ],
)
def test_a_refused_login_has_its_cause_in_every_request(tmp_path: Path, mechanism: str, reason: str) -> None:
    """kafka-python reports only a closed connection; brokers of a KRaft cluster, too, are asked for the cause."""
    login = {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": PASSWORD}
    settings = read_properties(
        write_properties(tmp_path / "client.properties", {"security.protocol": "SASL_PLAINTEXT", **login})
    )
    with refusing_logins() as port:
        broker = row(port, [("L", "SASL_PLAINTEXT")])
        _, reasons = ask_brokers([broker], settings, LONG, lambda ask, _: ask(DescribeClusterRequest()))
        with pytest.raises(UnreadableError) as unreadable:
            read_from_broker([f"{LOOPBACK}:{port}"], settings, lambda session: session.ask(DescribeClusterRequest()))

    assert reason in reasons[3]
    assert str(unreadable.value).startswith(f"no broker accepted the connection:\n  {LOOPBACK}:{port}: {reason}")
    assert PASSWORD not in f"{reasons}{unreadable.value}"


def scripted(*answers: SaslAuthenticateResponse, mechanisms: tuple[str, ...] = ("PLAIN",)) -> list[bytes]:
    """A broker's answers in order: to the handshake first."""
    taken = SaslHandshakeResponse(error_code=0 if mechanisms else 33, mechanisms=list(mechanisms) or ["GSSAPI"])
    return [_written(answer) for answer in (taken, *answers)]


def _written(answer: SaslHandshakeResponse | SaslAuthenticateResponse) -> bytes:
    answer.API_VERSION = 1
    answer.with_header(correlation_id=1)
    return bytes(answer.encode(header=True))


def answer(error_code: int = 0, message: str | None = None, data: bytes = b"") -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error_code, error_message=message, auth_bytes=data, session_lifetime_ms=0
    )


def speak(mechanism: str, answers: list[bytes]) -> list[Any]:
    """Authenticate; return the requests that were sent."""
    user = {"sasl_mechanism": mechanism, "sasl_plain_username": "u", "sasl_plain_password": PASSWORD}
    given, sent = iter(answers), list[Any]()

    def exchange(request: Any) -> bytes:  # noqa: ANN401 - of kafka-python
        sent.append(request)
        return next(given)

    authenticate(exchange, user, LOOPBACK)
    return sent


def test_plain_is_taken() -> None:
    handshake, authentication = speak("PLAIN", scripted(answer()))

    assert handshake.mechanism == "PLAIN"
    assert authentication.auth_bytes.split(b"\0")[1:] == [b"u", PASSWORD.encode()]


@pytest.mark.parametrize(
    ("mechanism", "answers", "reason"),
    [
        ("PLAIN", scripted(mechanisms=()), "UnsupportedSaslMechanismError (33): it accepts GSSAPI, not PLAIN"),
        ("PLAIN", scripted(answer(58, f"not {PASSWORD}")), "SaslAuthenticationFailedError (58): see sasl.username"),
        ("PLAIN", scripted(answer(data=b"?")), "its response to PLAIN is invalid"),
        ("PLAIN", [b"\0"], "are not those of a broker that knows the user"),
        ("SCRAM-SHA-256", scripted(answer(data=b"r=somebody-else,s=AAAA,i=4096")), "are not those of a broker"),
        ("SCRAM-SHA-512", scripted(answer(data=b"\xff")), "are not those of a broker that knows the user"),
    ],
)
def test_refused_by_sasl(mechanism: str, answers: list[bytes], reason: str) -> None:
    with pytest.raises(AuthenticationFailedError) as refused:
        speak(mechanism, answers)

    assert reason in str(refused.value)
    assert PASSWORD not in str(refused.value)
