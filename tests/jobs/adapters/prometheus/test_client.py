"""Requests to Prometheus: credentials, errors, and what is tried again."""

import ssl
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from tenacity.wait import wait_none

from jobs.adapters.prometheus.client import Prometheus, PrometheusError, connect
from jobs.core.errors import UsageError
from tests.jobs.support.outside.prometheus_stand_in import (
    BAD_QUERY,
    TIMED_OUT,
    TOO_MANY_SAMPLES,
    UNAVAILABLE,
    PrometheusStandIn,
    Response,
)

NO_VARIABLES: Final[dict[str, str]] = {}


def _server(url: str) -> Prometheus:
    return Prometheus(url, pause=wait_none())


def test_results_have_labels_and_values() -> None:
    labels = {"instance": "kafka1:7071"}
    with PrometheusStandIn(results=lambda _: [labels], value=lambda *asked: str(asked[-1])) as stand_in:
        (series,) = _server(stand_in.url).query_range("up", 3600, 10800, 3600)
        (instant,) = _server(stand_in.url).query("up", 7)
    assert (series.metric, series.values) == (labels, [(3600.0, "3600"), (7200.0, "7200"), (10800.0, "10800")])
    assert instant.value == (7.0, "7")


def test_partial_responses_of_thanos_are_refused() -> None:
    with PrometheusStandIn() as stand_in:
        assert _server(stand_in.url).label_sets("up", 0, 1) == []
    (request,) = stand_in.requests
    assert request[1] == {"match[]": "up", "start": "0", "end": "1", "partial_response": "false"}


REFUSALS: Final[list[tuple[Response, str, bool, bool, int]]] = [
    # response, message, is_too_much, is_down, requests
    (TOO_MANY_SAMPLES, "422 query processing would load too many samples", True, False, 1),
    (TIMED_OUT, "503 query timed out in expression evaluation", True, False, 1),
    ((504, "gateway"), "504 Gateway Timeout", True, False, 1),
    (BAD_QUERY, '400 invalid parameter "query": 1:5: parse error', False, False, 1),
    (UNAVAILABLE, "503 Service Unavailable", False, True, 3),
    ((401, "no"), "401 Unauthorized; give a user or token by --prometheus-config", False, True, 1),
    ((200, "<html>Sign in</html>"), "sends no response of Prometheus: <html>Sign in</html>", False, True, 1),
    ((200, {"status": "success"}), "sends no response of Prometheus", False, True, 1),
]


@pytest.mark.parametrize(("response", "message", "too_much", "down", "requests"), REFUSALS)
def test_a_refusal(response: Response, message: str, too_much: bool, down: bool, requests: int) -> None:  # noqa: FBT001 - a case
    with PrometheusStandIn(refuse=lambda *_: response) as stand_in, pytest.raises(PrometheusError) as raised:
        _server(stand_in.url).query("up", 1)
    assert message in str(raised.value)
    assert (raised.value.is_too_much, raised.value.is_down, len(stand_in.requests)) == (too_much, down, requests)


def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    responses: list[Response | None] = [UNAVAILABLE, (429, "slower"), None]
    with PrometheusStandIn(refuse=lambda *_: responses.pop(0)) as stand_in:
        assert _server(stand_in.url).query("up", 1) == []


def test_no_server_listens() -> None:
    with PrometheusStandIn() as stand_in:
        url = stand_in.url
    with pytest.raises(PrometheusError, match=r"cannot reach Prometheus at .*Connection refused") as raised:
        _server(url).query("up", 1)
    assert raised.value.is_down


