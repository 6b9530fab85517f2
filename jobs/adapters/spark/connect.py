"""Spark Connect: a server runs the queries and is reached by gRPC, so this process needs no JVM.

The server is Spark elsewhere, or the engine embedded in this process. The differences: a server has its own master,
memory, jars and static settings, so only session settings are sent to it, and Spark must have Delta. Its sessions have
no SparkContext. Results of a cloned session (`cloneSession`) belong to the session it was copied from (pyspark 4.2), so
each job gets a new session instead. A checkpoint returns no observations. gRPC would try for ten minutes to reach a
stopped server, so retries are limited here.
"""

import atexit
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from threading import RLock, get_ident
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from jobs.adapters.spark import embedded_engine
from jobs.adapters.spark.closed_port import close_port
from jobs.adapters.spark.remote import REMOTE, address
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import MissingError
from jobs.core.signals import restore_handlers

MAX_CONNECT_RETRIES: Final = 5
"""Retries after a failed call, with growing intervals, 17 seconds in all."""

UTC: Final = {"spark.sql.session.timeZone": "UTC"}
"""Timestamps in the tables are UTC wherever a job runs."""

NO_ORIGINS: Final = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
"""PySpark does not look up the calling line for each column expression, of which a plan has some 700.

The setting is static, so a server's session has that of the server.
"""

DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"

_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"

CONNECT_SECONDS: Final = 60.0
"""Seconds to wait for the embedded engine, which answers in a few hundredths of one on an idle machine."""

_starting: Final = RLock()

_embedded: Final[list[SparkSession]] = []
"""The session of the embedded engine, once it serves this process only."""

_sessions: dict[int, SparkSession] = {}
"""The session that each thread started last; empty if a notebook has its own session."""


def is_connected() -> bool:
    """Return whether this process uses a Spark Connect server."""
    return bool(is_remote())


def is_embedded() -> bool:
    """Return whether the engine embedded in this process computes DataFrames."""
    return bool(_embedded)


def begin_embedded() -> SparkSession:
    """Return the session of the engine in this process, which is started once; threads share it.

    Raise StrangerError if another process has connected to it. After any other error nothing in this process uses it.
    """
    with _starting:
        if not _embedded:
            _use_connect()
            try:
                _embedded.append(_embedded_session())
            except BaseException:
                del os.environ[_MODE]
                raise
        return _embedded[0]


def leave_mode() -> None:
    """Let PySpark's functions be those of Spark in this process, if only a parent process used Connect."""
    if not _embedded and not _sessions:
        os.environ.pop(_MODE, None)


def _use_connect() -> None:
    """Let PySpark's functions, windows and observations be those of Connect from here on."""
    os.environ[_MODE] = "1"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC also prints errors to stderr


def _embedded_session() -> SparkSession:
    """Return a session by the only connection to the engine."""
    import grpc  # noqa: PLC0415 - Spark in this process does not need it
    from pyspark.sql.connect.client.core import DefaultChannelBuilder  # noqa: PLC0415 - as above
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - as above

    port, before = embedded_engine.started()
    # never closed for being idle, and never through a proxy
    options = [("grpc.client_idle_timeout_ms", 2**31 - 1), ("grpc.enable_http_proxy", 0)]
    builder = DefaultChannelBuilder(f"sc://{LOOPBACK}:{port}", options)
    channel = builder.toChannel()
    grpc.channel_ready_future(channel).result(CONNECT_SECONDS)
    close_port(port, before)
    session = cast("SparkSession", Remote.builder.channelBuilder(builder).create())
    session.client.set_retry_policies([])
    for setting in (UTC | NO_ORIGINS).items():
        session.conf.set(*setting)
    channel.close()  # gRPC gave the session's channel the same connection
    restore_handlers()  # the engine would end its server at Ctrl-C
    return session


def begin(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a session on the server at `url`, and stop an earlier one of this thread.

    Raise UsageError for an invalid URL, MissingError if the server or a required package is not available.
    """
    where = "sc://{}:{}".format(*address(url))  # the rest of the URL may contain a token
    session = _opened(url, where)
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def default_parallelism(session: SparkSession) -> int:
    """Return the number of concurrent tasks on the server, which is the number of partitions of a range."""
    return session.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def arrow_parts(rows: DataFrame) -> Iterator[pa.Table]:
    """Yield the rows of a query as the server sends them, so that memory does not grow with their number."""
    frame: Any = rows
    client = frame.sparkSession.client
    for part in client.to_table_as_iterator(frame._plan.to_proto(client), {}):  # noqa: SLF001 - PySpark has no public way
        if isinstance(part, pa.Table):
            yield part


def cached_with_counts(rows: DataFrame, counts: Sequence[Column]) -> tuple[DataFrame, dict[str, int]]:
    """Compute and cache rows; return them and the counts, which take another query."""
    kept = rows.localCheckpoint()
    return kept, kept.agg(*counts).collect()[0].asDict()


def _opened(url: str, where: str) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - Spark in this process does not need it
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - as above

    _stop_session(get_ident())
    _use_connect()
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the raised error contains it
    session: SparkSession = cast("SparkSession", Remote.builder.remote(url).create())
    _sessions[get_ident()] = session
    try:
        session.client.set_retry_policies([])
        check(session, where)
    except PySparkException as error:
        raise MissingError(
            f"no Spark Connect server answers at {where}: {_reason(error)}; check that it runs, and whether it "
            f"requires use_ssl or a token in the URL, or leave out --remote and {REMOTE} to run Spark in this process",
        ) from None
    session.client.set_retry_policies([DefaultPolicy(max_retries=MAX_CONNECT_RETRIES)])
    return session


def _reason(error: PySparkException) -> str:
    """Return the sentence in gRPC's message that describes the error."""
    details = re.search(r'details = "(.{1,200})', str(error))
    return details[1].rstrip('"') if details else str(error).partition("\n")[0][:200]


def check(session: SparkSession, where: str) -> None:
    """Raise MissingError for a server of another Spark version or without Delta."""
    from pyspark import __version__ as required  # noqa: PLC0415 - only needed here

    found = session.version
    if found.split(".")[:2] != required.split(".")[:2]:
        raise MissingError(f"the server at {where} is Spark {found}, Surveyor needs {required}: start that one")
    if DELTA not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise MissingError(
            f"the Spark Connect server at {where} has no Delta; start it with --jars $(python -m "
            f"jobs.adapters.java.jars delta) and --conf spark.sql.extensions={DELTA}, as docs/deploy.md shows",
        )


@atexit.register
def _stop_sessions() -> None:
    """Stop our sessions, which the server would otherwise keep for an hour."""
    for thread in [*_sessions]:
        _stop_session(thread)


def _stop_session(thread: int) -> None:
    if thread in _sessions:
        _sessions.pop(thread).stop()
