"""The search for a balance of load with few copied bytes: elections, copies, exchanges, then returns.

The load furthest outside its band comes first. Each change is the one with the largest decrease of the squared
distances from the bands for its bytes; an election costs none. If no single change helps, two replicas are exchanged.
At the end every copy and every election that is no longer needed is taken back. Steps bound the search, never time,
and ties go to the first row, slot and broker, so the same input gives the same plan. Corresponds to Cruise Control's
`ResourceDistributionGoal`, with all resources at once and bytes as the cost. In: a PlacementModel, its loads and
bands. Changes the model's `after`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from planner.placement.load_balancing.load_model import TOLERANCE, Bands, Floats, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.racks import NO_RACK, max_per_rack, racks_spanned
from planner.placement.types import NO_BROKER, Bools, Ints

PARTNERS: Final = 24
"""Brokers considered at a time for the other side of a change, those with the most room first."""

BATCH: Final = 32
"""Changes applied before all candidates are computed again."""

BATCH_SHARE: Final = 0.7
"""Share of the best gain per byte that each further change of a batch must still have."""

LEAST_GAIN: Final = 1e-3
"""Share of the squared distance of the load from its band that a change must gain."""

SHORTLIST: Final = 384
"""Replicas whose copies to or from all partners are computed before those of all others."""

EXCHANGE_GAIN: Final = 0.1
"""The same share for an exchange, which copies two replicas."""

EXCHANGED: Final = 48
"""Replicas on each side that exchanges are made of."""

FREE: Final = 1e-6
"""Cost in bytes of a change that copies nothing."""

LEGAL_CHECKED: Final = 512
"""Best candidates whose rack rules are checked before all others."""


class Changes(NamedTuple):
    """Candidates, one entry each: the replica in `slot` of `row` goes from `source` to `target`, or, as an election,
    the replica on `target` in `slot` becomes the first instead of `source`. `shift` is the load that goes with it.
    """

    row: Ints
    slot: Ints
    source: Ints
    target: Ints
    shift: Floats
    election: bool

    def at(self, places: Ints) -> "Changes":
        columns = (self.row, self.slot, self.source, self.target, self.shift)
        return Changes(*(column[places] for column in columns), election=self.election)


class Applied(NamedTuple):
    """A change that was made."""

    row: int
    slot: int
    source: int
    target: int
    election: bool


@dataclass(slots=True, kw_only=True, eq=False)
class LoadSearch:
    """The state of a search.

    `may_copy`: rows whose replicas may go to other brokers. `may_elect`: rows whose replicas may change their order.
    `price`: bytes that each copy counts as besides its own. `steps`: changes left.
    """

    model: PlacementModel
    loads: ReplicaLoads
    bands: Bands
    may_copy: Bools
    may_elect: Bools
    price: float
    max_bytes: float = np.inf
    max_copies: float = np.inf
    steps: int = 1 << 60
    level: Floats = field(init=False)
    """By (broker, resource) the load as a multiple of the target."""
    journal: list[Applied] = field(default_factory=list, init=False)
    bytes: int = field(default=0, init=False)
    copies: int = field(default=0, init=False)
    _leader: Floats = field(init=False)
    _follower: Floats = field(init=False)
    _inverse: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._inverse = 1 / self.bands.target
        self.level = self.loads.of_broker(self.model.after, self.model.size) * self._inverse
        self._leader, self._follower = (x.astype(float) for x in (self.loads.leader, self.loads.follower))
        is_copy = self._is_copy(self.model.after)
        self.copies = int(is_copy.sum())
        self.bytes = int((is_copy * self.loads.size).sum())

    # -- stages

    def balance(self, *, copy: bool) -> None:
        """Bring loads into their bands, the furthest outside first; without `copy`, by elections alone."""
        stuck = np.zeros(self.level.shape, dtype=bool)
        improved = exchange = False
        while self.steps > 0:
            outside = np.where(stuck, 0, self._outside())
            broker, resource = (int(place) for place in np.unravel_index(outside.argmax(), outside.shape))
            if outside[broker, resource] > TOLERANCE:
                done = self._improve(broker, resource, copy=copy, exchange=exchange)
                improved |= done
                stuck[broker, resource] = not done
            elif improved and stuck.any():
                stuck[:] = improved = exchange = False
            elif stuck.any() and copy and not exchange:
                stuck[:], exchange = False, True
            else:
                return

    def take_back(self) -> None:
        """Take back the copies and elections that no band needs, the largest copies first."""
        for candidates in (self._returns, self._former_leaders):
            while True:
                changes = candidates()
                gain = self._gains(changes)
                useless = np.flatnonzero(gain <= 0)
                useless = useless[self._legal(changes.at(useless))]
                order = useless[np.argsort(-self.loads.size[changes.row[useless]], kind="stable")]
                count = sum(self._apply_if(changes, int(place), 0.0) for place in order)
                if not count:
                    break

    # -- one load

    def _outside(self) -> Floats:
        outside: Floats = np.maximum(self.level - self.bands.high, self.bands.low - self.level)
        return outside

    def _improve(self, broker: int, resource: int, *, copy: bool, exchange: bool) -> bool:
        """Apply the best changes for one load; return whether there was one."""
        distance = self._outside()[broker, resource]
        least = LEAST_GAIN * distance * distance
        is_high = self.level[broker, resource] > self.bands.high[broker, resource]
        for changes in self._kinds(broker, resource, is_high=is_high, copy=copy):
            if self._apply_best(changes, least):
                return True
        return exchange and self._exchange(broker, resource, EXCHANGE_GAIN * distance * distance, is_high=is_high)

    def _kinds(self, broker: int, resource: int, *, is_high: bool, copy: bool) -> Iterator[Changes]:
        if (self._leader[:, resource] != self._follower[:, resource]).any():
            yield self._elections(broker, is_high=is_high)
        if copy:
            partners = self._partners(broker, resource, is_high=is_high)
            sources, targets = ([broker], partners) if is_high else (partners, [broker])
            row, slot = self._replicas_on(sources)
            few = self._promising(broker, row, slot, is_high=is_high)
            yield self._copies(row[few], slot[few], targets)
            yield self._copies(row, slot, targets)

    def _partners(self, broker: int, resource: int, *, is_high: bool) -> list[int]:
        """Return the brokers with the most room for what `broker` has too much of, or the most of what it lacks."""
        targets = np.flatnonzero(self.model.target if is_high else np.isfinite(self.bands.high[:, resource]))
        level = self.level[targets, resource]
        order = np.argsort(level if is_high else -level, kind="stable")
        return [other for other in targets[order].tolist() if other != broker][:PARTNERS]

    def _elections(self, broker: int, *, is_high: bool) -> Changes:
        after = self.model.after
        if is_high:
            columns = np.flatnonzero((after[0] == broker) & self.may_elect)
            slot, place = np.nonzero(after[1:, columns] != NO_BROKER)
        else:
            columns = np.flatnonzero(self.may_elect)
            slot, place = np.nonzero(after[1:, columns] == broker)
        return self._election_changes(columns[place], slot + 1)

    def _election_changes(self, row: Ints, slot: Ints) -> Changes:
        after = self.model.after
        shift = self._leader[row] - self._follower[row]
        return Changes(row, slot, after[0, row], after[slot, row], shift, election=True)

    def _promising(self, broker: int, row: Ints, slot: Ints, *, is_high: bool) -> Ints:
        """Return the places of the replicas that serve `broker` best for their bytes, whatever the other side."""
        changes = self._copy_changes(row, slot, np.full(len(row), broker))
        brokers = changes.source if is_high else changes.target
        gain = self._gain_of(brokers, changes.shift, -1 if is_high else 1)
        score = gain / (self.loads.size[row] + self.price)
        places = np.flatnonzero(score < 0)
        return np.sort(places[np.argsort(score[places], kind="stable")[:SHORTLIST]])

    def _copies(self, row: Ints, slot: Ints, targets: list[int]) -> Changes:
        width = len(targets)
        target = np.tile(np.array(targets, dtype=np.int64), len(row))
        return self._copy_changes(np.repeat(row, width), np.repeat(slot, width), target)

    def _copy_changes(self, row: Ints, slot: Ints, target: Ints) -> Changes:
        shift = np.where((slot == 0)[:, None], self._leader[row], self._follower[row])
        return Changes(row, slot, self.model.after[slot, row], target, shift, election=False)

    def _replicas_on(self, brokers: list[int]) -> tuple[Ints, Ints]:
        """Return rows and slots of the replicas on some brokers that may be copied to others."""
        wanted = np.zeros(self.model.size + 1, dtype=bool)
        wanted[brokers] = True
        slot, row = np.nonzero(wanted[self.model.after] & self.may_copy)
        return row, slot

    # -- gains, costs and rules of candidates

    def _gains(self, changes: Changes) -> Floats:
        """Return by candidate the change of the sum of squared distances; infinite where a limit would be exceeded."""
        return self._gain_of(changes.source, changes.shift, -1) + self._gain_of(changes.target, changes.shift, 1)

    def _gain_of(self, brokers: Ints, shift: Floats, sign: int) -> Floats:
        """Return by candidate the change on one side: `brokers` lose (-1) or get (1) a load."""
        gain = np.zeros(len(brokers))
        for resource in range(self.level.shape[1]):
            level, low, high, limit, inverse = (
                x[:, resource][brokers]
                for x in (self.level, self.bands.low, self.bands.high, self.bands.limit, self._inverse)
            )
            moved = sign * shift[:, resource]
            after = level + moved * inverse
            gain += np.maximum(np.maximum(after - high, low - after), 0) ** 2
            gain -= np.maximum(np.maximum(level - high, low - level), 0) ** 2
            gain[(moved > 0) & (after > limit)] = np.inf
        return gain

    def _costs(self, changes: Changes) -> Floats:
        """Return the bytes that each candidate adds, with the price of a copy."""
        if changes.election:
            return np.zeros(len(changes.row))
        before = self.model.before[:, changes.row]
        copies = (before == changes.source).any(axis=0).astype(float) - (before == changes.target).any(axis=0)
        cost: Floats = copies * (self.loads.size[changes.row] + self.price)
        return cost

    def _legal(self, changes: Changes) -> Bools:
        """Return the candidates that keep racks distinct, and go to brokers that may receive replicas."""
        if changes.election:
            return np.ones(len(changes.row), dtype=bool)
        model, row, slot, target = self.model, changes.row, changes.slot, changes.target
        after, before = model.after[:, row].copy(), model.before[:, row]
        legal: Bools = ~(after == target).any(axis=0)
        legal &= model.may_receive[target] | (before == target).any(axis=0)
        after[slot, np.arange(len(row))] = target
        racks = model.racks[after]
        legal &= racks_spanned(racks) >= model.min_racks[row]
        legal &= max_per_rack(racks) <= model.capacity[row]
        return legal

    # -- applying

    def _apply_best(self, changes: Changes, least: float) -> int:
        """Apply the best candidate, and further ones that are nearly as good afterwards; return their number."""
        gain, cost = self._gains(changes), self._costs(changes)
        copied = cost > 0
        size = self.loads.size[changes.row]
        affordable = ~copied | ((self.bytes + size <= self.max_bytes) & (self.copies + 1 <= self.max_copies))
        score = np.where(affordable & (gain < -least), gain / np.maximum(cost, FREE), 0.0)
        places = np.flatnonzero(score)
        places = places[np.argsort(score[places], kind="stable")]
        best = 0.0
        count = 0
        for start in range(0, len(places), LEGAL_CHECKED):
            some = places[start : start + LEGAL_CHECKED]
            for place in some[self._legal(changes.at(some))].tolist():
                best = best or score[place]
                if score[place] > BATCH_SHARE * best or count >= BATCH:
                    return count
                if not self._apply_if(changes, place, BATCH_SHARE * best if count else -least * 0, count > 0):
                    if count:
                        return count
                    continue
                count += 1
            if count:
                return count
        return count

    def _apply_if(self, changes: Changes, place: int, most: float, check_score: bool = False) -> bool:
        """Apply one candidate if it is still as computed, and as good as `most`; return whether it was."""
        one = changes.at(np.array([place]))
        row, slot = int(one.row[0]), int(one.slot[0])
        after = self.model.after
        is_current = (
            after[0, row] == one.source[0] and after[slot, row] == one.target[0]
            if one.election
            else after[slot, row] == one.source[0] and self._legal(one)[0]
        )
        if not is_current:
            return False
        if not one.election:
            one = self._copy_changes(one.row, one.slot, one.target)
        gain, cost = self._gains(one)[0], self._costs(one)[0]
        if cost > 0 and (self.bytes + self.loads.size[row] > self.max_bytes or self.copies + 1 > self.max_copies):
            return False
        if (gain / max(cost, FREE) if check_score else gain) > most:
            return False
        self._apply(one)
        return True

    def _apply(self, one: Changes) -> None:
        change = Applied(int(one.row[0]), int(one.slot[0]), int(one.source[0]), int(one.target[0]), one.election)
        self._make(change, one.shift[0])
        self.journal.append(change)
        self.steps -= 1

    def _make(self, change: Applied, shift: Floats) -> None:
        row, slot, source, target, election = change
        after, before = self.model.after, self.model.before[:, row]
        self.level[source] -= shift * self._inverse[source]
        self.level[target] += shift * self._inverse[target]
        if election:
            after[0, row], after[slot, row] = target, source
            return
        after[slot, row] = target
        copies = int((before == source).any()) - int((before == target).any())
        self.copies += copies
        self.bytes += copies * int(self.loads.size[row])

    def _exchange(self, broker: int, resource: int, least: float, *, is_high: bool) -> bool:
        """Exchange a replica of `broker` for one of a partner; return whether a pair was found.

        """
        partners = self._partners(broker, resource, is_high=is_high)
        row, slot = self._exchangeable(broker, resource, dense=is_high)
        given = self._copy_changes(row, slot, np.full(len(row), broker))
        pairs: list[tuple[Changes, Changes]] = []
        for partner in partners:
            row, slot = self._exchangeable(partner, resource, dense=not is_high)
            taken = self._copy_changes(row, slot, np.full(len(row), broker))
            first, second = (x.ravel() for x in np.meshgrid(np.arange(len(given.row)), np.arange(len(row)), indexing="ij"))
            out = given.at(first)._replace(target=np.full(len(first), partner))
            pairs.append((out, taken.at(second)))
        if not pairs:
            return False
        out, back = (_joined([pair[side] for pair in pairs]) for side in (0, 1))
        gain = self._gains(out._replace(shift=out.shift - back.shift))
        cost = np.maximum(self._costs(out) + self._costs(back), FREE)
        bytes_added = self.loads.size[out.row] + self.loads.size[back.row]
        affordable = (self.bytes + bytes_added <= self.max_bytes) & (self.copies + 2 <= self.max_copies)
        places = np.flatnonzero(affordable & (gain < -least) & (out.row != back.row))
        places = places[np.argsort((gain / cost)[places], kind="stable")]
        for start in range(0, len(places), LEGAL_CHECKED):
            some = places[start : start + LEGAL_CHECKED]
            legal = some[self._legal(out.at(some)) & self._legal(back.at(some))]
            if len(legal):
                for changes in (out, back):
                    self._apply(changes.at(legal[:1]))
                return True
        return False

    def _exchangeable(self, broker: int, resource: int, *, dense: bool) -> tuple[Ints, Ints]:
        """Return rows and slots of some replicas of a broker: half of them from the lightest to the median size,
        half those with the most, or the least, of a resource for their size.
        """
        row, slot = self._replicas_on([broker])
        size = self.loads.size[row]
        light = np.argsort(size, kind="stable")[: max(len(row) // 2, EXCHANGED)]
        evenly = light[np.unique(np.linspace(0, len(light) - 1, EXCHANGED // 2).astype(int))] if len(light) else light
        density = np.where(slot == 0, self._leader[row, resource], self._follower[row, resource]) / np.maximum(size, 1)
        by_density = np.argsort(-density if dense else density, kind="stable")[: EXCHANGED // 2]
        chosen = np.union1d(evenly, by_density)
        return row[chosen], slot[chosen]

    # -- taking back

    def _is_copy(self, after: Ints) -> Bools:
        is_copy = after != NO_BROKER
        for former in self.model.before:
            is_copy &= after != former
        return is_copy

    def _returns(self) -> Changes:
        """Return the candidates that take copies back to the brokers that gave the replica up."""
        model = self.model
        rows = np.flatnonzero(self._is_copy(model.after).any(axis=0) & self.may_copy)
        after, before = model.after[:, rows], model.before[:, rows]
        copies = self._is_copy_of(after, before)
        gone = (before != NO_BROKER) & self._is_copy_of(before, after) & model.target[before]
        slot, place, home = np.nonzero(copies[:, :, None] & gone.T[None])
        return self._copy_changes(rows[place], slot, before[home, place])

    @staticmethod
    def _is_copy_of(some: Ints, others: Ints) -> Bools:
        is_new = some != NO_BROKER
        for other in others:
            is_new &= some != other
        return is_new

    def _former_leaders(self) -> Changes:
        """Return the elections that take the former first replica back."""
        before, after = self.model.before[0], self.model.after
        rows = np.flatnonzero((after[0] != before) & (after[1:] == before).any(axis=0) & self.may_elect)
        slot = (after[1:, rows] == before[rows]).argmax(axis=0) + 1
        return self._election_changes(rows, slot)


def _joined(changes: list[Changes]) -> Changes:
    columns = [np.concatenate(column) for column in zip(*(change[:-1] for change in changes), strict=True)]
    return Changes(*columns, election=False)
