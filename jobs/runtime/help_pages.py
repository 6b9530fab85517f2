"""Help as a page for people: what one wants to do, the commands for it, each with its whole line, then examples.

A command says which part of the page it belongs to by its `rich_help_panel`, which Typer keeps without Rich, too.
"""

from itertools import groupby
from typing import Any, Final

from typer.core import TyperGroup

OTHERS: Final = "Commands"


class HelpPage(TyperGroup):
    """A group of commands whose help is such a page."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer's own
        """Write the commands, and the few options of the group itself after them."""
        self.format_commands(ctx, formatter)
        records = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl(records)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write each part under its title; lines are wrapped, and never cut."""
        widest = max(map(len, self.commands))
        for title, names in self.parts():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), self.commands[name].help or "") for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write examples as they stand."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")

    def parts(self) -> list[tuple[str, list[str]]]:
        """The names of the commands by what they are for, in the order they were added in."""
        titles = {
            name: str(getattr(command, "rich_help_panel", None) or OTHERS) for name, command in self.commands.items()
        }
        return [(title, [*names]) for title, names in groupby(titles, key=lambda name: titles[name])]
