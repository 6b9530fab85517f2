"""Locks beside the tables of a warehouse in a local or shared folder: who may commit, and who may take a snapshot.

Delta's log store for folders looks whether a version is free and then renames its commit to it (`HDFSLogStore`): a
commit of another process that comes in between is replaced and lost. deltalake links its commits and replaces none. So
Spark commits to a table while no other process does, and deltalake's commits, which do not disturb each other, share.
A lock is the operating system's (flock) and ends with its process, whatever ends that. Object stores have none: there
deltalake alone commits.
"""

import fcntl
import getpass
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jobs.adapters.delta.warehouse_paths import is_local
from jobs.core.errors import SurveyorError

FOLDER: Final = ".locks"

VACUUM: Final = "vacuum"
"""The lock that a vacuum holds alone and snapshots share: it would remove versions that they are about to name."""

POLL_SECONDS: Final = 0.02
"""Seconds between two looks whether a lock is free."""

LOCK_TIMEOUT_SECONDS: Final = 1800.0
"""Seconds that a lock is waited for: longer than a snapshot or a vacuum takes."""


@contextmanager
def locked(warehouse: str, name: str, *, shared: bool = False) -> Iterator[bool]:
    """Hold a lock of a warehouse, alone or together with others that share it; yield whether it had to be waited for.

    Raise SurveyorError, which names the holder, where it is not free in time.
    """
    if not is_local(warehouse):
        yield False
        return
    path = Path(warehouse, FOLDER, f"{quote(name, safe='')}.lock")
    descriptor = _opened(path)
    try:
        waited = _acquire(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, path, name)
        if not shared:
            _sign(descriptor)
        yield waited
    finally:
        os.close(descriptor)


def holder(warehouse: str, name: str) -> str:
    """Name the process that held a lock last, or holds it: user, host and process id."""
    with suppress(OSError):
        return Path(warehouse, FOLDER, f"{quote(name, safe='')}.lock").read_text().strip() or "another process"
    return "another process"


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:  # another user made it, and a lock needs no more than to read
        return os.open(path, os.O_RDONLY)


def _acquire(descriptor: int, kind: int, path: Path, name: str) -> bool:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    waited = False
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
        else:
            return waited
        if time.monotonic() > deadline:
            raise SurveyorError(
                f"{holder(str(path.parents[1]), name)} has held the lock {path} for {LOCK_TIMEOUT_SECONDS:.0f} s: "
                "see whether that process still works; the lock is free once it ends",
            )
        time.sleep(POLL_SECONDS)


def _sign(descriptor: int) -> None:
    """Leave word of who holds it, for those that wait."""
    who = f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}"
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, who.encode(), 0)
