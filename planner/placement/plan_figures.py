"""Figures of an optimised plan, such as moves, balance and bytes; they are stored with the plan's parameters."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from planner.placement.types import (
    BYTES_ALONE,
    NO_BROKER,
    Bools,
    Floats,
    Ints,
    LoadBalance,
    Placement,
    PlacementBrokers,
    PlacementPartitions,
)
from planner.placement.waves import Waves
from schemas.rows import PlanRecord

Figures = dict[str, Any]

S = TypeVar("S", bound=Struct)

MAX_TOPICS_LISTED: Final = 10
"""Topics listed for a broker that still holds replicas, those with the most replicas first."""


MAX_BROKERS_LISTED: Final = 10
"""Brokers whose bytes must leave or arrive that are listed, and partitions that are too large for a broker."""

MAX_STEPS_LISTED: Final = 12

MULTIPLE_DIGITS: Final = 4


def figures_of(placement: Placement, allowed: set[int]) -> Figures:
    """Return the moves and their lower bound, and the balance of brokers and racks before and after.

    `allowed` are the brokers that may hold replicas. If it is empty (a file while all brokers are drained), all count.
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
        "leaders_given_up": _leaders_given_up(placement, counted),
        "replicas_per_rack": {rack: [before, after] for rack, before, after in racks if rack},
        "racks_given_up": list(placement.given_up),
        "fewer_racks": placement.fewer_racks,
        "most_in_one_rack": _most_in_one_rack(placement),
    }


def led_figures(placement: Placement, leader: Ints, allowed: set[int], elected: Bools, *, elects: bool) -> Figures:
    """Return the least and the most partitions led by a broker, now and after the plan.

    Kafka keeps a leader that stays in the replica list. With `elects`, the first replica of a changed list is elected,
    and so is that of the unchanged lists marked by `elected`.
    `brokers_counted` are the brokers that `replicas_per_broker` and the other figures cover.
    """
    lists = placement.replicas[placement.changed]
    first, now = lists[:, 0], leader[placement.changed]
    stays = (lists == now[:, None]).any(axis=1) & ~(np.isin(first, list(allowed)) & elects)
    after = leader.copy()
    after[placement.changed] = np.where(stays, now, first)
    after[elected] = placement.replicas[elected, 0]
    ids = [int(name) for name in placement.brokers.names]
    counted = [broker for broker in ids if not allowed or broker in allowed]
    spans = [spans_of(leaders, counted) for leaders in (leader, after)]
    return {"led_per_broker": spans, "brokers_counted": counted}


def spread_figures(before: Ints, after: Ints, counted: Sequence[int]) -> Figures:
    """Return the least and the most partitions led by a broker of `counted`, before and after, and the largest share.

    >>> spread_figures(np.array([3, 3, 1, -1]), np.array([1, 2, 1, -1]), [1, 2])["largest_share"]
    {'broker_id': 1, 'leaders': 2, 'partitions': 3}
    """
    broker = max(counted, key=lambda broker: (int((after == broker).sum()), -broker))
    led, partitions = int((after == broker).sum()), int((after != NO_BROKER).sum())
    return {
        "led_per_broker": [spans_of(leaders, counted) for leaders in (before, after)],
        "largest_share": {"broker_id": broker, "leaders": led, "partitions": partitions},
    }


def spans_of(brokers: Ints, counted: Sequence[int]) -> list[int]:
    """Return the least and the most occurrences of any broker of `counted`.

    >>> spans_of(np.array([[1, 2], [1, -1]]), [1, 2, 3])
    [0, 2]
    """
    ids, counts = np.unique(brokers, return_counts=True)
    held = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    occurrences = [held.get(broker, 0) for broker in counted]
    return [min(occurrences, default=0), max(occurrences, default=0)]


def _most_in_one_rack(placement: Placement) -> Figures:
    """Return the largest number of a partition's replicas in one rack, before and after, with partition counts.

    All numbers use a partition's own replication factor, before and after. `worse` counts partitions with more
    than before and more than an even share. `uneven` counts other partitions of the plan with more than an even share,
    because the other racks have too few brokers. `avoidable` counts partitions that the plan leaves further above the
    least possible number than they are. `fixable` counts all partitions with more than the least possible number.
    """
    (before, after), (least_before, least) = placement.most_in_one_rack, placement.least_in_one_rack
    even = placement.even_in_one_rack
    changed = np.isin(np.arange(len(after)), placement.changed)
    avoidable = changed & (after - least > np.maximum(before - least_before, 0))
    worse = changed & ~avoidable & (after > before) & (after > even)
    return {
        "most": [int(before.max(initial=0)), int(after.max(initial=0))],
        "worse": int(worse.sum()),
        "uneven": int((changed & ~worse & (after == least) & (after > even)).sum()),
        "avoidable": int(avoidable.sum()),
        "fixable": [int((before > least_before).sum()), int((after > least).sum())],
    }


