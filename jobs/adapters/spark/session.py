"""The Spark session: started once and lazily, with Delta and the settings of `conf/spark-defaults.conf`.

It runs in a JVM started by this process, in the JVM of spark-submit, or on a Spark Connect server. Callers need not
distinguish these.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
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
from jobs.adapters.spark.spark_app_cds import JVM_OPTIONS, quick_start
from jobs.adapters.spark.spark_settings import BASE_SETTINGS, OWN_JVM, SHORT_LIVED_JVM_OPTIONS, UTC, conf_dir
from jobs.adapters.spark.store_settings import store_settings
from jobs.adapters.spark.submit_environment import is_submitted
from jobs.core import logs
from jobs.core.errors import MissingError
from jobs.core.logs import module_logger
from jobs.core.signals import is_guarded, relay_stderr
from jobs.core.units import Part

_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""The JVM's warning about a module that Spark's launcher requests; it is filtered from stderr."""

_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
"""PySpark's error condition for a JVM that ended during its start."""

_KEYTAB: Final = "spark.kerberos.keytab"

HADOOP: Final = "spark.hadoop."
"""The prefix of Hadoop's settings in an application; a session has them without it."""

CACHED_CLASSES: Final = {
    "PythonUtils": ["toSeq"],
    "PythonSQLUtils": ["toDataFrame"],
    "functions": ["broadcast"],
    "org.apache.spark.sql.functions": ["array", "coalesce", "col", "concat", "expr", "lit", "not", "struct", "when"],
    "org.apache.spark.sql.classic.SparkSession": ["setActiveSession"],
}
"""Classes and functions that PySpark looks up in the JVM each time it makes a Column."""


def start_session(
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    short_lived: bool = False,
    remote: str | None = None,
    warehouse: str = "",
) -> SparkSession:
    """Return the running session, or start one; `settings` override the defaults.

    `remote` is the URL of a Spark Connect server. Master, memory and jars are set by spark-submit or by that server,
    if one of them is used. With `short_lived`, a JVM that is started here gets SHORT_LIVED_JVM_OPTIONS. For a
    `warehouse` on S3, ADLS or GCS the session can read it. Threads that start it at the same time get the same JVM.
    """
    with _starting:
        return _started(name, settings or {}, short_lived=short_lived, remote=remote, warehouse=warehouse)


_starting: Final = RLock()
"""Held by the thread that starts Spark, which changes environment variables and PySpark's launcher.

That thread may start it again before it is done, as tests do that let a command share their session.
"""


def _started(
    name: str, settings: Mapping[str, str], *, short_lived: bool, remote: str | None, warehouse: str
) -> SparkSession:
    for_store = store_settings(warehouse, os.environ)
    if remote is not None:
        of_session = {name.removeprefix(HADOOP): value for name, value in for_store.items()}
        return connect.begin(remote, {**UTC, **of_session, **settings})
    own_jvm = {} if is_submitted() else _own_jvm(spark_jars(warehouse))
    options = {**BASE_SETTINGS, **own_jvm, **for_store, **settings}
    builder = SparkSession.builder.appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    with _own_signal_handlers():
        session = _start(builder, short_lived=short_lived)
    _check_delta(session)
    with suppress(Exception):  # a mere optimization, whose errors must not stop the start
        _cache_classes(session)
    return session


def _start(builder: SparkSession.Builder, *, short_lived: bool) -> SparkSession:
    """Start a session; raise MissingError if a JVM that is started here ends before it can be used."""
    if is_submitted():
        return builder.getOrCreate()
    conf = Path(os.environ.get("SPARK_CONF_DIR") or conf_dir())
    defaults = conf / "spark-defaults.conf"
    _refuse_missing_keytab(defaults)
    try:
        return _start_short_lived(builder, conf) if short_lived else builder.getOrCreate()
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


def _start_short_lived(builder: SparkSession.Builder, conf: Path) -> SparkSession:
    """Start a JVM with the options and the class archive for short work, or without them if that JVM fails."""
    quick = quick_start(SHORT_LIVED_JVM_OPTIONS, conf)
    try:
        with _environment(quick):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if not quick or error.getCondition() != _NO_JVM:
            raise
    line = "Spark's JVM did not start with Surveyor's options (%s); starting it without"
    module_logger(__name__).warning(line, quick[JVM_OPTIONS])
    return builder.getOrCreate()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the JVM that is started here, and restore them for later processes."""
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
    own = session if connect.is_connected() else _copy(session)
    for key, value in settings.items():
        own.conf.set(key, value)
    return own


def _copy(session: SparkSession) -> SparkSession:
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001 - PySpark has no public way


def default_parallelism(session: SparkSession) -> int:
    """Return the number of concurrent tasks, as far as Spark knows its cores already."""
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


def _own_jvm(jars: Iterable[Path]) -> dict[str, str]:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_CONF_DIR", str(conf_dir()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what is installed here
    return {**OWN_JVM, "spark.jars": ",".join(map(str, jars))}


def _cache_classes(session: SparkSession) -> None:
    """Cache the JVM classes that PySpark looks up for each Column.

    py4j does not cache them, each look-up searches all jars, and a plan makes thousands of Columns.
    """
    jvm = session.sparkContext._jvm  # noqa: SLF001 - PySpark looks classes up in it
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
