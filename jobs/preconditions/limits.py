"""Limits of every commit: plans that are too old, edited, too large or of another cluster are refused.

A plan that assumes a majority of the brokers to be dead is refused as well.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from jobs.adapters.cluster_connections.interface import LiveCluster
from jobs.adapters.zookeeper.migration_signs import refuse_migration
from jobs.core.errors import RefusedError, UsageError
from jobs.core.units import parse_seconds
from jobs.repositories.plans.checked_configs import refuse_bad_configs
from jobs.repositories.plans.commit_log import CLOSED
from jobs.repositories.plans.repository import Plan, refuse_edited
from jobs.runtime.settings import Settings
from schemas.enums import PlanStatus
from schemas.text import join_ids, pluralise

_MIN_BROKERS_FOR_MAJORITY: Final = 3
"""Number of brokers below which a majority has no meaning."""

MAX_CLOCK_SKEW_SECONDS: Final = 300.0
"""Seconds that a plan's creation may be ahead of our clock; beyond that its age is unknown."""

UNCOMMITTABLE: Final = CLOSED | {PlanStatus.REFUSED}
"""Statuses of plans that no commit carries out: cancelled, rolled back, or refused by the lint."""


@dataclass(frozen=True, slots=True)
class CommitLimits:
    max_plan_age: float
    max_changes: int
    allow_majority_dead: bool
    allow_silent: frozenset[int] = frozenset()
    """Brokers that need not answer before batch mode writes."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        max_plan_age: str | None,
        max_changes: int | None,
        *,
        allow_majority_dead: bool,
        allow_silent: str | None,
    ) -> Self:
        """Read the options of a command; missing options are taken from the settings."""
        defaults = settings.conf.limits
        return cls(
            max_plan_age=defaults.max_plan_age_hours * 3600
            if max_plan_age is None
            else parse_seconds("--max-plan-age", max_plan_age),
            max_changes=defaults.max_changes if max_changes is None else max_changes,
            allow_majority_dead=allow_majority_dead,
            allow_silent=frozenset() if allow_silent is None else broker_ids(allow_silent),
        )


def hold_seconds(settings: Settings, max_hold: str | None) -> float:
    """Parse --max-hold; without it the settings limit how long the controllership may be held."""
    return settings.conf.limits.max_hold_seconds if max_hold is None else parse_seconds("--max-hold", max_hold)


def broker_ids(text: str) -> frozenset[int]:
    """Parse the value of --allow-silent.

    >>> sorted(broker_ids("7,2"))
    [2, 7]
    """
    if not re.fullmatch(r"\d{1,10}(,\d{1,10})*", text):
        raise UsageError(f"--allow-silent {text!r}: expected ids as in 0,1,2")
    return frozenset(map(int, text.split(",")))


def refuse_beyond(limits: CommitLimits, settings: Settings, plan: Plan, state: LiveCluster, now: datetime) -> None:
    """Raise RefusedError if the plan exceeds a limit, or the cluster must not be written to at all."""
    refuse_migration(state.migration)
    if plan.row.status in UNCOMMITTABLE:
        raise RefusedError(f"plan {plan.title} is {plan.row.status}; plan again")
    if plan.row.is_cycle:
        raise RefusedError(
            f"plan {plan.title} records a finished cycle of `surveyor control`, which cannot be committed. "
            "Run `surveyor status` to see what is due now"
        )
    refuse_edited(plan)
    refuse_other_cluster(settings, plan, state)
    refuse_bad_configs(plan.title, plan.operations)
    _refuse_old(limits, plan, now)
    if plan.size > limits.max_changes:
        raise RefusedError(
            f"plan {plan.title} has {pluralise(plan.size, 'change')}, more than --max-changes {limits.max_changes}",
        )
    if not limits.allow_majority_dead:
        _refuse_majority_dead(plan, state)


def refuse_other_cluster(settings: Settings, plan: Plan, state: LiveCluster) -> None:
    """Raise RefusedError unless the plan was made for the connected cluster, on a snapshot of its kind of source.

    A cluster that was migrated keeps its id. Broker epochs, which a KRaft cluster does not have, distinguish them.
    """
    planned = {broker.broker_epoch is None for broker in plan.row.brokers}
    current = {epoch is None for epoch in state.live.values()}
    if True in planned and True not in current:
        raise RefusedError(
            f"plan {plan.title} was made on a snapshot read from the brokers of a KRaft cluster, so it has no versions "
            "of znodes to write under; plan again on a snapshot read from ZooKeeper",
        )
    if False in planned and True in current:
        raise RefusedError(
            f"plan {plan.title} was made on a snapshot read from ZooKeeper, and this is a KRaft cluster; plan again on "
            "a snapshot read from its brokers",
        )
    if plan.row.cluster_id != state.cluster_id:
        raise RefusedError(
            f"plan {plan.title} was made for the cluster with id {plan.row.cluster_id}, and {settings.address} is "
            f"that of {state.cluster_id}; check --cluster and {settings.address_option}",
        )


def _refuse_old(limits: CommitLimits, plan: Plan, now: datetime) -> None:
    age = now - plan.row.created_at
    if age < -timedelta(seconds=MAX_CLOCK_SKEW_SECONDS):
        raise RefusedError(
            f"plan {plan.title} was made {-age.total_seconds() / 3600:.1f} h from now by this machine's clock: its "
            "age is unknown; set the clock (`surveyor doctor` compares it with the cluster's), or plan again",
        )
    if age > timedelta(seconds=limits.max_plan_age):
        raise RefusedError(
            f"plan {plan.title} is {age.total_seconds() / 3600:.1f} h old, older than --max-plan-age allows "
            f"({limits.max_plan_age / 3600:g} h); take a new snapshot and plan again",
        )


def _refuse_majority_dead(plan: Plan, state: LiveCluster) -> None:
    """If most brokers seem dead, the fault is more likely between this host and ZooKeeper than in all these brokers."""
    dead = {broker for change in plan.changes for broker in change.requires_dead}
    brokers = dead | set(state.live)
    if len(brokers) >= _MIN_BROKERS_FOR_MAJORITY and 2 * len(dead) > len(brokers):
        raise RefusedError(
            f"plan {plan.title} takes {len(dead)} of {len(brokers)} brokers for dead: "
            f"{join_ids(sorted(dead))}; if they are dead, give "
            "--allow-majority-dead; otherwise find out why they do not count as alive",
        )
