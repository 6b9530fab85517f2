"""Waves in admin mode: the second is requested once the first is complete, and not otherwise.

The Admin API is a fake that changes the tree as Kafka's controller does.
"""

from typing import Any

import pytest

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.precondition_reader import read_current
from jobs.execution.admin.admin_commit import commit_admin
from jobs.execution.admin.commit_lease import lease_for
from jobs.preconditions.wave_outcomes import evaluate_waves
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import Action, Outcome, PlanKind
from schemas.rows import Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

T = "t"


def _demotion(tree: KafkaTree, partition: int) -> list[Row]:
    order = {"replicas_after": [1, 2, 0], "leader_epoch_after": None, "action": Action.REASSIGN.value}
    then = {"wave": 1, "replicas_before": [1, 2, 0], "replicas_after": [1, 2, 0], "leader_epoch_before": 6}
    return [
        election(tree, T, partition, leader=0, **order),
        election(tree, T, partition, leader=1, leader_epoch_after=7, **then),
    ]


def _refusing(tree: KafkaTree) -> KafkaController:
    """It will not reassign partition 1."""
    controller = KafkaController(tree)
    controller.refused_moves = {(T, 1)}
    return controller


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    tree.add_topic(T, {0: [0, 1, 2], 1: [0, 1, 2]})
    changes = [change for partition in (0, 1) for change in _demotion(tree, partition)]
    parameters = '{"brokers": [0], "mode": "admin"}'
    return store_plan(warehouse, tree, changes, kind=PlanKind.DRAIN.value, parameters=parameters)


def _commit(tree: KafkaTree, warehouse: Warehouse, plan: Plan, controller: Any) -> CommitLog:  # noqa: ANN401 - a fake of Admin
    settings = settings_of(warehouse.uri, tree.hosts)
    commit_log = CommitLog.open(warehouse, plan)
    due, outcomes = evaluate_waves(plan.changes, read_current(tree.client, plan.changes))
    commit_log.add_outcomes(outcomes)
    if due:
        with (
            ZooKeeperCluster(settings.zookeeper_endpoint) as cluster,
            lease_for(settings, cluster, plan.plan_id, "commit") as lease,
        ):
            commit_admin(settings, cluster, commit_log, controller, due, lease=lease)
    commit_log.close()
    return commit_log


def test_order_first_then_leaders(tree: KafkaTree, warehouse: Warehouse, plan: Plan) -> None:
    controller = KafkaController(tree)

    commit_log = _commit(tree, warehouse, plan, controller)

    assert (controller.waves, controller.elected) == ([[(T, 0), (T, 1)]], [(T, 0), (T, 1)])
    assert len(commit_log.of(Outcome.APPLIED)) == len(plan.changes)
    assert {tree.state(T, partition).leader for partition in (0, 1)} == {1}
    assert [row["broker_id"] for row in warehouse.rows("drained")] == [0]


def test_no_election_if_the_order_was_refused(tree: KafkaTree, warehouse: Warehouse, plan: Plan) -> None:
    commit_log = _commit(tree, warehouse, plan, _refusing(tree))

    outcomes = {(v.change.partition, v.change.wave): v.outcome for v in commit_log.outcomes}
    expected = {(0, 0): Outcome.APPLIED, (0, 1): Outcome.APPLIED, (1, 0): Outcome.FAILED, (1, 1): Outcome.SKIPPED}
    assert outcomes == expected
    assert tree.state(T, 1).leader == 0


def test_a_planned_leader_proves_no_order_of_replicas(tree: KafkaTree, plan: Plan) -> None:
    """Broker 1 leads because broker 0 failed; of partition 0 the order has been changed by another client as well."""
    orders = Assignment({0: [0, 2, 1], 1: [1, 2, 0]}, {}, {}, TOPIC_ID)
    tree.client.set(f"/brokers/topics/{T}", encode_assignment(orders))
    for partition in (0, 1):
        text = '{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":7,"isr":[0,1,2]}'
        tree.write(state_path(T, partition), text.encode())

    pending, outcomes = evaluate_waves(plan.changes, read_current(tree.client, plan.changes))

    assert pending == []
    assert {(row.change.partition, row.change.wave): row.outcome for row in outcomes} == {
        (0, 0): Outcome.STALE,
        (0, 1): Outcome.APPLIED,
        (1, 0): Outcome.APPLIED,
        (1, 1): Outcome.APPLIED,
    }


def test_rest_is_done_by_the_next_commit(tree: KafkaTree, warehouse: Warehouse, plan: Plan) -> None:
    _commit(tree, warehouse, plan, _refusing(tree))

    again = _commit(tree, warehouse, plan, KafkaController(tree))
    idle = KafkaController(tree)
    _commit(tree, warehouse, plan, idle)

    assert len(again.of(Outcome.APPLIED)) == len(plan.changes)
    assert (idle.waves, idle.elected) == ([], [])
    assert warehouse.rows("plans")[0]["status"] == "committed"
