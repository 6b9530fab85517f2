"""Servers as child processes that never outlive their owner.

Children get their own process session, so that Ctrl-C reaches the owner first and servers are stopped after their
clients. They stop when the `with` block ends, when the interpreter exits and, if the owner is killed, by the
kernel (`jobs.adapters.embedded.die_with_parent`).
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from jobs.adapters.embedded import die_with_parent
from jobs.adapters.embedded.ports import free_port, is_free
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError
from jobs.core.logs import module_logger

READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 20
_PORT_TAKEN = "Address already in use"

# The kernel kills watched children when the thread that started them ends, and this thread lives until exit.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="server-starter")


def four_letter_word(port: int, word: str) -> str:
    """Return ZooKeeper's response to a four-letter word, "" if there is none."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(word.encode())
            return connection.makefile().read()
    except OSError:
        return ""


class Servers(ABC):
    """Several servers that run inside a `with` block; if one fails to start, all are stopped."""

    _up: ExitStack

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Start the servers, and push onto the stack what stops each of them."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._up = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.__exit__(kind, error, trace)


class Server(ABC):
    """One Java server on the loopback interface, with its files and log in one folder.

    The port is fixed at creation, so a restarted server keeps it. A port that was chosen here is replaced once, if
    another process takes it before the first start.
    """

    def __init__(self, name: str, folder: Path, port: int | None) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.port = port or free_port()
        self._may_change_port = port is None
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration and return the command line."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether clients can use the server now."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_running() and self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and return at once; `wait_ready` waits, so several servers can start in parallel."""
        if self.is_running():
            return
        if not is_free(self.port):
            self._change_port_or_refuse()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = _STARTER.submit(_spawn, self.command(), self.folder, self.log).result()
        atexit.register(self.kill)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while not (self.is_running() and self.is_ready()):
            if not self.is_running():
                self._restart_on_new_port_or_fail()
            elif time.monotonic() > deadline:
                raise self._failure(f"is not ready after {timeout:g} s")
            time.sleep(_POLL_SECONDS)
        self._may_change_port = False

    def kill(self) -> None:
        """Send SIGKILL, so there is no controlled shutdown, as in a crash."""
        if self._process:
            self._process.kill()
            self._process.wait()
            atexit.unregister(self.kill)

    def stop(self, timeout: float = 20.0) -> None:
        """Send SIGTERM, and SIGKILL after `timeout` seconds."""
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                module_logger(__name__).warning("%s did not stop within %g s and is killed", self.name, timeout)
            self.kill()

    def restart(self, timeout: float = READY_SECONDS) -> None:
        """Stop the server if it runs, start it with the same port and folder, and wait until it is ready."""
        self.stop()
        self.start()
        self.wait_ready(timeout)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def log_of_this_run(self) -> str:
        """Return the part of the log that belongs to the current run; the file contains all runs."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _restart_on_new_port_or_fail(self) -> None:
        if not (self._may_change_port and _PORT_TAKEN in self.log_of_this_run()):
            raise self._failure(f"ended with exit code {self._process.returncode if self._process else None}")
        self.port = free_port()
        self._may_change_port = False
        self.start()

    def _change_port_or_refuse(self) -> None:
        if not self._may_change_port:
            raise SurveyorError(
                f"port {self.port} on {LOOPBACK}, meant for {self.name}, is in use by another process: "
                "stop that process, or choose another port"
            )
        self.port = free_port()

    def _failure(self, event: str) -> SurveyorError:
        tail = "\n".join(self.log_of_this_run().splitlines()[-_TAIL_LINES:])
        return SurveyorError(f"the embedded {self.name} {event}; the end of its log, {self.log}:\n{tail}")


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit if it has no handler, so that `with` blocks clean up, as after Ctrl-C."""
    handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def removed_unless_failed(
    folder: Path, *, keep: bool = False
) -> Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]:
    """Return the exit of a `with` block that removes a folder, but keeps it for its logs after an error."""

    def remove(kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if keep or (kind is not None and issubclass(kind, Exception)):
            module_logger(__name__).info("the embedded cluster's logs and data are kept in %s", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def _spawn(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    # isolated and without site-packages, for a quick start
    watched = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the checked Java with arguments of our own
            watched, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
