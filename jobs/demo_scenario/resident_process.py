"""`surveyor control` beside the story, as in another terminal: a process of its own, which Ctrl-C ends."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from signal import SIGINT
from typing import Final

from jobs.core.errors import SurveyorError

STOP_TIMEOUT_SECONDS: Final = 60.0
"""Seconds that it may take to resign."""


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    process: "subprocess.Popen[bytes]"

    def until(self, happened: Callable[[], bool]) -> Callable[[], bool]:
        """Make a condition that fails at once, should the process have ended before."""

        def looked() -> bool:
            if self.process.poll() is not None:
                raise SurveyorError(f"`surveyor control` ended with exit code {self.process.returncode}")
            return happened()

        return looked


@contextmanager
def run_resident(arguments: Sequence[str]) -> Iterator[ResidentProcess]:
    """Let it be the controller inside the block; its session is its own, so that Ctrl-C is the story's to hand on."""
    command = [sys.executable, "-m", "jobs.entry", "control", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:  # noqa: S603 - ours
        try:
            yield ResidentProcess(process)
        finally:
            process.send_signal(SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
            process.kill()
