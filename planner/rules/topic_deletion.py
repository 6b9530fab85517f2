"""The next step for a topic that is queued for deletion, and the replicas to be deleted.

Corresponds to `TopicDeletionManager.resumeDeletions` and `onTopicDeletion`. The same as
`planner.reconciliation.topic_deletion`, which explains the steps, without Spark.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from planner.rules.partitions import NONE, BrokerSets, ControllerConfig, PartitionInfo, TopicInfo, ids
from schemas.enums import RejectionCode


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
    """Decide on a topic that is queued for deletion; `is_elected`: a preferred election of it is requested."""
    if topic is None:
        return _refused(name, None, RejectionCode.UNKNOWN_TOPIC, "topic does not exist")
    if not config.deletion_enabled:
        return _refused(name, topic, RejectionCode.DELETION_DISABLED, "delete.topic.enable is false")
    if not topic.assignment_understood:
        return _waits(name, topic, RejectionCode.NOT_UNDERSTOOD, "its znode is in quarantine")
    # a partition that never had a state does not move, whatever its topic assigns
    if any(row.is_moving and row.had_state for row in partitions):
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, "a partition of the topic is being moved")
    if is_elected:
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, "a preferred election is requested")
    left = [(row.partition, broker) for row in partitions for broker in _not_deleted(row, confirmed)]
    out_of_reach = sorted({b for number, b in left if b not in brokers.eligible or b in failed.get(number, NONE)})
    if out_of_reach:
        reason = f"unreachable replicas on brokers {ids(out_of_reach)}"
        return _waits(name, topic, RejectionCode.WAITS_FOR_REPLICAS, reason)
    return Deletion(topic=name, topic_id=topic.topic_id, step=DeletionStep.DELETE if left else DeletionStep.REMOVE)


def replicas_to_delete(partitions: Iterable[PartitionInfo], confirmed: Confirmed) -> dict[int, list[int]]:
    """Return by partition the brokers that have not confirmed the deletion of their replica."""
    left = {row.partition: _not_deleted(row, confirmed) for row in partitions}
    return {partition: brokers for partition, brokers in left.items() if brokers}


def _not_deleted(row: PartitionInfo, confirmed: Confirmed) -> list[int]:
    deleted = confirmed.get(row.partition, NONE)
    return [broker for broker in row.replicas if broker not in deleted]


def _refused(name: str, topic: TopicInfo | None, code: RejectionCode, reason: str) -> Deletion:
    topic_id = None if topic is None else topic.topic_id
    return Deletion(topic=name, topic_id=topic_id, step=DeletionStep.REFUSE, code=code, reason=reason)


def _waits(name: str, topic: TopicInfo, code: RejectionCode, reason: str) -> Deletion:
    return Deletion(topic=name, topic_id=topic.topic_id, step=DeletionStep.WAIT, code=code, reason=reason)
