"""Moves in waves: pieces small enough to run one after the other, each of which can be taken back.

Corresponds to `--max-movement` of kafka-utils and to the batches operators cut by hand. A cap counts, for each broker
and wave, what comes in and what goes out, apart. Rows wait for the first wave that has room for them, in the order of
the rows, so the same placement gives the same waves. In: lists before and after. Out: one step a row and wave.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from planner.placement.problem import NOBODY, Ints, Placement, PlacementError

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One row's change within one wave."""

    row: int
    before: Replicas
    after: Replicas

    def inverse(self) -> Self:
        return type(self)(self.row, self.after, self.before)

    @property
    def arriving(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def leaving(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)


@dataclass(frozen=True, slots=True)
class Wave:
    """Steps that run together; no row appears twice."""

    steps: tuple[Step, ...]

    def inverse(self) -> Self:
        """The wave that takes this one back."""
        return type(self)(tuple(step.inverse() for step in self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """`moves_per_broker`: at most so many replicas in, and so many out, a broker and wave; None for any number.

    `one_at_a_time`: a partition replaces one replica a wave.
    """

    moves_per_broker: int | None = None
    one_at_a_time: bool = False


def waves(before: Ints, placement: Placement, rack_of: dict[int, str | None], caps: Caps) -> tuple[Wave, ...]:
    """Cut a placement into waves; what only changes its order comes in the last one, when everyone is in sync."""
    if caps.moves_per_broker is not None and caps.moves_per_broker < 1:
        raise PlacementError(f"at most {caps.moves_per_broker} moves a broker and wave: nothing could ever move")
    planned: list[list[Step]] = []
    room = _Room(caps.moves_per_broker)
    reorders = []
    for row in placement.changed.tolist():
        steps = _steps(row, before[row].tolist(), placement.replicas[row].tolist(), rack_of, caps)
        if not steps[0].arriving and not steps[0].leaving:
            reorders += steps
            continue
        wave = 0
        for step in steps:
            wave = room.take(wave, step) + 1
            while len(planned) < wave:
                planned.append([])
            planned[wave - 1].append(step)
    if reorders:
        planned = planned or [[]]
        planned[-1] += reorders
    return tuple(Wave(tuple(steps)) for steps in planned)


def fewest_waves(placement: Placement, caps: Caps) -> int:
    """No fewer waves can do: the busiest broker's moves, or the most moves of one partition, need so many."""
    moves = [(source, target) for source, target in _pairs(placement) if target != NOBODY]
    busiest = [Counter(broker for broker in brokers if broker != NOBODY) for brokers in zip(*moves, strict=True)]
    most = max((count for counts in busiest for count in counts.values()), default=0)
    rows = Counter(
        row
        for row, target in zip(placement.moves.row.tolist(), placement.moves.target.tolist(), strict=True)
        if target != NOBODY
    )
    longest = max(rows.values(), default=0) if caps.one_at_a_time else min(len(rows), 1)
    by_broker = 0 if caps.moves_per_broker is None else -(-most // caps.moves_per_broker)
    return max(by_broker, longest, min(len(placement.changed), 1))


def _pairs(placement: Placement) -> Iterator[tuple[int, int]]:
    return zip(placement.moves.source.tolist(), placement.moves.target.tolist(), strict=True)


def _steps(
    row: int, padded: Sequence[int], target: Sequence[int], rack_of: dict[int, str | None], caps: Caps
) -> list[Step]:
    before, after = (tuple(broker for broker in some if broker != NOBODY) for some in (padded, target))
    whole = Step(row, before, after)
    if not caps.one_at_a_time or len(whole.arriving) <= 1:
        return [whole]
    lists = [before]
    while len(missing := [broker for broker in after if broker not in lists[-1]]) > 1:
        lists.append(_next(lists[-1], after, missing, rack_of))
    lists.append(after)
    return [Step(row, some, then) for some, then in pairwise(lists)]


def _next(current: Replicas, after: Replicas, missing: list[int], rack_of: dict[int, str | None]) -> Replicas:
    """Bring in one missing replica for one that leaves, so that as many racks stay as can; followers first."""
    leaving = [broker for broker in reversed(current) if broker not in after]
    if not leaving:
        return (*current, missing[0])
    options = [
        tuple(arrives if broker == leaves else broker for broker in current)
        for leaves in leaving
        for arrives in missing
    ]
    return max(options, key=lambda replicas: len({rack_of.get(broker) for broker in replicas} - {None}))


class _Room:
    """What each wave has room for: how much comes to and goes from each broker, and which first waves are full."""

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.used: defaultdict[tuple[bool, int], Counter[int]] = defaultdict(Counter)
        self.full: Counter[tuple[bool, int]] = Counter()

    def take(self, wave: int, step: Step) -> int:
        """Find the first wave from `wave` on with room for the step, and take the room."""
        if self.cap is None or not step.arriving:
            return wave
        ends = [*((True, broker) for broker in step.arriving), *((False, broker) for broker in step.leaving)]
        wave = max(wave, *(self.full[end] for end in ends))
        while any(self.used[end][wave] >= self.cap for end in ends):
            wave += 1
        for end in ends:
            self.used[end][wave] += 1
            while self.used[end][self.full[end]] >= self.cap:
                self.full[end] += 1
        return wave
