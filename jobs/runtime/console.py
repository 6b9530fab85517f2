"""Messages on stderr, the format of tables, and the result that a command returns."""

import logging
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from jobs.core.errors import ExitCode
from jobs.core.logs import module_logger
from jobs.core.status_line import escape_control_chars
from schemas.text import LINES_SHOWN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from jobs.runtime.suggestions import Suggestion

LINE_COLUMNS: Final = 80
"""Width of text other than tables, for narrow terminals."""

Line: TypeAlias = "Table | str"
"""A table or line for people."""

Result = dict[str, Any]
"""The JSON object of a command."""


class Summary(Struct, frozen=True, kw_only=True):
    """A summary whose fields are those of the JSON object."""

    @property
    def json(self) -> Result:
        fields: Result = msgspec.to_builtins(self)
        return fields


class CommandResult:
    """Final output of a command, and its exit code; services return it, and `command` prints it.

    `fields` belong to the JSON object, `lines` the tables and lines for people. `steps` are suggestions for the next
    command; they are `next` of the object and the last lines. None is for commands without suggestions. `warnings` are
    the warnings among the lines, for commands that always have this member; the object repeats these and the logged
    ones.
    """

    __slots__ = ("exit_code", "fields", "lines", "steps", "warnings")

    def __init__(
        self,
        fields: Result,
        *lines: Line,
        steps: "Sequence[Suggestion] | None" = None,
        warnings: Iterable[str] | None = None,
        exit_code: ExitCode = ExitCode.DONE,
    ) -> None:
        self.fields, self.lines, self.steps = fields, lines, steps
        self.warnings, self.exit_code = warnings, exit_code

    @property
    def json(self) -> Result:
        """The JSON object with its warnings and suggestions."""
        result = self.fields
        if self.warnings is not None or _warnings_given.get():
            result = result | warnings_in_json(self.warnings or ())
        return result if self.steps is None else result | next_in_json(self.steps)


def next_in_json(steps: "Iterable[Suggestion]") -> Result:
    """Return suggestions as part of the JSON object."""
    return {"next": [{"what": step.what, "command": step.command} for step in steps]}


UNLIMITED_COLUMNS: Final = 2000
"""Width if stdout is not a terminal, so that nothing is wrapped or cut in a log or file."""


def stdout(least: int = 0) -> "Console":
    """Return a console for people, at least `least` columns wide; a narrow terminal breaks such lines."""
    from rich.console import Console  # noqa: PLC0415 - slow, and only needed for tables

    console = Console()
    width = max(least, console.width if console.is_terminal else UNLIMITED_COLUMNS)
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"  # None also disables bold headings
    return Console(highlight=False, emoji=False, width=width, color_system=colors)


def escape_unencodable() -> None:
    """Let stdout and stderr escape characters that their encoding lacks, as on a Latin-1 terminal.

    A stream that the parent process has closed is None in Python and is replaced by /dev/null; otherwise output for
    stderr could go to stdout.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - as above
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


class LogLine(Protocol):
    """Logs a line, as `log` does."""

    def __call__(self, line: str, level: int = logging.INFO, /) -> None: ...


def log(line: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Log a line on stderr, by the logger of the calling module; `fields` appear only in the JSON format."""
    _log(line, level, error, fields)


def _log(line: str, level: int, error: BaseException | None, fields: Mapping[str, object]) -> None:
    module = sys._getframe(2).f_globals["__name__"]  # noqa: SLF001 - as warnings.warn finds its caller
    module_logger(module).log(level, "%s", line, exc_info=error, extra={"fields": fields})


_warnings_given: Final[ContextVar[dict[str, None]]] = ContextVar("warnings_given", default={})  # noqa: B039 - that of the process
"""The warnings of this command that its result repeats, in order and each once; each cluster of a fleet has its own."""


@contextmanager
def separate_warnings() -> Iterator[None]:
    """Collect the warnings of this thread separately from the rest of the command."""
    token = _warnings_given.set({})
    try:
        yield
    finally:
        _warnings_given.reset(token)


def warn(text: str) -> None:
    """Log a warning, and repeat it in `warnings` of the result."""
    _log(f"surveyor: warning: {text}", logging.WARNING, None, {})
    keep_warnings([text])


def warn_once(text: str) -> None:
    """Log a warning unless this command already has."""
    if text not in _warnings_given.get():
        warn(text)


def keep_warnings(texts: Iterable[str]) -> None:
    """Repeat warnings that are shown by other means in `warnings` of the result."""
    _warnings_given.get().update(dict.fromkeys(texts))


