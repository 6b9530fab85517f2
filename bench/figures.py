"""What a benchmark says: two times measured side by side, what a snapshot costs, and on which machine."""

import gc
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from pyspark.sql import SparkSession

from schemas.rows import Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: what was measured, against what, and the largest ratio that meets the target."""

    measured: str
    seconds: float
    baseline: str
    baseline_seconds: float
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.seconds / self.baseline_seconds

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.ratio <= self.target

    @property
    def row(self) -> Row:
        return {
            "measured": self.measured,
            "seconds": self.seconds,
            "baseline": self.baseline,
            "baseline seconds": self.baseline_seconds,
            "ratio": self.ratio,
            "target": self.target,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kind of snapshot costs at one size; resident bytes are the most during it, None without /proc."""

    snapshot: str
    partitions: int
    seconds: float
    bytes_added: int
    jvm_bytes: int | None
    python_bytes: int | None

    @property
    def microseconds(self) -> float:
        """Per partition."""
        return self.seconds / self.partitions * 1e6

    def growth(self, smaller: "Cost") -> Row:
        """Compare with the same snapshot of fewer partitions: one that is dearer for each has grown."""
        ratio = self.microseconds / smaller.microseconds
        return {
            "snapshot": self.snapshot,
            "partitions": self.partitions,
            "µs/partition": self.microseconds,
            "smaller": smaller.partitions,
            "its µs/partition": smaller.microseconds,
            "ratio": ratio,
            "target": 1.0,
            "met": ratio <= 1,
        }

    @property
    def row(self) -> Row:
        return {
            "snapshot": self.snapshot,
            "partitions": self.partitions,
            "bytes added": self.bytes_added,
            "µs/partition": self.microseconds,
            "driver JVM MB": _megabytes(self.jvm_bytes),
            "driver Python MB": _megabytes(self.python_bytes),
        }


def growths(costs: Sequence[Cost]) -> list[Row]:
    """Compare each snapshot with the one of its kind at the smallest size."""
    smallest = {cost.snapshot: cost for cost in sorted(costs, key=lambda cost: -cost.partitions)}
    return [
        cost.growth(smallest[cost.snapshot]) for cost in costs if cost.partitions > smallest[cost.snapshot].partitions
    ]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Run it once; return the seconds, and what it returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def seconds_of(work: Callable[[], object]) -> float:
    return timed(work)[0]


def median_of(measured: Sequence[T], ratio: Callable[[T], float]) -> T:
    """Return the one with the median ratio, so that its seconds belong to its ratio."""
    return sorted(measured, key=ratio)[(len(measured) - 1) // 2]


def _megabytes(size: int | None) -> int | None:
    return None if size is None else round(size / 1e6)


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
        self._jvm: Any = cast("Any", spark.sparkContext._jvm)  # noqa: SLF001
        self._jvm_pid: int = self._jvm.java.lang.ProcessHandle.current().pid()
        self._python_pid = os.getpid()

    def settle(self) -> None:
        """Collect the garbage of earlier work, so that it is not counted here, and reset the memory peak."""
        gc.collect()
        self._jvm.System.gc()
        for pid in (self._jvm_pid, self._python_pid):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def processor_seconds(self) -> float:
        """Those of both processes so far, and of Spark's workers."""
        own = Path(f"/proc/{self._jvm_pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(own[11]) + int(own[12]) + sum(process.ticks for process in processes_below(self._jvm_pid).values())
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")

    def resident(self) -> tuple[int | None, int | None]:
        """The most bytes that the JVM and Python had resident since."""
        return _peak(self._jvm_pid), _peak(self._python_pid)


def _peak(pid: int) -> int | None:
    try:
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(peak[1]) * 1024 if peak else None


def processor_seconds(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.parent.name, stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Process(NamedTuple):
    parent: int
    ticks: int
    """Of processor time."""
    pages: int
    """Resident ones."""


def processes_below(root: int) -> dict[int, Process]:
    """Return the processes below one, by id."""
    processes = dict[int, Process]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks = int(fields[11]) + int(fields[12])
        processes[int(stat.parent.name)] = Process(int(fields[1]), ticks, int(fields[21]))

    def is_below(pid: int) -> bool:
        while pid in processes and pid != root:
            pid = processes[pid].parent
        return pid == root

    return {pid: process for pid, process in processes.items() if pid != root and is_below(pid)}
