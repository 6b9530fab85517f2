"""Ctrl-C and SIGTERM end a command with one line and exit code 130 or 143, at any time.

Most commands end at once, inside the signal handler. They write to the warehouse only, where the last complete snapshot
or plan stays valid, and no stack trace of a library can appear. Code that must clean up declares it: with
`raise_on_signal` the signal raises KeyboardInterrupt, and with `defer_signals` a commit runs until the end of the
current batch and then releases the controllership. A second signal ends these commits at once, too. Unfinished work is
then as after a crash, and the next run continues it.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Final, NoReturn

from jobs.core import status_line
from jobs.core.errors import ExitCode

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

REPEAT_WINDOW_SECONDS: Final = 1.0
"""Seconds in which a second signal is ignored: users press Ctrl-C twice, and shells send it to all processes."""

RAISED_AGAIN_SECONDS: Final = 0.01
"""Seconds until an interruption is raised again that a destructor or callback dropped, which has returned by then."""

GRACE_SECONDS: Final = 5.0
"""Seconds for child processes, mainly Spark's JVM, to end by themselves and remove their temporary files."""

INTERRUPTED_MESSAGE: Final = "interrupted; nothing was written to the cluster"
INTERRUPTED_AFTER_WRITES_MESSAGE: Final = (
    "interrupted; earlier changes and requests to the cluster remain, and `surveyor verify` shows them"
)
INTERRUPTED_AGAIN_MESSAGE: Final = (
    "interrupted again and stopped at once: run the same command again, it continues from there"
)


class _InterruptMode(Enum):
    END_AT_ONCE = auto()
    RAISE = auto()
    DEFER = auto()


class _State:
    """The signal state of this process, which has one set of handlers."""

    guarded = False
    as_json = False
    result_file: Path | None = None
    mode = _InterruptMode.END_AT_ONCE
    is_uninterruptible = False
    """Whether the code that runs now must not be interrupted."""
    is_pending = False
    """Whether KeyboardInterrupt must be raised once that code has ended."""
    first_signal: tuple[signal.Signals, float] | None = None
    """The first signal received in another mode than END_AT_ONCE, and its time."""
    is_finished = False
    """Whether the last line has been written."""
    end_message = INTERRUPTED_MESSAGE
    """The last line if this process ends at once."""
    last_line_format: Callable[[str], str] = str
    """Formats the last line; takes no lock."""


_state = _State()


def install_handlers() -> None:
    """Handle both signals from now on; a signal that the parent process ignores, as nohup does, stays ignored."""
    _state.guarded = threading.current_thread() is threading.main_thread()
    if _state.guarded:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _handle)


def restore_handlers() -> None:
    """Handle signals as before, once a library has put handlers of its own before ours.

    Such a handler lets a read of the terminal continue, so that Ctrl-C at a question would have no effect. Only the
    main thread can install a handler again; in another one the library's handler stays, and ends such a read.
    """
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if threading.current_thread() is not threading.main_thread():
            signal.siginterrupt(number, True)  # noqa: FBT003 - its only parameter besides the number
        elif handler is not None:
            signal.signal(number, handler)


def is_guarded() -> bool:
    """Return whether this process is a command, whose signals are handled here."""
    return _state.guarded


def ignore_signals() -> None:
    """Ignore both signals from now on, because the command's result has been reported."""
    for number in SIGNALS:
        with suppress(ValueError):  # in another thread handlers stay unchanged
            signal.signal(number, signal.SIG_IGN)


def stop_handling() -> None:
    """Ignore signals from now on, because the command is about to report its result."""
    if _state.guarded:
        _state.is_finished = True
        ignore_signals()


@contextmanager
def json_output(*, as_json: bool, result_file: Path | None) -> Iterator[None]:
    """Report an interruption in this block as JSON as well: on stdout and in the result file."""
    outer = _state.as_json, _state.result_file
    _state.as_json, _state.result_file = as_json, result_file
    try:
        yield
    finally:
        _state.as_json, _state.result_file = outer


def set_last_line_format(last_line_format: Callable[[str], str]) -> None:
    """Set how the last line of an interrupted process is written to stderr."""
    _state.last_line_format = last_line_format


def is_interrupted() -> bool:
    """Return whether a signal was received for which deferred work should stop."""
    return _state.first_signal is not None


