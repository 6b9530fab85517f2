"""Messages without a Spark Connect server: one line, and its exit code; and what errors of Spark mean."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyspark import __version__ as our_spark
from pyspark.errors import AnalysisException
from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark import connect
from jobs.adapters.spark.remote import remote_error_message
from jobs.cli import app
from jobs.core.errors import ExitCode, MissingError
from schemas.columns import TABLE_COLUMNS

UNUSED_ADDRESS: Final = "sc://127.0.0.1:1"
"""A port without a listener; only root may listen on it."""

WITHOUT: Final = """\
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from jobs.cli import run
sys.exit(run({arguments!r}))
"""


@pytest.fixture
def planning(tmp_path: Path) -> list[str]:
    """A question to a warehouse with a snapshot of nothing."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    warehouse.ensure_tables()
    versions = {name: warehouse.version(name) for name in TABLE_COLUMNS}
    of_zookeeper = {"controller_epoch_version": 0, "versions": versions}
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), **of_zookeeper}])
    return ["plan", "reconcile", "--json", "--warehouse", warehouse.uri]


def _error(arguments: list[str], *missing: str) -> tuple[int, str, list[str]]:
    """The exit code of a command in a process of its own, the error that programs get, and the lines on stderr."""
    program = WITHOUT.format(missing=missing, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ... ")]
    return done.returncode, json.loads(done.stdout)["error"], lines


@pytest.mark.parametrize("url", ["spark.example:15002", "http://h", "sc://", "sc://h:99999", "sc://h/x", "local[2]"])
def test_an_invalid_server_url_is_a_usage_error(url: str) -> None:
    done = CliRunner().invoke(app, ["whatif", "--lose", "brokers=1", "--remote", f"{url};token=s3cret"])
    assert (done.exit_code, done.stderr.count("\n")) == (ExitCode.USAGE, 1)
    assert f"--remote '{url}' is not an address of a Spark Connect server: expected sc://HOST[:PORT]" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("url", ["sc://me:s3cret@h", "sc://me:s3/cret@h", "sc://me:s3;cret@h", "sc://h/?token=s3cret"])
def test_secrets_of_an_invalid_server_url_are_not_shown(url: str) -> None:
    done = CliRunner().invoke(app, ["whatif", "--lose", "brokers=1"], env={"SPARK_REMOTE": url})
    assert (done.exit_code, done.stderr.count("\n")) == (ExitCode.USAGE, 1)
    assert done.stderr.startswith("surveyor: SPARK_REMOTE")
    assert "s3" not in done.stderr
    assert "cret" not in done.stderr


def test_a_server_that_is_not_there_is_missing(planning: list[str]) -> None:
    code, error, (age, _) = _error([*planning, "--remote", f"{UNUSED_ADDRESS}/;token=s3cret"])
    assert (code, age[:20]) == (ExitCode.MISSING, "surveyor: snapshot 1")
    assert error.startswith(f"no Spark Connect server answers at {UNUSED_ADDRESS}: ")
    assert "Connection refused; check that it runs" in error
    assert "s3cret" not in error


def test_a_controller_needs_no_spark() -> None:
    """It ends because there is no ZooKeeper, and not because there is no Spark Connect server."""
    done = CliRunner().invoke(app, ["control", "--zookeeper", "127.0.0.1:1"], env={"SPARK_REMOTE": UNUSED_ADDRESS})
    assert (done.exit_code, done.stderr.count("\n")) == (ExitCode.UNREADABLE, 1)
    assert "ZooKeeper" in done.stderr


@pytest.mark.parametrize(
    ("version", "extensions", "message"),
    [
        ("3.5.1", connect.DELTA, "is Spark 3.5.1, Surveyor needs"),
        (our_spark, "", "has no Delta; start it with --jars"),
    ],
)
def test_a_server_that_is_not_fit_is_missing(version: str, extensions: str, message: str) -> None:
    server: Any = SimpleNamespace(version=version, conf={"spark.sql.extensions": extensions})
    with pytest.raises(MissingError, match=message):
        connect.check(server, UNUSED_ADDRESS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("StatusCode.UNAVAILABLE: Socket closed", "the Spark Connect server was lost"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/data/w/x.parquet. SQLSTATE",
            "file:/data/w/x.parquet does not exist",
        ),
        (
            "...\nModuleNotFoundError: No module named 'kazoo'\n...",
            "Python has no module kazoo where Spark's executors",
        ),
        ("[DIVIDE_BY_ZERO]", None),
    ],
)
def test_what_errors_of_spark_mean(text: str, reason: str | None) -> None:
    meant = remote_error_message(AnalysisException(text))
    assert meant is None if reason is None else reason in (meant or "")
    assert remote_error_message(ValueError(text)) is None
