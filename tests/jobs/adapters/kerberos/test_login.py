"""Logins at a real KDC: tickets that are renewed, and what is wrong in one line."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.kerberos.gssapi_exchange import GssapiExchange
from jobs.adapters.kerberos.login import KEYTAB, PRINCIPAL, SERVICE, KerberosError, KerberosLogin, login_of
from jobs.core.errors import MissingError, UsageError
from jobs.core.properties import JAAS_CONFIG
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.kerberos.kdc import (
    BROKER,
    GUEST,
    LIFETIME_SECONDS,
    REALM,
    USER,
    Kdc,
    keytab_with_another_key,
    ticket_cache,
)

gssapi = pytest.importorskip("gssapi", reason="`make setup-dev` installs gssapi")

HOST = "localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(autouse=True)
def configured(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """krb5.conf names this KDC, and there are no tickets of the user that runs the tests."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf()))
    monkeypatch.setenv("KRB5RCACHENAME", "none:")  # who accepts would leave a file for all processes
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere/tickets")


def service_of(kdc: Kdc) -> Any:  # noqa: ANN401 - gssapi has no types
    """The other side of GSSAPI, with the keys of every service."""
    credentials = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{kdc.keytab}"})
    return gssapi.SecurityContext(creds=credentials, usage="accept")


def accepted(login: KerberosLogin, kdc: Kdc) -> str:
    """Log in to a service, as RFC 4752 has it; return the principal it sees."""
    service = service_of(kdc)
    exchange = GssapiExchange(login, HOST)
    answer = service.step(exchange.step(None))
    assert exchange.step(answer) == b""
    assert service.complete
    chosen = exchange.step(service.wrap(bytes([7, 1, 0, 0]), encrypt=False).message)
    assert exchange.complete
    assert service.unwrap(chosen).message == bytes([1, 0, 0, 0])
    return str(service.initiator_name)


def failure_of(login: KerberosLogin) -> str:
    with pytest.raises(KerberosError) as failed:
        GssapiExchange(login, HOST).step(None)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def is_refused(login: KerberosLogin) -> bool:
    try:
        GssapiExchange(login, HOST).step(None)
    except KerberosError:
        return True
    return False


def test_a_service_accepts_the_principal(kdc: Kdc, tmp_path: Path) -> None:
    lines = {
        "keytab and principal": {KEYTAB: str(kdc.keytab), PRINCIPAL: USER, SERVICE: "kafka"},
        "login module": {JAAS_CONFIG: kdc.login_module(USER)},
        "service of the module": {JAAS_CONFIG: kdc.login_module(USER).replace(";", " serviceName=kafka;")},
        "ticket cache": {
            JAAS_CONFIG: f'{MODULE} useTicketCache=true ticketCache="{ticket_cache(tmp_path / "c", kdc.keytab)}";'
        },
    }
    principals = {case: accepted(login_of(values, "f", "KafkaClient", "kafka"), kdc) for case, values in lines.items()}

    assert principals == dict.fromkeys(lines, f"{USER}@{REALM}")


def test_two_clusters_have_their_own_principals(kdc: Kdc) -> None:
    logins = [KerberosLogin("kafka", kdc.keytab, name, None) for name in (USER, GUEST)]

    assert [accepted(login, kdc) for login in (*logins, *logins)] == 2 * [f"{USER}@{REALM}", f"{GUEST}@{REALM}"]


@pytest.fixture
def short_lived(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> KerberosLogin:
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(lifetime=LIFETIME_SECONDS)))
    return KerberosLogin("kafka", kdc.keytab, USER, None)


def go_on_by(login: KerberosLogin, lifetimes: float) -> None:
    """Move the clock of a login on by that many lifetimes of a ticket."""
    later = time.monotonic() + lifetimes * LIFETIME_SECONDS
    login.monotonic = lambda: later


def test_tickets_are_shared(short_lived: KerberosLogin) -> None:
    first = short_lived.credentials()

    assert short_lived.credentials() is first
    assert first.lifetime <= LIFETIME_SECONDS


