"""ZooKeeper in memory: a tree of znodes with versions, ephemerals, one-shot watches and multis, and sessions on it.

A `Session` has those methods of kazoo's client that the controller uses, multiRead included, so that the real readers
and writers run on it unchanged. `intercept` is called before each multi, with None before each read, and without
operations before a watch is set. It may raise an error, or decide the outcome.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.serialization import CheckVersion, Create, Delete, GetData, SetData, Transaction
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

MULTI_READ: Final = 22
_EPHEMERAL, _SEQUENCE, _ANY_VERSION = 1, 2, -1

Watch = Callable[[object], None]


class Interception(Enum):
    """The outcome of a multi."""

    DONE = auto()
    LOST_AND_DONE = auto()
    """It is carried out, and the response is lost with the connection."""
    LOST = auto()
    """The connection is lost before it arrives."""


@dataclass(slots=True)
class Znode:
    data: bytes | None
    czxid: int
    owner: int
    version: int = 0
    names: set[str] = field(default_factory=set)

    def become(self, data: bytes | None, version: int) -> None:
        self.data, self.version = data, version

    @property
    def stat(self) -> ZnodeStat:
        size, children = len(self.data or b""), len(self.names)
        return ZnodeStat(self.czxid, self.czxid, 0, 0, self.version, 0, 0, self.owner, size, children, self.czxid)


@dataclass(frozen=True, slots=True)
class Write:
    """One written znode; `before` and `after` are None if it did not exist, or was deleted."""

    path: str
    before: bytes | None
    after: bytes | None
    session: int


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


@dataclass
class Tree:
    """The znodes that all sessions see. `on_writes` is called with the writes of each multi once it is done."""

    nodes: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(None, 0, 0)})
    zxid: int = 0
    on_writes: Callable[[Sequence[Write]], None] = lambda _: None
    sessions: int = 0
    writes: int = 0
    _sequence: int = 0
    _watches: dict[tuple[str, bool], list[tuple[int, Watch]]] = field(default_factory=lambda: defaultdict(list))
    """By path, and whether children are watched."""

    def new_session(self) -> int:
        self.sessions += 1
        return self.sessions

    def expire(self, session: int) -> None:
        """End a session: its ephemerals and its watches are removed."""
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self.multi([Delete(path, _ANY_VERSION)], session)
        self.drop_watches(session)

    def drop_watches(self, session: int) -> list[Watch]:
        """Remove and return the watches of a session."""
        dropped = [watch for watches in self._watches.values() for owner, watch in watches if owner == session]
        for key, watches in self._watches.items():
            self._watches[key] = [armed for armed in watches if armed[0] != session]
        return dropped

    def watch(self, path: str, session: int, watch: Watch, *, children: bool) -> None:
        self._watches[path, children].append((session, watch))

    def multi(self, ops: Sequence[Any], session: int) -> list[Any]:
        """Carry out all operations, or none; return the results that kazoo returns."""
        self.zxid += 1
        results: list[Any] = []
        undo: list[Callable[[], None]] = []
        writes: list[Write] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(op, session, undo, writes))
            except KazooException as error:
                for undo_step in reversed(undo):
                    undo_step()
                after = len(ops) - index - 1
                return [RolledBackError() for _ in range(index)] + [error] + [RuntimeInconsistency()] * after
        self.writes += len(writes)
        self.on_writes(writes)
        for write in writes:
            self._fire(write)
        return results

    def _apply(self, op: Any, session: int, undo: list[Callable[[], None]], writes: list[Write]) -> Any:  # noqa: ANN401
        if isinstance(op, Create):
            return self._create(op, session, undo, writes)
        node = self.nodes.get(op.path)
        if node is None:
            raise NoNodeError
        if op.version not in (_ANY_VERSION, node.version):
            raise BadVersionError
        if isinstance(op, CheckVersion):
            return True
        if isinstance(op, SetData):
            before, version = node.data, node.version
            undo.append(lambda: node.become(before, version))
            node.data, node.version = op.data, version + 1
            writes.append(Write(op.path, before or b"", op.data, session))
            return node.stat
        if node.names:
            raise NotEmptyError
        undo.append(lambda: self._attach(op.path, node))
        self._detach(op.path)
        writes.append(Write(op.path, node.data or b"", None, session))
        return True

    def _create(self, op: Any, session: int, undo: list[Callable[[], None]], writes: list[Write]) -> str:  # noqa: ANN401
        path = op.path
        if op.flags & _SEQUENCE:
            self._sequence += 1
            path = f"{path}{self._sequence:010d}"
        if parent_of(path) not in self.nodes:
            raise NoNodeError
        if path in self.nodes:
            raise NodeExistsError
        undo.append(lambda: self._detach(path))
        self._attach(path, Znode(op.data, self.zxid, session if op.flags & _EPHEMERAL else 0))
        writes.append(Write(path, None, op.data or b"", session))
        return str(path)

    def _attach(self, path: str, node: Znode) -> None:
        self.nodes[path] = node
        self.nodes[parent_of(path)].names.add(path.rpartition("/")[2])

    def _detach(self, path: str) -> None:
        del self.nodes[path]
        self.nodes[parent_of(path)].names.discard(path.rpartition("/")[2])

    def _fire(self, write: Write) -> None:
        keys = [(write.path, False)]
        if write.before is None or write.after is None:
            keys += [(parent_of(write.path), True), (write.path, True)]
        for key in keys:
            for _, watch in self._watches.pop(key, ()):
                watch(None)

    # used by tests, without a session
    def put(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create or overwrite a znode, with its parents."""
        if path in self.nodes and not sequence:
            self.multi([SetData(path, data, _ANY_VERSION)], 0)
            return
        if parent_of(path) not in self.nodes:
            self.put(parent_of(path))
        flags, owner = _EPHEMERAL * ephemeral | _SEQUENCE * sequence, -1 if ephemeral else 0
        self.multi([Create(path, data, None, flags)], owner)

    def set_at(self, path: str, data: bytes, version: int) -> bool:
        """Set the data if the version is this one; return whether it was."""
        return not isinstance(self.multi([SetData(path, data, version)], 0)[0], Exception)

    def remove(self, path: str) -> None:
        """Delete a znode, if it exists."""
        self.multi([Delete(path, _ANY_VERSION)], 0)

    def get(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data or b""

    def names(self, path: str) -> list[str]:
        return sorted(self.nodes[path].names) if path in self.nodes else []


class _Result:
    """A result that is available at once."""

    def __init__(self) -> None:
        self.value: Any = None

    def set(self, value: Any = None) -> None:  # noqa: ANN401
        self.value = value

    def get(self, timeout: float | None = None) -> Any:  # noqa: ANN401, ARG002 - as kazoo's
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as kazoo's
        return True


class Session:
    """One session, with the interface of kazoo's client."""

    chroot = ""
    default_acl = None
    logger = logging.getLogger("tests.zookeeper")
    handler = SimpleNamespace(async_result=_Result)

    def __init__(
        self, tree: Tree, intercept: Callable[[Sequence[Any] | None], Interception] = lambda _: Interception.DONE
    ) -> None:
        self.tree = tree
        self.intercept = intercept
        self.hosts = {("memory", 0)}
        self.client_id = (tree.new_session(), b"")
        self.over = False

    @property
    def last_zxid(self) -> int:
        return self.tree.zxid

    def expire(self) -> None:
        self.over = True
        self.tree.expire(self.client_id[0])

    def transaction(self) -> TransactionRequest:
        return TransactionRequest(self)

    def sync_async(self, path: str) -> _Result:
        return self._respond(lambda: path)

    def get_async(self, path: str) -> _Result:
        return self._respond(lambda: self._get(path), reads=True)

    def get_acls_async(self, path: str) -> _Result:
        return self._respond(lambda: (OPEN_ACL_UNSAFE, self._get(path)[1]))

    def get_children_async(self, path: str, watch: Watch | None = None) -> _Result:
        return self._respond(lambda: self._children(path, watch), watches=watch is not None)

    def exists_async(self, path: str, watch: Watch | None = None) -> _Result:
        return self._respond(lambda: self._exists(path, watch), watches=watch is not None)

    def _exists(self, path: str, watch: Watch | None) -> ZnodeStat | None:
        if watch is not None:
            self.tree.watch(path, self.client_id[0], watch, children=False)
        return self.tree.nodes[path].stat if path in self.tree.nodes else None

    def _call(self, request: Any, result: _Result) -> None:  # noqa: ANN401 - as kazoo takes requests
        if request.type == MULTI_READ:
            read = self._get if request.operation is GetData else self._children
            answered = self._respond(lambda: ([_or_error(read, path) for path in request.paths], 0), reads=True)
        else:
            answered = self._respond(lambda: self._multi(request))
        result.set(answered.value)

    def _respond(self, answer: Callable[[], Any], *, reads: bool = False, watches: bool = False) -> _Result:
        result = _Result()
        try:
            if self.over:
                raise SessionExpiredError
            if (reads or watches) and self.intercept(() if watches else None) is not Interception.DONE:
                self._disconnect()
            result.set(answer())
        except KazooException as error:
            result.set(error)
        return result

    def _multi(self, request: Transaction) -> list[Any]:
        interception = self.intercept(request.operations)
        if interception is Interception.LOST:
            self._disconnect()
        results = self.tree.multi(request.operations, self.client_id[0])
        if interception is Interception.LOST_AND_DONE:
            self._disconnect()
        return results

    def _disconnect(self) -> None:
        """Lose the connection and reconnect: all watches fire, as in kazoo."""
        for watch in self.tree.drop_watches(self.client_id[0]):
            watch(None)
        raise ConnectionLoss

    def _get(self, path: str) -> tuple[bytes | None, ZnodeStat]:
        node = self.tree.nodes.get(path)
        if node is None:
            raise NoNodeError
        return node.data, node.stat

    def _children(self, path: str, watch: Watch | None = None) -> list[str]:
        if path not in self.tree.nodes:
            raise NoNodeError
        if watch is not None:
            self.tree.watch(path, self.client_id[0], watch, children=True)
        return sorted(self.tree.nodes[path].names)


def _or_error(read: Callable[[str], Any], path: str) -> Any:  # noqa: ANN401
    try:
        return read(path)
    except NoNodeError:
        return NoNodeError.code
