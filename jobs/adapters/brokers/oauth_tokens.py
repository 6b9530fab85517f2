"""OAuth bearer tokens for SASL OAUTHBEARER, from a file or a command.

Corresponds to `FileTokenRetriever` and `ExpiringCredentialRefreshingLogin`. Each connection, and each
re-authentication, gets a token that has not expired: a file is read again each time, and the output of a command is
kept until most of its lifetime is over. Messages never contain a token nor what a command printed.
"""

import json
import re
import shlex
import subprocess
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import unquote, urlsplit

from kafka.net.sasl.oauth import AbstractTokenProvider

from jobs.core.errors import SurveyorError, UsageError
from jobs.core.properties import TOKEN_COMMAND, refuse_shared

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting
TOKEN_KEYS: Final = (TOKEN_URL, TOKEN_COMMAND)

COMMAND_TIMEOUT_SECONDS: Final = 10.0
"""Seconds that a token command may take."""

_FIND_THE_CAUSE: Final = ": run it in a shell to see the cause"

REFRESH_WINDOW_FACTOR: Final = 0.8
"""Part of a token's lifetime after which the next connection gets a new one (`sasl.login.refresh.window.factor`)."""

_BEARER_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750; other characters could add fields to the SASL message."""


class TokenError(SurveyorError):
    """There is no token, or it has expired; a later attempt may find another."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python is untyped
    """The tokens of one source, `name` in messages; `retrieve` returns one or raises TokenError.

    `keep`: whether a token is kept until its refresh time, because retrieving it is expensive. One without an expiry
    time is never kept.
    """

    def __init__(self, name: str, retrieve: Callable[[], str], *, keep: bool) -> None:
        super().__init__()
        self._name, self._retrieve, self._keep = name, retrieve, keep
        self.time: Callable[[], float] = time.time
        self._lock = Lock()
        self._token = ""
        self._refresh_at = 0.0
        self._expires_at = 0.0
        self._failure = ""
        self._failed_at = 0.0
        """On the monotonic clock."""

    @property
    def runs_command(self) -> bool:
        """Whether a token is the output of a command; only those are kept."""
        return self._keep

    def token(self) -> str:
        """Return a token; raise TokenError if there is none that is valid.

        Connections to many brokers ask at once. If the command fails, every connection that waited for it gets the
        error, and none runs the command again.
        """
        asked_at = time.monotonic()
        with self._lock:
            if self._failed_at > asked_at:
                raise TokenError(self._failure)
            now = self.time()
            if now < self._refresh_at:
                return self._token
            try:
                token = self._valid()
            except TokenError as error:
                if self.time() < self._expires_at:
                    return self._token  # refreshing failed, and the last one is still valid
                self._failure, self._failed_at = str(error), time.monotonic()
                raise
            expiry = expiry_of(token)
            if self._keep and expiry is not None:
                now = self.time()
                self._token, self._expires_at = token, expiry
                self._refresh_at = now + REFRESH_WINDOW_FACTOR * (expiry - now)
            return token

    def _valid(self) -> str:
        token = self._retrieve().strip()
        if not _BEARER_TOKEN.fullmatch(token):
            raise TokenError(f"{self._name} gave no bearer token: one line of letters, digits and -._~+/ was expected")
        expiry = expiry_of(token)
        if expiry is not None and expiry <= self.time():
            when = datetime.fromtimestamp(expiry, UTC).isoformat(timespec="seconds")
            raise TokenError(f"the token of {self._name} expired at {when}: renew it, or check this machine's clock")
        return token


def expiry_of(token: str) -> float | None:
    """Return when a JWT expires, in seconds since the epoch; None for other tokens and for one without `exp`.

    >>> expiry_of("eyJhbGciOiJub25lIn0.eyJleHAiOjE3MDAwMDAwMDB9."), expiry_of("opaque")
    (1700000000.0, None)
    """
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims and signature
        return None
    try:
        claims = json.loads(urlsafe_b64decode(f"{parts[1]}=="))
        return float(claims["exp"])
    except (ValueError, LookupError, TypeError, OverflowError):
        return None


def provider_of(
    values: Mapping[str, str], file: str, command_seconds: float = COMMAND_TIMEOUT_SECONDS
) -> TokenProvider:
    """Return the provider of a properties file, `file` in messages; raise UsageError unless it names one source.

    There is one provider for each source in a process, so that a command does not run for each connection.
    """
    url, command = values.get(TOKEN_URL), values.get(TOKEN_COMMAND)
    if (url is None) == (command is None):
        raise UsageError(f"{file}: OAUTHBEARER needs one of {TOKEN_URL} (file:///...) and {TOKEN_COMMAND}")
    if url is not None:
        return _of_file(_path_of(url, file))
    try:
        words = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise UsageError(f"{file}: {TOKEN_COMMAND} is not a command line ({error})") from None
    return _of_command(words, file, command_seconds)


def _path_of(url: str, file: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise UsageError(
            f"{file}: {TOKEN_URL} is not of the form file:///PATH; for an endpoint, set {TOKEN_COMMAND} to a command "
            "that prints a token"
        )
    return Path(unquote(parts.path))


@cache
def _of_file(path: Path) -> TokenProvider:
    name = f"{TOKEN_URL} {path}"

    def retrieve() -> str:
        try:
            refuse_shared(f"{name} has a token in it", path, path.stat().st_mode)
            return path.read_text(encoding="utf-8")
        except UsageError as error:
            raise TokenError(str(error)) from None
        except OSError as error:
            raise TokenError(f"cannot read {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenError(f"cannot read {name}: it is not text") from None

    return TokenProvider(name, retrieve, keep=False)


@cache
def _of_command(words: tuple[str, ...], file: str, seconds: float) -> TokenProvider:
    name = f"{file}: {TOKEN_COMMAND} {words[0] if words else ''}".rstrip()  # its arguments may be secret

    def retrieve() -> str:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command, without a shell
                words, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=seconds
            )
            return done.stdout.decode()
        except subprocess.TimeoutExpired:
            raise TokenError(f"{name} did not end within {seconds:g} s{_FIND_THE_CAUSE}") from None
        except subprocess.CalledProcessError as error:
            raise TokenError(f"{name} ended with exit code {error.returncode}{_FIND_THE_CAUSE}") from None
        except OSError as error:
            raise TokenError(f"{name} cannot be run: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenError(f"{name} gave no bearer token: its output is not text") from None

    return TokenProvider(name, retrieve, keep=True)
