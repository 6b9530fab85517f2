"""When a disk is full, by the sizes that its logs had.

A disk is a volume with one or more log dirs, or all log dirs of a broker where these are not known. The growth of a
broker is the median of the slopes between successive sizes. A deleted topic or a moved replica is a step between two of
them, which changes one slope only.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct

from schemas.rows import LogDir

MIN_SPAN_SECONDS: Final = 6 * 3600.0
"""Seconds between the first and the last size from which on a growth is known: Kafka deletes logs by segments."""

MAX_SECONDS: Final = 100 * 365 * 86_400.0
"""Disks that are full after more than a century count as those that do not grow."""


class DiskVolume(NamedTuple):
    """A disk as a broker reported it, with its log dirs in order."""

    broker_id: int
    log_dirs: tuple[str, ...]
    total_bytes: int
    usable_bytes: int | None


class Disk(Struct, frozen=True, kw_only=True):
    """What is used of a disk."""

    broker_id: int
    log_dirs: tuple[str, ...] = ()
    """Log dirs on the disk; none: all of the broker."""
    used: float
    """Bytes."""
    capacity: float
    growth: float | None = None
    """Bytes per second; None if unknown."""
    age: float = 0.0
    """Seconds between the measurement of `used` and the time from which on the forecast counts."""


class FillingDisk(Struct, frozen=True, kw_only=True):
    """A disk that grows, and the seconds after which it is full, 0 if it is."""

    broker_id: int
    log_dirs: tuple[str, ...] = ()
    seconds: float
    share: float
    growth: float
    """Bytes per second."""


def volumes_of(log_dirs: Iterable[LogDir]) -> list[DiskVolume]:
    """Return the volumes of log dirs, by broker and path; those of unknown size are left out.

    A broker reports the size and the free bytes of the volume that a log dir is on, so log dirs of a broker for which
    both are the same count as one volume. Kafka reports nothing else of volumes.
    """
    found = dict[tuple[int, int, int | None], list[str]]()
    for row in sorted(log_dirs, key=lambda row: (row.broker_id, row.log_dir)):
        if row.total_bytes is not None:
            found.setdefault((row.broker_id, row.total_bytes, row.usable_bytes), []).append(row.log_dir)
    return [DiskVolume(broker, tuple(paths), total, usable) for (broker, total, usable), paths in found.items()]


def growth_of(sizes: Mapping[float, float]) -> float | None:
    """Return the bytes per second by which sizes grow, by their times in seconds; None if the time is too short.

    >>> growth_of({0: 100.0, 21_600: 43_300.0, 43_200: 86_500.0, 64_800: 9_700.0, 86_400: 52_900.0})
    2.0
    >>> growth_of({0: 100.0, 3_600: 900.0}) is None
    True
    """
    if not sizes or max(sizes) - min(sizes) < MIN_SPAN_SECONDS:
        return None
    pairs = pairwise(sorted(sizes.items()))
    return median((later - earlier) / (end - start) for (start, earlier), (end, later) in pairs)


def seconds_until_full(size: float, growth: float, capacity: float) -> float | None:
    """Return the seconds after which a disk is full, 0 if it is; None if it does not grow, or not in MAX_SECONDS.

    >>> seconds_until_full(600, 2, 1000), seconds_until_full(1200, 2, 1000), seconds_until_full(600, -1, 1000)
    (200.0, 0.0, None)
    """
    if size >= capacity:
        return 0.0
    seconds = (capacity - size) / growth if growth > 0 else MAX_SECONDS
    return seconds if seconds < MAX_SECONDS else None


def filling_disks(disks: Iterable[Disk]) -> list[FillingDisk]:
    """Return the disks that grow, the one that is full first."""
    found = []
    for disk in disks:
        grown = disk.growth or 0.0
        seconds = seconds_until_full(disk.used, grown, disk.capacity)
        if seconds is not None:
            found.append(
                FillingDisk(
                    broker_id=disk.broker_id,
                    log_dirs=disk.log_dirs,
                    seconds=max(seconds - disk.age, 0.0) if seconds else 0.0,
                    share=disk.used / disk.capacity,
                    growth=grown,
                )
            )
    return sorted(found, key=lambda one: (one.seconds, one.broker_id, one.log_dirs))
