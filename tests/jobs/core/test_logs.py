"""The log on stderr: lines for people by level, and JSON records of everything that a command says there."""

import ast
import json
import logging
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.core import logs
from jobs.core.logs import LogFormat, LogLevel
from jobs.core.signals import INTERRUPTED_MESSAGE, relay_stderr
from jobs.runtime.console import log, warn
from tests.jobs.support.commands.commands import Surveyor

NOWHERE = "127.0.0.1:1"

ON_A_TERMINAL = """\
import os, signal, time
from jobs.core import logs, signals
from jobs.runtime import progress
progress.SHOW_AFTER_SECONDS = progress.REDRAW_INTERVAL_SECONDS = 0.05
signals.install_handlers()
logs.configure(log_format=logs.LogFormat.JSON, cluster="east")
with progress.progress("writing"):
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
"""

IN_A_THREAD = """\
import threading
from jobs.core import logs
logs.configure(log_format=logs.LogFormat.JSON)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("in the process")
"""


@pytest.fixture(autouse=True)
def _default_log() -> Iterator[None]:
    yield
    logs.configure(LogLevel.INFO, LogFormat.TEXT)


def records(stderr: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stderr.splitlines()]


def test_a_level_hides_the_ones_below(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogLevel.WARNING)
    log("  ... planning: 2.1 s")
    warn("the rate is low")

    assert capsys.readouterr().err == "surveyor: warning: the rate is low\n"


def test_a_record_has_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(log_format=LogFormat.JSON, cluster="east")
    log("  controllership taken over: \x1b[2J", controller_epoch=7)
    warn("the rate is low")
    taken_over, low = records(capsys.readouterr().err)

    assert datetime.fromisoformat(taken_over.pop("time")).tzname() == "UTC"
    assert taken_over == {
        "level": "info",
        "logger": f"surveyor.{__name__}",
        "message": "controllership taken over: \x1b[2J",
        "cluster": "east",
        "controller_epoch": 7,
    }
    assert (low["level"], low["message"]) == ("warning", "the rate is low")


def test_an_error_is_a_record_and_the_result_stays(tmp_path: Path) -> None:
    ran = Surveyor(NOWHERE, tmp_path / "none")("metrics", "--log-format", "json", "--cluster", "east", "--json")
    (record,) = records(ran.stderr)

    assert (record["level"], record["cluster"], record["exit_code"]) == ("error", "east", 22)
    assert json.loads(ran.stdout)["error"] == record["message"]


def test_an_unexpected_error_has_its_stack_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr("jobs.console_output.metrics.write_metrics", fail)
    surveyor = Surveyor(NOWHERE, tmp_path / "none")
    (record,) = records(surveyor("metrics", "--log-format", "json").stderr)

    assert record["message"].startswith("unexpected ValueError: odd")
    assert record["traceback"].endswith('raise ValueError("odd")\nValueError: odd')
    assert "Traceback" not in surveyor("metrics").stderr
    assert "Traceback" in surveyor("metrics", "--log-level", "debug").stderr


def test_the_file_sets_level_and_format(tmp_path: Path) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text('log_format = "json"\nlog_level = "error"\n[clusters.default]\n')
    words = ["metrics", "--warehouse", str(tmp_path / "none"), "--conf", str(conf)]

    assert records(CliRunner().invoke(app, words).stderr)[0]["exit_code"] == 22
    assert CliRunner().invoke(app, [*words, "--log-format", "text"]).stderr.startswith("surveyor: no warehouse at")


@pytest.mark.parametrize(
    ("words", "asked"), [(["commit"], "--json"), (["show", "plan"], "-o=json"), (["status", "--nope"], "--output=json")]
)
def test_an_error_of_the_command_line_is_the_result(words: list[str], asked: str, tmp_path: Path) -> None:
    """A program reads the object where it reads any other result, and people read the usage on stderr."""
    file = tmp_path / "result.json"
    asking = asked.split("=") if asked.startswith("-o") else [asked]
    command = [sys.executable, "-m", "jobs.entry", *words, *asking, f"--result-file={file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2
    assert json.loads(done.stdout)["error"] in done.stderr
    assert file.read_text() == done.stdout


@pytest.mark.parametrize("words", [["--nope"], ["status", "--nope"], ["status", "--log-level", "loud"]])
def test_an_error_of_the_command_line_is_a_record(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobs.entry", *words],
        env=os.environ | {"SURVEYOR_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    (record,) = records(done.stderr)

    assert (done.returncode, record["exit_code"], record["level"]) == (2, 2, "error")


def test_errors_that_end_a_thread_or_the_process_are_records() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, check=False)

    assert [(record["level"], record["message"], "traceback" in record) for record in records(done.stderr)] == [
        ("critical", "unexpected ZeroDivisionError: division by zero", True),
        ("critical", "unexpected ValueError: in the process", True),
    ]


def test_no_bar_on_a_terminal_and_a_signal_is_a_record() -> None:
    reading, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL], stderr=terminal, env=os.environ | {"TERM": "xterm"}, check=False
    )
    os.write(terminal, b"|")  # what is read up to here was written before
    text = os.read(reading, 1 << 16).decode().removesuffix("|")
    os.close(reading)
    os.close(terminal)
    shown = [(record["level"], record["message"], record["cluster"]) for record in records(text)]

    assert done.returncode == 128 + signal.SIGTERM
    assert shown == [("info", "writing", "east"), ("error", INTERRUPTED_MESSAGE, "east")]


def test_lines_of_a_child_are_records(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(log_format=LogFormat.JSON)
    reading, writing = os.pipe()
    passed_on = Event()

    def log_line(line: str) -> None:
        logs.LOGGER.getChild("spark").warning(line)
        passed_on.set()

    relay_stderr(reading, without=b"known\n", log_line=log_line)
    os.write(writing, b"known\n\nout of \x1b[1mmemory\n")
    os.close(writing)

    assert passed_on.wait(60)
    (record,) = records(capsys.readouterr().err)
    assert (record["level"], record["logger"], record["message"]) == (
        "warning",
        "surveyor.spark",
        "out of \x1b[1mmemory",
    )


def test_loggers_are_named_by_one_rule() -> None:
    """Each module of jobs logs as `surveyor.` and its path below jobs; one module makes all loggers."""
    makers, named = set[str](), dict[str, str]()
    for file in sorted(Path("jobs").rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            function = ast.unparse(call.func).rpartition(".")[2]
            if function in {"getLogger", "getChild"}:
                makers.add(str(file))
            if function == "module_logger":
                named[str(file)] = ast.unparse(call.args[0])

    assert makers == {"jobs/core/logs.py"}
    assert named.pop("jobs/runtime/console.py") == "module"  # the module that calls `log`
    assert {*named.values()} == {"__name__"}


def test_a_logger_is_named_for_its_module() -> None:
    names = [logs.module_logger(name).name for name in ("jobs.adapters.brokers.channel_manager", "planner.rules")]

    assert names == ["surveyor.adapters.brokers.channel_manager", "surveyor.planner.rules"]


def test_libraries_are_quiet_below_debug_and_never_show_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logs.quiet_logger("kazoo.quiet")
    logger.error("connection lost")
    logs.configure(LogLevel.DEBUG)
    logger.debug("Sending request(xid=%s): %s", 1, "Auth(auth_type=0, scheme='digest', auth='user:x')")
    logging.getLogger("kafka.quiet").debug("SaslAuthenticateRequest(b'user:x')")

    assert capsys.readouterr().err == "kazoo.quiet: Sending request(xid=1): (hidden)\nkafka.quiet: (hidden)\n"
