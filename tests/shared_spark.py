"""One Spark for all workers of a run: the JVM starts once, and what it compiles for one test it has for the others.

Each worker has a session of its own in it, as two notebooks of one server have. A process of its own keeps the JVM for
as long as any worker has a lock on a file; the lock of a worker that was killed is gone with it, so nothing is left.
`python -m tests.shared_spark FOLDER` is that process. A command that a test starts as a process can use that JVM, too.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from jobs.adapters.spark.session import start_session
from jobs.adapters.spark.spark_app_cds import JVM_OPTIONS
from jobs.adapters.spark.spark_settings import INTERPRETED

NAME: Final = "surveyor-tests"

QUICK: Final = INTERPRETED | {
    "spark.default.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings for tables of a few rows: no unneeded shuffles, and no compilation of code that runs once."""

OWN: Final = {"spark.master": "local[2]"}
FOR_ALL: Final = {"spark.master": "local[6]", "spark.driver.memory": "4g"}
"""Enough cores, so that no test waits for a core while the task of another worker's test waits for a server."""

ROOMY: Final = "-Xms2g -Xmn1g -XX:+UseTransparentHugePages"
"""A JVM that begins with little collects its young objects three times a second, a twentieth of the time. Large pages
take a tenth off a plan's processor time (0.70 and 0.73 s, 0.65 and 0.63 with them); a JVM that ends soon is slower.
"""

GATEWAY: Final = "spark-gateway.json"
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
USERS: Final = "spark-users"
_START_SECONDS: Final = 120.0
_ROOT: Final = Path(__file__).parents[1]


@contextmanager
def own_session() -> Iterator[SparkSession]:
    """Run a Spark for this process alone."""
    session = start_session(NAME, QUICK | OWN)
    yield session
    session.stop()


def way_to(session: SparkSession) -> dict[str, str]:
    """Return the variables by which `join`, in another process, finds the JVM of this session."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way
    parameters = gateway.gateway_parameters
    return {PORT: str(parameters.port), SECRET: parameters.auth_token}


def join() -> SparkSession:
    """Use, in a process that a test has started, the JVM that its environment names; it is not one of spark-submit.

    A JVM of its own takes 10 s of processor time to start, and then compiles what this one has compiled already.
    """
    return _connected({name: os.environ.pop(name) for name in (PORT, SECRET)})


@contextmanager
def session_of_run(folder: Path) -> Iterator[SparkSession]:
    """Use the Spark of the run, whose workers have `folder` in common; the first worker starts it."""
    gateway = folder / GATEWAY
    with (folder / USERS).open("w") as users:
        with (folder / "spark-starting").open("w") as starting:
            flock(starting, LOCK_EX)
            flock(users, LOCK_SH)
            keeper = None if gateway.exists() else _started(folder, gateway)
        try:
            yield _connected(json.loads(gateway.read_text()))
        finally:
            users.close()
            if keeper is not None:
                keeper.wait()


def _started(folder: Path, gateway: Path) -> subprocess.Popen[bytes]:
    """Start the process that keeps Spark, and wait until it has."""
    keeper = subprocess.Popen([sys.executable, "-m", "tests.shared_spark", str(folder)], cwd=_ROOT)
    until = time.monotonic() + _START_SECONDS
    while not gateway.exists():
        assert keeper.poll() is None, f"the Spark of the run ended at its start with {keeper.returncode}"
        assert time.monotonic() < until, f"the Spark of the run was not up after {_START_SECONDS:.0f} s"
        time.sleep(0.1)
    return keeper


def _connected(gateway: Mapping[str, str]) -> SparkSession:
    """Return a session of this process in the JVM behind a gateway, and let `start_session` find it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with patch.dict(os.environ, gateway):
        SparkContext._ensure_initialized()  # noqa: SLF001 - what it is asked to connect to it takes from the environment
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - a context that runs already is found in the JVM only
    classic = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    running = classic.getDefaultSession().get()
    java_context = jvm.JavaSparkContext.fromSparkContext(running.sparkContext())
    context = SparkContext(conf=SparkConf(_jconf=java_context.getConf()), jsc=java_context)
    return SparkSession(context, running.cloneSession())


def keep(folder: Path) -> None:
    """Run Spark for as long as any worker uses it; the worker that began this knows how its JVM starts."""
    os.environ[JVM_OPTIONS] += f" {ROOMY}"
    session = start_session(NAME, QUICK | FOR_ALL)
    gateway = folder / GATEWAY
    _tell(gateway, session)
    with (folder / USERS).open() as users:
        flock(users, LOCK_EX)
        gateway.unlink()
        session.stop()


def _tell(file: Path, session: SparkSession) -> None:
    """Write the connection data to a file, which is complete once it exists and not readable by other users."""
    unfinished = file.with_suffix(".new")
    unfinished.touch(0o600)
    unfinished.write_text(json.dumps(way_to(session)))
    unfinished.rename(file)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
