"""Queries to Prometheus by its HTTP API, with TLS, a user or a token.

Credentials come from a file or from environment variables, never from the command line. They are not sent to another
server that the first one redirects to.
"""

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

import msgspec
from msgspec import Struct
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

from jobs.core.addresses import refuse_credentials
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.properties import BEARER_TOKEN, HOST_NAMES, read_key_values, refuse_shared
from jobs.core.text_decoding import read_text_file
from jobs.core.tls_files import ENABLED_PROTOCOLS, TLS_KEYS, client_context

URL: Final = "--prometheus"
CONFIG: Final = "--prometheus-config"

TOKEN_VARIABLE: Final = "SURVEYOR_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
USERNAME_VARIABLE: Final = "SURVEYOR_PROMETHEUS_USERNAME"
PASSWORD_VARIABLE: Final = "SURVEYOR_PROMETHEUS_PASSWORD"  # noqa: S105 - as above

USERNAME, PASSWORD, TOKEN, TOKEN_FILE = "username", "password", BEARER_TOKEN, f"{BEARER_TOKEN}.file"
HEADER: Final = "header."
"""Begins the key of a header that is sent with each request, as `header.X-Scope-OrgID`."""

TIMEOUT_SECONDS: Final = 150.0
"""Longer than the two minutes after which Prometheus itself gives up a query."""

MAX_ATTEMPTS: Final = 3

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]+")

_MAX_ERROR_CHARACTERS: Final = 300

_TOO_MUCH: Final = frozenset({413, 422, 504})
"""Status of a query that loads too many samples or takes too long."""
_LATER: Final = frozenset({429, 502, 503})
_LOGIN: Final = frozenset({401, 403, 407})

T = TypeVar("T")


class PrometheusError(UnreadableError):
    """Prometheus gives no response, or refuses a query.

    `is_too_much`: a shorter time range may be answered. `is_down`: no query will be.
    """

    def __init__(self, message: str, *, is_too_much: bool = False, is_down: bool = False) -> None:
        super().__init__(message)
        self.is_too_much, self.is_down = is_too_much, is_down


class _LaterError(Exception):
    """A response that may be another one after a pause."""

    def __init__(self, error: PrometheusError) -> None:
        super().__init__(str(error))
        self.error = error


class Series(Struct, frozen=True):
    """A result of a query: labels, and pairs of Unix time and value as text, as in the response."""

    metric: dict[str, str]
    values: Sequence[tuple[float, str]] = ()
    value: tuple[float, str] | None = None
    """The only pair of an instant query."""


class _Result(Struct):
    result: list[Series]


class _Response(Struct):
    data: _Result


class _Names(Struct):
    data: list[str]


class _LabelSets(Struct):
    data: list[dict[str, str]]


