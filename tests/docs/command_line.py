"""The command line as docs/commands.md shows it, read from the commands themselves.

Only what a group and a command say of themselves is asked, so commands may as well be imported when they are needed.
What a value is called depends on the option's own type, not on how a version of typer writes it.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, Final, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command

from jobs.cli import app
from tests.docs.markdown import code, table

NAME: Final = "surveyor"
DEFAULT: Final = re.compile(r" ?\[default: (.*?)\]")
"""How help says what holds where an option is not given."""

OptionKey = tuple[str, str]
"""An option as it is written, and its help: two with the same are one."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command without commands of its own."""

    words: tuple[str, ...]
    command: Any

    @property
    def title(self) -> str:
        return " ".join((NAME, *self.words))

    @property
    def arguments(self) -> list[Any]:
        return [param for param in self.command.params if param.param_type_name == "argument"]

    @property
    def options(self) -> dict[OptionKey, Any]:
        """Its options but --help, which every command has."""
        shown = [param for param in self.command.params if param.param_type_name == "option" and not param.hidden]
        return {(param.opts[0], str(param.help)): param for param in shown if param.name != "help"}

    def types(self) -> dict[str, Any]:
        """The Python types of its parameters."""
        parameters = inspect.signature(self.command.callback).parameters
        annotated = {name: get_args(parameter.annotation) for name, parameter in parameters.items()}
        return {name: args[0] for name, args in annotated.items() if args}


@cache
def root() -> Any:  # noqa: ANN401 - a command of whichever click typer brings
    """Return the whole command line."""
    return get_command(app)


@cache
def subcommands(group: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - as above
    """Return the commands of a group by name, in its order.

    One that stands for a command until it is called has that command in its context.
    """
    context = typer.Context(group, info_name=NAME)
    return [
        (name, group.get_command(context, name).make_context(name, [], resilient_parsing=True).command)
        for name in group.list_commands(context)
    ]


def is_group(command: Any) -> bool:  # noqa: ANN401 - as above
    return isinstance(command, TyperGroup)


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[Command]:  # noqa: ANN401 - as above
    """Yield the commands of a group and of the groups in it."""
    for name, command in subcommands(group):
        if is_group(command):
            yield from commands(command, (*words, name))
        else:
            yield Command((*words, name), command)


def common(among: Sequence[Command]) -> set[OptionKey]:
    """Options that all of these commands take."""
    return set.intersection(*(set(command.options) for command in among))


def commands_page() -> str:
    """Describe every command: first what all take, then each with its own options."""
    top = root()
    everywhere = common(list(commands(top)))
    alone = [Command((name,), command) for name, command in subcommands(top) if not is_group(command)]
    groups = [(name, command) for name, command in subcommands(top) if is_group(command)]
    parts = [
        *_overview(top),
        "## Every command",
        "These come after the command's name, as does `--help`, or `-h`. `surveyor --version` takes no command.",
        _options(alone[0], everywhere),
        *(part for command in alone for part in _command(command, everywhere, "##")),
    ]
    for name, group in groups:
        members = list(commands(group, (name,)))
        shared = common(members) - everywhere
        parts += [f"## {NAME} {name}", group.help]
        if shared:
            parts += [f"Each `{NAME} {name} ...` also takes:", _options(members[0], shared)]
        parts += [part for member in members for part in _command(member, everywhere | shared, "###")]
    return "\n\n".join(parts)


def _overview(top: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """What people want, the commands for it, and examples, as --help has them."""
    members = dict(subcommands(top))
    for title, names in top.parts():
        rows = [_named(command) for name in names for command in _of(name, members[name])]
        yield f"**{title}**"
        yield table(["command", "what it does"], rows)
    yield "Examples:"
    yield indent(top.epilog.partition("\n")[2].partition("\n\n")[0], "  ")


def _of(name: str, member: Any) -> Iterable[Command]:  # noqa: ANN401 - as above
    return commands(member, (name,)) if is_group(member) else [Command((name,), member)]


def _named(command: Command) -> list[str]:
    return [f"[{code(command.title)}](#{command.title.replace(' ', '-')})", str(command.command.help)]


def _command(command: Command, described: set[OptionKey], level: str) -> Iterator[str]:
    yield f"{level} {command.title}"
    yield str(command.command.help)
    own = [key for key in command.options if key not in described]
    yield f"    {_usage(command, own)}"
    if command.arguments or own:
        yield _table([*map(_argument_row, command.arguments), *_option_rows(command, own)])


def _usage(command: Command, own: Sequence[OptionKey]) -> str:
    needed = [_written(command, key) for key in own if command.options[key].required]
    more = ["[OPTIONS]"] if len(own) > len(needed) else []
    return " ".join([command.title, *map(_argument, command.arguments), *needed, *more])


def _argument(argument: Any) -> str:  # noqa: ANN401 - as above
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required else f"[{name}]"


def _argument_row(argument: Any) -> list[str]:  # noqa: ANN401 - as above
    return [code(_argument(argument)), DEFAULT.sub("", argument.help), _default(argument, argument.help)]


def _options(command: Command, keys: set[OptionKey]) -> str:
    return _table(_option_rows(command, [key for key in command.options if key in keys]))


def _table(rows: Iterable[Sequence[str]]) -> str:
    return table(["option", "meaning", "default"], list(rows))


def _option_rows(command: Command, keys: Sequence[OptionKey]) -> Iterator[list[str]]:
    for key in keys:
        option = command.options[key]
        text = option.help or ""
        yield [code(_written(command, key)), DEFAULT.sub("", text), _default(option, text)]


def _written(command: Command, key: OptionKey) -> str:
    """An option as it is typed, with a name for its value."""
    option = command.options[key]
    return " ".join(filter(None, [option.opts[0], _value(option, command.types()[option.name])]))


def _value(option: Any, kind: Any) -> str:  # noqa: ANN401 - as above
    """Name the value of an option: its choices, a number, a file, else the last word of its name."""
    if option.is_flag:
        return ""
    plain = (get_args(kind) or (kind,))[0]
    if option.metavar:
        return str(option.metavar)
    if isinstance(plain, type) and issubclass(plain, Enum):
        return "|".join(str(choice.value) for choice in plain)
    return str({int: "N", float: "X", Path: "FILE"}.get(plain, option.opts[0].rpartition("-")[2].upper()))


def _default(option: Any, text: str) -> str:  # noqa: ANN401 - as above
    if option.required:
        return "required"
    default = option.default.value if isinstance(option.default, Enum) else option.default
    in_words = DEFAULT.search(text)
    known = in_words[1] if in_words else "" if default in {None, False} else str(default)
    environment = f"the environment's `{option.envvar}`" if option.envvar else ""
    return ", else ".join(filter(None, [environment, known]))
