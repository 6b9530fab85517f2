"""What a scheduler gets for spark-submit: the warehouse decides on the jars, and settings decide on the warehouse."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from jobs.core.errors import ExitCode
from jobs.runtime import submission

IN_FILE, IN_ENVIRONMENT, IN_OPTION = "s3://bucket/file", "/environment", "/option"


@pytest.mark.parametrize(
    ("typed", "variables", "expected"),
    [
        (["--conf"], {}, IN_FILE),
        ([], {"SURVEYOR_CONF": ""}, IN_FILE),
        ([], {"SURVEYOR_CONF": "", "SURVEYOR_WAREHOUSE": IN_ENVIRONMENT}, IN_ENVIRONMENT),
        (["--conf"], {"SURVEYOR_WAREHOUSE": IN_ENVIRONMENT}, IN_FILE),
        (["--warehouse", IN_OPTION, "--conf"], {"SURVEYOR_WAREHOUSE": IN_ENVIRONMENT}, IN_OPTION),
        ([], {}, "warehouse"),
    ],
)
def test_jars_are_those_of_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], variables: dict[str, str], expected: str
) -> None:
    """Each conf is the file; the jars that Spark would get are named after the warehouse."""
    conf = tmp_path / "surveyor.toml"
    conf.write_text(f'warehouse = "{IN_FILE}"')
    monkeypatch.setattr(submission, "spark_jars", lambda warehouse: [f"jar of {warehouse}"])
    for name in ("SURVEYOR_CONF", "SURVEYOR_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value or str(conf))
    options = [*typed, str(conf)] if "--conf" in typed else typed

    app = typer.Typer()
    app.command()(submission.submission)
    ran = CliRunner().invoke(app, ["--json", *options])

    assert ran.exit_code == ExitCode.DONE, ran.output
    assert json.loads(ran.stdout)["jars"] == f"jar of {expected}"
