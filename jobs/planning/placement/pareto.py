"""The plans by load that budgets of bytes allow: bytes copied against the most loaded broker that remains.

The search of the whole plan passes states with few copies. Some of their sums of bytes become budgets, and each is
planned as `--budget` plans it, so a row has the numbers of the plan with its budget. A budget whose plan is not more
even than one of a smaller budget is left out. The last row is the plan without a budget: it brings as many loads as
possible into their bands, so its most loaded broker may have more than that of a plan of fewer bytes.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from jobs.console_output.plans_by_budget import BudgetPlans, BudgetRow
from jobs.core.units import parse_bytes
from jobs.planning.placement.measured_loads import MeasuredLoads, warn_without_load
from jobs.planning.placement.optimise import PlacementProblem, PlacementRequest, read_problem
from jobs.planning.planning_tables import PlanningTables
from planner.placement.plan_figures import MULTIPLE_DIGITS, worst_load
from planner.placement.types import LoadBalance, LoadStep, Placement

BUDGETS: Final = 8
"""Budgets that are planned in addition to the whole plan."""

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_STEP: Final = 1000
_LEAST_OF_UNIT: Final = 100
"""Units from which on a budget is rounded to whole ones, by at most a percent."""


def plans_by_budget(tables: PlanningTables, request: PlacementRequest, loads: MeasuredLoads) -> BudgetPlans:
    """Plan with some budgets, and without one; raise RefusedError if no placement keeps the rules."""
    problem = read_problem(tables, request, loads)
    warn_without_load(problem.sizes)
    whole = problem.placed()[0]
    balance = _balance(whole)
    given = budgets(balance.front, balance.bytes)
    rows = [_row(budget, problem, placed) for budget, placed in _with_budgets(problem, given)]
    return BudgetPlans(
        loads=problem.sizes["loads"]["source"],
        before=worst_load(balance, balance.before),
        worst_bound=round(float(balance.best.max()), MULTIPLE_DIGITS),
        by_capacity=balance.by_capacity,
        rows=[*_more_even(rows, balance.bytes), _row(None, problem, whole)],
    )


def budgets(front: tuple[LoadStep, ...], most: int) -> list[str]:
    """Return up to BUDGETS budgets below `most` bytes, as evenly spread as the steps of a search allow.

    >>> steps = tuple(LoadStep(size, 1, 0, 1.5) for size in (0, 1, 700_001, 1_374_389_534, 2_000_000_000))
    >>> budgets(steps, 1_900_000_000)
    ['0B', '701KB', '1375MB']
    """
    sizes = np.unique([step.bytes for step in front if step.bytes < most])
    sought = np.linspace(0, most, BUDGETS, endpoint=False)
    nearest = {int(sizes[abs(sizes - size).argmin()]) for size in sought} if len(sizes) else set()
    return [_whole_units(size) for size in sorted(nearest)]


def _whole_units(size: int) -> str:
    """Round up to whole units, so that `--budget` reads exactly this number.

    >>> [_whole_units(size) for size in (0, 999, 12_345, 123_456, 5_000_000_000_000_000)]
    ['0B', '999B', '12345B', '124KB', '5000TB']
    """
    power = 0
    while power + 1 < len(_UNITS) and size >= _LEAST_OF_UNIT * _STEP ** (power + 1):
        power += 1
    return f"{-(-size // _STEP**power)}{_UNITS[power]}"


def _with_budgets(problem: PlacementProblem, given: list[str]) -> Iterator[tuple[str, Placement]]:
    for budget in given:
        yield budget, problem.with_loads(max_bytes=parse_bytes("--budget", budget)).placed()[0]


def _more_even(rows: list[BudgetRow], most: int) -> Iterator[BudgetRow]:
    """Yield the rows of fewer bytes than `most` that are more even than all before."""
    least = float("inf")
    for row in sorted(rows, key=lambda row: (row.bytes, row.worst.multiple)):
        if row.bytes < most and row.worst.multiple < least:
            least = row.worst.multiple
            yield row


def _row(budget: str | None, problem: PlacementProblem, placement: Placement) -> BudgetRow:
    balance = _balance(placement)
    return BudgetRow(
        budget=budget,
        bytes=balance.bytes,
        moves=placement.copies,
        elections=problem.elections(placement),
        worst=worst_load(balance, balance.after),
        outside=balance.loads_outside,
        ratio=round(balance.bytes / balance.bytes_bound, MULTIPLE_DIGITS) if balance.bytes_bound else None,
    )


def _balance(placement: Placement) -> LoadBalance:
    if placement.loads is None:
        raise TypeError("a placement by measured loads has their balance")
    return placement.loads
