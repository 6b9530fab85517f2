"""Ctrl-C and SIGTERM: one line and one exit code, 130 or 143, at any moment of any command.

Most commands end at once, inside the signal handler: they write only to the warehouse, whose last complete snapshot or
plan stands whatever is killed, and no library's stack trace can come in between. What has something to put in order
says so: `raise_on_signal` raises KeyboardInterrupt, `defer_signals` lets a commit come to the next border between two
batches and hand the controllership back. A second signal ends these at once, too; what they had begun is what a crash
leaves, and the next run goes on from there.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from jobs.core import status_line
from jobs.core.errors import ExitCode

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

REPEAT_WINDOW_SECONDS: Final = 1.0
"""Seconds within which a second signal counts as the first: people press Ctrl-C twice, shells send it to all."""

GRACE_SECONDS: Final = 5.0
"""Seconds that children, Spark's JVM above all, have to end by themselves and remove their temporary files."""

INTERRUPTED_MESSAGE: Final = "interrupted; nothing was written to the cluster"
INTERRUPTED_AFTER_WRITES_MESSAGE: Final = (
    "interrupted; what was asked of the cluster before stands, and `surveyor verify` shows it"
)
INTERRUPTED_AGAIN_MESSAGE: Final = (
    "interrupted again and stopped at once: run the same command again, it goes on where this one was"
)


class _InterruptMode(Enum):
    END_AT_ONCE = auto()
    RAISE = auto()
    DEFER = auto()


class _State:
    """The signals of this process: there is one such state, as there is one set of handlers."""

    guarded = False
    as_json = False
    result_file: Path | None = None
    mode = _InterruptMode.END_AT_ONCE
    is_uninterruptible = False
    """Whether what runs now must not be cut in two."""
    is_pending = False
    """Whether KeyboardInterrupt is to be raised as soon as that has ended."""
    first_signal: tuple[signal.Signals, float] | None = None
    """The first signal that a way other than AT_ONCE was told of, and when."""
    is_finished = False
    """Whether the last line is said."""
    end_message = INTERRUPTED_MESSAGE
    """What is true of this process if it ends at once."""


_state = _State()


def install_handlers() -> None:
    """Handle both signals from now on; one that whoever started us ignores, as nohup does, stays ignored."""
    _state.guarded = threading.current_thread() is threading.main_thread()
    if _state.guarded:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _handle)


def is_guarded() -> bool:
    """Whether this process is a command, and its signals are handled here."""
    return _state.guarded


def ignore_signals() -> None:
    """Heed neither signal any more: the command's result is settled, and said."""
    for number in SIGNALS:
        with suppress(ValueError):  # in another thread handlers stay as they are
            signal.signal(number, signal.SIG_IGN)


def stop_handling() -> None:
    """The command knows how it ends and is about to say so: a signal that comes now has nothing to add."""
    if _state.guarded:
        _state.is_finished = True
        ignore_signals()


def set_json_output(*, as_json: bool, result_file: Path | None) -> None:
    """Give programs their JSON object, on stdout and in the result file, when the command is interrupted, too."""
    _state.as_json, _state.result_file = as_json, result_file


def interrupted() -> bool:
    """Whether a signal came that a `defer_signals` commit should stop for."""
    return _state.first_signal is not None


def exit_code() -> ExitCode:
    """128 and the signal's number, as shells have it; Ctrl-C's where there was none."""
    return ExitCode(128 + (_state.first_signal[0] if _state.first_signal else signal.SIGINT))


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Let the first signal raise KeyboardInterrupt here, so that `with` and `finally` put things in order."""
    with _interrupt_mode(_InterruptMode.RAISE):
        yield


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let the first signal only be noted: who holds the controllership looks at `interrupted` at every border."""
    with _interrupt_mode(_InterruptMode.DEFER):
        yield


@contextmanager
def uninterruptible() -> Iterator[None]:
    """Let the first signal wait for what runs here: a library's objects that were cut in two cannot be tidied up.

    For what takes no time, and is `raise_on_signal` otherwise.
    """
    outer, _state.is_uninterruptible = _state.is_uninterruptible, True
    try:
        yield
    finally:
        _state.is_uninterruptible = outer
        if _state.is_pending and not outer:
            _state.is_pending = False
            raise KeyboardInterrupt


