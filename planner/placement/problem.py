"""What the optimiser is asked and what it answers: typed arrays in, typed arrays out, broker ids on both sides.

Corresponds to the questions of kafka-reassign-partitions, topicmappr and kafka-utils. In: `Brokers`, `Partitions` and a
`Query`. Out: a `Placement`. Rows are partitions in the order given; lists of replicas are padded with `EMPTY`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_BROKER: Final = -1
"""Pads a list of replicas that is shorter than the widest."""


MAX_ROWS_NAMED: Final = 5
"""Rows an error names."""


class PlacementError(ValueError):
    """No placement keeps the hard rules: `what` says which rule, `rows` where, `then` what to do.

    `code` and `reason` say the same of one row.
    """

    def __init__(
        self, what: str, rows: Sequence[int] = (), then: str = "", *, code: str = "", reason: str = ""
    ) -> None:
        super().__init__(what, rows, then)
        self.what, self.rows, self.then = what, list(rows), then
        self.code, self.reason = code, reason

    def __str__(self) -> str:
        return self.located(f"rows {self.rows[:MAX_ROWS_NAMED]}" if self.rows else "")

    def located(self, where: str) -> str:
        """Say it all, with the rows called as the reader knows them.

        >>> PlacementError("2 partitions would have fewer racks", [3, 7], "allow more").located("a-0, a-4")
        '2 partitions would have fewer racks (a-0, a-4): allow more'
        """
        place = f" ({where})" if where else ""
        return f"{self.what}{place}: {self.then}" if self.then else f"{self.what}{place}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Brokers:
    """One entry a broker, in any order.

    `live`: registered and understood. `target`: may be given replicas; implies live. `emptied`: gives up every replica
    of the partitions that may change.
    """

    ids: Ints
    racks: tuple[str | None, ...]
    live: Bools
    target: Bools
    emptied: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partitions:
    """One row a partition: all of the cluster, since all count; only the `movable` ones may change."""

    topic: Ints
    partition: Ints
    replicas: Ints
    """Broker ids, one row a partition, preferred replica first, padded with NOBODY."""
    movable: Bools
    in_sync: Bools | None = None
    """(row, slot) as `replicas`: in the ISR; None where that is not known, and then all count as in sync."""
    weights: Ints | None = None
    """Bytes of one replica of each partition; then bytes are balanced instead of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGoal:
    """What is wanted beyond emptying the `emptied` brokers.

    `even`: replicas move until brokers are even, not only where they have to. `leaders`: replicas are reordered until
    leaders are even, in partitions that get or lose one; with `reorder` in all that may change. `replacements`:
    (broker, its successor), taken wherever the rules let it. `replication_factor` keeps the preferred leader, unless
    others are to stay before it (`leaving`). `onto`: of brokers that may be given replicas, only these get any they did
    not have, and with `even` no more than they lack of an even share; empty for all. `given`: nothing is optimised, the
    lists are somebody else's.
    """

    even: bool = False
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
    """One entry a replica that is copied (`source` is NOBODY where only one is added) or dropped (no `target`)."""

    row: Ints
    source: Ints
    target: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadSummary:
    """What each broker or rack holds: replicas, preferred leaders and, with weights, bytes; before and after."""

    names: tuple[str, ...]
    replicas: tuple[Ints, Ints]
    leaders: tuple[Ints, Ints]
    bytes: tuple[Ints, Ints] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The answer: new lists for every row (unchanged ones as they were), and what that means."""

    replicas: Ints
    changed: Ints
    """Rows whose list differs, ascending."""
    reasons: tuple[str, ...]
    """One for each of `changed`."""
    moves: Moves
    copies: int
    """Replicas that are copied: what a plan calls its moves."""
    lower_bound: int
    bound: str
    """How the lower bound is derived."""
    uneven: str
    """Why brokers hold numbers of replicas that differ by more than one; empty where they do not."""
    held: Ints
    """Rows left alone because a dead broker that is not being emptied holds a replica of them."""
    left: int
    """Forced changes that `max_moves` left undone."""
    brokers: LoadSummary
    racks: LoadSummary
    given_up: tuple[str, ...]
    """Racks of which every broker is emptied: the only ones that a partition may have fewer for."""
    fewer_racks: int
    """Partitions in fewer racks than before, beside those with fewer replicas."""
    most_in_one_rack: tuple[Ints, Ints]
    """The largest number of replicas of each row in one rack, before and after; 0 where none has a rack."""
    least_in_one_rack: Ints
    """The least that number can be for so many replicas, on the brokers that may hold any."""
    even_in_one_rack: Ints
    """The same if each rack that has such brokers had enough of them."""
    reorders: int
    """Partitions left in their order that `reorder` would change."""
    leaders_reordered: Ints
    """What each broker would lead then."""
