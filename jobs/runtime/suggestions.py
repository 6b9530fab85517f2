"""Suggestions of next commands, as command lines to copy, for the cluster and warehouse of this command.

They repeat the options that were typed. Values from the environment also apply to the next command and are left out,
and so are options for the output format.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from jobs.core.errors import SurveyorError
from jobs.core.masking import masked_text
from jobs.runtime.console import warn
from jobs.runtime.zookeeper_commands import INSTEAD

if TYPE_CHECKING:
    from jobs.runtime.settings import Settings

GivenOptions = Mapping[str, tuple[str, ...]]
"""GivenOptions options by parameter name, each as its words on the command line."""

CLUSTER_OPTIONS: Final = (
    "conf_path",
    "cluster",
    "zookeeper",
    "bootstrap_servers",
    "warehouse",
    "zookeeper_config",
    "command_config",
)
"""Options that select the cluster and its connections."""

LIVE_CLUSTER_OPTIONS: Final = frozenset({"zookeeper", "bootstrap_servers", "zookeeper_config", "command_config"})

WAREHOUSE_ONLY_COMMANDS: Final = frozenset({"export", "metrics", "report", "show", "vacuum", "whatif"})
"""Commands that do not connect to a cluster, except with CLUSTER_ACCESS_OPTIONS."""

CLUSTER_ACCESS_OPTIONS: Final = frozenset({"--now", "--restart", "--restart-order"})

COMMIT_OPTIONS: Final = frozenset({"apply", "yes", "max_wait"})
"""Options that commit a plan at once, and do not change what is planned."""

OUTPUT_OPTIONS: Final = frozenset({"as_json", "result_file", "output", "log_level", "log_format", "verbose"})

ENGINE_OPTIONS: Final = frozenset({"remote", "engine"})
"""Options of commands that compute DataFrames; a plan's other commands compute none."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested action; `command` is None if no command of Surveyor does it."""

    what: str
    command: str | None = None
    zookeeper_shell: str | None = None
    """A command for zookeeper-shell.sh, for actions that Surveyor cannot do."""


def given_options(context: typer.Context) -> GivenOptions:
    """Return the options typed on this command line."""
    words = {parameter.name: _words(parameter, context) for parameter in context.command.params if parameter.name}
    return {name: some for name, some in words.items() if some}


def _words(parameter: object, context: typer.Context) -> tuple[str, ...]:
    name, options = parameter.name, parameter.opts  # type: ignore[attr-defined] # typer's own kind of parameter
    source = context.get_parameter_source(name)
    if source is None or source.name != "COMMANDLINE" or not options[-1].startswith("-"):
        return ()
    value = context.params[name]
    if getattr(parameter, "is_flag", False):
        return (options[-1] if value else parameter.secondary_opts[-1],)  # type: ignore[attr-defined]
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(word for value in values for word in (options[-1], str(value)))


def suggestion(settings: "Settings", what: str, *command: str) -> Suggestion:
    """Return a suggestion with a command for the same cluster.

    >>> from jobs.runtime.settings import ClusterConf, Settings
    >>> given = {"zookeeper": ("--zookeeper", "zk1"), "warehouse": ("--warehouse", "/my data"), "as_json": ("--json",)}
    >>> given |= {"zookeeper_config": ("--zookeeper-config", "zk.properties")}
    >>> settings = Settings("default", "/my data", ClusterConf(), given_options=given)
    >>> suggestion(settings, "review", "show", "plan", "repair").command
    "surveyor show plan repair --warehouse '/my data'"
    >>> suggestion(settings, "apply", "commit", "repair", "--apply").command
    "surveyor commit repair --apply --zookeeper zk1 --warehouse '/my data' --zookeeper-config zk.properties"
    >>> suggestion(settings, "see", "show", "brokers", "--now").command
    "surveyor show brokers --now --zookeeper zk1 --warehouse '/my data' --zookeeper-config zk.properties"

    If the command is refused because the cluster has no ZooKeeper, suggest the alternative:

    >>> kraft = Settings("default", "w", ClusterConf(bootstrap_servers="kafka1:9092"))
    >>> suggestion(kraft, "repair", "reconcile")  # doctest: +ELLIPSIS
    Suggestion(what="repair: the KRaft cluster's own controller repairs partitions...", command=None, ...)
    """
    return _permitted(settings, what, command[0], command_line(settings, *command))


def _permitted(settings: "Settings", what: str, name: str, line: str) -> Suggestion:
    if name in INSTEAD and not settings.has_zookeeper:
        return Suggestion(f"{what}: {INSTEAD[name]}")
    return Suggestion(what, line)


def with_full_command(settings: "Settings", step: Suggestion) -> Suggestion:
    """Return the suggestion with its whole command line, for the same cluster."""
    if step.zookeeper_shell is not None:
        return Suggestion(
            step.what, f"zookeeper-shell.sh {shlex.quote(settings.zookeeper_endpoint.hosts)} {step.zookeeper_shell}"
        )
    return step if step.command is None else suggestion(settings, step.what, *shlex.split(step.command))


