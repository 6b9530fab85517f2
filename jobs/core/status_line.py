"""The last line of a terminal: drawn anew while something takes long, or open behind a question.

Whatever else is written there takes it away first, or begins on a line of its own. There is one terminal, so there is
one such line; where stderr is none, nothing of this happens. And what a terminal is shown, it is not to obey.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

_CLEAR_LINE: Final = b"\r\x1b[K"

_STDERR: Final = 2

_CONTROL_CHARS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal would do instead of showing it: delete, colour, turn text around; not the next line, nor a tab."""


class _Line:
    """What stands on it."""

    is_drawn = False
    is_asking = False
    is_finished = False
    """Whether nothing is drawn any more: the process ends."""
    lock = Lock()


def is_live() -> bool:
    """Whether a line can be drawn anew: stderr is a terminal that can move its cursor."""
    return os.isatty(_STDERR) and os.environ.get("TERM", "dumb") != "dumb"


def escape_control_chars(text: str) -> str:
    r"""Escape what a terminal would obey: a host, a rack, a cluster's id or who commits may be called anything.

    >>> print(escape_control_chars("rack \x1b[2J, \u202e1\nand so on"))
    rack \x1b[2J, \u202e1
    and so on
    """
    return _CONTROL_CHARS.sub(lambda odd: repr(odd[0])[1:-1], text)


def draw(text: str) -> None:
    """Show this in place of what stood there."""
    with _Line.lock:
        if not (_Line.is_asking or _Line.is_finished):
            _Line.is_drawn = True
            _write(_CLEAR_LINE + escape_control_chars(text).encode(errors="replace"))


@contextmanager
def suspended() -> Iterator[None]:
    """Take it away for what is written here."""
    with _Line.lock:
        clear()
        yield


def clear() -> None:
    """Take it away; what is written next begins where it began. Waits for nobody, as signals' handlers must not."""
    if _Line.is_drawn:
        _Line.is_drawn = False
        _write(_CLEAR_LINE)


def end() -> None:
    """Draw nothing from now on."""
    _Line.is_finished = True
    clear()


@contextmanager
def asking() -> Iterator[None]:
    """A question stands there, and waits for its answer."""
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
