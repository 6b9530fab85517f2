"""Which live brokers are no longer as a plan assumed: drained since, or in another rack.

`Preconditions.broken` decides by it on changes, in a commit and in what `show plan` and `status` show.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from schemas.rows import Broker, ChangeSummary, DrainedBroker


@dataclass(frozen=True, slots=True)
class BrokersSincePlan:
    """What has changed of the brokers since a plan was made."""

    moved: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    """The planned and the current rack of live brokers in another rack."""
    drained: Collection[int] = ()
    """Brokers that were drained after the plan was made."""

    def unsuitable(self, change: ChangeSummary) -> str | None:
        """Return why the brokers no longer suit a change that adds replicas or elects a leader.

        A topic or partition that does not exist yet is created all the same: in part it would be of no use, and its
        replicas can be moved.
        """
        if change.replicas_before is None:
            return None
        added = [broker for broker in change.replicas_after if broker not in change.replicas_before]
        if added:
            for broker in change.replicas_after:
                if broker in self.moved:
                    planned, now = self.moved[broker]
                    return (
                        f"broker {broker} is in rack {now or 'none'} and was in rack {planned or 'none'} when the plan "
                        "was made"
                    )
        leader = [change.leader_after] if change.leader_after != change.leader_before else []
        drained = [broker for broker in (*added, *leader) if broker in self.drained]
        return f"broker {drained[0]} was drained after the plan was made" if drained else None


UNCHANGED: Final = BrokersSincePlan()


def brokers_since(
    plan_id: str,
    planned_at: datetime,
    planned_racks: Mapping[int, str | None],
    brokers: Iterable[Broker],
    drained: Iterable[DrainedBroker],
) -> BrokersSincePlan:
    """Compare brokers with what a plan knew; its own commit may have drained some of them.

    >>> brokers = [Broker(broker_id=b, rack=rack, understood=True) for b, rack in ((1, "a"), (2, "b"), (3, None))]
    >>> marks = ((1, "q", 1), (2, "q", 3), (3, "p", 3))
    >>> drained = [DrainedBroker(broker_id=b, mode="admin", plan_id=p, since=datetime(2026, 1, d)) for b, p, d in marks]
    >>> brokers_since("p", datetime(2026, 1, 2), {1: "a", 2: "c"}, brokers, drained)
    BrokersSincePlan(moved={2: ('c', 'b')}, drained=frozenset({2}))
    """
    moved = {
        row.broker_id: (planned_racks[row.broker_id], row.rack)
        for row in brokers
        if row.understood and row.broker_id in planned_racks and planned_racks[row.broker_id] != row.rack
    }
    since = (row.broker_id for row in drained if row.plan_id != plan_id and row.since > planned_at)
    return BrokersSincePlan(moved, frozenset(since))


def broken_assumptions(reasons_of_changes: Sequence[str | None]) -> list[str]:
    """Return each broken assumption, and how many changes rest on it; None stands for a change with none.

    >>> broken_assumptions(["broker 2 is live again", None, "broker 2 is live again"])
    ['broker 2 is live again: 2 of 3 changes assume otherwise']
    """
    counts = Counter(reason for reason in reasons_of_changes if reason is not None)
    changes = "change assumes" if len(reasons_of_changes) == 1 else "changes assume"
    return [
        f"{reason}: {count} of {len(reasons_of_changes)} {changes} otherwise" for reason, count in counts.most_common()
    ]
