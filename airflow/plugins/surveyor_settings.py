"""Settings of the DAGs from Airflow Variables or environment variables: Surveyor's location and the cluster.

The Variable `surveyor_zookeeper` and the worker's environment variable `SURVEYOR_ZOOKEEPER` are the same setting, and
the Variable takes precedence. Settings are read when a task runs, not when a DAG file is parsed, because Variables are
rows in Airflow's database.

If `SURVEYOR_CLUSTERS` lists clusters, each has its own DAGs, pools and assets, named `NAME.CLUSTER`. Its Variables may
have such names too: `surveyor_pages.payments` takes precedence over `surveyor_pages`. The list is read when a DAG file
is parsed, so it must be in the environment of the DAG processor and of all workers.
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
from surveyor_outcomes import raise_for

PREFIX = "SURVEYOR_"

CLUSTERS = f"{PREFIX}CLUSTERS"

PER_CLUSTER_SETTINGS = ("zookeeper", "bootstrap_servers", "command_config")
"""Settings that cannot be shared by several clusters."""

SNAPSHOT_POOL = "surveyor_snapshot"
"""One slot, because two concurrent snapshots may take the same id."""

FLEET_POOL = "surveyor_fleet"
"""As many slots as snapshots of different clusters may be taken at once; the pool of all clusters together."""

COMMIT_POOL = "surveyor_commit"
"""One slot, because commits through Kafka's controller run one at a time; each may take hours."""

REPAIR_POOL = "surveyor_repair"
"""A separate slot, because a repair must not wait for a reassignment that takes hours."""


def clusters() -> tuple[str | None, ...]:
    """Return the clusters with their own DAGs; only None if there is a single cluster."""
    listed = tuple(name.strip() for name in os.environ.get(CLUSTERS, "").split(",") if name.strip())
    odd = [name for name in listed if not re.fullmatch(r"[\w-]+", name, re.ASCII)]
    if odd:
        raise ValueError(f"{CLUSTERS} lists {odd[0]!r}: expected only letters, digits, - and _, as in DAG ids")
    return listed or (None,)


def of_cluster(name: str, cluster: str | None) -> str:
    """Return the cluster-specific name of a DAG, pool, asset or Variable."""
    return name if cluster is None else f"{name}.{cluster}"


@dataclass(frozen=True, slots=True)
class Settings:
    environment: Path
    """The virtual environment with the command `surveyor`."""
    cluster: str | None
    zookeeper: str | None
    bootstrap_servers: str | None
    """Brokers of a KRaft cluster, in place of `zookeeper`."""
    warehouse: str | None
    conf: str | None
    command_config: str | None
    spark_connection: str
    """Airflow connection with Spark's master."""
    py_files: str | None
    pages: Path
    """Folder of report.html and surveyor.prom."""
    notify: str
    """Airflow connection of a webhook that is notified of pending approvals."""
    settle: str | None
    stable_for: str | None
    """Options of `plan elect --preferred`, unless a run's parameters override them."""

    @property
    def command(self) -> str:
        return str(self.environment / "bin" / "surveyor")

    @property
    def options(self) -> list[str]:
        """The common options of Surveyor's commands; for unset ones Surveyor uses its own defaults."""
        given = {
            "--cluster": self.cluster,
            "--zookeeper": self.zookeeper,
            "--bootstrap-server": self.bootstrap_servers,
            "--warehouse": self.warehouse,
            "--conf": self.conf,
            "--command-config": self.command_config,
        }
        return [word for option, value in given.items() if value is not None for word in (option, value)]

    def submission(self) -> dict[str, Any]:
        """Return what spark-submit needs, such as jars for the warehouse; keys as in `jobs.runtime.submission`."""
        python = self.environment / "bin" / "python"
        done = subprocess.run(  # noqa: S603 - the environment that the settings name
            [python, "-m", "jobs.runtime.submission", "--json", *self.options],
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            submission: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            submission = {"error": f"{python} could not return the parameters of spark-submit: {done.stderr.strip()}"}
        if done.returncode:
            raise_for(done.returncode, submission)
        return submission


def settings(cluster: str | None = None) -> Settings:
    """Read the settings of one of several clusters, or of the only one.

    Raise AirflowFailException, which is not retried, if Surveyor is not found or the settings are ambiguous.
    """

    def setting(name: str) -> str | None:
        return _setting(of_cluster(name, cluster)) or (None if cluster is None else _setting(name))

    environment = setting("environment")
    if environment is None or not (Path(environment) / "bin" / "surveyor").is_file():
        raise AirflowFailException(
            f"surveyor_environment is {environment!r}, which is not a virtual environment with bin/surveyor; set the "
            f"Airflow Variable surveyor_environment, or {PREFIX}ENVIRONMENT for the worker, to Surveyor's environment"
        )
    if cluster is not None:
        _refuse_unclear(cluster, conf=setting("conf"))
    pages = Path(setting("pages") or ".")
    return Settings(
        environment=Path(environment),
        cluster=cluster or _setting("cluster"),
        zookeeper=_setting(of_cluster("zookeeper", cluster)),
        bootstrap_servers=_setting(of_cluster("bootstrap_servers", cluster)),
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
    """Raise AirflowFailException if a setting would make several clusters use the same ZooKeeper or brokers."""
    for name in PER_CLUSTER_SETTINGS:
        if _setting(name):
            raise AirflowFailException(
                f"surveyor_{name} is set, and {CLUSTERS} lists several clusters: name each one's in surveyor_conf, or "
                f"in a separate Variable, surveyor_{name}.{cluster}"
            )
    addresses = [_setting(of_cluster(name, cluster)) for name in ("zookeeper", "bootstrap_servers")]
    if conf is None and addresses == [None, None]:
        raise AirflowFailException(
            f"ZooKeeper of cluster {cluster} is not configured: set surveyor_conf to a surveyor.toml with "
            f"the section clusters.{cluster}, or set the Variable surveyor_zookeeper.{cluster}, or "
            f"surveyor_bootstrap_servers.{cluster} of a KRaft cluster"
        )


def _setting(name: str) -> str | None:
    """Return a setting from its Variable, else from the environment."""
    return Variable.get(f"surveyor_{name}", default=None) or os.environ.get(f"{PREFIX}{name.upper()}") or None
