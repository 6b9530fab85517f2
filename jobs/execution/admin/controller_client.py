"""Kafka's own controller is asked, and does it under its own fence: each kind of change in its own request.

What it answers is judged; where the answer was lost, the cluster says what was heard.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

from jobs.adapters.brokers.admin import ELECTION_NOT_NEEDED, NONE, UNKNOWN_OUTCOME, Admin, describe_error, error_name
from jobs.adapters.zookeeper.connection import connected, poll_until, sync
from jobs.core.errors import UnreadableError
from jobs.execution.admin.creation import creations
from jobs.preconditions.changes import judge_for_admin
from jobs.preconditions.operations import judge_tasks
from jobs.preconditions.reassignments import reassignment_statuses
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import ReassignmentStatus
from schemas.enums import WHOLE_TOPIC, Action, OperationKind, Outcome
from schemas.rows import Change, Key, Operation, PlanRow, changes_among, operations_among

EXECUTABLE: Final = frozenset({Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN})
"""What the Admin API can do of what plans contain; first leaders only with their topic."""

READ_BACK_SECONDS: Final = 15.0
"""Seconds within which a request whose answer was lost shows in ZooKeeper, if it was heard."""

Codes = Mapping[Key, int | str | RowOutcome]
"""What the controller answered, by topic and partition: an error code or, where there is more to say, its message; a
verdict where it was not asked."""

_ACCEPTED_MESSAGES: Final[dict[int | str, str]] = {
    NONE: "asked and accepted",
    ELECTION_NOT_NEEDED: "led by its preferred replica already",
}


class ControllerClient(Protocol):
    """Kafka's controller, however it is asked; each call returns what it answered by partition."""

    def elect_preferred(self, partitions: Sequence[Key]) -> Codes:
        """Ask for the preferred replica to lead."""

    def reassignments(self) -> dict[Key, list[int]]:
        """Where each partition that moves now is going, whoever asked."""

    def reassign(self, targets: dict[Key, list[int]]) -> Codes:
        """Ask for replicas; a partition that the answer does not name may have been heard or not."""


Requests = Iterable[tuple[Sequence[PlanRow], Callable[[], Codes]]]
"""The changes that each request is for, and how it is asked."""


def request_changes(
    settings: Settings, ledger: CommitLog, controller: ControllerClient, due: Sequence[PlanRow]
) -> None:
    """Ask for what is due, kind by kind, and judge by the answers."""
    for kind, requests in _requests(settings, ledger, controller, due):
        if any(row.action == kind for row in due):
            with progress(f"asking Kafka's controller: {kind}"):
                for verdicts in _send_in_turn(settings, requests):
                    ledger.judge(verdicts)


def _requests(
    settings: Settings, ledger: CommitLog, controller: ControllerClient, due: Sequence[PlanRow]
) -> Iterator[tuple[Action | OperationKind, Requests]]:
    """Cut what is due into requests, kind by kind."""
    # `jobs.execution.mode_selection` lets only the Admin API have the kinds that it alone knows.
    admin = cast("Admin", controller)
    created, elected, moved = (
        [change for change in changes_among(due) if change.action == action]
        for action in (Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN)
    )
    altered, deleted = (
        [operation for operation in operations_among(due) if operation.kind == kind]
        for kind in (OperationKind.ALTER_CONFIG, OperationKind.DELETE_TOPIC)
    )
    yield Action.CREATE, creations(ledger, admin, created)
    yield Action.ELECT_PREFERRED, [(elected, lambda: controller.elect_preferred([change.key for change in elected]))]
    yield Action.REASSIGN, [(moved, lambda: _reassign(settings, ledger, controller, moved))]
    yield OperationKind.ALTER_CONFIG, [([task], partial(_alter_config, admin, task)) for task in altered]
    yield OperationKind.DELETE_TOPIC, [(deleted, lambda: _delete_topics(admin, deleted))]


