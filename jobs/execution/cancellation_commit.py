"""Cancellations as plans: their rows from what runs now, stored and committed under one lease.

Kafka deletes the replicas that are being added at once, and does not check whether the original ones are in sync. So
the rows are made from a reading under the lease, and each is checked again right before it is requested.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.adapters.delta.warehouse import Warehouse
from jobs.execution.admin.admin_commit import commit_admin
from jobs.execution.admin.controller_client import ControllerClient
from jobs.preconditions.cancellation_plan import SKIP_UNSAFE, CancellationPlan, PartitionStatus
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.names import Alias
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from jobs.repositories.plans.store import store
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.settings import Settings
from schemas.enums import NO_LEADER, Action, PlanKind
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Operation, PlanRecord, PlanRow, RejectionRecord
from schemas.stored_plan import Plan, RowOutcome


def cancellation_of(row: PartitionStatus, step: Change, *, fewer_copies: bool) -> Change:
    """Return the change that cancels the step that a partition has reached."""
    now, former = row.current or ReplicaAssignment([]), step.replicas_before or []
    return replace(
        step,
        wave=0,
        action=Action.CANCEL.value,
        replicas_before=[*now.replicas],
        replicas_after=former,
        adding_before=[*now.adding],
        adding_after=[],
        removing_before=[*now.removing],
        removing_after=[],
        leader_after=NO_LEADER if step.leader_before is None else step.leader_before,
        isr_before=former,
        isr_after=former,
        leader_epoch_before=None,
        state_version=None,
        requires_live=[] if fewer_copies else former,
        reason=f"cancels the reassignment to {step.replicas_after}",
    )


def store_cancellation(
    warehouse: Warehouse,
    cancellation: CancellationPlan,
    parameters: dict[str, Any],
    changes: Sequence[Change],
    withdrawals: Sequence[Operation] = (),
) -> Plan:
    """Store a plan that cancels; reassignments that are not safe to cancel are its rejections.

    Its rows are not of a snapshot, and the last one is named, if there is one.
    """
    warehouse.ensure_tables()
    snapshot = last_snapshot(warehouse)
    header = PlanHeader(
        kind=PlanKind.CANCEL,
        parameters=parameters,
        snapshot_id=0 if snapshot is None else snapshot.snapshot_id,
        cluster_id=cancellation.state.cluster_id,
        broker_epochs=cancellation.state.live,
    )
    rejections = [
        RejectionRecord(
            topic=row.key[0],
            partition=row.key[1],
            action=Action.CANCEL.value,
            code=row.risk.code.value,
            reason=row.risk.reason,
        )
        for row in cancellation.unsafe
        if row.risk is not None
    ]
    rows = InMemoryRows(warehouse=warehouse, changes=changes, rejections=rejections, operations=withdrawals)
    return read_plan(warehouse, store(warehouse, Alias(), header, rows).plan_id)


def parameters_of(skip_unsafe: bool, fewer_copies: bool, **subject: Any) -> dict[str, Any]:  # noqa: ANN401, FBT001 - JSON
    """Return the parameters of a plan that cancels `cancel_of`, a plan, or `partitions`."""
    return {SKIP_UNSAFE: skip_unsafe, "allow_fewer_copies": fewer_copies, **subject}


def cancellations(warehouse: Warehouse, plan_id: str) -> list[PlanRecord]:
    """Return the plans that cancel a plan."""
    plans = warehouse.typed_rows(PlanRecord, ("kind", "=", PlanKind.CANCEL.value))
    return [row for row in plans if row.options.get("cancel_of") == plan_id]


def carry_out(
    settings: Settings, cluster: Cluster, plan: Plan, controller: ControllerClient, lease: Lease
) -> list[RowOutcome]:
    """Commit a plan that cancels; return the outcomes of its rows."""
    refuse_edited(plan)
    commit_log = CommitLog.open(settings.warehouse, plan)
    pending: list[PlanRow] = [*plan.changes, *plan.tasks]
    try:
        commit_admin(settings, cluster, commit_log, controller, pending, lease=lease)
    finally:
        commit_log.close()
    return commit_log.outcomes
