"""Requests to Kafka's controller, which carries them out under its own fence; one request for each kind of change.

Outcomes follow from the answers. If an answer is lost, or says that the time was over, the cluster shows whether the
request was received. So it does if an answer may be that to a request which a broker of a KRaft cluster has repeated,
because the controller was replaced before it answered.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

from jobs.adapters.brokers.admin import (
    ELECTION_NOT_NEEDED,
    NONE,
    UNKNOWN_OUTCOME,
    Admin,
    Creation,
    describe_error,
    error_name,
)
from jobs.adapters.sinks.interface import Lease, Sink
from jobs.adapters.zookeeper.connection import poll_until
from jobs.core.errors import UnreadableError
from jobs.execution.admin.waves import read_and_judge, read_statuses
from jobs.preconditions.operations import judge_operations
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.commit_rows import RowOutcome
from jobs.runtime.progress import progress
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.enums import WHOLE_TOPIC, Action, OperationKind, Outcome
from schemas.operation_data import AlteredConfig, CreatedTopic, DeletedTopic, ExpandedTopic, data_of
from schemas.rows import Change, Key, Operation, PlanRow, changes_among, operations_among

EXECUTABLE: Final = frozenset({Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN})
"""Actions of plans that the Admin API can carry out; first leaders only together with their topic."""

MAX_PARTITIONS_PER_REQUEST: Final = 1000
"""Partitions of new topics in one request, which takes the controller a second or two of its 20; a larger topic gets a
request of its own.
"""

REQUEST_TIMED_OUT: Final = 7

REPEATED: Final = frozenset({3, 36, 37, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS and UNKNOWN_TOPIC_ID: the answers to a request
for a creation, expansion or deletion that was carried out already.
"""

READ_BACK_SECONDS: Final = 15.0
"""Seconds for a received request whose answer was lost to show in ZooKeeper."""

Codes = Mapping[Key, int | str | RowOutcome]
"""Answers of the controller by topic and partition: an error code or, if there is one, its message, and an outcome for
partitions that were not requested.
"""

_ACCEPTED_MESSAGES: Final[dict[int | str, str]] = {
    NONE: "asked and accepted",
    ELECTION_NOT_NEEDED: "led by its preferred replica already",
}


class ControllerClient(Protocol):
    """A client of Kafka's controller; each call returns the answers by partition."""

    def elect_preferred(self, partitions: Sequence[Key]) -> Codes:
        """Request that the preferred replicas lead."""

    def reassignments(self) -> dict[Key, list[int]]:
        """Return the target replicas of each partition that is moving now, no matter which client requested it."""

    def reassign(self, targets: dict[Key, list[int]]) -> Codes:
        """Request new replicas. A partition that is missing in the answer may or may not have been received."""


Requests = Iterable[tuple[Sequence[PlanRow], Callable[[], Codes]]]
"""The changes of each request, and the function that sends it."""


def request_changes(
    sink: Sink, ledger: CommitLog, controller: ControllerClient, pending: Sequence[PlanRow], lease: Lease
) -> None:
    """Request the pending changes, kind by kind, and record the outcomes from the answers.

    Raise LeaseLostError before a request if we do not have the lease any more.
    """
    for kind, requests in _requests(sink, ledger, controller, pending):
        if any(row.action == kind for row in pending):
            with progress(f"asking Kafka's controller: {kind}"):
                for verdicts in _send_in_turn(sink, requests, lease):
                    ledger.judge(verdicts)


def _requests(
    sink: Sink, ledger: CommitLog, controller: ControllerClient, pending: Sequence[PlanRow]
) -> Iterator[tuple[Action | OperationKind, Requests]]:
    """Split the pending changes into requests, kind by kind."""
    # `jobs.execution.mode_selection` sends the kinds that only the Admin API supports to no other client.
    admin = cast("Admin", controller)
    creations_due, elections, unclean, reassignments = (
        [change for change in changes_among(pending) if change.action == action]
        for action in (Action.CREATE, Action.ELECT_PREFERRED, Action.ELECT, Action.REASSIGN)
    )
    alterations, deletions = (
        [operation for operation in operations_among(pending) if operation.kind == kind]
        for kind in (OperationKind.ALTER_CONFIG, OperationKind.DELETE_TOPIC)
    )
    yield Action.CREATE, _creations(ledger, admin, creations_due)
    yield (
        Action.ELECT_PREFERRED,
        [(elections, lambda: controller.elect_preferred([change.key for change in elections]))],
    )
    yield Action.ELECT, [(unclean, lambda: _elect_uncleanly(sink, admin, unclean))]
    yield Action.REASSIGN, [(reassignments, lambda: _reassign(sink, ledger, controller, reassignments))]
    yield OperationKind.ALTER_CONFIG, [([task], partial(_alter_config, admin, task)) for task in alterations]
    yield OperationKind.DELETE_TOPIC, [(deletions, lambda: _delete_topics(admin, deletions))]


