"""The plan by load with the fewest bytes for small clusters, by CP-SAT: the oracle of the search and of the bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from ortools.sat.python import cp_model

from planner.placement.load_balancing.load_model import Bands, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.types import NO_BROKER

SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The fewest bytes, None if no plan brings all loads into their bands; `is_known` if there was time to find out."""

    bytes: int | None
    is_known: bool


def fewest_bytes(model: PlacementModel, loads: ReplicaLoads, bands: Bands) -> Optimum:
    """Search all replica lists of all partitions that keep their racks."""
    solver, program = cp_model.CpSolver(), cp_model.CpModel()
    rows, brokers = range(model.before.shape[1]), range(model.size)
    holds = [[program.new_bool_var("") for _ in brokers] for _ in rows]
    leads = [[program.new_bool_var("") for _ in brokers] for _ in rows]
    for row in rows:
        program.add(sum(holds[row]) == int(model.factor[row]))
        program.add_exactly_one(leads[row])
        for broker in brokers:
            program.add_implication(leads[row][broker], holds[row][broker])
        _keep_racks(program, model, row, holds[row])
    for broker in brokers:
        for resource in range(loads.leader.shape[1]):
            load = sum(
                int(loads.follower[row, resource]) * holds[row][broker]
                + int(loads.leader[row, resource] - loads.follower[row, resource]) * leads[row][broker]
                for row in rows
            )
            target = bands.target[broker, resource]
            program.add(load <= int(np.floor(bands.high[broker, resource] * target)))
            program.add(load >= int(np.ceil(bands.low[broker, resource] * target)))
    copied = sum(
        int(loads.size[row]) * holds[row][broker]
        for row in rows
        for broker in brokers
        if broker not in model.before[:, row].tolist()
    )
    program.minimize(copied)
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = SECONDS, 1
    status = solver.solve(program)
    found = int(solver.objective_value) if status == cp_model.OPTIMAL else None
    return Optimum(bytes=found, is_known=status in {cp_model.OPTIMAL, cp_model.INFEASIBLE})


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
