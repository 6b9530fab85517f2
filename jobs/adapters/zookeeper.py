"""ZooKeeper, read in bulk: one connection, `sync` first, many znodes a request.

kazoo reads one znode a request; ZooKeeper 3.6 and later answer many at once (multiRead, op code 22: the framing of a
multi with getData operations, each answered by its data and Stat or by an error of its own).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException, NoNodeError, OperationTimeoutError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import (
    Create,
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from jobs.errors import UnreadableError

SESSION_TIMEOUT: Final = 10.0
"""Seconds; a session that is silent for so long ends, and what is ephemeral in it goes."""

PATIENCE: Final = 15.0
"""Seconds an answer may take, reconnecting included: longer than a session lasts; kazoo itself waits for ever."""

BATCH: Final = 500
"""Znodes a request: answers stay small and requests far below jute.maxbuffer (1 MB)."""

_QUIET: Final = logging.getLogger("kazoo.surveyor")
_QUIET.setLevel(logging.CRITICAL)  # what goes wrong is raised, and said once

_ERROR: Final = -1
_NO_NODE: Final = NoNodeError.code


class Znode(NamedTuple):
    """A znode as read; absent ones have no stat."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None

    @property
    def version(self) -> int | None:
        return None if self.stat is None else int(self.stat.version)


@dataclass(frozen=True)
class _MultiRead:
    """A request as kazoo's connection takes one: its op code, its bytes, and how its answer is read."""

    operations: tuple[GetData, ...]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        framed = b"".join(
            multiheader_struct.pack(GetData.type, False, -1) + bytes(operation.serialize())  # noqa: FBT003 - framing
            for operation in self.operations
        )
        end = multiheader_struct.pack(-1, True, -1)  # noqa: FBT003 - framing
        return framed + bytes(end)

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[tuple[bytes | None, ZnodeStat] | int]:
        answers: list[tuple[bytes | None, ZnodeStat] | int] = []
        header, offset = MultiHeader.deserialize(buffer, offset)
        while not header.done:
            if header.type == _ERROR:
                answers.append(int_struct.unpack_from(buffer, offset)[0])
                offset += int_struct.size
            else:
                data, offset = read_buffer(buffer, offset)
                answers.append((data, ZnodeStat._make(stat_struct.unpack_from(buffer, offset))))
                offset += stat_struct.size
            header, offset = MultiHeader.deserialize(buffer, offset)
        return answers


@contextmanager
def connected(hosts: str, timeout: float = SESSION_TIMEOUT) -> Iterator[KazooClient]:
    """Yield a started client of `HOST:PORT[,...][/chroot]`; raise UnreadableError if nobody answers, or no more."""
    client = KazooClient(hosts=hosts, timeout=timeout, logger=_QUIET)
    try:
        # not `start`, which warns of an absent chroot; `read_cluster` says what that means
        client.start_async().wait(timeout)
        if not client.connected:
            raise UnreadableError(
                f"no ZooKeeper answered at {hosts} within {timeout:g} s; "
                "check --zookeeper HOST:PORT[,...][/chroot] and that the server runs",
            )
        yield client
    except KazooException as error:
        raise UnreadableError(
            f"ZooKeeper at {hosts} stopped answering ({type(error).__name__}); "
            "check that the server runs and is reachable, then run the command again",
        ) from error
    finally:
        client.stop()
        client.close()


def answer(pending: Any) -> Any:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    """Wait for an answer; raise OperationTimeoutError where none comes."""
    try:
        return pending.get(timeout=PATIENCE)
    except KazooTimeoutError:
        raise OperationTimeoutError(f"no answer within {PATIENCE:g} s") from None


def sync(client: KazooClient) -> None:
    """Let the server catch up with its leader, so that what is read next is not older than this call."""
    answer(client.sync_async("/"))


def commit(multi: TransactionRequest) -> list[Any]:
    """Commit a multi; return one result an operation, an exception for each if it was refused."""
    results: list[Any] = answer(multi.commit_async())
    return results


def create_null(multi: TransactionRequest, path: str) -> None:
    """Add the creation of a znode without data, as Kafka makes parents; kazoo's own would hold empty bytes."""
    rooted = _prefix_root(multi.client.chroot, path)
    multi._add(Create(rooted, None, OPEN_ACL_UNSAFE, 0), None)  # noqa: SLF001 - kazoo insists on bytes


def _ask(client: KazooClient, paths: Sequence[str]) -> Any:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    rooted = tuple(GetData(_prefix_root(client.chroot, path), None) for path in paths)
    result = client.handler.async_result()
    client._call(_MultiRead(rooted), result)  # noqa: SLF001 - kazoo offers no other door for a request of one's own
    return result


def read_many(client: KazooClient, paths: Sequence[str], batch: int = BATCH) -> list[Znode]:
    """Read znodes in the order of `paths`, absent ones included; requests are pipelined."""
    batches = [paths[start : start + batch] for start in range(0, len(paths), batch)]
    znodes: list[Znode] = []
    for asked, pending in [(asked, _ask(client, asked)) for asked in batches]:
        for path, found in zip(asked, answer(pending), strict=True):
            if isinstance(found, tuple):
                znodes.append(Znode(path, *found))
            elif found == _NO_NODE:
                znodes.append(Znode(path, None, None))
            else:
                raise UnreadableError(f"ZooKeeper answered error {found} to reading {path}; check its ACL and logs")
    return znodes


def read(client: KazooClient, path: str) -> Znode:
    """Read one znode, absent or not."""
    try:
        data, stat = answer(client.get_async(path))
    except NoNodeError:
        return Znode(path, None, None)
    return Znode(path, data, stat)


def children(client: KazooClient, path: str) -> list[str] | None:
    """Return the names under `path` in order, None where there is no such znode."""
    try:
        return sorted(answer(client.get_children_async(path)))
    except NoNodeError:
        return None