LOGINS: Final[list[tuple[str | None, dict[str, str], dict[str, str]]]] = [
    # properties, variables, headers
    (None, {}, {}),
    (None, {"SURVEYOR_PROMETHEUS_TOKEN": "t"}, {"Authorization": "Bearer t"}),
    (
        None,
        {"SURVEYOR_PROMETHEUS_USERNAME": "me", "SURVEYOR_PROMETHEUS_PASSWORD": "x"},
        {"Authorization": "Basic bWU6eA=="},
    ),
    ("username=me\npassword=x", {"SURVEYOR_PROMETHEUS_TOKEN": "t"}, {"Authorization": "Basic bWU6eA=="}),
    (
        "bearer.token.file=TOKEN\nheader.X-Scope-OrgID=east",
        {},
        {"Authorization": "Bearer from-file", "X-Scope-OrgID": "east"},
    ),
]


@pytest.mark.parametrize(("properties", "variables", "expected"), LOGINS)
def test_a_login(tmp_path: Path, properties: str | None, variables: dict[str, str], expected: dict[str, str]) -> None:
    (token := tmp_path / "token").write_text("from-file\n")
    path = None
    if properties is not None:
        (path := tmp_path / "prometheus.properties").write_text(properties.replace("TOKEN", str(token)))
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    with PrometheusStandIn() as stand_in:
        connect(f"{stand_in.url}/api/v1/", path, variables).query("up", 1)
    (called, _, headers) = stand_in.requests[0]
    sent = {name: value for name, value in headers.items() if name.lower() in {"authorization", "x-scope-orgid"}}
    assert (called, {name.lower(): value for name, value in sent.items()}) == (
        "query",
        {name.lower(): value for name, value in expected.items()},
    )


def test_credentials_are_not_sent_to_another_server() -> None:
    with PrometheusStandIn() as other:
        with PrometheusStandIn(refuse=lambda *_: (302, f"{other.url}/api/v1/query?query=up&time=1")) as stand_in:
            connect(stand_in.url, None, {"SURVEYOR_PROMETHEUS_TOKEN": "t"}).query("up", 1)
        assert "Authorization" not in other.requests[0][2]


INVALID: Final[list[tuple[str, str | None, dict[str, str], str]]] = [
    # address, properties, variables, message
    ("http://me:secret@h", None, {}, "give the user by --prometheus-config"),
    ("kafka1:9090", None, {}, "is no address of Prometheus"),
    ("http://h?x=1", None, {}, "is no address of Prometheus"),
    ("http://h", "user=me", {}, "'user' is not known"),
    ("http://h", "username=me", {}, "username or password alone"),
    ("http://h", "username=me\npassword=x\nbearer.token=t", {}, "a user and a token"),
    ("http://h", "header.X\\ Y=1", {}, "has characters that no header may have"),
    ("http://h", None, {"SURVEYOR_PROMETHEUS_TOKEN": "secret\nX: 1"}, "'Authorization' for Prometheus has characters"),
    ("https://h", "ssl.ca.location=/nowhere.pem", {}, "ssl.ca.location: No such file"),
]


@pytest.mark.parametrize(("url", "properties", "variables", "message"), INVALID)
def test_an_invalid_server(
    tmp_path: Path, url: str, properties: str | None, variables: dict[str, str], message: str
) -> None:
    path = None if properties is None else tmp_path / "prometheus.properties"
    if path is not None:
        path.write_text(str(properties))
        path.chmod(0o600)
    with pytest.raises(UsageError, match=message) as raised:
        connect(url, path, variables)
    assert "secret" not in str(raised.value)


def test_a_token_that_other_users_may_read_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "prometheus.properties").write_text("bearer.token=t")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod o="):
        connect("http://h", path, NO_VARIABLES)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_certificates_are_checked(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (path := tmp_path / "prometheus.properties").write_text(f"ssl.ca.location={tmp_path / 'ca.pem'}")
    with PrometheusStandIn() as stand_in:
        server: Any = stand_in._server  # noqa: SLF001 - the stand-in's own socket
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = stand_in.url.replace("http:", "https:")
        with pytest.raises(PrometheusError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(url, None, NO_VARIABLES).query("up", 1)
        assert connect(url, path, NO_VARIABLES).query("up", 1) == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert connect(url, None, NO_VARIABLES).query("up", 1) == []
