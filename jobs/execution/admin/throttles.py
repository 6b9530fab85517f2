"""Throttles of replication: set for the moves of a plan, and always taken away again.

Table `throttles` says what stood before, and is written before the cluster is touched; a row goes once its value is
as it was. So whoever crashed anywhere has left rows, and `clear_throttle` makes good what they say. A value that
somebody else has set since is theirs and stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.configs import DYNAMIC_CONFIGS
from jobs.adapters.delta.warehouse import Row, Warehouse, quoted
from jobs.adapters.zookeeper.cluster import BROKER_IDS, CONFIGS, TOPICS
from jobs.adapters.zookeeper.connection import connected, sync
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.core.errors import SurveyorError
from jobs.execution.admin.audited_configs import AuditedConfigs, ConfigAdmin
from jobs.execution.admin.reassignment_options import (
    UNTHROTTLED,
    Configs,
    Resource,
    ResourceKind,
    throttle_configs,
)
from jobs.repositories.plans.repository import Plan
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from schemas.enums import Action, Step
from schemas.rows import Change
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE
from schemas.znodes import MalformedZnodeError, decode_config

_TABLE: Final = "throttles"

CurrentOverrides = Mapping[Resource, Mapping[str, str] | None]
"""Overrides in force; None for a topic that is gone, and for a broker that is not alive and cannot be asked."""


class ThrottleError(SurveyorError):
    """A broker would not take a throttle; what was set is in `throttles`."""


def throttle_rows(lake: Warehouse, plan_id: str | None = None) -> list[Row]:
    """Return what is set, or about to be, by one plan or by all; nothing where a warehouse has no such table yet."""
    if not lake.has(_TABLE):
        return []
    rows = lake.rows(_TABLE) if plan_id is None else lake.rows(_TABLE, ("plan_id", "=", plan_id))
    return sorted(rows, key=_key)


def rate_of(rows: Iterable[Row]) -> int | None:
    """Return the rate that these rows last set, in bytes a second, None if they set none."""
    rates = [int(row["set_to"][-1]) for row in rows if row["name"] in {LEADER_RATE, FOLLOWER_RATE}]
    return max(rates, default=None)


def set_throttle(
    settings: Settings,
    admin: ConfigAdmin,
    plan_id: str,
    moves: Sequence[Change],
    rate: int,
    *,
    attempt: int | None = None,
) -> None:
    """Throttle these moves (changes that reassign) of a plan, and no others of it any more; `rate` in bytes a second.

    Brokers that are not alive are left out: they cannot be asked, and copy nothing. Raise ThrottleError where another
    broker or a topic would not take it: then the moves must not begin. `attempt`: which commit of the plan does it.
    """
    if rate == UNTHROTTLED:
        clear_throttle(settings, admin, plan_id, attempt)
        return
    lake = settings.lake
    if not lake.has(_TABLE):
        lake.ensure_tables()
    rows = {_key(row): row for row in throttle_rows(lake, plan_id)}
    configs = throttle_configs(moves, rate)
    with connected(settings.zookeeper) as client:
        in_force = _read_overrides(client, {*configs, *map(_resource, rows.values())})
    configs = {resource: values for resource, values in configs.items() if in_force[resource] is not None}
    for resource, values in configs.items():
        for name, value in values.items():
            row = rows.setdefault((*resource, name), _row(resource, name, in_force))
            row["set_to"] = [*row["set_to"], value] if row["set_to"][-1:] != [value] else row["set_to"]
    if not rows:
        return
    altering = AuditedConfigs(lake, plan_id, attempt)
    _store(lake, plan_id, rows.values())
    over = {key: row for key, row in rows.items() if row["name"] not in configs.get(_resource(row), {})}
    if over:
        left = {_key(row) for row in _restore(altering, admin, list(over.values()), in_force)}
        _store(lake, plan_id, [row for key, row in rows.items() if key not in over or key in left])
    _apply(altering, admin, configs)


def clear_throttle(settings: Settings, admin: ConfigAdmin, plan_id: str, attempt: int | None = None) -> list[Row]:
    """Put back what stood before this plan's throttle; return the rows of what could not be, which are kept.

    Not for a plan whose replicas still move, unless they are cancelled: they would go on at full speed.
    """
    rows = throttle_rows(settings.lake, plan_id)
    if not rows:
        return []
    with connected(settings.zookeeper) as client:
        in_force = _read_overrides(client, {_resource(row) for row in rows})
    left = _restore(AuditedConfigs(settings.lake, plan_id, attempt), admin, rows, in_force)
    _store(settings.lake, plan_id, left)
    if left:
        names = ", ".join(sorted({f"{row['kind']} {row['resource']}" for row in left}))
        log(
            f"surveyor: the throttle of plan {plan_id} is not cleared on {names}; "
            f"`surveyor commit {plan_id} --apply` tries again, once they answer",
        )
    else:
        log(f"  throttle of plan {plan_id} cleared")
    return left


def clear_leftover_throttles(settings: Settings, admin: ConfigAdmin, plan_id: str) -> None:
    """Clear what other plans have left behind; only while nobody's replicas move but this plan's."""
    for other in sorted({row["plan_id"] for row in throttle_rows(settings.lake)} - {plan_id}):
        log(f"surveyor: plan {other} has left its throttle behind, and none of its replicas move")
        clear_throttle(settings, admin, other)


def throttle_lines(lake: Warehouse, plan: Plan, due: Sequence[Change], rate: int | None) -> Iterator[str]:
    """Say what a commit of these changes would throttle, and what earlier ones have left behind."""
    moves = [change for change in due if change.action == Action.REASSIGN]
    rate = rate_of(throttle_rows(lake, plan.plan_id)) if rate is None else rate
    resources = throttle_configs(moves, rate) if rate else {}
    if resources:
        brokers = ", ".join(name for kind, name in resources if kind is ResourceKind.BROKER)
        topics = ", ".join(name for kind, name in resources if kind is ResourceKind.TOPIC)
        yield f"  would be throttled to {rate} B/s, wave by wave: brokers {brokers}, and moving replicas of {topics}"
    yield from leftover_lines(lake)


def leftover_lines(lake: Warehouse, plan: Plan | None = None) -> Iterator[str]:
    """Say which throttles are set by plans other than this one."""
    mine = None if plan is None else plan.plan_id
    for left in sorted({row["plan_id"] for row in throttle_rows(lake)} - {mine}):
        yield (
            f"  the throttle of plan {left} is still set: `surveyor commit {left} --apply` takes it away, "
            "once none of its replicas move"
        )


def _key(row: Row) -> tuple[str, str, str]:
    return row["kind"], row["resource"], row["name"]


def _resource(row: Row) -> Resource:
    return ResourceKind(row["kind"]), row["resource"]


def _row(resource: Resource, name: str, in_force: CurrentOverrides) -> Row:
    kind, called = resource
    before = (in_force[resource] or {}).get(name)
    common = {"kind": kind.value, "resource": called, "name": name}
    return {**common, "before": before, "set_to": [], "set_at": datetime.now(UTC)}


def _store(lake: Warehouse, plan_id: str, rows: Iterable[Row]) -> None:
    lake.replace(_TABLE, [{**row, "plan_id": plan_id} for row in rows], f"plan_id = {quoted(plan_id)}")


def _read_overrides(client: KazooClient, resources: Iterable[Resource]) -> CurrentOverrides:
    """Read the overrides of brokers and topics, and whether they are there."""
    ordered = sorted(resources)
    sync(client)
    there = read_many(client, [_resource_path(resource) for resource in ordered])
    configs = read_many(client, [_override_path(resource) for resource in ordered])
    in_force: dict[Resource, Mapping[str, str] | None] = {}
    for resource, home, config in zip(ordered, there, configs, strict=True):
        try:
            overrides = {} if config.data is None else decode_config(config.data)
        except MalformedZnodeError as error:
            raise ThrottleError(f"{config.path} is not understood ({error}): mend it, then commit again") from None
        in_force[resource] = None if home.stat is None else overrides
    return in_force


def _resource_path(resource: Resource) -> str:
    kind, name = resource
    return f"{BROKER_IDS if kind is ResourceKind.BROKER else TOPICS}/{name}"


def _override_path(resource: Resource) -> str:
    kind, name = resource
    return f"{DYNAMIC_CONFIGS if kind is ResourceKind.BROKER else CONFIGS}/{name}"


def _apply(altering: AuditedConfigs, admin: ConfigAdmin, configs: Configs) -> None:
    """Rates first: replicas that are listed are throttled from the first byte."""
    refused = altering.alter(Step.THROTTLE, admin, configs, continue_after_refusal=False)
    for (kind, resource), refusal in refused.items():
        raise ThrottleError(f"{kind} {resource} would not take the throttle: {refusal}")


def _restore(
    altering: AuditedConfigs, admin: ConfigAdmin, rows: Sequence[Row], in_force: CurrentOverrides
) -> list[Row]:
    """Put back what stood before; return the rows of what could not be."""
    left: list[Row] = []
    back: dict[Resource, dict[str, str | None]] = {}
    throttled: dict[Resource, list[Row]] = {}
    for resource in dict.fromkeys(map(_resource, rows)):
        mine = [row for row in rows if _resource(row) == resource]
        now = in_force[resource]
        if now is None:
            # a topic that is gone took its configuration along; a broker's is there when it comes back
            left += mine if resource[0] is ResourceKind.BROKER else []
            continue
        ours = [row for row in mine if now.get(row["name"]) in row["set_to"]]
        for row in mine:
            if row not in ours and now.get(row["name"]) != row["before"]:
                what = f"{row['name']} of {row['kind']} {row['resource']}"
                log(f"surveyor: {what} was altered by somebody else: left at {now.get(row['name'])}")
        throttled[resource] = ours
        if former := {row["name"]: row["before"] for row in ours if now.get(row["name"]) != row["before"]}:
            back[resource] = former
    for resource, refusal in altering.alter(Step.LIFT_THROTTLE, admin, back, continue_after_refusal=True).items():
        log(f"surveyor: {resource[0]} {resource[1]} would not give up its throttle: {refusal}")
        left += throttled[resource]
    return left
