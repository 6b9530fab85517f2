"""Polling: a read is repeated until its result is enough."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_not_result, stop_after_delay, wait_fixed

T = TypeVar("T")

POLL_SECONDS: Final = 0.2
"""Seconds between two reads in `poll_until`."""


def poll_until(read: Callable[[], T], is_enough: Callable[[T], bool], timeout: float) -> T:
    """Call `read` until `is_enough`, for at most `timeout` seconds; return its last result."""
    is_pending = retry_if_not_result(is_enough)
    return Retrying(
        retry=is_pending,
        stop=stop_after_delay(timeout),
        wait=wait_fixed(POLL_SECONDS),
        retry_error_callback=_last_result,
    )(read)


def _last_result(state: RetryCallState) -> Any:  # noqa: ANN401 - any result
    return state.outcome.result() if state.outcome else None
