"""Lock files for the tables of a warehouse in a local or shared folder, and for vacuum and snapshots.

Delta's log store for folders (`HDFSLogStore`) checks that a version is free and then renames its commit to it, so a
commit that another process makes in between is overwritten and lost. deltalake creates commits by hard links and
overwrites none. Therefore Spark commits to a table under an exclusive lock, and deltalake's appends share the lock.
Locks are flock locks of the operating system, which releases them when the process ends for any reason. Object stores
have no such locks; only deltalake commits there, and snapshots hold a lease (`jobs.adapters.delta.warehouse_lease`).
The threads of a process, which work on the clusters of a fleet, take turns there too, so that they do not use up each
other's attempts at a commit.
"""

import fcntl
import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Final, TypeVar
from urllib.parse import quote

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from jobs.adapters.delta.warehouse_paths import is_local
from jobs.core.errors import SurveyorError

FOLDER: Final = ".locks"

VACUUM: Final = "vacuum"
"""The lock that a vacuum holds exclusively and snapshots share.

A vacuum would otherwise remove versions that a running snapshot is about to refer to.
"""

POLL_SECONDS: Final = 0.02
"""Seconds between two attempts to get a lock."""

LOCK_TIMEOUT_SECONDS: Final = 1800.0
"""Maximum seconds to wait for a lock; longer than a snapshot or a vacuum takes."""


_thread_locks: Final[dict[tuple[str, str], RLock]] = {}
"""The locks of warehouses on object stores, by warehouse and name."""


MAX_WRITE_ATTEMPTS: Final = 5
"""Attempts at a write when other commits come first."""

T = TypeVar("T")


@contextmanager
def locked(warehouse: str, name: str, *, shared: bool = False, timeout_seconds: float | None = None) -> Iterator[bool]:
    """Hold a lock of a warehouse, exclusively or `shared`; yield whether this process had to wait for it.

    Raise SurveyorError with the holder's name after `timeout_seconds`, LOCK_TIMEOUT_SECONDS by default. On object
    stores only threads of this process exclude each other.
    """
    limit = LOCK_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    if not is_local(warehouse):
        with nullcontext() if shared else _thread_lock(warehouse, name, limit):
            yield False
        return
    path = Path(warehouse, FOLDER, f"{quote(name, safe='')}.lock")
    descriptor = _opened(path)
    try:
        waited = _acquire(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, path, name, limit)
        if not shared:
            _sign(descriptor)
        yield waited
    finally:
        os.close(descriptor)


@contextmanager
def _thread_lock(warehouse: str, name: str, timeout_seconds: float) -> Iterator[None]:
    """Hold a lock that excludes other threads of this process."""
    lock = _thread_locks.setdefault((warehouse, name), RLock())
    if not lock.acquire(timeout=timeout_seconds):
        raise SurveyorError(
            f"another thread of this process has held the lock {name} of {warehouse} for {timeout_seconds:.0f} s: "
            "check whether the warehouse answers, then run the same command again",
        )
    try:
        yield
    finally:
        lock.release()


def holder(warehouse: str, name: str) -> str:
    """Return the last exclusive holder of a lock: user, host and process id."""
    with suppress(OSError):
        return Path(warehouse, FOLDER, f"{quote(name, safe='')}.lock").read_text().strip() or "another process"
    return "another process"


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:  # created by another user; a lock only needs read access
        return os.open(path, os.O_RDONLY)


def _acquire(descriptor: int, kind: int, path: Path, name: str, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
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
                f"{holder(str(path.parents[1]), name)} has held the lock {path} for {timeout_seconds:.0f} s: "
                "check whether that process still works; the lock is released when it ends",
            )
        time.sleep(POLL_SECONDS)


def _sign(descriptor: int) -> None:
    """Write the holder's name into the lock file, for the message of waiting processes."""
    holder_name = f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}"
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder_name.encode(), 0)


def write_locked(
    warehouse: str,
    table: str,
    write: Callable[[], T],
    is_conflict: Callable[[BaseException], bool],
    *,
    backoff_seconds: float,
    shared: bool = False,
    lock_seconds: float | None = None,
) -> T:
    """Write under the table's lock, exclusive or `shared`; repeat the write after a conflict, and raise the last one.

    `warehouse` is its URI. The wait after the first conflict is `backoff_seconds`, and twice as long after each further
    one. `lock_seconds` is how long to wait for the lock, as in `locked`.
    """
    retrying = Retrying(
        retry=retry_if_exception(is_conflict),
        stop=stop_after_attempt(MAX_WRITE_ATTEMPTS),
        wait=wait_exponential(backoff_seconds),
        reraise=True,
    )
    with locked(warehouse, table, shared=shared, timeout_seconds=lock_seconds):
        return retrying(write)
