"""Current state of the partitions and topics that a plan changes, from any source.

`jobs.preconditions` compares it with what the plan was computed from. If a part could not be decoded, or must not be
read, the reason is kept in its place, and only what rests on that part is unknown.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from msgspec import Struct

from schemas.replica_assignment import ReplicaAssignment, difference
from schemas.rows import Broker, Key, QuarantinedZnode
from schemas.znode_codecs import Assignment, MalformedZnodeError, State, TopicPartition

T = TypeVar("T")


class LeaderAndIsr(Struct, frozen=True):
    """A partition's state as the brokers of a KRaft cluster describe it, without a controller epoch."""

    leader: int
    """NO_LEADER if there is none."""
    leader_epoch: int | None
    isr: list[int]


Leadership = State | LeaderAndIsr
"""A partition's state, from ZooKeeper or from brokers."""

Targets = Mapping[Key, list[int]]
"""Target replicas by topic and partition."""


class CurrentCluster(Protocol):
    """The cluster as a whole: its identity, its live brokers, and the topics queued for deletion."""

    @property
    def cluster_id(self) -> str | None: ...

    @property
    def migration(self) -> str | None:
        """Reason why the cluster must not be written to while it is being migrated; None if it is not."""

    @property
    def brokers(self) -> Sequence[Broker]:
        """The live brokers."""

    @property
    def live(self) -> Mapping[int, int | None]:
        """Broker epochs of the live brokers by broker id; None if the source has none."""

    @property
    def deleting(self) -> Collection[str]:
        """Topics queued for deletion."""

    @property
    def quarantine(self) -> Sequence[QuarantinedZnode]:
        """Metadata of the cluster as a whole that could not be decoded."""


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """A decoded value, or the reason why there is none."""

    value: T | None
    reason: str = ""

    @classmethod
    def of(cls, decode: Callable[[bytes | None], T], data: bytes | None) -> Self:
        try:
            return cls(decode(data))
        except MalformedZnodeError as error:
            return cls(None, str(error))

    def get(self) -> T:
        """Return the value; raise MalformedZnodeError if there is none."""
        if self.value is None:
            raise MalformedZnodeError(self.reason)
        return self.value


@dataclass(frozen=True, slots=True)
class CurrentTopic:
    """A topic's assignment. The topic does not exist if it has no version, unless its source has none."""

    path: str
    """Its place in the source, for reasons."""
    version: int | None
    content: Decoded[Assignment]
    is_forbidden: bool = False
    """Whether the topic must not be read; then its version is unknown as well."""
    is_unversioned: bool = False
    """Whether the topic exists in a source that has no versions."""

    @property
    def exists(self) -> bool:
        return self.is_unversioned or self.version is not None

    def assigned(self, partition: int) -> ReplicaAssignment | None:
        """Return the assignment of a partition, None if the topic or the partition does not exist.

        Raise MalformedZnodeError if the partition's entry, or the topic as a whole, cannot be decoded.
        """
        if not self.exists:
            return None
        assignment = self.content.get()
        if assignment.unread_moves:
            raise MalformedZnodeError(assignment.unread_moves)
        replicas = assignment.partitions.get(partition)
        if replicas is None:
            for part in assignment.unread:
                if part.number == partition:
                    raise MalformedZnodeError(part.reason)
            return None
        return ReplicaAssignment(
            replicas,
            assignment.adding_replicas.get(partition, []),
            assignment.removing_replicas.get(partition, []),
        )


@dataclass(frozen=True, slots=True)
class CurrentPartition:
    """A partition's state, with its topic. There is no state if it has no version, unless its source has none."""

    topic: CurrentTopic
    number: int
    path: str
    """The place of its state in the source, for reasons."""
    version: int | None
    content: Decoded[State] | Decoded[LeaderAndIsr]
    eligible: list[int] | None = None
    """The eligible leader replicas; None if the source does not report them."""
    last_known: list[int] | None = None
    """The last known eligible leader replicas; None if the source does not report them."""

    @property
    def state(self) -> Leadership | None:
        """The state; None if it does not exist or cannot be decoded."""
        return self.content.value

    @property
    def isr(self) -> list[int] | None:
        """The ISR; empty if there is no state, None if it cannot be decoded."""
        if self.state is not None:
            return self.state.isr
        return [] if self.version is None and not self.topic.is_unversioned else None

    def lagging(self, replicas: Sequence[int]) -> list[int]:
        """Return the replicas that are not known to be in the ISR."""
        return difference(replicas, () if self.state is None else self.state.isr)

    @property
    def assignment(self) -> ReplicaAssignment | None:
        """The assignment, as `CurrentTopic.assigned`."""
        return self.topic.assigned(self.number)


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The partitions of a plan's changes, and what else of the cluster these changes rest on."""

    partitions: Mapping[Key, CurrentPartition]
    requests: Targets
    """Requested reassignments; none if the request cannot be decoded."""
    live: frozenset[int]
    """Registered brokers, including those that cannot be decoded."""
    deleting: frozenset[str] = frozenset()
    """Topics queued for deletion."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic with its config, and whether it is queued for deletion."""

    topic: CurrentTopic
    config: Decoded[dict[str, str]]
    config_version: int | None
    """None if the topic has no config."""
    is_queued: bool


@dataclass(frozen=True, slots=True)
class OperationState:
    """The topics of a plan's operations, the requests of all topics, and the controller epoch."""

    topics: Mapping[str, TopicSettings]
    reassignments: Decoded[list[TopicPartition]]
    elections: Decoded[list[TopicPartition]]
    controller_epoch: Decoded[int]


@dataclass(frozen=True, slots=True)
class CurrentReassignments:
    """All partitions that move or are requested to, and what decides whether they make progress."""

    moving: Targets
    requests: Targets | None
    """Requested reassignments; None if the request cannot be decoded."""
    partitions: Mapping[Key, CurrentPartition]
    live: Mapping[int, int | None]
    """Broker epochs of the registered brokers."""
    deleting: frozenset[str]
    ignored: str | None
    """Reason why Kafka's controller ignores the whole request, None if it does not."""
    not_understood: Sequence[str]
    """Topics that cannot be decoded, each with the reason."""
