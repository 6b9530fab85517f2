"""The Spark session: started once and lazily, with Delta, and with the settings of `conf/spark-defaults.conf`.

It runs in a JVM of this process, in that of spark-submit, or on a Spark Connect server; whoever uses it need not know.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.core import context as pyspark_context
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import delta_jars
from jobs.adapters.spark import connect
from jobs.adapters.spark.class_archive import JVM_OPTIONS, quick_start
from jobs.adapters.spark.submit_environment import is_submitted
from jobs.core.errors import MissingError
from jobs.core.signals import is_guarded, relay_stderr
from jobs.core.units import Part

UTC: Final = {"spark.sql.session.timeZone": "UTC"}
"""Timestamps in the tables are UTC wherever a job runs."""

BASE_SETTINGS: Final = {
    "spark.sql.extensions": connect.DELTA,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    **UTC,
}

OWN_JVM: Final = {
    "spark.driver.host": "127.0.0.1",  # driver and executors are one process: nothing listens to the network
    "spark.driver.bindAddress": "127.0.0.1",
}


SMALL_CLUSTER_PARTITIONS: Final = 10_000
"""Partitions of a cluster up to which a job is over before it pays to compile for it."""

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}
"""For a few thousand rows: what is written as Java and compiled for each query runs once, a thousandth of a second.

And Spark describes each query for its pages, at length: a sixth of the time the driver spends on small ones.
"""

BROADCASTING: Final = INTERPRETED | {
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.autoBroadcastJoinThreshold": "10485760",
}
"""For little that is joined with much, such as a long history: Spark's defaults, whatever the session had before."""

ONE_TASK: Final = INTERPRETED | {
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
"""For tables that are read in a single partition each, and are short: one task joins them where they are.

To broadcast one is a job of its own, and costs more than a join of a few thousand rows. A warm `plan reconcile` took 7
jobs and 0.33 s of the JVM's processor time with broadcasts, and 3 jobs and 0.27 s so; who leads four partitions, which
a controller asks, 5 jobs and 0.15 s, and one job and 0.11 s.
"""

SHORT_LIVED_JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:InitialRAMPercentage=10 -XX:NewRatio=1"
    " -XX:MetaspaceSize=400m"
)
"""For a JVM that takes one snapshot or makes one plan: its second compiler takes half of the processor time, and even
on a million partitions is not paid back before the end (docs/benchmarks.md).

Without that compiler the JVM keeps 48 MB of compiled code only, which Spark fills within a snapshot and a plan. And a
heap that begins with little is swept of its young objects all the time; all of it is, each time that classes fill
some more room, unless that begins with enough.
"""

_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""What the JVM says of a module that Spark's launcher asks for; a wait for Spark begins with our own line."""

_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
"""PySpark's condition for a JVM that ended before it could be used."""

CACHED_CLASSES: Final = {
    "PythonUtils": ["toSeq"],
    "PythonSQLUtils": ["toDataFrame"],
    "functions": ["broadcast"],
    "org.apache.spark.sql.functions": ["array", "coalesce", "col", "concat", "expr", "lit", "not", "struct", "when"],
    "org.apache.spark.sql.classic.SparkSession": ["setActiveSession"],
}
"""Classes that PySpark asks the JVM for each time it makes a Column, and which of their functions it then asks for."""


def conf_dir() -> Path:
    """Return the folder of `spark-defaults.conf`: beside the packages in a checkout, inside `jobs` in a wheel."""
    checkout = Path(__file__).parents[3] / "conf"
    return checkout if checkout.is_dir() else Path(__file__).parents[2] / "conf"


def start_session(
    name: str, settings: Mapping[str, str] | None = None, *, short_lived: bool = False, remote: str | None = None
) -> SparkSession:
    """Return the running session, or start one; `settings` win over the defaults.

    Under spark-submit, master, memory and jars are spark-submit's business, and that of whoever started the server
    where `remote` is the URL of one. `short_lived`: where a JVM is started, it is one for little work.
    """
    if remote is not None:
        return connect.begin(remote, {**UTC, **(settings or {})})
    options = {**BASE_SETTINGS, **({} if is_submitted() else _own_jvm()), **(settings or {})}
    builder = SparkSession.builder.appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    with _own_signal_handlers():
        session = _start_short_lived(builder) if short_lived and not is_submitted() else builder.getOrCreate()
    _check_delta(session)
    with suppress(Exception):  # it saves time alone: whatever it meets must not stop a start
        _cache_classes(session)
    return session


