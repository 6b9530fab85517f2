"""Requests to Kafka's controller, which carries them out under its own fence; many changes of one kind in a request.

Outcomes follow from the responses. If a response is lost or reports a timeout, the cluster shows whether the request
was received. A broker of a KRaft cluster repeats a request if the controller is replaced before it responds. If a
response may be that to such a repetition, the cluster is read as well.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, cast

from jobs.adapters.brokers.admin_client import (
    ELECTION_NOT_NEEDED,
    MAX_PARTITIONS_PER_REQUEST,
    NO_REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_OUTCOME,
    Admin,
    Creation,
    LateRequestError,
    batches,
    describe_error,
    error_name,
)
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.core.errors import LeaseLostError, RefusedError, SurveyorError, first_line
from jobs.core.polling import poll_until
from jobs.execution.admin.resident_controller_client import MAX_CHECK_SECONDS, ResidentControllerClient
from jobs.execution.admin.wave_progress import read_and_check, read_statuses
from jobs.preconditions.change_preconditions import adds_partition, is_unclean, turns_back
from jobs.preconditions.operations import check_operations
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.pace import Clock, Pace
from jobs.runtime.progress import progress
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.enums import WHOLE_TOPIC, Action, OperationKind, Outcome
from schemas.operation_data import (
    AlteredConfig,
    CreatedTopic,
    DeletedTopic,
    ExpandedTopic,
    WithdrawnReassignment,
    data_of,
)
from schemas.response_codes import NO_ERROR
from schemas.rows import Change, Key, Operation, Place, PlanRow, changes_among, operations_among
from schemas.stored_plan import Plan, RowOutcome

EXECUTABLE: Final = frozenset({Action.CREATE, Action.ELECT_PREFERRED, Action.REASSIGN, Action.CANCEL})
"""Actions of plans that the Admin API can carry out; first leaders only together with their topic."""

REQUEST_TIMED_OUT: Final = 7

REPEATED: Final = frozenset({-1, 3, 36, 37, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS and UNKNOWN_TOPIC_ID: the answers to a request
for a creation, expansion or deletion that was carried out already. UNKNOWN_SERVER_ERROR: the controller failed while
it carried the request out, as if a state has a later controller epoch (`KafkaController.updateLeaderEpoch`), and may
have written the new assignment before.
"""

Codes = Mapping[Key, int | str | RowOutcome]
"""Answers of the controller by topic and partition: an error code or, if there is one, its message, and an outcome for
partitions that were not requested.
"""

_ACCEPTED: Final[dict[int | str, str]] = {
    NO_ERROR: "asked and accepted",
    ELECTION_NOT_NEEDED: "led by its preferred replica already",
}


class ControllerClient(Protocol):
    """A client of Kafka's controller; each call returns the answers by partition."""

    def elect_preferred(self, partitions: Sequence[Key]) -> Codes:
        """Request that the preferred replicas lead. The cluster shows the outcome of partitions without an answer."""

    def reassignments(self) -> dict[Key, list[int]]:
        """Return the target replicas of each partition that is moving now, no matter which client requested it."""

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> Codes:
        """Request new replicas, or with None a cancellation.

        A partition that is missing in the answer may or may not have been received.
        """


Send = Callable[[Sequence[PlanRow]], Codes]
Requests = Iterable[tuple[Sequence[PlanRow], Send]]
"""The changes of each request, and the function that sends a request for the changes that are still due."""

Recheck = Callable[[Sequence[PlanRow]], list[PlanRow]]
"""Checks changes by a new reading; returns the changes that are still due, and records the outcomes of the others."""

ReadBack = Callable[[Sequence[PlanRow]], None]
"""Reads the accepted changes of a request from the cluster, once their outcomes are recorded."""

_UNNAMED: Final = "the controller's answer did not name it"

MAX_LEASE_CHECKS: Final = 3
"""Checks of the lease before one request, after which the changes are skipped."""


def request_changes(  # noqa: PLR0917 - where, what, and under which checks
    cluster: Cluster,
    commit_log: CommitLog,
    controller: ControllerClient,
    pending: Sequence[PlanRow],
    lease: Lease,
    recheck: Recheck,
    read_back: ReadBack,
    checked_at: float,
    pace: Pace,
) -> None:
    """Request the pending changes, kind by kind, and record the outcomes from the answers.

    The caller has just checked them; `checked_at` is when that reading began, by the monotonic clock. Changes that are
    requested more than `pace.check_valid` later are checked again. Raise LeaseLostError before a request if the lease
    is lost.
    """
    checks_each = any(row.action == Action.CANCEL for row in pending)
    due_check = _RowCheck(recheck, checked_at, {row.place for row in pending}, checks_each, pace)
    shown = _Shown(cluster, commit_log.plan, pace.read_back)
    for kind, requests in _requests(shown, commit_log, controller, pending, lease):
        if any(row.action == kind for row in pending):
            with progress(f"asking Kafka's controller: {kind}"):
                for outcomes in _send_in_turn(shown, requests, lease, due_check):
                    commit_log.add_outcomes(outcomes)
                    read_back([outcome.change for outcome in outcomes if outcome.outcome is Outcome.APPLIED])


