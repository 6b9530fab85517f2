"""Input and output of the optimiser as typed arrays, with broker ids on both sides.

Corresponds to the options of kafka-reassign-partitions, topicmappr and kafka-utils. In: `Brokers`, `Partitions` and a
`PlacementGoal`. Out: a `Placement`. Rows are partitions in the given order; lists of replicas are padded with
NO_BROKER.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_BROKER: Final = -1
"""Pads a list of replicas that is shorter than the widest."""


BYTES_ALONE: Final = ("bytes",)
"""The resources of a balance of the bytes of replicas, without measured loads."""

EVEN_WITHIN: Final = 0.01
"""Share of the mean by which the bytes of even brokers may differ from it, unless a plan states another share."""

MAX_ROWS_NAMED: Final = 5
"""Rows named in an error."""


class PlacementError(ValueError):
    """No placement keeps the hard rules: `rule` is the one that cannot hold, `rows` the partitions, `then` the advice.

    `code` and `reason` describe one row.
    """

    def __init__(
        self, rule: str, rows: Sequence[int] = (), then: str = "", *, code: str = "", reason: str = ""
    ) -> None:
        super().__init__(rule, rows, then)
        self.rule, self.rows, self.then = rule, list(rows), then
        self.code, self.reason = code, reason

    def __str__(self) -> str:
        return self.located(f"rows {self.rows[:MAX_ROWS_NAMED]}" if self.rows else "")

    def located(self, where: str) -> str:
        """Format the error with the rows as the user knows them.

        >>> PlacementError("2 partitions would have fewer racks", [3, 7], "allow more").located("a-0, a-4")
        '2 partitions would have fewer racks (a-0, a-4): allow more'
        """
        place = f" ({where})" if where else ""
        return f"{self.rule}{place}: {self.then}" if self.then else f"{self.rule}{place}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementBrokers:
    """One entry per broker, in any order.

    `live`: registered and understood. `target`: may be given replicas, which implies live. `emptied`: gives up every
    replica of the partitions that may change. `cordoned`: keeps its replicas and is given no others; None if none is.
    """

    ids: Ints
    racks: tuple[str | None, ...]
    live: Bools
    target: Bools
    emptied: Bools
    cordoned: Bools | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementLoads:
    """Measured loads to balance instead of numbers of replicas; rows and brokers as in the other input.

    `names`: the resources, of which the first is the disk. `leader` and `follower`: (row, resource), the load of a
    replica, whole numbers. `leader_before`: that of a leader before the replication factor changes, None if it does
    not. `capacity` and `limit`, the part of it that may be used: (broker, resource), NaN if unknown.
    `least`: the load that a broker must have, NaN if any will do. `limited`: resources that only have limits and are
    not evened. `preferred`: brokers that leaders should be on, as far as limits allow. `relieve`: only bring disks
    below this share of their capacity. `max_bytes`: bytes copied at most. `copy`: false for elections alone.
    `attempts`: how often to search for a plan of fewer bytes, None for a number by the size of the cluster.
    """

    names: tuple[str, ...]
    leader: Ints
    follower: Ints
    capacity: Floats
    limit: Floats
    leader_before: Ints | None = None
    least: Floats | None = None
    limited: frozenset[str] = frozenset()
    preferred: Bools | None = None
    relieve: float | None = None
    max_bytes: int | None = None
    copy: bool = True
    attempts: int | None = None

    @property
    def evened(self) -> Bools:
        """By resource, whether it is evened, not only limited."""
        return np.array([name not in self.limited for name in self.names])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementPartitions:
    """One row per partition of the whole cluster, since all count for balance; only the `movable` ones may change."""

    topic: Ints
    partition: Ints
    replicas: Ints
    """Broker ids, one row per partition, preferred replica first, padded with NO_BROKER."""
    movable: Bools
    in_sync: Bools | None = None
    """By (row, slot) like `replicas`, whether the replica is in the ISR; None if unknown, then all count as in sync."""
    leader: Ints | None = None
    """The broker that leads each row, for loads; None if the first replica does."""
    weights: Ints | None = None
    """Bytes of one replica of each partition; if given, bytes are balanced instead of replicas."""
    loads: PlacementLoads | None = None
    """If given, these loads are balanced; `weights` are then the bytes that a copy costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGoal:
    """The goal in addition to emptying the `emptied` brokers.

    `even`: move replicas until brokers are even, not only if they must move. `within`: brokers whose bytes differ
    from the mean by at most this share of it count as even; it applies to weights only. `leaders`: reorder replicas
    until leaders are even, in partitions that get or lose a replica or, with `reorder`, in all that may change.
    `replacements`: (broker, its successor), used wherever the rules allow it. `replication_factor` keeps the
    preferred leader, unless other replicas must stay before it (`removal_order`). `onto`: only these brokers get
    replicas they did not have, and with `even` not more than they lack of an even share. (Empty for all brokers.)
    `given`: nothing is optimised, the lists are given.
    """

    even: bool = False
    within: float = EVEN_WITHIN
    leaders: bool = True
    reorder: bool = False
    fix_racks: bool = False
    replication_factor: int | None = None
    replacements: tuple[tuple[int, int], ...] = ()
    max_moves: int | None = None
    onto: frozenset[int] = frozenset()
    given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """One entry per replica that is copied (`source` is NO_BROKER if one is only added) or dropped (no `target`)."""

    row: Ints
    source: Ints
    target: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadSummary:
    """The load of each broker or rack before and after: replicas, preferred leaders and, with weights, bytes."""

    names: tuple[str, ...]
    replicas: tuple[Ints, Ints]
    leaders: tuple[Ints, Ints]
    bytes: tuple[Ints, Ints] | None


