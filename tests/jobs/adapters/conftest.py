"""Object stores and HDFS, each on a server of this machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from deltalake import DeltaTable

from tests.jobs.support.s3_server import IGNORE_CONDITIONS, REFUSE_BY
from tests.jobs.support.warehouses.azurite import Azurite
from tests.jobs.support.warehouses.gcs_stand_in import GcsServer, gcs_stand_in
from tests.jobs.support.warehouses.mini_dfs import MiniDfs

BUCKET = "lake"


@contextmanager
def s3_server(*options: str) -> Iterator[str]:
    """Run a server, which ends with its input; yield its address."""
    command = [sys.executable, "-m", "tests.jobs.support.s3_server", *options]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        assert process.stdin
        process.stdin.close()
        process.wait(30)


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def object_store(s3_address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of a new warehouse; the environment has the server's address and keys, as for AWS's own tools."""
    return warehouse_at(s3_address, monkeypatch, request.node.name)


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniDfs]:
    with MiniDfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def hdfs_folder(hdfs_server: MiniDfs, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of a new warehouse on HDFS, of a user who may write there."""
    monkeypatch.setenv("HADOOP_USER_NAME", hdfs_server.user)
    return f"{hdfs_server.url}/{folder_name(request.node.name)}"


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def azure_folder(azure_server: Azurite, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of a new warehouse on ADLS; skips without Azurite, which `make setup-dev` does not install."""
    for variable, value in azure_server.environment.items():
        monkeypatch.setenv(variable, value)
    return f"{azure_server.url}/{folder_name(request.node.name)}"


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with gcs_stand_in(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def gcs_folder(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of a new warehouse on a stand-in for GCS, and the environment with the key of an account there."""
    for variable, value in gcs_server.environment.items():
        monkeypatch.setenv(variable, value)
    return f"gs://{BUCKET}/{folder_name(request.node.name)}"


@pytest.fixture
def careless_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same of a server that ignores conditions."""
    with s3_server(IGNORE_CONDITIONS) as address:
        yield warehouse_at(address, monkeypatch, "careless")


@dataclass(frozen=True)
class RefusingStore:
    """A warehouse on a server that answers with an error, once the test requests that."""

    warehouse: str
    errors: Path

    def refuse(self, error: str) -> None:
        self.errors.write_text(error)


@pytest.fixture
def refusing_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingStore]:
    errors = tmp_path / "errors"
    errors.write_text("")
    with s3_server(REFUSE_BY, str(errors)) as address:
        yield RefusingStore(warehouse_at(address, monkeypatch, "refusing"), errors)


def warehouse_at(address: str, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    return f"s3://{BUCKET}/{folder_name(name)}"


def folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def engines(table: str) -> set[str]:
    """The authors of the commits of a table."""
    return {str(entry["engineInfo"]).partition(":")[0] for entry in DeltaTable(table).history()}
