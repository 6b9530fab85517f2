"""Controlled shutdowns that brokers ask for, until a cycle carries them out.

Corresponds to `KafkaController.processControlledShutdown`. A shutdown elects leaders, as a failure does, so the cycle
does it, in one batch for all brokers that wait.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from schemas.response_codes import STALE_CONTROLLER_EPOCH
from schemas.rows import Key

BROKER_NOT_AVAILABLE: Final = 8
UNCHECKED_EPOCH: Final = -1
"""Broker epoch of a request before version 2, which is not compared."""


class ShutdownResponse(NamedTuple):
    """The answer to ControlledShutdown: an error, or the partitions that the broker still leads."""

    error: int
    remaining: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ShutdownRequest:
    """A ControlledShutdown request of one broker."""

    broker_id: int
    broker_epoch: int
    response: Future[ShutdownResponse] = field(default_factory=Future)


@dataclass(slots=True)
class ShutdownQueue:
    """Requests that wait for the next cycle."""

    wake: Callable[[], None]
    _waiting: SimpleQueue[ShutdownRequest] = field(default_factory=SimpleQueue)

    def submit(self, request: ShutdownRequest) -> Future[ShutdownResponse]:
        """Queue a request; may be called from any thread."""
        self._waiting.put(request)
        self.wake()
        return request.response

    def take(self) -> list[ShutdownRequest]:
        """Return the requests that wait."""
        requests = list[ShutdownRequest]()
        while True:
            try:
                requests.append(self._waiting.get_nowait())
            except Empty:
                return requests

    def stop(self) -> None:
        """Answer the requests that wait as a broker does that is not the controller."""
        for request in self.take():
            request.response.set_result(ShutdownResponse(STALE_CONTROLLER_EPOCH))
