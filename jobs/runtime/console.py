"""Output of commands: results on stdout, as tables or one JSON object; errors and progress on stderr."""

import json
import logging
import os
import sys
import termios
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import typer

from jobs.core import status_line
from jobs.core.logs import LOGGER
from jobs.core.status_line import colored, escape_control_chars
from schemas.text import LINES_SHOWN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from jobs.runtime.settings import Settings
    from jobs.runtime.suggestions import Suggestion

LINE_COLUMNS: Final = 80
"""Width of text other than tables, for narrow terminals."""

Result = dict[str, Any]


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


def log(line: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Log a line on stderr, by the logger of the calling module; `fields` are those of the JSON format alone."""
    _log(line, level, error, fields)


def _log(line: str, level: int, error: BaseException | None, fields: Mapping[str, object]) -> None:
    module = sys._getframe(2).f_globals["__name__"]  # noqa: SLF001 - as warnings.warn finds its caller
    LOGGER.getChild(module.removeprefix("jobs.")).log(level, "%s", line, exc_info=error, extra={"fields": fields})


_warnings_given: Final[dict[str, None]] = {}
"""The warnings of this command that its result repeats, in order and each once."""


def warn(text: str) -> None:
    """Log a warning, and repeat it in `warnings` of the result."""
    _log(f"surveyor: warning: {text}", logging.WARNING, None, {})
    keep_warnings([text])


def keep_warnings(texts: Iterable[str]) -> None:
    """Repeat warnings that are shown by other means in `warnings` of the result."""
    _warnings_given.update(dict.fromkeys(texts))


def forget_warnings() -> None:
    """Begin a command: what another one in this process has warned of is none of its warnings."""
    _warnings_given.clear()


def warnings_in_json(shown: Iterable[str] = ()) -> Result:
    """All warnings of this command: those logged, and those `shown` on stdout."""
    return {"warnings": list(_warnings_given | dict.fromkeys(shown))}


def emit_result(
    settings: "Settings",
    result: Result,
    *people: "Table | str",
    steps: "Sequence[Suggestion] | None" = None,
    warnings: Iterable[str] | None = None,
) -> None:
    """Write the result: one JSON object for --json and --result-file, else tables and lines for people.

    `steps` are suggestions for the next command; they are `next` of the object and the last lines. None is for commands
    without suggestions. `warnings` are the warnings among the lines, for commands that warn; the object repeats these
    and the logged ones.
    """
    if warnings is not None:
        result = result | warnings_in_json(warnings)
    if steps is not None:
        result = result | next_in_json(steps)
    write_json(result, settings.as_json, settings.result_file)
    if settings.for_people:
        for part in (*people, *next_lines(steps or ())):
            show(part)
    elif not settings.as_json:
        lists = {name: value for name, value in result.items() if isinstance(value, list)}
        sys.stdout.writelines(to_yaml({name: result[name] for name in result if name not in lists}, lists))


def next_in_json(steps: "Iterable[Suggestion]") -> Result:
    """Return suggestions as part of the JSON object."""
    return {"next": [{"what": step.what, "command": step.command} for step in steps]}


def next_lines(steps: "Iterable[Suggestion]") -> Iterator[str]:
    """Return suggestions as lines for people; each is one unwrapped line, to be copied."""
    return (f"{step.what}: {step.command}" for step in steps)


def is_terminal() -> bool:
    """Return whether stdin is a terminal, so that the user can be asked."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask for yes or no on the terminal; the end of input (Ctrl-D) means no."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return typer.confirm(question, err=True)
    except typer.Abort:
        log("")  # the cursor is still behind the question
        return False


def typed_answer(question: str) -> str:
    """Ask for a word on the terminal; the end of input (Ctrl-D) means an empty word."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return str(typer.prompt(question, default="", show_default=False, err=True)).strip()
    except typer.Abort:
        log("")
        return ""


def _discard_typed_keys() -> None:
    """Discard keys that were pressed before the question was shown."""
    with suppress(OSError, ValueError, termios.error):  # not a terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def show(part: "Table | str") -> None:
    """Print a table, or a line with control characters escaped."""
    if isinstance(part, str):
        print(colored(escape_control_chars(part), sys.stdout))  # noqa: T201 - rich takes a hundred times as long
        return
    console = stdout(part.width or 0)
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as drawn:  # rich pads every line to the width of the table
        console.print(part)
    print("\n".join(line.rstrip() for line in drawn.get().removesuffix("\n").split("\n")))  # noqa: T201 - as above


def wrapped(text: str, label: str) -> list[str]:
    """Wrap a text into lines of at most LINE_COLUMNS, with its label before the first."""
    return textwrap.wrap(
        text, LINE_COLUMNS, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    ) or [label]


def write_json(result: Result, as_json: bool, result_file: Path | None) -> None:  # noqa: FBT001 - as the flag is
    """Write the JSON object to stdout and the result file, as requested."""
    text = json.dumps(result, default=str)
    if as_json:
        print(text)  # noqa: T201 - the object and nothing else
    if result_file is not None:
        try:
            result_file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            log(f"surveyor: --result-file {result_file} could not be written: {error.strerror}", logging.ERROR)


def stream(settings: "Settings", result: Result, lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Write `result` and lists of rows as one JSON object or YAML, row by row, so that memory stays bounded."""
    with ExitStack() as files:
        sinks: list[TextIO] = [sys.stdout] if settings.as_json else []
        if settings.result_file is not None:
            sinks.append(files.enter_context(settings.result_file.open("w", encoding="utf-8")))
        for text in _texts(result, lists) if sinks else ():
            for sink in sinks:
                sink.write(text)
    if not (settings.as_json or settings.for_people):
        sys.stdout.writelines(to_yaml(result, lists))


def _texts(result: Result, lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    r"""Yield the JSON object in pieces.

    >>> "".join(_texts({"plan_id": "5f"}, {"rows": [{"partition": 0}, {"partition": 1}], "rest": []}))
    '{"plan_id": "5f", "rows": [{"partition": 0}, {"partition": 1}], "rest": []}\n'
    """
    yield json.dumps(result, default=str)[:-1]
    for name, rows in lists.items():
        yield f', "{name}": ['
        yield from (", " * (number > 0) + json.dumps(row, default=str) for number, row in enumerate(rows))
        yield "]"
    yield "}\n"


def to_yaml(result: Mapping[str, Any], lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the YAML of the object of --json and of its lists; each piece ends with a newline.

    Values without a JSON type, such as timestamps, are strings. Lists are written row by row, so a million rows are
    never in memory as one text.

    >>> print("".join(to_yaml({"plan_id": "5f", "at": None}, {"rows": [{"topic": "no", "isr": [1]}], "more": []})))
    plan_id: 5f
    at: null
    rows:
    - topic: 'no'
      isr:
      - 1
    more: []
    <BLANKLINE>
    """
    if result:
        yield _yaml(result)
    for name, rows in lists.items():
        yield from _yaml_list(name, rows)


def _yaml_list(name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    is_empty = True
    for row in rows:
        if is_empty:
            yield f"{name}:\n"
        is_empty = False
        yield _yaml([row])
    if is_empty:
        yield f"{name}: []\n"


def _yaml(value: Any) -> str:  # noqa: ANN401 - what JSON can hold
    import yaml  # noqa: PLC0415 - slow, and only needed for YAML

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml, if present, is twenty times as fast
    plain = json.loads(json.dumps(value, default=str))
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text


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


def truncate(lines: Sequence[str], command: str, *, everything: bool = False) -> list[str]:
    """Keep the first LINES_SHOWN lines, unless `everything`; say how many are left out and which command shows them."""
    if everything or len(lines) <= LINES_SHOWN:
        return list(lines)
    return [*lines[:LINES_SHOWN], f"  ... and {len(lines) - LINES_SHOWN} more: `{command}` shows them"]