def still_held(replicas: Ints, topics: Sequence[str], emptied: AbstractSet[int]) -> list[Figures]:
    """Return the replicas that brokers to be emptied still hold after a plan, by topic.

    `replicas` has one row of broker ids per partition, `topics` the topic of each row.

    >>> still_held(np.array([[3, 1], [3, -1], [1, -1]]), ["a", "b", "a"], {3, 4})
    [{'broker_id': 3, 'replicas': 2, 'topics': {'a': 1, 'b': 1}}]
    """
    held = []
    for broker in sorted(emptied):
        rows = np.flatnonzero((replicas == broker).any(axis=1)).tolist()
        by_topic = Counter(topics[row] for row in rows)
        most = dict(sorted(by_topic.items(), key=lambda counted: (-counted[1], counted[0]))[:MAX_TOPICS_LISTED])
        more = {"others": len(by_topic) - len(most)} if len(by_topic) > len(most) else {}
        held.append({"broker_id": broker, "replicas": len(rows), "topics": most, **more})
    return [row for row in held if row["replicas"]]


def other_successors(before: Ints, after: Ints, replacements: Sequence[tuple[int, int]]) -> list[Figures]:
    """Return the replicas that leave a broker for others than its successor: `before` and `after` by (row, slot).

    >>> before, after = np.array([[3, 1], [3, 4], [1, 3]]), np.array([[4, 1], [1, 4], [1, 5]])
    >>> other_successors(before, after, [(3, 4)])
    [{'broker_id': 3, 'successor': 4, 'replicas': 2, 'of': 3}]
    """
    found = []
    for broker, successor in replacements:
        leaves = (before == broker).any(axis=1) & ~(after == broker).any(axis=1)
        takes = (after == successor).any(axis=1) & ~(before == successor).any(axis=1)
        counts = {"replicas": int((leaves & ~takes).sum()), "of": int(leaves.sum())}
        found.append({"broker_id": broker, "successor": successor, **counts})
    return [row for row in found if row["replicas"]]


def wave_figures(planned: Waves, fewest: int) -> Figures:
    """Return the number of waves, the least possible number, and the moves of each wave."""
    return {
        "count": planned.count,
        "fewest": fewest,
        "moves": planned.moves,
        "most_in": planned.max_incoming,
        "most_out": planned.max_outgoing,
    }


def _spans(counts: tuple[Ints, ...], counted: Bools) -> list[list[int]]:
    return [[int(count[counted].min()), int(count[counted].max())] for count in counts]


def _leaders_given_up(placement: Placement, counted: Bools) -> Figures | None:
    """Return the leader balance if all partitions were reordered, and the number of extra reorders this takes."""
    (reached,) = _spans((placement.leaders_reordered,), counted)
    (kept,) = _spans((placement.brokers.leaders[1],), counted)
    return {"leaders_per_broker": reached, "reorders": placement.reorders} if reached != kept else None


Range = tuple[int, int]
"""The least and the most of a quantity, or the quantity before and after."""

BeforeAndAfter = tuple[Range, Range]


class GivenUpLeaders(Struct, frozen=True, kw_only=True):
    """Result of reordering all partitions; see `_leaders_given_up`."""

    leaders_per_broker: Range
    reorders: int


class RackCrowding(Struct, frozen=True, kw_only=True):
    """Replicas of a partition in one rack; see `_most_in_one_rack`."""

    most: Range = (0, 0)
    worse: int = 0
    uneven: int = 0
    avoidable: int = 0
    fixable: Range = (0, 0)


class HeldReplicas(Struct, frozen=True, kw_only=True):
    """Replicas that a broker to be emptied still holds; see `still_held`."""

    broker_id: int
    replicas: int
    topics: dict[str, int]
    others: int = 0


class OtherSuccessors(Struct, frozen=True, kw_only=True):
    """Replicas of a broker that do not go to its successor; see `other_successors`."""

    broker_id: int
    successor: int
    replicas: int
    of: int
    """All replicas that leave the broker."""


class WaveFigures(Struct, frozen=True, kw_only=True):
    """See `wave_figures`."""

    count: int
    fewest: int
    moves: list[int]
    most_in: list[int]
    most_out: list[int]


class SizeFigures(Struct, frozen=True, kw_only=True):
    """The sizes that a plan was made with."""

    source: str
    digest: str
    known: int
    assumed: int


class LargestShare(Struct, frozen=True, kw_only=True):
    """The broker that leads most partitions after a plan, of the brokers that may lead."""

    broker_id: int
    leaders: int
    partitions: int
    """Partitions with a leader."""


