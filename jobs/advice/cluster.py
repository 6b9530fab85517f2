"""What is due on a cluster, the most urgent first, and the command for it.

In: how the cluster is, and what the warehouse says of it. Out: lines for people, each with a command to type that
writes nothing to the cluster yet. What Kafka's controller does by itself is said, too: it may be stuck.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Final

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import DELETE_TOPICS
from jobs.adapters.zookeeper.migration import in_sight
from jobs.advice.outage import Outage
from jobs.core.units import shown_duration
from jobs.preconditions.limits import AHEAD
from jobs.preconditions.reassignments import stalled_steps
from jobs.repositories.controller_epochs import set_back
from jobs.repositories.plans.names import names_of
from jobs.repositories.warehouse_status import Recent
from jobs.runtime.suggestions import NextStep
from jobs.snapshots.health import Health
from planner.text import counted, few, how_much
from schemas.enums import NO_CONTROLLER, DrainMode, PlanStatus

OLD: Final = 3600.0
"""Seconds after which a snapshot is due: plans are made on snapshots, and `show` shows them."""

LONG_GONE_SECONDS: Final = 3600.0
"""How long snapshots have to miss a broker before it is advised to copy its replicas to others.

A restart, also of a machine with many log segments to check, takes minutes; what is copied meanwhile is copied twice.
"""

PLANS_SHOWN: Final = 3
BLOCKING_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that decides what is due."""

    health: Health
    recent: Recent
    now: datetime
    max_plan_age: float
    """Seconds after which a commit refuses a plan."""
    outage: Outage | None = None
    """Which brokers bring back the partitions that are `stuck`."""
    missing_since: Mapping[int, datetime] = field(default_factory=dict)
    """When the first of the snapshots was taken that miss a broker which is gone."""

    @property
    def latest_epoch(self) -> int:
        """The latest controller epoch that a state carries or the warehouse has recorded."""
        return max(self.health.latest_epoch, self.recent.latest_epoch)

    @property
    def snapshot_age(self) -> float | None:
        """Seconds since the last snapshot was begun, None without one."""
        return None if self.recent.snapshot is None else self._since(self.recent.snapshot["taken_at"])

    def is_fresh(self, plan: Row) -> bool:
        """Whether a commit would still take the plan."""
        return -AHEAD <= self._since(plan["created_at"]) <= self.max_plan_age

    @property
    def drained(self) -> set[int]:
        return {row["broker_id"] for row in self.recent.drained}

    def gone_for(self, broker: int) -> float | None:
        """Seconds that a broker has been gone at least; None where no recent snapshot misses it."""
        since, age = self.missing_since.get(broker), self.snapshot_age
        return None if since is None or age is None or age > OLD else self._since(since)

    def _since(self, moment: datetime) -> float:
        return (self.now - moment).total_seconds()


def next_steps(situation: Situation) -> list[NextStep]:
    """List what is due; nothing where all is as it should be."""
    return [step for rule in RULES for step in rule(situation)]


def _migration(situation: Situation) -> Iterator[NextStep]:
    if sign := situation.health.migration:
        yield NextStep(in_sight(sign))


def _blocked(situation: Situation) -> Iterator[NextStep]:
    yield from map(how_mended, situation.health.blocking[:BLOCKING_SHOWN])


def how_mended(blocking: Row) -> NextStep:
    """Say over which znode Kafka cannot start, and what ends that and loses nothing, in whatever order it is done.

    What has to be decided is in the documentation.
    """
    what = f"{blocking['path']} blocks Kafka's {blocking['blocks']}: {blocking['reason']}"
    if blocking["mend"]:
        return NextStep(f"{what}; delete it", zookeeper_shell=blocking["mend"])
    if blocking["path"].startswith(DELETE_TOPICS):
        return NextStep(f"{what}; a controller of Surveyor's deletes it", "reconcile")
    return NextStep(f"{what}; docs/troubleshooting.md says how it is mended", "show quarantine")


def _epoch(situation: Situation) -> Iterator[NextStep]:
    """Brokers refuse a controller of an earlier epoch than they have heard of: nothing that it decides is done."""
    if behind := set_back(situation.health.controller_epoch, situation.latest_epoch):
        yield NextStep(f"{behind}, and no election comes about; a take-over above it mends that", "reconcile")


