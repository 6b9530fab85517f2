"""Files of settings are Java properties, read as Kafka's own tools read them."""

from pathlib import Path

import pytest

from jobs.basics.errors import UsageError
from jobs.basics.properties import read_key_values

KNOWN = ("sasl.username", "sasl.password")


def read(folder: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path = folder / "client.properties"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    return read_key_values(path, "--command-config", KNOWN)


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
    ("text", "said"),
    [
        (
            "sasl.user=me",
            "'sasl.user' is not known or has no value; known are sasl.username, sasl.password",
        ),
        ("sasl.username", "'sasl.username' is not known or has no value; "),
        ("sasl.username=\\u00zz", "a \\u in it is not followed by four digits"),
        ("sasl.username=m\xe4", "it is no UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(("--command-config", "cannot read --command-config"))
    assert said in str(refused.value)


def test_a_password_is_for_its_owner_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="everybody may read it: chmod o="):
        read(tmp_path, "sasl.password=secret", mode=0o644)
    assert read(tmp_path, "sasl.username=me", mode=0o644) == {"sasl.username": "me"}
