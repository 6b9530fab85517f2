"""Limits of the request server: how long clients may take, and how much of the server one of them may use."""

from dataclasses import dataclass


@dataclass(slots=True)
class ServerLimits:
    """Seconds, bytes and numbers; a change applies to the next request or connection."""

    handshake_seconds: float = 10.0
    """Seconds within which a client must authenticate."""
    transfer_seconds: float = 30.0
    """Seconds within which a request must arrive once it has begun, and the client must read a response."""
    idle_seconds: float = 600.0
    """Seconds after which an idle connection is closed (`connections.max.idle.ms`)."""

    max_connections: int = 2000
    max_connections_per_address: int = 1000
    """Maximum numbers of connections; for a further one the connection that has been idle longest is closed.

    That is what Kafka does on the brokers' listener (`max.connections`, `Selector.lowestPriorityChannel`).
    """
    max_unauthenticated_connections: int = 200
    """Maximum number of unauthenticated connections; for a new one the oldest of the address that has most is closed.
    """

    large_request_bytes: int = 1 << 20
    """Bytes above which a request needs a reservation, for which it waits `transfer_seconds` at most."""
    max_items_in_loop: int = 5_000
    """Topics and partitions of a response that is encoded in the server's thread.

    A client may request the elections, or the reassignments, of all partitions of the cluster.
    """

    max_share: float = 0.2
    """Share of the thread's time for one address."""
    burst_seconds: float = 3.0
    """Seconds of the thread's time that an address may use at once: AlterPartition of some 100,000 partitions."""
