"""How a plan's reassignments are run: whom to ask, how fast to copy, how long to wait; and stopped in the middle."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType


class Via(StrEnum):
    """How Kafka's controller is asked."""

    ADMIN = "admin"
    """By the Admin API."""
    ZOOKEEPER = "zookeeper"
    """By /admin/reassign_partitions and /admin/preferred_replica_election, as before Kafka 2.4."""


@dataclass(frozen=True, slots=True)
class Running:
    """What the command line says of it."""

    via: Via = Via.ADMIN
    throttle: int | None = None
    """Bytes a second; None: as it is."""
    wait: bool = False
    """Also for the last wave."""
    max_wait: float | None = None
    """Seconds; None: as long as it takes."""

    @property
    def watches(self) -> bool:
        """Whether a plan that is committed already is still to be looked after."""
        return self.wait or self.throttle is not None


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM be what Ctrl-C is, KeyboardInterrupt, where nobody handles it otherwise."""
    handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