def command_line(settings: "Settings", *command: str) -> str:
    """Format a command line for the same cluster."""
    return _line(settings, command, _cluster_options(command))


def command_options(settings: "Settings", *command: str) -> list[str]:
    """Return the typed options that a command for the same cluster takes as well, also those for its log."""
    return _options(settings, command, [*_cluster_options(command), "log_level", "log_format"])


def _cluster_options(command: Sequence[str]) -> list[str]:
    """Return the names of the options that select what a command works on."""
    reaches = command[0] not in WAREHOUSE_ONLY_COMMANDS or bool(CLUSTER_ACCESS_OPTIONS.intersection(command))
    return [name for name in CLUSTER_OPTIONS if reaches or name not in LIVE_CLUSTER_OPTIONS]


_COMMAND: Final = re.compile(r"`surveyor ([^`]+)`")

_ADVISED: Final = re.compile(r"`surveyor ((?:doctor|show|sizes|snapshot|status)\b[^`]*)`")
"""The commands that errors advise; others are also named as what a process has done or is."""


def with_full_commands(settings: "Settings", advice: str, commands: re.Pattern[str] = _COMMAND) -> str:
    """Complete the commands in an advice, which are between backticks, for the same cluster.

    >>> from jobs.runtime.settings import ClusterConf, Settings
    >>> settings = Settings("east", "w", ClusterConf(), given_options={"cluster": ("--cluster", "east")})
    >>> with_full_commands(settings, "remove old snapshots by `surveyor vacuum --apply`")
    'remove old snapshots by `surveyor vacuum --apply --cluster east`'
    >>> with_full_commands(settings, "take a `surveyor snapshot --cluster east`")
    'take a `surveyor snapshot --cluster east`'
    """

    def completed(found: re.Match[str]) -> str:
        words = found[1].split()
        options = _options(settings, words, _cluster_options(words))
        return f"`surveyor {' '.join([found[1], *map(shlex.quote, options)])}`"

    return commands.sub(completed, advice)


@contextmanager
def full_commands_in_errors(settings: "Settings") -> Iterator[None]:
    """Complete the commands that an error advises, for the same cluster."""
    try:
        yield
    except SurveyorError as error:
        error.args = (with_full_commands(settings, str(error), _ADVISED),)
        raise


def same_step(settings: "Settings", what: str, *command: str, exclude: Iterable[str] = ()) -> Suggestion:
    """Return a suggestion whose command repeats all options of this command, except those in `exclude`.

    >>> from jobs.runtime.settings import ClusterConf, Settings
    >>> given = {"mode": ("--mode", "batch"), "as_json": ("--json",)}
    >>> settings = Settings("default", "w", ClusterConf(), given_options=given)
    >>> same_step(settings, "apply", "commit", "repair", "--apply").command
    'surveyor commit repair --apply --mode batch'
    """
    return _permitted(settings, what, command[0], same_line(settings, *command, exclude=exclude))


def same_line(settings: "Settings", *command: str, exclude: Iterable[str] = ()) -> str:
    """Format a command line with all options of this command, except those in `exclude`."""
    return _line(settings, command, settings.given_options.keys() - OUTPUT_OPTIONS - {*exclude})


def stated_command(settings: "Settings", *command: str) -> str:
    """Format a command as typed, for reviewers of its plan: without options of clusters and commits, and secrets.

    >>> from jobs.runtime.settings import ClusterConf, Settings
    >>> given = {"config": ("--set", "ssl.key.password=x"), "by_size": ("--by-size",), "as_json": ("--json",)}
    >>> stated_command(Settings("default", "w", ClusterConf(), given_options=given), "plan", "config")
    "surveyor plan config --set 'ssl.key.password=(hidden)' --by-size"
    """
    left_out = {*CLUSTER_OPTIONS, *OUTPUT_OPTIONS, *COMMIT_OPTIONS, *ENGINE_OPTIONS}
    options = [word for name, words in settings.given_options.items() if name not in left_out for word in words]
    return shlex.join(["surveyor", *command, *map(masked_text, options)])


def warn_of_old_spelling(old: str, command: str) -> None:
    """Warn that a command was typed as in earlier releases, and name the command that replaces it."""
    warn(f"`{old}` is an old spelling, which the next release removes: use `{command}`")


def _line(settings: "Settings", command: Sequence[str], names: Iterable[str]) -> str:
    return shlex.join(["surveyor", *command, *_options(settings, command, names)])


def _options(settings: "Settings", command: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the typed options of these names, without those that the command has already."""
    chosen = set(names)
    return [
        masked_text(word) if name == "remote" else word  # its URL may contain a token
        for name, words in settings.given_options.items()
        if name in chosen and words[0] not in command
        for word in words
    ]