def _send_in_turn(sink: Sink, requests: Requests, lease: Lease) -> Iterator[list[RowOutcome]]:
    """Send one request after another until an answer is lost; yield the outcomes of each.

    After a lost answer no further request is sent, and changes that the cluster does not show are UNKNOWN.
    """
    lost_response: str | None = None
    for changes, request in requests:
        if lost_response is not None:
            reason = f"not requested: {lost_response} to an earlier request"
            yield [RowOutcome(change, Outcome.SKIPPED, reason) for change in changes]
            continue
        lease.refuse_lost()
        try:
            codes, why_unknown = request(), "the controller's answer did not name it"
            if late := _answered(changes, codes, {REQUEST_TIMED_OUT}):
                lost_response = why_unknown = f"the answer was {error_name(REQUEST_TIMED_OUT)}"
                in_time = {key: code for key, code in codes.items() if code != REQUEST_TIMED_OUT}
                codes = in_time | {**_read_back(sink, late)}
            codes = {**codes, **_repeated(sink, changes, codes, REPEATED)}
        except UNKNOWN_OUTCOME as error:
            lost_response = f"no answer came ({describe_error(error)})"
            codes, why_unknown = _read_back(sink, changes), lost_response
        except KeyboardInterrupt:
            yield [RowOutcome(change, Outcome.UNKNOWN, "interrupted before it was answered") for change in changes]
            raise
        yield [_verdict(change, codes, why_unknown) for change in changes]


def _answered(changes: Sequence[PlanRow], codes: Codes, wanted: Collection[int]) -> list[PlanRow]:
    """Return the changes with one of these error codes."""
    answers = [(change, codes.get(change.key)) for change in changes]
    return [change for change, code in answers if isinstance(code, int) and code in wanted]


def _repeated(
    sink: Sink, changes: Sequence[PlanRow], codes: Codes, wanted: Collection[int]
) -> dict[Key, int | str | RowOutcome]:
    """Return the outcomes of changes that were refused with one of these codes and that the cluster shows."""
    refused = _answered(changes, codes, wanted)
    shown = _read_back(sink, refused, 0.0) if refused else {}
    answers = [(change, codes[change.key]) for change in refused if change.key in shown]
    return {
        change.key: RowOutcome(change, Outcome.APPLIED, f"found applied; the answer was {error_name(code)}")
        for change, code in answers
        if isinstance(code, int)
    }


def _read_back(sink: Sink, changes: Sequence[PlanRow], seconds: float | None = None) -> Codes:
    """Read from the cluster which changes were received, if the answer was lost; none if it cannot be read either.

    Wait for those that do not show, READ_BACK_SECONDS unless told.
    """
    tasks, partition_changes = operations_among(changes), changes_among(changes)
    with suppress(UnreadableError), sink.reading() as reader:

        def received() -> list[Key]:
            _, of_changes = read_and_judge(reader, partition_changes)
            _, of_operations = judge_operations(tasks, reader.read_operations(tasks))
            verdicts = [*of_changes, *of_operations]
            return [verdict.change.key for verdict in verdicts if verdict.outcome is Outcome.APPLIED]

        return _wait_until_seen(received, len(changes), READ_BACK_SECONDS if seconds is None else seconds)
    return {}


def _wait_until_seen(received: Callable[[], list[Key]], count: int, seconds: float) -> Codes:
    """Wait until the cluster shows all changes, for so many seconds at most; those that do not show are left out."""
    keys = poll_until(received, lambda keys: len(keys) == count, seconds)
    return dict.fromkeys(keys, NONE)


def _verdict(change: PlanRow, codes: Codes, why_unknown: str) -> RowOutcome:
    code = codes.get(change.key)
    if code is None:
        return RowOutcome(change, Outcome.UNKNOWN, why_unknown)
    if isinstance(code, RowOutcome):
        return code
    if code in _ACCEPTED_MESSAGES:
        return RowOutcome(change, Outcome.APPLIED, _ACCEPTED_MESSAGES[code])
    reason = error_name(code) if isinstance(code, int) else code
    return RowOutcome(change, Outcome.FAILED, f"the controller refused: {reason}")


