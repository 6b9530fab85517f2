"""Where Surveyor is, and which cluster it is to look after: Airflow Variables, else environment variables.

The Variable `surveyor_zookeeper` and `SURVEYOR_ZOOKEEPER` in the worker's environment are the same setting, and the
Variable wins. Read when a task runs, never when a DAG file is parsed: Variables are rows of Airflow's database.

Where `SURVEYOR_CLUSTERS` lists clusters, each has DAGs, pools and assets of its own, named `NAME.CLUSTER`, and so may
its Variables be: `surveyor_pages.payments` wins over `surveyor_pages`. That list is read when a DAG file is parsed, so
it must be in the environment of the DAG processor and of all workers.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowFailException

PREFIX = "SURVEYOR_"

CLUSTERS = f"{PREFIX}CLUSTERS"

ONE_CLUSTERS_OWN = ("zookeeper", "command_config")
"""Settings that cannot hold for several clusters at once."""

SNAPSHOT_POOL = "surveyor_snapshot"
"""One slot: two snapshots at once may take the same id."""

COMMIT_POOL = "surveyor_commit"
"""One slot: commits that ask Kafka's controller come one after another; one may take hours."""

REPAIR_POOL = "surveyor_repair"
"""One slot, apart from those: a repair must not wait for a move of hours."""


def clusters() -> tuple[str | None, ...]:
    """Return the clusters that have DAGs of their own; None alone where this Airflow looks after one."""
    listed = tuple(name.strip() for name in os.environ.get(CLUSTERS, "").split(",") if name.strip())
    odd = [name for name in listed if not re.fullmatch(r"[\w-]+", name, re.ASCII)]
    if odd:
        raise ValueError(f"{CLUSTERS} lists {odd[0]!r}: expected letters, digits, - and _, as ids of DAGs take them")
    return listed or (None,)


def of_cluster(name: str, cluster: str | None) -> str:
    """Return the name of a cluster's own DAG, pool, asset or Variable."""
    return name if cluster is None else f"{name}.{cluster}"


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
    pages: Path
    """Folder of report.html and surveyor.prom."""
    notify: str
    """Airflow's connection that names a webhook, which is notified of approvals that wait."""
    settle: str | None
    stable_for: str | None
    """What `plan elect --preferred` is given, unless a run's parameters say otherwise."""

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


def settings(cluster: str | None = None) -> Settings:
    """Read the settings of one of several clusters, or of the only one.

    Raise AirflowFailException where there is no Surveyor, or where it is not clear which cluster is meant: trying again
    would not help.
    """

    def setting(name: str) -> str | None:
        return _setting(of_cluster(name, cluster)) or (None if cluster is None else _setting(name))

    environment = setting("environment")
    if environment is None or not (Path(environment) / "bin" / "surveyor").is_file():
        raise AirflowFailException(
            f"surveyor_environment is {environment!r}, and no virtual environment with bin/surveyor in it: set the "
            f"Airflow Variable surveyor_environment, or {PREFIX}ENVIRONMENT for the worker, to that of Surveyor"
        )
    if cluster is not None:
        _refuse_unclear(cluster, conf=setting("conf"))
    pages = Path(setting("pages") or ".")
    return Settings(
        environment=Path(environment),
        cluster=cluster or _setting("cluster"),
        zookeeper=_setting(of_cluster("zookeeper", cluster)),
        warehouse=setting("warehouse"),
        conf=setting("conf"),
        command_config=_setting(of_cluster("command_config", cluster)),
        spark_connection=setting("spark_connection") or "surveyor_spark",
        py_files=setting("py_files"),
        pages=pages if cluster is None else pages / cluster,
        notify=setting("notify") or "surveyor_notify",
        settle=setting("settle"),
        stable_for=setting("stable_for"),
    )


def _refuse_unclear(cluster: str, *, conf: str | None) -> None:
    """Refuse what would let the commands of several clusters speak to one and the same."""
    for name in ONE_CLUSTERS_OWN:
        if _setting(name):
            raise AirflowFailException(
                f"surveyor_{name} is set, and {CLUSTERS} lists several clusters: name each one's in surveyor_conf, or "
                f"in a Variable of its own, surveyor_{name}.{cluster}"
            )
    if conf is None and _setting(of_cluster("zookeeper", cluster)) is None:
        raise AirflowFailException(
            f"nothing says where ZooKeeper of cluster {cluster} is: let surveyor_conf name a surveyor.toml with "
            f"the section clusters.{cluster}, or set the Variable surveyor_zookeeper.{cluster}"
        )


def _setting(name: str) -> str | None:
    """Return a setting by its Variable, else by the environment, which has none of a single cluster of several."""
    return Variable.get(f"surveyor_{name}", default=None) or os.environ.get(f"{PREFIX}{name.upper()}") or None
