"""Figures of an optimised plan, such as moves, balance and bytes; they are stored with the plan's parameters."""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import numpy as np

from planner.placement.problem import NO_BROKER, Bools, Brokers, Ints, Partitions, Placement
from planner.placement.waves import Waves
from schemas.rows import PlanRecord

Figures = dict[str, Any]

MAX_TOPICS_LISTED: Final = 10
"""Topics listed for a broker that still holds replicas, those with the most replicas first."""


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


def led_figures(placement: Placement, leader: Ints, allowed: set[int], *, elects: bool) -> Figures:
    """Return the least and the most partitions led by a broker, now and after the plan.

    Kafka keeps a leader that stays in the replica list. With `elects`, the first replica of a changed list is elected.
    `brokers_counted` are the brokers that `replicas_per_broker` and the other figures cover.
    """
    lists = placement.replicas[placement.changed]
    first, now = lists[:, 0], leader[placement.changed]
    stays = (lists == now[:, None]).any(axis=1) & ~(np.isin(first, list(allowed)) & elects)
    after = leader.copy()
    after[placement.changed] = np.where(stays, now, first)
    ids = [int(name) for name in placement.brokers.names]
    counted = [broker for broker in ids if not allowed or broker in allowed]
    spans = [spans_of(leaders, counted) for leaders in (leader, after)]
    return {"led_per_broker": spans, "brokers_counted": counted}


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

    All numbers are those of a partition's own replication factor, before and after. `worse` counts partitions with more
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


def wave_figures(planned: Waves, fewest: int) -> Figures:
    """Return the number of waves, the least possible number, and the moves of each wave."""
    return {
        "count": planned.count,
        "fewest": fewest,
        "moves": planned.moves,
        "most_in": planned.most_in,
        "most_out": planned.most_out,
    }


def _spans(counts: tuple[Ints, ...], counted: Bools) -> list[list[int]]:
    return [[int(count[counted].min()), int(count[counted].max())] for count in counts]


def _leaders_given_up(placement: Placement, counted: Bools) -> Figures | None:
    """Return the leader balance if all partitions were reordered, and the number of extra reorders this takes."""
    (reached,) = _spans((placement.leaders_reordered,), counted)
    (kept,) = _spans((placement.brokers.leaders[1],), counted)
    return {"leaders_per_broker": reached, "reorders": placement.reorders} if reached != kept else None


def figures_in(plan: PlanRecord) -> Figures:
    """Return a stored plan's figures; plans not made by the optimiser have none."""
    figures: Figures = plan.options.get("figures", {})
    return figures


def byte_figures(brokers: Brokers, partitions: Partitions, placement: Placement) -> dict[str, Any]:
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
