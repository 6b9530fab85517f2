"""Tasks that are due on a cluster, the most urgent first, each with its command.

The suggestions follow from the cluster's health and the warehouse. Their commands write nothing to the cluster without
--apply. Work that Kafka's controller should do by itself is listed as well, because that controller may be stuck.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from shlex import quote
from typing import Final

import msgspec

from jobs.adapters.zookeeper.cluster_state import CONTROLLER_EPOCH, DELETE_TOPICS
from jobs.advice.load import load_steps
from jobs.advice.outage import Outage
from jobs.advice.reassignments import stalled_steps
from jobs.core.migration_refusal import migration_notice
from jobs.core.units import format_age, format_bytes, format_duration
from jobs.measurement.load_summary import LoadFindings
from jobs.preconditions.limits import MAX_PLAN_FROM_FUTURE_SECONDS
from jobs.repositories.controller_epochs import epoch_regression_message
from jobs.repositories.plans.moving_plans import MovingPlan
from jobs.repositories.vanished_topics import VanishedTopics
from jobs.repositories.warehouse_status import WarehouseStatus
from jobs.runtime.suggestions import Suggestion
from jobs.snapshots.health import Health
from planner.columns.broker_skew import BYTES, EMPTY, LEADERS, Skew
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.enums import NO_CONTROLLER, DrainMode
from schemas.lease_holder import LeaseHolder
from schemas.metadata_names import IN_ZOOKEEPER, MetadataNames
from schemas.rows import PlanRecord, QuarantinedZnode
from schemas.stored_plan import BEGUN
from schemas.text import abbreviate, broker_list, plan_size, pluralise

OLD_SNAPSHOT_SECONDS: Final = 3600.0
"""Seconds after which a new snapshot is due: plans are made on snapshots, and `show` shows them."""

LONG_GONE_SECONDS: Final = 3600.0
"""Seconds that snapshots must have missed a broker before copying its replicas to other brokers is advised.

A restart takes minutes, even with many log segments to check; replicas copied in the meantime are copied twice.
"""

FORGOTTEN_DRAIN_SECONDS: Final = 86_400.0
"""Seconds after which the end of a drain is due: most maintenance takes less, and a drain is no fault before."""

PLANS_SHOWN: Final = 3
BLOCKING_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSituation:
    """The facts that determine what is due."""

    health: Health
    warehouse_status: WarehouseStatus
    now: datetime
    max_plan_age: float
    """Seconds after which a commit refuses a plan."""
    outage: Outage | None = None
    """The brokers that bring back the partitions that are `offline_without_isr`."""
    missing_since: Mapping[int, datetime] = field(default_factory=dict)
    """For each broker that is gone: when the first snapshot was taken that misses it."""
    vanished: VanishedTopics | None = None
    """The topics of an earlier snapshot, if most of them are gone."""
    assumptions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Assumptions of open plans, by plan id, that no longer hold."""
    holder: LeaseHolder | None = None
    """The holder of the cluster's lease, if a plan is being committed."""
    moving_plans: Sequence[MovingPlan] = ()
    """The plans that requested the reassignments which run now, or only the first ones of many."""
    copy_throttles: Sequence[tuple[str | None, str]] = ()
    """For each plan that throttles copies which run now, None for another tool: how much is copied under it."""
    load: LoadFindings | None = None
    """What a person must know of the load; None if it is not known, or of a snapshot."""
    names: MetadataNames = IN_ZOOKEEPER
    """How messages name what was read."""

    @property
    def latest_epoch(self) -> int:
        """The latest controller epoch in any state or in the warehouse.

        A KRaft cluster has none: its quorum counts from zero, and brokers do not compare that with epochs of ZooKeeper.
        """
        if not self.names.has_znodes:
            return 0
        return max(self.health.latest_epoch, self.warehouse_status.latest_epoch)

    @property
    def snapshot_age(self) -> float | None:
        """Seconds since the start of the last snapshot; None without one."""
        return None if self.warehouse_status.snapshot is None else self.age_of(self.warehouse_status.snapshot.taken_at)

    def is_fresh(self, plan: PlanRecord) -> bool:
        """Return whether a commit would still accept the plan."""
        return -MAX_PLAN_FROM_FUTURE_SECONDS <= self.age_of(plan.created_at) <= self.max_plan_age

    @property
    def begun(self) -> list[PlanRecord]:
        """Plans whose commit has begun and is not complete, the newest last."""
        return [plan for plan in self.warehouse_status.plans if _is_begun(plan)]

    @property
    def uncommitted(self) -> list[PlanRecord]:
        """Plans that a commit would accept, and of which none has applied anything, the newest last."""
        return [plan for plan in self.warehouse_status.plans if not _is_begun(plan) and _is_committable(self, plan)]

    @property
    def plans_shown(self) -> list[PlanRecord]:
        return [*self.begun[-PLANS_SHOWN:], *self.uncommitted[-PLANS_SHOWN:]]

    @property
    def drained(self) -> set[int]:
        return {row.broker_id for row in self.warehouse_status.drained}

    def gone_for(self, broker: int) -> float | None:
        """Minimum seconds that a broker has been gone; None if no recent snapshot misses it."""
        since, age = self.missing_since.get(broker), self.snapshot_age
        return None if since is None or age is None or age > OLD_SNAPSHOT_SECONDS else self.age_of(since)

    def age_of(self, moment: datetime) -> float:
        """Return the seconds since a moment."""
        return (self.now - moment).total_seconds()


