"""Adds requests to /admin, which a controller executes and removes, changes their targets, and withdraws them.

A commit adds those of its plan for `surveyor control`, and a cancellation changes or withdraws them. Requests of other
clients stay.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster_state import CONTROLLER_EPOCH, REASSIGN
from jobs.adapters.zookeeper.connection import LOST, commit
from jobs.adapters.zookeeper.multi_failure import multi_failure
from jobs.adapters.zookeeper.znode_reads import read, read_latest
from jobs.core.errors import RefusedError, SurveyorError
from schemas.rows import Key
from schemas.znode_codecs import MalformedZnodeError, TopicPartition, decode_partitions, encode_partitions

MAX_REQUEST_BYTES: Final = 900_000
"""Bytes of one request: ZooKeeper accepts packets of 1 MB (jute.maxbuffer), which include paths and headers."""

_MAX_ATTEMPTS: Final = 5


def add_requests(client: KazooClient, path: str, added: Sequence[TopicPartition], versions: Mapping[str, int]) -> bool:
    """Put these requests into the znode, in place of those for the same partitions; keep all others.

    `versions` are znode versions by path that must not have changed. Return False if one has changed. Raise
    SurveyorError if ZooKeeper refuses the write.
    """
    keys = {(request.topic, request.partition) for request in added}

    def with_added(requests: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [*(request for request in requests if (request.topic, request.partition) not in keys), *added]

    return _rewrite(client, path, with_added, lambda: versions)


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
        if _rewrite(client, REASSIGN, without, epoch):
            return
    raise SurveyorError(f"{REASSIGN} could not be written: the controller changed {_MAX_ATTEMPTS} times; try again")


def _rewrite(
    client: KazooClient,
    path: str,
    edit: Callable[[Sequence[TopicPartition]], Sequence[TopicPartition]],
    versions: Callable[[], Mapping[str, int]],
) -> bool:
    """Replace the request by the result of `edit`, or delete it if that is empty.

    Return False if one of the `versions` has changed.
    """
    for _ in range(_MAX_ATTEMPTS):
        checked, current = versions(), read_latest(client, path)
        try:
            requests = [] if current.stat is None else decode_partitions(current.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{path} cannot be decoded ({error}): `delete {path}` in zookeeper-shell clears it"
            ) from None
        edited = edit(requests)
        if edited == requests:
            return True
        request = encode_partitions(edited)
        if len(request) > MAX_REQUEST_BYTES:
            raise RefusedError(
                f"{path} would take {len(request):,} bytes, more than {MAX_REQUEST_BYTES:,}: wait, then try again"
            )
        multi = _replacement(client, path, checked, current.version, request if edited else None)
        try:
            refused = multi_failure(multi, commit(multi))
        except LOST:
            continue  # the next read shows whether the write was executed
        if refused is None:
            return True
        if refused.is_forbidden:
            raise SurveyorError(str(refused))
        if refused.path != path:
            return False
    raise SurveyorError(f"{path} could not be written: it changed {_MAX_ATTEMPTS} times; try again")


def _replacement(
    client: KazooClient, path: str, checked: Mapping[str, int], version: int | None, request: bytes | None
) -> Any:  # noqa: ANN401 - kazoo is untyped
    """Return a multi that replaces the request of this version, or deletes it if `request` is None."""
    multi = client.transaction()
    for checked_path, at_version in checked.items():
        multi.check(checked_path, at_version)
    if request is None:
        multi.delete(path, version=version)
    elif version is None:
        multi.create(path, request)
    else:
        multi.set_data(path, request, version=version)
    return multi
