"""Requests to Kafka's controller through ZooKeeper: it finds them in /admin, executes them, and removes them.

Corresponds to `KafkaZkClient.createPartitionReassignment` and `createPreferredReplicaElection`, and is the only way
before Kafka 2.4. A request is created and never changed: an existing request belongs to another client, or is the same
one from an earlier attempt. Only a cancellation of own moves changes the targets of a request (`override`).
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
    ZooKeeperSession,
    commit,
    read,
    read_latest,
    use_kafka_acl,
    with_retries,
)
from jobs.adapters.zookeeper.multi_failure import multi_failure
from jobs.core.errors import RefusedError, SurveyorError
from schemas.current_state import Targets
from schemas.rows import Key
from schemas.text import partition_name
from schemas.znode_codecs import MalformedZnodeError, TopicPartition, decode_partitions, encode_partitions

MAX_REQUEST_BYTES: Final = 900_000
"""Bytes of one request: ZooKeeper accepts packets of 1 MB (jute.maxbuffer), which include paths and headers."""

_MAX_ATTEMPTS: Final = 5
_MIN_POLL_SECONDS: Final = 0.05
_MAX_POLL_SECONDS: Final = 2.0


RecheckPartitions = Callable[[Sequence[TopicPartition]], Sequence[TopicPartition]]
"""Returns, right before a request is placed, the partitions that may still be part of it."""


class RequestExistsError(RefusedError):
    """A request of another client already exists."""


@dataclass(frozen=True, slots=True)
class ZnodeRequests:
    """Creates requests in /admin and waits until they are removed; `refuse_late` raises once that takes too long."""

    session: ZooKeeperSession
    refuse_late: Callable[[], None]

    def reassign(
        self,
        targets: Targets,
        earlier: Collection[TopicPartition] = (),
        recheck: RecheckPartitions = lambda chunk: chunk,
    ) -> None:
        """Request reassignments in as many znodes as needed, one after another.

        Kafka's controller removes a znode once all its reassignments are complete. `earlier` are requests of an
        earlier attempt, which are waited for first. `recheck` is called before each znode is created, which may be
        long after the first.
        """
        partitions = [TopicPartition(*key, replicas) for key, replicas in sorted(targets.items())]
        with self.session.connected() as client:
            self._wait(client, REASSIGN, earlier)
        self._place_all(REASSIGN, partitions, recheck)

    def elect_preferred(self, partitions: Sequence[Key], recheck: RecheckPartitions = lambda chunk: chunk) -> None:
        """Request preferred elections and wait; the controller removes the znode after one pass, even if some fail.

        `recheck` is called before each znode is created, as for reassignments.
        """
        self._place_all(PREFERRED_ELECTION, [TopicPartition(*key) for key in sorted(partitions)], recheck)

    def _place_all(self, path: str, partitions: Sequence[TopicPartition], recheck: RecheckPartitions) -> None:
        with self.session.connected() as client:
            use_kafka_acl(client)
            for chunk in split_reassignments(partitions, MAX_REQUEST_BYTES):
                due = recheck(chunk)
                if due:
                    _place(client, path, encode_partitions(due))
                    self._wait(client, path, due)

    def _wait(self, client: KazooClient, path: str, ours: Collection[TopicPartition]) -> None:
        """Wait until the znode contains none of our requests."""
        pause = _MIN_POLL_SECONDS
        identities = set(map(_identity, ours))
        while any(
            _identity(entry) in identities for entry in _partitions_in(with_retries(lambda: read_latest(client, path)))
        ):
            self.refuse_late()
            time.sleep(pause)
            pause = min(_MAX_POLL_SECONDS, 1.5 * pause)


def override(client: KazooClient, targets: Targets, versions: Mapping[str, int]) -> bool:
    """Put these targets into the reassignment request, in place of those for the same partitions; keep all others.

    `versions` are znode versions by path that must not have changed. Return False if one has changed. Raise
    SurveyorError if ZooKeeper refuses the write.
    """

    def with_targets(requests: Sequence[TopicPartition]) -> list[TopicPartition]:
        other_requests = [request for request in requests if (request.topic, request.partition) not in targets]
        return [*other_requests, *(TopicPartition(*key, to) for key, to in sorted(targets.items()))]

    return _rewrite(client, with_targets, lambda: versions)


def withdraw(client: KazooClient, partitions: Collection[Key]) -> None:
    """Remove the requests for these partitions; raise SurveyorError if ZooKeeper refuses that.

    The write checks the current controller epoch: a new controller has read the request, so the removal is repeated
    under its epoch.
    """

    def without(requests: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [request for request in requests if (request.topic, request.partition) not in partitions]

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
    """Replace the request by the result of `edit`, or delete it if that is empty.

    Return False if one of the `versions` has changed.
    """
    for _ in range(_MAX_ATTEMPTS):
        checked, current = versions(), read_latest(client, REASSIGN)
        try:
            requests = [] if current.stat is None else decode_partitions(current.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{REASSIGN} cannot be decoded ({error}): `delete {REASSIGN}` in zookeeper-shell clears it"
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
            continue  # the next read shows whether the write was executed
        if refused is None:
            return True
        if refused.is_forbidden:
            raise SurveyorError(str(refused))
        if refused.path != REASSIGN:
            return False
    raise SurveyorError(f"{REASSIGN} could not be written: it changed {_MAX_ATTEMPTS} times; try again")


def _replacement(client: KazooClient, checked: Mapping[str, int], version: int | None, request: bytes | None) -> Any:  # noqa: ANN401 - kazoo is untyped
    """Return a multi that replaces the request of this version, or deletes it if `request` is None."""
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


def split_reassignments(partitions: Sequence[TopicPartition], max_bytes: int) -> Iterator[list[TopicPartition]]:
    """Split partitions, in their order, into requests of at most `max_bytes` each.

    >>> [len(chunk) for chunk in split_reassignments([TopicPartition("t", number) for number in range(5)], 100)]
    [2, 2, 1]
    """
    chunk: list[TopicPartition] = []
    empty = len(encode_partitions([]))
    size = empty
    for entry in partitions:
        entry_bytes = len(encode_partitions([entry])) - empty + 1
        if chunk and size + entry_bytes > max_bytes:
            yield chunk
            chunk, size = [], empty
        chunk.append(entry)
        size += entry_bytes
    if chunk:
        yield chunk


def _place(client: KazooClient, path: str, request: bytes) -> None:
    """Create a request, under the epoch of a controller that exists to execute it.

    If the response is lost, the znode's content decides. If there is none, the request was not received or has already
    been executed. Creating it again is harmless then, because the controller does nothing for a partition that already
    has its target replicas.
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
        if refused.is_forbidden:
            raise SurveyorError(str(refused))
        if isinstance(refused.error, NodeExistsError):
            if read_latest(client, path).data == request:
                return
            raise _request_exists(client, path)
        if isinstance(refused.error, NoNodeError) and refused.path != CONTROLLER_EPOCH:
            raise SurveyorError(f"{path.rsplit('/', 1)[0]} does not exist: no Kafka broker has ever run here")
    raise SurveyorError(f"{path} could not be written: the controller changed {_MAX_ATTEMPTS} times; commit again")


def _creation(client: KazooClient, path: str, request: bytes) -> Any:  # noqa: ANN401 - kazoo is untyped
    epoch = read(client, CONTROLLER_EPOCH)
    if epoch.version is None or read(client, CONTROLLER).stat is None:
        raise RefusedError(f"no broker is the controller, so a request in {path} would not be read; wait for one")
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
    names = ",".join(partition_name(entry.topic, entry.partition) for entry in _partitions_in(read(client, path))[:10])
    if not names:  # Kafka's controller leaves it
        return RequestExistsError(
            f"{path} exists and is empty or cannot be decoded; run: zookeeper-shell HOST:PORT delete {path}, then "
            "commit again"
        )
    removal_advice = f", or remove it with `surveyor cancel --partitions {names}`" if path == REASSIGN else ""
    return RequestExistsError(
        f"a request of another client exists in {path} ({names}); "
        f"wait until Kafka's controller has removed it{removal_advice}, then commit again",
    )
