"""The plans of the warehouse that requested running reassignments, and the authors of their commits.

A plan requested a reassignment if a commit recorded the intent, and the partition moves to the target of the plan. Of
several such plans the last one counts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from schemas.enums import Action, Outcome
from schemas.rows import CommitRecord, Key, PlanRecord
from schemas.text import partition_name

_COLUMNS: Final = ("plan_id", "topic", "partition", "replicas_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingPlan:
    """A plan that requested reassignments which run now."""

    row: PlanRecord
    author: str
    """User and host, and the Airflow task, of the last commit that requested one of them."""
    since: datetime
    """Time at which that commit recorded its first intent."""
    keys: Sequence[Key] = field(default=())
    """The partitions of the running reassignments."""

    @property
    def partitions(self) -> list[str]:
        return [partition_name(*key) for key in self.keys]

    @property
    def begun(self) -> str:
        """Author and time of the commit."""
        return f"{self.author} since {self.since:%Y-%m-%d %H:%M:%S} UTC"


def moving_plans(warehouse: Warehouse, targets: Mapping[Key, Sequence[int]]) -> list[MovingPlan]:
    """Return the plans that requested these reassignments, given by target replicas, each with its partitions."""
    if not targets or not warehouse.exists() or not warehouse.has("commits"):
        return []
    topics = ("topic", "in", sorted({topic for topic, _ in targets}))
    changes = warehouse.read("changes", topics, ("action", "=", Action.REASSIGN.value), columns=_COLUMNS)
    planned: dict[str, set[Key]] = defaultdict(set)
    for plan_id, topic, partition, replicas in values_of(changes, *_COLUMNS):
        if replicas == list(targets.get((topic, partition), ())):
            planned[plan_id].add((topic, partition))
    of_plans = ("plan_id", "in", sorted(planned))
    intents = [
        row
        for row in (warehouse.typed_rows(CommitRecord, of_plans, topics) if planned else ())
        if row.outcome == Outcome.PENDING and (row.topic, row.partition) in planned[row.plan_id]
    ]
    last = {(row.topic, row.partition): row for row in sorted(intents, key=attrgetter("committed_at"))}
    keys: dict[str, list[Key]] = defaultdict(list)
    for key, row in last.items():
        keys[row.plan_id].append(key)  # type: ignore[arg-type] # intents of reassignments name a partition
    plans = warehouse.typed_rows(PlanRecord, ("plan_id", "in", sorted(keys))) if keys else []
    return [_moving_plan(plan, sorted(keys[plan.plan_id]), [*last.values()], intents) for plan in plans]


def _moving_plan(
    plan: PlanRecord, keys: list[Key], last: Sequence[CommitRecord], intents: Sequence[CommitRecord]
) -> MovingPlan:
    newest = max((row for row in last if row.plan_id == plan.plan_id), key=attrgetter("committed_at"))
    of_attempt = [row for row in intents if (row.plan_id, row.attempt) == (plan.plan_id, newest.attempt)]
    author = f"{newest.who or 'an unknown user'}{f' ({newest.run})' if newest.run else ''}"
    return MovingPlan(row=plan, author=author, since=min(row.committed_at for row in of_attempt), keys=keys)
