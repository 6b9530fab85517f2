"""The status line: the last line of a terminal, redrawn during long work, or holding an open question.

Other output removes it first, or starts on a new line. There is one terminal, so there is one status line, and none if
stderr is not a terminal. This module also escapes control characters in text for the terminal, and colors changes.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Final, TextIO

_CLEAR_LINE: Final = b"\r\x1b[K"

_STDERR: Final = 2

_CONTROL_CHARS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal executes: they delete, color or reverse text. Newline and tab are allowed."""


class _Line:
    """The state of the status line."""

    is_allowed = True
    is_drawn = False
    is_asking = False
    is_finished = False
    """Whether nothing is drawn anymore, because the process ends."""
    lock = RLock()
    """Reentrant, as a finalizer that runs during output may log."""


def allow(*, is_allowed: bool) -> None:
    """Set whether this process may have a status line."""
    _Line.is_allowed = is_allowed


def is_live() -> bool:
    """Return whether the line can be redrawn, that is, stderr is a terminal that can move its cursor."""
    return _Line.is_allowed and os.isatty(_STDERR) and os.environ.get("TERM", "dumb") != "dumb"


def escape_control_chars(text: str) -> str:
    r"""Escape control characters, since names of hosts, racks, clusters and users may contain any characters.

    >>> print(escape_control_chars("rack \x1b[2J, \u202e1\nand so on"))
    rack \x1b[2J, \u202e1
    and so on
    """
    return _CONTROL_CHARS.sub(lambda odd: repr(odd[0])[1:-1], text)


COLORS: Final = {"+": "32", "-": "31", "~": "33"}
"""ANSI colors of the signs of changes: green, red, yellow."""

_SIGN: Final = re.compile(r"(?<=^  )[-+~](?= )|(?<=^  would be written: )[-+~](?= )")


def colored(line: str, stream: TextIO) -> str:
    """Color the sign of a change on a terminal, unless NO_COLOR is set or the terminal has no colors."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return line
    return _SIGN.sub(lambda sign: f"\x1b[{COLORS[sign[0]]}m{sign[0]}\x1b[0m", line, count=1)


def draw(text: str) -> None:
    """Replace the status line by this text."""
    with _Line.lock:
        if not (_Line.is_asking or _Line.is_finished):
            _Line.is_drawn = True
            _write(_CLEAR_LINE + escape_control_chars(text).encode(errors="replace"))


@contextmanager
def suspended() -> Iterator[None]:
    """Remove the status line while other output is written."""
    with _Line.lock:
        clear()
        yield


def clear() -> None:
    """Remove the status line; later output starts where it started. Takes no lock, as signal handlers call it."""
    if _Line.is_drawn:
        _Line.is_drawn = False
        _write(_CLEAR_LINE)


def end() -> None:
    """Remove the status line, and draw nothing from now on."""
    _Line.is_finished = True
    clear()


@contextmanager
def asking() -> Iterator[None]:
    """Mark the last line as an open question, which is not overwritten."""
    clear()
    _Line.is_asking = True
    try:
        yield
    finally:
        _Line.is_asking = False


def is_asking() -> bool:
    return _Line.is_asking


def _write(text: bytes) -> None:
    with suppress(OSError):
        os.write(_STDERR, text)