class WorstLoad(Struct, frozen=True, kw_only=True):
    """The greatest load of a broker, as a multiple of its share of the mean."""

    multiple: float
    broker: int
    resource: str
    """disk, or in, out or cpu with its window of the week."""


class BalanceFigures(Struct, frozen=True, kw_only=True):
    """The balance of loads by `--by-load`, and the bounds of any plan."""

    bytes: int
    bytes_bound: int
    elections: int
    """Preferred replicas that are elected after the moves."""
    worst_before: WorstLoad
    worst_by_elections: WorstLoad
    worst_after: WorstLoad
    worst_bound: float | None = None
    """A lower bound of the load of the most loaded broker after any plan; None in plans of an older version."""
    outside: list[int]
    """Brokers with a load that differs from the mean by more than the plan tolerates."""
    loads_outside: int | None = None
    """Such loads, one for each broker, resource and window; None in plans of an older version."""
    must_leave: dict[str, int]
    """The least bytes that leave some brokers, by id."""
    must_arrive: dict[str, int]
    front: list[tuple[int, int, int, float]]
    """Steps of the search: bytes and replicas copied, elections, and the greatest load."""
    by_capacity: bool = False
    """Whether loads are multiples of shares by capacity, not of the mean."""
    oversized: list[tuple[str, str]] = []
    """Partitions whose load alone exceeds what any broker should have, with the resource."""
    exceeded: list[WorstLoad] = []
    """Loads beyond a limit after the plan, as multiples of the limit: below 1 for too few leaders of a topic.

    Only the furthest beyond it.
    """
    exceeded_total: int = 0
    """Loads beyond a limit, listed or not; 0 in plans of an older version."""


class PlannedLoads(Struct, frozen=True, kw_only=True):
    """The loads that a plan was made with."""

    source: str
    resources: list[str]
    """disk, or in, out or cpu with its window of the week."""
    known: int = 0
    assumed: int = 0
    """Partitions without a load, which count as the mean of their topic."""
    without_load: int = 0
    """Partitions of topics without any load, which count as none."""
    topics_without_load: int = 0

    @property
    def windows(self) -> list[str]:
        """The hours of the week that the plan is for; empty if it is for a mean.

        >>> PlannedLoads(source="", resources=["disk", "in Mon 20:00", "out Mon 20:00", "out Tue 09:00"]).windows
        ['Mon 20:00', 'Tue 09:00']
        """
        return [*dict.fromkeys(window for _, _, window in (name.partition(" ") for name in self.resources) if window)]


class PlanFigures(Struct, frozen=True, kw_only=True):
    """Figures as stored; a plan of an older version lacks some, a plan without weights lacks figures in bytes."""

    lower_bound: int = 0
    bound: str = ""
    left: int = 0
    held: int = 0
    uneven: str = ""
    replicas_per_broker: BeforeAndAfter | None = None
    leaders_per_broker: BeforeAndAfter | None = None
    led_per_broker: BeforeAndAfter | None = None
    largest_share: LargestShare | None = None
    brokers_counted: list[int] | None = None
    leaders_given_up: GivenUpLeaders | None = None
    replicas_per_rack: dict[str, Range] = {}
    racks_given_up: list[str] = []
    racks_unknown: list[int] = []
    fewer_racks: int = 0
    most_in_one_rack: RackCrowding | None = None
    still_held: list[HeldReplicas] = []
    other_successors: list[OtherSuccessors] = []
    waves: WaveFigures | None = None
    without_room: str = ""
    """The warning of a plan whose waves exceed the limits of disks while they copy."""
    moves_bytes: int | None = None
    bytes_per_broker: BeforeAndAfter | None = None
    bytes_by_broker: dict[str, Range] = {}
    sizes: SizeFigures | None = None
    loads: PlannedLoads | None = None
    load_balance: BalanceFigures | None = None


class CrowdedRacks(Struct, frozen=True, kw_only=True):
    """New partitions with more replicas in one rack than necessary: the parameter `crowded` of a plan."""

    partitions: int
    most: int
    """Replicas of one of them in one rack."""
    least: int
    instead: str
    """The command that spreads them."""


def stored_figures(plan: PlanRecord) -> Figures:
    """Return a plan's figures as stored; plans not made by the optimiser have none."""
    figures: Figures = plan.options.get("figures", {})
    return figures


def figures_in(options: Mapping[str, Any]) -> PlanFigures | None:
    """Return the figures among a plan's parameters, None if there are none, or of a shape that is unknown here.

    Plans not made by the optimiser have none. The figures explain a plan; a commit does not depend on them.

    >>> figures_in({"figures": {"still_held": "of a later release"}}) is None
    True
    """
    return _stored(options, "figures", PlanFigures)


