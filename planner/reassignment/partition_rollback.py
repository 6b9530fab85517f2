"""Rollback of one partition: the steps of a plan undone one by one, from the current assignment.

The rows are as in `planner.reassignment.targets` with target and source exchanged. The checks are the checks of
`planner.reassignment.lint` for one partition, in plain Python, because a rollback runs without Spark on the current
state of the cluster. Fewer racks than now, or more replicas in one, are not a fault here, because the rollback was
requested; the reason states them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from planner.reassignment.reassignment_status import ReassignmentStatus, ReassignmentStep, status_of
from planner.rules.effective_min_isr import min_isr_of
from planner.rules.inputs import has_live_leader
from schemas import reasons
from schemas.enums import Action, LintCode, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key

LAST_WAVE: Final = 1
"""Wave of elections before waves are numbered; the moves before them count down from 0."""


class RollbackRejection(NamedTuple):
    """Reason why a partition is not rolled back."""

    code: RejectionCode | LintCode
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts of the cluster that concern every partition."""

    eligible: Collection[int]
    """Brokers that are live and understood."""
    live: Collection[int]
    """Brokers that are live, understood or not."""
    drained: Collection[int]
    racks: Mapping[int, str | None]
    deleting: Collection[str]
    """Topics queued for deletion."""
    min_isr: int
    """min.insync.replicas of topics that do not set their own."""


@dataclass(frozen=True, slots=True)
class RollbackTarget:
    """The replicas to go back to (None: those before the plan), and a name for them in messages."""

    replicas: Sequence[int] | None
    name: str


def steps_by_partition(changes: Iterable[Change]) -> dict[Key, list[Change]]:
    """Return the reassignments of each partition, in the order of their waves."""
    moves: dict[Key, list[Change]] = {}
    for change in sorted(changes, key=attrgetter("wave")):
        if change.action == Action.REASSIGN:
            moves.setdefault(change.key, []).append(change)
    return moves


def steps_of(moves: Sequence[Change]) -> list[ReassignmentStep]:
    """Return the steps of a partition, in the order of their waves."""
    return [ReassignmentStep(change.replicas_before or (), change.replicas_after) for change in moves]


def roll_back_partition(  # noqa: PLR0913 - all that a rollback depends on
    moves: Sequence[Change],
    partition: PartitionInfo | None,
    topic: TopicInfo | None,
    cluster: ClusterFacts,
    target: RollbackTarget,
    *,
    was_elected: bool = False,
) -> list[Change] | RollbackRejection:
    """Return the changes that roll a partition back; `wave` counts down from 0, and the last step is undone first.

    The former preferred replica is elected if it led the partition before the plan, or if the plan elected the replica
    that it made preferred (`was_elected`). A leader that remains a replica is not replaced by the moves themselves, so
    the election is due also if the replicas are back already.
    """
    if partition is None or topic is None:
        return RollbackRejection(RejectionCode.UNKNOWN_PARTITION, reasons.PARTITION_GONE.render())
    refusal = _state_rejection(moves[0], partition, topic, cluster) or _position_rejection(moves, partition, target)
    if refusal is not None:
        return refusal
    stops = _remaining_stops(moves, partition, target)
    if stops:
        refusal = _leader_rejection(partition, cluster) or _target_rejection(partition, topic, cluster, stops)
        if refusal is not None:
            return refusal
    unmoved = 0, list(partition.replicas)
    changes = _changes(moves, partition, topic, cluster, stops or [unmoved], target)
    first = moves[0]
    is_elected = was_elected or first.leader_before in (first.replicas_before or ())[:1]
    elections = _election(changes[-1], cluster, target) if is_elected else []
    changes = [*changes, *elections] if stops else elections
    return changes or RollbackRejection(RejectionCode.ALREADY_ASSIGNED, reasons.HAS_REPLICAS.render())


