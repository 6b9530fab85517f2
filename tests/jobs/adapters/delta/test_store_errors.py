"""What an object store refuses is one line on stderr, whichever command meets it, by whichever library."""

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from jobs.adapters.delta.arrow_reads import missing_files, native_files
from jobs.adapters.delta.store_check import require_conditional_writes
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import disk_error_message, refuse_invalid_path, store_error_reason
from jobs.adapters.spark.object_store_settings import store_settings
from jobs.cli import app
from jobs.core.addresses import S3_ENDPOINTS, s3_endpoint
from jobs.core.errors import SurveyorError, UsageError
from tests.jobs.adapters.conftest import RefusingStore

ERRORS = {
    "403 AccessDenied": "access is denied: the role or the keys need to list, read, write and delete objects there",
    "404 NoSuchBucket": "there is no such bucket: create it, or correct the URL of the warehouse",
    "400 ExpiredToken": "the credentials have expired: get new ones, with their AWS_SESSION_TOKEN, or use the "
    "machine's role",
}


COMMANDS = [
    "show brokers",
    "show plans",
    "show commits",
    "report --out REPORT",
    "metrics",
    "export p",
    "commit p",
    "verify p --zookeeper 127.0.0.1:1",
    "plan reconcile",
    "whatif --lose brokers=1",
    "vacuum",
    "catalog",
]


@pytest.fixture
def store(refusing_store: RefusingStore) -> RefusingStore:
    """One with a snapshot, so that each command would have something to read."""
    warehouse = Warehouse(refusing_store.warehouse, "default")
    warehouse.ensure_tables()
    versions = {"brokers": warehouse.version("brokers")}
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": versions}])
    return refusing_store


def test_commands_that_read(store: RefusingStore, tmp_path: Path) -> None:
    error, reason = next(iter(ERRORS.items()))
    store.refuse(error)
    for command in COMMANDS:
        arguments = command.replace("REPORT", str(tmp_path / "report.html")).split()
        ran = CliRunner().invoke(app, [*arguments, "--warehouse", store.warehouse])
        assert (ran.exit_code, ran.stdout) == (22, ""), (command, ran.stderr)
        [line] = ran.stderr.splitlines()
        assert line.startswith(f"surveyor: table snapshots at {store.warehouse}/") or "table plans at" in line
        assert f"cannot be read: {reason}; `surveyor doctor --" in line
        assert line.endswith(f" --warehouse {store.warehouse}` examines the warehouse")


@pytest.mark.parametrize(("error", "reason"), ERRORS.items(), ids=[*ERRORS])
def test_libraries_in_the_middle_of_a_command(store: RefusingStore, error: str, reason: str) -> None:
    """The table is open already: deltalake writes, Arrow reads its files and lists them."""
    warehouse = Warehouse(store.warehouse, "default")
    table, files = warehouse.opened("snapshots"), native_files(warehouse.path("snapshots"))
    store.refuse(error)

    with pytest.raises(OSError, match="AWS Error") as listed:
        TableFiles(warehouse.path("snapshots")).data()
    with pytest.raises(OSError, match="snapshots") as read:
        table.to_pyarrow_table(filesystem=files)

    assert store_error_reason(listed.value) == reason
    assert "\n" not in (disk_error_message(listed.value) or "")
    without_body = (
        "the request is refused, because the credentials have expired or the region is another one: get new "
        "credentials, or set AWS_REGION"
    )
    expected = {"403 AccessDenied": reason, "400 ExpiredToken": without_body, "404 NoSuchBucket": None}
    assert store_error_reason(read.value) == expected[error]  # HEAD has no body, and a 404 is a file that is lost


S3 = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "tr0ub4dor",
    "AWS_ALLOW_HTTP": "true",
}


