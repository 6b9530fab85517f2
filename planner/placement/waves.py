"""Waves: pieces of a placement small enough to run one at a time, and to be rolled back each.

Corresponds to `--max-movement` of kafka-utils and to batches that operators cut manually. A limit counts incoming and
outgoing replicas separately, per broker and wave. A disk has a limit of bytes: replicas arrive in a wave before those
that leave in it are deleted, so both count. Partitions wait, in order of topic and partition, for the first wave with
room, so the same placement gives the same waves. In: partitions and their Placement. Out: one step per row and wave.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from planner.placement.racks import NO_RACK, max_per_rack, racks_spanned
from planner.placement.removal_order import in_sync_mask
from planner.placement.replica_arrays import arrivals, is_in_row
from planner.placement.types import NO_BROKER, Bools, Floats, Ints, Placement, PlacementError, PlacementPartitions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveSequence:
    """One entry per step, the `nth` of its `row`, by row and then in order; lists before and after are (slot, step)."""

    row: Ints
    nth: Ints
    before: Ints
    after: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveLimits:
    """`moves_per_broker`: maximum number of replicas in, and out, per broker and wave (None for no limit).

    `one_at_a_time`: a partition replaces one replica per wave.
    """

    moves_per_broker: int | None = None
    one_at_a_time: bool = False

    def __bool__(self) -> bool:
        return self != WaveLimits()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waves:
    """Steps by row and then by wave; a row has at most one step in a wave, and each starts where the one before ended.

    `row`, `wave`, `nth` (number of the step in its row) and `of` (steps of the row) have one entry per step. `before`
    and `after` are lists of broker ids, (slot, step), padded with NO_BROKER.
    """

    row: Ints
    wave: Ints
    nth: Ints
    of: Ints
    before: Ints
    after: Ints

    @property
    def count(self) -> int:
        return int(self.wave.max(initial=-1)) + 1

    @property
    def moves(self) -> list[int]:
        """Replicas each wave copies."""
        step = np.nonzero(arrivals(self.before, self.after))[1]
        moves: list[int] = np.bincount(self.wave[step], minlength=self.count).tolist()
        return moves

    @property
    def max_incoming(self) -> list[int]:
        """In each wave, the most replicas that one broker gets."""
        return self._most(self.after, arrivals(self.before, self.after))

    @property
    def max_outgoing(self) -> list[int]:
        """In each wave, the most replicas that one broker gives to others; dropped replicas do not count."""
        return self._most(self.before, _given_up(self.before, self.after))

    def inverse(self) -> Self:
        """Return the steps of a rollback: the last wave is undone first."""
        return type(self)(
            row=self.row[::-1],
            wave=(self.count - 1 - self.wave)[::-1],
            nth=(self.of - 1 - self.nth)[::-1],
            of=self.of[::-1],
            before=self.after[:, ::-1],
            after=self.before[:, ::-1],
        )

    def _most(self, lists: Ints, marked: Bools) -> list[int]:
        slot, step = np.nonzero(marked)
        brokers, number = np.unique(lists[slot, step], return_inverse=True)
        count = np.zeros((self.count, len(brokers)), dtype=np.int64)
        np.add.at(count, (self.wave[step], number), 1)
        most: list[int] = count.max(axis=1, initial=0).tolist()
        return most


def cut_into_waves(
    partitions: PlacementPartitions,
    placement: Placement,
    rack_of: dict[int, str | None],
    caps: WaveLimits,
    disk_limit: Mapping[int, float] | None = None,
) -> Waves:
    """Cut a placement into waves; changes of only the order come in the last wave, when all replicas are in sync.

    `disk_limit` has bytes by broker, and needs weights. A broker that holds more, or will hold more in the end, gets a
    replica only as far as it then holds no more than in the end. Raise PlacementError if no wave has room for a step.
    """
    if caps.moves_per_broker is not None and caps.moves_per_broker < 1:
        raise PlacementError(f"at most {caps.moves_per_broker} moves per broker and wave: expected at least 1")
    rows = placement.changed
    rows = rows[np.lexsort((partitions.partition[rows], partitions.topic[rows]))]
    ids = np.unique(np.concatenate([partitions.replicas[rows].ravel(), placement.replicas[rows].ravel(), [NO_BROKER]]))
    # the least id is NO_BROKER: without it, numbers start at 0, and NO_BROKER's own number is -1 again
    before, after = (np.searchsorted(ids, lists[rows].T) - 1 for lists in (partitions.replicas, placement.replicas))
    before = np.pad(before, ((0, max(len(after) - len(before), 0)), (0, 0)), constant_values=NO_BROKER)
    after = np.pad(after, ((0, max(len(before) - len(after), 0)), (0, 0)), constant_values=NO_BROKER)
    steps = (
        one_replica_steps(before, after, _racks(ids[1:], rack_of), _lagging(partitions, rows, before))
        if caps.one_at_a_time
        else single_steps(before, after)
    )
    broker_ids = np.append(ids[1:], NO_BROKER)
    room = _disk_room(partitions, placement, rows, ids[1:], disk_limit or {})
    wave = _wave_numbers(steps, len(ids), caps)
    if room is not None and not room.holds_all(steps):
        wave = _with_reorders_last(steps, _waves_with_room(steps, room, caps, rows))
    return Waves(
        row=rows[steps.row],
        wave=wave,
        nth=steps.nth,
        of=np.bincount(steps.row, minlength=len(rows))[steps.row],
        before=broker_ids[steps.before],
        after=broker_ids[steps.after],
    )


def fewest_waves(placement: Placement, caps: WaveLimits) -> int:
    """Return a lower bound on the number of waves: the busiest broker's moves, or the most moves of one partition.

    It is rarely too low. Partitions that move several replicas connect brokers, and the best waves for them are an edge
    colouring of a hypergraph, for which no fast algorithm is known.
    """
    copied = placement.moves.target != NO_BROKER
    rows, targets, sources = (
        values[copied] for values in (placement.moves.row, placement.moves.target, placement.moves.source)
    )
    at_least_one = min(len(placement.changed), 1)
    longest = _max_count(rows) if caps.one_at_a_time else at_least_one
    if caps.moves_per_broker is None:
        return max(longest, at_least_one)
    busiest = max(_max_count(targets), _max_count(sources[sources != NO_BROKER]))
    return max(-(-busiest // caps.moves_per_broker), longest, at_least_one)


def _max_count(values: Ints) -> int:
    return int(np.unique(values, return_counts=True)[1].max(initial=0))


def _racks(ids: Ints, rack_of: dict[int, str | None]) -> Ints:
    """Return rack numbers of brokers by index, with NO_RACK last, which index NO_BROKER (-1) finds."""
    names = sorted({rack for rack in rack_of.values() if rack is not None})
    number = {rack: index for index, rack in enumerate(names)}
    racks = (rack_of.get(broker) for broker in ids.tolist())
    return np.array([*(NO_RACK if rack is None else number[rack] for rack in racks), NO_RACK], dtype=np.int64)


def _lagging(partitions: PlacementPartitions, rows: Ints, before: Ints) -> Ints:
    """Return (slot, row): replicas of `before` that are not in sync."""
    in_sync = in_sync_mask(partitions, rows, len(before))
    return np.where(in_sync, NO_BROKER, before)


def _given_up(before: Ints, after: Ints) -> Bools:
    """Return (slot of `before`, step): replicas that leave while another one arrives."""
    given: Bools = arrivals(after, before) & arrivals(before, after).any(axis=0)
    return given


def _wave_numbers(steps: MoveSequence, size: int, caps: WaveLimits) -> Ints:
    """Return the wave of each step."""
    wave = steps.nth
    comes, goes = arrivals(steps.before, steps.after), _given_up(steps.before, steps.after)
    if caps.moves_per_broker is not None:
        step = np.concatenate([np.nonzero(comes)[1], np.nonzero(goes)[1]])
        end = np.concatenate([steps.after[comes], steps.before[goes] + size])
        in_order = np.argsort(step, kind="stable")
        wave = first_fit(steps.nth, step[in_order], end[in_order], caps.moves_per_broker)
    return _with_reorders_last(steps, wave)


def _with_reorders_last(steps: MoveSequence, wave: Ints) -> Ints:
    """Return the waves, with steps that only change the order in the last one."""
    comes, leaves = arrivals(steps.before, steps.after), arrivals(steps.after, steps.before)
    return np.where(~(comes.any(axis=0) | leaves.any(axis=0)), wave.max(initial=0), wave)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DiskRoom:
    """Bytes of the replicas of each changed row, and by broker the bytes that are held, and may be held."""

    bytes: Ints
    held: Floats
    limit: Floats

    def holds_all(self, steps: MoveSequence) -> bool:
        """Return whether all copies fit at once, before anything is deleted."""
        comes = arrivals(steps.before, steps.after)
        arriving = np.bincount(
            steps.after[comes], weights=self.bytes[steps.row[np.nonzero(comes)[1]]], minlength=len(self.held)
        )
        return bool(((self.held + arriving <= self.limit) | (arriving == 0)).all())


def _disk_room(
    partitions: PlacementPartitions, placement: Placement, rows: Ints, ids: Ints, disk_limit: Mapping[int, float]
) -> _DiskRoom | None:
    """Return the room on the disks of brokers; None if no limit or no size is known."""
    limit = np.array([disk_limit.get(broker, np.nan) for broker in ids.tolist()], dtype=np.float64)
    if partitions.weights is None or np.isnan(limit).all():
        return None
    held, in_the_end = (
        _bytes_held(lists, partitions.weights, ids) for lists in (partitions.replicas, placement.replicas)
    )
    known = np.where(np.isnan(limit), np.inf, limit)
    return _DiskRoom(bytes=partitions.weights[rows], held=held, limit=np.maximum(known, in_the_end))


def _bytes_held(replicas: Ints, weights: Ints, ids: Ints) -> Floats:
    """Return the bytes of the replicas that each broker holds."""
    on = np.isin(replicas, ids)
    at = np.searchsorted(ids, replicas[on])
    held: Floats = np.bincount(at, weights=weights[np.nonzero(on)[0]], minlength=len(ids)).astype(np.float64)
    return held


def _waves_with_room(steps: MoveSequence, room: _DiskRoom, caps: WaveLimits, rows: Ints) -> Ints:
    """Return the wave of each step: the first with room for its copies, after the wave of the step before in its row.

    A step without room waits for later ones, whose replicas leave. `peak` has the bytes that brokers hold during each
    wave, and in its last column after all.
    """
    comes, leaves = (
        [lists[marked[:, step], step] for step in range(len(steps.row))]
        for lists, marked in (
            (steps.after, arrivals(steps.before, steps.after)),
            (steps.before, arrivals(steps.after, steps.before)),
        )
    )
    peak, wave = room.held[:, np.newaxis].copy(), np.full(len(steps.row), -1)
    used: defaultdict[tuple[int, int], int] = defaultdict(int)
    pending = [*range(len(steps.row))]
    while pending:
        waiting = list[int]()
        for step in pending:
            if steps.nth[step] and wave[step - 1] < 0:
                waiting.append(step)
                continue
            size, places = room.bytes[steps.row[step]], [*comes[step], *(~leaves[step] if len(comes[step]) else ())]
            most = np.maximum.accumulate(peak[comes[step], ::-1], axis=1)[:, ::-1] + size
            first = int((most > room.limit[comes[step], np.newaxis]).sum(axis=1).max(initial=0))
            if first == peak.shape[1]:
                waiting.append(step)
                continue
            first = max(first, wave[step - 1] + 1 if steps.nth[step] else 0)
            while caps.moves_per_broker and any(used[place, first] >= caps.moves_per_broker for place in places):
                first += 1
            peak = np.pad(peak, ((0, 0), (0, max(first + 2 - peak.shape[1], 0))), mode="edge")
            peak[comes[step], first:] += size
            peak[leaves[step], first + 1 :] -= size
            wave[step] = first
            for place in places:
                used[place, first] += 1
        if len(waiting) == len(pending):
            raise _no_room(steps, room, waiting, rows)
        pending = waiting
    return wave


def _no_room(steps: MoveSequence, room: _DiskRoom, waiting: list[int], rows: Ints) -> PlacementError:
    size = int(room.bytes[steps.row[waiting]].sum())
    return PlacementError(
        f"no order of waves was found that keeps disks below their limits: {len(waiting)} steps of {size} bytes have "
        "no room before others leave",
        rows[np.unique(steps.row[waiting])].tolist(),
        "free or add space on the disks of their new brokers, or leave out their topics",
    )


def first_fit(nth: Ints, step: Ints, end: Ints, cap: int) -> Ints:
    """Return the wave of each step; `nth` counts the steps of a row from 0, each to run after the one before.

    `step` and `end` have an entry for each place a step takes, by step ascending; an end has `cap` places per wave.

    >>> first_fit(np.array([0, 0, 1, 0]), np.array([0, 1, 2, 3]), np.array([7, 7, 8, 7]), 2)
    array([0, 0, 1, 1])
    """
    firsts = np.searchsorted(step, np.arange(len(nth) + 1)).tolist()
    ends = end.tolist()
    full: defaultdict[int, int] = defaultdict(int)
    used: defaultdict[int, Counter[int]] = defaultdict(Counter)
    waves: list[int] = []
    for number, earlier in enumerate(nth.tolist()):
        places = ends[firsts[number] : firsts[number + 1]]
        closed = (1 << (waves[-1] + 1)) - 1 if earlier else 0
        for place in places:
            closed |= full[place]
        wave = (~closed & (closed + 1)).bit_length() - 1
        for place in places:
            used[place][wave] += 1
            if used[place][wave] == cap:
                full[place] |= 1 << wave
        waves.append(wave)
    return np.array(waves, dtype=np.int64)


def single_steps(before: Ints, after: Ints) -> MoveSequence:
    """Return one step per row."""
    rows = np.arange(before.shape[1])
    return MoveSequence(row=rows, nth=np.zeros_like(rows), before=before, after=after)


def one_replica_steps(before: Ints, after: Ints, racks: Ints, lagging: Ints) -> MoveSequence:
    """Return as many steps per row as it has new replicas, at least one.

    A new replica replaces a leaving one so that no rack gets more replicas than at either end and as many racks as
    possible remain. Lagging replicas are replaced first, as the step would have to wait for them, and followers before
    leaders. If the list grows, replicas are then added one by one. An intermediate list never spans fewer racks than
    the end with fewer, nor has it more replicas in one rack than the end with more. This is possible because common
    replicas stay and bases of a matroid can be exchanged one element at a time (`racks`).

    Lists are (slot, row) of brokers by index.
    `racks` are rack numbers by broker; `lagging` are the replicas of each row that are not in sync, (slot, row).
    """
    links = list(_step_batches(before, after, racks, lagging))
    row, nth = (np.concatenate([link[n] for link in links]) for n in (0, 1))
    order = np.lexsort((nth, row))
    lists = (np.concatenate([link[n] for link in links], axis=1)[:, order] for n in (2, 3))
    old, new = lists
    return MoveSequence(row=row[order], nth=nth[order], before=old, after=new)


def _step_batches(before: Ints, after: Ints, racks: Ints, lagging: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Yield steps of many rows at once: rows, step numbers, lists before and after."""
    current, nth = before.copy(), np.zeros(before.shape[1], dtype=np.int64)
    while (rows := np.flatnonzero(arrivals(current, after).sum(axis=0) > 1)).size:
        then = _exchange_one(current[:, rows], after[:, rows], racks, lagging[:, rows])
        yield rows, nth[rows], current[:, rows], then
        current[:, rows] = then
        nth[rows] += 1
    yield np.arange(len(nth)), nth, current, after


