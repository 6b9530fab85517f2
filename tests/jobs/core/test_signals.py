"""What is said last where a signal comes late, or on a terminal: one line, and a true one."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
import typer

from jobs.adapters.brokers.admin_client import _AdminClient
from jobs.core.signals import (
    INTERRUPTED_AFTER_WRITES_MESSAGE,
    INTERRUPTED_MESSAGE,
    raise_on_signal,
    relay_stderr,
    stop_handling,
    uninterruptible,
)
from jobs.runtime.options import report_errors

LATE = """\
import os, signal
from jobs.core.signals import stop_handling, defer_signals, install_handlers
install_handlers()
{before}
os.kill(os.getpid(), signal.{name})
print("goes on", flush=True)
"""
SETTLED, WRITTEN = "stop_handling()", "with defer_signals(): pass"


def ended(before: str, name: str, stderr: int) -> tuple[int, str]:
    program = LATE.format(before=before, name=name)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("before", "name", "code", "line"),
    [
        ("", "SIGINT", 130, f"\r\nsurveyor: {INTERRUPTED_MESSAGE}\r\n"),
        ("", "SIGTERM", 143, f"surveyor: {INTERRUPTED_MESSAGE}\r\n"),
        (WRITTEN, "SIGTERM", 143, f"surveyor: {INTERRUPTED_AFTER_WRITES_MESSAGE}\r\n"),
        (SETTLED, "SIGINT", 0, ""),
    ],
)
def test_last_words_on_a_terminal(before: str, name: str, code: int, line: str) -> None:
    """A command that has reported its end adds nothing, and one that has written does not deny it."""
    reading, terminal = pty.openpty()

    end = ended(before, name, terminal)
    os.write(terminal, b"|")  # what is read up to here was said before

    assert end == (code, "goes on\n" if code == 0 else "")
    assert os.read(reading, 1 << 10).decode().removesuffix("|") == line
    os.close(reading)
    os.close(terminal)


def test_elsewhere_there_is_no_empty_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert ended("", signal.SIGINT.name, 2) == (130, "")
    assert capfd.readouterr().err == f"surveyor: {INTERRUPTED_MESSAGE}\n"


def test_a_command_within_a_library_call_does_not_silence_what_follows() -> None:
    """A notebook goes on after it, and shows what its children write to stderr."""
    reading, writing = os.pipe()
    lines: SimpleQueue[str] = SimpleQueue()

    with raise_on_signal():
        stop_handling()
    relay_stderr(reading, log_line=lines.put)
    os.write(writing, b"out of memory\n")
    os.close(writing)

    assert lines.get(timeout=60) == "out of memory"


def test_an_interruption_of_a_request_is_raised_after_its_answer() -> None:
    """kafka-python would drop it in its event loop, and the command would go on."""
    client, answers = _AdminClient.__new__(_AdminClient), list[str]()

    def run(answer: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        answers.append(answer)

    client._run = run  # noqa: SLF001 - kafka-python's, which connects
    with pytest.raises(KeyboardInterrupt), raise_on_signal():
        client._run_call("accepted")  # noqa: SLF001 - what every request goes through
    assert answers == ["accepted"]


class Interrupted:
    """An object whose destructor is interrupted, where Python prints an exception and goes on."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interruption_of_a_destructor_is_raised_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    def end_of_life() -> None:
        Interrupted()
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), raise_on_signal():
        end_of_life()
    assert capsys.readouterr().err == ""


def test_other_threads_raise_no_interruption() -> None:
    def interrupt() -> None:
        with uninterruptible():
            os.kill(os.getpid(), signal.SIGINT)

    def wait(thread: ThreadPoolExecutor) -> None:
        thread.submit(interrupt).result()
        time.sleep(60)

    with ThreadPoolExecutor(1) as thread, pytest.raises(KeyboardInterrupt), raise_on_signal():
        wait(thread)


def interrupt_within_another_command() -> None:
    with report_errors(as_json=False, result_file=None):
        with pytest.raises(typer.Exit), report_errors(as_json=False, result_file=None):
            raise KeyboardInterrupt
        raise KeyboardInterrupt("interrupted: the demo is over")


def test_a_command_within_another_leaves_the_last_line_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the demo, which runs other commands."""
    with pytest.raises(typer.Exit) as end:
        interrupt_within_another_command()

    assert end.value.exit_code == 130
    assert capsys.readouterr().err == "surveyor: interrupted: the demo is over\n"


def test_a_command_in_another_thread_reports_its_own_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Two commands of one process do not run within each other, as in a notebook."""

    def interrupt() -> None:
        with pytest.raises(typer.Exit), report_errors(as_json=False, result_file=None):
            raise KeyboardInterrupt("interrupted: the other command is over")

    with report_errors(as_json=False, result_file=None), ThreadPoolExecutor(1) as pool:
        pool.submit(interrupt).result(timeout=60)

    assert capsys.readouterr().err == "surveyor: interrupted: the other command is over\n"


WITHIN = """\
from pathlib import Path
from jobs.core.signals import json_output
outer = json_output(as_json=True, result_file=None)
outer.__enter__()
with json_output(as_json=False, result_file=Path("/nonexistent/result.json")): pass
"""


def test_an_interruption_after_a_command_within_another_is_reported_as_the_outer_one_asks() -> None:
    code, stdout = ended(WITHIN, signal.SIGTERM.name, subprocess.DEVNULL)

    assert (code, json.loads(stdout)) == (143, {"error": INTERRUPTED_MESSAGE, "exit_code": 143})
