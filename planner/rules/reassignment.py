"""The next step of a reassignment, for one partition.

Corresponds to `KafkaController.onPartitionReassignment`, phases A and B of KIP-455. Plain-Python
counterpart of `planner.reconciliation.reassignment_steps`, which explains the steps; a change of one needs the other.
Only this form resumes a move after a take-over, as `KafkaController.onControllerFailover` does. A plan is made from
tables, which do not state which replicas the leader was sent.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.rules.decisions import Decision, change_of
from planner.rules.inputs import BrokerSets, among, has_live_leader, union
from schemas import reasons
from schemas.enums import Action, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import difference, is_broker_list
from schemas.rows import Key

_WAITS: Final = frozenset({RejectionCode.WAITS_FOR_BROKER, RejectionCode.WAITS_FOR_ISR})
"""Codes of a move whose target is not in sync yet."""

_WITHDRAWN: Final = frozenset(
    {
        RejectionCode.UNKNOWN_PARTITION,
        RejectionCode.INVALID_TARGET,
        RejectionCode.DELETION_REQUESTED,
        RejectionCode.ALREADY_ASSIGNED,
    }
)
"""Codes after which a request is withdrawn: it is fulfilled, or no later event can make it possible."""


@dataclass(frozen=True, slots=True)
class _Move:
    """How far a partition is, and what is requested."""

    row: PartitionInfo
    requested: Sequence[int] | None
    brokers: BrokerSets
    stopped: Collection[int]

    @property
    def target(self) -> list[int]:
        """Return the target replicas of a partition that is being reassigned, otherwise its replicas."""
        return self.row.assignment.target

    @property
    def is_requested(self) -> bool:
        """Whether a request differs from the current target, in replicas or in their order."""
        return self.requested is not None and list(self.requested) != self.target

    @property
    def added(self) -> list[int]:
        """The replicas that the request adds to those before the move."""
        return difference(self.requested or (), self.row.assignment.origin)

    @property
    def not_live(self) -> list[int]:
        return difference(self.added, self.brokers.eligible)

    @property
    def starts(self) -> bool:
        """Whether the request is carried out now.

        A request with a target broker that is down waits; a move in progress continues until that broker is live.
        """
        return self.is_requested and not self.not_live

    @property
    def lagging(self) -> list[int]:
        return difference(self.target, self.row.isr or ())

    @property
    def left_behind(self) -> list[int]:
        """The leaving replicas that are live and not in the ISR."""
        leaving = among(self.row.removing_replicas, self.brokers.live)
        return difference(leaving, self.row.isr or ())

    @property
    def next_leader(self) -> int | None:
        """The replica of the target that would lead."""
        return self.brokers.first_choice(among(self.target, self.row.isr or ()))

    @property
    def is_narrowed(self) -> bool:
        """Whether the target is in sync, leads, and is the whole ISR."""
        target, isr = self.target, self.row.isr or []
        arrived = self.row.is_being_reassigned and not self.starts and not self.lagging
        return arrived and not difference(isr, target) and self.row.leader in target

    @property
    def unstopped(self) -> list[int]:
        """The leaving replicas that have not stopped.

        A replica whose log dir failed cannot stop, and waiting for it would last until its disk is repaired.
        """
        leaving = among(self.row.removing_replicas, self.brokers.eligible)
        return difference(leaving, {*self.stopped, *self.brokers.failed})


def decide_reassignment(  # noqa: PLR0913 - what a step depends on
    key: Key,
    row: PartitionInfo | None,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    *,
    requested: Sequence[int] | None = None,
    stopped: Collection[int] = (),
    is_resident: bool = True,
    resumes: bool = False,
) -> Decision | None:
    """Decide on a partition that is moving, or that a request names; None if nothing is due and nothing is waited for.

    `requested`: the replicas that a request names. `stopped`: brokers that have stopped their replica at the present
    leader epoch. `is_resident`: the controller waits for leaving replicas to stop, and asks them again. `resumes`: the
    controller has just taken over. The former controller may have sent the leader only the target replicas. A leader
    whose target is not in sync is therefore sent all replicas again, at the next leader epoch (phase A of Kafka's
    failover).
    """
    if row is None:
        is_unread = topic is not None and not topic.understood
        code = RejectionCode.NOT_UNDERSTOOD if is_unread else RejectionCode.UNKNOWN_PARTITION
        unknown = reasons.QUARANTINED if is_unread else reasons.UNKNOWN_PARTITION
        return _decision(key, code=code, why_not=unknown.render(), is_requested=requested is not None)
    move = _Move(row, requested, brokers, stopped)
    refusal = _refusal(move, is_deleting=topic is not None and topic.deletion_requested)
    if resumes and refusal is not None and refusal[0] in _WAITS and move.left_behind:
        change = change_of(row, topic, brokers, **_resume(move))
        return _decision(key, change=change, is_requested=requested is not None)
    if refusal is None and is_resident and move.is_narrowed and move.unstopped:
        refusal = RejectionCode.WAITS_FOR_STOP, reasons.TO_BE_STOPPED.render(unstopped=move.unstopped)
    if refusal is not None:
        code, why_not = refusal
        stop = move.unstopped if code is RejectionCode.WAITS_FOR_STOP else ()
        return _decision(key, code=code, why_not=why_not, is_requested=requested is not None, stop_replica_to=stop)
    change = change_of(row, topic, brokers, **_step(move, is_resident=is_resident))
    return _decision(key, change=change, is_requested=requested is not None)


def _decision(
    key: Key,
    *,
    is_requested: bool,
    code: RejectionCode | None = None,
    **values: Any,  # noqa: ANN401 - other columns
) -> Decision:
    withdrawn = is_requested and code in _WITHDRAWN
    return Decision(topic=key[0], partition=key[1], wanted=Action.REASSIGN, code=code, withdrawn=withdrawn, **values)


def _refusal(move: _Move, *, is_deleting: bool) -> tuple[RejectionCode, str] | None:  # noqa: C901, PLR0911 - a row each
    """Return why a partition does not take its next step, None if it does or only waits for replicas to stop."""
    row, requested, live = move.row, move.requested, move.brokers.live
    if requested is not None and not is_broker_list(requested):
        return RejectionCode.INVALID_TARGET, reasons.INVALID_TARGET.render(requested=requested)
    if is_deleting and not row.is_being_reassigned:
        return RejectionCode.DELETION_REQUESTED, reasons.DELETION_REQUESTED.render()
    if not row.understood:
        return RejectionCode.NOT_UNDERSTOOD, reasons.QUARANTINED.render()
    if requested is not None and not row.is_being_reassigned and not move.is_requested:
        return RejectionCode.ALREADY_ASSIGNED, reasons.ALREADY_ASSIGNED.render()
    if move.is_requested and is_deleting:
        return RejectionCode.DELETION_REQUESTED, reasons.DELETION_REQUESTED.render()
    if move.is_requested and not row.is_being_reassigned and move.not_live:
        return RejectionCode.TARGET_NOT_ALIVE, reasons.TARGET_NOT_ALIVE.render(not_live=move.not_live)
    if row.leader is None:
        return RejectionCode.NO_STATE, reasons.NO_LEADER_YET.render()
    if not has_live_leader(row.leader, row.isr, live):
        return RejectionCode.NO_LIVE_LEADER, reasons.NO_LIVE_LEADER.render()
    if move.starts:
        return None
    lagging = move.lagging
    if dead := difference(lagging, live):
        return RejectionCode.WAITS_FOR_BROKER, reasons.WAITS_FOR_BROKER.render(lagging=lagging, dead=dead)
    if lagging:
        return RejectionCode.WAITS_FOR_ISR, reasons.WAITS_FOR_ISR.render(lagging=lagging)
    if not move.is_narrowed and move.next_leader is None:
        return RejectionCode.NO_ELIGIBLE_LEADER, reasons.TARGET_CANNOT_LEAD.render()
    return None


def _step(move: _Move, *, is_resident: bool) -> dict[str, Any]:
    """Return the action and the columns that the step changes; each step raises the leader epoch."""
    epoch = None if move.row.leader_epoch is None else move.row.leader_epoch + 1
    if move.starts:
        step = _start(move)
    elif move.is_narrowed and not move.unstopped:
        step = _end(move)
    else:
        step = _narrow(move, is_resident=is_resident)
    return {"leader_epoch_after": epoch, **step}


def _resume(move: _Move) -> dict[str, Any]:
    row = move.row
    return {
        "action": Action.START_REPLICA,
        "leader_epoch_after": None if row.leader_epoch is None else row.leader_epoch + 1,
        "requires_live": [_leader(row)],
        "reason": reasons.MOVE_RESUMES.render(left_behind=move.left_behind),
    }


def _start(move: _Move) -> dict[str, Any]:
    row, requested = move.row, move.requested or ()
    replicas = union(requested, row.replicas)
    replacing = reasons.MOVE_REPLACED.render() if row.is_being_reassigned else ""
    return {
        "action": Action.START_REASSIGNMENT,
        "replicas_after": replicas,
        "adding_after": move.added,
        "removing_after": difference(row.replicas, requested),
        "leader_and_isr_to": move.brokers.recipients(replicas, row.isr or ()),
        "requires_live": union([_leader(row)], move.added),
        "reason": reasons.MOVE_REQUESTED.render(requested=requested) + replacing,
    }


def _narrow(move: _Move, *, is_resident: bool) -> dict[str, Any]:
    row, target, brokers = move.row, move.target, move.brokers
    leader = row.leader if row.leader in target else move.next_leader
    in_sync = reasons.TARGET_IN_SYNC.render(target=target) + brokers.drained_leads(leader)
    return {
        "action": Action.NARROW_TO_TARGET,
        "leader_after": leader,
        "isr_after": among(row.isr or (), target),
        "leader_and_isr_to": brokers.recipients(target, row.isr or ()),
        # a resident controller sends StopReplica by the znodes, until each broker has confirmed; any other controller
        # sends it with the change, and to all again with a later one, as a confirmation holds for one leader epoch
        "stop_replica_to": []
        if is_resident
        else difference(among(row.removing_replicas, brokers.eligible), brokers.failed),
        "requires_live": [leader],
        "reason": reasons.TO_BE_STOPPED.render(unstopped=move.unstopped) if move.is_narrowed else in_sync,
    }


def _end(move: _Move) -> dict[str, Any]:
    row, target = move.row, move.target
    return {
        "action": Action.END_REASSIGNMENT,
        "replicas_after": target,
        "adding_after": [],
        "removing_after": [],
        "leader_and_isr_to": move.brokers.recipients(target, row.isr or ()),
        "requires_live": [_leader(row)],
        "reason": reasons.REPLICAS_REMOVED.render(removing=row.removing_replicas),
    }


def _leader(row: PartitionInfo) -> int:
    if row.leader is None:
        raise ValueError(f"{row.topic}-{row.partition} takes a step of a reassignment without a leader")
    return row.leader
