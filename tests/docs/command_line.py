"""The command line as docs/commands.md shows it, read from the commands themselves.

Only what a group and a command say of themselves is asked, so commands may as well be imported when they are needed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from jobs.cli import app
from tests.docs.markdown import code

NAME: Final = "surveyor"
DEFAULT: Final = re.compile(r" ?\[default: (.*?)\]")
"""How help says what holds where an option is not given."""

OptionKey = tuple[str, str]
"""An option or argument as it is written, and its help: two with the same are one."""

Options = Mapping[OptionKey, Any]

SEVERAL: Final = 2
"""Commands that take an option, at least, for it to be described once."""


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
        return [param for param in self.command.params if _is_argument(param)]

    @property
    def options(self) -> dict[OptionKey, Any]:
        """Its arguments, and its options but --help, which every command has."""
        shown = [param for param in self.command.params if not param.hidden and param.name != "help"]
        return {(param.opts[0], str(param.help)): param for param in shown}


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
        if not getattr(group.commands[name], "hidden", False)
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


def commands_page() -> str:
    """Describe every command: first the options of all and of several, then each with its own options."""
    top = root()
    every = list(commands(top))
    counts = Counter(key for command in every for key in command.options)
    shared = _shared(every, counts)
    everywhere = {key: option for key, option in shared.items() if counts[key] == len(every)}
    parts = [
        *_overview(top),
        "## Every command",
        "They come after the command's name, as do `-h`, `--help` and `--help-all`. `surveyor --version` stands alone.",
        _list(map(_item, everywhere.values())),
        "## Several commands",
        "The commands name those of these options that they take.",
        _list(_item(option) for key, option in shared.items() if key not in everywhere),
    ]
    for name, member in subcommands(top):
        if is_group(member):
            parts += _group(name, member, everywhere, shared)
        else:
            parts += _command(Command((name,), member), everywhere, shared, "##")
    return "\n\n".join(parts)


def _shared(every: Iterable[Command], counts: Mapping[OptionKey, int]) -> Options:
    """Return what several of the commands take, each option in its most frequent meaning."""
    options = {key: option for command in every for key, option in command.options.items()}
    usual = {name: (name, text) for name, text in sorted(counts, key=counts.__getitem__)}
    return {key: options[key] for key in counts if counts[key] >= SEVERAL and usual[key[0]] == key}


def _group(name: str, group: Any, everywhere: Options, shared: Options) -> Iterator[str]:  # noqa: ANN401 - as above
    """Describe the commands of a group: first the options that all of them take, and those that several take."""
    members = list(commands(group, (name,)))
    counts = Counter(key for command in members for key in command.options)
    of_all = {key: members[0].options[key] for key, count in counts.items() if count == len(members) >= SEVERAL}
    several = {key: option for key, option in _shared(members, counts).items() if key not in of_all}
    new = {key: option for key, option in {**of_all, **several}.items() if key not in shared}
    yield f"## {NAME} {name}"
    yield str(group.help)
    named = [code(option.opts[0]) for key, option in of_all.items() if key not in everywhere]
    if named:
        yield f"All of these take {', '.join(named)}."
    if new:
        yield _list(map(_item, new.values()))
    for command in members:
        yield from _command(command, {**everywhere, **of_all}, {**shared, **new}, "###")


def _overview(top: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """The commands by purpose, as --help has them."""
    for title, names in top.parts():
        yield f"**{title}**: {', '.join(f'[{name}](#{NAME}-{name})' for name in names)}."


def _command(command: Command, everywhere: Options, shared: Options, level: str) -> Iterator[str]:
    yield f"{level} {command.title}"
    yield str(command.command.help)
    options = {key: option for key, option in command.options.items() if key not in everywhere}
    needed = [_written(option) for option in options.values() if option.required and not _is_argument(option)]
    others = [option for option in options.values() if not option.required and not _is_argument(option)]
    if command.arguments or needed:
        more = ["[OPTIONS]"] if others else []
        yield f"    {' '.join([command.title, *map(_written, command.arguments), *needed, *more])}"
    items = [_item(option) for key, option in options.items() if key not in shared]
    also = [code(option.opts[0]) for key, option in options.items() if key in shared and not _is_argument(option)]
    if also:
        items.append(f"Also {', '.join(also)}.")
    if items:
        yield _list(items)


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401 - as above
    return bool(parameter.param_type_name == "argument")


def _item(parameter: Any) -> str:  # noqa: ANN401 - as above
    """An option or an argument with its meaning and, in brackets, its default."""
    text = parameter.help or ""
    default = _default(parameter, text)
    return f"{code(_written(parameter))}: {DEFAULT.sub('', text)}" + (f" [{default}]" if default else "")


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _written(parameter: Any) -> str:  # noqa: ANN401 - as above
    """An option as it is typed, with the name of its value; or an argument."""
    if _is_argument(parameter):
        name = str(parameter.metavar or parameter.name.upper())
        return name if parameter.required else f"[{name}]"
    return " ".join(filter(None, [parameter.opts[0], "" if parameter.is_flag else parameter.metavar]))


def _default(option: Any, text: str) -> str:  # noqa: ANN401 - as above
    if option.required:
        return ""
    default = option.default.value if isinstance(option.default, Enum) else option.default
    in_words = DEFAULT.search(text)
    known = in_words[1] if in_words else "" if default in {None, False} else str(default)
    environment = f"`{option.envvar}`" if option.envvar else ""
    return ", else ".join(filter(None, [environment, known]))
