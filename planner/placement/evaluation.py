"""The result of a placement: moves, a lower bound on copies, and the load of each broker and rack before and after.

The lower bound is the number of copies that single partitions require, or, if brokers must be even, the number without
which brokers cannot become as even. If brokers become fully even, that is what those below their even share lack, else
what `fewest_copies` finds for the evenness reached. In: a finished PlacementModel. Each changed
partition has a reason: the rule its moves serve. Out: a Placement.
"""

from dataclasses import dataclass

import numpy as np

from planner.placement.balancing.augmenting_paths import fill_lowest
from planner.placement.model import PlacementModel, copies
from planner.placement.racks import NO_RACK, lowest_crowding, max_per_rack, racks_spanned
from planner.placement.replica_arrays import arrivals, count_bytes, count_leaders, count_replicas
from planner.placement.types import (
    NO_BROKER,
    Bools,
    Ints,
    LoadBalance,
    LoadSummary,
    Moves,
    Placement,
    PlacementGoal,
    PlacementPartitions,
)
from schemas import reasons
from schemas.text import pluralise


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Facts of the search that the model does not hold: required copies, those left undone, and why brokers are uneven.

    `reordered` is the result of `even_leaders`.
    """

    forced: int
    reordered: tuple[int, Ints]
    undone: int = 0
    uneven: str = ""
    loads: LoadBalance | None = None


def placement_of(
    model: PlacementModel, partitions: PlacementPartitions, goal: PlacementGoal, search: SearchResult
) -> Placement:
    weights = None if partitions.weights is None else partitions.weights[model.order]
    moves = _moves(model)
    brokers = _load_summary(tuple(map(str, model.ids.tolist())), model, np.arange(model.size), weights)
    names = (*model.rack_names, "")
    racks = _load_summary(names, model, np.where(model.racks[:-1] < 0, len(names) - 1, model.racks[:-1]), weights)
    changed = np.flatnonzero((model.after != model.before).any(axis=0))
    inputs = model.order[changed]
    ascending = np.argsort(inputs)
    changed, inputs = changed[ascending], inputs[ascending]
    lower, bound = _lower_bound(model, goal, search.forced - search.undone, weighted=weights is not None)
    ids = np.append(model.ids, NO_BROKER)
    lists = np.empty((len(model.order), len(model.after)), dtype=np.int64)
    lists[model.order] = ids[model.after].T
    racks_before, racks_after = (racks_spanned(model.racks[some]) for some in (model.before, model.after))
    # of the lists as they end up: `model.factor` is the requested factor, and given lists are not requested
    factor_before, factor_after = ((some != NO_BROKER).sum(axis=0) for some in (model.before, model.after))
    return Placement(
        replicas=lists,
        changed=inputs,
        reasons=_reasons(model, goal, changed, moves, weights if partitions.loads else None),
        moves=Moves(row=model.order[moves.row], source=ids[moves.source], target=ids[moves.target]),
        copies=copies(model),
        lower_bound=lower,
        bound=bound,
        uneven=search.uneven,
        held=np.sort(model.order[model.held]),
        left=search.undone,
        brokers=brokers,
        racks=racks,
        given_up=tuple(name for name, gone in zip(model.rack_names, model.given_up.tolist(), strict=True) if gone),
        most_in_one_rack=(
            _by_input(model, max_per_rack(model.racks[model.before])),
            _by_input(model, max_per_rack(model.racks[model.after])),
        ),
        least_in_one_rack=(
            _by_input(model, _least_in_one(model, factor_before)),
            _by_input(model, _least_in_one(model, factor_after)),
        ),
        even_in_one_rack=_by_input(model, _even_in_one(model, factor_after)),
        fewer_racks=int((racks_after < np.minimum(racks_before, factor_after)).sum()),
        reorders=search.reordered[0],
        leaders_reordered=search.reordered[1],
        loads=search.loads,
    )


def _by_input(model: PlacementModel, measure: Ints) -> Ints:
    """Put values by row into the order of the input."""
    of_input = np.empty_like(measure)
    of_input[model.order] = measure
    return of_input


def _least_in_one(model: PlacementModel, factor: Ints) -> Ints:
    """Return the lowest `max_per_rack` that `factor` replicas of each row allow on the brokers that may hold any."""
    factors = np.arange(len(model.after) + 1)
    racks = model.racks[:-1][model.target]
    sizes = np.bincount(racks[racks != NO_RACK], minlength=len(model.rack_names))
    room = np.repeat(sizes[:, None], len(factors), axis=1)
    of_factor = lowest_crowding(np.zeros_like(room), room, np.full(len(factors), (racks == NO_RACK).sum()), factors)
    return of_factor[factor]


def _even_in_one(model: PlacementModel, factor: Ints) -> Ints:
    """Return the lowest `max_per_rack` of each row if each rack with such brokers had enough of them."""
    racks = model.racks[:-1][model.target]
    even: Ints = -(-factor // max(len(np.unique(racks[racks != NO_RACK])), 1))
    return even


def _moves(model: PlacementModel) -> Moves:
    """Pair the nth replica that is given up with the nth new one, in order."""
    before, after = model.before, model.after
    new, gone = arrivals(before, after), arrivals(after, before)
    pairs = np.maximum(new.sum(axis=0), gone.sum(axis=0))
    rows = np.repeat(np.arange(len(pairs)), pairs)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    return Moves(row=rows, source=_nth(before, gone, rows, nth), target=_nth(after, new, rows, nth))


def _nth(replicas: Ints, marked: Bools, rows: Ints, nth: Ints) -> Ints:
    """Return the nth marked replica of each row, NO_BROKER if there are fewer."""
    first = np.take_along_axis(
        np.where(marked, replicas, NO_BROKER)[:, rows],
        np.argsort(~marked[:, rows], axis=0, kind="stable"),
        axis=0,
    )
    brokers: Ints = first[nth, np.arange(len(rows))]
    return brokers


def _load_summary(names: tuple[str, ...], model: PlacementModel, group: Ints, weights: Ints | None) -> LoadSummary:
    def group_moves(count: Ints) -> Ints:
        total = np.zeros(len(names), dtype=np.int64)
        np.add.at(total, group, count)
        return total

    before, after = model.before, model.after
    leads = [count_leaders(lists, model.size) for lists in (before, after)]
    holds = [count_replicas(lists, model.size) for lists in (before, after)]
    sizes = None if weights is None else [count_bytes(lists, weights, model.size) for lists in (before, after)]
    return LoadSummary(
        names=names,
        replicas=(group_moves(holds[0]), group_moves(holds[1])),
        leaders=(group_moves(leads[0]), group_moves(leads[1])),
        bytes=None if sizes is None else (group_moves(sizes[0]), group_moves(sizes[1])),
    )


def _lower_bound(model: PlacementModel, goal: PlacementGoal, forced: int, *, weighted: bool) -> tuple[int, str]:
    must = (reasons.REQUIRED_COPIES if forced else reasons.LEAST_COPIES).render(replicas=pluralise(forced, "replica"))
    if not goal.even or weighted or not model.target.any():
        return forced, must
    before, after = (count_replicas(lists, model.size)[model.target] for lists in (model.before, model.after))
    fewest = fewest_copies(before, after, model.may_receive[model.target])
    if goal.max_moves is None and not goal.onto:
        fewest = max(fewest, fewest_in_any_order(before, after))
    if forced >= fewest:
        return forced, must
    short, share = missing_replicas(model)
    if fewest == short:
        return fewest, reasons.SHARE_LACKING.render(share=share, count=short)
    return fewest, reasons.AS_EVEN.render(least=after.min(), most=after.max(), brokers=len(after))


def missing_replicas(model: PlacementModel) -> tuple[int, str]:
    """Return how many copies the brokers that may get any lack of an even share, and a text that describes the share.

    If replicas do not divide evenly, the remainder is assigned to the fullest brokers, so no plan needs fewer copies.
    """
    had = count_replicas(model.before, model.size)[model.target]
    total = int(count_replicas(model.after, model.size)[model.target].sum())
    share, over = divmod(total, max(len(had), 1))
    even = np.full(len(had), share)
    even[np.argsort(-had, kind="stable")[:over]] += 1
    fresh = model.may_receive[model.target]
    lack = int(np.maximum(even - had, 0)[fresh].sum())
    return lack, reasons.EVEN_SHARE.render(
        brokers=pluralise(len(had), "broker", "shares", "share"),
        replicas=pluralise(total, "replica"),
        share=share,
        over=over,
        recipients=(reasons.HAVE_FEWER if fresh.all() else reasons.MAY_RECEIVE).render(),
    )


Pair = tuple[int, int]


def _reasons(
    model: PlacementModel, goal: PlacementGoal, changed: Ints, moves: Moves, sizes: Ints | None
) -> tuple[str, ...]:
    """Return one text per row of `changed`: `empties 7: 7 → 9; preferred leader 7 → 9`.

    `sizes` are the bytes of a replica by row, if loads are balanced.
    """
    firsts = np.searchsorted(moves.row, changed)
    lasts = np.searchsorted(moves.row, changed, side="right")
    racks = [model.racks[lists[:, changed]] for lists in (model.before, model.after)]
    spans, most = ([measure(some).tolist() for some in racks] for measure in (racks_spanned, max_per_rack))
    factors = [(lists[:, changed] != NO_BROKER).sum(axis=0).tolist() for lists in (model.before, model.after)]
    leaders = [lists[0, changed].tolist() for lists in (model.before, model.after)]
    pairs = list(zip(moves.source.tolist(), moves.target.tolist(), strict=True))
    rule = _Rules(model, goal, are_loads=sizes is not None)
    texts = []
    for n, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        parts = []
        if first < last:
            row_pairs = pairs[first:last]
            span, crowd = (spans[0][n], spans[1][n]), (most[0][n], most[1][n])
            rules = rule.of(row_pairs, span, crowd, (factors[0][n], factors[1][n]))
            if sizes is not None:
                copies = sum(target != NO_BROKER for _, target in row_pairs)
                rules = reasons.WITH_BYTES.render(rules=rules, bytes=f"{int(sizes[changed[n]]) * copies:,}")
            placed = reasons.PLACED.render(
                rules=rules,
                moves=", ".join(f"{rule.names[source]} → {rule.names[target]}" for source, target in row_pairs),
            )
            parts.append(placed)
        old, new = leaders[0][n], leaders[1][n]
        if old != new:
            elected = reasons.PREFERRED_CHANGES.render(before=rule.names[old], after=rule.names[new])
            is_replaced = old in {source for source, _ in pairs[first:last]}
            parts.append(elected if is_replaced else reasons.WITH_STATE.render(reason=rule.of_leaders, state=elected))
        texts.append("; ".join(parts) or reasons.ORDER_CHANGES.render())
    return tuple(texts)


class _Rules:
    """Names the rule that a row's moves serve."""

    def __init__(self, model: PlacementModel, goal: PlacementGoal, *, are_loads: bool) -> None:
        self.names = [str(broker) for broker in model.ids.tolist()] + ["none"]
        self.emptied = [*model.emptied.tolist(), False]
        self.replaced = set(goal.replacements)
        if are_loads:
            self.of_replicas = reasons.EVENS_OUT_LOADS.render()
            self.of_leaders = reasons.WITH_BYTES.render(rules=self.of_replicas, bytes="0")
        else:
            self.of_replicas = (reasons.AS_GIVEN if goal.given else reasons.EVENS_OUT_REPLICAS).render()
            self.of_leaders = (reasons.AS_GIVEN if goal.given else reasons.EVENS_OUT_PREFERRED).render()

    def of(self, pairs: list[Pair], spans: Pair, most: Pair, factors: Pair) -> str:
        rules = [] if factors[0] == factors[1] else [reasons.FACTOR.render(before=factors[0], after=factors[1])]
        rules += [self._leaving(pair) for pair in pairs if self.emptied[pair[0]]]
        if spans[0] < spans[1]:
            rules.append(reasons.MORE_RACKS.render(before=spans[0], after=spans[1]))
        elif most[1] < most[0] and factors[1] >= factors[0]:
            rules.append(reasons.LESS_CROWDED.render(before=most[0], after=most[1]))
        if not rules:
            rules.append(self.of_replicas)
        return ", ".join(rules)

    def _leaving(self, pair: tuple[int, int]) -> str:
        source, target = (int(self.names[broker]) if broker != NO_BROKER else NO_BROKER for broker in pair)
        if (source, target) in self.replaced:
            return reasons.REPLACES.render(source=source, target=target)
        return reasons.EMPTIES.render(source=source)


