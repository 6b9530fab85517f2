"""Znodes that Kafka's fail-over completes: /feature, and the ids of topics without one.

Corresponds to `KafkaController.enableFeatureVersioning` and `processTopicIds`, which depend on the controller's
inter-broker protocol version. Here the earliest version of all brokers counts: during an upgrade, older brokers do not
know the later formats.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from jobs.adapters.brokers.control_encoding import topic_id_text
from jobs.adapters.zookeeper.cluster_state import FEATURE
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_operations import Create, Op, SetData
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.controller.broker_protocols import earliest_protocol
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.metadata_reader import MetadataReader
from jobs.execution.batch.transactions import MULTI_BYTES, OPERATION_BYTES
from schemas.inter_broker_protocol import TOPIC_IDS_SINCE, Protocol
from schemas.rows import Key
from schemas.znode_codecs import MalformedZnodeError, decode_assignment, encode_assignment
from schemas.znode_paths import topic_path

FEATURES_SINCE: Final = Protocol(2, 7, 0)
"""First protocol version with /feature (`MetadataVersion.isFeatureVersioningSupported`)."""

_FEATURE_V2_SINCE: Final = Protocol(3, 3, 0)
_DISABLED, _ENABLED = 0, 1
"""Statuses of /feature (`FeatureZNodeStatus`)."""


class _Features(msgspec.Struct):
    status: int


@dataclass(frozen=True, slots=True)
class FailoverZnodes:
    """The znodes that one controllership completes."""

    control: Controllership
    context: ControllerContext
    engine: DecisionEngine
    reader: MetadataReader
    broker_requests: BrokerRequestBatch

    def complete(self) -> set[Key]:
        """Write what Kafka's fail-over writes at the earliest protocol version of the brokers.

        Return as `assign_topic_ids`.
        """
        protocol = self.protocol
        if protocol is not None:
            enable_features(self.control, protocol)
        return self.assign_topic_ids()

    @property
    def protocol(self) -> Protocol | None:
        """The earliest protocol version of the brokers, None if a broker's version is unknown."""
        return earliest_protocol(self.engine.broker_configs, self.context.brokers.keys())

    def assign_topic_ids(self) -> set[Key]:
        """Give ids to topics without one, if all brokers know ids, and send them; return the partitions that changed.

        A follower that knows an id cannot fetch from a leader that does not. A new topic has no state to be sent:
        it gets its id before its first state, unless it was created while the cycle had begun. If a topic has changed
        since it was read, the multi fails, and the other topics get their ids in the next cycle.
        """
        if not (self.context.topics_without_id and uses_topic_ids(self.protocol)):
            return set()
        topics = (self.context.topics[name] for name in self.context.topics_without_id)
        due = {info.topic for info in topics if info.understood and not info.deletion_requested}
        if not due:
            return set()
        assign_topic_ids(self.control, self.context, due)
        changed = self.reader.refresh_topics(due)
        self.broker_requests.resend_topics({name for name in due if self.context.topic_id(name) is not None})
        return changed


def enable_features(control: Controllership, protocol: Protocol) -> None:
    """Write /feature as Kafka's fail-over does at this protocol version, without finalized features.

    From 2.7 on an absent or disabled znode becomes an enabled one; before, an absent znode is created disabled. Kafka
    would also disable an enabled one then. It is kept: brokers of that version never read it, and others do while a
    cluster is upgraded. Entries that cannot be decoded are left unchanged.
    """
    znode = read(control.client, FEATURE)
    is_enabled = protocol >= FEATURES_SINCE
    data = msgspec.json.encode(
        {
            "version": 2 if protocol >= _FEATURE_V2_SINCE else 1,
            "status": _ENABLED if is_enabled else _DISABLED,
            "features": {},
        }
    )
    if znode.version is None:
        control.commit([Create(FEATURE, data)])  # one that a broker created first is as good
    elif is_enabled and _status(znode.data) == _DISABLED:
        control.commit([SetData(FEATURE, data, znode.version)])


def _status(data: bytes | None) -> int | None:
    """Return the status of /feature, None if it cannot be decoded."""
    try:
        return msgspec.json.decode(data or b"", type=_Features).status
    except msgspec.DecodeError:
        return None


def uses_topic_ids(protocol: Protocol | None) -> bool:
    """Return whether topics get ids at the earliest protocol version of the brokers; None if that is unknown."""
    return protocol is not None and protocol >= TOPIC_IDS_SINCE


def assign_topic_ids(control: Controllership, context: ControllerContext, names: Collection[str]) -> None:
    """Give an id to each of these topics that has none and is understood; read them again afterwards.

    A topic that has lost its id gets the same id, as brokers refuse another one (INCONSISTENT_TOPIC_ID). Kafka's
    controller keeps the id in memory, and the next controller gives the topic a new id.

    Topics are written in multis. If a topic has changed since it was read, all topics of its multi wait for the next
    call.
    """
    topics = (context.topics[name] for name in sorted(names) if name in context.topics)
    due = [topic.topic for topic in topics if topic.understood and not topic.deletion_requested]
    znodes = read_permitted(control.client, [topic_path(name) for name in due])
    ids = (context.former_topic_ids.get(name) or random_topic_id() for name in due)
    for ops in _multis(op for znode, topic_id in zip(znodes, ids, strict=True) for op in _with_id(znode, topic_id)):
        control.commit(ops)


def _with_id(znode: Znode, topic_id: str) -> Iterator[SetData]:
    try:
        assignment = decode_assignment(znode.data)
    except MalformedZnodeError:
        return
    if znode.version is not None and assignment.topic_id is None:
        yield SetData(znode.path, encode_assignment(replace(assignment, topic_id=topic_id)), znode.version)


def _multis(writes: Iterable[SetData]) -> Iterator[Sequence[Op]]:
    """Split writes into multis; a topic that does not fit into one is too large for ZooKeeper itself."""
    ops, size = list[Op](), 0
    for write in writes:
        own = len(write.data) + len(write.path) + OPERATION_BYTES
        if ops and size + own > MULTI_BYTES:
            yield ops
            ops, size = [], 0
        ops.append(write)
        size += own
    if ops:
        yield ops


def random_topic_id() -> str:
    """Return a random id as Kafka makes them (`Uuid.randomUuid`): none that begins with a dash."""
    while True:
        text = topic_id_text(uuid.uuid4())
        if not text.startswith("-"):
            return text
