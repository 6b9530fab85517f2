"""The plan by load with the fewest bytes for small clusters, by CP-SAT: the oracle of the search and of the bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from ortools.sat.python import cp_model

from planner.placement.load_balancing.load_model import Bands, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.racks import max_per_rack, racks_spanned
from planner.placement.types import NO_BROKER, Bools, Floats

SECONDS: Final = 20.0

ROUNDING: Final = 1e-6
"""Loads are whole numbers, which a bound may miss by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The fewest bytes, None if no plan brings all loads into their bands; `is_known` if there was time to find out."""

    bytes: int | None
    is_known: bool


def fewest_copies(model: PlacementModel, row: int) -> int:
    """Try all brokers for a partition whose required changes have been made in the model, and count the new ones."""
    before, factor = {*model.before[:, row].tolist()}, int(model.factor[row])
    may_hold = {*np.flatnonzero(model.may_receive).tolist()} | (before - {*np.flatnonzero(model.emptied).tolist(), -1})
    return min(
        len({*chosen} - before)
        for chosen in combinations(sorted(may_hold), factor)
        if racks_spanned(racks := model.racks[np.array(chosen)[:, None]])[0] >= model.min_racks[row]
        and max_per_rack(racks)[0] <= model.capacity[row]
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForcedRows:
    """The forced changes of a model: the rows whose new replicas may go elsewhere; others keep their lists.

    Leaders may change in rows that are changed and, with `reorder`, in all.
    """

    redirected: Bools
    reorder: bool


def fewest_bytes(model: PlacementModel, loads: ReplicaLoads, bands: Bands, seconds: float = SECONDS) -> Optimum:
    """Search all replica lists of all partitions that keep their racks, with all loads in their bands."""
    return _fewest(model, loads, (bands.low * bands.target, bands.high * bands.target), seconds)


def fewest_within_limits(model: PlacementModel, loads: ReplicaLoads, bands: Bands, seconds: float = SECONDS) -> Optimum:
    """Search the same lists, with all loads within their limits, whatever their bands."""
    return _fewest(model, loads, (bands.least * bands.target, bands.limit * bands.target), seconds)


def can_force_within(
    model: PlacementModel,
    loads: ReplicaLoads,
    bounds: tuple[Floats, Floats],
    forced: ForcedRows,
    seconds: float = SECONDS,
) -> bool:
    """Return whether the forced changes can be made with the same copies, and all loads within these bounds."""
    return _fewest(model, loads, bounds, seconds, forced).bytes is not None


def _fewest(
    model: PlacementModel,
    loads: ReplicaLoads,
    bounds: tuple[Floats, Floats],
    seconds: float,
    forced: ForcedRows | None = None,
) -> Optimum:
    (low, high), solver, program = bounds, cp_model.CpSolver(), cp_model.CpModel()
    rows, brokers = range(model.before.shape[1]), range(model.size)
    holds = [[program.new_bool_var("") for _ in brokers] for _ in rows]
    leads = [[program.new_bool_var("") for _ in brokers] for _ in rows]
    for row in rows:
        program.add(sum(holds[row]) == int(model.factor[row]))
        program.add_exactly_one(leads[row])
        for broker in brokers:
            program.add_implication(leads[row][broker], holds[row][broker])
            if not (model.may_receive[broker] or broker in model.before[:, row].tolist()):
                program.add(holds[row][broker] == 0)
        if forced is not None:
            _keep_forced(program, model, row, (holds[row], leads[row]), forced)
        if forced is None or forced.redirected[row]:
            _keep_racks(program, model, row, holds[row])
    for broker in brokers:
        for resource in range(loads.leader.shape[1]):
            load = sum(
                int(loads.follower[row, resource]) * holds[row][broker]
                + int(loads.leader[row, resource] - loads.follower[row, resource]) * leads[row][broker]
                for row in rows
            )
            if np.isfinite(high[broker, resource]):
                program.add(load <= int(np.floor(high[broker, resource] + ROUNDING)))
            if np.isfinite(low[broker, resource]):
                program.add(load >= int(np.ceil(low[broker, resource] - ROUNDING)))
    copied = sum(
        int(loads.size[row]) * holds[row][broker]
        for row in rows
        for broker in brokers
        if broker not in model.before[:, row].tolist()
    )
    program.minimize(copied)
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 1
    status = solver.solve(program)
    found = int(solver.objective_value) if status == cp_model.OPTIMAL else None
    return Optimum(bytes=found, is_known=status in {cp_model.OPTIMAL, cp_model.INFEASIBLE})


def _keep_forced(
    program: cp_model.CpModel,
    model: PlacementModel,
    row: int,
    variables: tuple[Sequence[cp_model.BoolVarT], Sequence[cp_model.BoolVarT]],
    forced: ForcedRows,
) -> None:
    (holds, leads), before, after = variables, model.before[:, row].tolist(), model.after[:, row].tolist()
    if forced.redirected[row]:
        new = [broker for broker in range(model.size) if broker not in before]
        program.add(sum(holds[broker] for broker in new) <= len({*after} - {*before, NO_BROKER}))
        for broker in np.flatnonzero(model.emptied).tolist():
            program.add(holds[broker] == 0)
    else:
        for broker in range(model.size):
            program.add(holds[broker] == (broker in after))
    if before == after and not forced.reorder:
        program.add(leads[after[0]] == 1)


def _keep_racks(program: cp_model.CpModel, model: PlacementModel, row: int, holds: Sequence[cp_model.BoolVarT]) -> None:
    used = []
    for rack in sorted({*model.racks[:-1].tolist()} - {NO_BROKER}):
        inside = sum(held for held, where in zip(holds, model.racks[:-1].tolist(), strict=True) if where == rack)
        is_used = program.new_bool_var("")
        program.add(inside <= int(model.capacity[row]))
        program.add(is_used <= inside)
        used.append(is_used)
    if used:
        program.add(sum(used) >= int(model.min_racks[row]))