def next_steps(situation: ClusterSituation) -> list[Suggestion]:
    """List what is due; empty if nothing is. During a migration, without the commands that are refused then."""
    steps = [step for rule in RULES for step in rule(situation)]
    if not situation.health.migration:
        return steps
    return [replace(step, command=None) if _is_refused_during_migration(step) else step for step in steps]


def _is_refused_during_migration(step: Suggestion) -> bool:
    return step.command is not None and step.command.split()[0] in {"cancel", "commit", "plan", "reconcile"}


def _migration(situation: ClusterSituation) -> Iterator[Suggestion]:
    if sign := situation.health.migration:
        yield Suggestion(migration_notice(sign))


def _vanished(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Without topics or brokers no other rule finds anything due."""
    vanished = situation.vanished
    if vanished and vanished.are_most:
        yield Suggestion(vanished.sentence, f"show topics --snapshot {vanished.snapshot_id}")
    if not (situation.health.live or situation.health.gone):
        last = situation.warehouse_status.snapshot
        known = (
            f"; snapshot {last.snapshot_id} has {pluralise(last.brokers, 'broker')}" if last and last.brokers else ""
        )
        yield Suggestion(f"no broker is registered{known}: start the brokers, or correct the address or its chroot")


def _quorum(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Without contact to the quorum's leader brokers answer from old metadata; the doctor shows why there is none."""
    if situation.health.controller_id is None and not situation.names.has_znodes:
        yield Suggestion(
            "the quorum's leader is unknown: without one no partition gets another leader, and this state may be old",
            "doctor",
        )


def _blocked(situation: ClusterSituation) -> Iterator[Suggestion]:
    blocking = situation.health.blocking
    yield from (repair_suggestion(row, situation.latest_epoch) for row in blocking[:BLOCKING_SHOWN])
    if (more := len(blocking) - BLOCKING_SHOWN) > 0:
        entries = pluralise(more, f"more {situation.names.entry}", "blocks", "block")
        yield Suggestion(f"{entries} a part of Kafka", "show quarantine")


def repair_suggestion(blocking: QuarantinedZnode, latest_epoch: int) -> Suggestion:
    """Report which part of Kafka a znode blocks, and suggest a repair that loses nothing, in any order.

    Repairs that need a decision are described in the documentation.
    """
    text = f"{blocking.path} blocks Kafka's {blocking.blocks}: {blocking.reason}"
    if blocking.mend:
        return Suggestion(f"{text}; delete it", zookeeper_shell=blocking.mend)
    if blocking.path == CONTROLLER_EPOCH and latest_epoch:
        command = f"set {CONTROLLER_EPOCH} {latest_epoch}"
        return Suggestion(f"{text}; set it to the latest known controller epoch", zookeeper_shell=command)
    if blocking.path.startswith(DELETE_TOPICS):
        return Suggestion(f"{text}; Surveyor deletes it once it is the controller", "reconcile")
    return Suggestion(f"{text}; docs/runbook.md explains how to repair it", "show quarantine")


def _epoch(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Check that the controller epoch is the latest known one: brokers refuse requests with an earlier epoch."""
    if epoch_behind := epoch_regression_message(situation.health.controller_epoch, situation.latest_epoch):
        yield Suggestion(
            f"{epoch_behind}, so no election succeeds; a take-over with a later epoch repairs it", "reconcile"
        )


def _repairs(situation: ClusterSituation) -> Iterator[Suggestion]:
    health = situation.health
    if health.repairable:
        yield Suggestion(
            f"{pluralise(health.repairable, 'partition')} with a dead leader or a dead ISR member",
            "reconcile",
        )
    elif health.controller_id == NO_CONTROLLER and health.live:
        yield Suggestion("no broker is the controller: no leader is elected when a broker fails", "reconcile")


def _outage(situation: ClusterSituation) -> Iterator[Suggestion]:
    if situation.health.offline_without_isr:
        count = pluralise(situation.health.offline_without_isr, "partition")
        unknown = f"{count} offline, and Surveyor cannot elect a leader: start the brokers that were in sync last"
        yield Suggestion(situation.outage.sentence if situation.outage else unknown)


def _gone(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Advise to start a broker that is down, in the order that an outage needs; its drain ends after that."""
    gone = sorted(situation.health.gone)
    stopped = [broker for broker in _drained_and_down(situation) if broker in situation.health.gone]
    if failed := [broker for broker in gone if broker not in stopped]:
        them = "them" if len(failed) > 1 else "it"
        order = ", in the order above" if situation.outage and len(gone) > 1 else ""
        yield Suggestion(f"{_brokers_are(failed)} gone: start {them}{order}")


def _drained_and_down(situation: ClusterSituation) -> list[int]:
    return sorted(situation.drained.difference(situation.health.live))


def _stopped(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Brokers that were drained before they went down; starting them ends a drain in resident mode only."""
    down = _drained_and_down(situation)
    resident = {row.broker_id for row in situation.warehouse_status.drained if row.mode == DrainMode.RESIDENT}
    if ending := [broker for broker in down if broker in resident]:
        them = "them" if len(ending) > 1 else "it"
        yield Suggestion(
            f"{_brokers_are(ending)} drained and down: start {them} once the work is done, which ends the drain"
        )
    if stopped := [broker for broker in down if broker not in resident]:
        them, their = ("them", "their") if len(stopped) > 1 else ("it", "its")
        brokers = ",".join(map(str, stopped))
        yield Suggestion(
            f"{_brokers_are(stopped)} drained and down: start {them} once the work is done, then restore {their} "
            f"leadership with `surveyor plan undrain --brokers {brokers}`"
        )


def _last_resorts(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Suggest the last resorts if a broker does not return: lose records, or copy its replicas to other brokers."""
    health = situation.health
    if health.offline_without_isr:
        if health.live:
            text = "if those brokers cannot be started: see which replica could lead, and what that loses"
            yield Suggestion(text, "plan recover")
        return  # the broker that was in sync last must not be given up
    lost = [broker for broker in sorted(health.gone) if _is_long_gone(situation, broker)]
    if not lost:
        return
    gone_for = min(situation.gone_for(broker) or 0.0 for broker in lost)
    have = "has" if len(lost) == 1 else "have"
    text = f"{broker_list(lost)} {have} been gone for {format_duration(gone_for)} at least"
    if health.most_replicas > health.able_brokers:
        too_few = f"{pluralise(health.able_brokers, 'broker')} cannot hold {pluralise(health.most_replicas, 'replica')}"
        yield Suggestion(f"{text}: if they do not return, add another broker first, because {too_few}")
    else:
        broker_ids = ",".join(map(str, lost))
        yield Suggestion(
            f"{text}: only if they do not return, copy their replicas to other brokers",
            f"plan reassign --remove-brokers {broker_ids}",
        )


def _is_long_gone(situation: ClusterSituation, broker: int) -> bool:
    removed = (plan.options.get("remove_brokers") or () for plan in situation.warehouse_status.plans if _is_begun(plan))
    is_handled = broker in situation.drained or any(broker in brokers for brokers in removed)
    return not is_handled and (situation.gone_for(broker) or 0.0) >= LONG_GONE_SECONDS


def _brokers_are(brokers: Sequence[int]) -> str:
    return f"{broker_list(brokers)} {'are' if len(brokers) > 1 else 'is'}"


def _snapshots(situation: ClusterSituation) -> Iterator[Suggestion]:
    age = situation.snapshot_age
    if situation.warehouse_status.fault:
        yield Suggestion(f"the warehouse is not used: {situation.warehouse_status.fault}")
    elif age is None:
        yield Suggestion("no snapshot yet: plans are made on one, and `show` shows it", "snapshot")
    elif age > OLD_SNAPSHOT_SECONDS:
        yield Suggestion(f"the last snapshot is {format_duration(age)} old", "snapshot")


def _begun_plans(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Plans whose commit has begun and is not complete."""
    begun = situation.begun
    for plan in reversed(begun[-PLANS_SHOWN:]):
        throttled = ", and its throttle is set" if plan.plan_id in situation.warehouse_status.throttled else ""
        name, text = quote(plan.command_name), _plan_text(situation, plan, f"{plan.status}{throttled}")
        if situation.holder is not None and situation.holder.plan == plan.plan_id:
            text = f"plan {name} ({plan.kind}) is carried out by {situation.holder}"
            yield Suggestion(f"{text}: wait for it, or ask there", f"verify {name}")
        elif any(moving.row.plan_id == plan.plan_id for moving in situation.moving_plans):
            yield Suggestion(f"{text}, and its replicas move", f"verify {name}")
        elif situation.is_fresh(plan):
            yield Suggestion(text, f"commit {name}")
        else:
            yield Suggestion(f"{text}, and too old for a commit", f"verify {name}")
    if len(begun) > PLANS_SHOWN:
        yield Suggestion(f"{len(begun) - PLANS_SHOWN} more plans have begun", "show plans")


@dataclass(frozen=True, slots=True)
class UncommittedPlan:
    """A plan that may be committed or discarded; neither is due."""

    plan_id: str
    review: Suggestion
    discard: Suggestion | None
    """None if the cluster is being migrated: nothing may be discarded then."""


def uncommitted_plans(situation: ClusterSituation) -> list[UncommittedPlan]:
    """Return the plans that a commit would accept, and of which none has applied anything, the newest first."""
    plans = []
    for plan in reversed(situation.uncommitted):
        name = quote(plan.command_name)
        size = plan_size(plan.changes, situation.warehouse_status.operations[plan.plan_id])
        text = _plan_text(situation, plan, f"not committed: {size}{_old_snapshot(situation, plan)}")
        discard = None if situation.health.migration else Suggestion("discard it", f"cancel {name} --apply")
        plans.append(UncommittedPlan(plan.plan_id, Suggestion(text, f"show plan {name}"), discard))
    return plans


def _old_snapshot(situation: ClusterSituation, plan: PlanRecord) -> str:
    """Return the snapshot of a plan if there is a newer one, with its age if it is old."""
    if not _is_on_older_snapshot(situation, plan):
        return ""
    taken_at = situation.warehouse_status.taken.get(plan.snapshot_id)
    is_old = taken_at is not None and situation.age_of(taken_at) > OLD_SNAPSHOT_SECONDS
    age = f", {format_age(taken_at, situation.now)} old" if taken_at is not None and is_old else ""
    return f", on snapshot {plan.snapshot_id}{age}"


def _is_on_older_snapshot(situation: ClusterSituation, plan: PlanRecord) -> bool:
    newest = situation.warehouse_status.snapshot
    return newest is not None and plan.snapshot_id < newest.snapshot_id


def _plan_text(situation: ClusterSituation, plan: PlanRecord, status: str) -> str:
    broken = "".join(f"; {sentence}" for sentence in situation.assumptions.get(plan.plan_id, ()))
    return f"plan {quote(plan.command_name)} ({plan.kind}) is {status}{broken}"


def _throttles(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Throttles of other tools, and those left by an interrupted or killed commit: later copying would be slow.

    A throttle is in use while replicas are copied under it, or lack records that they will copy under it. Rates of
    brokers that are down limit nothing, and only the broker itself can remove them.
    """
    health, recent = situation.health, situation.warehouse_status
    if health.moving or health.throttled_lagging:
        yield from _throttles_in_use(situation)
        return
    begun_ids = {plan.plan_id for plan in recent.plans if _is_begun(plan)}
    begun_ids |= set() if situation.holder is None else {situation.holder.plan}
    for plan_id in recent.throttled:
        rows = [row for row in recent.throttles if row.plan_id == plan_id]
        is_removable = not rows or any(row.kind != "broker" or _is_live(health, row.resource) for row in rows)
        if plan_id not in begun_ids and is_removable:
            yield Suggestion(f"nothing moves, and the throttle of plan {plan_id} is still set", f"commit {plan_id}")
    of_plans = {row.resource for row in recent.throttles}
    if not (begun_ids or (recent.throttled and not recent.throttles)):
        yield from _foreign_throttle(health, of_plans)


def _throttles_in_use(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Name a throttle of another tool under which replicas move, and any under which replicas catch up."""
    health = situation.health
    if health.moving:
        rest = "`surveyor commit PLAN --throttle RATE` sets another rate for the moves of a plan"
        foreign = [text for plan_id, text in situation.copy_throttles if plan_id is None]
        yield from (Suggestion(f"{text}; {rest}") for text in foreign)
        return
    texts = [text for _, text in situation.copy_throttles] or [f"a throttle is set on {_throttled(health)}"]
    lagging = pluralise(health.throttled_lagging, "partition", "lacks", "lack")
    yield Suggestion(
        f"{lagging} in-sync replicas, which catch up under a throttle: {'; '.join(texts)}. Once the ISRs are full, "
        "`surveyor cancel --throttles` removes it; before, it lets replicas be copied at full speed"
    )


def _foreign_throttle(health: Health, of_plans: Collection[str]) -> Iterator[Suggestion]:
    """Throttles left by another tool or warehouse: replicas that fall behind would catch up slowly, or never."""
    if where := _throttled(health, of_plans):
        yield Suggestion(f"nothing moves, and a throttle is still set on {where}", "cancel --throttles")


def _throttled(health: Health, except_on: Collection[str] = ()) -> str:
    brokers = [name for name in health.throttled_brokers if _is_live(health, name) and name not in except_on]
    topics = [name for name in health.throttled_topics if name not in except_on]
    where = [f"brokers {abbreviate(brokers)}"] if brokers else []
    where += [f"topics {abbreviate(topics)}"] if topics else []
    return " and ".join(where)


def _is_live(health: Health, broker: str) -> bool:
    """Return whether a broker, or `<default>`, can change its configs."""
    return broker == DEFAULT_ENTITY or (broker.isdecimal() and int(broker) in health.live)


def _is_begun(plan: PlanRecord) -> bool:
    return plan.status in BEGUN


def _is_committable(situation: ClusterSituation, plan: PlanRecord) -> bool:
    """Return whether a commit would accept the plan; a later plan of the same command or reconcile takes its place."""
    size = plan.changes or situation.warehouse_status.operations[plan.plan_id]
    is_superseded = plan.traits.is_superseded or plan.plan_id in situation.warehouse_status.repeated
    is_superseded &= _is_on_older_snapshot(situation, plan)
    return bool(size) and situation.is_fresh(plan) and not is_superseded


def _drained(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Warn of drained brokers that lead, and of drains that may be forgotten; a recent drain is only a state."""
    live = [row for row in situation.warehouse_status.drained if row.broker_id in situation.health.live]
    if live and (led := situation.health.led_by_drained):
        brokers = broker_list(sorted(row.broker_id for row in live))
        leads = pluralise(led, "partition", "is", "are")
        reason = "as no other replica was in sync or the drain left them alone"
        yield Suggestion(f"{leads} led by a drained broker, {reason}: do not stop {brokers}")
    ages = {row.broker_id: situation.age_of(row.since) for row in live}
    if old := sorted(broker for broker, age in ages.items() if age >= FORGOTTEN_DRAIN_SECONDS):
        drained_for = format_duration(min(ages[broker] for broker in old))
        them = "their" if len(old) > 1 else "its"
        yield Suggestion(
            f"{_brokers_are(old)} drained for {drained_for} at least: if the work is done, restore {them} leadership",
            f"plan undrain --brokers {','.join(map(str, old))}",
        )


def _imbalance(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Suggest elections, unless a plan that is being committed ends with them; drained brokers are not to lead."""
    plans = situation.warehouse_status.plans
    if any(plan.plan_id in situation.warehouse_status.electing and situation.is_fresh(plan) for plan in plans):
        return
    candidates = {*situation.health.live} - situation.drained
    brokers = [broker for broker in situation.health.electable_imbalance if broker in candidates]
    if brokers:
        yield Suggestion(
            pluralise(
                len(brokers),
                "broker",
                "does not lead all partitions of which it is the preferred replica",
                "do not lead all partitions of which they are the preferred replica",
            ),
            "plan elect --preferred",
        )


def _racks(situation: ClusterSituation) -> Iterator[Suggestion]:
    if situation.health.mixed_racks:
        yield Suggestion(situation.health.mixed_racks)


def _skew(situation: ClusterSituation) -> Iterator[Suggestion]:
    """Suggest a plan that evens out brokers, unless that would not last: one is down or drained, or replicas move.

    Replicas will also move if a plan that moves them has begun and its commit was interrupted.
    """
    health = situation.health
    moves_on = any(plan.traits.moves_replicas and situation.is_fresh(plan) for plan in situation.begun)
    if health.gone or health.moving or situation.drained or moves_on:
        return
    for skew in health.skew:
        removed = situation.warehouse_status.removed if skew.quantity == EMPTY else {}
        yield from (
            Suggestion(f"broker {broker} holds no replica, as plan {plan} removed it: stop it, or use it again")
            for broker, plan in sorted(removed.items())
        )
        amounts = {broker: held for broker, held in skew.amounts.items() if broker not in removed}
        if amounts:
            rest = msgspec.structs.replace(skew, amounts=amounts)
            yield Suggestion(*_skew_step(rest, health.sizes_taken_at, situation.now))


def _skew_step(skew: Skew, sizes_taken_at: datetime | None, now: datetime) -> tuple[str, str]:
    """Return what is far from even, and the command of a plan that evens it out.

    >>> _skew_step(Skew(quantity="empty", amounts={4: 0, 5: 0}, share=12.0), None, datetime.min)
    ('brokers 4, 5 hold no replica; an even share is 12', 'plan reassign --add-brokers 4,5')
    >>> _skew_step(Skew(quantity="leaders", amounts={1: 90, 3: 2}, share=40.0), None, datetime.min)[0]
    'leaders are far from even: broker 1 leads 90, broker 3 leads 2; an even share is 40'
    """
    if skew.quantity == EMPTY:
        brokers = sorted(skew.amounts)
        hold = "hold" if len(brokers) > 1 else "holds"
        command = f"plan reassign --add-brokers {','.join(map(str, brokers))}"
        return f"{broker_list(brokers)} {hold} no replica; an even share is {skew.share:.0f}", command
    verb = "leads" if skew.quantity == LEADERS else "holds"
    is_bytes = skew.quantity == BYTES
    amounts = [f"broker {broker} {verb} {_amount(held, is_bytes)}" for broker, held in skew.amounts.items()]
    taken = f" by the sizes of {format_age(sizes_taken_at, now)} ago" if is_bytes and sizes_taken_at else ""
    text = f"{skew.quantity} are far from even{taken}: {', '.join(amounts)}"
    return (
        f"{text}; an even share is {_amount(skew.share, is_bytes)}",
        f"plan reassign --rebalance{' --by-size' * is_bytes}",
    )


def _amount(held: float, is_bytes: bool) -> str:  # noqa: FBT001 - a unit
    return format_bytes(int(held)) if is_bytes else f"{held:.0f}"


def _load(situation: ClusterSituation) -> Iterator[Suggestion]:
    if situation.load is not None:
        is_settled = not (situation.health.gone or situation.health.moving or situation.drained)
        yield from load_steps(situation.load, situation.now, is_settled=is_settled)


def _stalled(situation: ClusterSituation) -> Iterator[Suggestion]:
    yield from stalled_steps(situation.health.stalled, situation.moving_plans)


def _led_outside_isr(situation: ClusterSituation) -> Iterator[Suggestion]:
    if count := situation.health.leader_outside_isr:
        yield Suggestion(
            f"{pluralise(count, 'partition')} led by a broker outside the ISR: Kafka does not change that; a preferred "
            "election ends it if the preferred replica is in the ISR, else a restart of the leader's broker",
        )


def _quarantine(situation: ClusterSituation) -> Iterator[Suggestion]:
    if count := situation.health.quarantined:
        yield Suggestion(
            f"{pluralise(count, situation.names.entry)} not understood; plans leave their partitions alone",
            "show quarantine",
        )


RULES: Final[Sequence[Callable[[ClusterSituation], Iterator[Suggestion]]]] = (
    _migration,
    _vanished,
    _quorum,
    _blocked,
    _epoch,
    _outage,
    _repairs,
    _gone,
    _stopped,
    _stalled,
    _begun_plans,
    _throttles,
    _snapshots,
    _load,
    _drained,
    _imbalance,
    _racks,
    _skew,
    _led_outside_isr,
    _quarantine,
    _last_resorts,
)
"""The rules in the order of their output: the most urgent first."""
