"""End every process of one Airflow once stdin ends: `python end_processes.py AIRFLOW_HOME < PIPE`.

The processes are found by the AIRFLOW_HOME in their environment, because some outlive their parents, and tasks start
sessions of their own. They get SIGTERM, and SIGKILL after EXIT_SECONDS.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

EXIT_SECONDS: Final = 20


def processes(home: str) -> Iterator[int]:
    """Yield the running processes with this AIRFLOW_HOME; none on systems without /proc."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended in the meantime, or of another user
            if f"AIRFLOW_HOME={home}".encode() in environment.read_bytes().split(b"\0"):
                yield int(environment.parent.name)


def _end(home: str) -> None:
    number, deadline = signal.SIGTERM, time.monotonic() + EXIT_SECONDS
    while running := [*processes(home)]:
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        while time.monotonic() < deadline and [*processes(home)]:
            time.sleep(0.1)
        number = signal.SIGKILL


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(sys.argv[1])
