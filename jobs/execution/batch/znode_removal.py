"""Removal of finished requests in /admin and of deleted topics, under the controller's fence.

Corresponds to `KafkaController.maybeRemoveFromZkReassignment`,
`removePartitionsFromPreferredReplicaElection`, `TopicDeletionManager.completeDeleteTopic` and the deletion of
notifications. Every multi checks /controller_epoch and the versions that were read. If a znode has changed since it was
read, ZooKeeper refuses the multi, and the next cycle reads and decides again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobs.adapters.zookeeper.cluster_state import CONFIGS, DELETE_TOPICS, PREFERRED_ELECTION, REASSIGN, TOPICS
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.adapters.zookeeper.multi_operations import ANY_VERSION, Check, Delete, Op, SetData
from jobs.adapters.zookeeper.multi_read import children_of
from jobs.adapters.zookeeper.znode_reads import read
from schemas.rows import Key
from schemas.znode_codecs import MalformedZnodeError, TopicPartition, encode_partitions, read_partitions

_MAX_DELETES_PER_MULTI: Final = 1000
"""Maximum number of znodes that one multi deletes."""


class RemovedRequests(NamedTuple):
    """The requests that were removed, or, with `refused`, those that ZooKeeper refused to remove."""

    partitions: Sequence[TopicPartition] = ()
    refused: MultiFailure | None = None


def withdraw_reassignments(control: Controllership, targets: Mapping[Key, Sequence[int]]) -> RemovedRequests:
    """Remove these reassignments from /admin/reassign_partitions if they still have the same target replicas."""
    return _rewrite(
        control, REASSIGN, lambda request: targets.get((request.topic, request.partition)) != (request.replicas or [])
    )


def withdraw_elections(control: Controllership, partitions: Collection[Key]) -> RemovedRequests:
    """Remove these partitions from /admin/preferred_replica_election after an election attempt."""
    return _rewrite(control, PREFERRED_ELECTION, lambda request: (request.topic, request.partition) not in partitions)


def withdraw_deletion(control: Controllership, topic: str) -> RemovedRequests:
    """Remove the request to delete a topic that does not exist or must not be deleted."""
    return RemovedRequests(refused=control.commit([Delete(f"{DELETE_TOPICS}/{topic}")]))


def remove_empty(control: Controllership, path: str, version: int) -> RemovedRequests:
    """Delete a request or notification that names no partition, if it still has the version that was read."""
    return RemovedRequests(refused=control.commit([Delete(path, version)]))


def _rewrite(control: Controllership, path: str, is_kept: Callable[[TopicPartition], bool]) -> RemovedRequests:
    """Keep only the requests that `is_kept` accepts, and delete the znode if none is left.

    An empty request znode must be deleted because its existence blocks the next request. Entries that cannot be decoded
    are dropped along with the first finished entry: Kafka ignores them as well.
    """
    znode = read(control.client, path)
    if znode.version is None:
        return RemovedRequests()
    try:
        requests, _ = read_partitions(znode.data)
    except MalformedZnodeError:
        return RemovedRequests()
    remaining_requests = [request for request in requests if is_kept(request)]
    if remaining_requests and len(remaining_requests) == len(requests):
        return RemovedRequests()
    write: Op = (
        SetData(path, encode_partitions(remaining_requests), znode.version)
        if remaining_requests
        else Delete(path, znode.version)
    )
    return RemovedRequests([request for request in requests if not is_kept(request)], control.commit([write]))


def delete_all(control: Controllership, paths: Collection[str]) -> None:
    """Delete notifications that have been read.

    If one of them cannot be deleted because another client has deleted it, the others are still deleted.
    """
    for chunk in _chunks(sorted(paths)):
        remaining = [*chunk]
        while remaining and (refused := control.commit([Delete(path) for path in remaining])) is not None:
            if refused.path not in remaining:
                break  # the answer was lost: the next cycle reads the notifications again
            remaining.remove(refused.path)


def remove_topic(control: Controllership, topic: str) -> RemovedRequests:
    """Remove a topic whose replicas are all deleted: first its states, then topic, config and request at once.

    If this process is killed in between, the deletion request still exists and the next controller continues. The
    config is deleted in the same multi as the topic, so that a topic created again under this name does not inherit it.
    """
    root = f"{TOPICS}/{topic}"
    queued = Check(f"{DELETE_TOPICS}/{topic}", ANY_VERSION)
    for paths in _chunks(_descendants(control, root)):
        refused = control.commit([queued, *(Delete(path) for path in paths)])
        if refused is not None:
            return RemovedRequests(refused=refused)
    rest = [root, f"{CONFIGS}/{topic}", f"{DELETE_TOPICS}/{topic}"]
    existing = [path for path in rest if read(control.client, path).version is not None]
    return RemovedRequests(refused=control.commit([Delete(path) for path in existing]))


def _descendants(control: Controllership, root: str) -> list[str]:
    """Return all znodes below a path, no matter which client created them, children first.

    Corresponds to `KafkaZkClient.deleteRecursive`.
    """
    paths: list[str] = []
    level = [root]
    while level:
        level = [
            f"{folder}/{name}"
            for folder, names in zip(level, children_of(control.client, level), strict=True)
            for name in names
        ]
        paths += level
    return paths[::-1]


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _MAX_DELETES_PER_MULTI):
        yield paths[start : start + _MAX_DELETES_PER_MULTI]