def fewest_copies(before: Ints, after: Ints, fresh: Bools) -> int:
    """Return the fewest copies with which loads `before` become as even as `after`; only `fresh` brokers may take any.

    No racks, fixed partitions or limits are considered, so with them no equally even placement needs fewer copies. A
    copy gives one broker one replica. So brokers that become as even as the plan makes them need at least as many
    copies as the nearest equally even load is away from the current one.

    >>> everyone = np.array([True, True, True])
    >>> fewest_copies(np.array([9, 3, 0]), np.array([4, 4, 4]), everyone)
    5
    >>> fewest_copies(np.array([9, 3, 0]), np.array([7, 3, 2]), everyone), "for 6, 4, 2 is as even, and takes 3"
    (2, 'for 6, 4, 2 is as even, and takes 3')
    >>> fewest_copies(np.array([9, 3, 0]), np.array([9, 3, 0]), everyone)
    0
    >>> fewest_copies(np.array([4, 0]), np.array([4, 2]), everyone[:2])
    2
    """
    added = int(after.sum() - before.sum())
    low, high = max(added, 0), int(np.maximum(after - before, 0).sum())
    squares = _squares(after)
    while low < high:
        copies = (low + high) // 2
        low, high = (low, copies) if _reaches(before, fresh, copies, copies - added, squares) else (copies + 1, high)
    return low


def fewest_in_any_order(before: Ints, after: Ints) -> int:
    """Return the fewest copies with which loads `before` become `after` in some order: the fullest stay the fullest.

    If only the rules restrict a plan, its loads are the most even possible, and all equally even loads are permutations
    of them. The reason is that the possible loads form a base polyhedron, and these are its decreasingly minimal points
    (Frank and Murota). So this bound is tighter.

    >>> fewest_in_any_order(np.array([30, 30, 0, 0]), np.array([10, 10, 30, 10]))
    20
    """
    return int(np.maximum(np.sort(after) - np.sort(before), 0).sum())


def _reaches(before: Ints, fresh: Bools, gained: int, given: int, squares: int) -> bool:
    """Return whether the best loads with these numbers of replicas gained and given up are as even as required."""
    taken, left = before.copy(), -fill_lowest(-before, given)
    taken[fresh] = fill_lowest(before[fresh], gained)
    crossed = gained and given and taken[taken > before].max() > left[left < before].min()
    return bool(crossed) or _squares(taken + left - before) <= squares


def _squares(load: Ints) -> int:
    return int((load * load).sum())
