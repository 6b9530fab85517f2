"""A handler for kazoo that opens its connections with a given TLS context."""

import ssl

from kazoo.handlers.threading import SequentialThreadingHandler


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo is untyped
    """kazoo's handler with a given context; kazoo itself reads PEM files only, and silently retries invalid ones."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> ssl.SSLSocket:
        connection = super().create_connection(address, timeout=timeout)
        try:
            connection.settimeout(timeout)
            return self._context.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise
