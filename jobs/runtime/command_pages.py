"""The help page of a command: its everyday options; `--help-all` adds the panels of all others."""

import inspect
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

PANELS: Final = {
    "Connection": (
        *("cluster", "fleet", "parallel", "zookeeper", "bootstrap_servers", "warehouse", "conf_path"),
        *("zookeeper_config", "command_config", "engine", "remote"),
    ),
    "Output": ("as_json", "output", "result_file", "log_level", "log_format", "detailed_exitcode"),
    "Expert": (
        *("allow_below_min_isr", "allow_internal", "allow_majority_dead", "allow_silent", "allow_unknown_config"),
        *(
            "broker_label",
            "broker_list",
            "by_size",
            "disable_rack_aware",
            "exclude",
            "max_changes",
            "max_hold",
            "max_moves",
        ),
        *("max_moves_per_broker", "max_plan_age", "onto", "to_snapshot"),
        *(
            "one_replica_at_a_time",
            "overwrite",
            "reassignment_json_file",
            "reorder_leaders",
            "replace_name",
            "requests",
            "selector",
            "settle",
        ),
        *("shift", "sizes", "skip_elections", "skip_unsafe", "stable_for", "start_index", "strategy"),
        *("topics_to_move_json_file", "within", "budget", "pareto", "resources", "relieve", "effort"),
        *("load_profile", "load_window"),
    ),
}
"""Options, by the names of their parameters, that only --help-all shows, under their headings."""

HELP_ALL: Final = "--help-all"

HELP: Final = {"help_option_names": ["-h", "--help", HELP_ALL]}
"""Context settings of the outermost command, which all its subcommands inherit."""

_PANEL_OF: Final = {name: title for title, names in PANELS.items() for name in names}

_RANGE: Final = re.compile(r" +\[[\d.<=]*x[\d.<>=]*\]$")
"""The limits of a number, as `[x>=1]`, which Typer appends."""

Function = TypeVar("Function", bound=Callable[..., Any])


class CommandPage(TyperCommand):
    """A command with a help page of this form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own
        """Note whether all options are requested before the help option prints the page."""
        ctx.meta[HELP_ALL] = HELP_ALL in args
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the arguments and everyday options, then the panels or a line that names them."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        sections |= {title: [] for title in PANELS}
        for param in self.params:
            if (record := param.get_help_record(ctx)) is not None:
                is_argument = param.param_type_name == "argument"
                title = "Arguments" if is_argument else _PANEL_OF.get(str(param.name), "Options")
                sections[title].append((record[0], _RANGE.sub("", record[1])))
        hidden = [title for title in PANELS if sections[title]]
        sections["Options"].append(("-h, --help", "Show this message and exit."))
        if hidden:
            sections["Options"].append((HELP_ALL, f"Show more options: {', '.join(hidden).lower()}."))
        for title, records in sections.items():
            if records and (title not in PANELS or ctx.meta.get(HELP_ALL)):
                with formatter.section(title):
                    formatter.write_dl(records)


def name_value(parameter: inspect.Parameter) -> None:
    """Set the name of an option's value in help pages: its choices, N, X or FILE, else the option's last word."""
    kind, *infos = get_args(parameter.annotation) or [None]
    plain = (get_args(kind) or (kind,))[0]
    for info in infos:
        if not isinstance(info, OptionInfo) or info.metavar or plain is bool:
            continue
        if isinstance(plain, type) and issubclass(plain, Enum):
            info.metavar = "|".join(str(choice.value) for choice in plain)
            continue
        declared = [info.default] if isinstance(info.default, str) else []  # where Typer keeps the first name
        *_, word = re.split("[_-]", [parameter.name, *declared, *(info.param_decls or ())][-1].strip("_"))
        info.metavar = {int: "N", float: "X", Path: "FILE"}.get(plain, word.upper())


class CommandLine(typer.Typer):
    """A command or group whose help pages have these forms."""

    def __init__(self, **named: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP, **named)

    def command(
        self,
        name: str | None = None,
        *,
        cls: type[TyperCommand] | None = CommandPage,
        **named: Any,  # noqa: ANN401 - as above
    ) -> Callable[[Function], Function]:
        """Add a function as a command."""
        return super().command(name, cls=cls, **named)
