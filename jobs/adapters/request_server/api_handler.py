"""The sender of a request, the listener at which it arrived, and the interface of a handler."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

ApiMessage = Any
"""A request or response of kio, of any API and version."""


@dataclass(frozen=True, slots=True)
class ServerListener:
    """The listener at which requests arrive."""

    protocol: str
    """Its security protocol."""
    clients_of: str | None = None
    """Name of the brokers' listener for clients that this one stands for; None for the brokers' own listener."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    protocol: str
    """Security protocol of the listener at which the request came in."""
    principal: str
    """`User:ANONYMOUS`, `User:CN=…` of a client certificate, or `User:NAME` of SASL."""
    address: str
    client_id: str | None
    clients_of: str | None = None
    """Name of the brokers' listener for clients at which the request came in, as in `ServerListener`."""


class ApiHandler(Protocol):
    """Answers requests."""

    def versions(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs that are served at a listener, with their first and last version."""

    def relay_to(self, listener: ServerListener) -> tuple[str, int] | None:
        """Return the address of a broker that answers everything else at a listener, None if nothing else is served.

        The relay connects in plain text, and the broker sees Surveyor's address, not the client's.
        """

    def conditional_apis(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs whose requests are read here; those that `handles` does not claim are for a broker."""

    def redirected_apis(self, listener: ServerListener) -> Mapping[int, tuple[int, int]]:
        """Return the APIs that only brokers answer, and that clients may ask any broker.

        They are listed, because a client asks no other broker after it has found an API missing. If they are not
        relayed, a request ends the connection, and the client asks another broker.
        """

    def handles(self, api_key: int, request: ApiMessage) -> bool:
        """Return whether a request of such an API is answered here."""

    def submit(self, caller: Caller, api_key: int, version: int, request: ApiMessage) -> Future[ApiMessage]:
        """Answer a request without waiting; the future gets the response, or an exception closes the connection."""
