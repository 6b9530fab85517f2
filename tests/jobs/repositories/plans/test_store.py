"""Plans in the table: looks that find nothing do not pile up, and what was verified is recorded once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.stored_tables import is_complete
from jobs.core.errors import RefusedError
from jobs.repositories.plans.commit_log import CommitLog, record_completion
from jobs.repositories.plans.commit_rows import next_attempt
from jobs.repositories.plans.names import Alias, give_name, plan_named
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.plans.plans_writer import apply_transition
from jobs.repositories.plans.store import store
from schemas.enums import Outcome, PlanKind, PlanStatus, Step
from schemas.rows import PlanRecord, Row
from schemas.stored_plan import CLOSED, Transition
from tests.jobs.support.rows.page_rows import change, config_operation

pytestmark = pytest.mark.usefixtures("empty_tables")

REJECTION: Final[Row] = {"topic": "t", "partition": 0, "action": "elect", "code": "NO_ELIGIBLE_LEADER", "reason": ""}


def stored(warehouse: Warehouse, snapshot_id: int, name: str | None = None, **more: Any) -> str:  # noqa: ANN401
    rows = {"changes": [], "rejections": [REJECTION], "operations": more.pop("operations", [])}
    rows["changes"] = more.pop("changes", [])
    content: dict[str, Any] = {"kind": PlanKind.RECONCILE, "parameters": {}, "cluster_id": "id", "broker_epochs": {}}
    plan = store(
        warehouse,
        Alias(name),
        PlanHeader(**content | {"snapshot_id": snapshot_id} | more),
        InMemoryRows(warehouse=warehouse, **rows),
    )
    return str(plan.plan_id)


def test_the_last_look_that_found_nothing_is_kept(warehouse: Warehouse) -> None:
    """Of the same question; not what has a name, changes something, drains, or asks something else."""
    kept = {
        stored(warehouse, 1, "named"),
        stored(warehouse, 1, changes=[change("t", 1, [1, 2], [2, 1])]),
        stored(warehouse, 1, kind=PlanKind.CONFIG, operations=[config_operation()]),
        stored(warehouse, 1, kind=PlanKind.DRAIN),
        stored(warehouse, 1, parameters={"allow_unclean": True}),
    }
    looks = [stored(warehouse, snapshot_id) for snapshot_id in (1, 2, 3)]
    drains = stored(warehouse, 2, kind=PlanKind.DRAIN)

    assert {row["plan_id"] for row in warehouse.rows("plans")} == {*kept, looks[-1], drains}
    assert {row["plan_id"] for row in warehouse.rows("rejections")} == {*kept, looks[-1], drains}
    assert stored(warehouse, 3) == looks[-1]
    assert len(warehouse.rows("plans")) == len(kept) + 2


def test_a_plan_is_verified_once(warehouse: Warehouse) -> None:
    """It stays complete until it is called or led back."""
    plan_id = stored(warehouse, 1, changes=[change("t", 1, [1, 2], [2, 1])])
    record_completion(warehouse, read_plan(warehouse, plan_id))
    first = read_plan(warehouse, plan_id)
    record_completion(warehouse, first)
    again = read_plan(warehouse, plan_id)

    assert first.row.verified_at is not None
    assert abs(datetime.now(UTC) - first.row.verified_at) < timedelta(minutes=5)
    assert (first.row.verified_at, is_complete(first.row)) == (again.row.verified_at, True)
    apply_transition(warehouse, plan_id, Transition.ROLL_BACK)
    assert not is_complete(read_plan(warehouse, plan_id).row)


def test_a_plan_that_changes_nothing_is_not_recorded_as_complete(warehouse: Warehouse) -> None:
    plan_id = stored(warehouse, 1)
    record_completion(warehouse, read_plan(warehouse, plan_id))

    assert read_plan(warehouse, plan_id).row.verified_at is None


@pytest.mark.parametrize("transition", [Transition.BEGIN, Transition.CANCEL])
def test_only_a_closing_overwrites_the_status_of_a_closed_plan(warehouse: Warehouse, transition: Transition) -> None:
    """What else a transition starts from, its command has judged when it read the plan."""
    plan = {"snapshot_id": 1, "kind": PlanKind.REASSIGN.value, "created_at": datetime.now(UTC)}
    warehouse.append("plans", [plan | {"plan_id": status.name, "status": status.value} for status in PlanStatus])
    for status in PlanStatus:
        apply_transition(warehouse, status.name, transition)

    is_closing = transition.after in CLOSED
    assert {row.plan_id: row.status for row in warehouse.typed_rows(PlanRecord)} == {
        status.name: (transition.after if is_closing or status in transition.before else status).value
        for status in PlanStatus
    }


MANY = 6


def stored_plan(warehouse: Warehouse, snapshot_id: int = 1) -> PlanRecord:
    """Of a kind that no newer plan takes the place of."""
    content = PlanHeader(
        kind=PlanKind.DRAIN,
        parameters={"brokers": [1], "mode": "admin"},
        snapshot_id=snapshot_id,
        cluster_id=None,
        broker_epochs={},
        status=PlanStatus.PLANNED,
    )
    return store(warehouse, Alias(), content, InMemoryRows(warehouse=warehouse, changes=[], rejections=[]))


def test_commits_of_one_plan_have_a_number_each(warehouse: Warehouse) -> None:
    plan = read_plan(warehouse, stored_plan(warehouse).plan_id)

    def begin(_: int) -> None:
        CommitLog.open(warehouse, plan).step(Step.TAKE_OVER, Outcome.APPLIED, "")

    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(begin, range(MANY)))

    assert sorted(row["attempt"] for row in warehouse.rows("commits")) == list(range(1, MANY + 1))
    assert next_attempt(warehouse, plan.plan_id) == MANY + 1


def test_a_name_wanted_by_several_plans_at_once_goes_to_one(warehouse: Warehouse) -> None:
    plans = [stored_plan(warehouse, number).plan_id for number in range(1, MANY + 1)]

    def name(plan_id: str) -> bool:
        try:
            give_name(warehouse, plan_id, Alias("night"))
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(MANY) as pool:
        given = list(pool.map(name, plans))

    named = plan_named(warehouse, "night")
    assert given.count(True) == 1
    assert named is not None
    assert named.plan_id == plans[given.index(True)]


def test_equal_plans_made_at_once_are_stored_once(warehouse: Warehouse) -> None:
    with ThreadPoolExecutor(MANY) as pool:
        made = list(pool.map(lambda _: stored_plan(warehouse).plan_id, range(MANY)))

    assert [row["plan_id"] for row in warehouse.rows("plans")] == [made[0]]
    assert len(set(made)) == 1


def test_a_name_for_a_plan_that_is_gone_meanwhile_is_refused(warehouse: Warehouse) -> None:
    stored_plan(warehouse)

    with pytest.raises(RefusedError, match="was replaced by a newer plan in the meantime; plan again"):
        give_name(warehouse, "0123456789abcdef", Alias("night"))
