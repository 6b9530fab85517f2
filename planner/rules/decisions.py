"""Decisions about one partition (a change, or why there is none) and the order of several changes.

Plain-Python counterpart of `planner.reconciliation.decision_rows`; a change of one needs the other.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.rules.inputs import BrokerSets
from schemas import reasons
from schemas.enums import NO_VERSION, Action, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Change, Key

FULFILLED: Final = frozenset({RejectionCode.ALREADY_ASSIGNED, RejectionCode.ALREADY_PREFERRED})
"""Codes of requests that are withdrawn because they are fulfilled."""


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """Decision of one rule about one partition."""

    topic: str
    partition: int
    wanted: Action
    change: Change | None = None
    code: RejectionCode | None = None
    why_not: str | None = None
    withdrawn: bool = False
    """Whether the request for it can be withdrawn."""
    stop_replica_to: Sequence[int] = ()
    """Brokers that are sent StopReplica although nothing changes, until they confirm that they stopped."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition


def unelectable(row: PartitionInfo, topic: TopicInfo | None) -> tuple[RejectionCode, str] | None:
    """Return why no leader of a partition is elected for a request, whatever the brokers are; None if one may be."""
    if topic is not None and topic.deletion_requested:
        return RejectionCode.DELETION_REQUESTED, reasons.DELETION_REQUESTED.render()
    if not row.understood:
        return RejectionCode.NOT_UNDERSTOOD, reasons.QUARANTINED.render()
    return (RejectionCode.NO_STATE, reasons.NO_STATE.render()) if row.leader is None else None


def change_of(
    row: PartitionInfo,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    action: Action,
    **values: Any,  # noqa: ANN401 - columns of a change
) -> Change:
    """Return the change of a partition; columns that `values` do not name stay unchanged."""
    isr, leader, epoch = row.isr, row.leader, row.leader_epoch
    columns: dict[str, Any] = {
        "replicas_after": row.replicas,
        "leader_after": leader,
        "isr_after": isr,
        "adding_after": row.adding_replicas,
        "removing_after": row.removing_replicas,
        "leader_epoch_after": epoch,
        "leader_recovery_state_after": row.leader_recovery_state,
        "requires_live": [],
        "requires_dead": [],
        "stop_replica_to": [],
        **values,
    }
    if "leader_and_isr_to" not in columns:
        columns["leader_and_isr_to"] = brokers.recipients(row.replicas, isr or ())
    return Change(
        topic=row.topic,
        partition=row.partition,
        action=action.value,
        replicas_before=row.replicas,
        leader_before=leader,
        isr_before=isr,
        adding_before=row.adding_replicas,
        removing_before=row.removing_replicas,
        leader_epoch_before=epoch,
        controller_epoch_before=row.controller_epoch,
        leader_recovery_state_before=row.leader_recovery_state,
        state_version=NO_VERSION if row.state_version is None else row.state_version,
        topic_version=row.topic_version,
        topic_id=None if topic is None else topic.topic_id,
        is_new=leader is None,
        **columns,
    )


def one_change(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the decisions of all rules about one partition, in their order, with one change at most.

    A request whose change waits is not withdrawn.
    """
    first: Change | None = None
    ordered = []
    for decision in decisions:
        if decision.change is None:
            ordered.append(decision)
        elif first is None:
            first = decision.change
            ordered.append(decision)
        else:
            why_not = reasons.WAITS_FOR_CHANGE.render(action=first.action)
            code = RejectionCode.WAITS_FOR_CHANGE
            ordered.append(replace(decision, change=None, code=code, why_not=why_not, withdrawn=False))
    return ordered
