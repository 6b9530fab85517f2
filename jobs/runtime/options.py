"""Options that commands have in common, and the wrapper that runs a command with its settings and exit code."""

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, get_args

import typer

from jobs.adapters.delta.warehouse_paths import disk_error_message
from jobs.adapters.spark.engine_choice import ENGINE, Engine
from jobs.adapters.spark.remote import REMOTE, remote_error_message
from jobs.adapters.spark.submit_environment import adapt_to_spark_submit
from jobs.core import logs
from jobs.core.errors import ExitCode, SurveyorError, UsageError
from jobs.core.logs import LogFormat, LogLevel
from jobs.core.masking import strip_passwords
from jobs.core.option_sources import conf_section, option_sources
from jobs.core.signals import end_unless_own_interrupt, exit_code, json_output, stop_handling
from jobs.core.units import slow_rate_warning
from jobs.runtime.atomic_files import refuse_unwritable
from jobs.runtime.cli_enums import Output
from jobs.runtime.command_pages import CommandLine, name_value
from jobs.runtime.console import CommandResult, escape_unencodable, forget_warnings, log, warn
from jobs.runtime.lazy_commands import LOG_FORMAT_OPTION, LOG_FORMAT_VARIABLE, run_program
from jobs.runtime.output import emit, write_json
from jobs.runtime.pace import DEFAULT
from jobs.runtime.settings import UNRATED, Settings, settings_from
from jobs.runtime.suggestions import full_commands_in_errors, given_options, warn_of_old_spelling

Cluster = Annotated[
    str,
    typer.Option(help="Name of the cluster in the tables and in the --conf file."),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option("--zookeeper", help="HOST:PORT[,...][/chroot]", envvar="SURVEYOR_ZOOKEEPER"),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="HOST:PORT[,...] of a KRaft cluster's brokers, instead of --zookeeper.",
        envvar="SURVEYOR_BOOTSTRAP_SERVERS",
    ),
]
Warehouse = Annotated[
    str | None,
    typer.Option(help="Folder of the Delta tables [default: warehouse].", envvar="SURVEYOR_WAREHOUSE"),
]
ConfPath = Annotated[Path | None, typer.Option("--conf", help="surveyor.toml", envvar="SURVEYOR_CONF")]
ZooKeeperConfig = Annotated[
    Path | None,
    typer.Option(
        help="File with the security settings for ZooKeeper: TLS, SASL, digest.", envvar="SURVEYOR_ZOOKEEPER_CONFIG"
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(help="client.properties for the brokers: credentials and TLS.", envvar="SURVEYOR_COMMAND_CONFIG"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ResultFile = Annotated[Path | None, typer.Option(help="Also write that JSON object to this file.")]
DetailedExitcode = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help="Exit with 10 if changes are due, and with 21 if a commit found stale rows.",
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Do not ask; without a terminal, plans that delete topics need it."),
]
MaxChanges = Annotated[
    int | None, typer.Option(min=0, help="Refuse plans with more changes than this [default: 100000].")
]
MaxHold = Annotated[str | None, typer.Option(help="Maximum time to hold the controllership [default: 30s].")]
AllowMajorityDead = Annotated[
    bool, typer.Option("--allow-majority-dead", help="Accept plans that treat most brokers as not live.")
]
AllowSilent = Annotated[
    str | None,
    typer.Option(
        metavar="BROKERS",
        help="Brokers, as 2,5, that need not answer before batch mode writes.",
    ),
]
AllowUnclean = Annotated[
    bool,
    typer.Option("--allow-unclean", help="Allow unclean elections, which lose data, if no other replica can lead."),
]
Requests = Annotated[
    bool,
    typer.Option(
        "--requests", help="Also take the next steps of requests in /admin, even if a broker is the controller."
    ),
]
Throttle = Annotated[
    str | None,
    typer.Option(help="Copy at most so much per second, as 50MB/s; auto: by load; none: no limit [default: conf]."),
]
MaxWait = Annotated[str | None, typer.Option(help="Stop waiting after this time and exit with 25 [default: no limit].")]
All = Annotated[bool, typer.Option("--all", help="List everything, not only the first lines.")]
PlanId = Annotated[str, typer.Argument(help="Id or alias of the plan.")]
SnapshotId = Annotated[
    int | None,
    typer.Option("--snapshot", help="Plan on this stored snapshot."),
]
Name = Annotated[
    str | None,
    typer.Option(help="An alias for the plan; planning again under it on the same snapshot gives the same plan."),
]
ReplaceName = Annotated[
    bool,
    typer.Option("--replace-name", help="Make a new plan, and take --name from the plan that has it."),
]

Remote = Annotated[
    str | None,
    typer.Option(help="Run Spark on this Spark Connect server, sc://HOST:PORT [default: here].", envvar=REMOTE),
]

OutputAs = Annotated[
    Output | None,
    typer.Option(
        "-o",
        "--output",
        help="table: for people; wide: with every column; json: as --json; yaml: the same object as YAML.",
    ),
]

LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level", help="Log records of this level and above [default: info].", envvar="SURVEYOR_LOG_LEVEL"
    ),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        LOG_FORMAT_OPTION,
        help="json: a log record is one JSON object a line [default: text].",
        envvar=LOG_FORMAT_VARIABLE,
    ),
]

Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show details, as --log-level debug does, but not those of libraries.")
]