def _start_short_lived(builder: SparkSession.Builder) -> SparkSession:
    """Start a JVM for little work, with what makes it quick; without that where such a JVM does not come up."""
    conf = Path(os.environ.get("SPARK_CONF_DIR") or conf_dir())
    quick = quick_start(SHORT_LIVED_JVM_OPTIONS, conf)
    try:
        with _environment(quick):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if not quick or error.getCondition() != _NO_JVM:
            raise
    sys.stderr.write(f"Spark's JVM did not start with Surveyor's options ({quick[JVM_OPTIONS]}); starting it without\n")
    return builder.getOrCreate()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the JVM that is started here, and take them back: processes that come later have their own."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep a command's handlers: PySpark puts in its own for Ctrl-C, which raises in the midst of what py4j does.

    And let the JVM that is started say nothing on stdout, which is for the result, and nothing on stderr after an
    interruption's one line. So whoever reads either through a pipe need not wait until it has ended, too.
    """
    if not is_guarded():
        yield
        return
    module: Any = pyspark_context
    theirs, launch = module.signal, module.launch_gateway
    reading, writing = os.pipe()
    relay_stderr(reading, without=_INCUBATOR)
    module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    module.launch_gateway = partial(launch, popen_kwargs={"stdout": writing, "stderr": writing})
    try:
        yield
    finally:
        module.signal, module.launch_gateway = theirs, launch
        os.close(writing)


def with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a session beside this one with these SQL settings: set on this one, later jobs would have them, too.

    It is a copy and no `newSession`, so that what a notebook has set on its session holds here as well. A server's
    session is not shared and is set itself.
    """
    own = session if connect.is_connected() else _copy(session)
    for key, value in settings.items():
        own.conf.set(key, value)
    return own


def _copy(session: SparkSession) -> SparkSession:
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001 - PySpark has no other


def default_parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once, as far as Spark knows its cores yet."""
    if connect.is_connected():
        return connect.default_parallelism(session)
    return session.sparkContext.defaultParallelism


def cached_with_counts(rows: DataFrame, **kinds: str) -> tuple[DataFrame, dict[str, int]]:
    """Compute rows once, and tell how many there are of each kind, which is a condition in SQL."""
    counts = [F.expr(f"count_if({condition}) AS {kind}") for kind, condition in kinds.items()]
    if connect.is_connected():
        return connect.cached_with_counts(rows, counts)
    seen = Observation()
    return rows.observe(seen, *counts).localCheckpoint(), seen.get


def task_progress(session: SparkSession) -> Part | str:
    """Say how many tasks of the running stages are done, for people who wait; nothing where none runs or none tells."""
    if connect.is_connected():
        return ""
    tracker = session.sparkContext.statusTracker()
    running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in running if stage is not None]
    done, of = (sum(counts) for counts in zip(*tasks, strict=True)) if tasks else (0, 0)
    return Part(done, of, "tasks") if of else ""


def stop_session() -> None:
    """Stop the running session, if there is one: after this nothing writes any more."""
    with suppress(Py4JError):  # a JVM that is gone already writes nothing
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _own_jvm() -> dict[str, str]:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_CONF_DIR", str(conf_dir()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what is installed here
    return {**OWN_JVM, "spark.jars": ",".join(map(str, delta_jars()))}


def _cache_classes(session: SparkSession) -> None:
    """Keep at hand what PySpark looks up for each Column: py4j remembers nothing, and the JVM searches all jars.

    A plan makes thousands of Columns.
    """
    jvm = session.sparkContext._jvm  # noqa: SLF001 - PySpark looks things up in it
    for name, members in CACHED_CLASSES.items():
        java_class = vars(jvm).setdefault(name, getattr(jvm, name))
        vars(java_class).update({member: getattr(java_class, member) for member in members})


def _check_delta(session: SparkSession) -> None:
    loader = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr] # noqa: SLF001
    try:
        loader.loadClass("io.delta.tables.DeltaTable")
    except Py4JError:
        raise MissingError(
            "Delta is not on Spark's class path; give spark-submit --jars $(python -m jobs.adapters.java.jars delta)",
        ) from None


if __name__ == "__main__":
    print(conf_dir())  # noqa: T201 - for SPARK_CONF_DIR
