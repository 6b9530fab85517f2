"""Output of copy progress: in total, by receiving broker, and by partition with the most left first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from jobs.core.units import format_bytes, format_duration
from jobs.runtime.console import Result
from planner.reassignment.copy_rate import (
    CopyRate,
    CopyReading,
    ReplicaCopy,
    ReplicaKey,
    by_broker,
    copy_rate_of,
    slowest,
)
from schemas.rows import Key
from schemas.text import BROKERS_SHOWN, partition_name, pluralise

PARTITIONS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """The last reading, the one before if there was one, and the brokers that did not answer the last one."""

    current: CopyReading
    previous: CopyReading | None
    seconds: float
    silent: Mapping[int, str]
    limits: Mapping[int, int] = field(default_factory=dict)
    """The rate of the throttle on each receiving broker."""


@dataclass(frozen=True, slots=True)
class CopyFigures:
    """How much is copied: in total, by receiving broker, and by partition with the most left first."""

    total: CopyRate
    measured_seconds: float
    silent: Mapping[int, str]
    brokers: Mapping[int, CopyRate]
    partitions: Sequence[tuple[Key, CopyRate]]


def copy_figures(copying: CopyProgress) -> CopyFigures:
    """Compute what was copied between two readings."""
    before, now, seconds = copying.previous, copying.current, copying.seconds
    brokers = by_broker(before, now, seconds, copying.limits)
    total = replace(copy_rate_of(before, now, seconds), seconds_left=slowest(brokers.values()))
    silent = dict(sorted(copying.silent.items()))
    return CopyFigures(total, round(seconds, 3), silent, brokers, _by_partition(before, now, seconds))


def copying_json(figures: CopyFigures) -> Result:
    """Return the JSON result: totals, then brokers, then partitions."""
    return {
        **_rate_json(figures.total),
        "measured_seconds": figures.measured_seconds,
        "silent": [{"broker_id": broker, "reason": reason} for broker, reason in figures.silent.items()],
        "brokers": [{"broker_id": broker, **_rate_json(rate)} for broker, rate in figures.brokers.items()],
        "partitions": [
            {"topic": topic, "partition": partition, **_rate_json(rate)}
            for (topic, partition), rate in figures.partitions
        ],
    }


def _rate_json(rate: CopyRate) -> Result:
    """Return the fields of a rate; the bytes are null if they are not known of any replica."""
    unknown = {"bytes_done": None, "bytes_total": None} if 0 < rate.replicas == rate.unknown else {}
    return asdict(rate) | unknown


def _by_partition(before: CopyReading | None, now: CopyReading, seconds: float) -> list[tuple[Key, CopyRate]]:
    """Return the rate of each partition, unknown ones first, then those with the most bytes left."""
    groups: dict[Key, dict[ReplicaKey, ReplicaCopy]] = defaultdict(dict)
    for key, copy in now.items():
        groups[key[:2]][key] = copy
    rates = {partition: copy_rate_of(before, group, seconds) for partition, group in groups.items()}
    return sorted(
        rates.items(),
        key=lambda item: (-item[1].unknown, item[1].bytes_done - item[1].bytes_total, *item[0]),
    )


def copying_lines(figures: CopyFigures) -> Iterator[str]:
    """Return text lines: the total, one for each broker, and the partitions with the most left."""
    yield f"  copying {_replicas(figures.total)}: {_format_rate(figures.total, estimate=True)}"
    for broker, rate in list(figures.brokers.items())[:BROKERS_SHOWN]:
        yield f"    broker {broker} receives {_replicas(rate)}: {_format_rate(rate, estimate=True)}"
    if len(figures.brokers) > BROKERS_SHOWN:
        yield f"    ... and {len(figures.brokers) - BROKERS_SHOWN} more brokers; --json gives all"
    unfinished = [
        (partition_name(*key), rate)
        for key, rate in figures.partitions
        if rate.unknown or rate.bytes_done < rate.bytes_total
    ]
    for name, rate in unfinished[:PARTITIONS_SHOWN]:
        yield f"    {name}: {_format_rate(rate, estimate=False)}"
    if len(unfinished) > PARTITIONS_SHOWN:
        yield f"    ... and {len(unfinished) - PARTITIONS_SHOWN} more partitions; --json gives all"
    for broker, reason in list(figures.silent.items())[:BROKERS_SHOWN]:
        yield f"    bytes unknown: broker {broker} did not respond: {reason}"


def _replicas(rate: CopyRate) -> str:
    return pluralise(rate.replicas, "replica")


def _format_rate(rate: CopyRate, *, estimate: bool) -> str:
    """Format progress, lag, rate and, with `estimate`, the time left.

    >>> rate = CopyRate(
    ...     replicas=2, unknown=0, bytes_done=512, bytes_total=2048, lag=7, bytes_per_second=128.0, seconds_left=12.0
    ... )
    >>> _format_rate(rate, estimate=True)
    '512 B of 2.0 KiB (25 %), at most 7 offsets behind, 128 B/s, about 12 s left'
    >>> _format_rate(replace(rate, bytes_per_second=0.0, seconds_left=None), estimate=True)
    '512 B of 2.0 KiB (25 %), at most 7 offsets behind, 0 B/s, time left unknown'
    >>> _format_rate(replace(rate, unknown=2, lag=None), estimate=False)
    'bytes unknown, lag unknown'
    """
    parts = [bytes_text(rate)]
    parts.append("lag unknown" if rate.lag is None else f"at most {rate.lag} offsets behind")
    if estimate:
        per_second, left = rate.bytes_per_second, rate.seconds_left
        parts += [] if per_second is None else [f"{format_bytes(per_second)}/s"]
        parts.append(
            "time left unknown" if left is None else f"about {format_duration(left)} left" if left else "all there"
        )
    return ", ".join(parts)


def bytes_text(rate: CopyRate) -> str:
    """Format the bytes copied and in total."""
    if 0 < rate.unknown == rate.replicas:
        return "bytes unknown"
    done, total = rate.bytes_done, rate.bytes_total
    some = f", bytes of {rate.unknown} of them unknown" if rate.unknown else ""
    return f"{format_bytes(done)} of {format_bytes(total)} ({_percent(done, total)} %){some}"


def _percent(done: int, total: int) -> int:
    """Return the percentage rounded down, so that 100 means complete."""
    return 100 if done >= total else 100 * done // total
