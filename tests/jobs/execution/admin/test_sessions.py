"""ZooKeeper sessions that a commit opens: each costs a connection, and an expired one must not end a long wait."""

from typing import Any

import pytest
from kazoo.client import KazooClient

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import PlanKind
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.moving_controller import MovingController
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[KazooClient]:
    """The clients that were started."""
    started: list[KazooClient] = []
    start = KazooClient.start_async

    def counted(client: KazooClient) -> Any:  # noqa: ANN401 - kazoo's
        started.append(client)
        return start(client)

    monkeypatch.setattr(KazooClient, "start_async", counted)
    return started


@pytest.mark.parametrize("more", [("--wait", "--throttle", "1MB/s"), ("--via", "zookeeper")])
def test_one_wave_in_admin_mode_has_one_session(  # noqa: PLR0913, PLR0917 - fixtures
    tree: KafkaTree,
    controller: MovingController,
    warehouse: Warehouse,
    surveyor: Surveyor,
    sessions: list[KazooClient],
    more: tuple[str, ...],
) -> None:
    """The lease belongs to it as well: without the session nothing more may be requested."""
    tree.register(3)
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(warehouse, tree, [reassignment(tree, T, 0, [3, 1])], kind=PlanKind.REASSIGN.value)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", *more)

    assert done.exit_code == 0, done.stderr
    assert controller.replicas(T) == {0: [3, 1]}
    assert len(sessions) == 1


def test_batch_mode_has_two_sessions(
    tree: KafkaTree,
    warehouse: Warehouse,
    surveyor: Surveyor,
    sessions: list[KazooClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controllership has a session of its own, because the end of that session is the resignation.

    The poll for the next controller opens none.
    """
    monkeypatch.setattr("jobs.execution.batch.batch_commit.RESIGN_TIMEOUT_SECONDS", 1.0)
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1)])

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == 0

    assert len(sessions) == 2