def test_tickets_are_renewed(kdc: Kdc, short_lived: KerberosLogin) -> None:
    first = short_lived.credentials()
    go_on_by(short_lived, 0.6)

    assert short_lived.credentials() is not first
    assert accepted(short_lived, kdc) == f"{USER}@{REALM}"


def test_without_a_kdc_the_last_ticket_is_used_until_it_expires(
    kdc: Kdc, short_lived: KerberosLogin, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = short_lived.credentials()
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(port=free_port())))

    go_on_by(short_lived, 0.8)
    assert short_lived.credentials() is last
    go_on_by(short_lived, 1.0)
    assert "no KDC of the realm of surveyor answers" in failure_of(short_lived)


@pytest.mark.parametrize(
    ("principal", "service", "reason"),
    [
        (
            "stranger",
            "kafka",
            "all.keytab has no key of stranger, or of another encryption type than the KDC: see `klist -ke /",
        ),
        (USER, "kafkaesque", "the KDC does not know the service kafkaesque@localhost"),
        ("sur@veyor@x", "kafka", "sur@veyor@x is not of the form NAME"),
    ],
)
def test_names_that_do_not_exist(kdc: Kdc, principal: str, service: str, reason: str) -> None:
    failure = failure_of(KerberosLogin(service, kdc.keytab, principal, None))

    assert failure.startswith(f"Kerberos login of {principal} failed: ")
    assert reason in failure


def test_keys_that_the_kdc_does_not_accept(tmp_path: Path) -> None:
    outdated, unknown = (
        keytab_with_another_key(tmp_path / "outdated", USER),
        keytab_with_another_key(tmp_path / "unknown", "stranger"),
    )

    failures = [
        failure_of(KerberosLogin("kafka", outdated, USER, None)),
        failure_of(KerberosLogin("kafka", unknown, "stranger", None)),
    ]

    assert f"the KDC does not accept the key in {outdated}: export the keytab of surveyor again" in failures[0]
    assert failures[1].endswith(
        "the KDC does not know the principal stranger: have it created there, or correct the name "
        f"(see `klist -ke {unknown}`)"
    )


def test_a_ticket_cache_without_a_ticket(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = failure_of(KerberosLogin("kafka", None, None, f"FILE:{tmp_path}/none"))
    default = failure_of(KerberosLogin("kafka", None, None, None))
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(lifetime=3)))
    cache = ticket_cache(tmp_path / "short", kdc.keytab)
    login = KerberosLogin("kafka", None, None, cache)
    assert eventually(lambda: is_refused(login))  # later than by our clock if the KDC's response took time
    expired = failure_of(login)

    assert missing.startswith(f"Kerberos login with the ticket cache FILE:{tmp_path}/none failed: ")
    assert missing.endswith(
        f"there is no ticket cache FILE:{tmp_path}/none: run `kinit -c FILE:{tmp_path}/none PRINCIPAL`"
    )
    assert default.endswith("there is no ticket in the default ticket cache: run `kinit PRINCIPAL`")
    assert expired.endswith(f"the ticket in {cache} has expired: run `kinit -c {cache} PRINCIPAL`")


def test_no_kdc(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = KerberosLogin("kafka", kdc.keytab, USER, None)
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf(port=free_port())))
    silent = failure_of(login)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "none"))
    unnamed = failure_of(login)

    assert silent.endswith("no KDC of the realm of surveyor answers: see krb5.conf (KRB5_CONFIG) and the network")
    assert unnamed.endswith("neither surveyor nor krb5.conf names a realm: see KRB5_CONFIG")


