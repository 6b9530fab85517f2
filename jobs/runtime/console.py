"""What people and programs see: results on stdout, tables or one JSON object; errors on stderr."""

import json
import os
import re
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
from jobs.core.status_line import escape_control_chars
from jobs.runtime.yaml_output import to_yaml

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from jobs.runtime.settings import Settings
    from jobs.runtime.suggestions import Suggestion

LINE_COLUMNS: Final = 80
"""Columns of text that is no table: a narrow terminal has them."""

Result = dict[str, Any]


UNLIMITED_COLUMNS: Final = 2000
"""Columns where stdout is no terminal: a log or a file wraps nothing, and nothing is cut off."""


def stdout(least: int = 0) -> "Console":
    """Where people read; `least` columns wide at least, though a narrow terminal breaks such lines."""
    from rich.console import Console  # noqa: PLC0415 - programs, and people who are told a line, do not need it

    console = Console()
    width = max(least, console.width if console.is_terminal else UNLIMITED_COLUMNS)
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"  # None: nor bold headings
    return Console(highlight=False, emoji=False, width=width, color_system=colors)


def escape_unencodable() -> None:
    """Let stdout and stderr escape what their encoding lacks: on a terminal of Latin-1, in a file's name of bytes.

    Of one that whoever started us has closed, Python makes None: what is for stderr would then go to stdout.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - as above
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


COLORS: Final = {"+": "32", "-": "31", "~": "33"}
"""Of the signs of changes: green, red, yellow."""

_SIGN: Final = re.compile(r"(?<=^  )[-+~](?= )|(?<=^  would be written: )[-+~](?= )")


def colored(line: str, stream: TextIO) -> str:
    """Give the sign of a change its colour on a terminal, unless NO_COLOR is set or the terminal has none."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return line
    return _SIGN.sub(lambda sign: f"\x1b[{COLORS[sign[0]]}m{sign[0]}\x1b[0m", line, count=1)


def log(line: str) -> None:
    """Write a line of progress or log to stderr."""
    with status_line.suspended():
        seen = colored(escape_control_chars(line), sys.stderr)
        print(seen, file=sys.stderr, flush=True)  # noqa: T201 - stderr is where progress goes


def emit_result(
    settings: "Settings", result: Result, *people: "Table | str", steps: "Sequence[Suggestion] | None" = None
) -> None:
    """Give the result: one JSON object under --json and to --result-file, else tables and lines for people.

    `steps` are what may be done next: `next` of the object, and the last lines; None where nothing could ever be.
    """
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
    """What may be done next, for programs."""
    return {"next": [{"what": step.what, "command": step.command} for step in steps]}


def next_lines(steps: "Iterable[Suggestion]") -> Iterator[str]:
    """The same for people: one line each whatever its width, to be copied."""
    return (f"{step.what}: {step.command}" for step in steps)


def is_terminal() -> bool:
    """Tell whether somebody is there to be asked."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask on the terminal for yes or no; whoever closes it instead (Ctrl-D) has not agreed."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return typer.confirm(question, err=True)
    except typer.Abort:
        log("")  # the cursor still stands behind the question
        return False


def typed_answer(question: str) -> str:
    """Ask on the terminal for a word, which is none where it is closed instead (Ctrl-D)."""
    _discard_typed_keys()
    try:
        with status_line.asking():
            return str(typer.prompt(question, default="", show_default=False, err=True)).strip()
    except typer.Abort:
        log("")
        return ""


def _discard_typed_keys() -> None:
    """Keys pressed before a question was there are no answer to it."""
    with suppress(OSError, ValueError, termios.error):  # what is no terminal has no such keys
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def show(part: "Table | str") -> None:
    """Print what people read: a line as it is, but for what a terminal would obey."""
    if isinstance(part, str):
        print(colored(escape_control_chars(part), sys.stdout))  # noqa: T201 - a rich console takes a hundred times as long
        return
    console = stdout(part.width or 0)
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as drawn:  # rich fills every line with blanks, to the width of the table
        console.print(part)
    print("\n".join(line.rstrip() for line in drawn.get().removesuffix("\n").split("\n")))  # noqa: T201 - as above


def wrapped(text: str, label: str) -> list[str]:
    """Break a text into lines of LINE columns at most, its label before the first."""
    return textwrap.wrap(
        text, LINE_COLUMNS, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    ) or [label]


def write_json(result: Result, as_json: bool, result_file: Path | None) -> None:  # noqa: FBT001 - as the flag is
    """Give programs their JSON object, on stdout and in the result file, where they asked for it."""
    text = json.dumps(result, default=str)
    if as_json:
        print(text)  # noqa: T201 - the object and nothing else
    if result_file is not None:
        try:
            result_file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            log(f"surveyor: --result-file {result_file} could not be written: {error.strerror}")


def stream(settings: "Settings", result: Result, lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Give programs `result` and lists of rows as one JSON object, row by row: never are all of them text at once."""
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
    r"""Write the object in pieces.

    >>> "".join(_texts({"plan_id": "5f"}, {"rows": [{"partition": 0}, {"partition": 1}], "rest": []}))
    '{"plan_id": "5f", "rows": [{"partition": 0}, {"partition": 1}], "rest": []}\n'
    """
    yield json.dumps(result, default=str)[:-1]
    for name, rows in lists.items():
        yield f', "{name}": ['
        yield from (", " * (number > 0) + json.dumps(row, default=str) for number, row in enumerate(rows))
        yield "]"
    yield "}\n"


def table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> "Table":
    """Lay out rows for people: numbers to the right, lists as [2,0], nothing for null.

    Where the terminal is narrow, texts and headings are folded, numbers never; what still has no room runs over its
    edge, so that nothing is cut off.
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
"""Columns of the terminal between two of a table."""

_MIN_FOLD_COLUMNS: Final = 8
"""Columns that a text is not folded below."""

_NEVER_FOLDED: Final = ("plan_id",)
"""Columns whose texts are never folded: people copy them into the next command."""


def _folded(heading: str) -> str:
    return heading.replace("_", "_\n")


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int) -> list[int]:
    """Give columns what they need; take from the widest what there is no room for, down to what each must have.

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


def format_cell(value: Any) -> str:  # noqa: ANN401 - whatever a column holds
    r"""Write a cell for people.

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


LINES_SHOWN: Final = 50


def truncate(lines: Sequence[str], command: str, *, everything: bool = False) -> list[str]:
    """Keep the first lines unless all are asked for, and say how many are left out and which command shows them."""
    if everything or len(lines) <= LINES_SHOWN:
        return list(lines)
    return [*lines[:LINES_SHOWN], f"  ... and {len(lines) - LINES_SHOWN} more: `{command}` shows them"]
