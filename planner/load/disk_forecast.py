"""When a disk is full, by the sizes that its logs had.

The growth is the median of the slopes between successive sizes. A deleted topic or a moved replica is a step between
two of them, which changes one slope only.
"""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Final

MIN_SPAN_SECONDS: Final = 6 * 3600.0
"""Seconds between the first and the last size from which on a growth is known: Kafka deletes logs by segments."""


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
    """Return the seconds after which a disk is full, 0 if it is; None if it does not grow.

    >>> seconds_until_full(600, 2, 1000), seconds_until_full(1200, 2, 1000), seconds_until_full(600, -1, 1000)
    (200.0, 0.0, None)
    """
    if size >= capacity:
        return 0.0
    return (capacity - size) / growth if growth > 0 else None
