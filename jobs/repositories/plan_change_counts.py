"""Counts of the changes of a stored plan by broker, topic, action and reason."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from jobs.core.arrow_rows import StoredRows, ValueCount
from schemas.enums import NO_LEADER
from schemas.rows import Row

BROKER_EFFECTS: Final = {
    "leader_gained": ("leader_after", "leader_before"),
    "leader_lost": ("leader_before", "leader_after"),
    "replicas_gained": ("replicas_after", "replicas_before"),
    "replicas_lost": ("replicas_before", "replicas_after"),
    "isr_joined": ("isr_after", "isr_before"),
    "isr_left": ("isr_before", "isr_after"),
}
"""The effects of a change on a broker, and the columns whose difference shows them."""


def by_broker(changes: StoredRows) -> list[Row]:
    """Count each broker's gains and losses; brokers with the most come first."""
    counted: dict[int, dict[str, int]] = {}
    for effect, columns in BROKER_EFFECTS.items():
        gained = changes.gained(*columns)
        brokers, counts = np.unique(gained[gained != NO_LEADER], return_counts=True)
        for broker, count in zip(brokers.tolist(), counts.tolist(), strict=True):
            counted.setdefault(broker, dict.fromkeys(BROKER_EFFECTS, 0))[effect] = count
    most_first = sorted(counted.items(), key=lambda counts: (-sum(counts[1].values()), counts[0]))
    return [{"broker_id": broker, **effects} for broker, effects in most_first]


def affecting_broker(changes: StoredRows, broker: int) -> StoredRows:
    """Keep the changes that affect a broker as leader, replica, ISR member or preferred replica."""
    before, after = (changes.brokers(f"replicas_{when}")[:, 0] == broker for when in ("before", "after"))
    concerned = before ^ after
    for columns in BROKER_EFFECTS.values():
        concerned |= (changes.gained(*columns) == broker).any(axis=1)
    return changes.where(concerned)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """Numbers of changes by action, topic, broker and reason, the most frequent first."""

    actions: list[ValueCount]
    topics: list[ValueCount]
    topics_in_all: int
    brokers: list[Row]
    """The columns of BROKER_EFFECTS by broker."""
    reasons: list[ValueCount]
    reasons_in_all: int

    @property
    def json(self) -> Row:
        """The JSON object."""
        return {
            "actions": [{"action": value, "rows": rows} for value, rows in self.actions],
            "topics": [{"topic": value, "rows": rows} for value, rows in self.topics],
            "topics_in_all": self.topics_in_all,
            "brokers": self.brokers,
            "reasons": [{"reason": value, "rows": rows} for value, rows in self.reasons],
            "reasons_in_all": self.reasons_in_all,
        }


def count_changes(changes: StoredRows) -> ChangeCounts:
    """Count changes by action, topic, broker and reason."""
    return ChangeCounts(
        actions=changes.counts("action"),
        topics=changes.counts("topic"),
        topics_in_all=changes.distinct("topic"),
        brokers=by_broker(changes),
        reasons=changes.counts("reason"),
        reasons_in_all=changes.distinct("reason"),
    )
