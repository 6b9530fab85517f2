"""Runs `surveyor control` in a separate process during the demo, as in another terminal."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from signal import SIGINT
from typing import Final

from jobs.core.errors import SurveyorError

STOP_TIMEOUT_SECONDS: Final = 60.0
"""Time limit for the process to resign."""


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    process: "subprocess.Popen[bytes]"

    def until(self, happened: Callable[[], bool]) -> Callable[[], bool]:
        """Wrap a condition so that it raises SurveyorError if the process has ended."""

        def checked() -> bool:
            if self.process.poll() is not None:
                raise SurveyorError(f"`surveyor control` ended with exit code {self.process.returncode}")
            return happened()

        return checked


@contextmanager
def run_resident(arguments: Sequence[str]) -> Iterator[ResidentProcess]:
    """Run `surveyor control` within the block.

    The process has its own session, so Ctrl-C reaches only the demo, which then stops the process.
    """
    command = [sys.executable, "-m", "jobs.entry", "control", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:  # noqa: S603 - ours
        try:
            yield ResidentProcess(process)
        finally:
            process.send_signal(SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
            process.kill()
