"""Counts of plans and commit outcomes for metrics and the dashboard. It needs no JVM.

Rows of `commits` are intents, written before a change, and outcomes, written after it. An intent without an outcome
belongs to an attempt that was killed or still runs. Steps, such as a take-over of the controllership, are not counted
because they are not rows of a plan.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse, typed
from schemas.enums import Outcome, PlanStatus, Step
from schemas.rows import PlanRecord

_KEY: Final = ("plan_id", "attempt", "wave", "topic", "partition", "action")
_PLAN_COLUMNS: Final = ("plan_id", "snapshot_id", "kind", "parameters", "created_at", "status")
_STEPS: Final = pa.array([step.value for step in Step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Counts by status and outcome, including zeros."""

    plans: dict[str, int]
    """Plans by status, without the cycles of `surveyor control`, which are not committed."""
    rows: dict[str, int]
    """Rows of `commits` by outcome; `pending` counts intents without an outcome."""
    last_commit_at: datetime | None
    """Time of the last row of `commits`, UTC."""


def read_outcomes(lake: Warehouse) -> Outcomes:
    """Count plans and rows of commits; raise UnreadableError if the tables do not exist."""
    plans = typed(PlanRecord, lake.read("plans", columns=_PLAN_COLUMNS))
    statuses = Counter(plan.status for plan in plans if not plan.is_cycle)
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
