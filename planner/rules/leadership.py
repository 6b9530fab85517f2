"""Changes of leadership after failures, and elections of the preferred replica, for one partition.

Corresponds to `PartitionStateMachine.doElectLeaderForPartitions` with the strategies of `Election.scala`, and to
`ReplicaStateMachine.removeReplicasFromIsr`. The same as `planner.leadership.failure_handling` and
`planner.leadership.preferred`, without Spark.
"""

from typing import Any, Final, NamedTuple

from planner.rules.decisions import Decision, changed
from planner.rules.partitions import (
    BrokerSets,
    ControllerConfig,
    PartitionInfo,
    TopicInfo,
    among,
    ids,
    union,
    without,
)
from schemas.enums import NO_LEADER, RECOVERED, Action, RejectionCode
from schemas.rows import Key

_QUARANTINED: Final = "its znode is in quarantine"


class Elected(NamedTuple):
    """A leader and its ISR; an `unclean` leader may lack acknowledged records."""

    leader: int
    isr: list[int]
    unclean: bool = False


def offline_election(row: PartitionInfo, brokers: BrokerSets, *, unclean_allowed: bool) -> Elected | None:
    """Elect a leader in place of one that is gone (`offlinePartitionLeaderElection`); None if no replica can lead.

    The first replica in sync leads, and the ISR keeps its live members. Without one, and if unclean elections are
    allowed, the first live replica leads alone, unless an assigned member of the ISR is registered: it may hold the
    data although its registration is not understood.
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

    A replica that a drain stops is in it only if no other replica is alive.
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
        return _no_leader(row, f"{_QUARANTINED}: no change is planned for it", RejectionCode.NOT_UNDERSTOOD)
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
    reason = f"no in-sync replica is alive: gone are {ids(row.isr)}{brokers.failed_suffix}"
    values = {"leader_after": NO_LEADER, **_next_epoch(row), **_absent(row, brokers), "reason": reason}
    change = changed(row, topic, brokers, Action.TAKE_OFFLINE, **values)
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
        return _no_leader(row, f"no replica is alive: {ids(row.replicas)}")
    reason = f"no state yet: first live replica leads, live replicas are in sync{brokers.drained_leads(leader)}"
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
    gone, survivors = without(isr, brokers.live), among(isr, brokers.live)
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
        requires_dead=without(gone, brokers.failed),
        reason=f"gone from the ISR: {ids(gone)}{brokers.failed_suffix}",
    )


def _election(
    row: PartitionInfo, topic: TopicInfo | None, brokers: BrokerSets, config: ControllerConfig, elected: Elected
) -> Decision:
    if row.leader == NO_LEADER:
        loss = "no leader"
    elif row.leader in brokers.failed:
        loss = f"the log dir of broker {row.leader} failed"
    else:
        loss = f"broker {row.leader} is gone"
    how = (
        f"unclean election of {elected.leader} may lose data"
        if elected.unclean
        else f"first live in-sync replica is {elected.leader}"
    )
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
        reason=f"{loss}; {how}{brokers.drained_leads(elected.leader)}{brokers.failed_suffix}",
    )


def _changed(
    row: PartitionInfo,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    action: Action,
    **values: Any,  # noqa: ANN401 - columns of a change
) -> Decision:
    change = changed(row, topic, brokers, action, **values)
    return Decision(topic=row.topic, partition=row.partition, wanted=Action.ELECT, change=change)


def _next_epoch(row: PartitionInfo) -> dict[str, Any]:
    return {"leader_epoch_after": None if row.leader_epoch is None else row.leader_epoch + 1}


def _absent(row: PartitionInfo, brokers: BrokerSets) -> dict[str, list[int]]:
    """Return the premises of a change without the former leader: its absence, or the failure of its log dir.

    If a broker that is assumed to be dead is back at commit, or one that is assumed to have failed has restarted and
    may have a repaired log dir, then the change is stale.
    """
    leader = [row.leader] if row.leader is not None and row.leader >= 0 else []
    absent = union(without(row.isr or (), brokers.live), leader)
    return {"requires_live": _assumed_failed(brokers, absent), "requires_dead": without(absent, brokers.failed)}


def _assumed_failed(brokers: BrokerSets, absent: list[int]) -> list[int]:
    return among(brokers.failed, absent)


def _no_leader(row: PartitionInfo, why_not: str, code: RejectionCode = RejectionCode.NO_ELIGIBLE_LEADER) -> Decision:
    return Decision(topic=row.topic, partition=row.partition, wanted=Action.ELECT, code=code, why_not=why_not)


def _no_leader_reason(row: PartitionInfo, brokers: BrokerSets) -> str:
    isr = row.isr or []
    if not any(broker in brokers.live for broker in (*row.replicas, *isr)):
        why = f"no replica is alive: {ids(row.replicas)}"
    elif not isr:
        why = "no replica is in sync: the ISR is empty"
    else:
        survivors = among(isr, brokers.live)
        alive = f"; alive but cannot be elected: {ids(survivors)}" if survivors else ""
        why = f"no in-sync replica can lead: ISR {ids(isr)}{alive}"
    return f"{why}{brokers.failed_suffix}"


def preferred_election(key: Key, row: PartitionInfo | None, topic: TopicInfo | None, brokers: BrokerSets) -> Decision:
    """Decide on a requested election of the preferred replica (`Election.electPreferredReplica`).

    It is done in one pass, and the request is withdrawn whatever the outcome.
    """
    code, why_not = _no_preferred_election(row, topic, brokers)
    change = None
    if code is None and row is not None:
        preferred = row.replicas[0]
        change = changed(
            row,
            topic,
            brokers,
            Action.ELECT_PREFERRED,
            leader_after=preferred,
            **_next_epoch(row),
            requires_live=[preferred],
            reason=f"preferred replica {preferred} is alive and in the ISR",
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


def _no_preferred_election(  # noqa: C901, PLR0911 - a line for each code
    row: PartitionInfo | None, topic: TopicInfo | None, brokers: BrokerSets
) -> tuple[RejectionCode | None, str | None]:
    """Return why the preferred replica is not elected, None if it is."""
    codes = RejectionCode
    if row is None:
        return codes.UNKNOWN_PARTITION, "no such partition in the snapshot"
    if topic is not None and topic.deletion_requested:
        return codes.DELETION_REQUESTED, "its topic is queued for deletion"
    if not row.understood:
        return codes.NOT_UNDERSTOOD, _QUARANTINED
    if row.leader is None:
        return codes.NO_STATE, "it has no state znode yet"
    preferred = row.replicas[0]
    if row.leader == preferred:
        dead = "" if preferred in brokers.live else ", which is not alive: reconcile"
        return codes.ALREADY_PREFERRED, f"already led by its preferred replica {preferred}{dead}"
    if row.leader in brokers.live and row.leader not in brokers.eligible:
        # it cannot be notified that it no longer leads, so it would continue to accept writes
        return codes.NOT_UNDERSTOOD, f"its leader {row.leader} is alive, but its registration is in quarantine"
    if preferred in brokers.electable and preferred in (row.isr or ()):
        return None, None
    if preferred in brokers.drained:
        return codes.DRAINED, f"preferred replica {preferred} is drained"
    if preferred in brokers.failed:
        return codes.LOG_DIR_FAILED, f"the log dir of preferred replica {preferred} failed: it answered with error 56"
    if preferred in brokers.eligible:
        return codes.PREFERRED_NOT_IN_ISR, f"preferred replica {preferred} is not in the ISR"
    return codes.PREFERRED_NOT_ALIVE, f"preferred replica {preferred} is not alive"
