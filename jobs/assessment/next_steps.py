"""What is due on a cluster, the most urgent first, and the command for it.

In: how the cluster is, and what the warehouse says of it. Out: lines for people, each with a command to type that
writes nothing to the cluster yet. What Kafka's controller does by itself is said, too: it may be stuck.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Final

from jobs.adapters.delta.lake import Row
from jobs.assessment.limits import AHEAD
from jobs.basics.units import shown_duration
from jobs.records.plans.names import names_of
from jobs.records.recent import Recent
from jobs.runtime.next_commands import NextStep
from jobs.survey.health import Health
from planner.rows.words import counted, few, how_much
from schemas.names import NO_CONTROLLER, PlanStatus

OLD: Final = 3600.0
"""Seconds after which a snapshot is due: plans are made on snapshots, and `show` shows them."""

PLANS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that decides what is due."""

    health: Health
    recent: Recent
    now: datetime
    max_plan_age: float
    """Seconds after which a commit refuses a plan."""

    @property
    def snapshot_age(self) -> float | None:
        """Seconds since the last snapshot was begun, None without one."""
        return None if self.recent.snapshot is None else self._since(self.recent.snapshot["taken_at"])

    def is_fresh(self, plan: Row) -> bool:
        """Whether a commit would still take the plan."""
        return -AHEAD <= self._since(plan["created_at"]) <= self.max_plan_age

    def _since(self, moment: datetime) -> float:
        return (self.now - moment).total_seconds()


def next_steps(situation: Situation) -> list[NextStep]:
    """List what is due; nothing where all is as it should be."""
    return [step for rule in RULES for step in rule(situation)]


def _migration(situation: Situation) -> Iterator[NextStep]:
    if sign := situation.health.migration:
        yield NextStep(f"a migration to KRaft is in sight ({sign}): plans and commits are refused")


def _repairs(situation: Situation) -> Iterator[NextStep]:
    health = situation.health
    if health.mendable:
        yield NextStep(
            f"{counted(health.mendable, 'partition')} to be given a leader, or an ISR without the dead", "reconcile"
        )
    elif health.controller_id == NO_CONTROLLER:
        yield NextStep("no broker is the controller: nobody is elected when a broker fails", "reconcile")
    if health.stuck:
        what = (
            f"{counted(health.stuck, 'partition')} offline, nobody in sync can lead: start who was, or see "
            "who else could"
        )
        yield NextStep(what, "plan recover --refresh")


def _gone(situation: Situation) -> Iterator[NextStep]:
    if gone := sorted(situation.health.gone):
        named = ",".join(map(str, gone))
        who = f"broker{'s' * (len(gone) > 1)} {few(gone)}"
        if situation.health.most_replicas > situation.health.able_brokers:
            able, needed = situation.health.able_brokers, situation.health.most_replicas
            too_few = f"{counted(able, 'broker')} cannot hold {counted(needed, 'replica')}"
            yield NextStep(f"{who} gone: start again, or others; {too_few}")
        else:
            yield NextStep(f"{who} gone: start again, or give up", f"plan reassign --remove-brokers {named} --refresh")


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
        if _is_begun(plan):
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


def _is_begun(plan: Row) -> bool:
    return plan["status"] in {PlanStatus.COMMITTING, PlanStatus.PARTIAL}


def _is_worth_a_look(situation: Situation, plan: Row) -> bool:
    newest = situation.recent.snapshot
    on_newest = newest is not None and plan["snapshot_id"] == newest["snapshot_id"]
    return bool(plan["changes"] or plan["operations"]) and on_newest and situation.is_fresh(plan)


def _drained(situation: Situation) -> Iterator[NextStep]:
    if brokers := sorted(row["broker_id"] for row in situation.recent.drained):
        named = ",".join(map(str, brokers))
        yield NextStep(f"drained, and elected by no plan: {few(brokers)}", f"plan undrain --brokers {named} --refresh")


def _imbalance(situation: Situation) -> Iterator[NextStep]:
    live = set(situation.health.live)
    brokers = [row["broker_id"] for row in situation.health.imbalance if row["exceeds"] and row["broker_id"] in live]
    if brokers:
        yield NextStep(
            f"{counted(len(brokers), 'broker')} not leading what prefers them", "plan elect --preferred --refresh"
        )


def _quarantine(situation: Situation) -> Iterator[NextStep]:
    if count := situation.health.quarantined:
        yield NextStep(
            f"{counted(count, 'znode')} not understood; plans leave alone what they concern", "show quarantine"
        )


RULES: Final[Sequence[Callable[[Situation], Iterator[NextStep]]]] = (
    _migration,
    _repairs,
    _gone,
    _plans,
    _throttles,
    _snapshots,
    _drained,
    _imbalance,
    _quarantine,
)
"""In the order that people read: what has to be done first."""
