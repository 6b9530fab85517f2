"""A topic and its partitions as read from the cluster, without what is derived from them.

Corresponds to `partitionAssignments` and `partitionLeadershipInfo` of `ControllerContext`. `schemas.rows` has the rows
of the tables, which a snapshot adds to.
"""

from msgspec import Struct

from schemas.replica_assignment import ReplicaAssignment, is_being_reassigned
from schemas.rows import Key


class PartitionInfo(Struct, frozen=True, kw_only=True, gc=False):
    """The state of one partition in the cluster, with the columns of PARTITIONS that are read and not derived."""

    topic: str
    partition: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    topic_version: int | None
    """None in a KRaft cluster."""
    understood: bool
    leader: int | None = None
    isr: list[int] | None = None
    leader_epoch: int | None = None
    controller_epoch: int | None = None
    state_version: int | None = None
    leader_recovery_state: int | None = None
    eligible_leader_replicas: list[int] | None = None
    """In KRaft; None if unknown, as is the next."""
    last_known_elr: list[int] | None = None

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def brokers(self) -> set[int]:
        """Brokers referenced by this partition: replicas, ISR and leader."""
        leader = () if self.leader is None or self.leader < 0 else (self.leader,)
        return {*self.replicas, *(self.isr or ()), *leader}

    @property
    def had_state(self) -> bool:
        """Whether a state znode existed when the partition was read, readable or not."""
        return self.leader is not None or self.state_version is not None

    @property
    def has_decoded_state(self) -> bool:
        """Whether the state was read and understood, so that it can be sent to brokers."""
        return self.understood and self.leader is not None

    @property
    def is_being_reassigned(self) -> bool:
        return is_being_reassigned(self.adding_replicas, self.removing_replicas)

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding_replicas, self.removing_replicas)


class TopicInfo(Struct, frozen=True, kw_only=True):
    """The state of one topic in the cluster, with the columns of TOPICS that are read and not derived."""

    topic: str
    topic_version: int | None
    """None in a KRaft cluster."""
    topic_id: str | None = None
    config: dict[str, str | None] | None = None
    """None if it was not read, so that it may forbid unclean elections."""
    deletion_requested: bool = False
    understood: bool = True
    assignment_understood: bool = True
    moves_understood: bool = True
    """Whether it is known which replicas are being added or removed."""
    czxid: int | None = None
    """Transaction that created the topic's znode; None or UNKNOWN_EPOCH if it is not known."""