EngineOption = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="What computes plans and snapshots. auto: Spark under spark-submit, with --remote or a master, else "
        "embedded [default: auto].",
        envvar=ENGINE,
    ),
]

_COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "cluster": (Cluster, "default"),
    "zookeeper": (ZooKeeper, None),
    "bootstrap_servers": (BootstrapServers, None),
    "warehouse": (Warehouse, None),
    "conf_path": (ConfPath, None),
    "zookeeper_config": (ZooKeeperConfig, None),
    "command_config": (CommandConfig, None),
    "as_json": (AsJson, False),
    "result_file": (ResultFile, None),
    "output": (OutputAs, None),
    "log_level": (LogLevelOption, None),
    "log_format": (LogFormatOption, None),
    "verbose": (Verbose, False),
}

OTHER_SPELLINGS: Final = {"fleet": "--all", "as_of": "--as-of"}
"""Options of earlier releases, which help does not show, by the parameter that has another option now."""

OTHER: Final = "other_"
"""Begins the parameter of an option in OTHER_SPELLINGS."""

DEBUG: Final = "SURVEYOR_DEBUG"
"""Environment variable that makes an unexpected error print its stack trace."""

_ON_SPARK: Final[dict[str, tuple[Any, Any]]] = {**_COMMON, "remote": (Remote, None), "engine": (EngineOption, None)}

Command = Callable[..., CommandResult | ExitCode | None]


def command(function: Command) -> Command:
    """Add the common options to `function(settings, ...)`; print its result.

    Errors become a message and an exit code.
    """
    return _with_options(function, _COMMON)


def through_zookeeper(function: Command) -> Command:
    """Refuse a command of `INSTEAD`, before it does anything, for a cluster that has no ZooKeeper."""

    @functools.wraps(function)
    def run(settings: Settings, **arguments: Any) -> CommandResult | ExitCode | None:  # noqa: ANN401 - as typer gives them
        settings.refuse_without_zookeeper(function.__name__)
        return function(settings, **arguments)

    return run


def on_spark(function: Command) -> Command:
    """Do the same as `command` for a command that computes DataFrames, with the options --remote and --engine."""
    return _with_options(function, _ON_SPARK)


def _with_options(function: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    own = inspect.signature(function)
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]

    others = [_in_other_spelling(own.parameters[name]) for name in OTHER_SPELLINGS if name in own.parameters]

    @functools.wraps(function)
    def run(context: typer.Context, **arguments: Any) -> None:  # noqa: ANN401 - as typer gives them
        is_verbose = arguments.pop("verbose")
        if is_verbose:
            arguments["log_level"] = LogLevel.DEBUG
        escape_unencodable()
        forget_warnings()
        for other in others:
            given = arguments.pop(other.name)
            if given is not other.default:
                arguments[other.name.removeprefix(OTHER)] = given
        logs.configure(
            arguments["log_level"] or LogLevel.INFO,
            arguments["log_format"] or LogFormat.TEXT,
            cluster=None if arguments.get("fleet") else arguments["cluster"],
            with_libraries=not is_verbose,
        )
        result_file, output = arguments["result_file"], arguments.get("output")
        as_json = arguments["as_json"] or output is Output.JSON
        with report_errors(as_json=as_json, result_file=None):  # an error of the result file cannot be written to it
            if result_file is not None:
                refuse_unwritable(result_file, "--result-file")
        with report_errors(as_json=as_json, result_file=result_file):
            adapt_to_spark_submit()
            _refuse_non_utf8(context.params)
            _refuse_two_forms(output, as_json=as_json)
            common = {name: arguments.pop(name) for name in options if name in arguments}
            fleet = arguments.get("fleet", False)
            if arguments.get("parallel") is not None and not fleet:
                raise UsageError("--parallel is for several clusters: give --all-clusters, too")
            given = {name.removeprefix(OTHER): words for name, words in given_options(context).items()}
            settings = settings_from(**common, fleet=fleet, given_options=given, pace=context.obj or DEFAULT)
            if given.get("fleet") == (OTHER_SPELLINGS["fleet"],):
                warn_of_old_spelling(OTHER_SPELLINGS["fleet"], "--all-clusters")
            its_own = {"context": context} if "context" in own.parameters else {}
            with option_sources(settings.places), full_commands_in_errors(settings):
                result = function(settings, **arguments, **its_own) or ExitCode.DONE
            if isinstance(result, CommandResult):
                emit(settings, result)
                result = result.exit_code
            sys.stdout.flush()  # here, where a broken pipe is still reported
            raise typer.Exit(result)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(own.parameters.values())[1:]
        if parameter.name != "context"
    ]
    for parameter in (*parameters, *common):
        name_value(parameter)
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = own.replace(parameters=[first, *parameters, *others, *common], return_annotation=None)  # type: ignore[attr-defined]
    return run


