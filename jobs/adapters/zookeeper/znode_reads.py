"""Reads of single znodes, and the message for a znode that an ACL protects; `multi_read` reads many at once."""

from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from jobs.adapters.zookeeper.connection import await_result, sync
from jobs.core.errors import UnreadableError
from jobs.core.option_sources import ZOOKEEPER_CONFIG, option_name


class Znode(NamedTuple):
    """A znode as read; an absent one has no stat."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None

    @property
    def version(self) -> int | None:
        return None if self.stat is None else int(self.stat.version)


def forbidden(act: str) -> str:
    """Return the message for an operation that an ACL forbids, with the remedy.

    >>> print(forbidden("read /controller_epoch"))
    an ACL denies Surveyor permission to read /controller_epoch (NoAuth): name the brokers' user in \
--zookeeper-config, or let the ACL (of the parent, for create and delete) allow it to this host
    """
    return (
        f"an ACL denies Surveyor permission to {act} (NoAuth): name the brokers' user in "
        f"{option_name(ZOOKEEPER_CONFIG)}, or let the ACL (of the parent, for create and delete) allow it to this host"
    )


def read(client: KazooClient, path: str) -> Znode:
    """Read one znode, which may be absent; raise UnreadableError if its ACL forbids that."""
    try:
        data, stat = await_result(client.get_async(path))
    except NoNodeError:
        return Znode(path, None, None)
    except NoAuthError:
        raise UnreadableError(forbidden(f"read {path}")) from None
    return Znode(path, data, stat)


def read_latest(client: KazooClient, path: str) -> Znode:
    """Read one znode after a sync, so that the result is not older than this call."""
    sync(client)
    return read(client, path)


def children(client: KazooClient, path: str, pending: Any = None) -> list[str] | None:  # noqa: ANN401 - kazoo's IAsyncResult is untyped
    """Return the names under `path` in order, None if there is no such znode; `pending` is the sent request."""
    try:
        return sorted(await_result(pending or client.get_children_async(path)))
    except NoNodeError:
        return None
    except NoAuthError:
        raise UnreadableError(forbidden(f"read {path}")) from None