@dataclass(frozen=True, slots=True)
class _Shown:
    """The changes of a plan that the cluster shows; reading them may raise UnreadableError."""

    cluster: Cluster
    plan: Plan
    seconds: float
    """How long to wait for a change that was received."""

    def at_once(self, changes: Sequence[PlanRow]) -> list[Key]:
        return self._within(changes, 0.0)

    def in_time(self, changes: Sequence[PlanRow]) -> list[Key]:
        return self._within(changes, self.seconds)

    def _within(self, changes: Sequence[PlanRow], seconds: float) -> list[Key]:
        tasks, partition_changes = operations_among(changes), changes_among(changes)

        def await_receipt() -> list[Key]:
            _, of_changes = read_and_check(self.cluster, self.plan, partition_changes)
            _, of_operations = check_operations(tasks, self.cluster.read_operations(tasks))
            outcomes = [*of_changes, *of_operations]
            return [outcome.change.key for outcome in outcomes if outcome.outcome is Outcome.APPLIED]

        return _wait_until_seen(await_receipt, len(changes), seconds)


@dataclass(slots=True)
class _RowCheck:
    """Which changes were checked by the last reading, and when."""

    recheck: Recheck
    at: float
    """When that reading began, by the monotonic clock: its results may be as old."""
    checked: set[Place]
    checks_each: bool
    """Whether rows are checked before each request: a cancellation may delete the last copy in sync."""
    pace: Pace
    not_due: set[Place] = field(default_factory=set)
    """Changes whose outcomes are recorded, because they were found to be no longer due."""

    def rows_still_valid(self, rows: Sequence[PlanRow], upcoming: Sequence[PlanRow]) -> list[PlanRow]:
        """Return the rows that are due; if they have to be read, the first of `upcoming` are checked with them."""
        is_old = self.checks_each or self.pace.clock.monotonic() - self.at >= self.pace.check_valid
        if is_old or any(row.place not in self.checked for row in rows):
            count = max(len(rows), self.pace.checked_together)
            batch = [row for row in [*rows, *upcoming][:count] if row.place not in self.not_due]
            self.at = self.pace.clock.monotonic()
            due = {row.place for row in self.recheck(batch)}
            self.checked = {row.place for row in batch}
            self.not_due |= self.checked - due
        return [row for row in rows if row.place not in self.not_due]


def _requests(
    shown: _Shown, commit_log: CommitLog, controller: ControllerClient, pending: Sequence[PlanRow], lease: Lease
) -> Iterator[tuple[Action | OperationKind, Requests]]:
    """Split the pending changes into requests, kind by kind."""
    # `jobs.execution.mode_selection` sends the kinds that only the Admin API supports to no other client.
    admin = cast("Admin", controller)
    creations_due, elections, offline, cancellations, reassignments = (
        [change for change in changes_among(pending) if change.action == action]
        for action in (Action.CREATE, Action.ELECT_PREFERRED, Action.ELECT, Action.CANCEL, Action.REASSIGN)
    )
    withdrawals, alterations, deletions = (
        [operation for operation in operations_among(pending) if operation.kind == kind]
        for kind in (OperationKind.WITHDRAW_REASSIGNMENT, OperationKind.ALTER_CONFIG, OperationKind.DELETE_TOPIC)
    )
    unclean = [change for change in offline if is_unclean(change)]
    clean = [change for change in offline if not is_unclean(change)]
    yield Action.CREATE, _creations(commit_log, admin, creations_due)

    def elect(rows: Sequence[PlanRow]) -> Codes:
        codes = controller.elect_preferred([row.key for row in rows])
        unanswered = [row for row in rows if row.key not in codes]
        return {**codes, **_read_back(shown, unanswered, _UNNAMED)[0]} if unanswered else codes

    def elect_uncleanly(rows: Sequence[PlanRow]) -> Codes:
        return _elect_uncleanly(shown, admin, changes_among(rows))

    def withdraw(rows: Sequence[PlanRow]) -> Codes:
        orders = {row.topic: data_of(row, WithdrawnReassignment).orders for row in operations_among(rows)}
        shown.cluster.withdraw_requests(
            {(topic, number) for topic, numbers in orders.items() for number in numbers}, lease
        )
        return dict.fromkeys((row.key for row in rows), NO_ERROR)

    def cancel(rows: Sequence[PlanRow]) -> Codes:
        return _cancel(controller, changes_among(rows), lease)

    def reassign(rows: Sequence[PlanRow]) -> Codes:
        return _reassign(shown, controller, changes_among(rows))

    def delete(rows: Sequence[PlanRow]) -> Codes:
        return _delete_topics(admin, operations_among(rows))

    yield Action.ELECT_PREFERRED, [(batch, elect) for batch in batches(elections)]
    yield (
        Action.ELECT,
        [
            (clean, lambda rows: _await_own_elections(shown, changes_among(rows))),
            *((batch, elect_uncleanly) for batch in batches(unclean)),
        ],
    )
    yield OperationKind.WITHDRAW_REASSIGNMENT, [(batch, withdraw) for batch in batches(withdrawals)]
    yield Action.CANCEL, [(batch, cancel) for batch in batches(cancellations)]
    yield Action.REASSIGN, [(batch, reassign) for batch in batches(reassignments)]
    yield OperationKind.ALTER_CONFIG, [([task], partial(_alter_config, admin, task)) for task in alterations]
    yield OperationKind.DELETE_TOPIC, [(batch, delete) for batch in batches(deletions)]


