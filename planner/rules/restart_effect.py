"""Effect of restarting brokers on one partition: nothing, offline, under min ISR, below the margin, or unknown.

Corresponds to `KafkaController.doControlledShutdown`, which moves leaders to other replicas in sync and takes the
brokers out of the ISRs, and to `Partition.appendRecordsToLeader`, which then refuses acks=all if the ISR is smaller
than min.insync.replicas (metrics `UnderMinIsr` and `AtMinIsr`).

Only live members of the ISR on other brokers count. While a partition is reassigned, it may end at any moment with
exactly the target in sync, so both the ISR and the target must suffice. Kafka since 3.7 caps min.insync.replicas at the
number of replicas, and older brokers do not; the uncapped value counts here. Of several brokers that restart one may be
back first and lead by its own default, so their defaults count too. A fact that cannot be read is never safe, and
neither is an in-sync replica on a broker that is registered and not `eligible`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct

from planner.rules.effective_min_isr import certain_min_isr
from planner.rules.inputs import BrokerSets, among, union
from schemas import reasons
from schemas.enums import RestartCode, RestartEffect
from schemas.internal_topics import INTERNAL_TOPICS
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import difference, target
from schemas.topic_configs import MIN_ISR

_EFFECT: Final = RestartEffect


class RestartedPartition(Struct, frozen=True, kw_only=True, gc=False):
    """A partition that a restart would affect, or whose effect is unknown."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int] | None
    live: list[int]
    """Replicas whose brokers are registered and whose log dir did not fail."""
    in_sync_after: int | None
    """In-sync replicas that remain; of a reassigned partition at most its targets. None if the partition is unread."""
    min_isr: int | None
    """min.insync.replicas; None if it was not read or does not matter."""
    effect: RestartEffect
    effect_with_full_isr: RestartEffect | None
    """The effect if all replicas were in sync, also those on brokers that are down; None for no effect."""
    code: RestartCode
    reason: str
    is_internal: bool
    """Whether consumer groups or transactions depend on it."""


def restart_effect(  # noqa: PLR0911, PLR0913 - a line for each outcome; facts and two options
    row: PartitionInfo,
    topic: TopicInfo | None,
    brokers: BrokerSets,
    min_isr_of_brokers: Mapping[int, int],
    *,
    restarting: frozenset[int],
    margin: int = 0,
) -> RestartedPartition | None:
    """Return what a restart of all these brokers at once does to a partition; None if it has no effect.

    `min_isr_of_brokers` are the known defaults. After the restart at least min.insync.replicas and `margin` more must
    be in sync. A partition of a topic that is queued for deletion is not affected.
    """
    is_touched = not restarting.isdisjoint(row.brokers)
    if (topic is not None and topic.deletion_requested) or not (is_touched or _may_be_anywhere(row)):
        return None
    if not row.understood:
        return _restarted_partition(
            row, brokers, _EFFECT.UNKNOWN, RestartCode.NOT_UNDERSTOOD, reasons.QUARANTINED.render()
        )
    if row.leader is None:
        return _restarted_partition(row, brokers, _EFFECT.UNKNOWN, RestartCode.NO_STATE, reasons.NO_STATE.render())
    isr = row.isr or []
    remaining = difference(among(isr, brokers.live), restarting)
    uncertain = difference(remaining, brokers.eligible)
    others = difference(target(row.replicas, row.removing_replicas), restarting)
    counts = [len(remaining), len(remaining) - len(uncertain)]
    if row.is_being_reassigned:
        counts = [min(count, len(others)) for count in counts]
    on_live = among(union(row.replicas, [*isr, row.leader]), brokers.live)
    full_counts = len(others), len(others) - len(among(others, brokers.live - brokers.eligible))
    full = {effect_with_full_isr(n, _min_isr(topic, on_live, min_isr_of_brokers)[0], margin) for n in full_counts}
    counted_columns: dict[str, Any] = {
        "in_sync_after": counts[-1],
        "effect_with_full_isr": full.pop() if len(full) == 1 else _EFFECT.UNKNOWN,
    }
    offline = _offline(row, brokers, remaining, others, restarting)
    if offline is not None:
        return _restarted_partition(row, brokers, *offline, **counted_columns)
    down = restarting if len(restarting) == 1 else ()
    may_lead = difference(on_live, down)
    min_isr, unread = _min_isr(topic, may_lead, min_isr_of_brokers)
    if min_isr is None:
        return _restarted_partition(
            row, brokers, _EFFECT.UNKNOWN, RestartCode.MIN_ISR_UNKNOWN, unread, **counted_columns
        )
    counted_columns["min_isr"], needed = min_isr, min_isr + margin
    most, least = (_effect_of(count, min_isr, margin) for count in counts)
    if most != least:
        reason = reasons.DEPENDS_ON_UNCERTAIN.render(uncertain=uncertain)
        return _restarted_partition(
            row, brokers, _EFFECT.UNKNOWN, RestartCode.BROKER_UNCERTAIN, reason, **counted_columns
        )
    if least is None:
        return None
    if len(others) < needed:
        reason = reasons.TOO_FEW_REPLICAS.render(count=len(others), needed=needed)
        return _restarted_partition(row, brokers, least, RestartCode.TOO_FEW_REPLICAS, reason, **counted_columns)
    reason = reasons.TOO_FEW_IN_SYNC.render(count=counts[-1], needed=needed, isr=isr)
    return _restarted_partition(row, brokers, least, RestartCode.TOO_FEW_IN_SYNC, reason, **counted_columns)