class LoadStep(NamedTuple):
    """The sums after a step of the search: bytes and replicas copied, elections, the greatest load in means."""

    bytes: int
    copies: int
    elections: int
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadBalance:
    """Loads by (broker, resource) as multiples of the broker's share of the mean, and the bounds of any plan.

    `brokers` are the ids of the rows, of brokers that may hold replicas. `by_elections` are the loads after the
    elections that need no copy. `outside`: the brokers with a load outside its band. `by_capacity`: shares
    differ by capacity.
    """

    names: tuple[str, ...]
    brokers: Ints
    before: Floats
    by_elections: Floats
    after: Floats
    outside: Bools
    loads_outside: int
    """Loads outside their band, one for each broker and resource."""
    by_capacity: bool
    bytes: int
    bytes_bound: int
    """The least bytes that a plan with this goal and these bands copies; 0 if nothing is known."""
    leave: Floats
    """The least bytes that leave each broker."""
    arrive: Floats
    """The least bytes that arrive at each broker."""
    best: Floats
    """By resource the least possible load of the most loaded broker."""
    front: tuple[LoadStep, ...]
    """Each step of the search with a lower greatest load than all before."""
    oversized: tuple[tuple[int, str], ...]
    """Rows whose load alone exceeds the band of every broker, with the resource."""
    exceeded: tuple[tuple[int, str, float], ...]
    """Brokers beyond a limit after the plan, with the resource and their load as a multiple of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The result: new lists for every row (some unchanged), and their effects."""

    replicas: Ints
    changed: Ints
    """Rows whose list differs, ascending."""
    reasons: tuple[str, ...]
    """One for each row of `changed`."""
    moves: Moves
    copies: int
    """Replicas that are copied: the moves of a plan."""
    lower_bound: int
    bound: str
    """How the lower bound is derived."""
    uneven: str
    """Reason why brokers hold numbers of replicas that differ by more than one; empty if they do not."""
    held: Ints
    """Rows left alone because a dead broker that is not being emptied holds a replica of them."""
    left: int
    """Required copies that `max_moves` left undone."""
    brokers: LoadSummary
    racks: LoadSummary
    given_up: tuple[str, ...]
    """Racks whose brokers are all emptied; only for these may a partition span fewer racks."""
    fewer_racks: int
    """Partitions in fewer racks than before, without those that have fewer replicas."""
    most_in_one_rack: tuple[Ints, Ints]
    """The largest number of replicas of each row in one rack, before and after; 0 if no replica has a rack."""
    least_in_one_rack: tuple[Ints, Ints]
    """The lowest possible values of these numbers on the brokers that may hold replicas."""
    even_in_one_rack: Ints
    """The lowest possible value of the number after, if each rack with such brokers had enough of them."""
    reorders: int
    """Partitions left in their order that `reorder` would change."""
    leaders_reordered: Ints
    """Leaders of each broker with `reorder`."""
    loads: LoadBalance | None = None
    """The balance of bytes or loads, None if replicas were balanced."""