def _state_rejection(
    planned: Change, partition: PartitionInfo, topic: TopicInfo, cluster: ClusterFacts
) -> RollbackRejection | None:
    if topic.topic_id != planned.topic_id:
        return RollbackRejection(
            RejectionCode.UNKNOWN_TOPIC, reasons.other_topic("its topic", planned.topic_id, topic.topic_id)
        )
    if partition.topic in cluster.deleting:
        return RollbackRejection(RejectionCode.DELETION_REQUESTED, reasons.DELETION_REQUESTED.render())
    if not partition.understood:
        return RollbackRejection(RejectionCode.NOT_UNDERSTOOD, reasons.STATE_UNREAD.render())
    if partition.leader is None:
        return RollbackRejection(RejectionCode.NO_STATE, reasons.NO_LEADER_AND_ISR.render())
    return None


def _position_rejection(
    moves: Sequence[Change], partition: PartitionInfo, target: RollbackTarget
) -> RollbackRejection | None:
    """Reject a partition that is not where the plan may have moved it."""
    now = partition.assignment
    goal = list(steps_of(moves)[0].before if target.replicas is None else target.replicas)
    if now.is_being_reassigned:
        returns = now.target == goal or now.target in [list(step.before) for step in steps_of(moves)]
        move = reasons.MOVE.render(target=now.target, adding=now.adding, removing=now.removing)
        reason = reasons.MOVES_BACK if returns else reasons.MOVED_BY_ANOTHER
        return RollbackRejection(RejectionCode.REASSIGNMENT_IN_PROGRESS, reason.render(move=move))
    if list(now.replicas) != goal and status_of(steps_of(moves), now)[0] is ReassignmentStatus.DIVERGED:
        return RollbackRejection(RejectionCode.REASSIGNED_SINCE, reasons.MOVED_SINCE.render(replicas=now.replicas))
    return None


def _remaining_stops(
    moves: Sequence[Change], partition: PartitionInfo, target: RollbackTarget
) -> list[tuple[int, list[int]]]:
    """Return the waves to undo and the replicas after each, none if the partition is back."""
    now = list(partition.replicas)
    steps = steps_of(moves)
    goal = list(steps[0].before if target.replicas is None else target.replicas)
    if now == goal:
        return []
    status, number = status_of(steps, partition.assignment)
    done = len(steps) if status is ReassignmentStatus.COMPLETE else number
    stops = [(moves[step].wave, list(steps[step].before)) for step in reversed(range(done))]
    ends = [replicas for _, replicas in stops]
    if goal in ends:
        return stops[: ends.index(goal) + 1]
    return [(moves[max(done - 1, 0)].wave, goal)]


def _leader_rejection(partition: PartitionInfo, cluster: ClusterFacts) -> RollbackRejection | None:
    """Reject a partition without a live leader in its ISR.

    No replica could copy from it, and an empty replica could be elected.
    """
    leader, isr = partition.leader, partition.isr or []
    if has_live_leader(leader, isr, cluster.live):
        return None
    return RollbackRejection(RejectionCode.NO_LIVE_LEADER, reasons.ELECT_FIRST.render(leader=leader, isr=isr))


def _target_rejection(
    partition: PartitionInfo, topic: TopicInfo, cluster: ClusterFacts, stops: Sequence[tuple[int, list[int]]]
) -> RollbackRejection | None:
    for (_, before), (_, after) in pairwise([(0, list(partition.replicas)), *stops]):
        added = [broker for broker in after if broker not in before]
        dead = [broker for broker in added if broker not in cluster.eligible]
        drained = [broker for broker in added if broker in cluster.drained]
        if dead:
            return RollbackRejection(LintCode.BROKER_NOT_ALIVE, reasons.ADDS_NOT_ALIVE.render(target=after, dead=dead))
        if drained:
            return RollbackRejection(RejectionCode.DRAINED, reasons.ADDS_DRAINED.render(target=after, drained=drained))
        if len(set(after)) < len(after):
            return RollbackRejection(LintCode.DUPLICATE_BROKER, reasons.DUPLICATE_BROKER.render(target=after))
    final, min_isr = stops[-1][1], min_isr_of(topic.config, cluster.min_isr)
    if len(final) < min(min_isr, len(set(partition.replicas))):
        noun = "replica" if len(final) == 1 else "replicas"
        reason = reasons.MIN_ISR_UNREACHABLE.render(count=len(final), noun=noun, min_isr=min_isr)
        return RollbackRejection(LintCode.MIN_ISR_UNREACHABLE, reason)
    return None