def _reassign(sink: Sink, ledger: CommitLog, controller: ControllerClient, changes: Sequence[Change]) -> Codes:
    codes: dict[Key, int | str | RowOutcome] = {}
    with suppress(*UNKNOWN_OUTCOME):
        codes.update(controller.reassign({change.key: change.replicas_after for change in changes}))
    missing = [change for change in changes if change.key not in codes]
    if missing:
        codes.update(_read_back_reassignments(sink, ledger, missing))
    return codes


def _read_back_reassignments(sink: Sink, ledger: CommitLog, changes: Sequence[Change]) -> Codes:
    """Read from ZooKeeper which reassignments were received, if the answer was lost."""
    with suppress(UnreadableError), sink.reading() as reader:

        def received() -> list[Key]:
            statuses = read_statuses(reader, changes, ledger.plan)
            return [change.key for change, status, _ in statuses if status is not ReassignmentStatus.DIVERGED]

        return _wait_until_seen(received, len(changes), READ_BACK_SECONDS)
    return {}


def _elect_uncleanly(sink: Sink, admin: Admin, changes: Sequence[Change]) -> Codes:
    """Request unclean elections; a partition that has another leader by now is stale, and keeps it."""
    codes: Codes = admin.elect_unclean([change.key for change in changes])
    led = _answered(changes, codes, {ELECTION_NOT_NEEDED})
    stale = {change.key: RowOutcome(change, Outcome.STALE, "it has a leader already") for change in led}
    return {**codes, **stale, **_repeated(sink, changes, codes, {ELECTION_NOT_NEEDED})}


def _alter_config(admin: Admin, task: Operation) -> Codes:
    return {task.key: admin.alter_config(task.topic, data_of(task, AlteredConfig).after)}


def _delete_topics(admin: Admin, tasks: Sequence[Operation]) -> Codes:
    codes = admin.delete_topics({task.topic: data_of(task, DeletedTopic).topic_id for task in tasks})
    return {(topic, WHOLE_TOPIC): code for topic, code in codes.items()}


def _creations(
    ledger: CommitLog, admin: Admin, changes: Sequence[Change]
) -> Iterator[tuple[list[Change], Callable[[], Codes]]]:
    """Split new topics and partitions into requests; yield the changes of each, and the function that sends it."""
    changes_by_topic: dict[str, dict[int, Change]] = defaultdict(dict)
    for change in changes:
        changes_by_topic[change.topic][change.partition] = change
    topics: dict[str, Creation] = {}
    for operation in ledger.plan.operations:
        topic = operation.topic
        rows = changes_by_topic.get(topic)
        if rows and operation.kind == OperationKind.CREATE_TOPIC:
            config = data_of(operation, CreatedTopic).config
            topics[topic] = ({number: row.replicas_after for number, row in rows.items()}, config)
        elif rows and operation.kind == OperationKind.EXPAND_TOPIC:
            added = [rows[number].replicas_after for number in sorted(rows)]
            total = data_of(operation, ExpandedTopic).partitions
            yield [*rows.values()], partial(_expand, admin, topic, total, added, [*rows])
    for request in creation_requests(topics):
        yield [row for topic in request for row in changes_by_topic[topic].values()], partial(_create, admin, request)


def _expand(admin: Admin, topic: str, total: int, added: list[list[int]], numbers: Iterable[int]) -> Codes:
    code = admin.create_partitions(topic, total, added)
    return {(topic, number): code for number in numbers}


def _create(admin: Admin, request: Mapping[str, Creation]) -> Codes:
    response = admin.create_topics(request).items()
    return {(topic, number): code for topic, code in response for number in request[topic][0]}


def creation_requests(topics: Mapping[str, Creation]) -> Iterator[dict[str, Creation]]:
    """Split new topics into requests of a limited number of partitions: the controller answers once all are created.

    >>> few, many = ({partition: [0] for partition in range(count)} for count in (MAX_PARTITIONS_PER_REQUEST - 1, 9999))
    >>> [list(request) for request in creation_requests({"a": (few, {}), "b": ({0: [0]}, {}), "c": (many, {})})]
    [['a', 'b'], ['c']]
    """
    request: dict[str, Creation] = {}
    remaining = MAX_PARTITIONS_PER_REQUEST
    for topic, (replicas, config) in topics.items():
        if request and len(replicas) > remaining:
            yield request
            request, remaining = {}, MAX_PARTITIONS_PER_REQUEST
        request[topic] = (replicas, config)
        remaining -= len(replicas)
    if request:
        yield request
