"""Status of a plan after attempts that found changes stale, and what of its changes assumes brokers otherwise."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.assumptions import assumptions_now
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.commit_rows import CommitRows
from jobs.repositories.plans.plans_reader import read_plan
from schemas.enums import Action, Outcome, PlanKind
from schemas.rows import Broker, BrokerEpoch, Change, PlanRecord, Row
from schemas.stored_plan import Plan, RowOutcome
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import creation, plan_record

STALE, APPLIED, FAILED, SKIPPED = Outcome.STALE, Outcome.APPLIED, Outcome.FAILED, Outcome.SKIPPED
PENDING, UNKNOWN = Outcome.PENDING, Outcome.UNKNOWN


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse(str(tmp_path / "tables"), "default")
    lay_tables(warehouse)
    return warehouse


def change(row: Row) -> Change:
    return msgspec.convert({**row, "cluster": "default", "plan_id": "p"}, Change)


def attempt(warehouse: Warehouse, plan: Plan, outcomes: list[Outcome], *, intents: bool, unfinished: bool) -> None:
    """Record the outcomes of one attempt, in which PENDING stands for none."""
    commit_log = CommitLog.open(warehouse, plan)
    if intents:
        commit_log.append_intents(plan.changes)
    rows = zip(plan.changes, outcomes, strict=False)
    commit_log.add_outcomes(RowOutcome(change, outcome, "") for change, outcome in rows if outcome is not PENDING)
    commit_log.unfinished = unfinished
    commit_log.close()


# outcomes of two changes in each attempt, whether intents were recorded, whether it ended by an error -> status
ATTEMPTS: Final[list[tuple[list[list[Outcome]], bool, bool, str]]] = [
    ([[STALE, STALE]], False, False, "planned"),
    ([[STALE, STALE]], True, False, "planned"),
    ([[STALE, STALE], [STALE, STALE]], True, False, "planned"),
    ([[STALE]], False, True, "planned"),
    ([[STALE, SKIPPED], [STALE, STALE]], True, False, "planned"),
    ([[STALE, STALE], [APPLIED, APPLIED]], True, False, "committed"),
    ([[STALE, APPLIED]], True, False, "partial"),
    ([[STALE, FAILED]], True, False, "partial"),
    ([[STALE, UNKNOWN]], True, False, "partial"),
    ([[STALE, SKIPPED]], True, True, "partial"),
    ([[STALE, PENDING]], True, False, "partial"),
    ([[PENDING, PENDING]], True, False, "partial"),
    ([[STALE, APPLIED], [STALE, STALE]], True, False, "partial"),
    ([[STALE, FAILED], [STALE, STALE]], True, False, "partial"),
    ([[STALE, PENDING], [STALE, STALE]], True, False, "partial"),
]


@pytest.mark.parametrize(("attempts", "intents", "unfinished", "status"), ATTEMPTS)
def test_a_plan_of_which_nothing_was_applied_is_planned(
    warehouse: Warehouse, attempts: list[list[Outcome]], *, intents: bool, unfinished: bool, status: str
) -> None:
    changes = [change(creation("t", partition, [1, 2])) for partition in range(2)]
    plan = Plan(plan_record("p"), changes, [], [])
    warehouse.append("plans", [plan.row])

    for outcomes in attempts:
        attempt(warehouse, plan, outcomes, intents=intents, unfinished=unfinished)

    assert read_plan(warehouse, "p").row.status == status
    assert len(warehouse.rows("commits", ("outcome", "=", STALE.value))) == sum(row.count(STALE) for row in attempts)


def test_a_drain_that_has_marked_its_brokers_is_partial(warehouse: Warehouse) -> None:
    changes = [change(creation("t", 0, [1, 2]))]
    parameters = '{"brokers": [1], "mode": "admin"}'
    plan = Plan(plan_record("p", kind=PlanKind.DRAIN.value, parameters=parameters), changes, [], [])
    warehouse.append("plans", [plan.row])

    attempt(warehouse, plan, [STALE], intents=True, unfinished=False)

    assert (read_plan(warehouse, "p").row.status, len(warehouse.rows("drained"))) == ("partial", 1)


MOVE: Final[dict[str, Any]] = {"action": Action.REASSIGN.value, "topic_version": 1, "replicas_before": [1, 3]}
WAVES: Final = [creation("t", 0, [1, 2]) | MOVE | {"wave": wave, "requires_dead": [3][wave:]} for wave in range(2)]

# changes of a plan for brokers 1 and 2, live brokers now -> what is broken
ASSUMED: Final[dict[str, tuple[list[Row], list[int], list[str]]]] = {
    "nothing has changed": ([creation("t", 0, [1, 2])], [1, 2], []),
    "a new topic is created as a whole": (
        [creation("t", 0, [1]), creation("t", 1, [2]), creation("other", 0, [1])],
        [1],
        ["broker 2 is not live: 2 of 3 changes assume otherwise"],
    ),
    "partitions are added as a whole": (
        [creation("t", number, [number], None) | {"topic_version": 1} for number in (1, 2)],
        [1],
        ["broker 2 is not live: 2 of 2 changes assume otherwise"],
    ),
    "partitions are moved on their own": (
        [creation("t", number, [number]) | MOVE for number in (1, 2)],
        [1],
        ["broker 2 is not live: 1 of 2 changes assume otherwise"],
    ),
    "a later wave follows the earlier": (WAVES, [1, 2, 3], ["broker 3 is live again: 2 of 2 changes assume otherwise"]),
}


def stored(warehouse: Warehouse, changes: list[Row]) -> PlanRecord:
    warehouse.append("changes", [{**row, "plan_id": "p"} for row in changes])
    return plan_record("p", brokers=[BrokerEpoch(broker_id=1), BrokerEpoch(broker_id=2)])


@pytest.mark.parametrize(("changes", "live", "broken"), ASSUMED.values(), ids=ASSUMED)
def test_as_many_changes_assume_otherwise_as_a_commit_skips(
    warehouse: Warehouse, changes: list[Row], live: list[int], broken: list[str]
) -> None:
    plan = stored(warehouse, changes)

    assert assumptions_now(warehouse, plan, [Broker(broker_id=b, understood=True) for b in live]) == broken


def test_an_applied_change_assumes_nothing(warehouse: Warehouse) -> None:
    plan = stored(warehouse, WAVES)
    CommitRows.begin(warehouse, plan.plan_id).append([RowOutcome(change(WAVES[0]), APPLIED, "")])

    assert assumptions_now(warehouse, plan, [Broker(broker_id=b, understood=True) for b in (1, 2, 3)]) == []
