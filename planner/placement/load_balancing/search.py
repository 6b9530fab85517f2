"""The search for a balance of load with few copied bytes: elections, copies, exchanges, then returns.

The load furthest outside its band comes first. Each change is the one that gains most for its bytes; an election costs
none. If no single change helps, two replicas are exchanged. At the end every copy and every election that is no longer
needed is taken back. Steps bound the search, never time, and ties go to the first row, slot and broker, so the same
input gives the same plan. Corresponds to Cruise Control's `ResourceDistributionGoal`, with all resources at once and
bytes as the cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from planner.placement.forced_moves import allowed_brokers
from planner.placement.load_balancing.integer_program import choose_changes, choose_lists
from planner.placement.load_balancing.load_model import TOLERANCE
from planner.placement.load_balancing.load_state import EXCESS_WEIGHT, Changes, LoadState, joined
from planner.placement.replica_arrays import arrivals
from planner.placement.types import NO_BROKER, Bools, Floats, Ints

PARTNERS: Final = 24
"""Brokers considered at a time for the other side of a change, those with the most room first."""

SHORTLIST: Final = 384
"""Replicas whose copies to or from all partners are computed before those of all others."""

BATCH: Final = 32
"""Changes applied before all candidates are computed again."""

BATCH_SHARE: Final = 0.7
"""Share of the best gain per byte that each further change of a batch must still have."""

LEAST_GAIN: Final = 1e-3
"""Share of the squared distance of a load that a change must gain."""

EXCHANGE_GAIN: Final = 0.1
"""The same share for an exchange, which copies two replicas."""

EXCHANGED: Final = 48
"""Replicas on each side that exchanges are made of."""

FREE: Final = 1e-6
"""Cost in bytes of a change that copies nothing."""

DIGITS: Final = 9
"""Decimals in which sums of distances are compared."""

SETTLED: Final = 4
"""Brokers outside their bands, the furthest first, each of which is an integer program."""

SETTLED_COPIES: Final = 256
"""Replicas of all sizes, of such a broker and of others, whose copies the program may choose."""

REFINED: Final = 10_000_000
"""Candidates compared in attempts to do without copies, after which no further attempt begins."""

CHECKED_FIRST: Final = 512
"""Best candidates whose rules are checked before all others."""


class OutsideLoad(NamedTuple):
    """A load outside its band, of which the broker has too much if it `gives`, else too little."""

    broker: int
    resource: int
    gives: bool


def place_forced(state: LoadState, rows: Ints) -> None:
    """Place the new replicas of some rows again, the largest first, where they add the least distance."""
    model = state.model
    slot, place = np.nonzero(arrivals(model.before[:, rows], model.after[:, rows]))
    order = np.argsort(-state.loads.size[rows[place]], kind="stable")
    slot, row = slot[order], rows[place[order]]
    model.after[slot, row] = NO_BROKER
    state.measure()
    shifts = state.shifts_of(row, slot)
    for n, shift in enumerate(shifts):
        brokers = np.flatnonzero(allowed_brokers(model, row[n : n + 1])[:, 0])
        gain = state.gains_of_one_side(brokers, np.broadcast_to(shift, (len(brokers), len(shift))), 1, is_forced=True)
        broker = brokers[np.lexsort((state.level[brokers].max(axis=1), gain))[0]]
        model.after[slot[n], row[n]] = broker
        state.level[broker] += shift * state.inverse[broker]
    state.require()


def elect_from(state: LoadState, brokers: Bools) -> None:
    """Elect replicas on other brokers than these, the best for the loads, as far as no limit is broken."""
    away = np.append(brokers, False)
    led = np.flatnonzero(state.may_elect & away[state.model.after[0]])
    for start in range(0, len(led), BATCH):
        rows = led[start : start + BATCH]
        followers = state.model.after[1:, rows]
        slot, place = np.nonzero((followers != NO_BROKER) & ~away[followers])
        changes = state.elections_of(rows[place], slot + 1)
        order = np.argsort(np.where(state.legal(changes), state.gains(changes), np.inf), kind="stable")
        best_of_row = order[np.unique(changes.row[order], return_index=True)[1]]
        for one in (changes.at(np.array([place])) for place in best_of_row.tolist()):
            if state.legal(one)[0] and (not state.limited.any() or state.gains(one)[0] < np.inf):
                state.apply(one)


def balance(state: LoadState, *, copy: bool) -> None:
    """Bring loads into their bands, the furthest outside first; without `copy`, by elections alone.

    A load that no change improves is tried again after others have changed, and then by exchanges.
    """
    stuck = np.zeros(state.level.shape, dtype=bool)
    improved = exchange = False
    while state.steps > 0:
        distance = np.where(stuck, 0, state.distance())
        urgency = distance + EXCESS_WEIGHT * np.where(stuck, 0, state.excess())
        broker, resource = (int(place) for place in np.unravel_index(urgency.argmax(), urgency.shape))
        if distance[broker, resource] > TOLERANCE:
            done = _improve(state, broker, resource, copy=copy, exchange=exchange)
            improved |= done
            stuck[broker, resource] = not done
        elif improved and stuck.any():
            stuck[:] = improved = exchange = False
        elif stuck.any() and not exchange:
            stuck[:], exchange = False, True
        else:
            return


def take_back(state: LoadState) -> None:
    """Take back the copies and elections that no band needs, the largest copies first."""
    for candidates in (state.returns, state.former_leaders):
        while True:
            changes = candidates()
            useless = np.flatnonzero((state.gains(changes) <= 0) & state.legal(changes))
            largest = useless[np.argsort(-state.loads.size[changes.row[useless]], kind="stable")]
            count = 0
            for place in largest:
                one = changes.at(np.array([place]))
                if state.legal(one)[0] and state.gains(one)[0] <= 0:
                    state.apply(one)
                    count += 1
            if not count:
                break


def _improve(state: LoadState, broker: int, resource: int, *, copy: bool, exchange: bool) -> bool:
    """Apply the best changes for one load; return whether there was one."""
    distance = state.distance()[broker, resource]
    gives = bool(state.level[broker, resource] > state.bands.high[broker, resource])
    least = LEAST_GAIN * distance * distance
    candidates = _candidates(state, broker, resource, gives=gives, copy=copy)
    if any(_apply_best(state, changes, least) for changes in candidates):
        return True
    if not exchange:
        return False
    pairs = _pairs(state, OutsideLoad(broker, resource, gives), copy=copy)
    return any(_exchange(state, given, taken, EXCHANGE_GAIN * distance * distance) for given, taken in pairs)


def _candidates(state: LoadState, broker: int, resource: int, *, gives: bool, copy: bool) -> Iterator[Changes]:
    if state.elected[resource]:
        yield _elections(state, broker, gives=gives)
    if not copy:
        return
    partners = _partners(state, broker, resource, gives=gives)
    row, slot = state.replicas_on([broker] if gives else partners)
    few = _shortlist(state, broker, row, slot, gives=gives)
    for rows, slots in ((row[few], slot[few]), (row, slot)):
        yield _copies(state, rows, slots, partners if gives else [broker])


def _partners(state: LoadState, broker: int, resource: int, *, gives: bool) -> list[int]:
    """Return the brokers with the most room for what `broker` has too much of, or the most of what it lacks."""
    others = np.flatnonzero(state.model.target)
    level = state.level[others, resource]
    order = np.argsort(level if gives else -level, kind="stable")
    return [other for other in others[order].tolist() if other != broker][:PARTNERS]


def _elections(state: LoadState, broker: int, *, gives: bool) -> Changes:
    """Return the elections of other replicas than the broker's, or of the broker's."""
    after, columns = state.model.after, state.rows_of[broker]
    columns = columns[state.may_elect[columns] & ((after[0, columns] == broker) | (not gives))]
    followers = after[1:, columns]
    slot, place = np.nonzero((followers != NO_BROKER) if gives else (followers == broker))
    is_target = state.model.target[followers[slot, place]]
    return state.elections_of(columns[place[is_target]], slot[is_target] + 1)


def _shortlist(state: LoadState, broker: int, row: Ints, slot: Ints, *, gives: bool) -> Ints:
    """Return the places of the replicas that serve `broker` best for their bytes, whatever the other side."""
    shift = state.shifts_of(row, slot)
    gain = state.gains_of_one_side(np.full(len(row), broker), shift, -1 if gives else 1)
    score = gain / (state.loads.size[row] + state.price + FREE)
    places = np.flatnonzero(score < 0)
    return np.sort(places[np.argsort(score[places], kind="stable")[:SHORTLIST]])


def _copies(state: LoadState, row: Ints, slot: Ints, targets: Sequence[int]) -> Changes:
    """Return the copies of each replica to each target."""
    target = np.tile(np.array(targets, dtype=np.int64), len(row))
    return state.copies_of(np.repeat(row, len(targets)), np.repeat(slot, len(targets)), target)


def _apply_best(state: LoadState, changes: Changes, least: float) -> bool:
    """Apply the best candidate, and further ones that are nearly as good after it; return whether there was one."""
    costs = state.costs(changes)
    gains = state.gains(changes)
    score = gains / np.maximum(costs, FREE)
    best = None
    count = 0
    for place in _legal_in_order(state, (changes,), np.flatnonzero(gains < -least), score):
        one = changes.at(np.array([place]))
        cost = state.costs(one)
        if not state.affordable(one, cost)[0]:
            continue
        if best is None:
            best = score[place]
        elif not state.legal(one)[0] or state.gains(one)[0] / max(cost[0], FREE) > BATCH_SHARE * best:
            break
        state.apply(one)
        count += 1
        if count == BATCH or state.steps <= 0:
            break
    return count > 0


def _legal_in_order(state: LoadState, sides: Sequence[Changes], places: Ints, score: Floats) -> Iterator[int]:
    """Yield the places of legal candidates, the best score first; each side of a candidate must be legal."""
    order = places[np.argsort(score[places], kind="stable")]
    for start in range(0, len(order), CHECKED_FIRST):
        some = order[start : start + CHECKED_FIRST]
        for changes in sides:
            some = some[state.legal(changes.at(some))]
        yield from some.tolist()


def _pairs(state: LoadState, load: OutsideLoad, *, copy: bool) -> Iterator[tuple[Changes, Changes]]:
    """Yield pairs of changes, the nth of one with the nth of the other: a load of a broker for one of a partner.

    Pairs of elections come before pairs of copies.
    """
    broker, resource, gives = load
    partners = _partners(state, broker, resource, gives=gives)
    elections, copies = [], []
    for partner in partners:
        own = _led(state, (broker, partner), resource, dense=gives)
        other = _led(state, (partner, broker), resource, dense=not gives)
        first, second = _all_pairs(own.row, other.row)
        elections.append((own.at(first), other.at(second)))
    if partners:
        yield joined([given for given, _ in elections]), joined([taken for _, taken in elections])
    own_row, own_slot = _exchangeable(state, broker, resource, dense=gives)
    for partner in partners if copy else ():
        row, slot = _exchangeable(state, partner, resource, dense=not gives)
        first, second = _all_pairs(own_row, row)
        given = state.copies_of(own_row[first], own_slot[first], np.full(len(first), partner))
        copies.append((given, state.copies_of(row[second], slot[second], np.full(len(second), broker))))
    if copies:
        yield joined([given for given, _ in copies]), joined([taken for _, taken in copies])


def _all_pairs(own: Ints, others: Ints) -> tuple[Ints, Ints]:
    """Return the places of both sides of all pairs."""
    first, second = np.indices((len(own), len(others)))
    return first.ravel(), second.ravel()


def _exchange(state: LoadState, given: Changes, taken: Changes, least: float) -> bool:
    """Apply the best pair of changes; return whether there was one."""
    gains = state.gains(replace(given, shift=given.shift - taken.shift))
    costs = state.costs(given) + state.costs(taken)
    fits = state.affordable(given, costs, 2) & state.affordable(taken, costs, 2)
    places = np.flatnonzero(fits & (gains < -least) & (given.row != taken.row))
    for place in _legal_in_order(state, (given, taken), places, gains / np.maximum(costs, FREE)):
        for changes in (given, taken):
            state.apply(changes.at(np.array([place])))
        return True
    return False


def _exchangeable(state: LoadState, broker: int, resource: int, *, dense: bool) -> tuple[Ints, Ints]:
    """Return rows and slots of some replicas of a broker.

    Half of them are evenly chosen among the lighter ones, half have the most, or the least, of a resource for their
    size.
    """
    row, slot = state.replicas_on([broker])
    size = state.loads.size[row]
    light = np.argsort(size, kind="stable")[: max(len(row) // 2, EXCHANGED)]
    load = np.where(slot == 0, state.leader[row, resource], state.follower[row, resource])
    chosen = _some(light, load / np.maximum(size, 1), dense=dense)
    return row[chosen], slot[chosen]


def _led(state: LoadState, pair: tuple[int, int], resource: int, *, dense: bool) -> Changes:
    """Return elections of the second broker instead of the first, chosen as in `_exchangeable` by their load alone."""
    (leader, follower), after = pair, state.model.after
    rows = state.rows_of[leader]
    rows = rows[state.may_elect[rows] & (after[0, rows] == leader)]
    rows = rows[(after[:, rows] == follower).any(axis=0)]
    load = state.leader[rows, resource] - state.follower[rows, resource]
    chosen = _some(np.argsort(load, kind="stable"), load, dense=dense)
    return state.elections_of(rows[chosen], (after[:, rows[chosen]] == follower).argmax(axis=0))


def _some(evenly: Ints, density: Floats, *, dense: bool) -> Ints:
    """Return some places, ascending: half evenly from those given, half with the most or least density."""
    by_density = np.argsort(-density if dense else density, kind="stable")[: EXCHANGED // 2]
    return np.union1d(_evenly(evenly, EXCHANGED // 2), by_density)


def _evenly(places: Ints, count: int) -> Ints:
    return places[np.unique(np.linspace(0, len(places) - 1, count).astype(int))] if len(places) else places


def improve(state: LoadState, attempts: int) -> None:
    """Search for a better plan: by integer programs, and without some of the copies."""
    front = [*state.front]
    solve(state, attempts)
    _refine(state, attempts)
    state.front = [step for step in front if step.bytes < state.bytes]
    state.record()


def solve(state: LoadState, attempts: int) -> None:
    """Search for a better plan by integer programs."""
    best, after = _rank(state), state.model.after.copy()
    if choose_lists(state, attempts) or _settle(state):
        balance(state, copy=True)
        take_back(state)
        if _rank(state) >= best:
            state.model.after[:] = after
            state.measure()


def _settle(state: LoadState) -> bool:
    """Bring brokers into their bands by several changes at once; return whether there was one."""
    distance = state.distance().max(axis=1)
    furthest = np.argsort(-distance, kind="stable")[:SETTLED]
    is_settled = [_settle_broker(state, broker) for broker in furthest[distance[furthest] > TOLERANCE].tolist()]
    return any(is_settled)


def _settle_broker(state: LoadState, broker: int) -> bool:
    resource = int(state.distance()[broker].argmax())
    candidates = []
    for gives in (True, False):
        partners = _partners(state, broker, resource, gives=gives)
        row, slot = state.replicas_on([broker] if gives else partners)
        few = _evenly(np.argsort(state.loads.size[row], kind="stable"), SETTLED_COPIES)
        candidates += [
            _elections(state, broker, gives=gives),
            _copies(state, row[few], slot[few], partners if gives else [broker, *partners]),  # to make room there
        ]
    return choose_changes(state, broker, candidates)


def _refine(state: LoadState, attempts: int) -> None:
    """Try `attempts` times to do without some of the copies, and keep each result that is better.

    A result is better if its loads are closer to their bands, or as close with fewer bytes. Each attempt takes back one
    to three copies, does not allow these partitions to be copied, and balances again.
    """
    chance = np.random.default_rng(0)
    allowed = state.may_copy
    best, after = _rank(state), state.model.after.copy()
    order: list[int] = []
    enough = state.compared + REFINED
    for _ in range(attempts):
        changes = state.returns()
        rows = np.unique(changes.row)
        if not len(rows) or state.steps <= 0 or state.compared >= enough:
            break
        order = order or rows[np.argsort(state.loads.size[rows], kind="stable")].tolist()
        banned = {order.pop(), *chance.choice(rows, size=int(chance.integers(0, 3))).tolist()}
        state.may_copy = allowed.copy()
        for row in banned:
            state.model.after[:, row] = state.required[:, row]
        state.may_copy[list(banned)] = False
        state.measure()
        balance(state, copy=True)
        state.may_copy = allowed
        take_back(state)
        rank = _rank(state)
        if rank < best:
            best, after, order = rank, state.model.after.copy(), []
        else:
            state.model.after[:] = after
            state.measure()


def _rank(state: LoadState) -> tuple[float, float, float, float]:
    """Return a rank that is lower the better a state is: limits first, then distances, then bytes."""
    distance, excess = np.maximum(state.distance(), 0), state.excess()
    return (
        round(float(state.worsened().sum()), DIGITS),
        round(float(excess.sum()), DIGITS),
        round(float((distance * distance).sum()), DIGITS),
        state.bytes + state.price * state.copies,
    )