def _in_other_spelling(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter of an option's other spelling."""
    kind, *_ = get_args(parameter.annotation)
    option = Annotated[kind, typer.Option(OTHER_SPELLINGS[parameter.name], hidden=True)]  # type: ignore[valid-type] # that of the option
    return parameter.replace(name=OTHER + parameter.name, annotation=option, kind=inspect.Parameter.KEYWORD_ONLY)


def check_throttle(throttle: str | None, configured: str | None = None) -> None:
    """Raise UsageError for a --throttle that is not a rate; warn of a rate that most often lacks its unit.

    `configured` is the rate of the cluster's configuration file, which applies without the option.
    """
    option, rate = ("--throttle", throttle) if throttle else (f"throttle in {conf_section()},", configured)
    if rate in UNRATED:
        return
    slow = slow_rate_warning(option, str(rate))
    if slow is not None:
        warn(slow)


def _refuse_two_forms(output: Output | None, *, as_json: bool) -> None:
    if as_json and output not in {None, Output.JSON}:
        raise UsageError(f"--json and -o {output} are different formats: give one of the two")


def _refuse_non_utf8(given: Mapping[str, object]) -> None:
    """Raise UsageError for a string argument that is not UTF-8; only paths may contain any bytes."""
    for name, value in given.items():
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise UsageError(f"{name.replace('_', ' ')} {value!r} is not UTF-8; expected text")


UNFINISHED_WORK_MESSAGE: Final = (
    "interrupted: unfinished work is in the state that a crash leaves; the same command continues it"
)
"""The last line of a command that was interrupted, unless the interruption has its own message."""

_is_reporting: Final[ContextVar[bool]] = ContextVar("is_reporting", default=False)
"""Whether this code is run by a command, which reports errors already; the demo runs other commands."""


@contextmanager
def report_errors(*, as_json: bool, result_file: Path | None) -> Iterator[None]:
    """Report an error on stderr as one message, and as the JSON object if requested; exit with its code."""

    def end_with(message: str, error: BaseException, code: ExitCode, **result: Any) -> NoReturn:  # noqa: ANN401 - part of the JSON object
        stop_handling()
        expected = isinstance(error, SurveyorError | KeyboardInterrupt)
        log(f"surveyor: {message}", logging.ERROR, None if expected else error, exit_code=int(code))
        try:
            write_json({"error": message, "exit_code": int(code), **result}, as_json, result_file)
            sys.stdout.flush()
        except OSError:  # stdout itself may be what failed, as on a full disk
            _drop_stdout()
        raise typer.Exit(code) from None

    is_nested, token = _is_reporting.get(), _is_reporting.set(True)
    with json_output(as_json=as_json, result_file=result_file):
        try:
            yield
        except KeyboardInterrupt as error:
            end_unless_own_interrupt()
            if is_nested:  # the command that runs this one reports it
                raise typer.Exit(exit_code()) from None
            end_with(str(error) or UNFINISHED_WORK_MESSAGE, error, exit_code())
        except SurveyorError as error:
            end_with(str(error), error, error.exit_code, **error.result)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            stop_handling()
            _drop_stdout()
            log("surveyor: the output was closed by its reader and is not complete", logging.ERROR)
            raise typer.Exit(ExitCode.ERROR) from None
        except Exception as error:
            if os.environ.get(DEBUG) and not logs.is_json():  # a JSON record has the stack trace anyway
                raise
            end_with(unexpected_error_message(error), error, ExitCode.ERROR)
        finally:
            _is_reporting.reset(token)


def _drop_stdout() -> None:
    """Discard buffered output, for which Python would report an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def unexpected_error_message(error: Exception) -> str:
    """Return a one-line message for an unexpected error, with known causes in the disk or a remote Spark."""
    first = strip_passwords((str(error).splitlines() or [""])[0])[:300]
    otherwise = f"unexpected {type(error).__name__}: {first}; run it again with {DEBUG}=1 to see where"
    return disk_error_message(error) or remote_error_message(error) or otherwise


def run_as_script(function: Command) -> None:
    """Run one command as a script, as under spark-submit."""
    app = CommandLine(add_completion=False)
    app.command()(function)
    run_program(app)