def _changes(  # noqa: PLR0913, PLR0917 - each supplies columns of the change
    moves: Sequence[Change],
    partition: PartitionInfo,
    topic: TopicInfo,
    cluster: ClusterFacts,
    stops: Sequence[tuple[int, list[int]]],
    target: RollbackTarget,
) -> list[Change]:
    changes = []
    replicas, leader, isr = list(partition.replicas), partition.leader, partition.isr
    fields = _unchanged_fields(partition, topic)
    for wave, after in stops:
        moved = ReplicaAssignment(replicas).towards(after)
        leader_after = leader if leader is not None and leader in after else after[0]
        changes.append(
            Change(
                **fields,
                wave=-wave,
                action=Action.REASSIGN.value,
                replicas_before=replicas,
                replicas_after=after,
                adding_before=[],
                adding_after=[*moved.adding],
                removing_before=[],
                removing_after=[*moved.removing],
                leader_before=leader,
                leader_after=leader_after,
                isr_before=isr,
                isr_after=(isr or []) if after == replicas else after,
                requires_live=[broker for broker in after if broker in cluster.eligible],
                reason=_reason(replicas, after, cluster, wave if len(moves) > 1 else None, target),
            )
        )
        replicas, leader, isr = after, leader_after, after
        fields["leader_epoch_before"] = None  # the controller that carries out the step counts it
    return changes


def _election(last: Change, cluster: ClusterFacts, target: RollbackTarget) -> list[Change]:
    """Return the election of the preferred replica after the last step, none if it leads already or must not lead."""
    replicas, leader, isr = last.replicas_after, last.leader_after, last.isr_after
    preferred = replicas[0]
    if preferred == leader or preferred not in cluster.eligible or preferred in cluster.drained or preferred not in isr:
        return []
    election = replace(
        last,
        wave=LAST_WAVE,
        action=Action.ELECT_PREFERRED.value,
        replicas_before=replicas,
        adding_after=[],
        removing_after=[],
        leader_before=leader,
        leader_after=preferred,
        isr_before=isr,
        leader_epoch_before=None,
        requires_live=[preferred],
        reason=reasons.BACK_ELECTED.render(target=target.name, preferred=preferred),
    )
    return [election]


def _unchanged_fields(partition: PartitionInfo, topic: TopicInfo) -> dict[str, Any]:
    recovery = partition.leader_recovery_state
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader_epoch_before": partition.leader_epoch,
        "controller_epoch_before": partition.controller_epoch,
        "leader_recovery_state_before": recovery,
        "leader_recovery_state_after": recovery,
        "state_version": partition.state_version,
        "topic_version": partition.topic_version,
        "topic_id": topic.topic_id,
        "is_new": False,
        "leader_and_isr_to": [],
        "stop_replica_to": [],
        "requires_dead": [],
    }


def _reason(
    before: Sequence[int], after: Sequence[int], cluster: ClusterFacts, wave: int | None, target: RollbackTarget
) -> str:
    moved = ReplicaAssignment(before).towards(after)
    moves = reasons.REORDERED.render()
    if moved.is_being_reassigned:
        moves = reasons.MOVES.render(adding=moved.adding, removing=moved.removing)
    undone = "" if wave is None else reasons.UNDOES_WAVE.render(wave=wave)
    counts = [
        Counter(rack for broker in replicas if (rack := cluster.racks.get(broker)) is not None)
        for replicas in (before, after)
    ]
    racks, most = [len(count) for count in counts], [max(count.values(), default=0) for count in counts]
    lost = ""
    if racks[1] < min(racks[0], len(after)):
        lost = reasons.FEWER_RACKS.render(before=racks[0], after=racks[1])
    elif most[1] > most[0]:
        lost = reasons.MORE_IN_RACK.render(before=most[0], after=most[1])
    return reasons.BACK.render(target=target.name, wave=undone, moves=moves, racks=lost)


def with_waves_numbered(changes: Sequence[Change]) -> list[Change]:
    """Number the waves of all partitions from 0, the last wave of the plan first: those of -2, 0 and -5 by 1, 2, 0."""
    numbers = {wave: number for number, wave in enumerate(sorted({change.wave for change in changes}))}
    return [replace(change, wave=numbers[change.wave]) for change in changes]
