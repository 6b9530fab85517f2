"""Output of copy progress: in total, by receiving broker, and by partition with the most left first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from jobs.core.units import format_bytes, format_duration
from planner.reassignment.copy_rate import (
    CopyRate,
    CopyReading,
    ReplicaCopy,
    ReplicaKey,
    by_broker,
    copy_rate_of,
    slowest,
)
from schemas.text import BROKERS_SHOWN, pluralise

PARTITIONS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """The last reading, the one before if there was one, and the brokers that did not answer the last one."""

    current: CopyReading
    previous: CopyReading | None
    seconds: float
    silent: Mapping[int, str]


def copying_result(copying: CopyProgress) -> dict[str, Any]:
    """Return the JSON result: totals, then brokers, then partitions with the most left first."""
    before, now, seconds = copying.previous, copying.current, copying.seconds
    brokers = by_broker(before, now, seconds)
    total = {**asdict(copy_rate_of(before, now, seconds)), "seconds_left": slowest(brokers.values())}
    return {
        **total,
        "measured_seconds": round(seconds, 3),
        "silent": [{"broker_id": broker, "reason": reason} for broker, reason in sorted(copying.silent.items())],
        "brokers": [{"broker_id": broker, **asdict(rate)} for broker, rate in brokers.items()],
        "partitions": [
            {"topic": topic, "partition": partition, **asdict(rate)}
            for (topic, partition), rate in _by_partition(before, now, seconds)
        ],
    }


def _by_partition(
    before: CopyReading | None, now: CopyReading, seconds: float
) -> list[tuple[tuple[str, int], CopyRate]]:
    """Return the rate of each partition, unknown ones first, then those with the most bytes left."""
    groups: dict[tuple[str, int], dict[ReplicaKey, ReplicaCopy]] = defaultdict(dict)
    for key, copy in now.items():
        groups[key[:2]][key] = copy
    rates = {partition: copy_rate_of(before, group, seconds) for partition, group in groups.items()}
    return sorted(
        rates.items(),
        key=lambda item: (-item[1].unknown, item[1].bytes_done - item[1].bytes_total, *item[0]),
    )


def copying_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Return text lines: the total, one for each broker, and the partitions with the most left."""
    yield f"  copying {_replicas(result)}: {_format_rate(result, estimate=True)}"
    for row in result["brokers"][:BROKERS_SHOWN]:
        yield f"    broker {row['broker_id']} receives {_replicas(row)}: {_format_rate(row, estimate=True)}"
    if len(result["brokers"]) > BROKERS_SHOWN:
        yield f"    ... and {len(result['brokers']) - BROKERS_SHOWN} more brokers; --json gives all"
    unfinished = [row for row in result["partitions"] if row["unknown"] or row["bytes_done"] < row["bytes_total"]]
    for row in unfinished[:PARTITIONS_SHOWN]:
        yield f"    {row['topic']}-{row['partition']}: {_format_rate(row, estimate=False)}"
    if len(unfinished) > PARTITIONS_SHOWN:
        yield f"    ... and {len(unfinished) - PARTITIONS_SHOWN} more partitions; --json gives all"
    for silent in result["silent"][:BROKERS_SHOWN]:
        yield f"    bytes unknown: broker {silent['broker_id']} did not respond: {silent['reason']}"


def _replicas(pace: Mapping[str, Any]) -> str:
    return pluralise(pace["replicas"], "replica")


def _format_rate(pace: Mapping[str, Any], *, estimate: bool) -> str:
    """Format progress, lag, rate and, with `estimate`, the time left.

    >>> pace = {"replicas": 2, "unknown": 0, "bytes_done": 512, "bytes_total": 2048, "lag": 7,
    ...     "bytes_per_second": 128.0, "seconds_left": 12.0}
    >>> _format_rate(pace, estimate=True)
    '512 B of 2.0 KiB (25 %), at most 7 offsets behind, 128 B/s, about 12 s left'
    >>> _format_rate({**pace, "bytes_per_second": 0.0, "seconds_left": None}, estimate=True)
    '512 B of 2.0 KiB (25 %), at most 7 offsets behind, 0 B/s, time left unknown'
    >>> _format_rate({**pace, "unknown": 2, "lag": None}, estimate=False)
    'bytes unknown, lag unknown'
    """
    done, total, unknown, lag = (pace[name] for name in ("bytes_done", "bytes_total", "unknown", "lag"))
    parts = [f"{format_bytes(done)} of {format_bytes(total)} ({_percent(done, total)} %)"]
    if unknown:
        parts = ["bytes unknown"] if unknown == pace["replicas"] else [*parts, f"bytes of {unknown} of them unknown"]
    parts.append("lag unknown" if lag is None else f"at most {lag} offsets behind")
    if estimate:
        rate, left = pace["bytes_per_second"], pace["seconds_left"]
        parts += [] if rate is None else [f"{format_bytes(rate)}/s"]
        parts.append(
            "time left unknown" if left is None else f"about {format_duration(left)} left" if left else "all there"
        )
    return ", ".join(parts)


def _percent(done: int, total: int) -> int:
    """Return the percentage rounded down, so that 100 means complete."""
    return 100 if done >= total else 100 * done // total
