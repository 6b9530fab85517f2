"""Partitions of which a plan leaves fewer in-sync replicas, or fewer replicas, than min.insync.replicas.

If fewer replicas are in sync, producers with acks=all get only errors until a replica returns. For reassignments the
length of the new replica list counts, even if the list was as short before: the lint refuses only what the plan makes
worse. `minimum` has min.insync.replicas by topic in the snapshot that the changes were planned on. Topics that a plan
creates are not in the snapshot; their configs have separate warnings (`operation_warnings`).
"""

from collections.abc import Mapping, Sequence

from jobs.core.arrow_rows import StoredRows, values_of
from schemas.enums import Action
from schemas.rows import Key
from schemas.text import partition_name


def judged_topics(changes: StoredRows) -> set[str]:
    """Return the topics of changes that may leave a partition with fewer replicas, or fewer in sync."""
    reassigns = changes.equal("action", Action.REASSIGN.value)
    return set(changes.where(reassigns | changes.shrinks("isr_after", "isr_before")).values("topic"))


def cancelled_below_min_isr(minimum: Mapping[str, int], isr_after: Mapping[Key, Sequence[int] | None]) -> list[str]:
    """Name the partitions whose ISR is below min.insync.replicas once their reassignments are cancelled.

    >>> cancelled_below_min_isr({"a": 2}, {("a", 0): [2], ("a", 1): [1, 2], ("a", 2): None, ("b", 0): []})
    ['a-0']
    """
    return [
        partition_name(*key) for key, isr in isr_after.items() if isr is not None and len(isr) < minimum.get(key[0], 0)
    ]


def below_min_isr(minimum: Mapping[str, int], changes: StoredRows) -> list[str]:
    """Name the partitions whose ISR changes shrink below min.insync.replicas.

    A plan may have a million changes, so only the few that may fall short are turned into objects.
    """
    without_reassignments = changes.where(~changes.equal("action", Action.REASSIGN.value))
    smaller = without_reassignments.where(without_reassignments.shrinks("isr_after", "isr_before"))
    candidates = smaller.where(smaller.lengths("isr_after") < max(minimum.values(), default=0))
    rows = values_of(candidates.table, "topic", "partition", "isr_after")
    return [partition_name(topic, partition) for topic, partition, isr in rows if len(isr) < minimum.get(topic, 0)]


def short_lists(minimum: Mapping[str, int], changes: StoredRows) -> list[str]:
    """Name the partitions that reassignments leave with fewer replicas than min.insync.replicas.

    The changes are in the order of their waves; the last wave of a partition counts.
    """
    reassigned = changes.where(changes.equal("action", Action.REASSIGN.value))
    may_be_short = reassigned.lengths("replicas_after") < max(minimum.values(), default=0)
    if not may_be_short.any():
        return []
    rows = reassigned.where(reassigned.with_same_key(may_be_short, "topic", "partition")).table
    last = {
        partition_name(topic, partition): len(replicas) < minimum.get(topic, 0)
        for topic, partition, replicas in values_of(rows, "topic", "partition", "replicas_after")
    }
    return [name for name, short in last.items() if short]
