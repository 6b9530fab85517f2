"""A commit that is killed at any point: the next one finishes the plan, and each state is written once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import take_over
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.interrupted_commit import interrupted_program
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

pytestmark = pytest.mark.torture

T = "t"
PARTITIONS = range(300)

# Batches of ten, so that a commit can be killed in the middle.
COMMAND = """\
from jobs import cli
from jobs.runtime.pace import Pace
cli.main(Pace(resignation=0.0, batch_changes=10))
"""


@pytest.fixture
def topic(tree: KafkaTree) -> KafkaTree:
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    return tree


def move_all(tree: KafkaTree, warehouse: Warehouse, leader: int) -> Plan:
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=leader) for partition in PARTITIONS])


def start_commit(
    hosts: str, warehouse: Warehouse, plan: Plan, *more: str, program: str = COMMAND
) -> subprocess.Popen[str]:
    flags = ("--zookeeper", hosts, "--warehouse", warehouse.uri, "--mode", "batch", "--max-hold", "30s", "--apply")
    return subprocess.Popen(
        [sys.executable, "-c", program, "commit", plan.plan_id, *flags, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def with_id(conf: Path, controller_id: int) -> Path:
    conf.write_text(f"[clusters.default]\ncontroller_id = {controller_id}\n")
    return conf


def finish(surveyor: Surveyor, hosts: str, plan: Plan, conf: Path) -> None:
    """Commit again at once, with another id, because the killed process's session lasts a few more seconds."""
    surveyor.apply(hosts, plan.plan_id, "--conf", str(with_id(conf, 2147483646)))
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def all_states(tree: KafkaTree) -> set[tuple[int, int, int]]:
    """Leader, leader epoch and version of every partition; one element if all are equal."""
    states = ((tree.state(T, partition), tree.version(T, partition)) for partition in PARTITIONS)
    return {(state.leader, state.leader_epoch, version) for state, version in states}


@pytest.mark.parametrize(
    ("multi", "deliver", "moved"),
    [(1, True, 0), (17, False, 150), (31, True, 300)],
)
def test_killed_at_a_multi(  # noqa: PLR0913, PLR0917 - fixtures
    topic: KafkaTree,
    warehouse: Warehouse,
    surveyor: Surveyor,
    proxy: ZooKeeperProxy,
    tmp_path: Path,
    multi: int,
    moved: int,
    *,
    deliver: bool,
) -> None:
    """The first multi takes over, thirty write.

    With `deliver` ZooKeeper executes it, but the commit never gets the answer.
    """
    plan = move_all(topic, warehouse, leader=1)
    killed: list[subprocess.Popen[str]] = []
    loss = proxy.lose(Loss(MULTI, nth=multi, deliver=deliver, then=lambda _: killed[0].kill()))

    with start_commit(proxy.hosts, warehouse, plan) as process:
        killed.append(process)
        process.wait(120)
    written = sum(topic.state(T, partition).leader == 1 for partition in PARTITIONS)
    finish(surveyor, topic.hosts, plan, tmp_path / "surveyor.toml")

    assert loss.happened.is_set()
    assert written == moved
    assert all_states(topic) == {(1, 6, 1)}


def test_paused_while_another_takes_over(topic: KafkaTree, warehouse: Warehouse, proxy: ZooKeeperProxy) -> None:
    """It resumes without its session, and must not continue as if it had it."""
    plan = move_all(topic, warehouse, leader=1)
    paused: list[subprocess.Popen[str]] = []

    def sleep_through_a_take_over(connection: ZooKeeperProxy) -> None:
        paused[0].send_signal(signal.SIGSTOP)
        connection.expire_session()
        take_over(topic.client, 1000)
        paused[0].send_signal(signal.SIGCONT)

    proxy.lose(Loss(MULTI, nth=17, deliver=False, then=sleep_through_a_take_over))
    with start_commit(proxy.hosts, warehouse, plan) as process:
        paused.append(process)
        process.wait(120)

    assert process.returncode == 1
    assert sum(topic.state(T, partition).leader == 1 for partition in PARTITIONS) == 150
    assert topic.client.get("/controller_epoch")[0] == b"9"


def test_two_commits_at_once(topic: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, tmp_path: Path) -> None:
    """With one id the later commit waits or is refused; together they write each state once."""
    plan = move_all(topic, warehouse, leader=1)

    with start_commit(topic.hosts, warehouse, plan) as first, start_commit(topic.hosts, warehouse, plan) as second:
        codes = {first.wait(120), second.wait(120)}
    finish(surveyor, topic.hosts, plan, tmp_path / "surveyor.toml")

    assert codes <= {0, 23}
    assert all_states(topic) == {(1, 6, 1)}


@pytest.mark.parametrize(("signal_name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_interrupted_between_two_batches(  # noqa: PLR0913, PLR0917 - fixtures
    topic: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, tmp_path: Path, signal_name: str, code: int
) -> None:
    """The multi in progress is finished, the rest is left, and the controllership is released at once."""
    plan = move_all(topic, warehouse, leader=1)
    program = interrupted_program(signal_name, batch_changes=10, multis=5)
    with start_commit(topic.hosts, warehouse, plan, program=program) as process:
        _, stderr = process.communicate(timeout=60)

    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1] == "surveyor: interrupted: 50 written, 250 left; commit again to continue"
    assert "  resigned: " in stderr
    assert not topic.client.exists("/controller")
    assert sorted(surveyor.outcomes(plan.plan_id).values()) == ["applied"] * 50 + ["skipped"] * 250
    finish(surveyor, topic.hosts, plan, tmp_path / "surveyor.toml")
    assert all_states(topic) == {(1, 6, 1)}
