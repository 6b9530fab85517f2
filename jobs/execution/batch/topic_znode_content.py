"""Content of /brokers/topics/T as a plan creates or extends it, and a refusal if ZooKeeper would not accept it.

Corresponds to `TopicZNode.encode` and `AdminZkClient.createTopicWithAssignment`. A topic znode holds all partitions and
cannot be written in parts, and ZooKeeper drops the connection over a request larger than jute.maxbuffer.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.core.errors import RefusedError
from jobs.preconditions.change_preconditions import adds_partition
from schemas.enums import OperationKind
from schemas.operation_data import CreatedTopic, data_of
from schemas.rows import Change, Operation
from schemas.stored_plan import Plan
from schemas.znode_codecs import (
    WITH_IDS,
    WITHOUT_IDS,
    Assignment,
    MalformedZnodeError,
    encode_assignment,
    encode_config,
    read_assignment,
)
from schemas.znode_paths import topic_path
from schemas.znode_size import ZNODE_LIMIT, ZNODE_LIMIT_REASON


@dataclass(slots=True)
class TopicZnodes:
    """The topics that a plan creates or adds partitions to."""

    creations: dict[str, Operation] = field(default_factory=dict)
    planned: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """Replicas of all partitions of the plan, by topic."""
    _encoded: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> "TopicZnodes":
        created = (op for op in plan.operations if op.kind == OperationKind.CREATE_TOPIC)
        planned: dict[str, dict[int, list[int]]] = defaultdict(dict)
        for change in plan.changes:
            planned[change.topic][change.partition] = change.replicas_after
        return cls({operation.topic: operation for operation in created}, planned)

    def created(self, topic: str) -> tuple[bytes, bytes]:
        """Return the content of a new topic's znode and of its config znode."""
        if topic not in self._encoded:
            data = data_of(self.creations[topic], CreatedTopic)
            assignment = Assignment(self.planned[topic], {}, {}, data.topic_id)
            version = WITHOUT_IDS if data.topic_id is None else WITH_IDS
            self._encoded[topic] = encode_assignment(assignment, version), encode_config(data.config)
        return self._encoded[topic]

    def grown(self, topic: str, data: bytes | None) -> bytes | None:
        """Return the content of a topic's znode with the planned partitions added; None if it has them already."""
        assignment = read_assignment(data)
        added = self.planned[topic]
        if added.items() <= assignment.partitions.items():
            return None
        return encode_assignment(replace(assignment, partitions=assignment.partitions | added))


def with_assignments(data: bytes | None, changes: Iterable[Change]) -> bytes:
    """Return the content of a topic's znode with the assignments of these changes; unknown content is kept."""
    assignment = read_assignment(data)
    partitions = dict(assignment.partitions)
    adding, removing = dict(assignment.adding_replicas), dict(assignment.removing_replicas)
    for change in changes:
        partitions[change.partition] = change.replicas_after
        adding[change.partition] = change.adding_after
        removing[change.partition] = change.removing_after
    return encode_assignment(
        replace(assignment, partitions=partitions, adding_replicas=adding, removing_replicas=removing)
    )


def refuse_too_large(client: KazooClient, plan: Plan, pending: Iterable[Change]) -> None:
    """Raise RefusedError, before anything is written, if the content of a pending topic exceeds a request."""
    topics = TopicZnodes.of(plan)
    for name, size in _sizes(client, topics, [change for change in pending if change.partition is not None]):
        if size > ZNODE_LIMIT:
            raise RefusedError(
                f"{topic_path(name)} and its configuration would take {size:,} bytes, more than "
                f"{ZNODE_LIMIT:,}: {ZNODE_LIMIT_REASON}; nothing was written; plan the topic with fewer partitions "
                "or replicas",
            )


def _sizes(client: KazooClient, topics: TopicZnodes, pending: Sequence[Change]) -> Iterator[tuple[str, int]]:
    for name in dict.fromkeys(change.topic for change in pending if change.topic in topics.creations):
        yield name, sum(map(len, topics.created(name)))
    for znode in read_many(client, list(dict.fromkeys(topic_path(c.topic) for c in pending if adds_partition(c)))):
        name = znode.path.rsplit("/", 1)[1]
        yield name, len(_grown(topics, name, znode) or b"")


def _grown(topics: TopicZnodes, name: str, znode: Znode) -> bytes | None:
    """Return the extended content; None if the topic does not exist or cannot be decoded.

    Such a topic is found stale elsewhere.
    """
    try:
        return topics.grown(name, znode.data) if znode.stat else None
    except MalformedZnodeError:
        return None
