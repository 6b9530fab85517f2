"""Which plan a command of the same goal continues."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.begun_plans import begun_plan
from schemas.rows import CommitRecord
from tests.jobs.support.rows.plan_rows import plan_record

NOW = datetime.now(UTC)
HOUR = 3600.0

# status, hours since it was made, outcomes of its two rows in order -> whether it can go on
CASES = {
    "killed before any outcome": ("committing", 0, ["pending", "pending"], True),
    "interrupted": ("partial", 0, ["applied", "skipped"], True),
    "requested, and moving": ("partial", 0, ["applied", "applied"], True),
    "killed between two waves": ("committing", 0, ["applied"], True),
    "only stale rows are left": ("partial", 0, ["applied", "stale"], False),
    "stale, and a row without an outcome": ("partial", 0, ["stale"], True),
    "too old for a commit": ("partial", 2, ["applied", "skipped"], False),
    "not begun": ("planned", 0, [], False),
    "ended": ("committed", 0, ["applied", "applied"], False),
}


@pytest.mark.usefixtures("empty_tables")
@pytest.mark.parametrize(("status", "hours", "outcomes", "goes_on"), CASES.values(), ids=CASES)
def test_a_plan_that_can_go_on(
    warehouse: Warehouse, status: str, hours: int, outcomes: list[str], *, goes_on: bool
) -> None:
    plan = plan_record(plan_id="5f", status=status, kind="drain", changes=2, created_at=NOW - timedelta(hours=hours))
    warehouse.append("plans", [plan])
    later = NOW + timedelta(seconds=1)
    intents = [("pending", number, NOW) for number in (0, 1) if outcomes]
    decided = [(outcome, number, later) for number, outcome in enumerate(outcomes)]
    rows = [
        CommitRecord(
            plan_id="5f",
            attempt=1,
            wave=0,
            topic="t",
            partition=number,
            action="reassign",
            outcome=outcome,
            committed_at=at,
        )
        for outcome, number, at in (*intents, *decided)
    ]
    warehouse.append("commits", rows)

    found = begun_plan(warehouse, HOUR, lambda row: row.kind == "drain")

    assert (found is not None, begun_plan(warehouse, HOUR, lambda row: row.kind == "elect")) == (goes_on, None)
