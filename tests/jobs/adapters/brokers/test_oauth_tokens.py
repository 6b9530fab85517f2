"""OAuth tokens of a file and of a command: which are kept, which are refused, and that messages contain none."""

import logging
import shlex
import sys
import time
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.brokers import oauth_tokens
from jobs.adapters.brokers.admin_client import TOKEN_PROVIDER, AdminUnavailableError, connected_admin, read_properties
from jobs.adapters.brokers.connection import prepare_authentication
from jobs.adapters.brokers.listeners import AuthenticationFailedError
from jobs.adapters.brokers.oauth_tokens import TokenError, TokenProvider, expiry_of, provider_of
from jobs.core.errors import UsageError
from jobs.core.properties import TOKEN_COMMAND
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token

USER = "surveyor"


@pytest.fixture(autouse=True)
def _no_earlier_provider() -> None:
    oauth_tokens._of_file.cache_clear()  # noqa: SLF001
    oauth_tokens._of_command.cache_clear()  # noqa: SLF001


def by_file(path: Path) -> TokenProvider:
    return provider_of({oauth_tokens.TOKEN_URL: path.as_uri()}, "client.properties")


def by_command(script: str, *arguments: str, seconds: float = 60.0) -> TokenProvider:
    words = [sys.executable, "-c", script, *arguments]
    return provider_of({TOKEN_COMMAND: shlex.join(words)}, "client.properties", seconds)


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.touch(mode)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


@given(st.integers(1, 2**40))
def test_expiry_is_what_the_claims_have(seconds: int) -> None:
    assert expiry_of(unsecured_token(USER, at=float(seconds), lifetime=0.0)) == seconds


@given(st.text(max_size=60))
def test_no_other_text_has_an_expiry_or_raises(text: str) -> None:
    assert expiry_of(text) is None
    assert expiry_of(f"a.{text}.b") is None


