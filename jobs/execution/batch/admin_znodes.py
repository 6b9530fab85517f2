"""Requests taken away under the fence, and topics removed: what a controller does to /admin once it is done with it.

Corresponds to `KafkaController.removePartitionsFromReassignedPartitions`,
`removePartitionsFromPreferredReplicaElection`, `TopicDeletionManager.completeDeleteTopic` and the deletion of
notifications. Each multi checks /controller_epoch; what has moved on since it was read refuses the multi, and the next
cycle looks again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobs.adapters.zookeeper.cluster import CONFIGS, DELETE_TOPICS, PREFERRED_ELECTION, REASSIGN, TOPICS
from jobs.adapters.zookeeper.connection import LOST, commit, read
from jobs.adapters.zookeeper.controllership import Controllership, await_reconnect, fenced, refused_by_epoch
from jobs.adapters.zookeeper.multi import ANY_VERSION, Check, Delete, Op, SetData
from jobs.adapters.zookeeper.multi_failure import MultiFailure, multi_failure
from jobs.adapters.zookeeper.multi_read import children_of
from schemas.rows import Key
from schemas.znodes import MalformedZnodeError, TopicPartition, encode_partitions, read_partitions

_MAX_DELETES_PER_MULTI: Final = 1000
"""Znodes that a multi deletes, at most."""


class RemovedRequests(NamedTuple):
    """Requests that were taken away; where that was refused, those that were to be."""

    partitions: Sequence[TopicPartition] = ()
    refused: MultiFailure | None = None


def send(control: Controllership, ops: Sequence[Op]) -> MultiFailure | None:
    """Commit a multi; a lost answer is as good as a refusal, as the next look tells what stands."""
    multi = control.transaction(ops)
    try:
        results = commit(multi)
    except LOST as error:
        await_reconnect(control.client, control.session)
        return MultiFailure("hear about", None, error)
    if refused_by_epoch(results):
        raise fenced(control.epoch)
    return multi_failure(multi, results)


def withdraw_reassignments(control: Controllership, done: Mapping[Key, Sequence[int]]) -> RemovedRequests:
    """Take these requests out of /admin/reassign_partitions, if they still ask for the same."""
    return _rewrite(control, REASSIGN, lambda order: done.get((order.topic, order.partition)) != (order.replicas or []))


def withdraw_elections(control: Controllership, done: Collection[Key]) -> RemovedRequests:
    """Take these out of /admin/preferred_replica_election once a pass was made."""
    return _rewrite(control, PREFERRED_ELECTION, lambda each: (each.topic, each.partition) not in done)


def withdraw_deletion(control: Controllership, topic: str) -> MultiFailure | None:
    """Take the request away to delete a topic that is not there, or must not be deleted."""
    return send(control, [Delete(f"{DELETE_TOPICS}/{topic}")])


def remove_empty(control: Controllership, path: str, version: int) -> MultiFailure | None:
    """Take a request or notification away that asks for nothing, if it is as it was read."""
    return send(control, [Delete(path, version)])


def _rewrite(control: Controllership, path: str, is_left: Callable[[TopicPartition], bool]) -> RemovedRequests:
    """Leave these in a request for partitions; one that asks for nothing goes, as it is in the way of the next.

    Entries that are not understood go with the first that is done: as to Kafka, they ask for nothing.
    """
    znode = read(control.client, path)
    if znode.version is None:
        return RemovedRequests()
    try:
        requests, _ = read_partitions(znode.data)
    except MalformedZnodeError:
        return RemovedRequests()
    left = [each for each in requests if is_left(each)]
    if left and len(left) == len(requests):
        return RemovedRequests()
    write: Op = SetData(path, encode_partitions(left), znode.version) if left else Delete(path, znode.version)
    return RemovedRequests([each for each in requests if not is_left(each)], send(control, [write]))


def delete_all(control: Controllership, paths: Collection[str]) -> None:
    """Delete notifications that were read; one that cannot be, as somebody else deleted it, holds up no other."""
    for some in _chunks(sorted(paths)):
        left = [*some]
        while left and (refused := send(control, [Delete(path) for path in left])) is not None:
            if refused.path not in left:
                break  # nobody heard what became of it: the next cycle looks again
            left.remove(refused.path)


def remove_topic(control: Controllership, topic: str) -> MultiFailure | None:
    """Remove a topic whose replicas are all deleted: its states, then all that is left together with the request.

    Killed in between, the request still stands, and the next controller goes on. Its configuration goes in the same
    multi as the topic: one made anew under the name must not come by it.
    """
    root = f"{TOPICS}/{topic}"
    queued = Check(f"{DELETE_TOPICS}/{topic}", ANY_VERSION)
    for paths in _chunks(_descendants(control, root)):
        refused = send(control, [queued, *(Delete(path) for path in paths)])
        if refused is not None:
            return refused
    rest = [root, f"{CONFIGS}/{topic}", f"{DELETE_TOPICS}/{topic}"]
    return send(control, [Delete(path) for path in rest if read(control.client, path).version is not None])


def _descendants(control: Controllership, root: str) -> list[str]:
    """Everything below a topic, whoever made it, children first (`KafkaZkClient.deleteRecursive`)."""
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