def _send_in_turn(shown: _Shown, requests: Requests, lease: Lease, due_check: _RowCheck) -> Iterator[list[RowOutcome]]:
    """Send one request after another until an answer is lost; yield the outcomes of each.

    After a lost answer no further request is sent, and changes that the cluster does not show are UNKNOWN.
    """
    lost_response: str | None = None
    in_order = [(changes, send) for changes, send in requests if changes]
    all_changes = [change for changes, _ in in_order for change in changes]
    end = 0
    for planned, send in in_order:
        end += len(planned)
        if lost_response is not None:
            reason = reasons.NOT_REQUESTED.render(cause=f"{lost_response} to an earlier request")
            rest = [change for change in planned if change.place not in due_check.not_due]
            yield [RowOutcome(change, Outcome.SKIPPED, reason) for change in rest]
            continue
        for _ in range(MAX_LEASE_CHECKS):
            changes = due_check.rows_still_valid(planned, all_changes[end : end + due_check.pace.checked_together])
            if not changes or _check_lease_quickly(lease, due_check.pace.clock):
                break
            due_check.checked.clear()
        else:
            slow = f"each check of the lease took more than {MAX_CHECK_SECONDS:g} s"
            reason = reasons.NOT_REQUESTED.render(cause=slow)
            yield [RowOutcome(change, Outcome.SKIPPED, reason) for change in changes]
            continue
        if not changes:
            continue
        try:
            outcomes, lost_response = _ask(shown, changes, send)
        except KeyboardInterrupt:
            yield [RowOutcome(change, Outcome.UNKNOWN, "interrupted before it was answered") for change in changes]
            raise
        except (RefusedError, LateRequestError, LeaseLostError):
            raise  # nothing was sent
        except SurveyorError as error:
            if changes[0].action in {Action.CANCEL, OperationKind.WITHDRAW_REASSIGNMENT}:
                yield [RowOutcome(change, Outcome.UNKNOWN, first_line(error)) for change in changes]
            raise
        yield outcomes


def _check_lease_quickly(lease: Lease, clock: Clock) -> bool:
    """Check the lease; return whether it was quick enough for the check of the changes before it to stay valid.

    The wall clock also counts the time of a suspended machine.
    """
    began, wall_began = clock.monotonic(), clock.time()
    lease.refuse_lost()
    return clock.monotonic() - began < MAX_CHECK_SECONDS and abs(clock.time() - wall_began) < MAX_CHECK_SECONDS


def _ask(shown: _Shown, changes: Sequence[PlanRow], send: Send) -> tuple[list[RowOutcome], str | None]:
    """Send one request; return the outcomes, and what happened to the answer if it is lost or late."""
    lost_response, why_unknown = None, _UNNAMED
    try:
        codes = send(changes)
    except UNKNOWN_OUTCOME as error:
        lost_response = f"no answer came ({describe_error(error)})"
        codes, why_unknown = _read_back(shown, changes, lost_response)
    else:
        if late := _answered(changes, codes, {REQUEST_TIMED_OUT}):
            lost_response = f"the answer was {error_name(REQUEST_TIMED_OUT)}"
            codes_shown, why_unknown = _read_back(shown, late, lost_response)
            codes = {key: code for key, code in codes.items() if code != REQUEST_TIMED_OUT} | {**codes_shown}
        codes = {**codes, **_repeated(shown, changes, codes, REPEATED)}
    return [outcome_of(change, codes, why_unknown) for change in changes], lost_response