def crowded_racks_in(options: Mapping[str, Any]) -> CrowdedRacks | None:
    """Return the crowded racks among a plan's parameters, None if there are none, or of a shape that is unknown."""
    return _stored(options, "crowded", CrowdedRacks)


def _stored(options: Mapping[str, Any], name: str, shape: type[S]) -> S | None:
    stored = options.get(name)
    with suppress(msgspec.ValidationError):
        return msgspec.convert(stored, shape) if stored else None
    return None


def byte_figures(brokers: PlacementBrokers, partitions: PlacementPartitions, placement: Placement) -> dict[str, Any]:
    """Return the bytes copied, and the bytes of each broker before and after; empty without weights.

    `bytes_per_broker` is the least and the most among the brokers that may hold replicas, before and after.
    """
    held = placement.brokers.bytes
    if partitions.weights is None or held is None:
        return {}
    moves = placement.moves
    may_hold = set(map(str, brokers.ids[brokers.target].tolist()))
    by_broker = dict(zip(placement.brokers.names, zip(*(count.tolist() for count in held), strict=True), strict=True))
    spans = [[counts[when] for name, counts in by_broker.items() if name in may_hold] for when in (0, 1)]
    return {
        "moves_bytes": int(partitions.weights[moves.row[moves.target != NO_BROKER]].sum()),
        "bytes_per_broker": [[min(span), max(span)] for span in spans],
        "bytes_by_broker": {name: list(counts) for name, counts in by_broker.items()},
    }


def balance_figures(placement: Placement, name_of: Callable[[int], str], elections: int) -> Figures:
    """Return the BalanceFigures of a plan by load, empty without one; `name_of` names a row."""
    balance = placement.loads
    if balance is None or not balance.after.size or balance.names == BYTES_ALONE:
        return {}
    sides = {"before": balance.before, "by_elections": balance.by_elections, "after": balance.after}
    steps = balance.front
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MAX_STEPS_LISTED)).astype(int))
    return {
        "load_balance": {
            "bytes": balance.bytes,
            "bytes_bound": balance.bytes_bound,
            "elections": elections,
            "by_capacity": balance.by_capacity,
            **{f"worst_{side}": msgspec.to_builtins(worst_load(balance, loads)) for side, loads in sides.items()},
            "worst_bound": round(float(balance.best.max()), MULTIPLE_DIGITS),
            "outside": balance.brokers[balance.outside].tolist(),
            "loads_outside": balance.loads_outside,
            "must_leave": _largest(balance.brokers, balance.leave),
            "must_arrive": _largest(balance.brokers, balance.arrive),
            "front": [[*steps[place][:3], round(steps[place].worst, MULTIPLE_DIGITS)] for place in chosen.tolist()],
            "oversized": [[name_of(row), resource] for row, resource in balance.oversized[:MAX_BROKERS_LISTED]],
            "exceeded": [
                {"multiple": away_from_one(multiple, MULTIPLE_DIGITS), "broker": broker, "resource": resource}
                for broker, resource, multiple in sorted(balance.exceeded, key=_nearness)[:MAX_BROKERS_LISTED]
            ],
            "exceeded_total": len(balance.exceeded),
        }
    }


def _nearness(exceeded: tuple[int, str, float]) -> float:
    """Return how near a multiple of a limit is to 1, at most 1."""
    _, _, multiple = exceeded
    return min(multiple, 1 / multiple) if multiple else 0.0


def worst_load(balance: LoadBalance, loads: Floats) -> WorstLoad:
    """Return the greatest of some loads by (broker, resource) of a balance."""
    broker, resource = np.unravel_index(loads.argmax(), loads.shape)
    multiple = round(float(loads[broker, resource]), MULTIPLE_DIGITS)
    return WorstLoad(multiple=multiple, broker=int(balance.brokers[broker]), resource=balance.names[int(resource)])


def away_from_one(multiple: float, digits: int) -> float:
    """Round a multiple of a limit up, or down if it is below 1, so that it stays different from 1.

    >>> [away_from_one(multiple, 2) for multiple in (1.0 + 1e-12, 1.1, 1.101, 0.999, 0.5)]
    [1.01, 1.1, 1.11, 0.99, 0.5]
    """
    rounded, step = round(multiple, digits), 10.0**-digits
    if multiple > 1:
        return rounded if rounded >= multiple else round(rounded + step, digits)
    return rounded if rounded <= multiple else round(rounded - step, digits)


def _largest(brokers: Ints, sizes: Floats) -> dict[str, int]:
    """Return the brokers with the most bytes, by id."""
    order = np.argsort(-sizes, kind="stable")[:MAX_BROKERS_LISTED]
    return {str(brokers[place]): int(sizes[place]) for place in order.tolist() if sizes[place] >= 1}