def test_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    first, second = (unsecured_token(USER, lifetime=lifetime) for lifetime in (60.0, 120.0))
    path = secret(tmp_path / "token", f"{first}\n")
    provider = by_file(path)

    assert provider.token() == first
    path.write_text(second)
    assert provider.token() == second


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (unsecured_token(USER, lifetime=-5.0), 0o600, "expired at 20"),
        ("", 0o600, "gave no bearer token"),
        ("secret-1\nsecret-2", 0o600, "gave no bearer token"),
        ("secret\x01auth=Bearer", 0o600, "gave no bearer token"),
        (unsecured_token(USER), 0o644, "chmod o= "),
        (unsecured_token(USER), 0o620, "chmod g-w "),
        (None, 0o600, "No such file or directory"),
    ],
    ids=["expired", "empty", "two lines", "control character", "readable", "writable", "absent"],
)
def test_unusable_file(text: str | None, mode: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if text is not None:
        secret(path, text, mode)

    with pytest.raises(TokenError, match=reason) as refused:
        by_file(path).token()

    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    assert not text or text.strip() not in message
    assert "secret" not in message


COUNTING = """
import pathlib, sys, time
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x")
token = pathlib.Path(sys.argv[2]).read_text()
print(token)
sys.exit(token == "")
"""


def test_a_command_runs_again_before_its_token_expires(tmp_path: Path) -> None:
    """At 80 % of the lifetime; if that fails, the last token serves until it expires."""
    runs, source = secret(tmp_path / "runs", ""), secret(tmp_path / "source", "")
    now = time.time()
    first, second = (unsecured_token(USER, at=at, lifetime=100.0) for at in (now, now + 90))
    provider = by_command(COUNTING, str(runs), str(source))

    def token_at(at: float, offered: str) -> tuple[str, int]:
        provider.time = lambda: at
        source.write_text(offered)
        return provider.token(), len(runs.read_text())

    assert token_at(now, first) == (first, 1)
    assert token_at(now + 79, "") == (first, 1)
    assert token_at(now + 85, "") == (first, 2)  # the command fails
    assert token_at(now + 90, second) == (second, 3)
    with pytest.raises(TokenError, match="ended with exit code 1"):
        token_at(now + 500, "")


def test_a_token_without_expiry_is_not_kept(tmp_path: Path) -> None:
    runs, source = secret(tmp_path / "runs", ""), secret(tmp_path / "source", "opaque")
    provider = by_command(COUNTING, str(runs), str(source))

    assert [provider.token(), provider.token(), len(runs.read_text())] == ["opaque", "opaque", 2]


def test_one_command_serves_all_that_read_the_file(tmp_path: Path) -> None:
    runs, source = secret(tmp_path / "runs", ""), secret(tmp_path / "source", unsecured_token(USER))
    arguments = COUNTING, str(runs), str(source)

    assert {by_command(*arguments).token() for _ in range(3)} == {source.read_text()}
    assert runs.read_text() == "x"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "import sys; print('secret'); sys.exit('secret')",
            "ended with exit code 1: run it in a shell",
        ),
        ("print('secret secret')", "gave no bearer token"),
        ("import sys; sys.stdout.buffer.write(b'secret\\xff')", "its output is not text"),
        ("import time; print('secret', flush=True); time.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_unusable_command(script: str, reason: str) -> None:
    with pytest.raises(TokenError) as refused:
        by_command(script, seconds=0.5 if "sleep" in script else 60.0).token()

    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_connections_that_wait_for_a_failing_command_share_its_error(tmp_path: Path) -> None:
    runs = secret(tmp_path / "runs", "")
    slow = "import pathlib, sys, time; runs = pathlib.Path(sys.argv[1]); runs.write_text(runs.read_text() + 'x'); "
    provider = by_command(f"{slow} time.sleep(2); sys.exit(3)", str(runs))
    start, errors = Barrier(8), list[str]()

    def ask() -> None:
        start.wait()
        try:
            provider.token()
        except TokenError as error:
            errors.append(str(error))

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    command = f"client.properties: sasl.oauthbearer.token.command {sys.executable}"
    assert errors == [f"{command} ended with exit code 3: run it in a shell to see the cause"] * 8
    assert runs.read_text() == "x"


def test_command_that_does_not_exist() -> None:
    with pytest.raises(TokenError, match=r"^f: .* /nowhere/token cannot be run: No such file or directory"):
        provider_of({TOKEN_COMMAND: "/nowhere/token"}, "f").token()


OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "OAUTHBEARER needs one of"),
        ({oauth_tokens.TOKEN_URL: "file:///t", TOKEN_COMMAND: "c"}, "OAUTHBEARER needs one of"),
        ({oauth_tokens.TOKEN_URL: "https://idp.example/token"}, "set sasl.oauthbearer.token.command"),
        ({oauth_tokens.TOKEN_URL: "file://elsewhere/t"}, "is not of the form file:///PATH"),
        ({oauth_tokens.TOKEN_URL: "/etc/token"}, "is not of the form file:///PATH"),
        ({TOKEN_COMMAND: "print 'token"}, "is not a command line (No closing quotation)"),
    ],
)
def test_properties_that_name_no_source(values: dict[str, str], reason: str, tmp_path: Path) -> None:
    config = write_properties(tmp_path / "client.properties", {**OAUTH, **values})

    with pytest.raises(UsageError) as refused:
        read_properties(config)

    assert f"--command-config {config}: " in str(refused.value)
    assert reason in str(refused.value)


def test_a_command_that_all_users_may_change_is_not_run(tmp_path: Path) -> None:
    lines = {**OAUTH, TOKEN_COMMAND: "true"}
    config = write_properties(tmp_path / "client.properties", lines)
    config.chmod(0o666)

    with pytest.raises(UsageError, match=f"has a command in it.*chmod o= {config}"):
        read_properties(config)


def test_admin_mode_and_control_requests_report_why_there_is_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before they connect: nothing listens at that port, and the token is what is reported."""
    caplog.set_level(logging.DEBUG)
    expired = unsecured_token(USER, lifetime=-1.0)
    path = secret(tmp_path / "token", expired)
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        oauth_tokens.TOKEN_URL: path.as_uri(),
    }
    settings = read_properties(write_properties(tmp_path / "client.properties", lines))

    with pytest.raises(AdminUnavailableError, match="expired at"), connected_admin(["127.0.0.1:1"], settings):
        pass
    with pytest.raises(AuthenticationFailedError, match="expired at"):
        prepare_authentication(settings)

    assert expired not in caplog.text
    assert expired not in repr(settings[TOKEN_PROVIDER])
