"""Commands registered by name and help line, whose modules are imported when they are called.

Spark, Arrow and the clients of Kafka and ZooKeeper take seconds to import, and `--help`, completion and a misspelt
command name need none of them. A command's own module contains its options and imports these libraries after parsing,
so the command's own `--help` is quick, too.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from jobs.core.signals import install_handlers
from jobs.runtime.command_pages import CommandLine
from jobs.runtime.pace import DEFAULT, Pace

LOG_FORMAT_OPTION: Final = "--log-format"
LOG_FORMAT_VARIABLE: Final = "SURVEYOR_LOG_FORMAT"
OUTPUT_OPTION: Final = "-o", "--output"
RESULT_FILE_OPTION: Final = ("--result-file",)


class LazyCommand(TyperCommand):
    """A placeholder for a command; its callback imports and returns the command, which then parses and runs."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as typer's own
        return self.callback().make_context(*arguments, **named)  # type: ignore[misc] # a LazyCommand has a callback


def add_lazily(app: typer.Typer, place: str, help: str, part: str) -> None:  # noqa: A002 - typer's word
    """Add the command or group at `place`, such as `jobs.commit:commit`, under the name of its function.

    `part` is its heading in the help.
    """
    module, _, function = place.partition(":")
    name = module.rpartition(".")[2] if function == "app" else function

    def load() -> Any:  # noqa: ANN401 - a command of typer's
        return _loaded(getattr(import_module(module), function), name)

    app.command(name, cls=LazyCommand, help=help, rich_help_panel=part)(load)


def _loaded(function: Any, name: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(function, typer.Typer):
        return get_group(function)
    alone = CommandLine(add_completion=False)
    alone.command(name)(function)
    return get_command(alone)


def run_program(app: typer.Typer, pace: Pace = DEFAULT) -> None:
    """Run the command line of this process and exit.

    Usage errors are log records in the JSON format, and the JSON object of a command that was requested to print one.
    """
    install_handlers()
    words = sys.argv[1:]
    result_file = _values(words, *RESULT_FILE_OPTION)[-1:]
    as_json = requests_result(words)
    if not (requests_json(words) or as_json or result_file):
        app(obj=pace)
        return
    from jobs.core import logs  # noqa: PLC0415 - --help as text does not need it
    from jobs.runtime.output import write_json  # noqa: PLC0415 - as above

    if requests_json(words):
        logs.configure(log_format=logs.LogFormat.JSON)
    try:
        sys.exit(get_command(app).main(standalone_mode=False, obj=pace) or 0)
    except typer.Abort:
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not an error of the command line
            raise
        message, code = error.format_message(), error.exit_code  # type: ignore[attr-defined] # as these errors have
        if requests_json(words):
            logs.LOGGER.error("%s", message, extra={"fields": {"exit_code": code}})
        else:
            error.show()  # type: ignore[attr-defined] # as above
        write_json({"error": message, "exit_code": code}, as_json, Path(result_file[0]) if result_file else None)
        sys.exit(code)


def requests_json(words: Sequence[str]) -> bool:
    """Return whether a command line, or else the environment, requests log records in JSON, before it is parsed.

    >>> requests_json(["status", "--log-format", "json"]), requests_json(["status", "--log-format=json"])
    (True, True)
    """
    given = _values(words, LOG_FORMAT_OPTION)
    return (given[-1] if given else os.environ.get(LOG_FORMAT_VARIABLE)) == "json"


def requests_result(words: Sequence[str]) -> bool:
    """Return whether a command line requests one JSON object on stdout, before it is parsed.

    >>> requests_result(["commit", "--json"]), requests_result(["commit", "-o", "json"]), requests_result(["commit"])
    (True, True, False)
    """
    return "--json" in words or "json" in _values(words, *OUTPUT_OPTION)


def _values(words: Sequence[str], *options: str) -> list[str]:
    """Return the values of an option in the order typed, as `--option value` and then as `--option=value`."""
    given = [value for option, value in pairwise(words) if option in options]
    return given + [word.partition("=")[2] for word in words if word.partition("=")[0] in options and "=" in word]
