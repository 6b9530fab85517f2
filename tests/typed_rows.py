"""Changes of which a test sets some columns; the other columns are irrelevant."""

from typing import Any, Final

import msgspec

from schemas.enums import Action
from schemas.rows import Change

UNVERSIONED: Final[dict[str, Any]] = {"state_version": None, "topic_version": None}
"""The versions of changes in a KRaft cluster."""


def typed(**columns: Any) -> Change:  # noqa: ANN401 - columns of CHANGES
    """Return a change of which only these columns matter."""
    lists = ("replicas_after", "adding_after", "removing_after", "isr_after")
    brokers = ("leader_and_isr_to", "requires_live", "requires_dead")
    nothing: dict[str, Any] = {name: [] for name in (*lists, *brokers)}
    named = {"topic": "t", "partition": 0, "action": Action.REASSIGN.value, "leader_after": 0, "reason": "a test"}
    versions = {"state_version": 0, "topic_version": 0, "is_new": False}
    return msgspec.convert({**nothing, **named, **versions, **columns}, Change)
