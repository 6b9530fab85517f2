"""Probes of `surveyor doctor`: the znodes that this client may write, and the clock of the ZooKeeper server.

No znode of the cluster changes. Write permission is tested by multis that end in a check that always fails, so none of
their operations is executed. The time is the creation time of a znode that is deleted at once.
"""

from collections.abc import Iterable
from typing import Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NoAuthError

from jobs.adapters.zookeeper.cluster_state import CONTROLLER_EPOCH, TOPICS
from jobs.adapters.zookeeper.connection import await_result, commit
from jobs.adapters.zookeeper.multi_failure import multi_failure
from jobs.adapters.zookeeper.znode_reads import children, read
from schemas.znode_paths import state_path

_PROBE: Final = "surveyor-doctor"
_NONEXISTENT: Final = f"/{_PROBE}/never"
"""A path that cannot exist, because ephemeral znodes have no children."""


def unwritable_paths(client: KazooClient) -> list[str]:
    """Return the znodes that batch mode writes and that an ACL forbids this client to write.

    / and /brokers/topics stand for creating and deleting children: /controller and new topics.
    """
    states = [state_path((topic, 0)) for topic in (children(client, TOPICS) or [])[:1]]
    closed = [path for path in ("/", TOPICS) if _is_forbidden(client, path, below=True)]
    return closed + [path for path in (CONTROLLER_EPOCH, *states) if _is_forbidden(client, path, below=False)]


def _is_forbidden(client: KazooClient, path: str, *, below: bool) -> bool:
    multi = client.transaction()
    if below:
        probe = f"{path.rstrip('/')}/{_PROBE}"
        multi.create(probe, ephemeral=True)
        multi.delete(probe)
    else:
        multi.set_data(path, read(client, path).data or b"")
    multi.check(_NONEXISTENT, 0)
    return _was_forbidden(multi, commit(multi))


def _was_forbidden(multi: TransactionRequest, results: Iterable[object]) -> bool:
    refused = multi_failure(multi, [*results])
    return refused is not None and refused.is_forbidden


def server_time(client: KazooClient) -> float | None:
    """Return the time by ZooKeeper's clock in seconds since 1970, None if this client may not create a znode."""
    try:
        path = await_result(client.create_async(f"/{_PROBE}-", ephemeral=True, sequence=True))
    except NoAuthError:
        return None
    _, stat = await_result(client.get_async(path))
    await_result(client.delete_async(path))
    return float(stat.ctime) / 1000
