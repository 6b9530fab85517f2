"""Notices: partition states to send to brokers, one row per API and partition with its recipients.

A notice is plain data, whatever its cause: a change just written (`planner.broker_requests`), a broker that joined and
needs the full state, or a response that shows that a broker lacks the state. Corresponds to the partition states that
`ControllerBrokerRequestBatch` collects for each broker. `NOTICES` documents the columns; no table stores them.
"""

from typing import Final

from msgspec import Struct

from schemas.column_types import BOOLEAN, BROKER_IDS, INT, STRING, Column, Columns

LEADER_AND_ISR: Final = "LeaderAndIsr"
STOP_REPLICA: Final = "StopReplica"
UPDATE_METADATA: Final = "UpdateMetadata"

NOTICES: Final = Columns(
    (
        Column("api", STRING, "LeaderAndIsr, UpdateMetadata or StopReplica"),
        Column("topic", STRING, "topic name"),
        Column("topic_id", STRING, "22 characters of base64url, null before Kafka 2.8"),
        Column("partition", INT, "partition number within the topic"),
        Column("brokers", BROKER_IDS, "registered recipients, at least one"),
        Column("delete_partition", BOOLEAN, "StopReplica: whether the log is deleted too; false for the others"),
        Column("leader", INT, "leading broker, -1 none"),
        Column("leader_epoch", INT, "leader epoch, which brokers compare with their own"),
        Column("isr", BROKER_IDS, "in-sync replicas"),
        Column("replicas", BROKER_IDS, "assignment, preferred replica first"),
        Column("adding_replicas", BROKER_IDS, "replicas a running reassignment adds"),
        Column("removing_replicas", BROKER_IDS, "replicas a running reassignment removes"),
        Column("is_new", BOOLEAN, "the replicas do not exist yet"),
        Column("leader_recovery_state", INT, "1 while recovering from an unclean election, else 0"),
        Column("state_version", INT, "znode version of the state sent (Kafka's partition epoch)"),
    ),
)


class Notice(Struct, frozen=True, kw_only=True, gc=False):
    """One row of NOTICES; a broker has at most one per API and partition."""

    api: str
    topic: str
    topic_id: str | None
    partition: int
    brokers: tuple[int, ...]
    delete_partition: bool
    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    is_new: bool
    leader_recovery_state: int
    state_version: int
