"""Progress of replica copies and the time left, from two readings, without a clock.

Kafka has no such class; kafka-reassign-partitions --verify only reports whether a reassignment is running. In: what
each receiving replica held at two moments, and the seconds between. Out: a `CopyRate`, of one broker or of all.

The time left assumes that the remaining bytes keep shrinking at the rate between the readings, including new writes. If
they did not shrink, the time left is unknown. Throttles and fetchers work per broker, so the slowest broker determines
the total. A measured rate may exceed the throttle, which averages over seconds. The time left is at least what the
throttle allows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ReplicaKey = tuple[str, int, int]
"""Topic, partition, receiving broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCopy:
    """One receiving replica at one moment. Bytes are None if the brokers concerned did not report them.

    `held`: bytes of its log. `whole`: bytes of its leader's log. `lag`: offsets behind the leader, None if unknown. A
    replica in the ISR is `in_sync`: it has everything, whatever the size of its log.
    """

    held: int | None
    whole: int | None
    lag: int | None
    in_sync: bool

    @property
    def known(self) -> bool:
        return self.whole is not None and (self.in_sync or self.held is not None)

    @property
    def total(self) -> int:
        return self.whole or 0

    @property
    def done(self) -> int:
        return self.total if self.in_sync else min(self.held or 0, self.total)

    @property
    def left(self) -> int:
        """Bytes still to be copied.

        >>> [
        ...     ReplicaCopy(held=held, whole=10, lag=0, in_sync=sync).left
        ...     for held, sync in ((4, False), (12, False), (4, True))
        ... ]
        [6, 0, 0]
        """
        return self.total - self.done


CopyReading = Mapping[ReplicaKey, ReplicaCopy]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRate:
    """Bytes copied, bytes in total, and the rate between two readings.

    `bytes_per_second` is None without a second reading. `seconds_left` is None if the remaining bytes do not shrink or
    are not all known. `lag` is None if no replica's lag is known. `unknown` replicas are in no sum.
    """

    replicas: int
    unknown: int
    bytes_done: int
    bytes_total: int
    lag: int | None
    bytes_per_second: float | None
    seconds_left: float | None


def copy_rate_of(before: CopyReading | None, now: CopyReading, seconds: float, limit: int | None = None) -> CopyRate:
    """Compute the copy rate of some replicas; `before` may be None or lack some of them.

    `limit` is the rate of their throttle in bytes a second.

    >>> was, becomes = (ReplicaCopy(held=held, whole=100, lag=9, in_sync=False) for held in (20, 40))
    >>> rate = copy_rate_of({("t", 0, 1): was}, {("t", 0, 1): becomes}, 2.0)
    >>> rate.bytes_done, rate.bytes_total, rate.bytes_per_second, rate.seconds_left
    (40, 100, 10.0, 6.0)
    >>> copy_rate_of({("t", 0, 1): was}, {("t", 0, 1): becomes}, 2.0, limit=5).seconds_left
    12.0
    """
    known = {key: copy for key, copy in now.items() if copy.known}
    lags = [copy.lag for copy in now.values() if copy.lag is not None]
    bytes_left = sum(copy.left for copy in known.values())
    arrived, shrunk = _difference(before or {}, known)
    unknown = len(now) - len(known)
    rate = None if before is None or seconds <= 0 else arrived / seconds
    return CopyRate(
        replicas=len(now),
        unknown=unknown,
        bytes_done=sum(copy.done for copy in known.values()),
        bytes_total=sum(copy.total for copy in known.values()),
        lag=max(lags) if lags else None,
        bytes_per_second=rate,
        seconds_left=_seconds_left(bytes_left, shrunk, seconds, limit, unknown=unknown),
    )


def _difference(before: CopyReading, now: CopyReading) -> tuple[int, int]:
    """Return the bytes that arrived, and by how much the rest shrank, for replicas that both readings have."""
    both = [(before[key], copy) for key, copy in now.items() if key in before and before[key].known]
    arrived = sum(max(copy.done - before.done, 0) for before, copy in both)
    return arrived, sum(before.left - copy.left for before, copy in both)


def _seconds_left(left: int, shrunk: int, seconds: float, limit: int | None, *, unknown: int) -> float | None:
    if unknown:
        return None
    if left == 0:
        return 0.0
    if shrunk <= 0 or seconds <= 0:
        return None
    return max(left * seconds / shrunk, left / limit if limit else 0.0)


def by_broker(
    before: CopyReading | None, now: CopyReading, seconds: float, limits: Mapping[int, int]
) -> dict[int, CopyRate]:
    """Return the copy rate of each receiving broker; `limits` are the rates of their throttles."""
    return {
        broker: copy_rate_of(
            None if before is None else _of(before, broker), _of(now, broker), seconds, limits.get(broker)
        )
        for broker in sorted({broker for _, _, broker in now})
    }


def _of(reading: CopyReading, broker: int) -> CopyReading:
    return {key: copy for key, copy in reading.items() if key[2] == broker}


def slowest(rates: Iterable[CopyRate]) -> float | None:
    """Return the seconds until the last broker is done, None if any is unknown.

    >>> slowest([]) is None
    True
    """
    seconds_left = [pace.seconds_left for pace in rates]
    known = [seconds for seconds in seconds_left if seconds is not None]
    return max(known) if known and len(known) == len(seconds_left) else None