def _answered(changes: Sequence[PlanRow], codes: Codes, expected_codes: Collection[int]) -> list[PlanRow]:
    """Return the changes with one of these error codes."""
    answers = [(change, codes.get(change.key)) for change in changes]
    return [change for change, code in answers if isinstance(code, int) and code in expected_codes]


def _repeated(
    shown: _Shown, changes: Sequence[PlanRow], codes: Codes, refusal_codes: Collection[int]
) -> dict[Key, int | str | RowOutcome]:
    """Return the outcomes of changes that were refused with one of these codes and that the cluster shows.

    If the cluster cannot be read, they are unknown: the answer may be that to a repeated request.
    """
    outcomes: dict[Key, int | str | RowOutcome] = {}
    refused = _answered(changes, codes, refusal_codes)
    if not refused:
        return outcomes
    try:
        outcomes_shown = shown.at_once(refused)
    except SurveyorError as error:
        unread: str | None = first_line(error)
        outcomes_shown = []
    else:
        unread = None
    for change in refused:
        code = codes[change.key]
        answer = f"the answer was {error_name(code) if isinstance(code, int) else code}"
        if change.key in outcomes_shown:
            outcomes[change.key] = RowOutcome(change, Outcome.APPLIED, f"found applied; {answer}")
        elif unread is not None:
            message = (
                f"{answer}, but the client may have sent the request twice; the cluster could not be read: {unread}"
            )
            outcomes[change.key] = RowOutcome(change, Outcome.UNKNOWN, message)
    return outcomes


def _read_back(shown: _Shown, changes: Sequence[PlanRow], lost_response: str) -> tuple[Codes, str]:
    """Read from the cluster which changes were received, waiting for those that do not show.

    Return NO_ERROR for each, and why the others are unknown.
    """
    try:
        return dict.fromkeys(shown.in_time(changes), NO_ERROR), lost_response
    except SurveyorError as error:
        return {}, f"{lost_response}, and the cluster could not be read: {first_line(error)}"


def _wait_until_seen(received: Callable[[], list[Key]], count: int, seconds: float) -> list[Key]:
    """Wait at most `seconds` until the cluster shows all changes; return the changes that it shows."""
    return poll_until(received, lambda keys: len(keys) == count, seconds)


def outcome_of(change: PlanRow, codes: Codes, why_unknown: str) -> RowOutcome:
    """Return the outcome by the controller's answer; `why_unknown` explains a missing one."""
    code = codes.get(change.key)
    if code is None:
        return RowOutcome(change, Outcome.UNKNOWN, why_unknown)
    if isinstance(code, RowOutcome):
        return code
    if code in _ACCEPTED:
        return RowOutcome(change, Outcome.APPLIED, _ACCEPTED[code])
    cause = refusal(code, *_permission(change)) if isinstance(code, int) else code
    return RowOutcome(change, Outcome.FAILED, f"the controller refused: {cause}")


def _permission(change: PlanRow) -> tuple[str, str]:
    """Return the resource and the operation that the request for a change needs a permission for."""
    if isinstance(change, Operation):
        return "topic", "DELETE" if change.kind == OperationKind.DELETE_TOPIC else "ALTER_CONFIGS"
    if change.action == Action.CREATE:
        return "topic", "ALTER" if adds_partition(change) else "CREATE"
    return "cluster", "ALTER"


def _reassign(shown: _Shown, controller: ControllerClient, changes: Sequence[Change]) -> Codes:
    codes = controller.reassign({change.key: change.replicas_after for change in changes})
    why_unknown = _UNNAMED
    missing = [change for change in changes if change.key not in codes]
    if not missing:
        return codes
    try:
        begun = _shown_reassignments(shown, missing)
    except SurveyorError as error:
        begun, why_unknown = [], f"{why_unknown}, and the cluster could not be read: {first_line(error)}"
    unknown = {change.key: RowOutcome(change, Outcome.UNKNOWN, why_unknown) for change in missing}
    return {**codes, **unknown, **dict.fromkeys(begun, NO_ERROR)}


