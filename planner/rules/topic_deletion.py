"""The next step for a topic that is queued for deletion, and the replicas to be deleted.

Corresponds to `TopicDeletionManager.resumeDeletions` and `onTopicDeletion`. Plain-Python
counterpart of `planner.reconciliation.deletion_steps`, which explains the steps; a change of one needs the other.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from planner.rules.inputs import NO_BROKERS, BrokerSets, ControllerConfig
from planner.rules.state_machines import replica_state
from schemas import reasons
from schemas.enums import RejectionCode, ReplicaState
from schemas.partition_info import PartitionInfo, TopicInfo


class DeletionStep(StrEnum):
    """The next step for a queued topic."""

    DELETE = "delete"
    """Send StopReplica to the brokers, so that they delete their logs."""
    REMOVE = "remove"
    """Every replica is deleted: remove the topic from ZooKeeper."""
    REFUSE = "refuse"
    """Withdraw the request: the topic does not exist, or deletion is not enabled."""
    WAIT = "wait"


class Deletion(Struct, frozen=True, kw_only=True):
    """The next step of one queued topic, and why it waits or is refused."""

    topic: str
    topic_id: str | None = None
    step: DeletionStep
    code: RejectionCode | None = None
    reason: str | None = None


Confirmed = Mapping[int, Collection[int]]
"""By partition, the brokers that have confirmed the deletion of their replica."""
Failed = Mapping[int, Collection[int]]
"""By partition, the brokers on which its log dir failed."""

_NO_REPLICAS: Final[Mapping[int, Collection[int]]] = {}


def deletion_step(  # noqa: PLR0911, PLR0913 - what a step depends on, and a line for each case
    name: str,
    topic: TopicInfo | None,
    partitions: Sequence[PartitionInfo],
    brokers: BrokerSets,
    config: ControllerConfig,
    *,
    is_elected: bool,
    confirmed: Confirmed = _NO_REPLICAS,
    failed: Failed = _NO_REPLICAS,
) -> Deletion:
    """Decide on a topic queued for deletion; `is_elected` is whether a preferred election of it is requested."""
    if topic is None:
        return _refused(name, None, RejectionCode.UNKNOWN_TOPIC, reasons.UNKNOWN_TOPIC.render())
    if not config.deletion_enabled:
        return _refused(name, topic, RejectionCode.DELETION_DISABLED, reasons.DELETION_DISABLED.render())
    if not topic.assignment_understood:
        return _waits(name, topic, RejectionCode.NOT_UNDERSTOOD, reasons.QUARANTINED.render())
    # a partition that never had a state does not move, whatever its topic assigns
    if any(row.is_being_reassigned and row.had_state for row in partitions):
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, reasons.TOPIC_MOVES.render())
    if is_elected:
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, reasons.ELECTION_REQUESTED.render())
    states = replica_states(partitions, brokers, confirmed, failed)
    ineligible = sorted({broker for (_, broker), state in states.items() if state is ReplicaState.DELETION_INELIGIBLE})
    if ineligible:
        reason = reasons.REPLICAS_UNREACHABLE.render(brokers=ineligible)
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, reason)
    is_deleted = all(state is ReplicaState.DELETION_SUCCESSFUL for state in states.values())
    step = DeletionStep.REMOVE if is_deleted else DeletionStep.DELETE
    return Deletion(topic=name, topic_id=topic.topic_id, step=step)


def replica_states(
    partitions: Iterable[PartitionInfo], brokers: BrokerSets, confirmed: Confirmed, failed: Failed = _NO_REPLICAS
) -> dict[tuple[int, int], ReplicaState]:
    """Return the state of each replica of a queued topic, by partition and broker."""
    return {
        (row.partition, broker): replica_state(
            is_deleting=True,
            is_reachable=broker in brokers.eligible and broker not in failed.get(row.partition, NO_BROKERS),
            is_new=row.leader is None,
            is_deleted=broker in confirmed.get(row.partition, NO_BROKERS),
        )
        for row in partitions
        for broker in row.replicas
    }


def replicas_to_delete(states: Mapping[tuple[int, int], ReplicaState]) -> dict[int, list[int]]:
    """Return by partition the brokers that have not confirmed the deletion of their replica."""
    brokers_by_partition = defaultdict[int, list[int]](list)
    for (partition, broker), state in states.items():
        if state is not ReplicaState.DELETION_SUCCESSFUL:
            brokers_by_partition[partition].append(broker)
    return dict(brokers_by_partition)


def _refused(name: str, topic: TopicInfo | None, code: RejectionCode, reason: str) -> Deletion:
    topic_id = None if topic is None else topic.topic_id
    return Deletion(topic=name, topic_id=topic_id, step=DeletionStep.REFUSE, code=code, reason=reason)


def _waits(name: str, topic: TopicInfo, code: RejectionCode, reason: str) -> Deletion:
    return Deletion(topic=name, topic_id=topic.topic_id, step=DeletionStep.WAIT, code=code, reason=reason)
