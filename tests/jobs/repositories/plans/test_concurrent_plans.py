"""Plans and commits that begin at the same time: a name is one plan's, a number one attempt's, a plan one row."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import RefusedError
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.commit_rows import next_attempt
from jobs.repositories.plans.names import Alias, give_name, plan_named
from jobs.repositories.plans.record_builders import InMemoryRows, PlanHeader
from jobs.repositories.plans.repository import read_plan
from jobs.repositories.plans.store import store
from schemas.enums import Outcome, PlanKind, PlanStatus, Step
from schemas.rows import PlanRecord

pytestmark = pytest.mark.usefixtures("empty_tables")

MANY = 6


def stored(warehouse: Warehouse, snapshot_id: int = 1) -> PlanRecord:
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
    plan = read_plan(warehouse, stored(warehouse).plan_id)

    def begin(_: int) -> None:
        CommitLog.open(warehouse, plan).step(Step.TAKE_OVER, Outcome.APPLIED, "")

    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(begin, range(MANY)))

    assert sorted(row["attempt"] for row in warehouse.rows("commits")) == list(range(1, MANY + 1))
    assert next_attempt(warehouse, plan.plan_id) == MANY + 1


def test_a_name_wanted_by_several_plans_at_once_goes_to_one(warehouse: Warehouse) -> None:
    plans = [stored(warehouse, number).plan_id for number in range(1, MANY + 1)]

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
        made = list(pool.map(lambda _: stored(warehouse).plan_id, range(MANY)))

    assert [row["plan_id"] for row in warehouse.rows("plans")] == [made[0]]
    assert len(set(made)) == 1


def test_a_name_for_a_plan_that_is_gone_meanwhile_is_refused(warehouse: Warehouse) -> None:
    stored(warehouse)

    with pytest.raises(RefusedError, match="was replaced by a newer plan in the meantime; plan again"):
        give_name(warehouse, "0123456789abcdef", Alias("night"))
