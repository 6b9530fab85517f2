"""What commit and verify leave out of long lists: it is counted, and the command is named that shows all of it."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

import pytest
from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import app
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

T: Final = "t"
MANY: Final = 60


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """Sixty partitions get leader 1 instead of 0."""
    tree.add_topic(T, {partition: [0, 1, 2] for partition in range(MANY)})
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=1) for partition in range(MANY)])


def _count(text: str, pattern: str) -> int:
    return len(re.findall(pattern, text))


def _lines_of(surveyor: Surveyor, tree: KafkaTree, arguments: Sequence[str]) -> str:
    done = surveyor.run(*arguments, "--zookeeper", tree.hosts)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_dry_commit_and_verify(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """What is left out is shown by a command that can be typed as it stands."""
    dry, verify = ("commit", plan.plan_id, "--mode", "batch"), ("verify", plan.plan_id)
    for command, line, shown, rest in (
        (dry, "would be written: ~ t-", 0, "the 60 changes: surveyor (commit .*)"),
        (verify, "not started: leader", 10, "and 50 more: `surveyor (verify .*)` shows them"),
    ):
        cut = _lines_of(surveyor, tree, command)
        assert _count(cut, line) == shown
        (more,) = re.findall(rf"  .*{rest}", cut)
        typed = {*shlex.split(more)}
        assert typed == {*command, "--all", "--zookeeper", tree.hosts, "--warehouse", surveyor.warehouse.uri}
        whole = CliRunner().invoke(app, shlex.split(more)).stdout
        assert (_count(whole, line), "more:" in whole) == (MANY, False)


def test_what_was_stale(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """All of it: nothing was applied, which is no success."""
    for partition in range(MANY):
        tree.touch(state_path(T, partition))
    dry = _lines_of(surveyor, tree, ("commit", plan.plan_id, "--mode", "batch"))
    assert (_count(dry, "stale: t-"), f"surveyor commit {plan.plan_id} --all" in dry) == (10, True)
    where = f"--warehouse {surveyor.warehouse.uri}"
    applied = surveyor.apply(tree.hosts, plan.plan_id)
    assert (applied.exit_code, _count(applied.stdout, "stale: t-")) == (21, 10)
    assert f"  ... and 50 more: `surveyor show commits {plan.plan_id} --all {where}` shows them" in applied.stdout
    shown = surveyor.run("show", "commits", plan.plan_id, "--all").stdout
    assert _count(shown, "stale") == MANY


def test_what_a_throttle_was_set_to(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    """Replicas by the thousands: people see how it begins, programs all of it."""
    whole = f"topic t: leader.replication.throttled.replicas={','.join(f'{number}:1' for number in range(2000))}"
    row = {"plan_id": plan.plan_id, "attempt": 1, "action": "throttle", "outcome": "pending", "message": whole}
    surveyor.warehouse.append("commits", [row])

    lines = "".join(_lines_of(surveyor, tree, ("show", "commits", plan.plan_id)).split())

    assert ("0:1,1:1,2:1" in lines, "(--jsonhasthefulltext)" in lines, len(lines) < 1500) == (True, True, True)
    assert whole in _lines_of(surveyor, tree, ("show", "commits", plan.plan_id, "--json"))
