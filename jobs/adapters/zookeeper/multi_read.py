"""Bulk reads: multiRead (op code 22) if the server supports it, otherwise pipelined single reads.

ZooKeeper 3.6 and later execute a multi of getData or getChildren operations and return data and Stat, children, or an
error for each. Older servers return UNIMPLEMENTED and close the connection. Each ensemble is therefore probed once,
with a single request and no other in flight. Reads have no effect: reads that a lost connection left unanswered are
sent again.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError, UnimplementedError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

from jobs.adapters.zookeeper.connection import CONNECT_TIMEOUT_SECONDS, LOST, await_result, servers_of
from jobs.adapters.zookeeper.znode_reads import Znode, forbidden
from jobs.core.errors import UnreadableError
from schemas.enums import UNKNOWN_EPOCH, UNKNOWN_VERSION
from schemas.znode_codecs import FORBIDDEN

MAX_BATCH_ZNODES: Final = 500
"""Maximum number of znodes per request."""

FIRST_BATCH_ZNODES: Final = 10
"""Znodes in the first request, when their size is still unknown."""

TARGET_RESPONSE_BYTES: Final = 1 << 20
"""Bytes that a response should not exceed; the sizes of earlier znodes determine how many the next request reads."""

MAX_REQUEST_BYTES: Final = 1 << 19
"""Maximum bytes of a request: half of jute.maxbuffer, beyond which servers close the connection."""

REQUESTS_IN_FLIGHT: Final = 4

UNKNOWN_STAT: Final = ZnodeStat._make((UNKNOWN_EPOCH, 0, 0, 0, UNKNOWN_VERSION, 0, 0, 0, 0, 0, 0))
"""Stat of a znode that exists and whose ACL forbids reading it; a write that checks this version fails."""

_OPERATION_BYTES: Final = 14
_HEADER: Final = multiheader_struct
_END: Final = bytes(multiheader_struct.pack(-1, True, -1))  # noqa: FBT003 - framing
_NO_WATCH: Final = b"\0"
_ERROR: Final = -1

ReadOperation = type[GetData] | type[GetChildren]
Reply = tuple[bytes | None, ZnodeStat] | list[str] | int
"""Data and Stat, or names of children, or an error code."""


@dataclass(frozen=True)
class _MultiRead:
    """A request for kazoo's connection: op code, serialization, and deserialization of the response."""

    operation: ReadOperation
    paths: tuple[str, ...]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        header = bytes(_HEADER.pack(self.operation.type, False, -1))  # noqa: FBT003 - framing
        parts: list[bytes] = []
        for path in (
            self.paths
        ):  # both operations are a path without a watch; kazoo's own serialization takes five times as long
            encoded = path.encode()
            parts += (header, int_struct.pack(len(encoded)), encoded, _NO_WATCH)
        return b"".join(parts) + _END

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> tuple[list[Reply], int]:
        """Return the replies and the size of the response in bytes."""
        replies: list[Reply] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if done:
                return replies, len(buffer)
            reply, offset = _READERS[kind](buffer, offset)
            replies.append(reply)


def _read_error(buffer: bytes, offset: int) -> tuple[Reply, int]:
    return int_struct.unpack_from(buffer, offset)[0], offset + int_struct.size


def _read_data(buffer: bytes, offset: int) -> tuple[Reply, int]:
    data, offset = read_buffer(buffer, offset)
    return (data, ZnodeStat._make(stat_struct.unpack_from(buffer, offset))), offset + stat_struct.size


