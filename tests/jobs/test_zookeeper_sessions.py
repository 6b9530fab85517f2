"""ZooKeeper sessions that a command opens: one, which is passed down, and another one for each controllership.

The end of the session that owns /controller is the resignation, so a controllership cannot share it with what reads
before and after it. Spark's executors connect from their own processes and are not counted.
"""

from typing import Any

import pytest
from kazoo.client import KazooClient

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import PlanKind
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"

SILENT = ("--allow-silent", "0,1,2")
"""Brokers of the tree only listen."""

COMMANDS: list[tuple[tuple[str, ...], int]] = [
    (("snapshot",), 1),
    (("status",), 1),
    (("show", "partitions", "--now"), 1),
    (("doctor",), 1),
    (("migration", "check"), 1),
    (("sizes",), 1),
    (("whatif", "--restart", "1"), 1),
    (("plan", "elect", "--no-refresh", "--name", "e"), 0),
    (("plan", "reconcile", "--name", "p"), 1),
    (("commit", "p"), 1),
    (("verify", "p"), 1),
    (("cancel", "p"), 1),
    (("cancel", "--partitions", "t-0"), 1),
    (("cancel", "--throttles"), 1),
    (("reconcile",), 1),
    (("control",), 1),
    (("reconcile", "--apply", "--yes", *SILENT), 2),
    (("control", "--apply", "--yes", "--until-quiet", *SILENT), 2),
    (("control", "--apply", "--yes", "--standby", "--until-quiet", *SILENT), 2),
]
"""Commands in this order, and the sessions of each."""


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


@pytest.mark.usefixtures("spark")
def test_a_command_has_one_session_and_each_controllership_another(
    tree: KafkaTree, surveyor: Surveyor, sessions: list[KazooClient]
) -> None:
    tree.add_topic(T, {0: [7, 1], 1: [0, 1]})
    opened: list[tuple[tuple[str, ...], int]] = []
    for arguments, _ in COMMANDS:
        sessions.clear()
        surveyor.paced(configs=0.2).run(*arguments, "--zookeeper", tree.hosts)
        opened.append((arguments, len(sessions)))
        assert not any(client.connected for client in sessions)

    assert opened == COMMANDS


def test_one_wave_in_admin_mode_has_one_session(
    tree: KafkaTree,
    controller: KafkaController,
    warehouse: Warehouse,
    sessions: list[KazooClient],
) -> None:
    """The lease belongs to it as well: without the session nothing more may be requested."""
    tree.register(3)
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(warehouse, tree, [reassignment(tree, T, 0, [3, 1])], kind=PlanKind.REASSIGN.value)

    done = Surveyor(warehouse, controller.pace).run(
        *("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply"),
        *("--wait", "--throttle", "1MB/s"),
    )

    assert done.exit_code == 0, done.stderr
    assert controller.replicas(T) == {0: [3, 1]}
    assert len(sessions) == 1


def test_batch_mode_has_two_sessions(
    tree: KafkaTree,
    warehouse: Warehouse,
    surveyor: Surveyor,
    sessions: list[KazooClient],
) -> None:
    """The controllership has a session of its own, because the end of that session is the resignation.

    The poll for the next controller opens none.
    """
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1)])

    assert surveyor.paced(resignation=1.0).apply(tree.hosts, plan.plan_id).exit_code == 0

    assert len(sessions) == 2
