"""What a terminal shows while something takes long, and what is left of it; on what is none, lines as ever."""

import os
import pty
import re
import subprocess
import sys
from signal import SIGTERM

import pytest

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
