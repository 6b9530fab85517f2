"""What became of plans and commits, counted for dashboards. No JVM.

Rows of `commits` are intents, written before, and outcomes, written after: an intent without an outcome is what an
attempt that was killed, or that still runs, leaves. Steps, such as a take-over, are not counted: they are no rows of a
plan.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.repository import is_cycle
from schemas.enums import Outcome, PlanStatus, Step

_KEY: Final = ("plan_id", "attempt", "wave", "topic", "partition", "action")
_STEPS: Final = pa.array([step.value for step in Step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Counts by the words of the tables; every word there is has a count."""

    plans: dict[str, int]
    """Plans by status, without the cycles of `surveyor control`, which wait for no commit."""
    rows: dict[str, int]
    """Rows of `commits` by outcome; `pending`: intents without one."""
    last_commit_at: datetime | None
    """When a commit last recorded something, UTC."""


def read_outcomes(lake: Warehouse) -> Outcomes:
    """Count plans and rows of commits; raise UnreadableError where there are no such tables."""
    plans = lake.read("plans", columns=["status", "kind", "parameters"]).to_pylist()
    statuses = Counter(plan["status"] for plan in plans if not is_cycle(plan))
    commits = lake.read("commits", columns=[*_KEY, "outcome", "committed_at"])
    of_plans = commits.filter(pc.invert(pc.is_in(commits["action"].cast(pa.string()), _STEPS)))
    is_intent = pc.equal(of_plans["outcome"].cast(pa.string()), Outcome.PENDING.value)
    done = of_plans.filter(pc.invert(is_intent))
    counted = Counter(done["outcome"].to_pylist())
    counted[Outcome.PENDING.value] = _distinct_keys(of_plans) - _distinct_keys(done)
    return Outcomes(
        plans={status.value: statuses[status.value] for status in PlanStatus},
        rows={outcome.value: counted[outcome.value] for outcome in Outcome},
        last_commit_at=pc.max(commits["committed_at"]).as_py(),
    )


def _distinct_keys(rows: pa.Table) -> int:
    return int(rows.select(list(_KEY)).group_by(list(_KEY)).aggregate([]).num_rows)
