"""Whether a partition without a state had one before, by the recorded history: such a partition is not new.

Plain-Python counterpart of `planner.history.lost_states`, which explains why; a change of one needs the other.
"""

from collections.abc import Sequence
from typing import NamedTuple


class PastState(NamedTuple):
    """A row of PARTITION_HISTORY of one partition."""

    snapshot_id: int
    topic_version: int
    had_state: bool
    has_vanished: bool
    """Whether the row marks that the partition no longer existed."""


class LostState(NamedTuple):
    """The last snapshot with a state, and the first row of history after it, None if there is none."""

    seen: int
    gone: int | None


def lost_state(history: Sequence[PastState], topic_version: int) -> LostState | None:
    """Return when a partition had its last state; None if it is new.

    It is new if it vanished itself since, or if the version of its topic's znode is lower than it was then. Both mean
    that the topic was deleted and created again.
    """
    rows = sorted(history)
    with_state = [row for row in rows if row.had_state and not row.has_vanished]
    vanished = max((row.snapshot_id for row in rows if row.has_vanished), default=0)
    if not with_state or with_state[-1].snapshot_id <= vanished or with_state[-1].topic_version > topic_version:
        return None
    later = [row.snapshot_id for row in rows if row.snapshot_id > with_state[-1].snapshot_id]
    return LostState(with_state[-1].snapshot_id, later[0] if later else None)


def is_same_topic(topic_id: str | None, topic_version: int, id_then: str | None, version_then: int | None) -> bool:
    """Return whether a topic is the one that had this id and znode version when the state was lost.

    An unknown id, as of topics before Kafka 2.8, decides nothing. A znode that was created again restarts its versions.
    """
    is_another = topic_id is not None and id_then is not None and topic_id != id_then
    return not is_another and (version_then is None or version_then <= topic_version)
