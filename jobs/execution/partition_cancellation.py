"""`surveyor cancel --partitions`: cancel reassignments that no plan requested, and remove requests left in /admin.

Corresponds to `kafka-reassign-partitions --cancel`. Kafka's controller carries out a cancellation under its own fence;
a request in /admin is removed under the epoch of that controller. Kafka's controller watches that znode only until it
changes and watches it again when it receives a reassignment request. So the controller is also asked to cancel the
partitions whose request was removed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError
from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.reassignments import owner_text
from jobs.console_output.cancellation import partition_line, partitions_json
from jobs.core.errors import ExitCode, SurveyorError, UsageError
from jobs.execution.admin.cancellation_requests import (
    Cancellation,
    Reason,
    below_min_isr_warnings,
    dry_run,
    refuse_unapproved,
    refuse_unsafe,
)
from jobs.execution.admin.connections import admin_of, lease_for, refuse_known_other_cluster
from jobs.execution.admin.resident_controller_client import ZkReassignmentOverride
from jobs.preconditions.cancellation_plan import CancellationPlan, PartitionStatus
from jobs.repositories.plans.commit_rows import NO_PLAN, AuditEntry, CommitRows
from jobs.repositories.plans.moving_plans import moving_plans
from jobs.runtime.console import CommandResult, log, truncate, warn
from jobs.runtime.review import Approve
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, same_step
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition
from schemas.enums import NO_LEADER, Action, Outcome, Step
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key
from schemas.text import LINES_SHOWN, pluralise
from schemas.znode_codecs import MalformedZnodeError

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
        cancellation = _PartitionCancellation(
            cluster=cluster,
            fewer_copies=fewer_copies,
            skip_unsafe=skip_unsafe,
            subject="nothing is",
            warehouse=settings.warehouse,
        )
        partitions = cancellation.read_safe(keys)
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
            pending = [partition for partition in cancellation.read_safe(keys) if _is_due(partition)]
            cancellation.request(Step.CANCEL, pending, controller, lease)
        untouched = [partition for partition in partitions if partition.key not in cancellation.outcomes]
        return _report(cancellation.read([*cancellation.outcomes]).partitions, cancellation.outcomes, untouched)


@dataclass(slots=True, kw_only=True)
class _PartitionCancellation(Cancellation):
    warehouse: Warehouse
    undo_command: ClassVar = "surveyor plan reassign"
    _rows: CommitRows | None = field(default=None, init=False)
    _steps: dict[Key, Change] = field(default_factory=dict, init=False)
    outcomes: dict[Key, Reason] = field(default_factory=dict, init=False)

    def step_of(self, key: Key, partition: CurrentPartition) -> Change:
        """Return the reassignment of a partition, of any origin; if none runs, the last one that was read."""
        try:
            now = partition.assignment or ReplicaAssignment([])
        except MalformedZnodeError:
            now = ReplicaAssignment([])
        if now.is_being_reassigned or key not in self._steps:
            content = partition.topic.content.value
            self._steps[key] = Change(
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
        return self._steps[key]

    def read(self, keys: Collection[Key]) -> CancellationPlan:
        self.cluster.sync()
        requests = self.cluster.read_requests()  # before the partitions, so that a request that begins is seen
        cancellation = Cancellation.read(self, keys)
        partitions = [replace(row, request=requests.get(row.key)) for row in cancellation.partitions]
        return CancellationPlan(cancellation.state, partitions)

    def read_safe(self, keys: Collection[Key]) -> Sequence[PartitionStatus]:
        """Read these partitions; raise RefusedError if one of them, or the cluster, allows no cancellation."""
        cancellation = self.read(keys)
        self.refuse_cluster(cancellation.state)
        refuse_unsafe(self.subject, cancellation.partitions, skip_unsafe=self.skip_unsafe)
        return cancellation.partitions

    def record(self, step: Step, outcomes: Mapping[Key, Reason]) -> None:
        """Record under no plan: the reassignments may be of any origin.

        A command cancels also without a warehouse, or if it cannot write to the warehouse.
        """
        self.outcomes.update(outcomes)
        try:
            if self._rows is None and self.warehouse.exists():
                self._rows = CommitRows.begin(self.warehouse, NO_PLAN)
            if self._rows is not None:
                entries = (AuditEntry(step, message, *key, outcome) for key, (outcome, message) in outcomes.items())
                self._rows.append(entries)
        except (SurveyorError, OSError, DeltaError) as error:
            log(f"surveyor: could not record the cancellation in table commits: {error}")


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


def _controller(
    stack: ExitStack, settings: Settings, cluster: Cluster
) -> Admin | ZkReassignmentOverride | AdminUnavailableError:
    """Return the Admin API, or why it does not answer; or `surveyor control`, if that is the controller."""
    if cluster.read_resident_controller() is not None:
        return ZkReassignmentOverride(stack.enter_context(cluster.required_fence.connected()))
    try:
        return stack.enter_context(admin_of(settings, cluster.read_cluster()))
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
