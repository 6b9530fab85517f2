"""Warnings of partitions that a rollback leaves on fewer racks.

The rollback was requested explicitly, so fewer racks are not a fault. Plans of the optimiser have figures of their
racks instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from jobs.core.arrow_rows import StoredRows, values_of
from planner.topics.rack_crowding import least_crowding, max_per_rack
from schemas.enums import Action
from schemas.rows import Key, PlanRecord
from schemas.text import pluralise

Lists = dict[Key, tuple[Sequence[int], Sequence[int]]]
"""Replicas of each partition before the first wave of a plan and after its last."""


def lists_of(changes: StoredRows) -> Lists:
    """Return the lists that the reassignments of a plan begin and end with."""
    moves = changes.where(changes.equal("action", Action.REASSIGN.value)).table
    rows = values_of(moves, "wave", "topic", "partition", "replicas_before", "replicas_after")
    lists: Lists = {}
    for _, topic, partition, before, after in sorted(rows, key=itemgetter(0)):
        lists[topic, partition] = lists.get((topic, partition), (before or (),))[0], after
    return lists


def is_rollback(plan: PlanRecord) -> bool:
    """Return whether a plan rolls another one back."""
    return "rollback_of" in plan.options


def spread_warnings(lists: Lists, racks: Mapping[int, str], usable: Sequence[int]) -> Iterator[str]:
    """Compare lists before and after, each by its own replication factor.

    >>> lists = {("t", 0): ([1, 2], [1, 3]), ("t", 1): ([1, 2, 3, 4], [1, 3]), ("t", 2): ([1, 2, 3, 4], [1, 2])}
    >>> list(spread_warnings(lists, {1: "a", 2: "b", 3: "a", 4: "b"}, [1, 2, 3, 4]))
    ['2 partitions are in fewer racks than now']
    >>> lists = {("t", 0): ([1, 2, 3, 4], [1, 3, 2, 5]), ("t", 1): ([1, 2], [1, 2, 3])}
    >>> list(spread_warnings(lists, {1: "a", 2: "b", 3: "a", 4: "b", 5: "a"}, [1, 2, 3, 4, 5]))
    ['1 partition gets more replicas in one rack than necessary']
    """
    fewer = crowded = 0
    for before, after in lists.values():
        spans = [len({racks[broker] for broker in some if broker in racks}) for some in (before, after)]
        above = [max_per_rack(some, racks) - least_crowding(len(some), racks, usable) for some in (before, after)]
        if spans[1] < min(spans[0], len(after)):
            fewer += 1
        elif above[1] > max(above[0], 0):
            crowded += 1
    if fewer:
        yield f"{pluralise(fewer, 'partition', 'is', 'are')} in fewer racks than now"
    if crowded:
        yield f"{pluralise(crowded, 'partition', 'gets', 'get')} more replicas in one rack than necessary"