def _exchange_one(current: Ints, after: Ints, racks: Ints, lagging: Ints) -> Ints:
    """Bring one new replica into each row, in place of a leaving one, else at the end."""
    leaves, comes, late = arrivals(after, current), arrivals(current, after), is_in_row(current, lagging)
    best, most = _add_one(current, after, comes), np.full(current.shape[1], NO_BROKER)
    ends = [racks[lists] for lists in (current, after)]
    capacity, min_racks = np.maximum(*map(max_per_rack, ends)), np.minimum(*map(racks_spanned, ends))
    for gone in reversed(range(len(current))):
        for new in range(len(after)):
            option = current.copy()
            option[gone] = after[new]
            option_racks = racks[option]
            span = racks_spanned(option_racks)
            fits = (max_per_rack(option_racks) <= capacity) & (span >= min_racks)
            merit = 2 * span + late[gone] + (2 * len(option) + 2) * fits
            merit = np.where(leaves[gone] & comes[new], merit, NO_BROKER)
            better = merit > most
            best[:, better], most[better] = option[:, better], merit[better]
    return best


def _add_one(current: Ints, after: Ints, comes: Bools) -> Ints:
    """Append the first new replica of each row in a free slot, for rows without a leaving replica."""
    columns = np.arange(current.shape[1])
    joined = current.copy()
    joined[(current == NO_BROKER).argmax(axis=0), columns] = after[comes.argmax(axis=0), columns]
    return joined
