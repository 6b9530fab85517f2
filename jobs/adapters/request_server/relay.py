"""A client's requests that Surveyor does not serve, passed on to a broker."""

import asyncio
from dataclasses import dataclass
from struct import pack, unpack
from typing import Final

CONNECT_SECONDS: Final = 10.0
"""Seconds within which a broker must accept a connection."""

ANSWER_SECONDS: Final = 120.0
"""Seconds until a broker must have answered; a fetch or a join of a group may wait for some time."""

MAX_RESPONSE_BYTES: Final = 256 << 20
"""Maximum bytes of a broker's response."""


@dataclass(slots=True)
class Relay:
    """Passes requests to a broker on a separate connection, which is opened with the first request.

    Clients that see the controller among the live brokers ask it for metadata, coordinators and configs, which any
    broker can answer (`KafkaApis`). The correlation id is the client's, so a response is passed on unchanged.
    """

    address: tuple[str, int]
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def ask(self, data: bytes) -> bytes:
        """Send a request without its length, and return the response without its length.

        Raise OSError, EOFError or TimeoutError if the broker is gone or does not answer.
        """
        if self._reader is None or self._writer is None:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(*self.address)
        async with asyncio.timeout(ANSWER_SECONDS):
            self._writer.write(pack(">i", len(data)) + data)
            await self._writer.drain()
            (size,) = unpack(">i", await self._reader.readexactly(4))
            if not 0 < size <= MAX_RESPONSE_BYTES:
                raise OSError(f"a response of {size} bytes")
            return await self._reader.readexactly(size)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
