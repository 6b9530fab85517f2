"""The command line without its commands: all commands are listed, and unneeded modules are not imported."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import COMMANDS, app
from schemas.columns import TABLE_COLUMNS
from tests.docs.command_checks import command_lines, fault
from tests.docs.command_line import is_group, subcommands

SPARK: Final = ("pyspark", "py4j", "delta")
WITHOUT_SPARK: Final = {
    *("cancel", "commit", "control", "dashboard", "doctor", "export", "metrics", "report"),
    *("migration", "rollback", "show", "sizes", "status", "vacuum", "verify"),
}
HEAVY: Final = (*SPARK, "pyarrow", "pandas", "numpy", "deltalake", "kafka", "confluent_kafka", "kazoo", "kio", "rich")

HELPS: Final = """\
import sys
from jobs.cli import run
for line in ["", "commit", "snapshot", "demo", "show", "show plans", "plan", "plan elect", "plan reassign"]:
    assert run([*line.split(), "--help"]) == 0
print("heavy:", *(name for name in {heavy!r} if name in sys.modules))
"""

REFUSED: Final = """\
import sys
from jobs.cli import run
lines = {{
    "show": ["plans"], "vacuum": ["--dry-run"], "migration": ["check"],
    **dict.fromkeys(["sizes", "status", "metrics", "doctor", "control"], []),
    "report": ["--out", {warehouse!r} + ".html"], "dashboard": ["--address", "203.0.113.1"],  # no machine's
    **dict.fromkeys(["cancel", "commit", "export", "rollback", "verify"], ["nosuchplan"]),
}}
for name, rest in lines.items():
    print(name, run([name, *rest, "--warehouse", {warehouse!r}]))
print("heavy:", *(name for name in {heavy!r} if name in sys.modules))
"""

COMPLETED: Final = """\
import atexit, sys
from jobs.cli import app
atexit.register(lambda: sys.stderr.write("".join(name for name in {heavy!r} if sys.modules.get(name))))
app(prog_name="surveyor")
"""
"""What a shell runs when Tab is pressed."""


def run(program: str, **environment: str) -> list[str]:
    """Run a program in an interpreter of its own; return the lines of its stdout."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """One with a snapshot of nothing."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    warehouse.ensure_tables()
    versions = {name: warehouse.version(name) for name in TABLE_COLUMNS}
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": versions}])
    return warehouse.uri


@pytest.mark.parametrize("place", COMMANDS)
def test_what_is_listed_is_what_the_command_says_of_itself(place: str) -> None:
    module, _, name = place.partition(":")
    function = getattr(import_module(module), name)
    text = function.info.help if isinstance(function, typer.Typer) else function.__doc__
    assert text == COMMANDS[place]


@pytest.mark.parametrize("group", ["", "show", "plan"])
def test_help_is_a_page(group: str) -> None:
    """Every command below what it is for, no line cut, none wider than a terminal."""
    page = CliRunner().invoke(app, [*group.split(), "--help"], env={"COLUMNS": "80"}).stdout
    listed = page.partition("\nOptions:")[0]
    lines = [command.help for _, command in subcommands(get_command(app) if not group else member(group))]

    assert (max(map(len, page.splitlines())) <= 80, "Commands:" in page) == (True, False)
    assert [line for line in lines if " ".join(line.split()) not in " ".join(listed.split())] == []


def member(group: str) -> Any:  # noqa: ANN401 - of whichever click Typer brings
    return dict(subcommands(get_command(app)))[group]


@pytest.mark.parametrize("group", ["", "show", "plan"])
def test_examples_of_help_are_taken(group: str) -> None:
    epilog = str((member(group) if group else get_command(app)).epilog)
    examples = [*command_lines(epilog.replace("\n  ", "\n\n    "))]

    assert len(examples) >= 5
    assert [line for line in examples if fault(line)] == []


def test_help_imports_nothing_that_takes_long() -> None:
    assert run(HELPS.format(heavy=HEAVY))[-1] == "heavy:"


def test_commands_without_spark_import_none_of_it(folder: str) -> None:
    """What import-linter says of their modules, said of a process; they come as far as plan and ZooKeeper."""
    lines = run(REFUSED.format(heavy=SPARK, warehouse=folder))
    assert lines[-1] == "heavy:"
    codes = {name: code for name, _, code in (line.partition(" ") for line in lines) if name in WITHOUT_SPARK}
    assert {name for name, code in codes.items() if code in {"0", "2"}} == WITHOUT_SPARK - {"doctor"}
    assert {"doctor 1", "1 fault, 0 warnings"} <= {*lines}  # no ZooKeeper was given


