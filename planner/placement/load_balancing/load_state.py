"""The loads of brokers during a search, and the gain, cost and legality of candidate changes.

A change moves a load from one broker to another: a replica that is copied, or the leadership of a partition, which an
election moves without a copy. The distance of a load is how far it is outside its band, and a change gains what it
takes from the sum of squared distances. In: a PlacementModel, the loads of its replicas and the bands. Changes the
model's `after`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from planner.placement.load_balancing.load_model import TOLERANCE, Bands, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.racks import max_per_rack, racks_spanned
from planner.placement.replica_arrays import arrivals, rows_by_broker
from planner.placement.types import Bools, Floats, Ints, LoadStep

EXCESS_WEIGHT: Final = 1e6
"""Weight of the load beyond a limit against squared distances."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """Candidates, one entry each, all copies or all elections.

    A copy takes the replica in `slot` of `row` from `source` to `target`. An election makes the replica in `slot`, on
    `target`, the first one instead of `source`. `shift` is the load that goes with it, (candidate, resource).
    """

    row: Ints
    slot: Ints
    source: Ints
    target: Ints
    shift: Floats
    are_elections: bool

    def at(self, places: Ints) -> "Changes":
        """Return some of the candidates."""
        return replace(
            self,
            row=self.row[places],
            slot=self.slot[places],
            source=self.source[places],
            target=self.target[places],
            shift=self.shift[places],
        )

    @property
    def keys(self) -> list[tuple[int, int, int, int]]:
        """Row, slot, source and target of each candidate."""
        return list(zip(self.row.tolist(), self.slot.tolist(), self.source.tolist(), self.target.tolist(), strict=True))


@dataclass(slots=True, kw_only=True, eq=False)
class LoadState:
    """The loads of brokers, and what was changed so far.

    `may_copy`: rows whose replicas may go to other brokers. `may_elect`: rows whose replicas may change their order.
    `price`: bytes that each copy counts as besides its own. `preferred`: brokers that no election takes leaders from.
    `steps`: changes left.
    """

    model: PlacementModel
    loads: ReplicaLoads
    bands: Bands
    may_copy: Bools
    may_elect: Bools
    price: float
    max_bytes: float = np.inf
    max_copies: float = np.inf
    preferred: Bools | None = None
    steps: int = 1 << 40
    required: Ints = field(init=False)
    """The replica lists with the required changes alone."""
    former: Floats = field(init=False)
    """The loads of `level` before any change."""
    level: Floats = field(init=False)
    """By (broker, resource) the load as a multiple of the target."""
    front: list[LoadStep] = field(default_factory=list, init=False)
    """Each step with a lower greatest load than all before it, in the order of the search."""
    bytes: int = field(default=0, init=False)
    copies: int = field(default=0, init=False)
    elections: int = field(default=0, init=False)
    compared: int = field(default=0, init=False)
    """Candidates whose gain was computed, which is most of the work."""
    is_changed: Bools = field(init=False)
    """Rows whose replicas are on other brokers than before: another change of them may need no further copy."""
    rows_of: list[Ints] = field(init=False)
    """By broker the rows with a replica on it, ascending, so that no step has to go through all rows."""
    leader: Floats = field(init=False)
    follower: Floats = field(init=False)
    inverse: Floats = field(init=False)
    """1 / target"""
    limited: Bools = field(init=False)
    """Resources with a limit."""
    elected: Bools = field(init=False)
    """Resources of which elections move some."""

    def __post_init__(self) -> None:
        self.inverse = 1 / self.bands.target
        self.limited = np.isfinite(np.concatenate([self.bands.least, self.bands.limit])).any(axis=0)
        self.leader, self.follower = (loads.astype(float) for loads in (self.loads.leader, self.loads.follower))
        self.elected = (self.leader != self.follower).any(axis=0)
        self.former = self.loads.before.of_broker(self.model.before, self.model.size) * self.inverse
        self.require()

    def require(self) -> None:
        """Make the present lists those of the required changes."""
        self.required = self.model.after.copy()
        self.front.clear()
        self.measure()

    def measure(self) -> None:
        """Compute loads and sums of the replicas in the model."""
        self.level = self.loads.of_broker(self.model.after, self.model.size) * self.inverse
        is_copy = arrivals(self.model.before, self.model.after)
        self.is_changed = self._changed(slice(None))
        self.rows_of = rows_by_broker(self.model.after, self.model.size)
        self.copies = int(is_copy.sum())
        self.bytes = int((is_copy * self.loads.size).sum())
        self.record()

    def distance(self) -> Floats:
        """Return by (broker, resource) how far loads are outside their bands, negative inside."""
        distance: Floats = np.maximum(self.level - self.bands.high, self.bands.low - self.level)
        return distance

    def excess(self) -> Floats:
        """Return by (broker, resource) how far loads are beyond their limits."""
        return excess_of(self.level, self.bands.least, self.bands.limit)

    def worsened(self) -> Floats:
        """Return by (broker, resource) how much further loads are beyond their limits than before any change."""
        former = excess_of(self.former, self.bands.least, self.bands.limit)
        worsened: Floats = np.maximum(self.excess() - former, 0)
        return worsened

    def worst(self) -> float:
        """Return the greatest evened load of a broker that may hold replicas, as a multiple of the mean."""
        return float((self.level * self.bands.multiple)[np.ix_(self.model.target, self.bands.evened)].max(initial=0.0))

    # -- candidates

    def elections_of(self, row: Ints, slot: Ints) -> Changes:
        after, shift = self.model.after, self.leader[row] - self.follower[row]
        return Changes(
            row=row, slot=slot, source=after[0, row], target=after[slot, row], shift=shift, are_elections=True
        )

    def copies_of(self, row: Ints, slot: Ints, target: Ints) -> Changes:
        source, shift = self.model.after[slot, row], self.shifts_of(row, slot)
        return Changes(row=row, slot=slot, source=source, target=target, shift=shift, are_elections=False)

    def shifts_of(self, row: Ints, slot: Ints) -> Floats:
        """Return the loads of replicas, (replica, resource); those in the first slot lead."""
        return np.where((slot == 0)[:, None], self.leader[row], self.follower[row])

    def _changed(self, rows: slice | list[int]) -> Bools:
        before, after = self.model.before[:, rows], self.model.after[:, rows]
        is_changed: Bools = np.any(arrivals(before, after), axis=0) | np.any(arrivals(after, before), axis=0)
        return is_changed

    def replicas_on(self, brokers: Sequence[int]) -> tuple[Ints, Ints]:
        """Return rows and slots of the replicas on some brokers that may be copied to others.

        Rows without a change are left out if a copy would exceed the maximum of bytes or copies.
        """
        wanted = np.zeros(self.model.size + 1, dtype=bool)
        wanted[list(brokers)] = True
        most = self.max_bytes - self.bytes if self.copies < self.max_copies else -1
        is_held = np.zeros_like(self.may_copy)
        for broker in brokers:
            is_held[self.rows_of[broker]] = True
        rows = np.flatnonzero(is_held)
        rows = rows[self.may_copy[rows] & (self.is_changed[rows] | (self.loads.size[rows] <= most))]
        slot, place = np.nonzero(wanted[self.model.after[:, rows]])
        return rows[place], slot

    # -- gain, cost and rules

    def gains(self, changes: Changes) -> Floats:
        """Return by candidate the change of the sum of squared distances; infinite where a limit would be broken."""
        return self.gains_of_one_side(changes.source, changes.shift, -1) + self.gains_of_one_side(
            changes.target, changes.shift, 1
        )

    def gains_of_one_side(self, brokers: Ints, shift: Floats, sign: int, *, is_forced: bool = False) -> Floats:
        """Return by candidate the change if `brokers` lose (-1) or get (1) a load.

        A limit that is broken already may be broken by less, which counts more than any distance. A forced load may
        break it, at the same price.
        """
        gain = np.zeros(len(brokers))
        self.compared += len(brokers)
        if len(brokers) and (brokers == brokers[0]).all():
            brokers = brokers[:1]  # the same for all candidates, and so are its loads
        bands = self.bands
        for resource in range(self.level.shape[1]):
            level, low, high, inverse = (
                values[:, resource][brokers] for values in (self.level, bands.low, bands.high, self.inverse)
            )
            after = level + sign * shift[:, resource] * inverse
            gain += np.maximum(np.maximum(after - high, low - after), 0) ** 2
            gain -= np.maximum(np.maximum(level - high, low - level), 0) ** 2
            if self.limited[resource]:
                least, limit = (values[:, resource][brokers] for values in (bands.least, bands.limit))
                excess = excess_of(after, least, limit) - excess_of(level, least, limit)
                gain += EXCESS_WEIGHT * excess
                gain[(excess > 0) & (not is_forced)] = np.inf
        return gain

    def costs(self, changes: Changes) -> Floats:
        """Return the bytes that each candidate adds, with the price of a copy; negative if a copy is taken back."""
        if changes.are_elections:
            return np.zeros(len(changes.row))
        before = self.model.before[:, changes.row]
        copies = (before == changes.source).any(axis=0).astype(float) - (before == changes.target).any(axis=0)
        cost: Floats = copies * (self.loads.size[changes.row] + self.price)
        return cost

    def legal(self, changes: Changes) -> Bools:
        """Return the candidates that are still possible, keep the rack rules, and go to brokers that may receive."""
        model, row, slot, target = self.model, changes.row, changes.slot, changes.target
        after = model.after[:, row]
        places = np.arange(len(row))
        if changes.are_elections:
            still: Bools = (after[0] == changes.source) & (after[slot, places] == target) & model.target[target]
            still &= ~(model.lagging[:, row] == target).any(axis=0)
            if self.preferred is not None:
                still &= self.preferred[target] | ~self.preferred[changes.source]
            return still
        legal: Bools = (after[slot, places] == changes.source) & ~(after == target).any(axis=0)
        stay = model.in_sync_quota[:, row]
        legal &= ~(stay == changes.source).any(axis=0) | (stay == target).any(axis=0)
        legal &= model.pinned[row] != changes.source
        legal &= model.may_receive[target] | (model.before[:, row] == target).any(axis=0)
        after[slot, places] = target
        racks = model.racks[after]
        legal &= (racks_spanned(racks) >= model.min_racks[row]) & (max_per_rack(racks) <= model.capacity[row])
        return legal

    def affordable(self, changes: Changes, costs: Floats, replicas: int = 1) -> Bools:
        """Return the candidates that need no copy, or a copy within the maximum of bytes and copies."""
        fits = self.bytes + replicas * self.loads.size[changes.row] <= self.max_bytes
        affordable: Bools = (costs <= 0) | (fits & (self.copies + replicas <= self.max_copies))
        return affordable

    # -- changes

    def apply(self, changes: Changes) -> None:
        """Apply candidates, each of which must be legal after those before it."""
        after = self.model.after
        for place, (row, slot, source, target) in enumerate(changes.keys):
            before, shift = self.model.before[:, row], changes.shift[place]
            self.level[source] -= shift * self.inverse[source]
            self.level[target] += shift * self.inverse[target]
            if changes.are_elections:
                after[0, row], after[slot, row] = target, source
                self.elections += 1
            else:
                after[slot, row] = target
                copies = int((before == source).any()) - int((before == target).any())
                self.copies += copies
                self.bytes += copies * int(self.loads.size[row])
                self.is_changed[row] = self._changed([row]).any()
                self.rows_of[source] = self.rows_of[source][self.rows_of[source] != row]
                self.rows_of[target] = np.sort(np.append(self.rows_of[target], row))
            self.steps -= 1
            self.record()

    def record(self) -> None:
        """Add the present sums to `front`, if the greatest load is lower than all before."""
        worst = self.worst()
        if not self.front or worst < self.front[-1].worst:
            self.front.append(LoadStep(self.bytes, self.copies, self.elections, worst))

    # -- ways back

    def returns(self) -> Changes:
        """Return the candidates that take copies back to the brokers that gave the replica up."""
        model = self.model
        rows = np.flatnonzero(arrivals(model.before, model.after).any(axis=0) & self.may_copy)
        after, before = model.after[:, rows], model.before[:, rows]
        copied = arrivals(before, after)
        given = arrivals(after, before) & model.target[before]
        slot, place, former = np.nonzero(copied[:, :, None] & given.T[None])
        return self.copies_of(rows[place], slot, before[former, place])

    def former_leaders(self) -> Changes:
        """Return the elections that make the former first replica the first one again."""
        before, after = self.model.before[0], self.model.after
        slot, row = np.nonzero((after == before) & (after[0] != before) & self.may_elect)
        return self.elections_of(row, slot)


def excess_of(level: Floats, least: Floats, limit: Floats) -> Floats:
    """Return how far loads are beyond their limits."""
    excess: Floats = np.maximum(np.maximum(level - limit, least - level) - TOLERANCE, 0)
    return excess


def joined(parts: Sequence[Changes]) -> Changes:
    """Return the candidates of all parts, which are all copies or all elections."""
    row, slot, source, target, shift = (
        np.concatenate(column)
        for column in zip(*((part.row, part.slot, part.source, part.target, part.shift) for part in parts), strict=True)
    )
    return Changes(row=row, slot=slot, source=source, target=target, shift=shift, are_elections=parts[0].are_elections)