def _repairs(situation: Situation) -> Iterator[NextStep]:
    health = situation.health
    if health.mendable:
        yield NextStep(
            f"{counted(health.mendable, 'partition')} to be given a leader, or an ISR without the dead", "reconcile"
        )
    elif health.controller_id == NO_CONTROLLER and health.live:
        yield NextStep("no broker is the controller: nobody is elected when a broker fails", "reconcile")


def _outage(situation: Situation) -> Iterator[NextStep]:
    if situation.health.stuck:
        count = counted(situation.health.stuck, "partition")
        unknown = f"{count} offline, nothing can be done from here: start the brokers that were in sync last"
        yield NextStep(situation.outage.sentence if situation.outage else unknown)


def _gone(situation: Situation) -> Iterator[NextStep]:
    """A broker that is down is started, in the order that an outage wants; its drain ends after that."""
    gone = sorted(situation.health.gone)
    stopped = [broker for broker in _drained_and_down(situation) if broker in situation.health.gone]
    if failed := [broker for broker in gone if broker not in stopped]:
        them = "them" if len(failed) > 1 else "it"
        order = ", in the order above" if situation.outage and len(gone) > 1 else ""
        yield NextStep(f"{_named(failed)} gone: start {them}{order}")


def _drained_and_down(situation: Situation) -> list[int]:
    return sorted(situation.drained.difference(situation.health.live))


def _stopped(situation: Situation) -> Iterator[NextStep]:
    """Brokers that were drained before they went down: their start ends a drain in resident mode, and no other."""
    down = _drained_and_down(situation)
    resident = {row["broker_id"] for row in situation.recent.drained if row.get("mode") == DrainMode.RESIDENT}
    if ending := [broker for broker in down if broker in resident]:
        them = "them" if len(ending) > 1 else "it"
        yield NextStep(f"{_named(ending)} drained and down: start {them} once the work is done, which ends the drain")
    if stopped := [broker for broker in down if broker not in resident]:
        them, their = ("them", "their") if len(stopped) > 1 else ("it", "its")
        brokers = ",".join(map(str, stopped))
        yield NextStep(
            f"{_named(stopped)} drained and down: start {them} once the work is done, and then give {them} back "
            f"{their} leaders by `surveyor plan undrain --brokers {brokers} --refresh`"
        )


def _last_resorts(situation: Situation) -> Iterator[NextStep]:
    """What is left where a broker does not come back: to lose records, or to copy its replicas to others."""
    health = situation.health
    if health.stuck:
        if health.live:
            what = "if those brokers cannot be started: see which replica could lead, and what that loses"
            yield NextStep(what, "plan recover --refresh")
        return  # what was in sync last must not be given up
    lost = [broker for broker in sorted(health.gone) if _is_long_gone(situation, broker)]
    if not lost:
        return
    gone_for = min(situation.gone_for(broker) or 0.0 for broker in lost)
    have = "has" if len(lost) == 1 else "have"
    what = f"broker{'s' * (len(lost) > 1)} {few(lost)} {have} been gone for {shown_duration(gone_for)} at least"
    if health.most_replicas > health.able_brokers:
        too_few = f"{counted(health.able_brokers, 'broker')} cannot hold {counted(health.most_replicas, 'replica')}"
        yield NextStep(f"{what}: before giving up, add another broker, as {too_few}")
    else:
        named = ",".join(map(str, lost))
        yield NextStep(
            f"{what}: only where that is for good, copy to others what was there",
            f"plan reassign --remove-brokers {named} --refresh",
        )


def _is_long_gone(situation: Situation, broker: int) -> bool:
    return broker not in situation.drained and (situation.gone_for(broker) or 0.0) >= LONG_GONE_SECONDS


