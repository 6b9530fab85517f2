"""What a cancellation finds: each partition of a plan, how far the plan has led it, and whether it may turn back.

Reads only; `planner.reassignment.cancellation` decides. The rest of a plan, elections and topic-level work, is over in
a moment where it was asked for at all, so only what was not asked for yet can be cancelled of it.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import Znode, connected
from jobs.adapters.zookeeper.controllership import refuse_migration
from jobs.core.errors import RefusedError
from jobs.preconditions.changes import assigned, is_other_topic, other_topic_reason, read_changed, understood
from jobs.preconditions.limits import refuse_other_cluster
from jobs.preconditions.verification import verify_plan
from jobs.repositories.plans.repository import Plan, refuse_edited
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import CancellationRisk, ReassignmentStatus, cancellation_risk, status_of
from planner.reassignment.replica_assignment import ReplicaAssignment
from planner.reassignment.rollback import steps_by_partition, steps_of
from schemas.enums import Action, PlanStatus, RejectionCode, RequestKind
from schemas.rows import Change, Key, PlanRow
from schemas.znodes import MalformedZnodeError


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition, or one election or operation: the step of the plan that it is at."""

    change: PlanRow
    status: ReassignmentStatus
    detail: str
    """Where it is, as people read it."""
    risk: CancellationRisk | None = None
    """Why its reassignment must not be cancelled."""
    stranded: bool = False
    """None of its replicas is in its ISR, and none comes to it: nobody can lead it."""

    @property
    def key(self) -> Key:
        return self.change.key


@dataclass(frozen=True, slots=True)
class CancellationPlan:
    """The cluster, and all that a plan is about in it."""

    state: ClusterState
    partitions: list[PartitionStatus]

    def of(self, standing: ReassignmentStatus) -> list[PartitionStatus]:
        return [finding for finding in self.partitions if finding.status is standing]

    @property
    def safe(self) -> list[PartitionStatus]:
        """What is to be cancelled."""
        return [finding for finding in self.of(ReassignmentStatus.IN_PROGRESS) if finding.risk is None]

    @property
    def unsafe(self) -> list[PartitionStatus]:
        return [finding for finding in self.partitions if finding.risk is not None]

    @property
    def counts(self) -> dict[str, int]:
        return {standing.value: len(self.of(standing)) for standing in ReassignmentStatus} | {
            "unsafe": len(self.unsafe)
        }


def plan_cancellation(settings: Settings, plan: Plan, *, fewer_copies: bool = False) -> CancellationPlan:
    """Read all of a plan in the cluster; refused where the plan or the cluster is not what it should be.

    `fewer_copies`: what leaves a partition on fewer copies than before is no danger.
    """
    _refuse(plan)
    refuse_edited(plan)
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
        refuse_migration(state)
        refuse_other_cluster(settings, plan, state)
        moves = partitions_of(client, state, steps_by_partition(plan.changes), fewer_copies=fewer_copies)
    others = [change for change in plan.changes if change.action != Action.REASSIGN]
    rest = verify_plan(settings, dataclasses.replace(plan, changes=others)) if others or plan.tasks else []
    return CancellationPlan(
        state, [*moves, *(PartitionStatus(row, _as_irreversible(standing), detail) for row, standing, detail in rest)]
    )


def _as_irreversible(standing: ReassignmentStatus) -> ReassignmentStatus:
    """Elections and operations that go on, as a deletion does, cannot be called back."""
    return ReassignmentStatus.IRREVERSIBLE if standing is ReassignmentStatus.IN_PROGRESS else standing


def _refuse(plan: Plan) -> None:
    status = plan.row["status"]
    if status in {PlanStatus.REFUSED, PlanStatus.ROLLED_BACK}:
        raise RefusedError(f"plan {plan.title} is {status}: there is nothing of it to cancel")


def partitions_of(
    client: KazooClient, state: ClusterState, ways: Mapping[Key, Sequence[Change]], *, fewer_copies: bool = False
) -> list[PartitionStatus]:
    """Read partitions and tell where each stands; the caller has let the server catch up."""
    deleting = {row["topic"] for row in state.requests if row["kind"] == RequestKind.DELETE_TOPIC}
    read = read_changed(client, [way[0] for way in ways.values()])
    judge = partial(cancellation_risk, live=state.live, fewer_copies=fewer_copies)
    return [_partition_status(ways[change.key], topic, znode, judge, deleting) for change, topic, znode in read]


def _partition_status(
    way: Sequence[Change],
    topic: Znode,
    state: Znode,
    judge: Callable[..., CancellationRisk | None],
    deleting: Collection[str],
) -> PartitionStatus:
    first = way[0]
    now, why = assignment_of(first, topic)
    if first.topic in deleting:
        why = "its topic is queued for deletion"
    if now is None or why is not None:
        return PartitionStatus(first, ReassignmentStatus.DIVERGED, why or "")
    standing, number = status_of(steps_of(way), now)
    detail = f"replicas {list(now.replicas)}"
    if now.is_moving:
        detail += f", adding {list(now.adding)}, removing {list(now.removing)}"
    known = understood(state)
    if standing is not ReassignmentStatus.IN_PROGRESS:
        stranded = not now.is_moving and known is not None and not set(known.isr) & set(now.replicas)
        return PartitionStatus(way[number], standing, detail, stranded=stranded)
    return PartitionStatus(way[number], standing, detail, judge(now, None if known is None else known.isr))


def assignment_of(change: Change, topic: Znode) -> tuple[ReplicaAssignment | None, str | None]:
    """The assignment of the partition that a change is about, else why there is none."""
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return None, f"{topic.path}: {error}"
    if assignment is None:
        return None, "the partition is gone"
    if is_other_topic(change, topic):
        return None, other_topic_reason(change, topic)
    return ReplicaAssignment(*assignment), None


def allowed_by_option(dangers: Iterable[CancellationRisk | None]) -> str:
    """Say how to call back what would only be left on fewer copies."""
    allowed = any(danger is not None and danger.code is RejectionCode.REPLICA_NOT_ALIVE for danger in dangers)
    return ", or leave those with REPLICA_NOT_ALIVE on fewer copies by --allow-fewer-copies" if allowed else ""


def rejections(findings: CancellationPlan) -> list[dict[str, Any]]:
    """What must not be cancelled, and why, for programs."""
    return [
        {"topic": topic, "partition": partition, "code": why.code.value, "reason": why.reason}
        for (topic, partition), why in ((f.key, f.risk) for f in findings.unsafe)
        if why is not None
    ]