def _read_children(buffer: bytes, offset: int) -> tuple[Reply, int]:
    (count,) = int_struct.unpack_from(buffer, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(buffer, offset)
        names.append(name)
    return sorted(names), offset


_READERS: Final[dict[int, Callable[[bytes, int], tuple[Reply, int]]]] = {
    _ERROR: _read_error,
    GetData.type: _read_data,
    GetChildren.type: _read_children,
}


class _Pending:
    """A request in flight that can be sent again; `resume` is true if this also holds after a lost connection."""

    def __init__(
        self, client: KazooClient, operation: ReadOperation, paths: Sequence[str], *, many: bool, resume: bool
    ) -> None:
        self.client, self.operation, self.paths, self.many, self.resume = client, operation, paths, many, resume
        self.requests = self._ask()

    def _ask(self) -> list[Any]:
        chroot = self.client.chroot
        rooted = tuple(chroot + path for path in self.paths)  # joining paths in kazoo takes longer than decoding
        if self.many:
            return [_call(self.client, _MultiRead(self.operation, rooted))]
        return [_call(self.client, self.operation(path, None)) for path in rooted]

    def get(self) -> tuple[list[Reply], int]:
        """Return the replies and their size in bytes."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_SECONDS
        while True:
            try:
                return self._responses()
            except UnimplementedError:  # the server also closes the connection
                self.many = False
            except LOST:
                if not self.resume or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # kazoo reconnects in this time, to another server if there is one
                self.client.sync_async("/")  # answered before the next reads, so they return nothing older than before
            self.requests = self._ask()

    def _responses(self) -> tuple[list[Reply], int]:
        if self.many:
            responses: tuple[list[Reply], int] = await_result(self.requests[0])
            return responses
        replies = [_single(pending) for pending in self.requests]
        return replies, sum(len(reply[0] or b"") for reply in replies if isinstance(reply, tuple))


def _single(pending: Any) -> Reply:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    try:
        reply: Reply = await_result(pending)
    except LOST:
        raise
    except KazooException as error:
        return int(getattr(error, "code", 0))
    return sorted(reply) if isinstance(reply, list) else reply


def _call(client: KazooClient, request: Any) -> Any:  # noqa: ANN401 - as kazoo takes requests and gives results
    result = client.handler.async_result()
    client._call(request, result)  # noqa: SLF001 - kazoo has no public way to send a custom request
    return result


_MULTI_READ_SUPPORT: Final[dict[str, bool]] = {}
"""Whether servers support multiRead, by the ensembles that this process has probed."""


def supports_multi_read(client: KazooClient) -> bool:
    """Return whether the servers of this client support multiRead; probed once an ensemble.

    A server that does not support it closes the connection. The session survives that, but requests in flight are lost.
    So a process reads something in bulk before it writes: the controllership's client never is the first.
    """
    servers = servers_of(client)
    if servers not in _MULTI_READ_SUPPORT:
        probe = _Pending(client, GetData, ("/",), many=True, resume=True)
        probe.get()
        _MULTI_READ_SUPPORT[servers] = probe.many
    return _MULTI_READ_SUPPORT[servers]


def _batches(
    client: KazooClient, operation: ReadOperation, paths: Sequence[str], *, resume: bool = False
) -> Iterator[tuple[Sequence[str], Any]]:
    """Read all paths with a few requests in flight; yield each request's paths and replies.

    The first request is sent with no other in flight, because a server without multiRead loses the requests right
    behind it.
    """
    window: deque[_Pending] = deque()
    start, size, in_flight, many = 0, FIRST_BATCH_ZNODES, 1, supports_multi_read(client)
    while start < len(paths) or window:
        while start < len(paths) and len(window) < in_flight:
            chunk = _within_request_size(client.chroot, paths[start : start + size])
            window.append(_Pending(client, operation, chunk, many=many, resume=resume))
            start += len(chunk)
        pending = window.popleft()
        replies, reply_bytes = pending.get()
        many &= pending.many  # in an ensemble of mixed versions some servers do not support it
        in_flight = REQUESTS_IN_FLIGHT
        size = max(1, min(MAX_BATCH_ZNODES, TARGET_RESPONSE_BYTES * len(replies) // max(1, reply_bytes)))
        yield pending.paths, replies


def _within_request_size(chroot: str, paths: Sequence[str]) -> Sequence[str]:
    """Return as many of the first paths as fit into a request."""
    path_overhead, total = len(chroot.encode()) + _OPERATION_BYTES, len(_END)
    for count, path in enumerate(paths):
        total += len(path.encode()) + path_overhead
        if total > MAX_REQUEST_BYTES and count:
            return paths[:count]
    return paths


def read_many(client: KazooClient, paths: Sequence[str], *, resume: bool = False) -> list[Znode]:
    """Read znodes in the order of `paths`, including absent ones; raise UnreadableError if an ACL forbids reading one.

    With `resume` the read continues after a lost connection, possibly in a new session. It must be False if the caller
    depends on its session, for example because it holds the controllership.
    """
    znodes: list[Znode] = []
    for chunk, replies in _batches(client, GetData, paths, resume=resume):
        znodes += map(_znode, chunk, replies)
    return znodes


def read_permitted(client: KazooClient, paths: Sequence[str], *, resume: bool = False) -> list[Znode]:
    """Read znodes as `read_many`; where an ACL forbids reading, the data are FORBIDDEN, which every decoder rejects.

    A caller that writes a znode depending on its data must use `read_many`.
    """
    znodes: list[Znode] = []
    for chunk, replies in _batches(client, GetData, paths, resume=resume):
        forbidden_paths = [path for path, reply in zip(chunk, replies, strict=True) if reply == NoAuthError.code]
        unread = {path: _forbidden(path, stat) for path, stat in _stats(client, forbidden_paths)}
        znodes += (unread.get(path) or _znode(path, reply) for path, reply in zip(chunk, replies, strict=True))
    return znodes


def _stats(client: KazooClient, paths: Sequence[str]) -> Iterator[tuple[str, ZnodeStat | None]]:
    """Yield the stats of forbidden znodes: UNKNOWN_STAT from servers that check the ACL for them as well.

    ZooKeeper checks it since ZOOKEEPER-2590. A znode that was deleted by now has none.
    """
    pending = [(path, client.exists_async(path)) for path in paths]
    for path, stat in pending:
        try:
            yield path, await_result(stat)
        except NoAuthError:
            yield path, UNKNOWN_STAT


def _forbidden(path: str, stat: ZnodeStat | None) -> Znode:
    return Znode(path, None if stat is None else FORBIDDEN, stat)


def children_of(
    client: KazooClient, paths: Sequence[str], *, resume: bool = False, permitted: bool = False
) -> list[list[str]]:
    """Return the names under each path, in order; an empty list if there is no such znode.

    With `permitted` the list is also empty if an ACL forbids reading it; otherwise that raises UnreadableError.
    """
    names: list[list[str]] = []
    for chunk, replies in _batches(client, GetChildren, paths, resume=resume):
        permitted_replies = ([] if permitted and reply == NoAuthError.code else reply for reply in replies)
        names += map(_names, chunk, permitted_replies)
    return names


def _znode(path: str, reply: Reply) -> Znode:
    if isinstance(reply, tuple):
        return Znode(path, *reply)
    _raise_unless_absent(path, reply)
    return Znode(path, None, None)


def _names(path: str, reply: Reply) -> list[str]:
    if isinstance(reply, list):
        return reply
    _raise_unless_absent(path, reply)
    return []


def _raise_unless_absent(path: str, reply: Reply) -> None:
    if reply == NoAuthError.code:
        raise UnreadableError(forbidden(f"read {path}"))
    if reply != NoNodeError.code:
        raise UnreadableError(f"ZooKeeper returned error {reply} for a read of {path}; check its ACL and logs")