def _named(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {few(brokers)} {'are' if len(brokers) > 1 else 'is'}"


def _snapshots(situation: Situation) -> Iterator[NextStep]:
    age = situation.snapshot_age
    if situation.recent.fault:
        yield NextStep(f"the warehouse could not be read: {situation.recent.fault}")
    elif age is None:
        yield NextStep("no snapshot yet: plans are made on one, and `show` shows it", "snapshot")
    elif age > OLD:
        yield NextStep(f"the last snapshot is {shown_duration(age)} old", "snapshot")


def _plans(situation: Situation) -> Iterator[NextStep]:
    """Plans that were begun, and those that may still be committed."""
    waiting = [plan for plan in situation.recent.plans if _is_begun(plan) or _is_worth_a_look(situation, plan)]
    for plan in reversed(waiting[-PLANS_SHOWN:]):
        name = quote((names_of(plan) or [plan["plan_id"]])[0])
        if _is_begun(plan) and not situation.is_fresh(plan):
            yield NextStep(
                f"plan {name} ({plan['kind']}) is {plan['status']}, and too old for a commit", f"verify {name}"
            )
        elif _is_begun(plan):
            yield NextStep(f"plan {name} ({plan['kind']}) is {plan['status']}", f"commit {name}")
        else:
            yield NextStep(
                f"plan {name} ({plan['kind']}) waits: {how_much(plan['changes'], plan['operations'])}",
                f"show plan {name}",
            )
    if len(waiting) > PLANS_SHOWN:
        yield NextStep(f"{len(waiting) - PLANS_SHOWN} more plans wait", "show plans")


def _throttles(situation: Situation) -> Iterator[NextStep]:
    """Left by a commit that was interrupted or killed: nothing moves by them, and all that copies later is slow."""
    begun = {plan["plan_id"] for plan in situation.recent.plans if _is_begun(plan)}
    if not situation.health.moving:
        for plan_id in situation.recent.throttled:
            if plan_id not in begun:
                yield NextStep(f"nothing moves, and the throttle of plan {plan_id} is still set", f"commit {plan_id}")
        if not (situation.recent.throttled or begun):
            yield from _foreign_throttle(situation.health)


def _foreign_throttle(health: Health) -> Iterator[NextStep]:
    """Left by another tool, or by another warehouse: replicas that fall behind come back slowly, or never."""
    where = [f"brokers {few(health.throttled_brokers)}"] if health.throttled_brokers else []
    where += [f"topics {few(health.throttled_topics)}"] if health.throttled_topics else []
    if where:
        yield NextStep(f"nothing moves, and a throttle is still set on {' and '.join(where)}", "cancel --throttles")


def _is_begun(plan: Row) -> bool:
    return plan["status"] in {PlanStatus.COMMITTING, PlanStatus.PARTIAL}


def _is_worth_a_look(situation: Situation, plan: Row) -> bool:
    newest = situation.recent.snapshot
    on_newest = newest is not None and plan["snapshot_id"] == newest["snapshot_id"]
    return bool(plan["changes"] or plan["operations"]) and on_newest and situation.is_fresh(plan)


def _drained(situation: Situation) -> Iterator[NextStep]:
    if brokers := sorted(situation.drained.intersection(situation.health.live)):
        named = ",".join(map(str, brokers))
        led = situation.health.led_by_drained
        leads = f"; {counted(led, 'partition', 'is', 'are')} led by a drained broker: do not stop it" if led else ""
        yield NextStep(
            f"drained, the last choice of elections: {few(brokers)}{leads}", f"plan undrain --brokers {named} --refresh"
        )


def _imbalance(situation: Situation) -> Iterator[NextStep]:
    live = set(situation.health.live)
    brokers = [row["broker_id"] for row in situation.health.imbalance if row["exceeds"] and row["broker_id"] in live]
    if brokers:
        yield NextStep(
            f"{counted(len(brokers), 'broker')} not leading what prefers them", "plan elect --preferred --refresh"
        )


def _stalled(situation: Situation) -> Iterator[NextStep]:
    yield from stalled_steps(situation.health.stalled)


def _led_outside_isr(situation: Situation) -> Iterator[NextStep]:
    if count := situation.health.leader_outside_isr:
        yield NextStep(
            f"{counted(count, 'partition')} led by a broker outside the ISR: Kafka leaves that as it is; an election "
            "of a preferred replica that is in sync ends it",
            "plan elect --preferred --refresh",
        )


def _quarantine(situation: Situation) -> Iterator[NextStep]:
    if count := situation.health.quarantined:
        yield NextStep(
            f"{counted(count, 'znode')} not understood; plans leave alone what they concern", "show quarantine"
        )


RULES: Final[Sequence[Callable[[Situation], Iterator[NextStep]]]] = (
    _migration,
    _blocked,
    _epoch,
    _outage,
    _repairs,
    _gone,
    _stopped,
    _stalled,
    _plans,
    _throttles,
    _snapshots,
    _drained,
    _imbalance,
    _led_outside_isr,
    _quarantine,
    _last_resorts,
)
"""In the order that people read: what has to be done first."""
