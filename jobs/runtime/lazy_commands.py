"""Commands known by their name and one line of help; their modules are imported when they are called.

What commands work with, Spark, Arrow and the clients of Kafka and ZooKeeper, takes seconds to import. `--help`, the
completion of names and a misspelt name need none of it. A command's own module holds its options, and imports what
it works with once they are parsed; so its own `--help` is quick, too.
"""

import sys
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

HELP: Final = {"help_option_names": ["-h", "--help"]}
"""What Typer is told of the outermost command; it holds for all within it."""


class LazyCommand(TyperCommand):
    """Stands in its group for a command; its callback imports and returns that command, which parses and runs."""

    leads_to_group = False
    """Whether that is a group of commands."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as typer's own
        return self.callback().make_context(*arguments, **named)  # type: ignore[misc] # a LazyCommand has a callback


class _LazyGroup(LazyCommand):
    """The same for a group."""

    leads_to_group = True


def add_lazily(app: typer.Typer, place: str, help: str, part: str) -> None:  # noqa: A002 - typer's word
    """Add the command or group of commands at a place, as `jobs.commit:commit`, under the name of its function.

    `part` is the part of the help that it belongs to.
    """
    module, _, function = place.partition(":")
    name = module.rpartition(".")[2] if function == "app" else function

    def load() -> Any:  # noqa: ANN401 - a command of typer's
        return _loaded(getattr(import_module(module), function), name)

    app.command(name, cls=_LazyGroup if function == "app" else LazyCommand, help=help, rich_help_panel=part)(load)


def _loaded(function: Any, name: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(function, typer.Typer):
        return get_group(function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(function)
    return get_command(alone)


class _NoPandas:
    """A finder of modules that finds no pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"no {name} where nobody needs it", name=name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas in this process, where Spark, which needs it, will never be.

    pyarrow looks for it as soon as it makes a value, which it does while it is imported itself. Of the 1.2 s of
    processor time that `show plans` took on an empty warehouse this saves 0.45 (pyarrow 26, pandas 2.3).
    """
    sys.meta_path.insert(0, _NoPandas())
