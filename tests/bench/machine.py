"""Where a benchmark runs, and the memory that its driver has resident: the JVM's and Python's."""

import gc
import os
import platform
import re
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.figures import Row


def describe(spark: SparkSession, zookeeper: str, driver_memory: str) -> Row:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 2**30:.0f} GiB",
        "driver memory": driver_memory,
        "Python": platform.python_version(),
        "Java": spark.sparkContext._jvm.System.getProperty("java.version"),  # type: ignore[union-attr] # noqa: SLF001
        "pyspark": version("pyspark"),
        "delta-spark": version("delta-spark"),
        "ZooKeeper": zookeeper,
    }


class Driver:
    """The two processes that are Spark's driver; its JVM does the executors' work as well."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001
        gateway = spark.sparkContext._gateway  # noqa: SLF001
        self._jvm_pid: int = gateway.proc.pid  # type: ignore[union-attr]
        self._python_pid = os.getpid()

    def settle(self) -> None:
        """Collect what earlier work left, so that nobody pays for another's garbage; begin to watch memory anew."""
        gc.collect()
        self._jvm.System.gc()  # type: ignore[union-attr]
        for pid in (self._jvm_pid, self._python_pid):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def resident(self) -> tuple[int | None, int | None]:
        """The most bytes that the JVM and Python had resident since."""
        return _peak(self._jvm_pid), _peak(self._python_pid)


def _peak(pid: int) -> int | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
