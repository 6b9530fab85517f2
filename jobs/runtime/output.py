"""Results of commands on stdout and in the result file: tables, one JSON object, or YAML."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from jobs.core.status_line import colored, escape_control_chars
from jobs.runtime.console import CommandResult, Result, log, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from jobs.runtime.settings import Settings
    from jobs.runtime.suggestions import Suggestion


def emit(settings: "Settings", shown: CommandResult) -> None:
    """Write a result: one JSON object for --json and --result-file, else tables and lines for people."""
    result = shown.json
    write_json(result, settings.as_json, settings.result_file)
    if settings.for_people:
        for part in (*shown.lines, *next_lines(shown.steps or ())):
            show(part)
    elif not settings.as_json:
        lists = {name: value for name, value in result.items() if isinstance(value, list)}
        sys.stdout.writelines(to_yaml({name: result[name] for name in result if name not in lists}, lists))


def next_lines(steps: "Iterable[Suggestion]") -> Iterator[str]:
    """Return suggestions as lines for people; each is one unwrapped line, to be copied."""
    return (step.what if step.command is None else f"{step.what}: {step.command}" for step in steps)


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


def write_json(result: Result, as_json: bool, result_file: Path | None) -> None:  # noqa: FBT001 - as the flag is
    """Write the JSON object to stdout and the result file, as requested."""
    text = json_text(result)
    if as_json:
        print(text)  # noqa: T201 - the object and nothing else
    if result_file is not None:
        try:
            result_file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            log(f"surveyor: --result-file {result_file} could not be written: {error.strerror}", logging.ERROR)


def json_text(value: Any) -> str:  # noqa: ANN401 - what a result can hold
    """Return JSON, with times as RFC 3339 has them and other values without a JSON type as their text.

    >>> json_text({"hour": datetime.fromisoformat("2026-11-30T22:00:00+00:00"), "file": Path("a/b")})
    '{"hour": "2026-11-30T22:00:00Z", "file": "a/b"}'
    """
    return json.dumps(value, default=_plain)


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    return msgspec.to_builtins(value) if isinstance(value, datetime) else str(value)


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
    yield json_text(result)[:-1]
    for name, rows in lists.items():
        yield f', "{name}": ['
        yield from (", " * (number > 0) + json_text(row) for number, row in enumerate(rows))
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
    plain = json.loads(json_text(value))
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
