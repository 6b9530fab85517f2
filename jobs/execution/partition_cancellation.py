"""`surveyor cancel --partitions`: cancel reassignments that no plan requested, and remove requests left in /admin.

Corresponds to `kafka-reassign-partitions --cancel`. Kafka's controller carries out a cancellation under its own fence;
a request in /admin is removed under the epoch of that controller. Kafka's controller watches that znode only until it
changes and watches it again when it receives a reassignment request. So the controller is also asked to cancel the
partitions whose request was removed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Final, cast

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin_client import AdminUnavailableError
from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.reassignments import owner_text
from jobs.console_output.cancellation import partition_line, partitions_json
from jobs.core.errors import ExitCode, SurveyorError, UsageError
from jobs.core.migration_refusal import refuse_migration
from jobs.execution.admin.commit_lease import lease_for
from jobs.execution.admin.connections import admin_of, refuse_known_other_cluster
from jobs.execution.admin.controller_client import ControllerClient
from jobs.execution.admin.resident_controller_client import ResidentControllerClient
from jobs.execution.cancellation_commit import cancellation_of, carry_out, parameters_of, store_cancellation
from jobs.execution.cancellation_review import below_min_isr_warnings, dry_run, refuse_unapproved
from jobs.preconditions.cancellation_plan import CancellationPlan, PartitionStatus, partitions_of
from jobs.repositories.plans.moving_plans import moving_plans
from jobs.runtime.approval import Approve
from jobs.runtime.console import CommandResult, log, truncate, warn
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, same_step
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition
from schemas.enums import NO_LEADER, Action, Outcome
from schemas.operation_data import WithdrawnReassignment, data_of
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, Operation
from schemas.stored_plan import Plan, RowOutcome
from schemas.text import LINES_SHOWN, partition_name, pluralise
from schemas.znode_codecs import MalformedZnodeError

Reason = tuple[Outcome, str]
"""An outcome, and the message that explains it."""

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


def parse_partitions(text: str) -> list[Key]:
    """Parse the value of --partitions.

    >>> parse_partitions("orders-0,web-logs-12")
    [('orders', 0), ('web-logs', 12)]
    """
    matches = [(word, _PARTITION.fullmatch(word.strip())) for word in text.split(",")]
    wrong = [word for word, match in matches if match is None]
    if wrong:
        raise UsageError(f"--partitions {wrong[0]!r}: expected TOPIC-NUMBER[,TOPIC-NUMBER...], as in orders-0,orders-1")
    return list(dict.fromkeys((match["topic"], int(match["partition"])) for _, match in matches if match))


def cancel_partitions(
    settings: Settings,
    keys: Sequence[Key],
    approve: Approve | None,
    *,
    apply: bool,
    skip_unsafe: bool,
    fewer_copies: bool = False,
) -> CommandResult:
    """Cancel the reassignments of these partitions and remove requests for them, or show what that would do."""
    with settings.connect() as cluster:
        refuse_known_other_cluster(settings, cluster.read_cluster().cluster_id)

        def read_safe() -> CancellationPlan:
            found = _read(cluster, keys, fewer_copies=fewer_copies)
            refuse_migration(found.state.migration)
            found.refuse_unsafe("nothing is", skip_unsafe=skip_unsafe)
            return found

        partitions = read_safe().partitions
        pending = [partition for partition in partitions if _is_due(partition)]
        _warn_of_owners(settings, pending)
        lines = truncate([partition_line(partition) for partition in partitions])
        if not pending:
            return CommandResult(partitions_json(partitions), "nothing is left to cancel", *lines, warnings=[])
        warned = below_min_isr_warnings(settings, cluster, pending)
        if not apply:
            steps = [same_step(settings, "apply", "cancel", "--apply")]
            title = f"{pluralise(len(pending), 'partition')} to be cancelled"
            return dry_run(partitions_json(partitions), title, lines, steps, warned)
        refuse_unapproved("cancel these?", lines, warned, approve)
        with lease_for(settings, cluster, "", "cancel") as lease, ExitStack() as stack:
            controller = _controller(stack, settings, cluster)
            found = read_safe()
            names = [partition_name(*key) for key in keys]
            parameters = parameters_of(skip_unsafe, fewer_copies, partitions=names)
            changes, withdrawals = _rows(found, controller, fewer_copies=fewer_copies)

            def store(warehouse: Warehouse) -> Plan:
                return store_cancellation(warehouse, found, parameters, changes, withdrawals)

            scratch, stored = _recorded(stack, settings, store)
            client = cast("ControllerClient", controller)  # without an answer there is nothing to ask of it
            outcomes = _by_key(carry_out(scratch, cluster, stored, client, lease))
        untouched = [partition for partition in partitions if partition.key not in outcomes]
        return _report(_read(cluster, [*outcomes], fewer_copies=fewer_copies).partitions, outcomes, untouched)


def _read(cluster: Cluster, keys: Collection[Key], *, fewer_copies: bool) -> CancellationPlan:
    """Read how far these partitions are now, and the requests for them."""
    cluster.sync()
    requests = cluster.read_requests()  # before the partitions, so that a request that begins is seen
    state, partitions = cluster.read_cluster(), cluster.read_partitions(keys)
    steps = [[_step_of(key, partitions[key])] for key in keys]
    found = partitions_of(state, steps, partitions, fewer_copies=fewer_copies)
    return CancellationPlan(state, [replace(row, request=requests.get(row.key)) for row in found])


def _step_of(key: Key, partition: CurrentPartition) -> Change:
    """Return the reassignment of a partition, of any origin; without moves if none runs."""
    try:
        now = partition.assignment or ReplicaAssignment([])
    except MalformedZnodeError:
        now = ReplicaAssignment([])
    content = partition.topic.content.value
    return Change(
        topic=key[0],
        partition=key[1],
        action=Action.REASSIGN.value,
        replicas_before=now.origin,
        replicas_after=now.target,
        adding_after=[*now.adding],
        removing_after=[*now.removing],
        leader_after=NO_LEADER,
        isr_after=[],
        state_version=None,
        topic_version=None,
        topic_id=None if content is None else content.topic_id,
        is_new=False,
        leader_and_isr_to=[],
        requires_live=[],
        requires_dead=[],
        reason="",
    )


def _rows(
    found: CancellationPlan, controller: ControllerClient | AdminUnavailableError, *, fewer_copies: bool
) -> tuple[list[Change], list[Operation]]:
    """Return the cancellations and the removals of requests; `surveyor control` follows the request to move back.

    Kafka's controller watches /admin again once it is asked to cancel anything, so it is asked also for partitions that
    do not move.
    """
    due = [row for row in found.partitions if _is_due(row)]
    is_resident = isinstance(controller, ResidentControllerClient)
    orders: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for row in due:
        if row.request is not None and not (is_resident and row.is_being_reassigned):
            orders[row.key[0]][row.key[1]] = row.request
    moving = [row for row in due if row.status is ReassignmentStatus.IN_PROGRESS]
    if isinstance(controller, AdminUnavailableError):
        if moving:
            raise controller
        due = []
    asked = moving if is_resident else [row for row in due if not row.is_unknown]
    changes = [
        cancellation_of(row, row.change, fewer_copies=fewer_copies) for row in asked if isinstance(row.change, Change)
    ]
    return changes, [WithdrawnReassignment(orders=of_topic).operation(topic) for topic, of_topic in orders.items()]


def _recorded(stack: ExitStack, settings: Settings, store: Callable[[Warehouse], Plan]) -> tuple[Settings, Plan]:
    """Store the plan, in a folder that is deleted afterwards if there is no warehouse or it cannot be written."""
    try:
        if settings.warehouse.exists():
            return settings, store(settings.warehouse)
    except (SurveyorError, OSError, DeltaError) as error:
        log(f"surveyor: could not record the cancellation in table commits: {error}")
    scratch = replace(settings, warehouse_uri=stack.enter_context(TemporaryDirectory()))
    return scratch, store(scratch.warehouse)


def _by_key(outcomes: Iterable[RowOutcome]) -> dict[Key, Reason]:
    """Return the outcome of each partition: that of its cancellation, else of the removal of its request."""
    removed, cancelled = dict[Key, Reason](), dict[Key, Reason]()
    for row in outcomes:
        reason = row.outcome, row.message
        if isinstance(row.change, Operation):
            orders = data_of(row.change, WithdrawnReassignment).orders
            removed |= dict.fromkeys(((row.change.topic, number) for number in orders), reason)
        else:
            cancelled[row.change.key] = reason
    return removed | cancelled


def _warn_of_owners(settings: Settings, pending: Sequence[PartitionStatus]) -> None:
    """Warn of plans that requested these reassignments: a later commit of an open plan requests them again.

    A warehouse that cannot be read prevents no cancellation.
    """
    targets = {
        row.key: row.current.target if row.current and row.is_being_reassigned else row.request or () for row in pending
    }
    try:
        owners = moving_plans(settings.warehouse, targets)
    except (SurveyorError, OSError, DeltaError) as error:
        warn(f"whether a plan requested them is unknown: {error}")
        return
    for owner in owners:
        cancel = command_line(settings, "cancel", owner.row.command_name)
        warn(f"{owner_text(owner)}; only `{cancel}` also closes the plan, so that no commit continues it")


def _is_due(partition: PartitionStatus) -> bool:
    """Return whether the partition is moving or requested, and can be cancelled safely."""
    is_unfinished = partition.status is ReassignmentStatus.IN_PROGRESS or partition.request is not None
    return is_unfinished and partition.risk is None


def _controller(stack: ExitStack, settings: Settings, cluster: Cluster) -> ControllerClient | AdminUnavailableError:
    """Return the controller, or why it does not answer."""
    is_resident, state = cluster.read_resident_controller() is not None, cluster.read_cluster()
    if is_resident:
        return ResidentControllerClient(cluster.required_fence)
    try:
        return stack.enter_context(admin_of(settings, state))
    except AdminUnavailableError as error:
        return error


def _report(
    final: Sequence[PartitionStatus], outcomes: Mapping[Key, Reason], untouched: Sequence[PartitionStatus]
) -> CommandResult:
    """Return what shows the outcomes; partitions that continue because they are not safe have not failed.

    `untouched` has the partitions that were named and of which nothing was to be cancelled.
    """
    cancelled = [row for row in final if outcomes[row.key][0] is Outcome.APPLIED]
    continuing = [row for row in final if outcomes[row.key][0] is Outcome.SKIPPED and not _is_due(row)]
    shown = {row.key for row in [*cancelled, *continuing]}
    others = [row for row in final if row.key not in shown]
    failed = [row for row in others if outcomes[row.key][0] is not Outcome.STALE]
    lines = [f"  {row.change.name}  {outcomes[row.key][1]}" for row in others]
    hint = "; `surveyor plan reassign --reassignment-json-file FILE` changes their order"
    lines += [f"  {row.change.name}  {outcomes[row.key][1]}{hint if row.current else ''}" for row in cancelled]
    lines += [partition_line(row) for row in [*continuing, *untouched]]
    return CommandResult(
        partitions_json([*final, *untouched]) | {"cancelled_now": len(cancelled), "failed": len(failed)},
        f"{pluralise(len(cancelled), 'partition')} cancelled, {len(others)} not",
        *lines[:LINES_SHOWN],
        warnings=[],
        exit_code=ExitCode.ERROR if failed else ExitCode.DONE,
    )