def _cancel(controller: ControllerClient, changes: Sequence[Change], lease: Lease) -> Codes:
    """Request cancellations. That nothing moves is no failure: the cluster shows how each reassignment has ended."""
    codes: Codes = (
        controller.lead_back({change.key: change.replicas_after for change in changes}, lease)
        if isinstance(controller, ResidentControllerClient)
        else controller.reassign(dict.fromkeys(change.key for change in changes))
    )
    still = [row.key for row in changes if not turns_back(row) or codes.get(row.key) == NO_REASSIGNMENT_IN_PROGRESS]
    return {**codes, **dict.fromkeys(still, NO_ERROR)}


def _shown_reassignments(shown: _Shown, changes: Sequence[Change]) -> list[Key]:
    """Return which reassignments the cluster shows that the answer does not name; raise UnreadableError."""

    def received() -> list[Key]:
        statuses = read_statuses(shown.cluster, changes)
        return [change.key for change, status, _ in statuses if status is not ReassignmentStatus.DIVERGED]

    return _wait_until_seen(received, len(changes), shown.seconds)


def _elect_uncleanly(shown: _Shown, admin: Admin, changes: Sequence[Change]) -> Codes:
    """Request unclean elections; a partition that has another leader by now is stale, and keeps it."""
    codes: Codes = admin.elect_unclean([change.key for change in changes])
    led = _answered(changes, codes, {ELECTION_NOT_NEEDED})
    stale = {change.key: RowOutcome(change, Outcome.STALE, "it has a leader already") for change in led}
    return {**codes, **stale, **_repeated(shown, changes, codes, {ELECTION_NOT_NEEDED})}


def _await_own_elections(shown: _Shown, changes: Sequence[Change]) -> Codes:
    """Wait until the controller has elected replicas in sync by itself, as it does without a request.

    A request would be for an unclean election, which loses records if the replica in sync fails just then.
    """
    codes, why_unknown = _read_back(
        shown, changes, "the controller elects in-sync replicas itself; it was not seen to elect the planned leader"
    )
    waiting = {change.key: RowOutcome(change, Outcome.SKIPPED, why_unknown) for change in changes}
    return {**waiting, **codes}


def _alter_config(admin: Admin, task: Operation, _: Sequence[PlanRow]) -> Codes:
    return {task.key: admin.alter_config(task.topic, data_of(task, AlteredConfig).after)}


def _delete_topics(admin: Admin, tasks: Sequence[Operation]) -> Codes:
    codes = admin.delete_topics({task.topic: data_of(task, DeletedTopic).topic_id for task in tasks})
    return {(topic, WHOLE_TOPIC): code for topic, code in codes.items()}


def _creations(commit_log: CommitLog, admin: Admin, changes: Sequence[Change]) -> Iterator[tuple[list[Change], Send]]:
    """Split new topics and partitions into requests; yield the changes of each, and the function that sends it."""
    changes_by_topic = _by_topic(changes)
    topics: dict[str, Creation] = {}
    configs: dict[str, dict[str, str]] = {}
    for operation in commit_log.plan.operations:
        topic = operation.topic
        rows = changes_by_topic.get(topic)
        if rows and operation.kind == OperationKind.CREATE_TOPIC:
            configs[topic] = data_of(operation, CreatedTopic).config
            topics[topic] = (_replicas(rows), configs[topic])
        elif rows and operation.kind == OperationKind.EXPAND_TOPIC:
            total = data_of(operation, ExpandedTopic).partitions
            yield [*rows.values()], partial(_expand, admin, topic, total)
    for request in creation_requests(topics):
        yield [row for topic in request for row in changes_by_topic[topic].values()], partial(_create, admin, configs)


def _by_topic(changes: Iterable[Change]) -> dict[str, dict[int, Change]]:
    changes_by_topic: dict[str, dict[int, Change]] = defaultdict(dict)
    for change in changes:
        changes_by_topic[change.topic][change.partition] = change
    return changes_by_topic


def _replicas(rows: Mapping[int, Change]) -> dict[int, list[int]]:
    return {number: row.replicas_after for number, row in rows.items()}


def _expand(admin: Admin, topic: str, total: int, changes: Sequence[PlanRow]) -> Codes:
    replicas = _replicas(_by_topic(changes_among(changes))[topic])
    code = admin.create_partitions(topic, total, [replicas[number] for number in sorted(replicas)])
    return {(topic, number): code for number in replicas}


def _create(admin: Admin, configs: Mapping[str, dict[str, str]], changes: Sequence[PlanRow]) -> Codes:
    topics = {topic: (_replicas(rows), configs[topic]) for topic, rows in _by_topic(changes_among(changes)).items()}
    response = admin.create_topics(topics).items()
    return {(topic, number): code for topic, code in response for number in topics[topic][0]}


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
