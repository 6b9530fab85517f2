"""Racks and drains since a plan: which changes still suit the brokers, and what a dry run shows of the others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.preconditions.broker_assumptions import BrokersSincePlan
from schemas.enums import Action
from tests.jobs.preconditions.test_modes import ELECTION, creation
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows import plan_rows
from tests.jobs.support.rows.warehouse_rows import Cluster, broker
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

MOVED = BrokersSincePlan(moved={3: ("a", "b"), 2: (None, "b")})
DRAINED = BrokersSincePlan(drained={3})
MOVE: dict[str, Any] = {"action": Action.REASSIGN.value, "replicas_before": [1, 2], "leader_before": 1}
RACK_3 = "broker 3 is in rack b and was in rack a when the plan was made"
RACK_2 = "broker 2 is in rack b and was in rack none when the plan was made"
DRAINED_3 = "broker 3 was drained after the plan was made"


@pytest.mark.parametrize(
    ("since", "change", "reason"),
    [
        (MOVED, replace(ELECTION, **MOVE, replicas_after=[1, 3]), RACK_3),
        (MOVED, replace(ELECTION, **MOVE, replicas_after=[2, 4]), RACK_2),
        (MOVED, replace(ELECTION, **MOVE, replicas_after=[1, 4]), None),
        (MOVED, replace(ELECTION, **MOVE, replicas_after=[2, 1]), None),
        (MOVED, creation("new", 0, [1, 3], -1), None),
        (MOVED, ELECTION, None),
        (DRAINED, replace(ELECTION, **MOVE, replicas_after=[1, 3]), DRAINED_3),
        (DRAINED, replace(ELECTION, leader_after=3), DRAINED_3),
        (DRAINED, creation("new", 0, [1, 3], -1), None),
        (DRAINED, replace(ELECTION, leader_before=3), None),
        (DRAINED, replace(ELECTION, leader_before=3, leader_after=3), None),
        (DRAINED, ELECTION, None),
    ],
)
def test_changes_that_add_replicas_or_elect_leaders(since: BrokersSincePlan, change: Any, reason: str | None) -> None:  # noqa: ANN401
    assert since.unsuitable(change) == reason


def test_dry_run_shows_drains_and_creates_topics_as_a_whole(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    """Broker 0 has lost its rack and broker 1 is drained: no leader is moved there, and the new topic is created."""
    tree.add_topic("led", {0: [0, 1], 1: [0, 2]})
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10, rack="a"), broker(1, 11), broker(2, 12)]
    cluster.snapshot()
    changes = [plan_rows.election(tree, "led", 0, 1), plan_rows.election(tree, "led", 1, 2)]
    new = [plan_rows.creation("new", 0, [0, 1]), plan_rows.creation("new", 1, [1, 2])]
    plan = plan_rows.store_plan(warehouse, tree, [*changes, *new], [plan_rows.topic_creation("new")])
    since = datetime.now(UTC) + timedelta(seconds=1)
    warehouse.append("drained", [{"broker_id": 1, "mode": "admin", "plan_id": "5f", "since": since}])

    shown = surveyor.commit(tree.hosts, plan.plan_id, "--all").stdout

    assert "stale: led-0: broker 1 was drained after the plan was made" in shown
    assert [f"would be written: {text}" in shown for text in ("~ led-1", "+ new-0", "+ new-1")] == [True] * 3
