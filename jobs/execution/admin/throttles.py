"""Replication throttles: set for the reassignments of a plan, and always removed again.

Table `throttles` stores the previous value of each config and is written before the cluster is changed. A row is
deleted once its previous value is restored. So a process that crashes at any point leaves rows behind, and
`clear_throttle` restores the values in them. A value that another client has set since is kept.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from jobs.adapters.clusters.interface import Cluster, CurrentOverrides
from jobs.adapters.delta.warehouse import Warehouse, quote_literal
from jobs.core.errors import SurveyorError
from jobs.execution.admin.audited_configs import AuditedConfigs, ConfigAdmin
from jobs.execution.admin.auto_throttle import rates_at
from jobs.execution.admin.throttle_configs import (
    AUTO,
    UNTHROTTLED,
    Configs,
    Resource,
    ResourceKind,
    Throttle,
    throttle_configs,
    throttled_brokers,
)
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from planner.load.throttle_rates import Rates
from schemas.enums import Step
from schemas.rows import Change, ThrottledConfig
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE

_TABLE: Final = ThrottledConfig.TABLE

ConfigKey = tuple[str, str, str]
"""Kind of resource, resource, and name of a config."""


class ThrottleError(SurveyorError):
    """A broker or topic refused a throttle; the configs that were set are in `throttles`."""


def throttle_rows(warehouse: Warehouse, plan_id: str | None = None) -> list[ThrottledConfig]:
    """Return the configs that are set, or about to be, by one plan or by all; none if the table does not exist yet."""
    if not warehouse.has(_TABLE):
        return []
    return sorted(
        warehouse.typed_rows(ThrottledConfig, *([] if plan_id is None else [("plan_id", "=", plan_id)])), key=_key
    )


def throttle_of(rows: Iterable[ThrottledConfig]) -> Throttle | None:
    """Return the throttle that these rows last set; None if they set none."""
    rates = [row for row in rows if row.name in {LEADER_RATE, FOLLOWER_RATE}]
    if any(row.source == AUTO for row in rates):
        return AUTO
    return max((int(row.set_to[-1]) for row in rates), default=None)


def set_throttle(  # noqa: PLR0917 - where, by which means, and what
    warehouse: Warehouse,
    cluster: Cluster,
    admin: ConfigAdmin,
    plan_id: str,
    moves: Sequence[Change],
    rates: Rates,
    *,
    attempt: int | None = None,
) -> None:
    """Throttle exactly these reassignments of a plan.

    Brokers that are not live are left out: they cannot be asked and copy nothing. Raise ThrottleError if another
    broker or a topic refuses; the reassignments must not begin then. `attempt` is the attempt number of the commit.
    """
    if rates == UNTHROTTLED:
        clear_throttle(warehouse, cluster, admin, plan_id, attempt)
        return
    if not warehouse.has(_TABLE):
        warehouse.ensure_tables()
    rows = {_key(row): row for row in throttle_rows(warehouse, plan_id)}
    configs = throttle_configs(moves, rates)
    source = None if isinstance(rates, int) else AUTO
    current = cluster.read_overrides({*configs, *map(_resource, rows.values())})
    configs = {resource: values for resource, values in configs.items() if current[resource] is not None}
    for resource, values in configs.items():
        for name, value in values.items():
            row = rows.get((*resource, name)) or _row(plan_id, resource, name, current)
            set_to = row.set_to if row.set_to[-1:] == [value] else [*row.set_to, value]
            rows[*resource, name] = replace(row, set_to=set_to, source=source)
    if not rows:
        return
    altering = AuditedConfigs(warehouse, plan_id, attempt)
    _store(warehouse, plan_id, rows.values())
    obsolete = {key: row for key, row in rows.items() if row.name not in configs.get(_resource(row), {})}
    if obsolete:
        unrestored = {_key(row) for row in _restore(altering, admin, list(obsolete.values()), current)}
        _store(warehouse, plan_id, [row for key, row in rows.items() if key not in obsolete or key in unrestored])
    _apply(altering, admin, configs)


def clear_throttle(
    warehouse: Warehouse,
    cluster: Cluster,
    admin: ConfigAdmin,
    plan_id: str,
    attempt: int | None = None,
) -> list[ThrottledConfig]:
    """Restore the configs from before this plan's throttle; return and keep the rows that could not be restored.

    Do not call this for a plan whose replicas still move, unless they are cancelled: they would be copied at full
    speed.
    """
    rows = throttle_rows(warehouse, plan_id)
    if not rows:
        return []
    # a broker that does not answer must not keep the throttle of the others; its own rows stay
    current = cluster.read_overrides({_resource(row) for row in rows}, allow_silent=True)
    unrestored = _restore(AuditedConfigs(warehouse, plan_id, attempt), admin, rows, current)
    _store(warehouse, plan_id, unrestored)
    if unrestored:
        log(
            f"surveyor: the throttle of plan {plan_id} is not cleared on {', '.join(throttled_resources(unrestored))}; "
            f"`surveyor commit {plan_id} --apply` tries again, once they answer"
        )
    else:
        log(f"  throttle of plan {plan_id} cleared")
    return unrestored


def throttled_resources(rows: Iterable[ThrottledConfig]) -> list[str]:
    return sorted({f"{row.kind} {row.resource}" for row in rows})


def clear_leftover_throttles(
    warehouse: Warehouse, cluster: Cluster, admin: ConfigAdmin, in_use: Collection[str]
) -> None:
    """Clear the throttles that plans have left behind, except the plans `in_use`, of which replicas may move."""
    for other in other_throttled_plans(warehouse, in_use):
        log(f"surveyor: plan {other} has left its throttle behind, and none of its replicas move")
        clear_throttle(warehouse, cluster, admin, other)


def rates_of(  # noqa: PLR0917 - whose copies, under which throttle, and when
    settings: Settings,
    plan_id: str,
    moves: Sequence[Change],
    throttle: Throttle | None,
    live: Collection[int],
    now: datetime,
) -> Rates | None:
    """Return the rates of the throttle that is given, else of the one that the plan's commit has set; None without one.

    Raise RefusedError if they follow loads that are not known.
    """
    throttle = throttle_of(throttle_rows(settings.warehouse, plan_id)) if throttle is None else throttle
    return rates_at(settings, throttled_brokers(moves), live, now) if throttle == AUTO else throttle


def other_throttled_plans(warehouse: Warehouse, plan_ids: Collection[str]) -> list[str]:
    """Return the plans other than these whose throttles are set."""
    return sorted({row.plan_id for row in throttle_rows(warehouse)}.difference(plan_ids))


def _key(row: ThrottledConfig) -> ConfigKey:
    return row.kind, row.resource, row.name


def _resource(row: ThrottledConfig) -> Resource:
    return ResourceKind(row.kind), row.resource


def _row(plan_id: str, resource: Resource, name: str, current: CurrentOverrides) -> ThrottledConfig:
    return ThrottledConfig(
        plan_id=plan_id,
        kind=resource[0].value,
        resource=resource[1],
        name=name,
        before=(current[resource] or {}).get(name),
        set_to=[],
        set_at=datetime.now(UTC),
    )


def _store(warehouse: Warehouse, plan_id: str, rows: Iterable[ThrottledConfig]) -> None:
    warehouse.replace(_TABLE, rows, f"plan_id = {quote_literal(plan_id)}")


def _apply(altering: AuditedConfigs, admin: ConfigAdmin, configs: Configs) -> None:
    """Set the configs, brokers' rates first: then listed replicas are throttled from the first byte."""
    refusals = altering.alter(Step.THROTTLE, admin, configs, continue_after_refusal=False)
    for (kind, resource), refusal in refusals.items():
        raise ThrottleError(f"{kind} {resource} refused the throttle: {refusal}")