@pytest.mark.parametrize(
    ("unset", "url", "reason"),
    [
        ("AWS_ACCESS_KEY_ID", "s3://bucket/surveyor", "AWS_ACCESS_KEY_ID is not"),
        ("AWS_SECRET_ACCESS_KEY", "s3://bucket/surveyor", "AWS_SECRET_ACCESS_KEY is not"),
        ("", "s3://bucket/surveyor", "no server answers at its address"),
        ("", "abfss://container@account.dfs.core.windows.net/surveyor", "cannot be read: "),
    ],
)
def test_an_environment_that_lacks_something(
    monkeypatch: pytest.MonkeyPatch, unset: str, url: str, reason: str
) -> None:
    """No library says which variable; an error that is not known ends with the innermost cause."""
    for name, value in S3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(unset, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "no base64")

    ran = CliRunner().invoke(app, ["show", "snapshots", "--warehouse", url])

    [line] = ran.stderr.splitlines()
    assert (ran.exit_code, reason in line, "\x1b" in line) == (22, True, False), line


def test_an_endpoint_that_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltalake panics."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")

    ran = CliRunner().invoke(app, ["show", "snapshots", "--warehouse", "s3://bucket/surveyor"])

    assert ran.exit_code == 2
    assert "AWS_ENDPOINT_URL is not an address of the form https://HOST[:PORT]" in ran.stderr


AMAZON = "https://s3.eu-west-1.amazonaws.com"


def set_variables(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set variables with S3's endpoint, and no others."""
    for name in ("AWS_ENDPOINT", *S3_ENDPOINTS, "AWS_ALLOW_HTTP", "ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AWS_ENDPOINT": "https://store"}, "Arrow and Spark do not read AWS_ENDPOINT"),
        ({"AWS_ENDPOINT": "https://store"}, "set AWS_ENDPOINT_URL=https://store instead"),
        ({"AWS_ENDPOINT": "https://one", "AWS_ENDPOINT_URL": "https://two"}, "; unset AWS_ENDPOINT, as AWS_"),
        ({"AWS_ENDPOINT": AMAZON, "AWS_ENDPOINT_URL_S3": "https://store"}, "AWS_ENDPOINT, as AWS_ENDPOINT_URL_S3 is"),
        ({"AWS_ENDPOINT_URL": "http://store"}, "or set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL_S3": "http://store", "AWS_ALLOW_HTTP": "no"}, "or set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT": "https://me:s3cret@store"}, "AWS_ENDPOINT: the address contains @"),
        ({"AWS_ENDPOINT_URL": "http://me:s3/cret@store"}, "AWS_ENDPOINT_URL: the address contains @"),
        ({"AWS_ENDPOINT_URL_S3": "https://store?key=s3cret"}, "AWS_ENDPOINT_URL_S3 is not an address"),
    ],
)
def test_endpoints_that_readers_disagree_on(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    set_variables(monkeypatch, variables)

    with pytest.raises(UsageError, match=message) as refused:
        refuse_invalid_path("s3://bucket/surveyor")
    assert "cret" not in str(refused.value)
    refuse_invalid_path("gs://bucket/surveyor")


@pytest.mark.parametrize(
    ("variables", "endpoint_of_spark"),
    [
        (
            {
                "AWS_ENDPOINT_URL_S3": "http://store/",
                "AWS_ENDPOINT_URL": "https://elsewhere",
                "AWS_ENDPOINT": "http://store",
                "AWS_ALLOW_HTTP": "1",
            },
            "http://store/",
        ),
        ({"AWS_ENDPOINT_URL": "http://store", "ALLOW_HTTP": "true"}, "http://store"),
        ({"AWS_ENDPOINT": AMAZON}, None),
        ({"AWS_ENDPOINT": AMAZON, "AWS_ENDPOINT_URL": "https://s3.amazonaws.com"}, "https://s3.amazonaws.com"),
    ],
)
def test_endpoints_that_all_readers_agree_on(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], endpoint_of_spark: str | None
) -> None:
    set_variables(monkeypatch, variables)

    refuse_invalid_path("s3://bucket/surveyor")

    settings = store_settings("s3://bucket/surveyor", os.environ)
    assert settings.get("spark.hadoop.fs.s3a.endpoint") == endpoint_of_spark


