"""Where Surveyor is, and which cluster it is to look after: Airflow Variables, else environment variables.

The Variable `surveyor_zookeeper` and `SURVEYOR_ZOOKEEPER` in the worker's environment are the same setting, and the
Variable wins. Read when a task runs, never when a DAG file is parsed: Variables are rows of Airflow's database.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowFailException

PREFIX = "SURVEYOR_"

SNAPSHOT_POOL = "surveyor_snapshot"
"""One slot: two snapshots at once may take the same id."""

COMMIT_POOL = "surveyor_commit"
"""One slot: commits that ask Kafka's controller come one after another; one may take hours."""

REPAIR_POOL = "surveyor_repair"
"""One slot, apart from those: a repair must not wait for a move of hours."""


@dataclass(frozen=True, slots=True)
class Settings:
    environment: Path
    """The virtual environment that has the command `surveyor`."""
    cluster: str | None
    zookeeper: str | None
    warehouse: str | None
    conf: str | None
    command_config: str | None
    spark_connection: str
    """Airflow's connection that names Spark's master."""
    py_files: str | None
    pages: str
    """Folder of report.html and surveyor.prom."""

    @property
    def command(self) -> str:
        return str(self.environment / "bin" / "surveyor")

    @property
    def options(self) -> list[str]:
        """The options that every command of Surveyor takes; what is not set, Surveyor finds as it always does."""
        given = {
            "--cluster": self.cluster,
            "--zookeeper": self.zookeeper,
            "--warehouse": self.warehouse,
            "--conf": self.conf,
            "--command-config": self.command_config,
        }
        return [word for option, value in given.items() if value is not None for word in (option, value)]

    def submission(self) -> dict[str, Any]:
        """Ask Surveyor's environment what spark-submit needs: `jobs.adapters.spark.submission` says which keys."""
        python = self.environment / "bin" / "python"
        done = subprocess.run(  # noqa: S603 - the environment that the settings name
            [python, "-m", "jobs.adapters.spark.submission"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AirflowFailException(
                f"{python} cannot say how to submit Surveyor's jobs, exit code {done.returncode}: {done.stderr.strip()}"
            )
        submission: dict[str, Any] = json.loads(done.stdout)
        return submission


def settings() -> Settings:
    """Read the settings; AirflowFailException where there is no Surveyor, as trying again would not help."""
    environment = _setting("environment")
    if environment is None or not (Path(environment) / "bin" / "surveyor").is_file():
        raise AirflowFailException(
            f"surveyor_environment is {environment!r}, and no virtual environment with bin/surveyor in it: set the "
            f"Airflow Variable surveyor_environment, or {PREFIX}ENVIRONMENT for the worker, to that of Surveyor"
        )
    warehouse = _setting("warehouse")
    return Settings(
        environment=Path(environment),
        cluster=_setting("cluster"),
        zookeeper=_setting("zookeeper"),
        warehouse=warehouse,
        conf=_setting("conf"),
        command_config=_setting("command_config"),
        spark_connection=_setting("spark_connection") or "surveyor_spark",
        py_files=_setting("py_files"),
        pages=_setting("pages") or ".",
    )


def _setting(name: str) -> str | None:
    return Variable.get(f"surveyor_{name}", default=None) or os.environ.get(f"{PREFIX}{name.upper()}") or None
