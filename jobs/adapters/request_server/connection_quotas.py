"""How many connections may be open, and how many large requests may be in memory.

Corresponds to `ConnectionQuotas` and `Selector.lowestPriorityChannel`. All methods are called in the server's thread.
"""

import asyncio
import resource
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from jobs.adapters.request_server.client_warnings import ClientWarnings
from jobs.adapters.request_server.limits import ServerLimits

FEW_CONNECTIONS: Final = 200
"""Number of connections below which brokers may take turns; it is reported at the start."""

CLIENT_SHARE: Final = 0.5
"""Share of the connections that is for clients, if there is a listener only for them; brokers have the others."""

RESERVED_FILES: Final = 512
"""Open files that connections leave to the process, for ZooKeeper, the brokers and the tables."""

FILES_PER_CONNECTION: Final = 2
"""Open files that a connection needs: one for itself, and one for its relay to a broker."""

MAX_LARGE_REQUESTS: Final = 16
MAX_LARGE_REQUESTS_PER_ADDRESS: Final = 2
"""Maximum numbers of large requests that are in memory at the same time; further ones wait."""


class OpenConnection(Protocol):
    """A connection that can be closed for another one."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    @property
    def opened_at(self) -> float:
        """Time of the monotonic clock, in seconds."""

    def close(self) -> None:
        """Close the connection at once."""


def raise_max_files(max_connections: int) -> int:
    """Raise the limit of open files as far as this process may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections * FILES_PER_CONNECTION + RESERVED_FILES
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@dataclass(slots=True)
class ConnectionQuotas:
    """The open connections, and the memory that large requests have reserved."""

    warnings: ClientWarnings
    limits: ServerLimits
    max_files: int | None = None
    """Limit of open files of this process."""
    share: float = 1.0
    """Share of the connections that is counted here."""
    _connections: dict[OpenConnection, None] = field(default_factory=dict)
    """All connections that are not being closed, the oldest first."""
    _idle: dict[OpenConnection, None] = field(default_factory=dict)
    """Connections from which the next request is awaited, the one that has been idle longest first."""
    _unauthenticated: dict[OpenConnection, None] = field(default_factory=dict)
    _count_by_address: Counter[str] = field(default_factory=Counter)
    """Numbers of connections that have not ended; those that are being closed are among them."""
    _large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LARGE_REQUESTS))
    _large_by_address: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(MAX_LARGE_REQUESTS_PER_ADDRESS))
    )

    def make_room(self, address: str) -> bool:
        """Return whether a connection of an address may be opened; close another one if there are too many.

        A connection of the same address is closed, or of the address with most connections. If a request is in flight,
        it is closed only for another address.
        """
        if self._count_by_address[address] >= self.limits.max_connections_per_address:
            crowded = address
        elif self._count_by_address.total() >= self.max_connections:
            crowded = self._count_by_address.most_common(1)[0][0]
        else:
            return True
        candidates = [*self._idle, *([] if crowded == address else self._connections)]
        closed = next((connection for connection in candidates if connection.address == crowded), None)
        if closed is None:
            self.warnings.warn(
                address, f"connection from {address} rejected: connection limit reached and no idle connection to close"
            )
            return False
        self.warnings.warn(crowded, f"{crowded} has too many connections: those that have been idle longest are closed")
        self._close(closed)
        return True

    @property
    def max_connections(self) -> int:
        """Return how many connections may be open, by the limit of open files too."""
        most = self.limits.max_connections
        if self.max_files is not None:
            most = min(most, (self.max_files - RESERVED_FILES) // FILES_PER_CONNECTION)
        return max(1, int(most * self.share))

    def opened(self, connection: OpenConnection) -> None:
        """Count a new connection, which is unauthenticated; close another one if there are too many of these."""
        if len(self._unauthenticated) >= self.limits.max_unauthenticated_connections:
            addresses = Counter([connection.address, *(other.address for other in self._unauthenticated)])
            [(crowded, _)] = addresses.most_common(1)
            self._close(min(self._unauthenticated, key=lambda other: (other.address != crowded, other.opened_at)))
        self._count_by_address[connection.address] += 1
        self._connections[connection] = None
        self._unauthenticated[connection] = None

    def authenticated(self, connection: OpenConnection) -> None:
        """Count a connection no longer as unauthenticated."""
        self._unauthenticated.pop(connection, None)

    def idle_begins(self, connection: OpenConnection) -> None:
        """Note that the next request of a connection is awaited."""
        if connection in self._connections:
            self._idle[connection] = None

    def idle_ends(self, connection: OpenConnection) -> None:
        """Note that a request has begun."""
        self._idle.pop(connection, None)

    def ended(self, connection: OpenConnection) -> None:
        """Count a connection no longer, after its task has ended."""
        self._forget(connection)
        address = connection.address
        self._count_by_address[address] -= 1
        if self._count_by_address[address] <= 0:
            del self._count_by_address[address]
            self._large_by_address.pop(address, None)

    async def reserve_large_request(self, stack: AsyncExitStack, address: str) -> None:
        """Wait until there is memory for a large request; it is free again when the stack closes."""
        await stack.enter_async_context(self._large_by_address[address])
        await stack.enter_async_context(self._large)

    def _close(self, connection: OpenConnection) -> None:
        """Close a connection, whose task ends a moment later."""
        self._forget(connection)
        connection.close()

    def _forget(self, connection: OpenConnection) -> None:
        for connections in (self._connections, self._idle, self._unauthenticated):
            connections.pop(connection, None)
