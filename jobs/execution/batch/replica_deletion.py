"""Replicas that a commit deletes: replicas of topics queued for deletion, and replicas that a reassignment removes.

Brokers are notified twice: first all of them of the new state, then the brokers that hold such a replica, to delete it.
Corresponds to `TopicDeletionManager.onTopicDeletion` and `onPartitionDeletion`, and to
`KafkaController.onPartitionReassignment`, which sends the target replicas their leader before it stops the removed
ones. Nothing is written to ZooKeeper here. A later plan removes a queued topic, once table `answers` shows that every
replica is deleted.
"""

from collections.abc import Collection, Iterator, Sequence

from jobs.adapters.brokers.responses import BrokerResponses
from jobs.execution.batch.notification import NotificationResult
from planner.broker_requests import notices_for, notices_for_deletion
from schemas.enums import CONFIRMED_UNDER, Action, Outcome
from schemas.notices import STOP_REPLICA, Notice
from schemas.operation_data import DeletedReplicas, data_of
from schemas.response_codes import NO_ERROR
from schemas.rows import Change, Key, Operation
from schemas.stored_plan import Plan, RowOutcome


def changes_deleting_replicas(changes: Sequence[Change]) -> list[Change]:
    """Return the changes by which replicas leave a partition and are deleted."""
    return [change for change in changes if change.action == Action.NARROW_TO_TARGET and change.stop_replica_to]


def confirmation_expired(confirmed_under: int | None, epoch: int) -> str | None:
    """Return why confirmed deletions no longer count under `epoch`; None if they count or nothing was confirmed.

    Kafka's controller starts all replicas again when it takes over.

    >>> confirmation_expired(8, 9), confirmation_expired(8, 8), confirmation_expired(None, 8)
    (None, None, None)
    >>> confirmation_expired(8, 10)
    'another controller has taken over since its replicas were deleted'
    """
    if confirmed_under is None or epoch - confirmed_under in {0, 1}:
        return None
    return "another controller has taken over since its replicas were deleted"


def restarted_replicas(plan: Plan, changes: Sequence[Change], epoch: int) -> list[RowOutcome]:
    """Outcomes for ends of reassignments that must not be written: their removed replicas may have been started again.

    The next plan narrows the assignment again, which stops those replicas.
    """
    reason = confirmation_expired(plan.row.options.get(CONFIRMED_UNDER), epoch)
    ends = (change for change in changes if change.action == Action.END_REASSIGNMENT and change.removing_before)
    return [RowOutcome(change, Outcome.STALE, reason) for change in ends] if reason else []


def notices_before_deletion(
    changes: Sequence[Change], deletions: Sequence[Operation], live: Collection[int]
) -> list[Notice]:
    """Notices of the changes and of the topics to delete, before any replica is deleted."""
    updates = (notice for notice in notices_for(changes, live) if not notice.delete_partition)
    return [*updates, *_notices(deletions, live, delete=False)]


def deletion_notices(changes: Sequence[Change], deletions: Sequence[Operation], live: Collection[int]) -> list[Notice]:
    """Notices that delete replicas: replicas that left by `changes`, and replicas of the topics to delete."""
    stops = (notice for notice in notices_for(changes, live) if notice.delete_partition)
    return [*stops, *_notices(deletions, live, delete=True)]


def _notices(deletions: Sequence[Operation], live: Collection[int], *, delete: bool) -> Iterator[Notice]:
    for task in deletions:
        data = data_of(task, DeletedReplicas)
        yield from notices_for_deletion(task.topic, data.topic_id, data.replicas, live, delete=delete)


def deletion_outcomes(deletions: Sequence[Operation], notified: NotificationResult) -> Iterator[RowOutcome]:
    """Outcomes of the delete-replica operations.

    An operation counts as applied once requests were sent; the next plan repeats those that were not confirmed.
    """
    confirmed = set(_confirmed_deletions(notified)) if deletions else set()
    for task in deletions:
        by_partition = data_of(task, DeletedReplicas).replicas
        replicas = {(broker, (task.topic, partition)) for partition, on in by_partition.items() for broker in on}
        progress = f"{len(replicas & confirmed)} of {len(replicas)} replicas are deleted"
        hold_expired = notified.hold_expired or notified.fenced is not None
        yield RowOutcome(
            task,
            Outcome.SKIPPED if hold_expired else Outcome.APPLIED,
            f"no time was left to notify the brokers; {progress}" if hold_expired else progress,
        )


def _confirmed_deletions(notified: NotificationResult) -> Iterator[tuple[int, Key]]:
    """Yield the broker, topic and partition of each replica whose deletion a broker has confirmed."""
    responses = BrokerResponses.of([response for response in notified.responses if response.api == STOP_REPLICA])
    for response, errors in zip(responses.responses, responses.errors, strict=True):
        for notice, error in zip(response.notices, errors, strict=True):
            if notice.delete_partition and error == NO_ERROR:
                yield response.broker_id, (notice.topic, notice.partition)
