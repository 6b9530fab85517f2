"""The exact optimum of small placements, from each partition's choices by CP-SAT.

Nothing here is shared with the optimiser. The allowed broker sets of each partition come from the rules in plain
Python, and the solver picks one per partition.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.placement.types import NO_BROKER
from tests.planner.placement.clusters import Case

Choice = tuple[frozenset[int], int]
"""A set of brokers (or one leader) and its costs."""


def choices(case: Case) -> list[list[Choice]] | None:
    """Return the allowed sets of each partition with their copies; None if a partition has none."""
    possible = [_sets(case, row) for row in range(len(case.partitions.topic))]
    return possible if all(possible) else None


def _racks(case: Case, brokers: Iterable[int]) -> int:
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    return len({rack_of[broker] for broker in brokers} - {None})


def crowding(case: Case, brokers: Iterable[int]) -> int:
    """Return the most replicas in one rack, at least 1."""
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    held = [rack_of[broker] for broker in brokers]
    return max([1, *(held.count(rack) for rack in {*held} - {None})])


def _flagged(case: Case, name: str) -> frozenset[int]:
    flags = getattr(case.brokers, name)
    return frozenset(case.brokers.ids[flags].tolist())


def is_held(case: Case, row: int) -> bool:
    """Whether a replica is on a dead broker that is not being emptied, unless the dead replicas can be dropped."""
    before = set(case.partitions.replicas[row].tolist()) - {NO_BROKER} - _flagged(case, "emptied")
    dead = before - _flagged(case, "live")
    spare = len(before) - (case.question.replication_factor or len(before))
    return bool(dead) and (len(dead) > spare or not in_sync(case, row) & _flagged(case, "live"))


def in_sync(case: Case, row: int) -> frozenset[int]:
    """Return the replicas in sync, all if the ISR is unknown."""
    replicas = case.partitions.replicas[row]
    known = replicas != NO_BROKER if case.partitions.in_sync is None else case.partitions.in_sync[row]
    return frozenset(replicas[known].tolist()) - {NO_BROKER}


def _sets(case: Case, row: int) -> list[Choice]:
    ordered = [broker for broker in case.partitions.replicas[row].tolist() if broker != NO_BROKER]
    before, question = frozenset(ordered), case.question
    if not case.partitions.movable[row] or is_held(case, row):
        return [(before, 0)]
    target, emptied = (_flagged(case, name) for name in ("target", "emptied"))
    factor = question.replication_factor or len(before)
    stays = before - emptied - target
    allowed = sorted(target - emptied | stays & _flagged(case, "live"))
    sets = [frozenset(some) for some in combinations(allowed, factor)]
    if question.onto:
        sets = [some for some in sets if some - before <= question.onto]
    sets = [some for some in sets if _racks(case, some) >= _fewest_racks(case, before, factor, sets)]
    sets = [some for some in sets if crowding(case, some) <= _most_in_one(case, before, sets)]
    if question.fix_racks and sets:
        widest = max(_racks(case, some) for some in sets)
        sets = [some for some in sets if _racks(case, some) == widest]
        sets = _least_crowded(case, sets)
    if question.replication_factor is not None:
        sets = _led_as_before(ordered[0], _cheapest(case, row, sets), sets)
    forced = _cheapest(case, row, sets)
    return [(some, len(some - before)) for some in (_as_kind(case, row, forced, sets) if question.even else forced)]


def _fewest_racks(case: Case, before: frozenset[int], factor: int, sets: list[frozenset[int]]) -> int:
    """Return the required number of racks: as now, or, if racks are given up, as many as the others allow.

    A rack with brokers to be emptied is given up if none of its brokers is live and stays.
    """
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    emptied = _flagged(case, "emptied")
    kept = {rack_of[broker] for broker in _flagged(case, "live") - emptied}
    lost = {rack_of[broker] for broker in before} & {rack_of[broker] for broker in emptied} - kept - {None}
    now, widest = min(_racks(case, before), factor), max((_racks(case, some) for some in sets), default=0)
    return max(now - len(lost), min(now, widest))


def _most_in_one(case: Case, before: frozenset[int], sets: list[frozenset[int]]) -> int:
    """Return the allowed number of replicas in one rack: as now, or the lowest possible if that is higher."""
    return max(crowding(case, before), min((crowding(case, some) for some in sets), default=0))


def _least_crowded(case: Case, sets: list[frozenset[int]]) -> list[frozenset[int]]:
    least = min((crowding(case, some) for some in sets), default=0)
    return [some for some in sets if crowding(case, some) == least]


def _led_as_before(leader: int, forced: list[frozenset[int]], sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """Keep the preferred leader if that costs nothing."""
    return [some for some in sets if leader in some] if any(leader in some for some in forced) else sets


def _cheapest(case: Case, row: int, sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """Return the best sets: fewest copies, then most racks reachable, then fewest in one rack, then removal order."""
    before = frozenset(case.partitions.replicas[row].tolist()) - {NO_BROKER}
    fewest = min((len(some - before) for some in sets), default=0)
    forced = [some for some in sets if len(some - before) == fewest]
    widest = max((_racks(case, some) for some in forced), default=0) if fewest else 0
    forced = _least_crowded(case, [some for some in forced if _racks(case, some) >= widest])
    best = min((_loss(case, row, some) for some in forced), default=[])
    return [some for some in forced if _loss(case, row, some) == best]


def _loss(case: Case, row: int, some: frozenset[int]) -> list[bool | int]:
    """Return the cost of choosing `some`, the worst first: dead, drained and lagging replicas kept.

    First of all, whether no replica in sync stays although one could.
    """
    before = frozenset(case.partitions.replicas[row].tolist()) - {NO_BROKER}
    synced, live = in_sync(case, row), _flagged(case, "live")
    drained = before & live - _flagged(case, "target") - _flagged(case, "emptied")
    return [
        not some & synced & live,
        len(some & before - live),
        len(some & drained),
        len(some & before - synced),
    ]


def _as_kind(case: Case, row: int, forced: list[frozenset[int]], sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """Return sets no worse than the required ones that keep every replica in sync of a partition with a lagging one."""
    before = frozenset(case.partitions.replicas[row].tolist()) - {NO_BROKER}
    synced, target, emptied = in_sync(case, row), _flagged(case, "target"), _flagged(case, "emptied")
    stays = before - target - emptied
    fewest = min((len(some - before) for some in forced), default=0)
    widest = max((_racks(case, some) for some in forced), default=0) if fewest else 0
    kept = max((len(some & synced) for some in forced), default=0) if before - synced else 0
    settled = {some & stays for some in forced}
    crowded = max((crowding(case, some) for some in (forced if before not in forced else sets)), default=0)
    return [
        some
        for some in sets
        if some & stays in settled
        and _racks(case, some) >= widest
        and crowding(case, some) <= crowded
        and len(some & synced) >= kept
    ]


def optimum(
    options: Sequence[Sequence[Choice]],
    recipients: Iterable[int],
    *objectives: Callable[[cp_model.CpModel, dict[int, Any], Any], Any],
    most: int | None = None,
) -> list[int]:
    """Minimise the objectives one after the other, keeping the earlier ones optimal, at a cost of at most `most`."""
    model = cp_model.CpModel()
    loads: dict[int, list[Any]] = {recipient: [] for recipient in recipients}
    costs: list[Any] = []
    for row, some in enumerate(options):
        picks = [model.new_bool_var(f"{row} {n}") for n in range(len(some))]
        model.add_exactly_one(picks)
        for pick, (brokers, cost) in zip(picks, some, strict=True):
            costs.append(cost * pick)
            for broker in brokers & loads.keys():
                loads[broker].append(pick)
    if most is not None:
        model.add(sum(costs) <= most)
    total = {broker: sum(picks) for broker, picks in loads.items()}
    best = []
    for objective in objectives:
        goal = objective(model, total, sum(costs))
        model.minimize(goal)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        if solver.solve(model) != cp_model.OPTIMAL:
            raise AssertionError("the exact solver found no optimum")
        best.append(round(solver.objective_value))
        model.add(goal == best[-1])
    return best


def squares(model: cp_model.CpModel, loads: dict[int, Any], _: object) -> Any:  # noqa: ANN401 - CP-SAT's expressions
    """Return the sum of squares of the loads."""
    terms = []
    for load in loads.values():
        square = model.new_int_var(0, 10_000, "")
        model.add_multiplication_equality(square, [load, load])
        terms.append(square)
    return sum(terms)


def spread(model: cp_model.CpModel, loads: dict[int, Any], _: object) -> Any:  # noqa: ANN401 - CP-SAT's expressions
    """Return the largest load minus the smallest."""
    most, least = model.new_int_var(0, 1000, "most"), model.new_int_var(0, 1000, "least")
    for load in loads.values():
        model.add(most >= load)
        model.add(least <= load)
    return most - least


def cost(_: cp_model.CpModel, __: dict[int, Any], total: object) -> Any:  # noqa: ANN401 - CP-SAT's expressions
    return total


def recipients(case: Case) -> list[int]:
    return sorted(_flagged(case, "target") - _flagged(case, "emptied"))


def loads(case: Case, lists: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[int]:
    """Return the load of each target broker."""
    return [int((lists == broker).sum()) for broker in recipients(case)]


def uneven(counts: list[int]) -> int:
    return sum(count * count for count in counts)
