"""How much of the server's thread the requests of one address may use.

Corresponds to `ClientRequestQuotaManager`, Kafka's quota on a client's share of the request handler threads. A small
request may take long to decode: four bytes are a topic without partitions. While one request is decoded, no other one
is, so a client that sends such requests would delay AlterPartition of all brokers. Clients that have proved to be
brokers, with TLS or SASL, do not wait.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from jobs.adapters.request_server.limits import ServerLimits

MAX_ADDRESSES: Final = 2000
"""Number of addresses after which those that have used nothing lately are forgotten."""

T = TypeVar("T")


@dataclass(slots=True)
class ProcessingQuota:
    """The time that each address has used; all methods are called in the server's thread."""

    limits: ServerLimits
    _free_at: dict[str, float] = field(default_factory=dict)
    """When an address has waited for all that it has used."""
    _turns: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """The next request of an address waits; the others wait for that one."""

    async def wait(self, address: str) -> None:
        """Wait until the next request of an address may be handled."""
        if self._delay(address) <= 0 and not self._turns[address].locked():
            return
        async with self._turns[address]:
            while (delay := self._delay(address)) > 0:  # noqa: ASYNC110 - responses may be charged in the meantime
                await asyncio.sleep(delay)

    def charge(self, address: str, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - those of any function
        """Return the result of some work, and charge an address with the time that it took."""
        began = time.thread_time()
        try:
            return work(*arguments)
        finally:
            self.add(address, time.thread_time() - began)

    def add(self, address: str, seconds: float) -> None:
        """Charge an address with seconds of processor time."""
        now = time.monotonic()
        if len(self._free_at) > MAX_ADDRESSES:
            self._forget(now)
        self._free_at[address] = max(now, self._free_at.get(address, now)) + seconds / self.limits.max_share

    def _delay(self, address: str) -> float:
        burst = self.limits.burst_seconds / self.limits.max_share
        return self._free_at.get(address, 0.0) - burst - time.monotonic()

    def _forget(self, now: float) -> None:
        self._free_at = {address: at for address, at in self._free_at.items() if at > now}
        self._turns = defaultdict(asyncio.Lock, {a: turn for a, turn in self._turns.items() if turn.locked()})