def exit_code() -> ExitCode:
    """Return 128 plus the signal's number, as in shells; the number for Ctrl-C if there was no signal."""
    return ExitCode(128 + (_state.first_signal[0] if _state.first_signal else signal.SIGINT))


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Let the first signal raise KeyboardInterrupt here, so that `with` and `finally` blocks clean up."""
    with _interrupt_mode(_InterruptMode.RAISE), _dropped_interrupts_raised_again():
        yield


@contextmanager
def _dropped_interrupts_raised_again() -> Iterator[None]:
    """Raise KeyboardInterrupt again where Python drops it: in a destructor, or in a callback of a library in C."""
    outer = sys.unraisablehook

    def raise_again(dropped: "sys.UnraisableHookArgs") -> None:
        if dropped.exc_type is KeyboardInterrupt and _state.first_signal is not None:
            number, _ = _state.first_signal
            _state.first_signal = None
            Timer(RAISED_AGAIN_SECONDS, signal.pthread_kill, [threading.main_thread().ident, number]).start()
        else:
            outer(dropped)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = outer


@contextmanager
def defer_signals() -> Iterator[None]:
    """Only record the first signal; code that holds the controllership checks `is_interrupted` between two batches."""
    with _interrupt_mode(_InterruptMode.DEFER):
        yield


@contextmanager
def uninterruptible() -> Iterator[None]:
    """Delay KeyboardInterrupt until this block has ended, because a half-made object of a library cannot be closed.

    Only for short blocks within `raise_on_signal`; other threads than the main one get no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
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
    _state.end_message = INTERRUPTED_AFTER_WRITES_MESSAGE  # code that cannot end at once writes to the cluster
    if is_library_call:  # the caller's handlers are restored afterwards
        install_handlers()
    try:
        yield
    finally:
        _state.mode = outer
        if is_library_call:
            _state.guarded, _state.first_signal, _state.end_message = False, None, INTERRUPTED_MESSAGE
            _state.is_finished = False  # a command within this call has reported its result, and the caller continues
            for number, handler in zip(SIGNALS, previous_handlers, strict=True):
                signal.signal(number, handler)


def end_unless_own_interrupt() -> None:
    """End the process at once if a library raised KeyboardInterrupt, as PySpark does during its start, and not we."""
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
    """Go to the next line of a terminal, as the cursor is behind ^C or a question."""
    status_line.clear()
    if (number == signal.SIGINT or status_line.is_asking()) and os.isatty(2):
        _write(2, "\n")


def end_process(code: int, line: str) -> NoReturn:
    """End this process and its children now, with one line; no handler, `finally` block or library runs afterwards."""
    ignore_signals()
    _state.is_finished = True
    status_line.end()
    # written to the descriptors, because an interrupted print holds the locks of sys.stdout and sys.stderr
    _write(2, _state.last_line_format(f"surveyor: {line}") + "\n")
    failure = json.dumps({"error": line, "exit_code": code}) + "\n"
    if _state.as_json:
        _write(1, failure)
    if _state.result_file is not None:
        with suppress(OSError):
            _state.result_file.write_text(failure, encoding="utf-8")
    _end_children()
    os._exit(code)


def _write(descriptor: int, text: str) -> None:
    with suppress(OSError):
        os.write(descriptor, text.encode())


def relay_stderr(source: int, without: bytes = b"", log_line: Callable[[str], None] | None = None) -> None:
    """Relay a child's stderr (`source` is the reading end of a pipe) to ours, in a thread, until our last line.

    After that line the output is dropped, as a JVM that is ended in the middle of work logs many errors. `without` is
    removed from the output; it is text that every child prints and users need not see. With `log_line` each line is
    logged instead.
    """

    def relay() -> None:
        while output := os.read(source, 1 << 16):
            if not _state.is_finished:
                with status_line.suspended():
                    _write(2, (output.replace(without, b"") if without else output).decode(errors="replace"))

    def relay_lines(log_line: Callable[[str], None]) -> None:
        with os.fdopen(source, errors="replace") as lines:
            for line in lines:
                if line.strip() and line.encode() != without and not _state.is_finished:
                    log_line(line.rstrip())

    target = relay if log_line is None else partial(relay_lines, log_line)
    threading.Thread(target=target, name="stderr of a child", daemon=True).start()


def _end_children() -> None:
    """Send SIGTERM to our children, and SIGKILL after GRACE_SECONDS; their own children end with them."""
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
    """Return our child processes from /proc, which also has a JVM that is just starting; empty without /proc."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended in the meantime
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                children.append(int(stat.parent.name))
    return children
