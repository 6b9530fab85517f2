"""What a plan of the optimiser comes to, in numbers: kept with its parameters, shown to people and programs.

In: a Placement, and which of its brokers may hold replicas; or a stored plan. Out: the figures, or lines of them.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from jobs.adapters.delta.lake import Row
from jobs.records.byte_figures import byte_lines
from planner.placement.problem import Bools, Ints, Placement
from planner.placement.waves import Waves

Figures = dict[str, Any]

WAVES_SHOWN: Final = 20


def figures_of(placement: Placement, allowed: set[int]) -> Figures:
    """Return moves, how few they could be, how uneven brokers and racks are, before and after, and why they stay so.

    Where no broker is allowed, as for a file while all are drained, all of them count.
    """
    brokers = placement.brokers
    counted = np.array([not allowed or int(name) in allowed for name in brokers.names], dtype=bool)
    racks = zip(placement.racks.names, *(count.tolist() for count in placement.racks.replicas), strict=True)
    return {
        "lower_bound": placement.lower_bound,
        "bound": placement.bound,
        "left": placement.left,
        "uneven": placement.uneven,
        "replicas_per_broker": _spans(brokers.replicas, counted),
        "leaders_per_broker": _spans(brokers.leaders, counted),
        "leaders_given_up": _given_up(placement, counted),
        "replicas_per_rack": {rack: [was, becomes] for rack, was, becomes in racks if rack},
        "racks_given_up": list(placement.given_up),
        "fewer_racks": placement.fewer_racks,
    }


def wave_figures(planned: Waves, fewest: int) -> Figures:
    """Return how many waves there are, how many there must be at least, and what each moves."""
    return {
        "count": planned.count,
        "fewest": fewest,
        "moves": planned.moves,
        "most_in": planned.most_in,
        "most_out": planned.most_out,
    }


def _spans(counts: tuple[Ints, ...], counted: Bools) -> list[list[int]]:
    return [[int(count[counted].min()), int(count[counted].max())] for count in counts]


def _given_up(placement: Placement, counted: Bools) -> Figures | None:
    """Return how even leaders would be, had all partitions been reordered, and how many more that takes."""
    (reached,) = _spans((placement.leaders_reordered,), counted)
    (kept,) = _spans((placement.brokers.leaders[1],), counted)
    return {"leaders_per_broker": reached, "reorders": placement.reorders} if reached != kept else None


def figures_in(plan: Row) -> Figures:
    """Return a stored plan's figures; those that nobody optimised have none."""
    figures: Figures = json.loads(plan["parameters"] or "{}").get("figures", {})
    return figures


def figure_lines(plan: Row) -> Iterator[str]:
    """Write a plan's figures as people read them.

    >>> figures = {"lower_bound": 3, "bound": "3 replicas have to be copied", "left": 0, "held": 0,
    ...     "replicas_per_broker": [[0, 4], [1, 3]], "leaders_per_broker": [[0, 1], [0, 1]],
    ...     "uneven": "--max-moves 3 allows no more copies that would help",
    ...     "leaders_given_up": {"leaders_per_broker": [1, 1], "reorders": 7},
    ...     "replicas_per_rack": {"a": [3, 9], "b": [6, 0]}, "racks_given_up": ["b"], "fewer_racks": 4}
    >>> for line in figure_lines({"moves": 3, "parameters": json.dumps({"figures": figures})}):
    ...     print(line)
    moves 3 (lower bound 3: 3 replicas have to be copied)
    replicas per broker 0..4 → 1..3
    leaders per broker 0..1 → 0..1
    with --reorder-leaders 1..1: 7 more partitions would change their order
    replicas per rack a 3 → 9, b 6 → 0
    racks given up b: 4 partitions are in fewer racks than now
    replicas stay uneven: --max-moves 3 allows no more copies that would help
    """
    figures = figures_in(plan)
    if not figures:
        return
    yield f"moves {plan['moves']} (lower bound {figures['lower_bound']}: {figures['bound']})"
    for name in ("replicas_per_broker", "leaders_per_broker"):
        before, after = (f"{low}..{high}" for low, high in figures[name])
        yield f"{name.replace('_', ' ')} {before} → {after}"
    if given_up := figures.get("leaders_given_up"):
        low, high = given_up["leaders_per_broker"]
        yield f"with --reorder-leaders {low}..{high}: {given_up['reorders']} more partitions would change their order"
    if figures["replicas_per_rack"]:
        racks = (f"{rack} {was} → {becomes}" for rack, (was, becomes) in figures["replicas_per_rack"].items())
        yield f"replicas per rack {', '.join(racks)}"
    if given_up := figures.get("racks_given_up"):
        yield f"racks given up {', '.join(given_up)}: {figures['fewer_racks']} partitions are in fewer racks than now"
    if figures.get("uneven"):
        yield f"replicas stay uneven: {figures['uneven']}"
    yield from byte_lines(figures)
    if "waves" in figures:
        yield from _wave_lines(figures["waves"])
    if figures["left"]:
        yield f"{figures['left']} moves left undone by --max-moves; plan again after this"
    if figures["held"]:
        yield f"{figures['held']} partitions left alone: a dead broker holds a replica; name it in --remove-brokers"


def _wave_lines(waves: Figures) -> Iterator[str]:
    """Write what each wave moves.

    >>> figures = {"count": 2, "fewest": 2, "moves": [4, 1], "most_in": [2, 1], "most_out": [1, 1]}
    >>> list(_wave_lines(figures))
    ['waves 2 (at least 2)', 'replicas copied by wave 4, 1', 'most into a broker 2, 1', 'most out of one 1, 1']
    """
    yield f"waves {waves['count']} (at least {waves['fewest']})"
    named = {"moves": "replicas copied by wave", "most_in": "most into a broker", "most_out": "most out of one"}
    for name, said in named.items():
        more = ", ..." if waves["count"] > WAVES_SHOWN else ""
        yield f"{said} {', '.join(map(str, waves[name][:WAVES_SHOWN]))}{more}"
