"""The help page: commands under headings of tasks, each with its whole help line, followed by examples.

A command's `rich_help_panel` is its heading; Typer also keeps it without Rich.
"""

from collections.abc import Iterator
from itertools import groupby
from shlex import quote
from typing import Any, Final

from typer.core import TyperGroup

from jobs.runtime.lazy_commands import LazyCommand

DEFAULT_PART: Final = "Commands"


class HelpPage(TyperGroup):
    """A group of commands with a help page of this form."""

    def get_help_option_names(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own
        """Return the names in the same order always; Click has them in a set."""
        return sorted(super().get_help_option_names(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Parse the group's own options; for options before a command's name, suggest the right order."""
        given = [*args]  # the parser empties the list
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            first = next((place for place, word in enumerate(given) if word in self.commands), None)
            if first and hasattr(error, "option_name"):
                line = " ".join([ctx.command_path, *map(quote, [*given[first:], *given[:first]])])
                error.message = f"{error.message}; options come after the command: {line}"  # type: ignore[attr-defined]
                error.possibilities = None  # type: ignore[attr-defined] # they would be appended
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Find a command; for an unknown name, suggest a command line."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            meant = self._meant(ctx, args[0]) if args and hasattr(error, "message") else None
            if meant is not None:
                line = " ".join([*meant, *map(quote, args[1:])])
                error.message = f"{error.message.partition('. Did you')[0].rstrip('.')}; type: {line}"  # type: ignore[attr-defined]
            raise

    def _meant(self, ctx: Any, word: str) -> list[str] | None:  # noqa: ANN401 - as above
        """Search the commands of other groups, then options of commands."""
        root = ctx.find_root()
        groups = dict(_groups(root.command))
        own = "" if ctx.parent is None else ctx.info_name
        if own and word in root.command.commands:
            return [root.info_name, word]
        for name, group in groups.items():
            if name != own and word in group.commands:
                return [root.info_name, name, word]
        for name, group in groups.items():
            for command in group.commands.values():
                if name in {own, "plan"} and any(f"--{word}" in param.opts for param in command.params):
                    return [root.info_name, name, command.name, f"--{word}"]
        return None

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer's own
        """Write the commands, then the group's own options."""
        self.format_commands(ctx, formatter)
        records = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl(records)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write each part under its heading; lines are wrapped and never cut."""
        widest = max(len(name) for _, names in self.parts() for name in names)
        for title, names in self.parts():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), self.commands[name].help or "") for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write the examples unchanged."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")

    def parts(self) -> list[tuple[str, list[str]]]:
        """Return headings with the names of their commands, in the order in which they were added."""
        titles = {
            name: str(getattr(command, "rich_help_panel", None) or DEFAULT_PART)
            for name, command in self.commands.items()
            if not getattr(command, "hidden", False)
        }
        return [(title, [*names]) for title, names in groupby(titles, key=lambda name: titles[name])]


def _groups(root: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Typer's own
    """Yield the groups of the outermost command, importing all commands."""
    for name, command in root.commands.items():
        group = command.callback() if isinstance(command, LazyCommand) else command  # type: ignore[misc] # it has one
        if isinstance(group, TyperGroup):
            yield name, group
