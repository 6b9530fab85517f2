"""What a benchmark says: two times measured side by side, and what a snapshot costs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

Row = dict[str, Any]


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
