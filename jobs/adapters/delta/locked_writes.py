"""Writes to a table under its lock, repeated after conflicting commits, by deltalake and by Spark."""

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from jobs.adapters.delta.locks import locked

MAX_WRITE_ATTEMPTS: Final = 5
"""Attempts at a write when other commits come first."""

T = TypeVar("T")


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
