"""A TCP proxy between a client and ZooKeeper that can lose a request, or its response after its execution.

To simulate a server without multiRead, it replaces that op code by an unknown one, and ZooKeeper answers as servers
before 3.6 do. It only parses frames and the xid and op code of requests.
"""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient

MULTI = 14
MULTI_READ = 22
SYNC = 9
CLOSE = -11
UNKNOWN = 99
PING = struct.pack(">iii", 8, -2, 11)


@dataclass
class Loss:
    """A loss of the `nth` request of a kind, or only of its response; `then` runs before clients can reconnect.

    `passed` bytes of the lost message are still delivered before the connection is cut.
    """

    op: int
    nth: int = 1
    deliver: bool = True
    passed: int = 0
    size: int = 0
    """How many bytes it was, known once it happened."""
    then: Callable[["ZooKeeperProxy"], object] | None = None
    happened: threading.Event = field(default_factory=threading.Event)


@dataclass
class Hold:
    """A request that is held back until it is released; its session lives on in the meantime."""

    matches: Callable[[int, bytes], bool]
    """Whether it is the one, by its op code and all of its bytes."""
    then: Callable[[], object]
    """Called while it is held."""
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    response: bytes = b""
    answered: threading.Event = field(default_factory=threading.Event)


class ZooKeeperProxy:
    """At most one connection at a time matters to what is lost, as a session has."""

    def __init__(self, upstream: str, *, knows_multi_read: bool = True) -> None:
        address, _, chroot = upstream.partition("/")
        host, _, port = address.partition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.chroot = chroot
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}/{chroot}"
        self.knows_multi_read = knows_multi_read
        self.unknown = 0
        """How many multiReads came that were not to be known."""
        self.sessions: list[tuple[int, bytes]] = []
        self._loss: Loss | None = None
        self._hold: Hold | None = None
        self._refusing = False
        self._sockets: list[socket.socket] = []

    def lose(self, loss: Loss) -> Loss:
        """From now on, lose that; it happens once."""
        self._loss = loss
        return loss

    def hold(self, hold: Hold) -> Hold:
        """From now on, hold that back; it happens once."""
        self._hold = hold
        return hold

    def hold_of(self, op: int, frame: bytes) -> Hold | None:
        """Return how a request is held back, None if it is not."""
        hold = self._hold
        if hold is None or not hold.matches(op, frame):
            return None
        self._hold = None
        return hold

    def refuse(self) -> None:
        """Refuse all connections from now on."""
        self._refusing = True

    def cut(self) -> None:
        """End all connections, and refuse new ones from now on."""
        self.refuse()
        for connection in self._sockets:
            _shut(connection)

    def expire_session(self) -> None:
        """Let ZooKeeper end the session that was last opened through here and not closed."""
        host, port = self._upstream
        twin = KazooClient(f"{host}:{port}", client_id=self.sessions[-1])
        twin.start()
        twin.stop()
        twin.close()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # `close` alone would leave the thread in `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            _shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            server = socket.create_connection(self._upstream)
            self._sockets += [client, server]
            _Connection(self, client, server).start()

    def due(self, op: int) -> Loss | None:
        """Count a request; the loss it falls to, if it does."""
        loss = self._loss
        if loss is None or op != loss.op:
            return None
        loss.nth -= 1
        if loss.nth:
            return None
        self._loss = None
        return loss


class _Connection:
    def __init__(self, proxy: ZooKeeperProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.lost: tuple[int, Loss] | None = None
        self.held: tuple[int, Hold] | None = None
        self.session: tuple[int, bytes] = (0, b"")

    def start(self) -> None:
        for work in (self._requests, self._answers):
            threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError:
            pass
        finally:
            _shut(self.client)
            _shut(self.server)

    def _requests(self) -> None:
        self.server.sendall(_frame(self.client))
        while True:
            frame = _frame(self.client)
            xid, op = struct.unpack_from(">ii", frame, 4)
            if op == CLOSE and self.session in self.proxy.sessions:
                self.proxy.sessions.remove(self.session)
            loss = self.proxy.due(op)
            if loss is not None and not loss.deliver:
                self._drop(loss, frame, self.server)
                return
            if loss is not None:
                self.lost = (xid, loss)
            if op == MULTI_READ and not self.proxy.knows_multi_read:
                self.proxy.unknown += 1
                frame = frame[:8] + struct.pack(">i", UNKNOWN) + frame[12:]
            hold = self.proxy.hold_of(op, frame)
            if hold is not None:
                self.held = (xid, hold)
                hold.then()
                hold.held.set()
                while not hold.released.wait(1):
                    self.server.sendall(PING)
            self.server.sendall(frame)

    def _answers(self) -> None:
        opened = _frame(self.server)
        session, length = struct.unpack_from(">qi", opened, 12)
        if session:
            self.session = (session, opened[24 : 24 + length])
            if self.session not in self.proxy.sessions:  # it may only have reconnected
                self.proxy.sessions.append(self.session)
        self.client.sendall(opened)
        while True:
            frame = _frame(self.server)
            (xid,) = struct.unpack_from(">i", frame, 4)
            if self.lost and xid == self.lost[0]:
                self._drop(self.lost[1], frame, self.client)
                return
            if self.held and xid == self.held[0]:
                self.held[1].response = frame
                self.held[1].answered.set()
            self.client.sendall(frame)

    def _drop(self, loss: Loss, frame: bytes, receiver: socket.socket) -> None:
        receiver.sendall(frame[: loss.passed])
        loss.size = len(frame)
        if loss.then:
            loss.then(self.proxy)
        loss.happened.set()
        _shut(self.client)


def _frame(stream: socket.socket) -> bytes:
    head = _exactly(stream, 4)
    return head + _exactly(stream, struct.unpack(">i", head)[0])


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


def _shut(stream: socket.socket) -> None:
    try:
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        stream.close()
