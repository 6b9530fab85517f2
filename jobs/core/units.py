"""Parsing and formatting of bytes, rates, shares and durations; JSON output has plain numbers.

Invalid input raises a UsageError with the option, the value and the expected form.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from jobs.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Part:
    """Progress: how much of a whole is done.

    >>> print(Part(3, 48, "tasks"))
    3 of 48 tasks
    """

    done: int
    total: int
    unit: str

    def __str__(self) -> str:
        return f"{self.done} of {self.total} {self.unit}"


_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_SECONDS: Final = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY, "w": 7 * _DAY}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")

PERIOD: Final = r"^[0-9]{1,5}[hdw]$"
"""Whole hours, days or weeks, as 12h, 30d, 8w. Older data is deleted, so minutes are excluded: 30m may mean months."""

_BYTES: Final = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
RATE: Final = r"^([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMG]?B|[KMG]iB)?(?:/s)?$"
"""Bytes per second, as 50000000, 50MB/s or 64MiB."""

SIZE: Final = r"^([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kKMGT]?B|[KMGT]iB)?$"
"""Bytes, as 500GB or 1.5TiB."""

SHARE: Final = r"^([0-9]{1,5}(?:\.[0-9]{1,3})?) ?%$"
"""A percentage, as 9% or 0.5 %."""

_PERCENT: Final = 100
_MAX_RATE: Final = 2**63 - 1

SLOW_BYTES_PER_SECOND: Final = 1_000


def parse_seconds(option: str, text: str) -> float:
    """Parse a duration into seconds: 30s, 10m, 24h, 7d or 2w.

    >>> [parse_seconds("--max-wait", text) for text in ("24h", "2w", "0")]
    [86400.0, 1209600.0, 0.0]
    """
    parts = _DURATION.fullmatch("0s" if text == "0" else text)
    if parts is None:
        raise _invalid(option, text, "duration", "30s, 10m, 24h, 7d or 2w")
    return float(parts[1]) * _SECONDS[parts[2]]


def parse_period(option: str, text: str) -> timedelta:
    """Parse a duration in whole hours, days or weeks.

    >>> parse_period("--keep", "12h"), parse_period("--keep", "8w")
    (datetime.timedelta(seconds=43200), datetime.timedelta(days=56))
    """
    if not re.fullmatch(PERIOD, text):
        raise _invalid(option, text, "period", "hours, days or weeks, as 12h, 30d or 8w")
    return timedelta(seconds=parse_seconds(option, text))


def parse_since(option: str, text: str, now: datetime) -> datetime:
    """Parse a time until `now` in ISO form, in UTC unless it names another zone, or a duration before `now`.

    >>> now = datetime(2026, 3, 4, 12, tzinfo=UTC)
    >>> [f"{parse_since('--since', text, now):%d %H:%M}" for text in ("2h", "2026-03-01", "2026-03-01T10:00+02:00")]
    ['04 10:00', '01 00:00', '01 08:00']
    """
    try:
        if _DURATION.fullmatch(text):
            return now - timedelta(seconds=parse_seconds(option, text))
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _invalid(option, text, "time", "a duration, as 2h or 7d, or a time in UTC, as 2026-03-01T10:00") from None
    if since > now:
        raise UsageError(f"{option} {text} is in the future; expected an earlier time")
    return since


def parse_rate(option: str, text: str) -> int:
    """Parse a rate in bytes per second.

    >>> [parse_rate("--throttle", rate) for rate in ("1048576", "200kB/s", "1.5MiB")]
    [1048576, 200000, 1572864]
    """
    parts = re.fullmatch(RATE, text)
    rate = 0 if parts is None else int(float(parts[1]) * (_BYTES | _BINARY)[parts[2] or ""])
    if not 0 < rate <= _MAX_RATE:
        raise _invalid(
            option, text, "rate", "bytes a second, as 50000000, 50MB/s or 64MiB; or, to throttle, none or auto"
        )
    return rate


def parse_bytes(option: str, text: str) -> int:
    """Parse a number of bytes.

    >>> [parse_bytes("--budget", size) for size in ("2TB", "1.5 GiB", "0")]
    [2000000000000, 1610612736, 0]
    """
    parts = re.fullmatch(SIZE, text)
    if parts is None:
        raise _invalid(option, text, "size", "bytes, as 500GB, 2TB or 1.5TiB")
    return int(float(parts[1]) * (_BYTES | _BINARY)[parts[2] or ""])


def slow_rate_warning(option: str, text: str) -> str | None:
    """Return a warning for a rate below 1 kB/s, which probably lacks its unit; None for any other rate.

    >>> slow_rate_warning("--throttle", "50")
    '--throttle 50 is 50 bytes a second, at which a gigabyte takes 231 days; 50MB/s is 50 million bytes a second'
    >>> slow_rate_warning("--throttle", "50kB/s")
    """
    rate = parse_rate(option, text)
    if rate >= SLOW_BYTES_PER_SECOND:
        return None
    time = format_duration(1_000_000_000 / rate)
    fault = f"{option} {text} is {rate} bytes a second, at which a gigabyte takes {time}"
    return f"{fault}; {rate}MB/s is {rate} million bytes a second"


def parse_share(option: str, text: str, most: float = 1.0) -> float:
    """Parse a percentage into a share of at most `most`.

    >>> [parse_share("--within", text) for text in ("9%", "0.5 %", "0%")]
    [0.09, 0.005, 0.0]
    """
    parts = re.fullmatch(SHARE, text)
    if parts is None or float(parts[1]) > _PERCENT * most:
        raise _invalid(option, text, "share", f"a percentage from 0% to {_PERCENT * most:.0f}%, as 10%")
    return float(parts[1]) / _PERCENT


def _invalid(option: str, text: str, kind: str, expected: str) -> UsageError:
    return UsageError(f"{option} {text!r} is no {kind}: expected {expected}")


def format_bytes(count: float) -> str:
    """Format bytes in the largest unit of at least one.

    >>> [format_bytes(count) for count in (0, 1023, 1536, 5 * 2**30, 2**60, -2048)]
    ['0 B', '1023 B', '1.5 KiB', '5.0 GiB', '1024.0 PiB', '-2.0 KiB']
    """
    if abs(count) < _STEP:
        return f"{count:.0f} B"
    scaled, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - used after the loop
        scaled /= _STEP
        if abs(scaled) < _STEP:
            break
    return f"{scaled:.1f} {unit}"


def format_age(moment: datetime, now: datetime | None = None) -> str:
    """Format the time since a moment; it is not negative if the clock of another machine is ahead.

    >>> at_noon, later = datetime(2026, 11, 21, 12), datetime(2026, 11, 21, 14)
    >>> format_age(at_noon, later), format_age(later, at_noon)
    ('2 h 0 min', '0 s')
    """
    return format_duration(age_seconds(moment, now))


def age_seconds(moment: datetime, now: datetime | None = None) -> float:
    """Return the time since a moment, 0 if it is to come; `now` is the present by default."""
    return max(((datetime.now(UTC) if now is None else now) - moment).total_seconds(), 0)


def format_duration(seconds: float) -> str:
    """Format an approximate duration.

    >>> [format_duration(seconds) for seconds in (0, 41.6, 725, 7200, 100_000, 300_000)]
    ['0 s', '42 s', '12 min', '2 h 0 min', '27 h 46 min', '3 days']
    """
    if round(seconds) < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"
    return f"{seconds / _DAY:.0f} days"


def hour_of(time: datetime) -> datetime:
    """Return the start of the hour."""
    return time.replace(minute=0, second=0, microsecond=0)
