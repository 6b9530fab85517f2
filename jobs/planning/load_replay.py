"""`surveyor whatif --load`: the load of brokers in each hour of the last weeks, had they held what a plan gives them.

The engine adds up the loads of partitions by the replicas and leaders before and after the plan, and only the load of
each broker in each hour is collected. Without a plan the hours are those of the assignment of a snapshot.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.load_replay import Backtest, HourLoad
from jobs.core.errors import UnreadableError, UsageError
from jobs.planning.plan_draft import look
from jobs.planning.plan_load import brokers_with_shares, loads_by_hour
from jobs.planning.planning_tables import PlanningTables
from jobs.repositories.loads import find_window
from jobs.repositories.plans.plans_reader import find_plan
from jobs.runtime.console import CommandResult
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.settings import Settings
from planner.load.load_figures import MULTIPLE_DIGITS, SIDES, ResourceEffect
from planner.load.plan_effect import plan_effect, plan_ends
from planner.load.resource_effects import resource_effects
from planner.load.sharing_brokers import by_capacity
from schemas.enums import PlanTraits
from schemas.rows import Change, PartitionLoad, PlanRecord, Row
from schemas.tables import SPARK_SCHEMAS

WEEKS: Final = 4


def report_backtest(
    settings: Settings,
    plan: str | None,
    weeks: int | None,
    snapshot: int | None,
    show: Callable[[Backtest], CommandResult],
) -> CommandResult:
    """Show the most loaded broker of each hour; raise UnreadableError if there are no loads."""
    if plan is not None and snapshot is not None:
        raise UsageError(f"--snapshot {snapshot}: leave it out, plan {plan} is on a snapshot of its own")
    row = None if plan is None else find_plan(settings.warehouse, plan)
    newest = _newest_hour(settings.warehouse)
    since = newest - timedelta(weeks=weeks or WEEKS)
    options = PlanOptions(snapshot_id=snapshot if row is None else row.snapshot_id, refresh=False)
    return look(settings, options, lambda tables: show(_replayed(settings, row, since, tables)))


def _newest_hour(warehouse: Warehouse) -> datetime:
    find_window(warehouse)  # reports that there are no loads, and why
    newest: datetime | None = warehouse.latest(PartitionLoad.TABLE, "hour")
    if newest is None:
        raise UnreadableError("only loads of every hour were imported: there are no hours to replay")
    return newest


def _replayed(settings: Settings, plan: PlanRecord | None, since: datetime, tables: PlanningTables) -> Backtest:
    changes = tables.spark_warehouse.arrow(_changes_of(settings.warehouse, plan), SPARK_SCHEMAS[Change.TABLE])
    traits, parameters = (plan.traits, plan.options) if plan else (PlanTraits(), {})
    sharing = brokers_with_shares(settings, tables, traits, parameters)
    effect = plan_effect(tables["partitions"], plan_ends(changes), loads_by_hour(tables, since)).toArrow()
    return Backtest(
        snapshot_id=tables.snapshot.snapshot_id,
        plan_id=None if plan is None else plan.plan_id,
        plan=None if plan is None else plan.title,
        by_capacity=any(map(by_capacity, sharing)),
        rows=_rows(resource_effects(effect, sharing)),
    )


def _changes_of(warehouse: Warehouse, plan: PlanRecord | None) -> pa.Table:
    return warehouse.read(Change.TABLE, ("plan_id", "=", "" if plan is None else plan.plan_id))


def _rows(effects: Iterable[ResourceEffect]) -> list[HourLoad]:
    """Return the hours, the oldest first."""
    by_hour = defaultdict(list)
    for effect in effects:
        by_hour[int(effect.window)].append(effect)
    return [_hour(datetime.fromtimestamp(hour, UTC), by_hour[hour]) for hour in sorted(by_hour)]


def _hour(hour: datetime, effects: Sequence[ResourceEffect]) -> HourLoad:
    sides: Row = {}
    for side, name in enumerate(SIDES):
        multiples = ((effect.worst[side], effect.resource, effect.broker[side]) for effect in effects)
        known = ((round(worst, MULTIPLE_DIGITS), *where) for worst, *where in multiples if worst is not None)
        multiple, resource, broker = max(known, default=(None, None, None))
        sides |= {f"worst_{name}": multiple, f"broker_{name}": broker, f"resource_{name}": resource}
    return HourLoad(hour=hour, **sides)
