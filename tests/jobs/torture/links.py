"""A TCP link that can be cut, held or slowed: a proxy on the loopback interface, with a port for each target."""

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from jobs.adapters.embedded.ports import free_port
from jobs.core.addresses import LOOPBACK

_CHUNK: Final = 65536
_POLL: Final = 0.05


class Link:
    """Forwards everything until it is cut or held; active inside its `with` block."""

    def __init__(self, name: str, *target_ports: int) -> None:
        self.name = name
        self._behind = target_ports
        self.ports = [free_port() for _ in target_ports]
        self._listeners: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self._is_cut = self._is_held = False
        self._delay = 0.0

    @property
    def hosts(self) -> str:
        """All ports, in the format of ZooKeeper's and Kafka's clients."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._is_cut = True
        self._close_connections()

    def hold(self) -> None:
        """Deliver nothing and close nothing: data is held back, as by a firewall that drops packets."""
        self._is_held = True

    def slow(self, seconds: float) -> None:
        """Deliver everything with a delay."""
        self._delay = seconds

    def lift(self) -> None:
        """Forward everything again."""
        self._is_cut = self._is_held = False
        self._delay = 0.0

    def __enter__(self) -> Self:
        for port, behind in zip(self.ports, self._behind, strict=True):
            listener = socket.create_server((LOOPBACK, port))
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, behind), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_cut = True
        for listener in self._listeners:
            _shut(listener)
        self._close_connections()

    def _close_connections(self) -> None:
        closing, self._open = self._open, []
        for connection in closing:
            _shut(connection)

    def _accept(self, listener: socket.socket, behind: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = None if self._is_cut else socket.create_connection((LOOPBACK, behind))
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(self._delay)
                while self._is_held and not self._is_cut:
                    time.sleep(_POLL)
                sink.sendall(data)
        _shut(source)
        _shut(sink)


def _shut(stream: socket.socket) -> None:
    """Close the stream and wake threads that wait in it."""
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()