@pytest.mark.parametrize("line", ["", "commit", "show", "show brokers", "plan", "plan elect", "status"])
def test_h_is_help_everywhere(line: str) -> None:
    short, long = (CliRunner().invoke(app, [*line.split(), flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert "-h, --help" in short.stdout


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"surveyor {version('kafka-surveyor')}\n")


@pytest.mark.parametrize(
    ("line", "meant"), [("comit", "'commit'"), ("shw", "'show'"), ("plan assgn", "'assign', 'reassign'")]
)
def test_a_misspelt_name_is_a_usage_error_with_a_suggestion(line: str, meant: str) -> None:
    done = CliRunner().invoke(app, line.split())
    assert (done.exit_code, f"Did you mean {meant}?" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topics", "surveyor show topics"),
        ("partitions --topic orders", "surveyor show partitions --topic orders"),
        ("reassign --rebalance", "surveyor plan reassign --rebalance"),
        ("rebalance", "surveyor plan reassign --rebalance"),
        ("plan rebalance --no-refresh", "surveyor plan reassign --rebalance --no-refresh"),
        ("plan remove-brokers 3", "surveyor plan reassign --remove-brokers 3"),
        ("plan preferred", "surveyor plan elect --preferred"),
        ("plan topics", "surveyor show topics"),
        ("plan status", "surveyor status"),
        ("show drain --brokers 1", "surveyor plan drain --brokers 1"),
    ],
)
def test_what_was_meant_is_said_as_a_line_to_type(line: str, meant: str) -> None:
    done = CliRunner().invoke(app, line.split(), prog_name="surveyor")
    assert (done.exit_code, f"; type: {meant}\n" in done.stderr) == (2, True), done.stderr
    assert fault(meant.split()[1:]) is None


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("--zookeeper zk1 status", "surveyor status --zookeeper zk1"),
        ("--json show topics --snapshot 3", "surveyor show topics --snapshot 3 --json"),
        ("plan --refresh reconcile", "surveyor plan reconcile --refresh"),
    ],
)
def test_options_come_after_the_command(line: str, meant: str) -> None:
    done = CliRunner().invoke(app, line.split(), prog_name="surveyor")
    assert (done.exit_code, f"options come after the command: {meant}\n" in done.stderr) == (2, True), done.stderr
    assert fault(meant.split()[1:]) is None


def test_every_command_takes_a_form() -> None:
    """As kubectl's do; what the form does is one function's, `jobs.runtime.output.emit`."""
    without = [
        name
        for group in ("", "show", "plan")
        for name, command in subcommands(member(group) if group else get_command(app))
        if not is_group(command)
        if not any("-o" in param.opts for param in command.params)
    ]
    assert without == []


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_form_is_one_object(form: str) -> None:
    watched = CliRunner().invoke(app, ["status", "--watch", "5s", "-o", form, "--zookeeper", "127.0.0.1:1"])
    listened = CliRunner().invoke(app, ["metrics", "--listen", "9308", "-o", form])
    assert (watched.exit_code, "is one object" in watched.stderr) == (2, True), watched.stderr
    assert (listened.exit_code, "choose one of these" in listened.stderr) == (2, True), listened.stderr


def test_what_is_missing_is_called_as_the_environment_has_it(tmp_path: Path) -> None:
    nothing = {"SURVEYOR_ZOOKEEPER": "", "SURVEYOR_WAREHOUSE": "", "SURVEYOR_CONF": ""}
    without = CliRunner(env=dict.fromkeys(nothing)).invoke(app, ["status"])
    none = str(tmp_path / "none")
    typed = CliRunner().invoke(app, ["show", "plans", "--warehouse", none])
    elsewhere = CliRunner(env={"SURVEYOR_WAREHOUSE": none}).invoke(app, ["show", "plans"])
    (tmp_path / "conf.toml").write_text(f'warehouse = "{none}"')
    in_file = CliRunner(env=dict.fromkeys(nothing)).invoke(
        app, ["show", "plans", "--conf", str(tmp_path / "conf.toml")]
    )
    assert (without.exit_code, "set SURVEYOR_ZOOKEEPER" in without.stderr) == (2, True), without.stderr
    assert "check --warehouse, or" in typed.stderr
    assert (elsewhere.exit_code, "check SURVEYOR_WAREHOUSE" in elsewhere.stderr) == (22, True), elsewhere.stderr
    assert f"check warehouse in {tmp_path / 'conf.toml'}" in in_file.stderr


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("surveyor pl", ["plan"]),
        ("surveyor plan re", ["reassign", "reconcile", "recover"]),
        ("surveyor commit --mo", ["--mode"]),
        ("surveyor plan drain --mode ", ["admin", "resident"]),
    ],
)
def test_words_and_options_are_completed(words: str, completed: list[str]) -> None:
    assert sorted(completed_by_bash(words)) == completed


def completed_by_bash(words: str) -> list[str]:
    variables = {"_SURVEYOR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = [sys.executable, "-c", COMPLETED.format(heavy=SPARK)]
    done = subprocess.run(program, env=os.environ | variables, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()
