"""Output of `plan reassign --by-load --pareto`: the plans that budgets allow, as a table and a chart."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, to_builtins

from jobs.console_output.text_chart import text_chart
from jobs.core.units import format_bytes
from jobs.runtime.console import CommandResult, Line, Result, table
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import same_step
from planner.load.load_figures import SHARES
from planner.placement.plan_figures import WorstLoad
from schemas.rows import Snapshot

COLUMNS: Final = ("budget", "copies", "moves", "elections", "worst", "broker", "resource", "outside", "of_least")


class BudgetRow(Struct, frozen=True, kw_only=True):
    """A plan by load; `budget` is the value of `--budget` that makes it, None for the plan without one."""

    budget: str | None
    bytes: int
    """Bytes copied."""
    moves: int
    """Replicas copied."""
    elections: int
    worst: WorstLoad
    outside: int
    """Loads outside their band, one for each broker, resource and window."""
    ratio: float | None
    """Bytes as a multiple of the least that a plan as even as this one copies; None if that is 0."""


class BudgetPlans(Struct, frozen=True, kw_only=True):
    """The plans, the fewest bytes first, and the lowest possible load of the most loaded broker."""

    loads: str
    """The loads that the plans are made by."""
    before: WorstLoad
    worst_bound: float
    """A lower bound of the load of the most loaded broker after any plan."""
    by_capacity: bool
    rows: list[BudgetRow]


def budgets_result(settings: Settings, snapshot: Snapshot, plans: BudgetPlans) -> CommandResult:
    """Return what the command shows, and how to make one of the plans."""
    result: Result = {"snapshot_id": snapshot.snapshot_id, **to_builtins(plans)}
    budget = next((row.budget for row in reversed(plans.rows) if row.budget), None)
    options = () if budget is None else ("--budget", budget)
    step = same_step(settings, "make one of these plans", "plan", "reassign", *options, exclude=("pareto",))
    return CommandResult(result, *_lines(settings, snapshot, plans), steps=[step], warnings=())


def _lines(settings: Settings, snapshot: Snapshot, plans: BudgetPlans) -> Iterator[Line]:
    title = f"{settings.cluster}, snapshot {snapshot.snapshot_id}, plans by load from {plans.loads}"
    yield table(title, COLUMNS, [_cells(row) for row in plans.rows])
    now, last = plans.before, plans.rows[-1]
    worst = f"{now.multiple:.2f} ({now.broker}, {now.resource}) of {SHARES[plans.by_capacity]}"
    yield f"most loaded broker now {worst}, at best {plans.worst_bound:.2f}"
    yield "outside: loads outside the band, by broker, resource and window"
    if lower := [row for row in plans.rows if row.worst.multiple < last.worst.multiple]:
        budget, outside = lower[-1].budget, f"{last.outside} loads outside instead of {lower[-1].outside}"
        fewer = f"has {outside}, but " if last.outside < lower[-1].outside else "copies more, and "
        yield f"the last plan {fewer}its most loaded broker has more than with --budget {budget}"
    points = [(float(row.bytes), row.worst.multiple) for row in plans.rows]
    ends = [format_bytes(row.bytes) for row in (plans.rows[0], plans.rows[-1])]
    yield from text_chart({"most loaded broker by bytes copied": points}, (ends[0], ends[1]))


def _cells(row: BudgetRow) -> Result:
    return {
        "budget": row.budget or "none",
        "copies": format_bytes(row.bytes),
        "moves": row.moves,
        "elections": row.elections,
        "worst": f"{row.worst.multiple:.2f}",
        "broker": row.worst.broker,
        "resource": row.worst.resource,
        "outside": row.outside,
        "of_least": "" if row.ratio is None else f"{row.ratio:.2f}",
    }
