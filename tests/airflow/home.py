"""Airflow's own environment, with these DAGs and a database of its own: for the tests, and to look at.

Airflow lives in `.venv-airflow`, which `make setup-dev` makes, because its Spark provider brings a pyspark of its own.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

from tests.jobs.support.commands.user_shell import path

ROOT: Final = Path(__file__).parents[2]
BIN: Final = ROOT / ".venv-airflow" / "bin"
PYTHON: Final = BIN / "python"
AIRFLOW: Final = BIN / "airflow"

NO_AIRFLOW: Final = f"there is no Airflow in {BIN.parent.name}: run `make setup-dev` first"


def variables(home: Path, zookeeper: str, warehouse: Path) -> dict[str, str]:
    """Return the environment of Airflow's worker: PATH, HOME, Airflow's own settings and those of docs/deploy.md.

    `home` is Airflow's folder; it gets its database and logs. Surveyor's commands find nothing else, as on a worker of
    a user's, but for where this machine has its jars.
    """
    ours = {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__DAGS_FOLDER": ROOT / "airflow" / "dags",
        "AIRFLOW__CORE__PLUGINS_FOLDER": ROOT / "airflow" / "plugins",
        "AIRFLOW__CORE__LOAD_EXAMPLES": False,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": False,
        "AIRFLOW_CONN_SURVEYOR_SPARK": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "SURVEYOR_ENVIRONMENT": ROOT / ".venv",
        "SURVEYOR_ZOOKEEPER": zookeeper,
        "SURVEYOR_WAREHOUSE": warehouse,
        "SURVEYOR_PAGES": home / "pages",
        "PATH": f"{BIN}{os.pathsep}{path()}",
        "HOME": Path.home(),
        "PYTHONDONTWRITEBYTECODE": 1,
    }
    cache = {name: value for name, value in os.environ.items() if name == "SURVEYOR_CACHE"}
    return cache | {name: str(value) for name, value in ours.items()}


PREPARED_BY: Final = (["db", "migrate"], ["pools", "import", str(ROOT / "airflow" / "pools.json")])
"""The commands of docs/deploy.md that make the database, and the pools."""


def prepare(environment: dict[str, str]) -> None:
    """Run them, each in a process of its own."""
    for words in PREPARED_BY:
        done = subprocess.run([AIRFLOW, *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"airflow {' '.join(words)} failed: {done.stdout}{done.stderr}")
