"""The optimiser: required changes, then balance of replicas, then of leaders, each with the fewest changes.

The order is lexicographic: racks (as many as a partition spans now, without racks given up), copies, which replicas
leave by choice, the preferred leader of a new replication factor, replicas per broker, leaders per broker, balance
within topics.

Counts are exact. The result has as few copies as the goal allows. No replica in sync is dropped before one that is
dead, drained or lagging. Replicas are then as even as these rules allow (their squares sum to the minimum, which is max
- min <= 1 if that is possible). With `even`, evenness is the goal and comes before copies, but no replica in sync is
taken from a partition with a lagging one. With `onto`, evenness is sought within the copies that the chosen brokers
lack. Leaders are exact for the replicas chosen and the partitions that may be reordered.

Within `max_moves`, required changes come first. As many partitions as possible are completed, which is exact; then
brokers are as even as these allow, and the choice among equal partitions ignores evenness. The rest of `max_moves`
improves balance. That step is not proved optimal, as one expensive path may help more than several cheap ones, but none
of 9,000 small clusters had a better result. Not exact: bytes, topics, and the choice between two drained replicas of
one partition. In: the types of `planner.placement.types`. Out: a Placement.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from planner.placement.balancing.augmenting_paths import UNLIMITED, descend
from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.balancing.leaders import even_leaders
from planner.placement.balancing.shortest_paths import reachable
from planner.placement.balancing.topic_swaps import even_topics
from planner.placement.evaluation import SearchResult, missing_replicas, placement_of
from planner.placement.forced_moves import apply
from planner.placement.load_balancing.balance import balance_loads
from planner.placement.load_balancing.load_model import ReplicaLoads
from planner.placement.model import PlacementModel, broker_indexes, copies, copies_by_row, model_of
from planner.placement.removal_order import kept_mask
from planner.placement.replica_arrays import keep_places
from planner.placement.types import (
    BYTES_ALONE,
    NO_BROKER,
    Bools,
    Ints,
    LoadBalance,
    Placement,
    PlacementBrokers,
    PlacementError,
    PlacementGoal,
    PlacementLoads,
    PlacementPartitions,
)
from schemas import reasons
from schemas.text import join_ids, pluralise

_MAX_BROKERS_NAMED: Final = 5
"""Broker ids in one message."""


def place(brokers: PlacementBrokers, partitions: PlacementPartitions, goal: PlacementGoal) -> Placement:
    """Find the placement for a goal; the same input gives the same result."""
    model = model_of(brokers, partitions, goal)
    redirected = apply(model, goal)
    if goal.replication_factor is not None and partitions.loads is None:
        model.pinned = np.where(model.after[0] == model.before[0], model.before[0], NO_BROKER)
    forced, required = copies(model), copies_by_row(model)
    undone = _undo_beyond(model, goal.max_moves)
    uneven, load_balance = "", None
    if partitions.weights is None:
        _balance(model, np.flatnonzero(redirected & model.movable), voluntary=False, budget=UNLIMITED)
        graph = None
        if goal.even and not undone:
            graph = _balance(model, np.flatnonzero(model.movable), voluntary=True, budget=_budget(model, goal))
        uneven = _imbalance_reason(model, goal, graph, copied=copies(model), undone=undone)
        even_topics(model, redirected | goal.even)
    else:
        load_balance = _balance_loads(model, brokers, partitions, goal, redirected)
        if not undone:  # each partition has as few copies as the goal allows
            least = max(load_balance.bytes_bound, int(required @ partitions.weights[model.order]))
            load_balance = replace(load_balance, bytes_bound=least)
        uneven = _band_reason(model, goal, load_balance, partitions.loads)
    if partitions.loads is None:
        keep_places(model.before, model.after)
        reordered = even_leaders(model, goal)
    else:  # the loads have decided the order
        reordered = 0, np.zeros(model.size, dtype=np.int64)
    return placement_of(
        model,
        partitions,
        goal,
        SearchResult(forced=forced, undone=undone, uneven=uneven, reordered=reordered, loads=load_balance),
    )


def _balance_loads(
    model: PlacementModel,
    brokers: PlacementBrokers,
    partitions: PlacementPartitions,
    goal: PlacementGoal,
    redirected: Bools,
) -> LoadBalance:
    """Balance the loads that are given, else the bytes of replicas."""
    size = partitions.weights[model.order] if partitions.weights is not None else np.zeros(0, dtype=np.int64)
    loads = partitions.loads
    if loads is None:
        of_bytes, unknown = size[:, None], np.full((model.size, 1), np.nan)
        loads = PlacementLoads(
            names=BYTES_ALONE,
            leader=of_bytes,
            follower=of_bytes,
            capacity=unknown,
            limit=unknown,
        )
        replica_loads = ReplicaLoads(leader=of_bytes, follower=of_bytes, size=size)
        return balance_loads(model, replica_loads, loads, goal, redirected)
    known: dict[str, Any] = {}
    for name, given in (("capacity", loads.capacity), ("limit", loads.limit), ("least", loads.least)):
        if given is not None:
            known[name] = np.full((model.size, len(loads.names)), np.nan)
            known[name][: len(brokers.ids)] = given[np.argsort(brokers.ids)]  # unknown brokers come last
    replica_loads = ReplicaLoads(
        leader=loads.leader[model.order],
        follower=loads.follower[model.order],
        size=size,
        leader_before=None if loads.leader_before is None else loads.leader_before[model.order],
    )
    return balance_loads(model, replica_loads, replace(loads, **known), goal, redirected)


def _balance(model: PlacementModel, rows: Ints, *, voluntary: bool, budget: int) -> ExchangeGraph | None:
    """Balance over these rows; return the graph after balancing."""
    if not len(rows):
        return None
    exchange = ExchangeGraph(model, rows, voluntary=voluntary)
    descend(exchange, model.target, budget)
    exchange.finish()
    return exchange


def _budget(model: PlacementModel, goal: PlacementGoal) -> int:
    """Return the copies that balancing may use: the rest of `max_moves`, and for `onto` what these brokers lack."""
    remaining = UNLIMITED if goal.max_moves is None else goal.max_moves - copies(model)
    return min(remaining, missing_replicas(model)[0]) if goal.onto else remaining


def _undo_beyond(model: PlacementModel, max_moves: int | None) -> int:
    """Undo required changes beyond `max_moves` copies; return the number of copies undone.

    A partition is completed as a whole or not at all. Those with the fewest copies come first, so that no other choice
    would complete more. Ties go to partitions with a replica on a dead broker, then by topic and partition.
    """
    if max_moves is None:
        return 0
    needed = copies_by_row(model)
    on_dead = ((model.before != NO_BROKER) & ~model.live[model.before]).any(axis=0)
    in_order = np.lexsort((~on_dead, needed))
    undone = np.zeros(len(needed), dtype=bool)
    undone[in_order] = np.cumsum(needed[in_order]) > max_moves
    model.after[:, undone] = model.before[:, undone]
    model.movable &= ~undone
    return int(needed[undone].sum())


def spread_leaders(names: tuple[Ints, Ints], leader: Ints, candidates: Ints, able: Ints) -> Ints:
    """Return the leader of each row, so that the brokers `able` to lead have numbers as even as the candidates allow.

    A row with candidates (padded with NO_BROKER) gets one of them, and any other row keeps its leader. `names` are the
    topic and the number of each partition.

    >>> candidates = np.array([[1, 2], [1, 2], [2, 1], [-1, -1]])
    >>> partitions = np.zeros(4, dtype=np.int64), np.arange(4)
    >>> spread_leaders(partitions, np.array([3, 3, 3, 1]), candidates, np.array([1, 2])).tolist()
    [2, 1, 2, 1]
    """
    moves = candidates[:, 0] != NO_BROKER
    replicas = candidates.copy()
    replicas[~moves, 0] = leader[~moves]
    everyone = np.ones(len(able), dtype=bool)
    brokers = PlacementBrokers(
        ids=able, racks=(None,) * len(able), live=everyone, target=everyone, emptied=np.zeros_like(everyone)
    )
    partitions = PlacementPartitions(topic=names[0], partition=names[1], replicas=replicas, movable=moves)
    spread: Ints = place(brokers, partitions, PlacementGoal(reorder=True)).replicas[:, 0]
    return spread


def evaluate_given(brokers: PlacementBrokers, partitions: PlacementPartitions, replicas: Ints) -> Placement:
    """Compute the result of given lists, (row, slot) of broker ids; raise PlacementError for an unknown broker."""
    goal = PlacementGoal(leaders=False, given=True)
    model = model_of(brokers, partitions, goal)
    unknown = np.setdiff1d(replicas, [*model.ids.tolist(), NO_BROKER]).tolist()
    if unknown:
        raise PlacementError(f"brokers {join_ids(unknown)} are in no list now and not registered: lint first")
    width = max(len(model.before), replicas.shape[1])
    model.before = np.pad(model.before, ((0, width - len(model.before)), (0, 0)), constant_values=NO_BROKER)
    model.after = broker_indexes(model.ids, replicas[model.order].T, width)
    forced = copies(model)
    placement = placement_of(model, partitions, goal, SearchResult(forced=forced, reordered=even_leaders(model, goal)))
    return replace(placement, bound=reasons.GIVEN_COPIES.render(replicas=pluralise(forced, "replica", "is", "are")))


def _imbalance_reason(
    model: PlacementModel, goal: PlacementGoal, graph: ExchangeGraph | None, *, copied: int, undone: int
) -> str:
    """Return which rules bind the replicas of the fullest brokers, or keep others from the emptiest; "" if even.

    When no path leads from full brokers to emptier ones, the brokers reachable from the full ones form a closed set to
    which their replicas are bound. Brokers within one replica of each other are even.

    `copied` replicas are copied by the plan; `undone` required copies are not.
    """
    held = model.load()[model.target]
    if not len(held) or np.ptp(held) <= 1:
        return ""
    if undone:
        return reasons.MAX_MOVES_SPENT.render(max_moves=goal.max_moves, replicas=pluralise(undone, "replica"))
    if not goal.even:
        return reasons.ONLY_REQUIRED_MOVES.render()
    if graph is None:
        return reasons.NONE_MAY_CHANGE.render()
    return _graph_reason(model, goal, graph, copied)


def _graph_reason(model: PlacementModel, goal: PlacementGoal, graph: ExchangeGraph, copied: int) -> str:
    load, recipients, arcs = graph.load, model.target, reachable(graph.lengths)
    most, least = int(load[recipients].max()), int(load[recipients].min())
    giving = _closure(arcs, recipients & (load == most))
    taking = _closure(arcs.T, recipients & (load == least))
    if load[giving].min() < most - 1 or load[taking].max() > least + 1:
        return _limit_reason(model, goal, copied)
    if most * int(recipients.sum()) >= int(load[recipients].sum()) + int(recipients.sum()):
        rules = _binding_rules(model, giving, recipients & ~giving)
        return reasons.CANNOT_GIVE.render(brokers=_broker_names(model, giving), rules=rules)
    rules = _binding_rules(model, recipients & ~taking, taking)
    return reasons.CANNOT_TAKE.render(brokers=_broker_names(model, taking), rules=rules)


def _band_reason(model: PlacementModel, goal: PlacementGoal, balance: LoadBalance, loads: PlacementLoads | None) -> str:
    """Return why bytes or loads of brokers are outside the band around their share.

    It is "" if there are none, or if the goal moves only what it must.
    """
    outside = np.isin(model.ids, balance.brokers[balance.outside])
    if not outside.any() or not goal.even:
        return ""
    if goal.max_moves is not None and copies(model) >= goal.max_moves:
        return reasons.NO_HELPFUL_MOVES.render(max_moves=goal.max_moves)
    band = {"brokers": _broker_names(model, outside), "percent": f"{100 * goal.within:g}"}
    if loads is None:
        return reasons.OUTSIDE_BAND.render(**band)
    if loads.relieve is not None:
        return reasons.DISKS_ABOVE.render(brokers=band["brokers"], percent=f"{100 * loads.relieve:g}")
    band["share"] = (reasons.SHARE_BY_CAPACITY if balance.by_capacity else reasons.SAME_SHARE).render()
    if loads.max_bytes is not None:
        return reasons.BUDGET_SPENT.render(**band)
    change = "change" if goal.reorder else "change without --reorder-leaders"
    return reasons.LOADS_OUTSIDE.render(**band, change=change if loads.copy else "election")


def _closure(arcs: Bools, start: Bools) -> Bools:
    """Return these brokers and all that arcs lead to from them."""
    closed = start
    while True:
        extended = closed | arcs[closed].any(axis=0)
        if (extended == closed).all():
            return closed
        closed = extended


def _limit_reason(model: PlacementModel, goal: PlacementGoal, copied: int) -> str:
    if goal.max_moves is not None and (not goal.onto or copied >= goal.max_moves):
        return reasons.NO_HELPFUL_MOVES.render(max_moves=goal.max_moves)
    return reasons.UP_TO_SHARE.render(brokers=_broker_names(model, model.may_receive))


def _broker_names(model: PlacementModel, brokers: Bools) -> str:
    ids = model.ids[brokers].tolist()
    more = f" and {len(ids) - _MAX_BROKERS_NAMED} more" if len(ids) > _MAX_BROKERS_NAMED else ""
    return f"broker{'s' if len(ids) > 1 else ''} {join_ids(ids[:_MAX_BROKERS_NAMED])}{more}"


def _binding_rules(model: PlacementModel, sources: Bools, targets: Bools) -> str:
    """Count the replicas on `sources` that may not go to `targets`, by the rule that forbids it."""
    open_to = targets & model.may_receive
    if not open_to.any():
        return reasons.ONLY_THESE_RECEIVE.render(brokers=_broker_names(model, model.may_receive))
    on_sources, on_targets = (np.append(brokers, False)[model.after] for brokers in (sources, open_to))
    replicas = on_sources.sum(axis=0)
    fixed = ~model.movable
    everywhere = ~fixed & (on_targets.sum(axis=0) == int(open_to.sum()))
    rest = ~fixed & ~everywhere
    kept = (on_sources & kept_mask(model.after, model.in_sync_quota)).sum(axis=0)
    crowded = (model.capacity < model.factor - model.min_racks + 1) & (model.min_racks > 0)
    lost = reasons.LOSES_OR_CROWDS_RACK if (crowded & rest & (replicas > 0)).any() else reasons.LOSES_RACK
    counts = {
        reasons.IN_FIXED: int(replicas[fixed].sum()),
        reasons.ON_EACH: int(replicas[everywhere].sum()),
        reasons.IN_SYNC_IN_LAGGING: int(kept[rest].sum()),
        lost: int((replicas - kept)[rest].sum()),
    }
    bound = ", ".join(rule.render(count=count) for rule, count in counts.items() if count)
    return reasons.BOUND_REPLICAS.render(count=int(replicas.sum()), bound=bound)
