"""Notices: partition states to send to brokers, one row per API and partition with its recipients.

A notice is plain data, whatever its cause: a change just written (`planner.broker_requests`), a broker that joined and
needs the full state, or a response that shows that a broker lacks the state. Corresponds to the partition states that
`ControllerBrokerRequestBatch` collects for each broker. No table stores them.
"""

from typing import Final

from msgspec import Struct

LEADER_AND_ISR: Final = "LeaderAndIsr"
STOP_REPLICA: Final = "StopReplica"
UPDATE_METADATA: Final = "UpdateMetadata"


class Notice(Struct, frozen=True, kw_only=True, gc=False):
    """The state of a partition for some brokers; a broker has at most one per API and partition."""

    api: str
    """LeaderAndIsr, UpdateMetadata or StopReplica."""
    topic: str
    topic_id: str | None
    """22 characters of base64url, None before Kafka 2.8."""
    partition: int
    brokers: tuple[int, ...]
    """Registered recipients, at least one."""
    delete_partition: bool
    """Whether StopReplica deletes the log too; false for the others."""
    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    """Assignment, preferred replica first."""
    adding_replicas: list[int]
    removing_replicas: list[int]
    is_new: bool
    """Whether the replicas do not exist yet."""
    leader_recovery_state: int
    """1 while recovering from an unclean election, else 0."""
    state_version: int
    """Znode version of the state sent (Kafka's partition epoch)."""
