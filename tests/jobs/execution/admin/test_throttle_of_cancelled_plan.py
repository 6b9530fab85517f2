"""A cancelled plan whose replicas still move: its throttle can be changed and removed, and is removed at the end."""

import json
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.execution.admin.throttles import set_throttle, throttle_rows
from schemas.enums import PlanKind
from schemas.stored_plan import Plan
from schemas.topic_configs import FOLLOWER_RATE
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.controllers.throttled_tree import overrides
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"


@pytest.fixture
def plan(tree: KafkaTree, controller: KafkaController, warehouse: Warehouse) -> Plan:
    """A cancelled plan whose only partition still moves, throttled."""
    tree.register(3)
    tree.add_topic(T, {0: [0, 1]})
    made = store_plan(
        warehouse, tree, [reassignment(tree, T, 0, [0, 3])], kind=PlanKind.REASSIGN.value, status="cancelled"
    )
    controller.begin((T, 0), [0, 3])
    set_throttle(warehouse, ClientCluster(tree.client), controller, made.plan_id, made.changes, 1000)
    return made


def commit(surveyor: Surveyor, tree: KafkaTree, plan: Plan, *more: str) -> Any:  # noqa: ANN401 - a Result of typer
    return surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--apply", *more)


def rates(tree: KafkaTree) -> set[str]:
    return {config[FOLLOWER_RATE] for config in overrides(tree).values() if FOLLOWER_RATE in config}


def test_rate_is_changed_and_lifted(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    raised = commit(surveyor, tree, plan, "--throttle", "5MB/s")
    then = rates(tree)
    lifted = commit(surveyor, tree, plan, "--throttle", "none")

    assert (raised.exit_code, lifted.exit_code) == (0, 0), raised.stderr + lifted.stderr
    assert "is cancelled: no change was requested" in raised.stdout
    assert (then, overrides(tree), throttle_rows(surveyor.warehouse)) == ({"5000000"}, {}, [])


def test_it_is_removed_once_the_replicas_are_complete(
    tree: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    moving = commit(surveyor, tree, plan)
    then = rates(tree)
    controller.finish((T, 0))
    done = commit(surveyor, tree, plan)

    assert (moving.exit_code, "stays set while" in moving.stderr, then) == (0, True, {"1000"})
    assert (done.exit_code, overrides(tree), throttle_rows(surveyor.warehouse)) == (0, {}, [])
    assert controller.waves == []


def test_a_broker_that_does_not_remove_it_is_named_until_it_does(
    tree: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """The rate that is left limits nothing, because no topic lists throttled replicas, so it is due at once."""
    controller.refuses = "1"
    cancelled = surveyor.run("cancel", plan.plan_id, "--zookeeper", tree.hosts, "--apply", "--yes")
    again = commit(surveyor, tree, plan)
    controller.set_state((T, 0), isr=[0])
    surveyor.run("snapshot", "--zookeeper", tree.hosts)
    status = surveyor.run("status", "--zookeeper", tree.hosts, "--json")
    controller.refuses = None
    removed = commit(surveyor, tree, plan)

    assert "its throttle could not be removed from broker 1" in cancelled.stdout
    assert f"remove its throttle: surveyor commit {plan.plan_id} --apply" in cancelled.stdout
    assert f"plan {plan.plan_id}: cancelled; 1 cancelled now\n" in cancelled.stdout
    assert f"surveyor commit {plan.plan_id} --apply" in again.stdout
    due = json.loads(status.stdout)["due"]
    assert [step["what"] for step in due if "throttle" in step["what"]] == [
        f"nothing moves, and the throttle of plan {plan.plan_id} is still set"
    ]
    assert (cancelled.exit_code, again.exit_code, removed.exit_code) == (1, 1, 0)
    assert (overrides(tree), throttle_rows(surveyor.warehouse)) == ({}, [])


def test_dry_run_leaves_it(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    before = overrides(tree)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--throttle", "5MB/s")

    assert (done.exit_code, overrides(tree)) == (23, before)