def test_a_realm_without_a_kdc(tmp_path: Path) -> None:
    keytab = keytab_with_another_key(tmp_path / "other.keytab", USER, "OTHER.TEST")

    failure = failure_of(KerberosLogin("kafka", keytab, f"{USER}@OTHER.TEST", None))

    assert failure.endswith("krb5.conf has no KDC of the realm of surveyor@OTHER.TEST: see KRB5_CONFIG")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (37, "the clocks of this machine and the KDC differ too much: synchronize them"),
        (14, "have no encryption type in common"),
        (18, "is locked or expired in the KDC"),
    ],
)
def test_what_this_kdc_never_answers(kdc: Kdc, code: int, reason: str) -> None:
    """Codes of krb5.h, from KRB5KDC_ERR_NONE on, as the library returns them: without a sign."""
    error = gssapi.exceptions.GSSError(0xD0000, (-1765328384 + code) & 0xFFFFFFFF)

    assert reason in str(KerberosLogin("kafka", kdc.keytab, USER, None).error(error, HOST))


def test_failures_are_kept_by_host(kdc: Kdc) -> None:
    login = KerberosLogin("kafkaesque", kdc.keytab, USER, None)
    failure = failure_of(login)

    assert login.failure(["other", HOST]) == failure
    assert login.failure(["other"]) is None
    login.service = "kafka"
    assert accepted(login, kdc)
    assert login.failure([HOST]) is None


def test_a_service_that_only_encrypts(kdc: Kdc) -> None:
    login = KerberosLogin("kafka", kdc.keytab, USER, None)
    service = service_of(kdc)
    exchange = GssapiExchange(login, HOST)
    exchange.step(service.step(exchange.step(None)))

    with pytest.raises(KerberosError, match="requires a security layer"):
        exchange.step(service.wrap(bytes([4, 1, 0, 0]), encrypt=False).message)


@pytest.mark.parametrize("answer", [b"no answer of a service", None], ids=["other", "none"])
def test_a_server_without_kerberos(kdc: Kdc, answer: bytes | None) -> None:
    """A ZooKeeper that is not configured for SASL answers with no token."""
    exchange = GssapiExchange(KerberosLogin("kafka", kdc.keytab, USER, None), HOST)
    assert exchange.step(None)

    with pytest.raises(KerberosError) as refused:
        exchange.step(answer)

    assert str(refused.value) == (
        "Kerberos login of surveyor failed: localhost does not offer Kerberos: leave out the file that configures it, "
        "or correct the address"
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ({}, "GSSAPI needs sasl.kerberos.keytab and sasl.kerberos.principal, or sasl.jaas.config with Krb5LoginModule"),
        ({JAAS_CONFIG: f"{MODULE} useKeyTab=true;"}, "or a ticket cache"),
        ({KEYTAB: "KEYTAB"}, "a keytab needs the principal that it is for"),
        ({KEYTAB: "/nowhere/x.keytab", PRINCIPAL: USER}, "the keytab /nowhere/x.keytab cannot be read: No such file"),
        (
            {JAAS_CONFIG: "x.ScramLoginModule required;"},
            "needs the login module Krb5LoginModule, not x.Scram",
        ),
    ],
)
def test_files_without_a_login(kdc: Kdc, lines: dict[str, str], reason: str) -> None:
    values = {key: value.replace("KEYTAB", str(kdc.keytab)) for key, value in lines.items()}
    with pytest.raises(UsageError) as refused:
        login_of(values, "--command-config f", "KafkaClient", "kafka")

    assert str(refused.value).startswith("--command-config f: ")
    assert reason in str(refused.value)


def test_a_keytab_that_all_users_may_read(kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "shared.keytab"
    keytab.write_bytes(kdc.keytab.read_bytes())
    keytab.chmod(0o644)

    with pytest.raises(UsageError, match=f"has keys in it, and all users may read or change it: chmod o= {keytab}"):
        login_of({KEYTAB: str(keytab), PRINCIPAL: USER}, "f", "KafkaClient", "kafka")


def test_without_the_extra(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)

    with pytest.raises(MissingError, match=r"needs one more package: pip install 'kafka-surveyor\[kerberos\]'"):
        login_of({KEYTAB: str(kdc.keytab), PRINCIPAL: BROKER}, "f", "KafkaClient", "kafka")
