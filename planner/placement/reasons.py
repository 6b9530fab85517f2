"""The reason of each changed partition: the rule its moves serve, and its brokers' loads before and after the plan.

In: a finished PlacementModel, its moves and load summaries. Out: one text per changed row.
"""

import numpy as np

from planner.placement.model import PlacementModel
from planner.placement.problem import NO_BROKER, Ints, LoadSummary, Moves, PlacementGoal
from planner.placement.racks import crowding, spanned

Pair = tuple[int, int]


def reasons(
    model: PlacementModel, goal: PlacementGoal, changed: Ints, moves: Moves, tally: LoadSummary
) -> tuple[str, ...]:
    """Return one text per row of `changed`: `empties broker 7: 7 → 9; holds 7: 30 → 0, 9: 20 → 25; ...`."""
    firsts = np.searchsorted(moves.row, changed)
    lasts = np.searchsorted(moves.row, changed, side="right")
    racks = [model.racks[lists[:, changed]] for lists in (model.before, model.after)]
    spans, most = ([measure(some).tolist() for some in racks] for measure in (spanned, crowding))
    factors = [(lists[:, changed] != NO_BROKER).sum(axis=0).tolist() for lists in (model.before, model.after)]
    leaders = [lists[0, changed].tolist() for lists in (model.before, model.after)]
    holds, preferred = _count_texts(tally, tally.replicas), _count_texts(tally, tally.leaders)
    pairs = list(zip(moves.source.tolist(), moves.target.tolist(), strict=True))
    rule = _Rules(model, goal)
    texts = []
    for n, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        parts = []
        if first < last:
            row_pairs = pairs[first:last]
            span, crowd = (spans[0][n], spans[1][n]), (most[0][n], most[1][n])
            parts.append(rule.of(row_pairs, span, crowd, (factors[0][n], factors[1][n])))
            parts.append(
                "holds " + ", ".join(holds[b] for b in sorted({b for pair in row_pairs for b in pair} - {NO_BROKER}))
            )
        was, becomes = leaders[0][n], leaders[1][n]
        if was != becomes:
            why = "" if was in {source for source, _ in pairs[first:last]} else f"{rule.of_leaders}: "
            counts = ", ".join(preferred[broker] for broker in sorted((was, becomes)))
            parts.append(f"{why}preferred leader {tally.names[was]} → {tally.names[becomes]}; preferred {counts}")
        texts.append("; ".join(parts) or "order of replicas changes")
    return tuple(texts)


def _count_texts(tally: LoadSummary, counts: tuple[Ints, Ints]) -> list[str]:
    """Format each broker's count before and after, once for all rows."""
    before, after = (count.tolist() for count in counts)
    return [f"{name}: {was} → {becomes}" for name, was, becomes in zip(tally.names, before, after, strict=True)]


class _Rules:
    """Names the rule that a row's moves serve."""

    def __init__(self, model: PlacementModel, goal: PlacementGoal) -> None:
        self.names = [str(broker) for broker in model.ids.tolist()] + ["none"]
        self.emptied = [*model.emptied.tolist(), False]
        self.replaced = set(goal.replacements)
        self.of_replicas, self.of_leaders = (
            ("as given", "as given") if goal.given else ("evens out replicas", "evens out leaders")
        )

    def of(self, pairs: list[Pair], spans: Pair, most: Pair, factors: Pair) -> str:
        rules = [] if factors[0] == factors[1] else [f"replication factor {factors[0]} → {factors[1]}"]
        rules += [self._leaving(pair) for pair in pairs if self.emptied[pair[0]]]
        if spans[0] < spans[1]:
            rules.append(f"racks {spans[0]} → {spans[1]}")
        elif most[1] < most[0] and factors[1] >= factors[0]:
            rules.append(f"most in one rack {most[0]} → {most[1]}")
        if not rules:
            rules.append(self.of_replicas)
        moved = ", ".join(f"{self.names[source]} → {self.names[target]}" for source, target in pairs)
        return f"{', '.join(rules)}: {moved}"

    def _leaving(self, pair: tuple[int, int]) -> str:
        source, target = (int(self.names[broker]) if broker != NO_BROKER else NO_BROKER for broker in pair)
        return f"replaces {source} by {target}" if (source, target) in self.replaced else f"empties {source}"