def _restore(
    altering: AuditedConfigs,
    admin: ConfigAdmin,
    rows: Sequence[ThrottledConfig],
    current: CurrentOverrides,
) -> list[ThrottledConfig]:
    """Restore the previous values; return the rows of those that could not be restored."""
    unrestored: list[ThrottledConfig] = []
    previous_values: dict[Resource, dict[str, str | None]] = {}
    rows_by_resource: dict[Resource, list[ThrottledConfig]] = {}
    for resource in dict.fromkeys(map(_resource, rows)):
        resource_rows = [row for row in rows if _resource(row) == resource]
        current_values = current[resource]
        if current_values is None:
            # a deleted topic no longer has a config; a broker's config still exists when the broker returns
            unrestored += resource_rows if resource[0] is ResourceKind.BROKER else []
            continue
        own_rows = [row for row in resource_rows if current_values.get(row.name) in row.set_to]
        for row in resource_rows:
            if row not in own_rows and current_values.get(row.name) != row.before:
                value = current_values.get(row.name)
                altered = f"{row.name} of {row.kind} {row.resource} was altered by another client"
                log(f"surveyor: {altered}: left at {value}", logging.WARNING)
        rows_by_resource[resource] = own_rows
        if overrides := {row.name: row.before for row in own_rows if current_values.get(row.name) != row.before}:
            previous_values[resource] = overrides
    for resource, refusal in altering.alter(
        Step.LIFT_THROTTLE, admin, previous_values, continue_after_refusal=True
    ).items():
        name = f"{resource[0]} {resource[1]}"
        log(f"surveyor: could not remove the throttle from {name}: {refusal}", logging.WARNING)
        unrestored += rows_by_resource[resource]
    return unrestored