def _send_in_turn(settings: Settings, requests: Requests) -> Iterator[list[RowOutcome]]:
    """Ask one after another, up to one whose answer is lost: what the cluster does not show of it then is unknown."""
    lost: str | None = None
    for changes, request in requests:
        if lost is not None:
            why = f"not asked for: {lost} to a request before"
            yield [RowOutcome(change, Outcome.SKIPPED, why) for change in changes]
            continue
        try:
            codes, unnamed = request(), "the controller's answer did not name it"
        except UNKNOWN_OUTCOME as error:
            lost = f"no answer came ({describe_error(error)})"
            codes, unnamed = _read_back(settings, changes), lost
        except KeyboardInterrupt:
            yield [RowOutcome(change, Outcome.UNKNOWN, "interrupted before it was answered") for change in changes]
            raise
        yield [_verdict(change, codes, unnamed) for change in changes]


def _read_back(settings: Settings, changes: Sequence[PlanRow]) -> Codes:
    """Tell by the cluster what was heard, where the answer was lost; nothing where ZooKeeper is, too."""
    tasks, rest = operations_among(changes), changes_among(changes)
    with suppress(UnreadableError), connected(settings.zookeeper) as client:

        def heard() -> list[Key]:
            sync(client)
            verdicts = [*judge_for_admin(client, rest)[1], *judge_tasks(client, tasks)[1]]
            return [verdict.change.key for verdict in verdicts if verdict.outcome is Outcome.APPLIED]

        return _wait_until_seen(heard, len(changes))
    return {}


def _wait_until_seen(heard: Callable[[], list[Key]], count: int) -> Codes:
    """Wait until all are heard, READ_BACK at most; what was not is missing."""
    keys = poll_until(heard, lambda keys: len(keys) == count, READ_BACK_SECONDS)
    return dict.fromkeys(keys, NONE)


def _verdict(change: PlanRow, codes: Codes, unnamed: str) -> RowOutcome:
    code = codes.get(change.key)
    if code is None:
        return RowOutcome(change, Outcome.UNKNOWN, unnamed)
    if isinstance(code, RowOutcome):
        return code
    if code in _ACCEPTED_MESSAGES:
        return RowOutcome(change, Outcome.APPLIED, _ACCEPTED_MESSAGES[code])
    why = error_name(code) if isinstance(code, int) else code
    return RowOutcome(change, Outcome.FAILED, f"the controller refused: {why}")


def _reassign(settings: Settings, ledger: CommitLog, controller: ControllerClient, changes: Sequence[Change]) -> Codes:
    codes: dict[Key, int | str | RowOutcome] = {}
    with suppress(*UNKNOWN_OUTCOME):
        codes.update(controller.reassign({change.key: change.replicas_after for change in changes}))
    unheard = [change for change in changes if change.key not in codes]
    if unheard:
        codes.update(_read_back_reassignments(settings, ledger, unheard))
    return codes


def _read_back_reassignments(settings: Settings, ledger: CommitLog, changes: Sequence[Change]) -> Codes:
    """Tell by the cluster which requests were heard, where the answer was lost."""
    with suppress(UnreadableError), connected(settings.zookeeper) as client:

        def heard() -> list[Key]:
            sync(client)
            seen = reassignment_statuses(client, changes, ledger.plan)
            return [change.key for change, standing, _ in seen if standing is not ReassignmentStatus.DIVERGED]

        return _wait_until_seen(heard, len(changes))
    return {}


def _alter_config(admin: Admin, task: Operation) -> Codes:
    return {task.key: admin.alter_config(task.topic, json.loads(task.data)["after"])}


def _delete_topics(admin: Admin, tasks: Sequence[Operation]) -> Codes:
    codes = admin.delete_topics({task.topic: json.loads(task.data)["topic_id"] for task in tasks})
    return {(topic, WHOLE_TOPIC): code for topic, code in codes.items()}
