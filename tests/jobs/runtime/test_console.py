"""What a terminal shows: tables, texts of others, and the bar of progress; a pipe gets lines."""

import os
import pty
import re
import subprocess
import sys
from signal import SIGTERM

import pytest

from jobs.runtime.console import log, table, wrapped
from jobs.runtime.output import show


def test_table_lines_in_a_pipe_have_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("brokers", ["broker_id", "rack"], [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "rack": None}]))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "\u2500" not in line and "\u2501" not in line] == [
        ["brokers"],
        ["broker_id", "\u2503", "rack"],
        ["1", "\u2502", "a"],
        ["2", "\u2502"],
    ]
    assert lines == [line.rstrip() for line in lines]


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    """The lease holder, a cluster's id and a setting's value come from znodes that other clients write."""
    odd = "rack \x1b[2J\x9b\x07\r\u202e end"

    log(odd)
    show(f"{odd}\nnext line")
    show(table(odd, ["rack"], [{"rack": odd}]))

    printed = capsys.readouterr()
    shown = r"rack \x1b[2J\x9b\x07\r\u202e end"
    assert printed.err == f"{shown}\n"
    assert printed.out.splitlines()[:3] == [shown, "next line", shown]
    assert printed.out.count(shown) == 3
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e"} & {*printed.out, *printed.err}


def test_a_line_to_paste_is_not_broken() -> None:
    setting = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert wrapped(f"set {setting} there", "   -> ") == ["   -> set", f"      {setting}", "      there"]


WORK = """\
import os, signal, sys, threading, time
from jobs.core import signals
from jobs.core.units import Part
from jobs.runtime import progress as shown
from jobs.runtime.confirmation import confirm
from jobs.runtime.console import log
from jobs.runtime.progress import progress
shown.SHOW_AFTER_SECONDS, shown.REDRAW_INTERVAL_SECONDS, shown.LINE_INTERVAL_SECONDS = 0.1, 0.05, 0.1
signals.install_handlers()

def work():
    time.sleep(0.4)
"""

WRITES = """\
with progress("outer"):
    with progress("writing", lambda: Part(3, 4, "tasks")):
        work()
        log("a line")
        work()
    work()
"""

IS_KILLED = """\
with progress("writing", lambda: "slowly"):
    work()
    os.kill(os.getpid(), signal.SIGTERM)
    work()
"""

IS_KILLED_AT_A_QUESTION = """\
threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGTERM)).start()
with progress("waiting"):
    confirm("write it?")
"""


def ran(script: str, **environment: str) -> tuple[int, str]:
    """Its exit code, and all that a terminal received."""
    reading, terminal = pty.openpty()
    command = [sys.executable, "-c", WORK + script]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm", **environment}
    ) as process:
        os.close(terminal)
        output = b""
        try:
            while piece := os.read(reading, 1 << 16):
                output += piece
        except OSError:  # the process has closed the terminal
            pass
    os.close(reading)
    return process.returncode, output.decode()


def left_of(output: str) -> list[str]:
    """The lines that stand there in the end."""
    lines = output.replace("\r\n", "\n").split("\n")
    return [re.sub(r"\d+\.\d", "N", line.rpartition("\x1b[K")[2]) for line in lines]


def test_bar_is_redrawn_and_removed() -> None:
    code, output = ran(WRITES)

    assert (code, left_of(output)) == (0, ["a line", "  ... writing: N s", "  ... outer: N s", ""])
    assert output.count("\r\x1b[K  ... writing ━━━━━━━━━━━━━━━───── 3 of 4 tasks, ") > 2
    assert "\r\x1b[K  ... outer, 1 s" in output


@pytest.mark.parametrize(
    ("script", "left"),
    [
        (IS_KILLED, ["surveyor: interrupted; nothing was written to the cluster", ""]),
        (
            IS_KILLED_AT_A_QUESTION,
            ["write it? [y/N]: ", "surveyor: interrupted; nothing was written to the cluster", ""],
        ),
    ],
)
def test_last_line_has_a_line_of_its_own(script: str, left: list[str]) -> None:
    code, output = ran(script)

    assert (code, left_of(output)) == (128 + SIGTERM, left)


def test_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    code, output = ran(WRITES, TERM="dumb")

    assert (code, "\x1b" in output) == (0, False)
    assert "  ... writing: 3 of 4 tasks, 0 s so far\r\n" in output
