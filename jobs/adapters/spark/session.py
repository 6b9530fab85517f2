"""The session in which DataFrames are computed, started once and lazily.

It is a session of the embedded engine, or one of Spark: in a JVM started by this process with Delta and the settings of
`conf/spark-defaults.conf`, in the JVM of spark-submit, or on a Spark Connect server. Callers need not distinguish
these.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock
from types import SimpleNamespace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.core import context as pyspark_context
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import spark_jars
from jobs.adapters.spark import connect
from jobs.adapters.spark.closed_port import StrangerError
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.object_store_settings import store_settings
from jobs.adapters.spark.spark_settings import BASE_SETTINGS, OWN_JVM, conf_dir
from jobs.adapters.spark.submit_environment import is_submitted
from jobs.core import logs
from jobs.core.errors import MissingError
from jobs.core.logs import module_logger
from jobs.core.signals import is_guarded, relay_stderr
from jobs.core.units import Part

SPARK: Final = Place(Engine.SPARK)

_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""The JVM's warning about a module that Spark's launcher requests; it is filtered from stderr."""

_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
"""PySpark's error condition for a JVM that ended during its start."""

_KEYTAB: Final = "spark.kerberos.keytab"

HADOOP: Final = "spark.hadoop."
"""The prefix of Hadoop's settings in an application; a session has them without it."""


def start_session(
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    place: Place = SPARK,
) -> SparkSession:
    """Return the running session, or start one at a place; `settings` override Spark's defaults.

    Master, memory and jars are set by spark-submit or by a Spark Connect server, if one of them is used. For a
    warehouse on S3, ADLS or GCS the session can read it. Threads that start it at the same time get the same JVM.
    """
    engine, reason = place.resolved()
    module_logger(__name__).debug("surveyor: engine %s: %s", engine, reason)
    if engine is Engine.EMBEDDED:
        embedded = _embedded(place)
        if embedded is not None:
            return embedded
    with _starting:
        return _started(name, settings or {}, place)


def _embedded(place: Place) -> SparkSession | None:
    """Return a session of the embedded engine; None if it does not start, unless it was requested."""
    try:
        return connect.begin_embedded()
    except StrangerError:
        raise
    except Exception as error:
        if place.engine is Engine.EMBEDDED:
            raise MissingError(f"the embedded engine did not start ({error}); use --engine spark") from error
        module_logger(__name__).warning("surveyor: the embedded engine did not start (%s); using Spark", error)
        return None


_starting: Final = RLock()
"""Held by the thread that starts Spark, which changes PySpark's launcher.

That thread may start it again before it is done, as tests do that let a command share their session.
"""


def _started(name: str, settings: Mapping[str, str], place: Place) -> SparkSession:
    for_store = store_settings(place.warehouse, os.environ)
    if place.remote is not None:
        of_session = {name.removeprefix(HADOOP): value for name, value in for_store.items()}
        return connect.begin(place.remote, {**connect.UTC, **of_session, **settings})
    connect.leave_mode()
    own_jvm = {} if is_submitted() else _own_jvm(place.warehouse)
    options = {**BASE_SETTINGS, **own_jvm, **for_store, **settings}
    builder = SparkSession.builder.appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    with _own_signal_handlers():
        session = _start(builder)
    _check_delta(session)
    return session


def _start(builder: SparkSession.Builder) -> SparkSession:
    """Start a session; raise MissingError if a JVM that is started here ends before it can be used."""
    if is_submitted():
        return builder.getOrCreate()
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or conf_dir(), "spark-defaults.conf")
    _refuse_missing_keytab(defaults)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != _NO_JVM:
            raise
        raise MissingError(
            f"Spark's JVM ended while it started: the lines before this one say why; its settings are in {defaults}"
        ) from None


def _refuse_missing_keytab(defaults: Path) -> None:
    """Raise MissingError if Spark's settings name a keytab that is not there; its JVM would end with a stack trace."""
    text = defaults.read_text("utf-8", errors="replace") if defaults.is_file() else ""
    if _KEYTAB not in text:
        return
    import javaproperties  # noqa: PLC0415 - it imports asyncio, and few settings name a keytab

    keytab = javaproperties.loads(text).get(_KEYTAB, "").strip()
    if keytab and not Path(keytab).is_file():
        raise MissingError(f"the keytab {keytab} ({_KEYTAB} in {defaults}) does not exist, or is not a file")


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep a command's signal handlers, and relay the output of the JVM that is started.

    PySpark installs its own handler for Ctrl-C, which raises an exception in the middle of py4j's work. The JVM must
    not write to stdout, which is for the result, nor to stderr after the last line of an interrupted command. Relayed
    output also means that a reader of a pipe need not wait until the JVM has ended.
    """
    if not is_guarded():
        yield
        return
    module: Any = pyspark_context
    theirs, launch = module.signal, module.launch_gateway
    reading, writing = os.pipe()
    relay_stderr(reading, without=_INCUBATOR, log_line=module_logger(__name__).warning if logs.is_json() else None)
    module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    module.launch_gateway = partial(launch, popen_kwargs={"stdout": writing, "stderr": writing})
    try:
        yield
    finally:
        module.signal, module.launch_gateway = theirs, launch
        os.close(writing)


def with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a copy of the session with these SQL settings, which later jobs in `session` must not get.

    It is a clone and not a `newSession`, so settings that a notebook made on its session also apply. The session of a
    Spark Connect server is not shared, so it is changed itself.
    """
    if connect.is_embedded():  # the settings are Spark's
        return session
    own = session if connect.is_connected() else _copy(session)
    for key, value in settings.items():
        own.conf.set(key, value)
    return own


def _copy(session: SparkSession) -> SparkSession:
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001 - PySpark has no public way


def default_parallelism(session: SparkSession) -> int:
    """Return the number of concurrent tasks, as far as Spark knows its cores already."""
    if connect.is_embedded():
        return os.cpu_count() or 1
    if connect.is_connected():
        return connect.default_parallelism(session)
    return session.sparkContext.defaultParallelism


def cached_with_counts(rows: DataFrame, **kinds: str) -> tuple[DataFrame, dict[str, int]]:
    """Compute and cache rows; return them and the count of each kind, which is an SQL condition."""
    counts = [F.expr(f"count_if({condition}) AS {kind}") for kind, condition in kinds.items()]
    if connect.is_connected():
        return connect.cached_with_counts(rows, counts)
    observation = Observation()
    return rows.observe(observation, *counts).localCheckpoint(), observation.get


def task_progress(session: SparkSession) -> Part | str:
    """Return the progress of the running stages' tasks; an empty string if none runs or Spark Connect is used."""
    if connect.is_connected():
        return ""
    tracker = session.sparkContext.statusTracker()
    running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in running if stage is not None]
    done, total = (sum(counts) for counts in zip(*tasks, strict=True)) if tasks else (0, 0)
    return Part(done, total, "tasks") if total else ""


def stop_session() -> None:
    """Stop the running session, if there is one, so that nothing writes after this."""
    with suppress(Py4JError):  # the JVM has already ended
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _own_jvm(warehouse: str) -> dict[str, str]:
    os.environ["JAVA_HOME"] = str(java_home())  # before the jars, which take minutes to download
    jars = spark_jars(warehouse)
    os.environ.setdefault("SPARK_CONF_DIR", str(conf_dir()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what is installed here
    return {**OWN_JVM, "spark.jars": ",".join(map(str, jars))}


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
