"""Partial plans that have ended: complete in the meantime, overtaken by later plans, or without their topic."""

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.execution.partial_plan_closing import close_ended_before_status
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.plans_reader import read_plan
from jobs.runtime.settings import Settings
from schemas.enums import Outcome, PlanKind
from schemas.stored_plan import Plan, RowOutcome
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T, OTHER = "t", "other"
BEFORE = {0: [0, 1], 1: [1, 2]}


@pytest.fixture
def partial(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    """A plan of two moves, of which a commit has requested one, and has recorded that it failed."""
    rows = [reassignment(kafka, T, 0, [3, 1]), reassignment(kafka, OTHER, 0, [0, 3])]
    plan = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value, name="first")
    commit_log = CommitLog.open(warehouse, plan)
    commit_log.append_intents(plan.changes)
    commit_log.add_outcomes(RowOutcome(change, Outcome.FAILED, "a test") for change in plan.changes)
    commit_log.close()
    assert read_plan(warehouse, "first").row.status == "partial"
    return plan


def _end(controller: KafkaController, kafka: KafkaTree, now: dict[str, list[int] | None]) -> None:
    for topic, replicas in now.items():
        if replicas is None:
            kafka.client.delete(f"/brokers/topics/{topic}", recursive=True)
        else:
            controller.begin((topic, 0), replicas)
            controller.finish((topic, 0))


# replicas of both partitions now, None without the topic -> state of the plan
ENDS: list[tuple[dict[str, list[int] | None], str]] = [
    ({T: [3, 1], OTHER: [0, 3]}, "committed"),
    ({T: [3, 1]}, "partial"),
    ({T: [3, 1], OTHER: None}, "cancelled (topic other gone)"),
    ({T: None, OTHER: None}, "cancelled (topics other, t gone)"),
    ({T: [2, 3], OTHER: None}, "partial"),
]


@pytest.mark.parametrize(("now", "state"), ENDS, ids=str)
def test_a_plan_of_which_nothing_is_left_to_do_is_closed(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    settings: Settings,
    partial: Plan,
    now: dict[str, list[int] | None],
    state: str,
) -> None:
    _end(controller, kafka, now)
    close_ended_before_status(settings)
    assert read_plan(settings.warehouse, partial.plan_id).row.state == state


@pytest.mark.usefixtures("no_lease_waits", "controller")
def test_a_plan_is_closed_by_the_commit_of_later_plans(
    kafka: KafkaTree, surveyor: Surveyor, warehouse: Warehouse, partial: Plan
) -> None:
    later = {"second": (T, [2, 3]), "third": (OTHER, [1, 3])}
    titles = []
    for name, (topic, replicas) in later.items():
        row = reassignment(kafka, topic, 0, replicas)
        plan = store_plan(warehouse, kafka, [row], kind=PlanKind.REASSIGN.value, name=name)
        titles.append(plan.title)
        done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "admin", "--apply", "--wait")
        assert done.exit_code == 0, done.stderr
        closed = read_plan(warehouse, partial.plan_id).row
        assert (closed.status == "cancelled") == (name == "third")
    assert closed.status_reason == f"overtaken by plans {', '.join(sorted(titles))}"
    refused = surveyor.run("commit", "first", "--zookeeper", kafka.hosts, "--apply")
    assert refused.exit_code == 23
    assert f"is cancelled ({closed.status_reason}); plan again" in refused.stderr
    shown = surveyor.run("status", "--zookeeper", kafka.hosts)
    assert "plan first" not in shown.stdout
