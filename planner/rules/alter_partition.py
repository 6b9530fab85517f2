"""Whether the controller accepts the ISR that a leader proposes for its partition.

Corresponds to `KafkaController.tryProcessAlterPartition`, with its checks in their order. Four checks are stricter, as
in KRaft's `ReplicationControlManager.validateAlterPartitionData`: the sender is the leader, the ISR contains it,
names each broker once, and names replicas only (or members of the present ISR). Decision record 028 explains why.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from msgspec import Struct

from planner.rules.inputs import NO_BROKERS
from schemas.enums import RECOVERED, RECOVERING
from schemas.partition_info import PartitionInfo
from schemas.rows import Key

INELIGIBLE_SINCE: Final = 2
"""First version of AlterPartition whose responses may have the error INELIGIBLE_REPLICA."""

UNKNOWN_BROKER_EPOCH: Final = -1
"""Broker epoch of an ISR member whose leader does not know it (versions before 3, and leaders of ZooKeeper clusters).
"""


class IsrError(IntEnum):
    """Kafka's error code in the response for one partition, and how the leader reacts to it (`Partition.scala`)."""

    NONE = 0
    """The leader adopts the state in the response."""
    UNKNOWN_TOPIC_OR_PARTITION = 3
    """The proposal stays pending until a LeaderAndIsr with a later leader epoch; so it does after 42, 74, 95, 100."""
    NOT_CONTROLLER = 41
    """The broker looks for the controller again, and repeats the whole request."""
    INVALID_REQUEST = 42
    OPERATION_NOT_ATTEMPTED = 55
    """The leader goes back to its last committed ISR, and proposes again when a replica is due. 107 means the same.
    """
    FENCED_LEADER_EPOCH = 74
    INVALID_UPDATE_VERSION = 95
    INELIGIBLE_REPLICA = 107


class IsrProposal(Struct, frozen=True, kw_only=True, gc=False):
    """The ISR that a leader proposes for one partition."""

    topic: str
    partition: int
    leader: int
    """The broker that sends the proposal."""
    leader_epoch: int
    partition_epoch: int
    """Version of the state that the leader knows."""
    isr: list[int]
    broker_epochs: list[int] = []
    """Broker epochs of the ISR's members, in their order; empty if the leader does not know them."""
    leader_recovery_state: int = RECOVERED

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class IsrVerdict(Struct, frozen=True, gc=False):
    """The decision on a proposal."""

    error: IsrError
    changes: bool = False
    """Whether the state must be written; without an error and a change the partition is already as proposed."""


@dataclass(frozen=True, slots=True)
class IsrCandidates:
    """Which brokers may be in an ISR.

    `epochs`: brokers that are registered, understood, and not shutting down, with their broker epochs. `stopped`:
    brokers whose replicas a drain has stopped, which stay in an ISR and do not join one.
    """

    epochs: Mapping[int, int]
    stopped: Collection[int] = field(default=NO_BROKERS)

    def without(self, brokers: Collection[int]) -> "IsrCandidates":
        """Return the candidates without some brokers."""
        if not brokers:
            return self
        epochs = {broker: epoch for broker, epoch in self.epochs.items() if broker not in brokers}
        return IsrCandidates(epochs, self.stopped)

    def may_be_in_sync(self, proposal: IsrProposal, row: PartitionInfo) -> bool:
        """Return whether every member of a proposed ISR may be in it."""
        members = row.isr or ()
        if any(b not in self.epochs or (b in self.stopped and b not in members) for b in proposal.isr):
            return False
        epochs = zip(proposal.isr, proposal.broker_epochs, strict=False)
        return all(epoch in {UNKNOWN_BROKER_EPOCH, self.epochs[broker]} for broker, epoch in epochs)


def check_proposal(
    proposal: IsrProposal, row: PartitionInfo | None, candidates: IsrCandidates, *, version: int
) -> IsrVerdict:
    """Check a proposal against the current state of the partition; `version` is the request's API version.

    The verdict is only as new as `row`: read the state again before you return any error. A leader whose proposal is
    refused because of an outdated state would wait for the next LeaderAndIsr.
    """
    error = _error(proposal, row, candidates)
    if error is IsrError.INELIGIBLE_REPLICA and version < INELIGIBLE_SINCE:
        error = IsrError.OPERATION_NOT_ATTEMPTED
    is_new = row is not None and not _is_as_proposed(proposal, row)
    return IsrVerdict(error, changes=error is IsrError.NONE and is_new)


def _error(proposal: IsrProposal, row: PartitionInfo | None, candidates: IsrCandidates) -> IsrError:  # noqa: PLR0911
    if row is None or not row.had_state:
        return IsrError.UNKNOWN_TOPIC_OR_PARTITION
    if not row.has_decoded_state or row.leader_epoch is None or row.state_version is None:
        return IsrError.OPERATION_NOT_ATTEMPTED
    if proposal.partition_epoch > row.state_version or proposal.leader_epoch > row.leader_epoch:
        return IsrError.NOT_CONTROLLER
    if proposal.leader_epoch < row.leader_epoch:
        return IsrError.FENCED_LEADER_EPOCH
    if _is_as_proposed(proposal, row):
        return IsrError.NONE
    if proposal.partition_epoch < row.state_version:
        return IsrError.INVALID_UPDATE_VERSION
    if _is_invalid(proposal, row):
        return IsrError.INVALID_REQUEST
    return IsrError.NONE if candidates.may_be_in_sync(proposal, row) else IsrError.INELIGIBLE_REPLICA


def _is_as_proposed(proposal: IsrProposal, row: PartitionInfo) -> bool:
    """Return whether the partition already has this ISR, as after a request whose answer was lost."""
    recovery_state = row.leader_recovery_state or RECOVERED
    proposed = proposal.leader, proposal.leader_epoch, proposal.isr, proposal.leader_recovery_state
    return proposed == (row.leader, row.leader_epoch, row.isr, recovery_state)


def _is_invalid(proposal: IsrProposal, row: PartitionInfo) -> bool:
    """Return whether no controller may accept the proposal, whichever brokers are live."""
    isr, members = proposal.isr, {*proposal.isr}
    if proposal.leader_recovery_state not in {RECOVERED, RECOVERING}:
        return True
    if proposal.leader_recovery_state == RECOVERING and (len(isr) > 1 or row.leader_recovery_state != RECOVERING):
        return True
    is_of_leader = proposal.leader == row.leader and proposal.leader in members
    return not is_of_leader or len(members) < len(isr) or not members <= {*row.replicas, *(row.isr or ())}
