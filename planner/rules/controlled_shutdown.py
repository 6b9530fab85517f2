"""The controlled shutdown of a broker, for one partition: another replica leads, and the broker leaves the ISR.

Corresponds to `KafkaController.doControlledShutdown` and `Election.leaderForControlledShutdown`. Plain-Python
counterpart of `planner.leadership.drain_changes` in resident mode, which explains the rule; a change of one needs the
other.
"""

from typing import Any

from planner.rules.decisions import Decision, change_of, unelectable
from planner.rules.inputs import BrokerSets, among
from schemas import reasons
from schemas.enums import Action, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import difference


def controlled_shutdown(
    row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets, draining: frozenset[int]
) -> Decision | None:
    """Decide on a partition while brokers shut down; None if they have no replica of it.

    `draining`: the brokers that shut down now. Brokers of `brokers` whose replicas an earlier drain or shutdown has
    stopped leave the ISR with them.
    """
    if draining.isdisjoint(row.replicas):
        return None
    stopping = (brokers.eligible - brokers.informed) | draining
    refusal = _refusal(row, topic, brokers, draining, stopping)
    if refusal is not None:
        code, why_not = refusal
        return _decision(row, code=code, why_not=why_not)
    isr, led = row.isr or [], row.leader in brokers.drained | draining
    leader = brokers.first_choice(among(difference(row.replicas, stopping), isr)) if led else row.leader
    stopped = [broker for broker in among(row.replicas, stopping) if broker != row.leader]
    if led:
        action, how = Action.CONTROLLED_SHUTDOWN, reasons.IN_SYNC_ELECTED
    elif draining.isdisjoint(isr):
        action, how = Action.STOP_REPLICA, reasons.NOT_IN_ISR
    else:
        action, how = Action.SHRINK_ISR, reasons.LEAVES_ISR
    change = change_of(
        row,
        topic,
        brokers,
        action,
        leader_after=leader,
        isr_after=difference(isr, stopping),
        leader_epoch_after=None if row.leader_epoch is None else row.leader_epoch + 1,
        leader_and_isr_to=difference(among(row.replicas, brokers.eligible), stopped),
        stop_replica_to=stopped,
        requires_live=[leader],
        reason=reasons.DRAINED.render(brokers=among(row.replicas, draining)) + how.render(leader=leader),
    )
    return _decision(row, change=change)


def _decision(row: PartitionInfo, **values: Any) -> Decision:  # noqa: ANN401 - columns of a decision
    return Decision(topic=row.topic, partition=row.partition, wanted=Action.CONTROLLED_SHUTDOWN, **values)


def _refusal(
    row: PartitionInfo,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    draining: frozenset[int],
    stopping: frozenset[int],
) -> tuple[RejectionCode, str] | None:
    """Return why nothing changes, None if something does."""
    isr = row.isr or []
    if (refusal := unelectable(row, topic)) is not None:
        return refusal
    is_leaderless = row.leader not in brokers.live
    is_last_in_isr = is_leaderless and not draining.isdisjoint(isr)
    candidates = among(among(row.replicas, isr), brokers.electable - draining)
    if (row.leader in brokers.drained | draining or is_last_in_isr) and not candidates:
        is_only = len(row.replicas) == 1
        why_not = (
            reasons.ONLY_REPLICA.render(replicas=row.replicas) if is_only else reasons.NO_OTHER_CAN_LEAD.render(isr=isr)
        )
        return RejectionCode.WOULD_GO_OFFLINE, why_not
    if is_leaderless:
        return RejectionCode.LEADER_NOT_ALIVE, reasons.LEADER_NOT_ALIVE.render(leader=row.leader)
    if not difference(isr, stopping):
        return RejectionCode.LAST_IN_ISR, reasons.LAST_IN_ISR.render()
    return None
