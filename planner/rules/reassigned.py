"""Whether a partition is being reassigned: replicas are being added or removed.

Corresponds to `ReplicaAssignment.isBeingReassigned`. In plain Python and in Spark's SQL; `StoredRows.is_reassigned` is
the same on Arrow, and a test compares them.
"""

from collections.abc import Collection
from typing import Final

IS_REASSIGNED: Final = "size(adding_replicas) + size(removing_replicas) > 0"
"""Condition on rows of PARTITIONS; null if the lists are not understood."""


def is_reassigned(adding: Collection[int] | None, removing: Collection[int] | None) -> bool:
    """Whether a partition with these adding and removing replicas is being reassigned."""
    return bool(adding or removing)
