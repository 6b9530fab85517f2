"""What computes DataFrames: Spark, or an engine embedded in this process. This module imports neither.

The embedded engine is Sail, which runs the same PySpark without a JVM. Spark is for clusters: under spark-submit, on a
Spark Connect server, or where Spark's settings name a master.
"""

import os
import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from jobs.adapters.spark.submit_environment import is_submitted
from jobs.core.errors import MissingError, UsageError

ENGINE: Final = "SURVEYOR_ENGINE"
"""Environment variable for the engine."""

_MASTER: Final = re.compile(r"(?:^\s*spark\.master[\s=:]+|--master[\s=]+)(?!local)(\S+)", re.MULTILINE)
"""A master other than Spark's own threads, in spark-defaults.conf or in arguments of spark-submit."""


class Engine(StrEnum):
    """What computes DataFrames."""

    AUTO = "auto"
    """Spark where one is configured, else the embedded engine."""
    EMBEDDED = "embedded"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Place:
    """Where DataFrames are computed, as configured."""

    engine: Engine = Engine.AUTO
    remote: str | None = None
    """URL of a Spark Connect server."""
    warehouse: str = ""
    """The URI of the warehouse, whose store the engine must be able to read."""

    def resolved(self) -> tuple[Engine, str]:
        """Return EMBEDDED or SPARK, and why; raise UsageError or MissingError if the configured one cannot be used."""
        requires_spark = _requires_spark(self.remote)
        if self.engine is Engine.SPARK:
            return Engine.SPARK, "as configured"
        if self.engine is Engine.AUTO and requires_spark is not None:
            return Engine.SPARK, requires_spark
        if requires_spark is not None:
            raise UsageError(f"the embedded engine was requested, but {requires_spark}: leave out one of the two")
        obstacle = _obstacle(self.warehouse)
        if obstacle is None:
            name = f"Sail {version('pysail')}"
            return Engine.EMBEDDED, name if self.engine is Engine.AUTO else f"{name}, as configured"
        if self.engine is Engine.EMBEDDED:
            raise MissingError(f"the embedded engine cannot be used: {obstacle}; use --engine spark")
        return Engine.SPARK, obstacle


def _requires_spark(remote: str | None) -> str | None:
    """Return what says that Spark is to be used, None if nothing does."""
    if remote is not None:
        return "a Spark Connect server is configured"
    if is_submitted():
        return "spark-submit runs this command"
    if _is_running():
        return "this process has a Spark session"
    conf = os.environ.get("SPARK_CONF_DIR")
    defaults = Path(conf, "spark-defaults.conf") if conf else None
    text = defaults.read_text("utf-8", "replace") if defaults and defaults.is_file() else ""
    found = _MASTER.search(text) or _MASTER.search(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return None if found is None else f"Spark's settings name the master {found[1]}"


def _is_running() -> bool:
    """Return whether a notebook or an application has started Spark in this process."""
    module = sys.modules.get("pyspark.core.context")
    return module is not None and module.SparkContext._active_spark_context is not None  # noqa: SLF001 - PySpark has no public way that starts nothing


def _obstacle(warehouse: str) -> str | None:
    """Return why the embedded engine cannot be used, None if it can."""
    if "://" in warehouse:
        return "it reads folders, and the warehouse is in an object store or on HDFS"
    if sys.platform != "linux":
        return "it can be kept from other users on Linux only"
    try:
        version("pysail")
    except PackageNotFoundError:
        return "the package pysail is not installed"
    return None
