"""What an object store refuses is one line on stderr, whichever command meets it, by whichever library."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.adapters.delta.filtered_reads import native_files
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import disk_error_message, store_error_reason
from jobs.cli import app
from tests.jobs.adapters.conftest import RefusingStore

ERRORS = {
    "403 AccessDenied": "access is denied: the role or the keys need to list, read, write and delete objects there",
    "404 NoSuchBucket": "there is no such bucket",
    "400 ExpiredToken": "the credentials have expired",
}

SLOW = ("503 SlowDown", "the store asks for fewer requests: run the same command again later")

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


@pytest.mark.parametrize(("error", "reason"), ERRORS.items(), ids=[*ERRORS])
def test_commands_that_read(store: RefusingStore, tmp_path: Path, error: str, reason: str) -> None:
    store.refuse(error)
    for command in COMMANDS:
        arguments = command.replace("REPORT", str(tmp_path / "report.html")).split()
        ran = CliRunner().invoke(app, [*arguments, "--warehouse", store.warehouse])
        assert (ran.exit_code, ran.stdout) == (22, ""), (command, ran.stderr)
        [line] = ran.stderr.splitlines()
        assert line.startswith(f"surveyor: table snapshots at {store.warehouse}/") or "table plans at" in line
        assert line.endswith(f"cannot be read: {reason}; `surveyor doctor` examines the warehouse")


def test_a_store_that_asks_for_fewer_requests(store: RefusingStore) -> None:
    """Deltalake itself repeats such a request ten times."""
    error, reason = SLOW
    store.refuse(error)

    ran = CliRunner().invoke(app, ["show", "brokers", "--warehouse", store.warehouse])

    assert (ran.exit_code, len(ran.stderr.splitlines())) == (22, 1)
    assert reason in ran.stderr


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
    without_body = "the request is refused: the credentials have expired, or the region is another one"
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
        ("AWS_ALLOW_HTTP", "s3://bucket/surveyor", "set AWS_ALLOW_HTTP=true"),
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


def test_the_innermost_cause_of_an_error_that_is_not_known() -> None:
    chain = (
        "Operation not supported\n  \x1b[31m\u21b3\x1b[0m loading failed\n   \x1b[31m\u21b3\x1b[0m the moon\n is full\n"
    )

    assert store_error_reason(OSError(chain)) == "the moon is full"
    assert store_error_reason(OSError(f"Generic LocalFileSystem error: {chain}")) is None
    assert store_error_reason(FileNotFoundError(chain)) is None, "a read of the same rows in other files would end"
    assert store_error_reason(OSError(chain.replace("the moon", "IMDS"))) == (
        "this machine has no role, and the environment has no keys (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
    )
