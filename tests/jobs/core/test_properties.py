"""Files of settings are Java properties, read as Kafka's own tools read them."""

from pathlib import Path

import pytest

from jobs.core.errors import UsageError
from jobs.core.jaas import JAAS_FILE, login_module
from jobs.core.properties import JAAS_CONFIG, read_key_values

KNOWN = ("sasl.username", "sasl.password", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")


def read(folder: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path = folder / "client.properties"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    return read_key_values(path, f"--command-config {path}", KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "sasl.username=me\nsasl.password=a#b\\\\c\n",
        "# a comment\n! another\n\n  sasl.username : me \nsasl.password   a#b\\u005cc",
        "sasl.username=\\\n    me\r\nsasl.password=a#b\\\\c  \r\n",
    ],
)
def test_as_java_reads_them(tmp_path: Path, text: str) -> None:
    """Comments, separators, lines that go on, escapes; blanks around a value, which Kafka drops, too."""
    assert read(tmp_path, text) == {"sasl.username": "me", "sasl.password": "a#b\\c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sasl.user=me",
            "'sasl.user' is not known or has no value; known are sasl.username, sasl.password",
        ),
        ("sasl.username", "'sasl.username' is not known or has no value; "),
        ("sasl.username=\\u00zz", "a \\u in it is not followed by four digits"),
        ("sasl.username=m\xe4", "it is neither UTF-8 nor UTF-16"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(("--command-config", "cannot read --command-config"))
    assert message in str(refused.value)


def test_a_password_is_for_its_owner_alone(tmp_path: Path) -> None:
    for mode in (0o644, 0o604, 0o602):
        with pytest.raises(UsageError, match="all users may read or change it: chmod o="):
            read(tmp_path, "sasl.password=secret", mode=mode)
    with pytest.raises(UsageError, match="its group may change it: chmod g-w"):
        read(tmp_path, "sasl.password=secret", mode=0o660)
    assert read(tmp_path, "sasl.password=secret", mode=0o640) == {"sasl.password": "secret"}
    assert read(tmp_path, "sasl.password=secret", mode=0o711) == {"sasl.password": "secret"}  # as sent by --files
    assert read(tmp_path, "sasl.username=me", mode=0o644) == {"sasl.username": "me"}


@pytest.mark.parametrize("name", ["ssl.key.location", "ssl.certificate.location"])
def test_a_private_key_is_for_its_owner_alone(tmp_path: Path, name: str) -> None:
    """Unless it has a password itself; a missing file is reported by other code."""
    key = tmp_path / "key.pem"
    named = f"{name}={key}"
    assert read(tmp_path, named) == {name: str(key)}
    key.touch(0o600)
    key.chmod(0o644)

    with pytest.raises(UsageError, match=f"{name} {key} has a private key in it, and all users may read"):
        read(tmp_path, named)
    assert read(tmp_path, f"{named}\nssl.key.password=secret")[name] == str(key)
    key.chmod(0o400)
    assert read(tmp_path, named) == {name: str(key)}


def test_a_certificate_next_to_its_key_may_be_read_by_all(tmp_path: Path) -> None:
    for name, mode in (("key.pem", 0o600), ("certificate.pem", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    both = f"ssl.certificate.location={tmp_path}/certificate.pem\nssl.key.location={tmp_path}/key.pem"

    assert read(tmp_path, both).keys() == {"ssl.certificate.location", "ssl.key.location"}


KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KAFKA_SERVER = f"""\
// of the broker
KafkaServer {{
    {KRB5} required
    useKeyTab=true # of the host
    storeKey=true
    keyTab="/etc/security/keytabs/kafka_server.keytab"
    principal="kafka/kafka1.hostname.com@EXAMPLE.COM";
}};

/* ZooKeeper client
   authentication */
Client {{
org.apache.zookeeper.server.auth.DigestLoginModule required username="ann" password="a;b}} \\"c\\"";
}};
"""


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        (f"{KRB5} required useTicketCache=true;", KRB5, {"useTicketCache": "true"}),
        (
            f'{KRB5} Required useKeyTab = true\n keyTab="/a b.keytab" principal="x@Y" ;',
            KRB5,
            {"useKeyTab": "true", "keyTab": "/a b.keytab", "principal": "x@Y"},
        ),
        ("M optional;", "M", {}),
        ('M required a="}" b="=" c=";" d="" e=/x//y#z;', "M", {"a": "}", "b": "=", "c": ";", "d": "", "e": "/x//y#z"}),
    ],
)
def test_of_a_properties_file(text: str, name: str, options: dict[str, str]) -> None:
    module = login_module({JAAS_CONFIG: text}, "f", "KafkaClient")

    assert module is not None
    assert (module.name, module.options) == (name, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{KRB5} required useTicketCache=true", "does not end with a semicolon"),
        (f"{KRB5} useTicketCache=true;", "is not of the form MODULE required OPTION=VALUE"),
        (f"{KRB5} required useTicketCache;", "is not of the form OPTION=VALUE"),
        (f"{KRB5} required password=hunter-2 extra;", "is not of the form OPTION=VALUE"),
        ('M required password="hunter-2;', "quotation mark without its second one"),
        ("", "does not end with a semicolon"),
        (";", "is not of the form MODULE required"),
    ],
)
def test_what_java_refuses(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        login_module({JAAS_CONFIG: text}, "--command-config f", "KafkaClient")

    assert str(refused.value).startswith(f"--command-config f: {JAAS_CONFIG}")
    assert reason in str(refused.value)
    assert "hunter-2" not in str(refused.value)


@pytest.fixture
def sections(tmp_path: Path) -> dict[str, str]:
    """A file with the sections KafkaServer and Client."""
    path = tmp_path / "jaas.conf"
    path.write_text(KAFKA_SERVER, encoding="utf-8")
    path.chmod(0o600)
    return {JAAS_FILE: str(path)}


def test_sections_of_a_file_are_told_apart(sections: dict[str, str]) -> None:
    server, client = (login_module(sections, "f", section) for section in ("KafkaServer", "Client"))

    assert server is not None
    assert client is not None
    assert server.simple_name == "Krb5LoginModule"
    assert server.options["principal"] == "kafka/kafka1.hostname.com@EXAMPLE.COM"
    assert client.options == {"username": "ann", "password": 'a;b} "c"'}


def test_a_password_is_not_shown(sections: dict[str, str]) -> None:
    assert "a;b" not in repr(login_module(sections, "f", "Client"))


def test_a_section_that_a_file_lacks(sections: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"has no section KafkaClient; it has KafkaServer, Client"):
        login_module(sections, "f", "KafkaClient")


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("KafkaClient }", 0o600, r"is not of the form NAME \{ MODULE"),
        ("KafkaClient M required;", 0o600, r"is not of the form NAME \{ MODULE"),
        ("KafkaClient { M required };", 0o600, "the login module of KafkaClient does not end with a semicolon"),
        ("KafkaClient { M required password=x; };", 0o644, "has a password in it, and all users may read"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)

    with pytest.raises(UsageError, match=reason):
        login_module({JAAS_FILE: str(path)}, "f", "KafkaClient")


def test_none_is_set() -> None:
    assert login_module({}, "f", "KafkaClient") is None
