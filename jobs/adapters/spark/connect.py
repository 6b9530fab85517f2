"""Spark Connect: a server runs Spark for us, over gRPC, and no JVM is needed here. What is different then.

A server has its own master, memory, jars and static settings: only what holds for a session is told to it, and Delta
must be there. Its sessions have no SparkContext. What a copy of a session (`cloneSession`) computes belongs to the
session it was copied from (pyspark 4.2), so each job gets a session of its own instead. A checkpoint tells nothing of
what was observed while it was made. And gRPC would try for ten minutes to reach a server that is gone.
"""

import atexit
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from jobs.adapters.spark.remote import REMOTE, address
from jobs.core.errors import MissingError

MAX_CONNECT_RETRIES: Final = 5
"""Tries after a first one that found no server, at growing distances: 17 seconds together."""

DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"

_REQUIRED_MODULES: Final = ("google.rpc", "grpc", "grpc_status", "zstandard")

_EXTRA: Final = "pip install 'kafka-surveyor[connect]'"

_sessions: list[SparkSession] = []
"""The session that this process has begun last; none where a notebook brought its own."""


def is_connected() -> bool:
    """Tell whether Spark runs elsewhere, for this process."""
    return bool(is_remote())


def begin(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Begin a session on the server at `url`, in place of the one that was begun before.

    Raise UsageError where the URL is none, MissingError where the server or what it needs is not there.
    """
    where = "sc://{}:{}".format(*address(url))  # the rest of the URL may hold a token
    session = _opened(url, where)
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def default_parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once there, which only a query can tell: into how many a range is split."""
    return session.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def cached_with_counts(rows: DataFrame, counts: Sequence[Column]) -> tuple[DataFrame, dict[str, int]]:
    """Compute rows once, and count them afterwards."""
    kept = rows.localCheckpoint()
    return kept, kept.agg(*counts).collect()[0].asDict()


def _opened(url: str, where: str) -> SparkSession:
    _refuse_incomplete()
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - gRPC may be missing
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - as above

    _stop_sessions()
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # functions, windows and observations are Connect's from here on
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # an error says it, too
    session: SparkSession = cast("SparkSession", Remote.builder.remote(url).create())
    _sessions.append(session)
    try:
        session.client.set_retry_policies([])
        check(session, where)
    except PySparkException as error:
        raise MissingError(
            f"no Spark Connect server answers at {where}: {_reason(error)}; see that it runs, and whether it wants "
            f"use_ssl or a token in the URL, or leave out --remote and {REMOTE}: then Spark runs here",
        ) from None
    session.client.set_retry_policies([DefaultPolicy(max_retries=MAX_CONNECT_RETRIES)])
    return session


def _reason(error: PySparkException) -> str:
    """Of all that gRPC says the sentence about what happened."""
    told = re.search(r'details = "(.{1,200})', str(error))
    return told[1].rstrip('"') if told else str(error).partition("\n")[0][:200]


def _refuse_incomplete() -> None:
    """Look for what Connect needs first: pyspark 4.2, where it misses some of it, ends the process with exit code 0."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr, beside the error that it gives
    for module in _REQUIRED_MODULES:
        try:
            import_module(module)
        except ImportError as error:
            raise MissingError(f"Spark Connect needs more than is installed ({error}): {_EXTRA}") from None


def check(session: SparkSession, where: str) -> None:
    """Refuse a server of another Spark, and one without Delta."""
    from pyspark import __version__ as ours  # noqa: PLC0415 - nobody else needs it

    theirs = session.version
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        raise MissingError(f"the server at {where} is Spark {theirs}, Surveyor needs {ours}: start that one")
    if DELTA not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise MissingError(
            f"the Spark Connect server at {where} has no Delta; start it with --jars $(python -m "
            f"jobs.adapters.java.jars delta) and --conf spark.sql.extensions={DELTA}, as docs/deploy.md shows",
        )


@atexit.register
def _stop_sessions() -> None:
    """End our session, which would wait for us on the server for an hour."""
    while _sessions:
        _sessions.pop().stop()