class _Servers:
    """A server of each name, which counts its requests; no bucket exists there."""

    def __init__(self) -> None:
        self.requests = Counter[str]()
        self.servers = {name: self._server(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")}

    def _server(self, name: str) -> ThreadingHTTPServer:
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def _refuse(self) -> None:
                requests[name] += 1
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD = do_PUT = _refuse  # noqa: N815 - as http.server names them

            def log_message(self, *_: object) -> None:
                """Write nothing to stderr."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return server


@pytest.mark.parametrize(
    ("names", "allow"),
    [
        (["AWS_ENDPOINT_URL_S3"], "AWS_ALLOW_HTTP"),
        (["AWS_ENDPOINT_URL"], "ALLOW_HTTP"),
        (list(S3_ENDPOINTS), "AWS_ALLOW_HTTP"),
    ],
)
def test_every_library_connects_to_the_same_endpoint(
    monkeypatch: pytest.MonkeyPatch, names: list[str], allow: str
) -> None:
    servers = _Servers()
    for name, value in S3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    monkeypatch.setenv(allow, "true")
    addresses = {name: f"http://127.0.0.1:{servers.servers[name].server_port}" for name in names}
    for name, address in addresses.items():
        monkeypatch.setenv(name, address)

    for read in (
        lambda: DeltaTable("s3://bucket/surveyor/plans"),
        lambda: require_conditional_writes("s3://bucket/surveyor"),
        lambda: missing_files("s3://bucket/surveyor/plans", ["x"]),
    ):
        servers.requests.clear()
        with suppress(SurveyorError, OSError, DeltaError):
            read()
        assert [*servers.requests] == [names[0]]
    assert s3_endpoint(os.environ) == addresses[names[0]]
    for server in servers.servers.values():
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ("GET http://169.254.169.254/latest/api/token: 403 Forbidden", "set AWS_ACCESS_KEY_ID"),
        ("GET http://169.254.169.254/computeMetadata/v1/instance: 403 Forbidden", "set GOOGLE_SERVICE_ACCOUNT"),
        ("GET http://169.254.169.254/metadata/identity/oauth2/token: 403", "set AZURE_STORAGE_ACCOUNT_KEY"),
        ("client error (Connect): invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
        ("curlCode: 60, SSL peer certificate or SSH remote key was not OK", "SSL_CERT_FILE"),
        ("received corrupt message of type InvalidContentType", "write http:// in AWS_ENDPOINT_URL"),
        ("HTTP error: builder error: URL scheme is not allowed", "AWS_ALLOW_HTTP=true"),
        ("<Code>ContainerNotFound</Code>", "there is no such container: create it"),
        ("this normally indicates an incorrectly configured region", "set AWS_REGION"),
        ("SafeModeException: Cannot create file", "hdfs dfsadmin -safemode get"),
        ("503 Slow Down: <Code>SlowDown</Code>", "the store asks for fewer requests"),
        ("HdfsObjectStore error: RPC listener disconnected", "HDFS closed the connection"),
    ],
)
def test_what_helps_against_an_error_of_a_store(text: str, helps: str) -> None:
    assert helps in (store_error_reason(OSError(text)) or "")


@pytest.mark.parametrize(("level", "is_shown"), [([], False), (["--log-level", "debug"], True)])
def test_attempts_to_find_a_role_are_shown_by_level_debug_alone(level: list[str], *, is_shown: bool) -> None:
    """A subprocess, because deltalake reads the level of its log once in a process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RUST_LOG"))}
    ended_at_once = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
        "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "1",
    }
    command = [sys.executable, "-m", "jobs.entry", "show", "plans", "--warehouse", "s3://bucket/surveyor", *level]

    ran = subprocess.run(
        command, env=environment | ended_at_once, capture_output=True, text=True, check=False, timeout=60
    )

    assert ran.returncode == 22, ran.stderr
    assert ("aws_config" in ran.stderr) is is_shown
    assert ran.stderr.splitlines()[-1].startswith("surveyor: table")
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in ran.stderr


def test_the_innermost_cause_of_an_error_that_is_not_known() -> None:
    chain = (
        "Operation not supported\n  \x1b[31m\u21b3\x1b[0m loading failed\n   \x1b[31m\u21b3\x1b[0m the moon\n is full\n"
    )

    assert store_error_reason(OSError(chain)) == "the moon is full"
    assert store_error_reason(OSError(f"Generic LocalFileSystem error: {chain}")) is None
    assert store_error_reason(FileNotFoundError(chain)) is None, "a read of the same rows in other files would end"
    assert store_error_reason(OSError(chain.replace("the moon", "IMDS"))) == (
        "this machine has no role, and the environment has no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