def _may_be_anywhere(row: PartitionInfo) -> bool:
    return not row.understood and not row.replicas


def effect_with_full_isr(remaining: int, min_isr: int | None, margin: int) -> RestartEffect | None:
    """Return the effect on a partition whose replicas are all in sync, of which `remaining` do not restart."""
    if remaining == 0:
        return _EFFECT.OFFLINE
    return _EFFECT.UNKNOWN if min_isr is None else _effect_of(remaining, min_isr, margin)


def _effect_of(in_sync: int, min_isr: int, margin: int) -> RestartEffect | None:
    if in_sync < min_isr:
        return _EFFECT.UNDER_MIN_ISR
    return _EFFECT.BELOW_MARGIN if in_sync < min_isr + margin else None


def _offline(
    row: PartitionInfo, brokers: BrokerSets, remaining: list[int], others: list[int], restarting: frozenset[int]
) -> tuple[RestartEffect, RestartCode, str] | None:
    """Return why no replica leads after the restart; None if one does."""
    if row.leader not in brokers.live:
        return _EFFECT.OFFLINE, RestartCode.NO_LIVE_LEADER, reasons.OFFLINE_NOW.render(leader=row.leader)
    candidates = among(row.replicas, remaining)
    if row.leader in restarting and not among(candidates, brokers.eligible):
        if candidates:
            reason = reasons.DEPENDS_ON_UNCERTAIN.render(uncertain=candidates)
            return _EFFECT.UNKNOWN, RestartCode.BROKER_UNCERTAIN, reason
        if len(row.replicas) == 1:
            return _EFFECT.OFFLINE, RestartCode.ONLY_REPLICA, reasons.ONLY_REPLICA.render(replicas=row.replicas)
        return _EFFECT.OFFLINE, RestartCode.NO_OTHER_IN_SYNC, reasons.NO_OTHER_CAN_LEAD.render(isr=row.isr)
    if row.is_being_reassigned and not others:
        ends_with = target(row.replicas, row.removing_replicas)
        return _EFFECT.OFFLINE, RestartCode.ONLY_TARGET, reasons.ENDS_WITH_TARGET.render(target=ends_with)
    return None


def _min_isr(
    topic: TopicInfo | None, may_lead: Collection[int], min_isr_of_brokers: Mapping[int, int]
) -> tuple[int | None, str]:
    """Return the largest min.insync.replicas that a leader may apply; else None, and why it is unknown."""
    config = None if topic is None else topic.config
    if config is None or MIN_ISR in config:
        return certain_min_isr(config, None), reasons.MIN_ISR_OF_TOPIC_UNREAD.render()
    silent = [broker for broker in may_lead if broker not in min_isr_of_brokers]
    if silent:
        return None, reasons.MIN_ISR_OF_BROKERS_UNREAD.render(brokers=silent)
    return max((min_isr_of_brokers[broker] for broker in may_lead), default=None), ""


def _restarted_partition(  # noqa: PLR0913 - what differs by outcome
    row: PartitionInfo,
    brokers: BrokerSets,
    effect: RestartEffect,
    code: RestartCode,
    reason: str,
    *,
    in_sync_after: int | None = None,
    min_isr: int | None = None,
    effect_with_full_isr: RestartEffect | None = _EFFECT.UNKNOWN,
) -> RestartedPartition:
    return RestartedPartition(
        topic=row.topic,
        partition=row.partition,
        leader=row.leader,
        replicas=row.replicas,
        isr=row.isr,
        live=among(row.replicas, brokers.live),
        in_sync_after=in_sync_after,
        min_isr=min_isr,
        effect=effect,
        effect_with_full_isr=effect_with_full_isr,
        code=code,
        reason=reason,
        is_internal=row.topic in INTERNAL_TOPICS,
    )
