"""Spark Connect: a server runs Spark and is reached by gRPC, so this process needs no JVM.

The differences: a server has its own master, memory, jars and static settings, so only session settings are sent to
it, and it must have Delta. Its sessions have no SparkContext. Results of a cloned session (`cloneSession`) belong to
the session it was copied from (pyspark 4.2), so each job gets a new session instead. A checkpoint returns no
observations. gRPC would try for ten minutes to reach a stopped server, so retries are limited here.
"""

import atexit
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import get_ident
from typing import Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from jobs.adapters.spark.remote import REMOTE, address
from jobs.core.errors import MissingError

MAX_CONNECT_RETRIES: Final = 5
"""Retries after a failed call, with growing intervals, 17 seconds in all."""

DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"

_REQUIRED_MODULES: Final = ("google.rpc", "grpc", "grpc_status", "zstandard")

_EXTRA: Final = "pip install 'kafka-surveyor[connect]'"

_sessions: dict[int, SparkSession] = {}
"""The session that each thread started last; empty if a notebook has its own session."""


def is_connected() -> bool:
    """Return whether this process uses a Spark Connect server."""
    return bool(is_remote())


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


def cached_with_counts(rows: DataFrame, counts: Sequence[Column]) -> tuple[DataFrame, dict[str, int]]:
    """Compute and cache rows; return them and the counts, which take another query."""
    kept = rows.localCheckpoint()
    return kept, kept.agg(*counts).collect()[0].asDict()


def _opened(url: str, where: str) -> SparkSession:
    _refuse_incomplete()
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - gRPC may be missing
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - as above

    _stop_session(get_ident())
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = (
        "1"  # PySpark's functions, windows and observations are Connect's from here on
    )
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


def _refuse_incomplete() -> None:
    """Raise MissingError if a package for Connect is missing; pyspark 4.2 would end the process with exit code 0."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC also prints errors to stderr
    for module in _REQUIRED_MODULES:
        try:
            import_module(module)
        except ImportError as error:
            raise MissingError(f"Spark Connect needs more than is installed ({error}): {_EXTRA}") from None


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