@contextmanager
def _interrupt_mode(mode: _InterruptMode) -> Iterator[None]:
    is_library_call = not _state.guarded and threading.current_thread() is threading.main_thread()
    previous_handlers = [signal.getsignal(number) for number in SIGNALS]
    outer, _state.mode = _state.mode, mode
    _state.end_message = INTERRUPTED_AFTER_WRITES_MESSAGE  # what cannot be ended at once writes to the cluster
    if is_library_call:  # called as a library: the caller's handlers come back afterwards
        install_handlers()
    try:
        yield
    finally:
        _state.mode = outer
        if is_library_call:
            _state.guarded, _state.first_signal, _state.end_message = False, None, INTERRUPTED_MESSAGE
            for number, handler in zip(SIGNALS, previous_handlers, strict=True):
                signal.signal(number, handler)


def end_unless_own_interrupt() -> None:
    """End at once where KeyboardInterrupt is a library's doing, such as PySpark's while it starts, and not ours."""
    if _state.guarded and _state.mode is _InterruptMode.END_AT_ONCE and _state.first_signal is None:
        end_process(ExitCode.INTERRUPTED, _state.end_message)


def _handle(number: int, _frame: FrameType | None) -> None:
    now = time.monotonic()
    end_line(number)
    if _state.mode is _InterruptMode.END_AT_ONCE:
        end_process(128 + number, _state.end_message)
    if _state.first_signal is None:
        _state.first_signal = signal.Signals(number), now
        if _state.mode is _InterruptMode.RAISE:
            _state.is_pending = _state.is_uninterruptible
            if not _state.is_uninterruptible:
                raise KeyboardInterrupt
    elif now > _state.first_signal[1] + REPEAT_WINDOW_SECONDS:
        end_process(128 + number, INTERRUPTED_AGAIN_MESSAGE)


def end_line(number: int) -> None:
    """Go to the next line of a terminal: the cursor stands behind ^C, which it has just shown, or a question."""
    status_line.clear()
    if (number == signal.SIGINT or status_line.is_asking()) and os.isatty(2):
        _write(2, "\n")


def end_process(code: int, line: str) -> NoReturn:
    """End this process and its children now, with one line: no handler, `finally` or library has another word."""
    ignore_signals()
    _state.is_finished = True
    status_line.end()
    # to the descriptors themselves: what a library was just printing holds the locks of sys.stdout and sys.stderr
    _write(2, f"surveyor: {line}\n")
    answer = json.dumps({"error": line, "exit_code": code}) + "\n"
    if _state.as_json:
        _write(1, answer)
    if _state.result_file is not None:
        with suppress(OSError):
            _state.result_file.write_text(answer, encoding="utf-8")
    _end_children()
    os._exit(code)


def _write(descriptor: int, text: str) -> None:
    with suppress(OSError):
        os.write(descriptor, text.encode())


def relay_stderr(source: int, without: bytes = b"") -> None:
    """Hand a child's stderr, the reading end of a pipe, on to ours, in a thread, until our last line is said.

    A JVM that is told to end in the midst of work complains of that in many words. `without` is left out, too: what it
    says each time, and nobody needs to know.
    """

    def relay() -> None:
        while output := os.read(source, 1 << 16):
            if not _state.is_finished:
                with status_line.suspended():
                    _write(2, (output.replace(without, b"") if without else output).decode(errors="replace"))

    threading.Thread(target=relay, name="stderr of a child", daemon=True).start()


def _end_children() -> None:
    """Ask our children to end, and kill who does not; what they started has ended with them."""
    deadline = time.monotonic() + GRACE_SECONDS
    for child in _children():
        _send(child, signal.SIGTERM)
    while (remaining := _children()) and time.monotonic() < deadline:
        time.sleep(0.02)
        for child in remaining:
            with suppress(OSError):
                os.waitpid(child, os.WNOHANG)
    for child in remaining:
        _send(child, signal.SIGKILL)


def _send(child: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _children() -> list[int]:
    """Our child processes, none where there is no /proc: a JVM that is just being started is known to nobody else."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone meanwhile
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                children.append(int(stat.parent.name))
    return children