def forget_warnings() -> None:
    """Begin a command: what another one in this process has warned of is none of its warnings."""
    _warnings_given.get().clear()


def warnings_in_json(shown: Iterable[str] = ()) -> Result:
    """All warnings of this command: those logged, and those `shown` on stdout."""
    return {"warnings": list(_warnings_given.get() | dict.fromkeys(shown))}


def wrapped(text: str, label: str) -> list[str]:
    """Wrap a text into lines of at most LINE_COLUMNS, with its label before the first; no word is broken."""
    indent = " " * len(label)
    lines = textwrap.wrap(
        text,
        LINE_COLUMNS,
        initial_indent=label,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines or [label]


def table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> "Table":
    """Lay out rows as a table: numbers right-aligned, lists as [2,0], null as an empty cell.

    On a narrow terminal texts and headings are folded, and numbers are not. A table that is still too wide exceeds the
    terminal's width, so nothing is cut off.
    """
    from rich.markup import escape  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    drawn = Table(
        title=escape(escape_control_chars(title)),
        title_justify="left",
        header_style="bold",
        show_edge=False,
        pad_edge=False,
    )
    cells = [[format_cell(row[column]) for row in rows] for column in columns]
    numeric = [all(isinstance(row[column], int | float | None) for row in rows) for column in columns]
    widths = _widths(columns, cells, numeric, stdout().width - _COLUMN_GAP * (len(columns) - 1))
    for column, width, is_numeric in zip(columns, widths, numeric, strict=True):
        heading = column if len(column) <= width else _folded(column)
        drawn.add_column(heading, justify="right" if is_numeric else "left", overflow="fold", width=width)
    for row in zip(*cells, strict=True):
        drawn.add_row(*map(Text, row))
    drawn.width = sum(widths) + _COLUMN_GAP * (len(columns) - 1)
    return drawn


_COLUMN_GAP: Final = 3
"""Terminal columns between two columns of a table."""

_MIN_FOLD_COLUMNS: Final = 8
"""Minimum width of a folded text."""

_NEVER_FOLDED: Final = ("plan_id",)
"""Columns whose texts are never folded, because users copy them into the next command."""


def _folded(heading: str) -> str:
    return heading.replace("_", "_\n")


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int) -> list[int]:
    """Return column widths: the needed ones, with the widest columns reduced to fit `room`, down to a minimum each.

    >>> names, cells = ("topic", "leader_epoch"), (["a" * 30], ["123456789"])
    >>> [_widths(names, cells, (False, True), room) for room in (80, 40, 25, 0)]
    [[30, 12], [28, 12], [13, 12], [8, 9]]
    """
    from rich.cells import cell_len  # noqa: PLC0415 - as above

    longest = [max(map(cell_len, texts), default=0) for texts in cells]
    widths = [max(content, len(column)) for content, column in zip(longest, columns, strict=True)]
    least = [
        max(
            content if is_numeric or column in _NEVER_FOLDED else min(content, _MIN_FOLD_COLUMNS),
            *map(len, _folded(column).split("\n")),
        )
        for content, is_numeric, column in zip(longest, numeric, columns, strict=True)
    ]
    while sum(widths) > room and widths != least:
        widest = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
        widths[widest] -= 1
    return widths


def format_cell(value: Any) -> str:  # noqa: ANN401 - a value of any column
    r"""Format a value as a table cell.

    >>> [format_cell(value) for value in (None, True, [2, 0], 0.8, {"a": "b"}, "\x1b[2J")]
    ['', 'yes', '[2,0]', '0.800', 'a=b', '\\x1b[2J']
    """
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:.3f}"
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S")
        case list():
            text = "[" + ",".join(map(format_cell, value)) + "]"
        case dict():
            text = " ".join(f"{key}={format_cell(item)}" for key, item in value.items())
        case _:
            text = str(value)
    return text if text.isprintable() else escape_control_chars(text).replace("\n", r"\n").replace("\t", r"\t")


def truncate(lines: Sequence[str], command: str | None = None, *, everything: bool = False) -> list[str]:
    """Keep the first LINES_SHOWN lines, unless `everything`; count the others and name the command that shows them."""
    if everything or len(lines) <= LINES_SHOWN:
        return list(lines)
    shown_by = f": `{command}` shows them" if command else ""
    return [*lines[:LINES_SHOWN], f"  ... and {len(lines) - LINES_SHOWN} more{shown_by}"]
