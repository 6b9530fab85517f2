"""Changes of leadership after failures, and elections of the preferred replica, for one partition.

Corresponds to `PartitionStateMachine.doElectLeaderForPartitions` with the strategies of `Election.scala`, and to
`ReplicaStateMachine.removeReplicasFromIsr`. Plain-Python counterpart of `planner.leadership.failure_handling`
and `planner.leadership.preferred_election`; a change of one needs the other.
"""

from typing import Any, NamedTuple

from planner.rules.decisions import Decision, change_of, unelectable
from planner.rules.inputs import BrokerSets, ControllerConfig, among, union
from schemas import reasons
from schemas.enums import NO_LEADER, RECOVERED, Action, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import difference
from schemas.rows import Key


class Elected(NamedTuple):
    """A leader and its ISR; an `unclean` leader may lack acknowledged records."""

    leader: int
    isr: list[int]
    unclean: bool = False


def offline_election(row: PartitionInfo, brokers: BrokerSets, *, unclean_allowed: bool) -> Elected | None:
    """Elect a leader in place of one that is gone (`offlinePartitionLeaderElection`); None if no replica can lead.

    The first replica in sync leads, and the ISR keeps its live members. Without one, and if unclean elections are
    allowed, the first live replica leads and is the only ISR member, unless an assigned member of the ISR is
    registered: it may hold the data although its registration cannot be decoded.
    """
    isr = row.isr or []
    clean = brokers.first_choice(among(row.replicas, isr))
    if clean is not None:
        return Elected(clean, among(isr, brokers.live))
    if not unclean_allowed or any(member in brokers.live for member in isr if member in row.replicas):
        return None
    unclean = brokers.first_choice(row.replicas)
    return None if unclean is None else Elected(unclean, [unclean], unclean=True)


def first_isr(row: PartitionInfo, brokers: BrokerSets) -> list[int]:
    """Return the first ISR of a new partition: its live replicas.

    A replica that a drain stops is in it only if no other replica is live.
    """
    able = [replica for replica in row.replicas if replica in brokers.eligible and replica in brokers.live]
    return among(able, brokers.informed) or able


def needs_attention(row: PartitionInfo, brokers: BrokerSets) -> bool:
    """Return whether leadership may need a change: no state, a leader or an ISR member that is not live."""
    live = brokers.live
    if not row.understood or row.leader is None or row.isr is None or row.leader not in live:
        return True
    return any(member not in live for member in row.isr)


def leadership(  # noqa: PLR0911 - a line for each case
    row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets, config: ControllerConfig
) -> Decision | None:
    """Decide on the leadership of a partition after failures; None if nothing is due."""
    if not needs_attention(row, brokers) or (topic is not None and topic.deletion_requested):
        return None
    if not row.understood:
        return _no_leader(row, reasons.UNPLANNED_IN_QUARANTINE.render(), RejectionCode.NOT_UNDERSTOOD)
    if row.leader is None:
        return _creation(row, topic, brokers)
    if row.leader in brokers.live:
        return _shrink(row, topic, brokers)
    elected = offline_election(row, brokers, unclean_allowed=config.allows_unclean(topic))
    if elected is not None:
        return _election(row, topic, brokers, config, elected)
    why_not = _no_leader_reason(row, brokers)
    survivors = among(row.isr or (), brokers.live)
    if row.leader == NO_LEADER or survivors or not row.isr:
        return _no_leader(row, why_not)
    # the whole ISR is kept: any member that returns has everything that was acknowledged
    reason = reasons.ISR_GONE.render(gone=row.isr) + brokers.failed_suffix
    values = {"leader_after": NO_LEADER, **_next_epoch(row), **_absent(row, brokers), "reason": reason}
    change = change_of(row, topic, brokers, Action.TAKE_OFFLINE, **values)
    return Decision(
        topic=row.topic,
        partition=row.partition,
        wanted=Action.ELECT,
        change=change,
        code=RejectionCode.NO_ELIGIBLE_LEADER,
        why_not=why_not,
    )


def _creation(row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets) -> Decision:
    isr = first_isr(row, brokers)
    leader = brokers.first_choice(isr)
    if leader is None:
        return _no_leader(row, reasons.NO_REPLICA_ALIVE.render(replicas=row.replicas))
    reason = reasons.FIRST_LEADER.render(what=reasons.NO_STATE_YET.render()) + brokers.drained_leads(leader)
    return _changed(
        row,
        topic,
        brokers,
        Action.CREATE,
        leader_after=leader,
        isr_after=isr,
        leader_epoch_after=0,
        leader_recovery_state_after=RECOVERED,
        leader_and_isr_to=brokers.recipients(row.replicas, isr),
        requires_live=isr,
        reason=reason,
    )


def _shrink(row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets) -> Decision | None:
    isr = row.isr or []
    gone, survivors = difference(isr, brokers.live), among(isr, brokers.live)
    if not (gone and survivors) or row.leader is None:
        return None
    return _changed(
        row,
        topic,
        brokers,
        Action.SHRINK_ISR,
        isr_after=survivors,
        **_next_epoch(row),
        requires_live=union([row.leader], _assumed_failed(brokers, gone)),
        requires_dead=difference(gone, brokers.failed),
        reason=reasons.ISR_SHRINKS.render(gone=gone) + brokers.failed_suffix,
    )


