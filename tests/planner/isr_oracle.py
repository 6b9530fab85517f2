"""An oracle of AlterPartition, written from Kafka's procedures and not from our rules: what a proposal is answered.

`KafkaController.tryProcessAlterPartition` (3.9), for one partition, with `LeaderAndIsr.equalsAllowStalePartitionEpoch`.
Decision record 028 has the additional checks, written here from its text.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

RECOVERED, RECOVERING = 0, 1
UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED = 3, 41, 42, 55
FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA = 74, 95, 107
ERRORS: Final = (
    UNKNOWN_TOPIC_OR_PARTITION,
    NOT_CONTROLLER,
    INVALID_REQUEST,
    OPERATION_NOT_ATTEMPTED,
    FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION,
    INELIGIBLE_REPLICA,
)


@dataclass(frozen=True)
class LeaderAndIsr:
    """The class of that name."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int
    partition_epoch: int

    def equals_allow_stale_partition_epoch(self, other: "LeaderAndIsr") -> bool:
        same = replace(self, partition_epoch=other.partition_epoch) == other
        return same and self.partition_epoch <= other.partition_epoch


IsrOutcome = int | LeaderAndIsr
"""An error, or the state that the leader takes over; its partition epoch has grown if it was written."""


def answer_of_kafka(  # noqa: PLR0911 - as in Kafka
    current: LeaderAndIsr | None, new: LeaderAndIsr, live: Collection[int], version: int
) -> IsrOutcome:
    """Return the response of Kafka's controller to a broker whose epoch is not stale.

    `current`: the stored state, None if there is none. `live`: brokers that do not shut down.
    """
    if current is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    if new.partition_epoch > current.partition_epoch or new.leader_epoch > current.leader_epoch:
        return NOT_CONTROLLER
    if new.leader_epoch < current.leader_epoch:
        return FENCED_LEADER_EPOCH
    if new.equals_allow_stale_partition_epoch(current):
        return current
    if new.partition_epoch < current.partition_epoch:
        return INVALID_UPDATE_VERSION
    if new.recovery_state == RECOVERING and len(new.isr) > 1:
        return INVALID_REQUEST
    if current.recovery_state == RECOVERED and new.recovery_state == RECOVERING:
        return INVALID_REQUEST
    if not {*new.isr} <= {*live}:
        return ineligible(version)
    return replace(new, partition_epoch=current.partition_epoch + 1)


def ineligible(version: int) -> int:
    """Return the error for an ISR with a broker that may not be in it."""
    return INELIGIBLE_REPLICA if version > 1 else OPERATION_NOT_ATTEMPTED


def is_of_a_correct_leader(current: LeaderAndIsr, new: LeaderAndIsr, replicas: Collection[int]) -> bool:
    """Return whether the leader by the stored state proposes, for replicas and for members of the stored ISR."""
    is_leader = new.leader == current.leader and new.leader in new.isr
    each_once = all(new.isr.count(broker) == 1 for broker in new.isr)
    return (
        is_leader
        and each_once
        and all(broker in replicas or broker in current.isr for broker in new.isr)
        and new.recovery_state in {RECOVERED, RECOVERING}
    )


def may_all_join(
    current: LeaderAndIsr,
    new: LeaderAndIsr,
    proposed_epochs: Mapping[int, int],
    broker_epochs: Mapping[int, int],
    stopped: Collection[int],
) -> bool:
    """Return whether each member is of the present registration, and no stopped replica joins."""
    is_present = all(proposed_epochs.get(b, -1) in {-1, broker_epochs.get(b)} for b in new.isr)
    return is_present and all(b in current.isr for b in new.isr if b in stopped)
