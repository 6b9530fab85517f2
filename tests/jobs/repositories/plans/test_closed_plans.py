"""What closed a plan, as it is recorded: the cancellation of it, or the rollback that led it back."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import RefusedError
from jobs.repositories.actor import Actor
from jobs.repositories.plans.commit_log import CommitLog, closed_line
from schemas.enums import PlanStatus
from schemas.rows import Row
from schemas.stored_plan import Plan
from tests.jobs.support.rows.plan_rows import plan_record

AT: Final = datetime(2026, 11, 25, 19, 0, 5, tzinfo=UTC)
WHEN: Final = "at 2026-11-25 19:00:05 UTC"


def step(plan_id: str, action: str, user: str, **columns: Any) -> Row:  # noqa: ANN401
    common = {"attempt": 1, "outcome": "applied", "committed_at": AT}
    return {"plan_id": plan_id, "action": action, "who": user, **common, **columns}


# status of the plan, rows of commits, and what is said; plan `back` is the rollback of plan `p`
CASES: Final[list[tuple[PlanStatus, list[Row], str]]] = [
    (PlanStatus.CANCELLED, [step("p", "cancel", "olga@desk")], f"was cancelled by olga@desk {WHEN}"),
    (PlanStatus.CANCELLED, [step("p", "cancel", "olga@desk", run="dag/task")], f"by olga@desk (dag/task) {WHEN}"),
    (
        PlanStatus.CANCELLED,
        [step("p", "cancel", "olga@desk"), step("p", "reassign", "anna@desk"), step("q", "cancel", "anna@desk")],
        f"was cancelled by olga@desk {WHEN}",
    ),
    (PlanStatus.CANCELLED, [step("p", "reassign", "anna@desk")], "was cancelled"),
    (PlanStatus.ROLLED_BACK, [step("back", "reassign", "olga@desk")], f"was rolled back by olga@desk {WHEN}"),
    (PlanStatus.ROLLED_BACK, [step("p", "reassign", "anna@desk")], "was rolled back"),
]


@pytest.mark.parametrize(("status", "commits", "said"), CASES)
def test_a_closed_plan_names_its_closer_and_is_not_continued(
    tmp_path: Path, status: PlanStatus, commits: list[Row], said: str
) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    row = plan_record("p", status=status.value)
    back = plan_record("back", status="committed", parameters='{"rollback_of": "p"}')
    warehouse.append("plans", [row, back])
    warehouse.append("commits", commits)

    line = closed_line(warehouse, row)

    assert line.endswith(said)
    assert line.startswith(("was cancelled", "was rolled back"))
    commit_log = CommitLog(warehouse, Plan(row, [], [], []), Actor("anna@desk"))
    with pytest.raises(RefusedError) as refused:
        commit_log.refuse_closed()
    assert str(refused.value) == f"plan p {line}: nothing more of it is submitted; plan again"