def _election(
    row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets, config: ControllerConfig, elected: Elected
) -> Decision:
    if row.leader == NO_LEADER:
        loss = reasons.NO_LEADER
    else:
        loss = reasons.LEADERS_LOG_DIR_FAILED if row.leader in brokers.failed else reasons.LEADER_GONE
    how = reasons.UNCLEAN_ELECTED if elected.unclean else reasons.IN_SYNC_ELECTED
    absent = _absent(row, brokers)
    starts_recovering = elected.unclean and config.unclean_state is not None
    return _changed(
        row,
        topic,
        brokers,
        Action.ELECT,
        leader_after=elected.leader,
        isr_after=elected.isr,
        **_next_epoch(row),
        leader_recovery_state_after=config.unclean_state if starts_recovering else row.leader_recovery_state,
        leader_and_isr_to=brokers.recipients(row.replicas, {*(row.isr or ()), *elected.isr}),
        requires_live=union([elected.leader], absent["requires_live"]),
        requires_dead=absent["requires_dead"],
        reason=loss.render(leader=row.leader)
        + how.render(leader=elected.leader)
        + brokers.drained_leads(elected.leader)
        + brokers.failed_suffix,
    )


def _changed(
    row: PartitionInfo,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    action: Action,
    **values: Any,  # noqa: ANN401 - columns of a change
) -> Decision:
    change = change_of(row, topic, brokers, action, **values)
    return Decision(topic=row.topic, partition=row.partition, wanted=Action.ELECT, change=change)


def _next_epoch(row: PartitionInfo) -> dict[str, Any]:
    return {"leader_epoch_after": None if row.leader_epoch is None else row.leader_epoch + 1}


def _absent(row: PartitionInfo, brokers: BrokerSets) -> dict[str, list[int]]:
    """Return the preconditions of a change without the former leader: its absence, or the failure of its log dir.

    If a broker that is assumed to be dead is back at commit, or one that is assumed to have failed has restarted and
    may have a repaired log dir, then the change is stale.
    """
    leader = [row.leader] if row.leader is not None and row.leader >= 0 else []
    absent = union(difference(row.isr or (), brokers.live), leader)
    return {"requires_live": _assumed_failed(brokers, absent), "requires_dead": difference(absent, brokers.failed)}


def _assumed_failed(brokers: BrokerSets, absent: list[int]) -> list[int]:
    return among(brokers.failed, absent)


def _no_leader(row: PartitionInfo, why_not: str, code: RejectionCode = RejectionCode.NO_ELIGIBLE_LEADER) -> Decision:
    return Decision(topic=row.topic, partition=row.partition, wanted=Action.ELECT, code=code, why_not=why_not)


def _no_leader_reason(row: PartitionInfo, brokers: BrokerSets) -> str:
    isr = row.isr or []
    if not any(broker in brokers.live for broker in (*row.replicas, *isr)):
        reason = reasons.NO_REPLICA_ALIVE.render(replicas=row.replicas)
    elif not isr:
        reason = reasons.ISR_EMPTY.render()
    else:
        survivors = among(isr, brokers.live)
        survivors_reason = reasons.ALIVE_NOT_ELECTABLE.render(survivors=survivors) if survivors else ""
        reason = reasons.ISR_CANNOT_LEAD.render(isr=isr) + survivors_reason
    return reason + brokers.failed_suffix


def preferred_election(key: Key, row: PartitionInfo | None, topic: TopicInfo | None, brokers: BrokerSets) -> Decision:
    """Decide on a requested election of the preferred replica (`Election.leaderForPreferredReplica`).

    The election takes one cycle, and the request is removed from /admin whatever the result.
    """
    code, why_not = _no_preferred_election(row, topic, brokers)
    change = None
    if code is None and row is not None:
        preferred = row.replicas[0]
        change = change_of(
            row,
            topic,
            brokers,
            Action.ELECT_PREFERRED,
            leader_after=preferred,
            **_next_epoch(row),
            requires_live=[preferred],
            reason=reasons.PREFERRED_ELECTED.render(preferred=preferred),
        )
    return Decision(
        topic=key[0],
        partition=key[1],
        wanted=Action.ELECT_PREFERRED,
        change=change,
        code=code,
        why_not=why_not,
        withdrawn=True,
    )


def _no_preferred_election(  # noqa: PLR0911 - a line for each code
    row: PartitionInfo | None, topic: TopicInfo | None, brokers: BrokerSets
) -> tuple[RejectionCode | None, str | None]:
    """Return why the preferred replica is not elected, None if it is."""
    codes = RejectionCode
    if row is None:
        return codes.UNKNOWN_PARTITION, reasons.UNKNOWN_IN_SNAPSHOT.render()
    if (refusal := unelectable(row, topic)) is not None:
        return refusal
    preferred = row.replicas[0]
    if row.leader == preferred:
        dead = "" if preferred in brokers.live else reasons.PREFERRED_LEADS_DEAD.render()
        return codes.ALREADY_PREFERRED, reasons.ALREADY_PREFERRED.render(preferred=preferred) + dead
    if row.leader in brokers.live and row.leader not in brokers.eligible:
        # the broker cannot be notified that it no longer leads, so it would continue to accept writes
        return codes.NOT_UNDERSTOOD, reasons.LEADER_IN_QUARANTINE.render(leader=row.leader)
    if preferred in brokers.electable and preferred in (row.isr or ()):
        return None, None
    if preferred in brokers.drained:
        return codes.DRAINED, reasons.PREFERRED_DRAINED.render(preferred=preferred)
    if preferred in brokers.failed:
        return codes.LOG_DIR_FAILED, reasons.PREFERRED_LOG_DIR_FAILED.render(preferred=preferred)
    if preferred in brokers.eligible:
        return codes.PREFERRED_NOT_IN_ISR, reasons.PREFERRED_NOT_IN_ISR.render(preferred=preferred)
    return codes.PREFERRED_NOT_ALIVE, reasons.PREFERRED_NOT_ALIVE.render(preferred=preferred)
