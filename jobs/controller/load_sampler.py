"""Samples of offsets and sizes while this process is the controller, by a process of their own.

To decode the offsets of a million partitions takes seconds of processor time, for which the threads of the controller
would wait. The process is `surveyor load sample --every`. It is started again if it ends, and it ends with this one.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from jobs.adapters.embedded import die_with_parent
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_options

RESTART_SECONDS: Final = 60.0
"""Seconds until a sampler is started again that has ended."""

STOP_SECONDS: Final = 5.0
"""Seconds for a sampler to end after SIGTERM."""


@contextmanager
def running_sampler(settings: Settings, period: str | None) -> Iterator[None]:
    """Take samples at these intervals until the block ends; none without a period."""
    if period is None:
        yield
        return
    words = ["load", "sample", "--every", period]
    with repeated_process([sys.executable, "-m", "jobs.entry", *words, *command_options(settings, *words)]):
        yield


@contextmanager
def repeated_process(command: Sequence[str], restart_seconds: float = RESTART_SECONDS) -> Iterator[None]:
    """Run a command, again each time that it ends, until the block ends; only its stderr is shown."""
    stopped, running = Event(), list[subprocess.Popen[bytes]]()

    def run() -> None:
        while not stopped.is_set():
            # the kernel ends it with this thread
            watched = [sys.executable, die_with_parent.__file__, str(os.getpid()), *command]
            with subprocess.Popen(watched, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:  # noqa: S603 - our own command line
                running[:] = [process]
                if stopped.is_set():
                    process.terminate()
                code = process.wait()
            if not stopped.is_set():
                log(f"surveyor: the sampler has ended with exit code {code}, and is started again", logging.WARNING)
                stopped.wait(restart_seconds)

    thread = Thread(target=run, name="sampler")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        for process in running:
            process.terminate()
        thread.join(STOP_SECONDS)
        for process in running:
            process.kill()
        thread.join()
