"""Bytes and seconds as people read them; programs get the numbers."""

from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def shown_bytes(count: float) -> str:
    """Write bytes in the largest unit of which there is one.

    >>> [shown_bytes(count) for count in (0, 1023, 1536, 5 * 2**30, 2**60, -2048)]
    ['0 B', '1023 B', '1.5 KiB', '5.0 GiB', '1024.0 PiB', '-2.0 KiB']
    """
    if abs(count) < _STEP:
        return f"{count:.0f} B"
    scaled, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - the last one is what is said
        scaled /= _STEP
        if abs(scaled) < _STEP:
            break
    return f"{scaled:.1f} {unit}"


def shown_duration(seconds: float) -> str:
    """Write how long something takes, about.

    >>> [shown_duration(seconds) for seconds in (0, 41.6, 725, 7200, 100_000, 300_000)]
    ['0 s', '42 s', '12 min', '2 h 0 min', '27 h 46 min', '3 days']
    """
    if round(seconds) < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"
    return f"{seconds / _DAY:.0f} days"
