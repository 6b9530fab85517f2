"""Files of settings are Java properties, read as Kafka's own tools read them."""

from pathlib import Path

import pytest

from jobs.core.errors import UsageError
from jobs.core.properties import read_key_values

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
