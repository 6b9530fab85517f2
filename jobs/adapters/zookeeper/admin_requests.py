"""Kafka's controller, asked through ZooKeeper: requests it finds in /admin, carries out, and takes away again.

Corresponds to `KafkaZkClient.createPartitionReassignment` and `createPreferredReplicaElection`, and is the only way
before Kafka 2.4. A request is created, never altered: where one stands already, it is somebody else's, or the same one
that an earlier try left. Only who calls its own moves back puts other targets into it, as `override` does.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from jobs.adapters.zookeeper.cluster import CONTROLLER, CONTROLLER_EPOCH, PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.connection import (
    LOST,
    Znode,
    commit,
    connected,
    read,
    read_latest,
    use_kafka_acl,
    with_retries,
)
from jobs.adapters.zookeeper.controllership import refused_by_epoch
from jobs.adapters.zookeeper.multi_failure import multi_failure
from jobs.core.errors import RefusedError, SurveyorError
from schemas.rows import Key
from schemas.znodes import MalformedZnodeError, TopicPartition, decode_partitions, encode_partitions

MAX_REQUEST_BYTES: Final = 900_000
"""Bytes of one request: ZooKeeper takes a packet of 1 MB (jute.maxbuffer), the rest is for paths and headers."""

_MAX_ATTEMPTS: Final = 5
_MIN_POLL_SECONDS: Final = 0.05
_MAX_POLL_SECONDS: Final = 2.0


Targets = Mapping[Key, list[int]]
"""Where partitions are going, by topic and partition."""


Recheck = Callable[[Sequence[TopicPartition]], Sequence[TopicPartition]]
"""Returns, right before a request is placed, the partitions that may still be part of it."""


class RequestExistsError(RefusedError):
    """A request that is not ours stands there already."""


@dataclass(frozen=True, slots=True)
class ZnodeRequests:
    """Places requests in /admin and waits until they are taken away; `refuse_late` raises when that takes too long."""

    hosts: str
    refuse_late: Callable[[], None]

    def reassign(
        self, targets: Targets, earlier: Collection[TopicPartition] = (), recheck: Recheck = lambda chunk: chunk
    ) -> None:
        """Request reassignments, in as many znodes as it takes, and wait for each: it goes once all of it is complete.

        `earlier` are requests of a try before, to be waited for first; `judge` is asked before each znode, which may
        come long after the first.
        """
        partitions = [TopicPartition(*key, replicas) for key, replicas in sorted(targets.items())]
        with connected(self.hosts) as client:
            self._wait(client, REASSIGN, earlier)
        self._place_all(REASSIGN, partitions, recheck)

    def elect_preferred(self, partitions: Sequence[Key]) -> None:
        """Request preferred elections, and wait: the znode goes after one pass, whatever became of it."""
        self._place_all(PREFERRED_ELECTION, [TopicPartition(*key) for key in sorted(partitions)])

    def _place_all(
        self, path: str, partitions: Sequence[TopicPartition], recheck: Recheck = lambda chunk: chunk
    ) -> None:
        with connected(self.hosts) as client:
            use_kafka_acl(client)
            for chunk in chunks(partitions, MAX_REQUEST_BYTES):
                due = recheck(chunk)
                if due:
                    _place(client, path, encode_partitions(due))
                    self._wait(client, path, due)

    def _wait(self, client: KazooClient, path: str, ours: Collection[TopicPartition]) -> None:
        """Wait until none of ours stands there."""
        pause = _MIN_POLL_SECONDS
        identities = set(map(_identity, ours))
        while any(
            _identity(each) in identities for each in _partitions_in(with_retries(lambda: read_latest(client, path)))
        ):
            self.refuse_late()
            time.sleep(pause)
            pause = min(_MAX_POLL_SECONDS, 1.5 * pause)


def override(client: KazooClient, targets: Targets, versions: Mapping[str, int]) -> bool:
    """Let the request be for these targets, whatever it asks for the same partitions, and beside all others.

    `versions`: znodes by path that must not have moved on; False where one has, or the request was too late. Raises
    SurveyorError where ZooKeeper does not take it.
    """

    def with_targets(requests: Sequence[TopicPartition]) -> list[TopicPartition]:
        kept = [each for each in requests if (each.topic, each.partition) not in targets]
        return [*kept, *(TopicPartition(*key, to) for key, to in sorted(targets.items()))]

    return _rewrite(client, with_targets, lambda: versions)


def withdraw(client: KazooClient, partitions: Collection[Key]) -> None:
    """Take the requests for these partitions away; raise SurveyorError where ZooKeeper does not take that.

    Under the epoch of the controller that is there: one that comes meanwhile reads the request, and is asked again.
    """

    def without(requests: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [each for each in requests if (each.topic, each.partition) not in partitions]

    def epoch() -> dict[str, int]:
        version = read(client, CONTROLLER_EPOCH).version
        return {} if version is None else {CONTROLLER_EPOCH: version}

    for _ in range(_MAX_ATTEMPTS):
        if _rewrite(client, without, epoch):
            return
    raise SurveyorError(f"{REASSIGN} could not be written: the controller changed {_MAX_ATTEMPTS} times; try again")


def _rewrite(
    client: KazooClient,
    edit: Callable[[Sequence[TopicPartition]], Sequence[TopicPartition]],
    versions: Callable[[], Mapping[str, int]],
) -> bool:
    """Write what `edit` makes of the request; False where one of the `versions` has moved on. An empty request goes."""
    for _ in range(_MAX_ATTEMPTS):
        checked, current = versions(), read_latest(client, REASSIGN)
        try:
            requests = [] if current.stat is None else decode_partitions(current.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{REASSIGN} is not understood ({error}): `delete {REASSIGN}` in zookeeper-shell clears it"
            ) from None
        edited = edit(requests)
        if edited == requests:
            return True
        request = encode_partitions(edited)
        if len(request) > MAX_REQUEST_BYTES:
            raise RefusedError(
                f"{REASSIGN} would take {len(request):,} bytes, more than {MAX_REQUEST_BYTES:,}: wait, then try again"
            )
        multi = _replacement(client, checked, current.version, request if edited else None)
        try:
            refused = multi_failure(multi, commit(multi))
        except LOST:
            continue  # what stands there says whether it was heard
        if refused is None:
            return True
        if refused.forbidden:
            raise SurveyorError(str(refused))
        if refused.path != REASSIGN:
            return False
    raise SurveyorError(f"{REASSIGN} could not be written: it changed {_MAX_ATTEMPTS} times; try again")


def _replacement(client: KazooClient, checked: Mapping[str, int], version: int | None, request: bytes | None) -> Any:  # noqa: ANN401 - kazoo is untyped
    """Make a multi that replaces the request of this version by another one, or by none."""
    multi = client.transaction()
    for path, at_version in checked.items():
        multi.check(path, at_version)
    if request is None:
        multi.delete(REASSIGN, version=version)
    elif version is None:
        multi.create(REASSIGN, request)
    else:
        multi.set_data(REASSIGN, request, version=version)
    return multi


def chunks(partitions: Sequence[TopicPartition], max_bytes: int) -> Iterator[list[TopicPartition]]:
    """Split partitions, in their order, into requests of at most `largest` bytes each.

    >>> [len(chunk) for chunk in chunks([TopicPartition("t", number) for number in range(5)], 100)]
    [2, 2, 1]
    """
    chunk: list[TopicPartition] = []
    empty = len(encode_partitions([]))
    size = empty
    for each in partitions:
        entry_bytes = len(encode_partitions([each])) - empty + 1
        if chunk and size + entry_bytes > max_bytes:
            yield chunk
            chunk, size = [], empty
        chunk.append(each)
        size += entry_bytes
    if chunk:
        yield chunk


def _place(client: KazooClient, path: str, request: bytes) -> None:
    """Create a request under the epoch of a controller that is there to find it.

    Where the answer is lost, what stands there decides. Nothing: the request was not heard, or carried out already;
    placing it again does no harm, for the controller has nothing to do for a partition that is where it should be.
    """
    for _ in range(_MAX_ATTEMPTS):
        multi = _creation(client, path, request)
        try:
            results = commit(multi)
        except LOST:
            if with_retries(lambda: read_latest(client, path)).data == request:
                return
            continue
        refused = multi_failure(multi, results)
        if refused is None:
            return
        if refused.forbidden:
            raise SurveyorError(str(refused))
        if any(isinstance(result, NodeExistsError) for result in results):
            if read_latest(client, path).data == request:
                return
            raise _request_exists(client, path)
        if any(isinstance(result, NoNodeError) for result in results) and not refused_by_epoch(results):
            raise SurveyorError(f"{path.rsplit('/', 1)[0]} does not exist: no Kafka broker has ever run here")
    raise SurveyorError(f"{path} could not be written: the controller changed {_MAX_ATTEMPTS} times; commit again")


def _creation(client: KazooClient, path: str, request: bytes) -> Any:  # noqa: ANN401 - kazoo is untyped
    epoch = read(client, CONTROLLER_EPOCH)
    if epoch.version is None or read(client, CONTROLLER).stat is None:
        raise RefusedError(f"no broker is the controller: nobody would find a request in {path}; wait until one is")
    multi = client.transaction()
    multi.check(CONTROLLER_EPOCH, epoch.version)
    multi.create(path, request)
    return multi


def _identity(partition: TopicPartition) -> tuple[str, int, tuple[int, ...]]:
    return partition.topic, partition.partition, tuple(partition.replicas or ())


def _partitions_in(znode: Znode) -> list[TopicPartition]:
    try:
        return [] if znode.stat is None else decode_partitions(znode.data)
    except MalformedZnodeError:
        return []


def _request_exists(client: KazooClient, path: str) -> RequestExistsError:
    names = ",".join(f"{each.topic}-{each.partition}" for each in _partitions_in(read(client, path))[:10])
    taken = f", or take it away by `surveyor cancel --partitions {names}`" if names and path == REASSIGN else ""
    return RequestExistsError(
        f"a request that is not ours stands in {path} ({names or 'not understood'}); "
        f"wait until Kafka's controller has taken it away{taken}, then commit again",
    )
