"""Limits of every commit: plans that are too old, edited, too large or of another cluster are refused.

A plan that assumes a majority of the brokers to be dead is refused as well.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from jobs.core.errors import RefusedError
from jobs.core.migration_refusal import refuse_migration
from jobs.preconditions.config_validation import refuse_bad_configs
from schemas.current_state import CurrentCluster
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan, Transition
from schemas.text import join_ids, pluralise

_MIN_BROKERS_FOR_MAJORITY: Final = 3
"""Number of brokers below which a majority has no meaning."""

MAX_PLAN_FROM_FUTURE_SECONDS: Final = 300.0
"""Seconds that a plan's creation may be ahead of our clock; beyond that its age is unknown."""

UNCOMMITTABLE: Final = frozenset(PlanStatus) - Transition.BEGIN.before
"""Statuses of plans that no commit carries out: cancelled, rolled back, or refused by the lint."""


@dataclass(frozen=True, slots=True)
class CommitLimits:
    max_plan_age: float
    max_changes: int
    allow_majority_dead: bool
    allow_silent: frozenset[int] = frozenset()
    """Brokers that need not answer before batch mode writes."""


def refuse_closed(plan: Plan, state: CurrentCluster) -> None:
    """Raise RefusedError if the plan cannot be committed at all, or the cluster must not be written to."""
    refuse_migration(state.migration)
    if plan.row.status in UNCOMMITTABLE:
        raise RefusedError(f"plan {plan.title} is {plan.row.state}; plan again")
    if plan.row.is_cycle:
        raise RefusedError(
            f"plan {plan.title} records a finished cycle of `surveyor control`, which cannot be committed. "
            "Run `surveyor status` to see what is due now"
        )


def refuse_beyond(limits: CommitLimits, plan: Plan, state: CurrentCluster, now: datetime) -> None:
    """Raise RefusedError if the plan exceeds a limit."""
    refuse_bad_configs(plan.title, plan.operations)
    _refuse_old(limits, plan, now)
    if plan.size > limits.max_changes:
        raise RefusedError(
            f"plan {plan.title} has {pluralise(plan.size, 'change')}, more than --max-changes {limits.max_changes}",
        )
    if not limits.allow_majority_dead:
        _refuse_majority_dead(plan, state)


def refuse_other_cluster(plan: Plan, state: CurrentCluster, address: str, option: str) -> None:
    """Raise RefusedError unless the plan was made for the connected cluster, on a snapshot of its kind of source.

    `address` is the connected cluster's address, and `option` gave it. A cluster that was migrated keeps its
    id. Broker epochs, which a KRaft cluster does not have, distinguish them.
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
        raise RefusedError(_other_id(plan, state, address, option))


def _refuse_old(limits: CommitLimits, plan: Plan, now: datetime) -> None:
    age = now - plan.row.created_at
    if age < -timedelta(seconds=MAX_PLAN_FROM_FUTURE_SECONDS):
        raise RefusedError(
            f"plan {plan.title} was made {-age.total_seconds() / 3600:.1f} h from now by this machine's clock: its "
            "age is unknown; set the clock (`surveyor doctor` compares it with the cluster's), or plan again",
        )
    if age > timedelta(seconds=limits.max_plan_age):
        raise RefusedError(
            f"plan {plan.title} is {age.total_seconds() / 3600:.1f} h old, older than --max-plan-age allows "
            f"({limits.max_plan_age / 3600:g} h); take a new snapshot and plan again",
        )


def _refuse_majority_dead(plan: Plan, state: CurrentCluster) -> None:
    """If most brokers seem dead, the fault is more likely between this host and ZooKeeper than in all these brokers."""
    dead = {broker for change in plan.changes for broker in change.requires_dead}
    brokers = dead | set(state.live)
    if len(brokers) >= _MIN_BROKERS_FOR_MAJORITY and 2 * len(dead) > len(brokers):
        raise RefusedError(
            f"plan {plan.title} treats {len(dead)} of {len(brokers)} brokers as dead: {join_ids(sorted(dead))}. If "
            "they are down, add --allow-majority-dead; otherwise check why they are not registered",
        )


def refuse_other_id(plan: Plan, state: CurrentCluster, address: str, option: str) -> None:
    """Raise RefusedError if the connected cluster is known not to be the plan's cluster, however read."""
    if None not in {plan.row.cluster_id, state.cluster_id} and plan.row.cluster_id != state.cluster_id:
        raise RefusedError(_other_id(plan, state, address, option))


def _other_id(plan: Plan, state: CurrentCluster, address: str, option: str) -> str:
    return (
        f"plan {plan.title} was made for the cluster with id {plan.row.cluster_id}, and {address} is "
        f"that of {state.cluster_id}; check --cluster and {option}"
    )
