"""Work that waits for the next cycle of the resident controller.

Corresponds to the queue of `ControllerEventManager`. Kafka's controller handles its events one at a time; here
partitions and requests are collected, and one cycle decides on all of them.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from schemas.rows import Key

POLL_INTERVAL_SECONDS: Final = 2.0
"""Seconds after which a cycle starts, although nothing woke the controller."""

FIRST_RETRY_SECONDS: Final = 0.05
"""Seconds to wait after a cycle in which every write was refused.

The pause doubles with each further such cycle, up to the poll interval.
"""

MAX_DOUBLINGS: Final = 6
"""Limit for the number of times that this pause is doubled."""


_T = TypeVar("_T")


def drained(queue: SimpleQueue[_T]) -> Iterator[_T]:
    """Remove and yield what waits in a queue, until it is empty."""
    with suppress(Empty):
        while True:
            yield queue.get_nowait()


@dataclass(slots=True)
class DueWork:
    """Partitions and requests to be decided on."""

    partitions: set[Key] = field(default_factory=set)
    requests_due: bool = False
    """Whether requests in /admin are decided on."""

    def add(self, partitions: AbstractSet[Key] = frozenset(), *, requests_due: bool = False) -> None:
        """Add partitions, and with `requests_due` the requests in /admin."""
        self.partitions |= partitions
        self.requests_due |= requests_due

    @property
    def is_due(self) -> bool:
        """Whether there is anything to decide on."""
        return self.requests_due or bool(self.partitions)


@dataclass(slots=True)
class PendingWork(DueWork):
    """Work for the next cycle."""

    failed_attempts: int = 0
    """Attempts in a row in which no change could be written."""

    def pop_all(self) -> DueWork:
        """Return the work, and clear it."""
        work = DueWork(self.partitions, self.requests_due)
        self.partitions, self.requests_due = set(), False
        return work

    @property
    def retry_delay(self) -> float:
        """Seconds until the next cycle after failed attempts."""
        return min(POLL_INTERVAL_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(self.failed_attempts, MAX_DOUBLINGS))
