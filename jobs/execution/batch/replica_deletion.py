"""Replicas that a commit has deleted: those of queued topics, and those that a reassignment leaves behind.

Brokers are told twice: first everybody of what is, then who holds such a replica to delete it. Corresponds to
`TopicDeletionManager.onTopicDeletion` and `onPartitionDeletion`, and to `KafkaController.onPartitionReassignment`,
which tells the target of its leader before it stops who leaves. Nothing is written; a queued topic goes by a later
plan, once `answers` says that every replica is deleted. In: changes, and operations of that kind. Out: notices, and
what became of the operations.
"""

import json
from collections.abc import Collection, Iterator, Sequence

from jobs.adapters.brokers.responses import BrokerResponses
from jobs.execution.batch.notify import NotificationResult
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from planner.broker_requests.notices import notices_for, notices_for_deletion
from schemas.enums import CONFIRMED_UNDER, Action, Outcome
from schemas.notices import STOP_REPLICA, Notice
from schemas.response_codes import NONE
from schemas.rows import Change, Key, Operation


def changes_deleting_replicas(changes: Sequence[Change]) -> list[Change]:
    """Those by which replicas leave, and are deleted."""
    return [change for change in changes if change.action == Action.NARROW_TO_TARGET and change.stop_replica_to]


def confirmation_expired(confirmed_under: int | None, epoch: int) -> str | None:
    """Say why what brokers confirmed counts for nothing under `epoch`, None where it counts, or nothing was confirmed.

    Kafka's controller starts all replicas again when it takes over.

    >>> confirmation_expired(8, 9), confirmation_expired(8, 8), confirmation_expired(None, 8)
    (None, None, None)
    >>> confirmation_expired(8, 10)
    'another controller was in office since its replicas were deleted'
    """
    if confirmed_under is None or epoch - confirmed_under in {0, 1}:
        return None
    return "another controller was in office since its replicas were deleted"


def restarted_replicas(plan: Plan, changes: Sequence[Change], epoch: int) -> list[RowOutcome]:
    """Ends of reassignments that are not to be written: those that left may have been started again since they went.

    The next plan narrows once more, by which they are told to go.
    """
    why = confirmation_expired(json.loads(plan.row["parameters"] or "{}").get(CONFIRMED_UNDER), epoch)
    ends = (change for change in changes if change.action == Action.END_REASSIGNMENT and change.removing_before)
    return [RowOutcome(change, Outcome.STALE, why) for change in ends] if why else []


def notices_before_deletion(
    changes: Sequence[Change], going: Sequence[Operation], live: Collection[int]
) -> list[Notice]:
    """What is told of changes, and of topics that go, before anything is deleted."""
    kept = (notice for notice in notices_for(changes, live) if not notice.delete_partition)
    return [*kept, *_notices(going, live, delete=False)]


def deletion_notices(left: Sequence[Change], going: Sequence[Operation], live: Collection[int]) -> list[Notice]:
    """What is told of replicas that `left`, and of topics that go, once that was told."""
    gone = (notice for notice in notices_for(left, live) if notice.delete_partition)
    return [*gone, *_notices(going, live, delete=True)]


def _notices(going: Sequence[Operation], live: Collection[int], *, delete: bool) -> list[Notice]:
    return [notice for task in going for notice in _topic_notices(task, live, delete=delete)]


def _topic_notices(task: Operation, live: Collection[int], *, delete: bool) -> list[Notice]:
    data = json.loads(task.data)
    replicas = {int(partition): on for partition, on in data["replicas"].items()}
    return notices_for_deletion(task.topic, data["topic_id"], replicas, live, delete=delete)


def deletion_outcomes(going: Sequence[Operation], told: NotificationResult) -> Iterator[RowOutcome]:
    """What became of these: told is done, as the next plan tells those again who did not confirm."""
    confirmed = set(_confirmed_deletions(told)) if going else set()
    for task in going:
        left = json.loads(task.data)["replicas"]
        replicas = {(broker, (task.topic, int(partition))) for partition, on in left.items() for broker in on}
        done = f"{len(replicas & confirmed)} of {len(replicas)} replicas are deleted"
        late = told.out_of_time or told.fenced is not None
        yield RowOutcome(
            task, Outcome.SKIPPED if late else Outcome.APPLIED, f"no time to tell; {done}" if late else done
        )


def _confirmed_deletions(told: NotificationResult) -> Iterator[tuple[int, Key]]:
    """Who said that a replica is deleted: broker, topic and partition."""
    answers = BrokerResponses.of([answer for answer in told.answers if answer.api == STOP_REPLICA])
    for answer, errors in zip(answers.responses, answers.errors, strict=True):
        for notice, error in zip(answer.notices, errors, strict=True):
            if notice.delete_partition and error == NONE:
                yield answer.broker["broker_id"], (notice.topic, notice.partition)
