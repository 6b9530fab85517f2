"""How far copies of replicas have come, and how long the rest takes: two readings, no clock.

Kafka has no such class; kafka-reassign-partitions --verify says only whether a reassignment goes on. In: what each
receiving replica held at two moments, and the seconds between. Out: a `CopyRate`, of one broker or of all.

The rest shrinks at the pace at which it shrank between the readings, whatever was written meanwhile; where it did not
shrink nobody knows. Throttles and fetches work broker by broker, so together they need as long as the slowest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ReplicaKey = tuple[str, int, int]
"""Topic, partition, receiving broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCopy:
    """One receiving replica at one moment. Bytes are None where the brokers concerned did not tell.

    `held`: bytes of its log; `whole`: bytes of its leader's; `lag`: offsets it is behind, None unknown. A replica in
    the ISR is `in_sync`: it has all, however its log is laid out.
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

        >>> cases = (4, False), (12, False), (4, True)
        >>> [ReplicaCopy(held=held, whole=10, lag=0, in_sync=sync).left for held, sync in cases]
        [6, 0, 0]
        """
        return self.total - self.done


CopyReading = Mapping[ReplicaKey, ReplicaCopy]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRate:
    """What has been copied, what there is in all, and what the last seconds say of the rest.

    `bytes_per_second` is None without a second reading; `seconds_left` where the rest does not shrink, or not all of it
    is known; `lag` where no replica's is known. `unknown` replicas are in no sum.
    """

    replicas: int
    unknown: int
    bytes_done: int
    bytes_total: int
    lag: int | None
    bytes_per_second: float | None
    seconds_left: float | None


def copy_rate_of(before: CopyReading | None, now: CopyReading, seconds: float) -> CopyRate:
    """Work out the pace of some replicas; `before` may be missing or lack some of them.

    >>> was, becomes = (ReplicaCopy(held=held, whole=100, lag=9, in_sync=False) for held in (20, 40))
    >>> pace = copy_rate_of({("t", 0, 1): was}, {("t", 0, 1): becomes}, 2.0)
    >>> pace.bytes_done, pace.bytes_total, pace.bytes_per_second, pace.seconds_left
    (40, 100, 10.0, 6.0)
    """
    known = {key: copy for key, copy in now.items() if copy.known}
    lags = [copy.lag for copy in now.values() if copy.lag is not None]
    left = sum(copy.left for copy in known.values())
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
        seconds_left=_seconds_left(left, shrunk, seconds, unknown=unknown),
    )


def _difference(before: CopyReading, now: CopyReading) -> tuple[int, int]:
    """Bytes that arrived, and by how much the rest shrank, of replicas that both readings know."""
    both = [(before[key], copy) for key, copy in now.items() if key in before and before[key].known]
    arrived = sum(max(copy.done - was.done, 0) for was, copy in both)
    return arrived, sum(was.left - copy.left for was, copy in both)


def _seconds_left(left: int, shrunk: int, seconds: float, *, unknown: int) -> float | None:
    if unknown:
        return None
    if left == 0:
        return 0.0
    return left * seconds / shrunk if shrunk > 0 and seconds > 0 else None


def by_broker(before: CopyReading | None, now: CopyReading, seconds: float) -> dict[int, CopyRate]:
    """The pace of each receiving broker."""
    return {
        broker: copy_rate_of(None if before is None else _of(before, broker), _of(now, broker), seconds)
        for broker in sorted({broker for _, _, broker in now})
    }


def _of(reading: CopyReading, broker: int) -> CopyReading:
    return {key: copy for key, copy in reading.items() if key[2] == broker}


def slowest(rates: Iterable[CopyRate]) -> float | None:
    """Seconds until the last is done; None if any does not know.

    >>> slowest([]) is None
    True
    """
    left = [pace.seconds_left for pace in rates]
    known = [seconds for seconds in left if seconds is not None]
    return max(known) if known and len(known) == len(left) else None
