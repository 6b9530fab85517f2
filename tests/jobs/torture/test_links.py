"""A link forwards what is sent, until it is cut or held."""

import socket
import threading
from collections.abc import Iterator

import pytest

from jobs.core.addresses import LOOPBACK
from tests.jobs.torture.links import Link


@pytest.fixture
def link() -> Iterator[Link]:
    """A link to a server that echoes what it receives."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with Link("echo", listener.getsockname()[1]) as made:
            yield made
        listener.shutdown(socket.SHUT_RDWR)


def echo(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while received := connection.recv(100):
                connection.sendall(received)


def test_a_cut_closes_and_a_held_link_delivers_later(link: Link) -> None:
    with socket.create_connection((LOOPBACK, link.ports[0]), timeout=5) as client:
        client.sendall(b"passed on")
        assert client.recv(100) == b"passed on"

        link.hold()
        client.sendall(b"held")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        link.lift()
        client.settimeout(5)
        assert client.recv(100) == b"held"

        link.cut()
        assert client.recv(100) == b""
    with socket.create_connection((LOOPBACK, link.ports[0]), timeout=5) as refused:
        assert refused.recv(100) == b""
    link.lift()
    with socket.create_connection((LOOPBACK, link.ports[0]), timeout=5) as reconnected:
        reconnected.sendall(b"passed on")
        assert reconnected.recv(100) == b"passed on"
