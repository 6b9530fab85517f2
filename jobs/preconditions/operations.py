"""Whether a topic's config may still be altered, or the topic deleted: compare ZooKeeper with what was planned from.

The counterpart of `jobs.preconditions.changes` for operations without a partition; the same in both modes. An operation
is already applied if the cluster is as the operation leaves it, so a commit after a crash finds out by reading. It is
stale if the topic is another one, or if another client has altered the same configs since.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import (
    CONFIGS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    PREFERRED_ELECTION,
    REASSIGN,
    TOPICS,
)
from jobs.adapters.zookeeper.connection import Znode
from jobs.adapters.zookeeper.multi_read import read_many, read_permitted
from jobs.repositories.plans.commit_log import RowOutcome
from schemas.enums import OperationKind, Outcome
from schemas.rows import Operation
from schemas.text import other_topic
from schemas.topic_configs import conflicts
from schemas.znodes import MalformedZnodeError, decode_config, read_assignment, read_partitions

_SHARED: Final = (REASSIGN, PREFERRED_ELECTION, CONTROLLER_EPOCH)


@dataclass(frozen=True, slots=True)
class TaskZnodes:
    """The current znodes of a topic."""

    topic: Znode
    config: Znode
    deletion: Znode
    admin: Mapping[str, Znode] = field(default_factory=dict)
    """The requests in /admin for all topics, and the controller epoch, by path."""

    @property
    def overrides(self) -> dict[str, str]:
        return {} if self.config.data is None else decode_config(self.config.data)


def read_topics(client: KazooClient, names: Sequence[str]) -> dict[str, TaskZnodes]:
    """Read the znodes of each topic in batches."""
    paths = [f"{root}/{name}" for name in names for root in (TOPICS, CONFIGS, DELETE_TOPICS)]
    admin = dict(zip(_SHARED, read_many(client, _SHARED), strict=True))
    znodes = iter(read_permitted(client, paths))
    return {name: TaskZnodes(next(znodes), next(znodes), next(znodes), admin) for name in names}


def judge_tasks(client: KazooClient, tasks: Sequence[Operation]) -> tuple[list[Operation], list[RowOutcome]]:
    """Return the pending operations, and the outcomes of the others."""
    judged = [(task, verdict_on(task, znodes)) for task, znodes in read_tasks(client, tasks)]
    return [task for task, verdict in judged if verdict is None], [verdict for _, verdict in judged if verdict]


def read_tasks(client: KazooClient, tasks: Sequence[Operation]) -> Iterator[tuple[Operation, TaskZnodes]]:
    """Read the znodes of each operation's topic."""
    topics = read_topics(client, list(dict.fromkeys(task.topic for task in tasks)))
    return ((task, topics[task.topic]) for task in tasks)


def verdict_on(task: Operation, znodes: TaskZnodes) -> RowOutcome | None:
    """Judge one operation; None if it is pending."""
    try:
        judged = _JUDGES[OperationKind(task.action)](json.loads(task.data), znodes)
    except MalformedZnodeError as error:
        judged = Outcome.STALE, f"topic {task.topic} is not understood: {error}"
    return None if judged is None else RowOutcome(task, *judged)


_Judged = tuple[Outcome, str] | None


def _alteration(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    if znodes.topic.stat is None:
        return Outcome.STALE, "the topic is gone"
    if (other := _other_topic(data, znodes)) is not None:
        return Outcome.STALE, other
    if znodes.deletion.stat is not None:
        return Outcome.STALE, "the topic is queued for deletion"
    values = {name: znodes.overrides.get(name) for name in data["after"]}
    if values == data["after"]:
        return Outcome.APPLIED, "found applied"
    moved = [name for name, value in values.items() if value != data["before"][name]]
    if moved:
        value = "not set" if values[moved[0]] is None else values[moved[0]]
        return Outcome.STALE, f"{moved[0]} is now {value}: another client altered it since the snapshot"
    merged = znodes.overrides | data["after"]
    conflict = next(conflicts({name: value for name, value in merged.items() if value is not None}), None)
    return (
        None
        if conflict is None
        else (Outcome.STALE, f"{conflict}: another client altered one of them since the snapshot")
    )


def _deletion(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    if znodes.topic.stat is None:
        return Outcome.APPLIED, "found gone"
    if (other := _other_topic(data, znodes)) is not None:
        return Outcome.STALE, f"{other}; this one is not the one planned to go"
    return None if znodes.deletion.stat is None else (Outcome.APPLIED, "found queued for deletion")


def _reassignments(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    requested = _requested_replicas(znodes, REASSIGN)
    same = [p for p, replicas in data["orders"].items() if requested.get(int(p)) == replicas]
    return None if same else (Outcome.APPLIED, "found withdrawn")


def _elections(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    requested = _requested_replicas(znodes, PREFERRED_ELECTION)
    return None if requested.keys() & set(data["partitions"]) else (Outcome.APPLIED, "found withdrawn")


def _requested_replicas(znodes: TaskZnodes, path: str) -> dict[int, list[int]]:
    """Return the replicas that a request in /admin names, by partition of the topic."""
    znode, topic = znodes.admin[path], znodes.topic.path.rpartition("/")[2]
    requests = [] if znode.stat is None else read_partitions(znode.data)[0]
    return {request.partition: request.replicas or [] for request in requests if request.topic == topic}


def _refusal(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    if znodes.deletion.stat is None:
        return Outcome.APPLIED, "found withdrawn"
    if data["exists"] is not (znodes.topic.stat is not None):
        return Outcome.STALE, "the topic is gone" if data["exists"] else "there is such a topic now"
    return None


def _pending_deletion(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    if znodes.topic.stat is None:
        return Outcome.APPLIED, "found gone"
    if (other := _other_topic(data, znodes)) is not None:
        return Outcome.STALE, f"{other}; this one is not the one that goes"
    return (Outcome.STALE, "the topic is no longer queued for deletion") if znodes.deletion.stat is None else None


def _removal(data: Mapping[str, Any], znodes: TaskZnodes) -> _Judged:
    judged = _pending_deletion(data, znodes)
    if judged is not None:
        return judged
    if znodes.topic.version != data["topic_version"]:
        return Outcome.STALE, "partitions were added since its replicas were deleted"
    epoch, planned_epoch = int(znodes.admin[CONTROLLER_EPOCH].data or 0), data["controller_epoch"]
    if epoch - planned_epoch in {0, 1}:
        return None
    return Outcome.STALE, f"another controller has taken over, with epoch {epoch}"


def _other_topic(data: Mapping[str, Any], znodes: TaskZnodes) -> str | None:
    """Say what happened to the topic; None if it is still the same.

    A topic created before 2.8 may get its id from an upgraded controller; it is still the same topic.
    """
    topic_id = read_assignment(znodes.topic.data).topic_id
    if data["topic_id"] is None or topic_id == data["topic_id"]:
        return None
    return other_topic("the topic", data["topic_id"], topic_id)


_JUDGES: Final[dict[OperationKind, Callable[[Mapping[str, Any], TaskZnodes], _Judged]]] = {
    OperationKind.ALTER_CONFIG: _alteration,
    OperationKind.DELETE_TOPIC: _deletion,
    OperationKind.WITHDRAW_REASSIGNMENT: _reassignments,
    OperationKind.WITHDRAW_ELECTION: _elections,
    OperationKind.WITHDRAW_DELETION: _refusal,
    OperationKind.DELETE_REPLICAS: _pending_deletion,
    OperationKind.REMOVE_TOPIC: _removal,
}