class _Refusal(Struct):
    error: str = ""
    errorType: str = ""  # noqa: N815 - Prometheus's


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server at `url`, the path before /api/v1 included."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    opener: OpenerDirector = field(default_factory=build_opener, repr=False)
    pause: wait_base = field(default_factory=lambda: wait_exponential(multiplier=1, max=10), repr=False)
    """Time between two attempts."""

    def metric_names(self, pattern: str, start: float, end: float) -> list[str]:
        """Return the names of metrics that match a regex and have values in a range of time."""
        selector = {"match[]": f'{{__name__=~"{pattern}"}}', "start": start, "end": end}
        return self._get("label/__name__/values", selector, _Names).data

    def label_sets(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        """Return the labels of all series of a selector that have values in a range of time."""
        return self._get("series", {"match[]": selector, "start": start, "end": end}, _LabelSets).data

    def query(self, query: str, time: float) -> list[Series]:
        """Return the values of a query at a time."""
        return self._get("query", {"query": query, "time": time}, _Response).data.result

    def query_range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return the values of a query at `start` and every `step` seconds until `end`."""
        limits = {"query": query, "start": start, "end": end, "step": step}
        return self._get("query_range", limits, _Response).data.result

    def _get(self, path: str, parameters: Mapping[str, object], kind: type[T]) -> T:
        # Thanos then refuses a query of which a store gives no part; others ignore it
        complete = {**parameters, "partial_response": "false"}
        request = Request(f"{self.url}/api/v1/{path}?{urlencode(complete)}")  # noqa: S310 - http or https
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)
        attempts = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, _LaterError)),
            stop=stop_after_attempt(MAX_ATTEMPTS),
            wait=self.pause,
            reraise=True,
        )
        try:
            content: bytes = attempts(self._read, request)
        except _LaterError as later:
            raise later.error from None
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError:
            raise PrometheusError(
                f"{self.url} sends no response of Prometheus: {_shortened(content)}; check {URL}, which is the address "
                "before /api/v1",
                is_down=True,
            ) from None

    def _read(self, request: Request) -> bytes:
        try:
            with self.opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                content: bytes = response.read()
                return content
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except TimeoutError:
            raise PrometheusError(
                f"{self.url} did not answer within {TIMEOUT_SECONDS:.0f} s", is_too_much=True
            ) from None
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"no connection within {TIMEOUT_SECONDS:.0f} s"
            failure = PrometheusError(f"cannot reach Prometheus at {self.url}: {reason}", is_down=True)
            if isinstance(reason, ssl.SSLError):
                raise failure from None
            raise _LaterError(failure) from None

    def _refusal(self, error: HTTPError) -> Exception:
        try:
            refusal = msgspec.json.decode(error.read(), type=_Refusal)
        except (msgspec.DecodeError, OSError, HTTPException):
            refusal = _Refusal()
        reason = _shortened((refusal.error or str(error.reason)).encode())
        message = f"{self.url} refused a query: {error.code} {reason}"
        if error.code in _LOGIN:
            return PrometheusError(f"{message}; give a user or token by {CONFIG}, or by {TOKEN_VARIABLE}", is_down=True)
        if error.code in _TOO_MUCH or refusal.errorType == "timeout":
            return PrometheusError(message, is_too_much=True)
        is_down = error.code in _LATER
        return _LaterError(PrometheusError(message, is_down=True)) if is_down else PrometheusError(message)


def _shortened(content: bytes) -> str:
    text = " ".join(content.decode(errors="replace").split())
    return f"{text[:_MAX_ERROR_CHARACTERS]}..." if len(text) > _MAX_ERROR_CHARACTERS else text or "nothing"


def connect(url: str, config: Path | None, environment: Mapping[str, str] = os.environ) -> Prometheus:
    """Return a server with the credentials and TLS settings of a file, or of environment variables.

    Raise UsageError for an address that is none, and for a file that is invalid or that other users may read.
    """
    refuse_credentials(URL, url, f"give the user by {CONFIG}, or by {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{URL} {url!r} is no address of Prometheus: expected https://HOST[:PORT][/PATH]")
    file = f"{CONFIG} {config}"
    values = {} if config is None else _read_config(config, file)
    variables = {TOKEN: TOKEN_VARIABLE, USERNAME: USERNAME_VARIABLE, PASSWORD: PASSWORD_VARIABLE}
    if values.keys().isdisjoint({*variables, TOKEN_FILE}):
        values |= {key: environment[name] for key, name in variables.items() if environment.get(name)}
    headers = {key.removeprefix(HEADER): value for key, value in values.items() if key.startswith(HEADER)}
    headers |= _authorization(values)
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable() and _HEADER_NAME.fullmatch(name)):
            raise UsageError(f"the header {name!r} for Prometheus has characters that no header may have")
    opener = build_opener(HTTPSHandler(context=client_context(values, file)))
    return Prometheus(url.rstrip("/").removesuffix("/api/v1"), headers, opener)


def _read_config(path: Path, file: str) -> dict[str, str]:
    keys = (USERNAME, PASSWORD, TOKEN, TOKEN_FILE, *TLS_KEYS, HOST_NAMES, ENABLED_PROTOCOLS)
    return read_key_values(path, file, keys, is_known=lambda key: key.startswith(HEADER))


def _authorization(values: Mapping[str, str]) -> dict[str, str]:
    """Return the header for the user or token, if there is one."""
    has_user, has_token = (not values.keys().isdisjoint(keys) for keys in ({USERNAME, PASSWORD}, {TOKEN, TOKEN_FILE}))
    if has_user and has_token:
        raise UsageError("Prometheus gets a user and a token; give one of the two")
    if has_user:
        if not {USERNAME, PASSWORD} <= values.keys():
            raise UsageError(
                f"Prometheus gets a {USERNAME} or {PASSWORD} alone; give both, by {CONFIG} or by {USERNAME_VARIABLE} "
                f"and {PASSWORD_VARIABLE}"
            )
        user = b64encode(f"{values[USERNAME]}:{values[PASSWORD]}".encode()).decode()
        return {"Authorization": f"Basic {user}"}
    token = values.get(TOKEN) or (_token_of(Path(values[TOKEN_FILE])) if TOKEN_FILE in values else "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token_of(path: Path) -> str:
    token = read_text_file(path, f"{TOKEN_FILE} {path}").strip()
    refuse_shared(f"{TOKEN_FILE} {path} has a token in it", path, path.stat().st_mode)
    return token
