"""`plan recover` on the command line: evidence from history is shown, and only allowed elections are planned."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.adapters.brokers.log_dirs import LOG_COLUMNS
from jobs.planning import plan_draft
from jobs.runtime.settings import Settings
from jobs.snapshots.sizes import store_sizes
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.rows.warehouse_rows import NOW
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

ORDERS = {0: [0, 1, 2], 1: [1, 2, 0]}


def _state(tree: KafkaTree, isr: list[int], epoch: int) -> None:
    text = f'{{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":{epoch},"isr":{isr}}}'
    tree.write(state_path("orders", 0), text.encode())


@pytest.fixture(scope="module")
def lived(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Orders-0 of [0, 1, 2]: 0 left the ISR in snapshot 2, 1 in snapshot 3; then the leader 2 died.

    Tests only use copies of it.
    """
    module_tree.lay_out()
    module_tree.elect(0, epoch=7)
    module_tree.add_topic("orders", ORDERS)
    ready = Surveyor(module_tree.hosts, tmp_path_factory.mktemp("lived") / "warehouse")
    for isr, epoch in (([0, 1, 2], 5), ([1, 2], 6), ([2], 7)):
        _state(module_tree, isr, epoch)
        ready.json("snapshot")
    module_tree.unregister(2)
    ready.json("snapshot")
    return ready


@pytest.fixture
def past(lived: Surveyor, tree: KafkaTree, tmp_path: Path) -> Surveyor:
    """The same history in a cluster of the test's own, before its last snapshot."""
    tree.add_topic("orders", ORDERS)
    _state(tree, [2], 7)
    tree.unregister(2)
    return Surveyor(tree.hosts, lived.copied_to(tmp_path / "warehouse").folder, pace=NO_TAKEOVER)


@pytest.fixture
def surveyor(past: Surveyor) -> Surveyor:
    """The cluster after its last snapshot, which differs from the earlier one only in timestamps."""
    past.json("snapshot")
    return past


def test_a_long_history_gives_the_same_plan(lived: Surveyor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short history is joined by one task; in the copy, the same request has the same result with other joins."""
    modes: list[bool] = []
    session = plan_draft._session  # noqa: SLF001 - what it is asked for is what is tested

    def noted(settings: Settings, *, tiny: bool, one_task: bool) -> SparkSession:
        modes.append(one_task)
        return session(settings, tiny=tiny, one_task=one_task)

    monkeypatch.setattr(plan_draft, "_session", noted)
    short = lived.copied_to(tmp_path / "short").json("plan", "recover", "--allow-unclean")
    monkeypatch.setattr(plan_draft, "MAX_DRIVER_ROWS", 1)
    long = lived.copied_to(tmp_path / "long").json("plan", "recover", "--allow-unclean")
    assert (modes, short["changes"]) == ([True, False], 1)
    assert short["plan_id"] == long["plan_id"]


def test_candidates_are_shown_and_nothing_unclean_is_planned(lived: Surveyor, tmp_path: Path) -> None:
    surveyor = lived.copied_to(tmp_path / "warehouse")
    ran = surveyor("plan", "recover")
    assert ran.code == 0
    lines = [line.strip() for line in ran.stdout.splitlines()]
    assert lines[0].endswith("nothing is due, 1 rejected")
    assert lines[1].startswith("rejected orders-0  UNCLEAN_NOT_ALLOWED: unclean election may lose")
    assert "ranked: 1 (in sync until snapshot 2, leader epochs since: 1), 0 (in sync until snapshot 1" in lines[1]
    assert lines[2].startswith("evidence orders-0  1. broker 1  in sync until snapshot 2 (")
    assert lines[3].startswith("evidence orders-0  2. broker 0  in sync until snapshot 1 (")
    assert lines[3].endswith("leader epochs since 2  log size unknown  Kafka's choice")


def test_candidates_are_shown_with_the_sizes_of_their_logs(lived: Surveyor, tmp_path: Path) -> None:
    surveyor = lived.copied_to(tmp_path / "warehouse")
    log = (0, "orders", 0, "/a", 77, 0, False, NOW)
    sizes = pa.Table.from_pylist([dict(zip(LOG_COLUMNS.names, log, strict=True))], schema=LOG_COLUMNS)
    store_sizes(surveyor.warehouse, [0], sizes)
    lines = [line.strip() for line in surveyor("plan", "recover").stdout.splitlines()]
    assert lines[2].endswith("log size unknown")
    assert lines[3].endswith("leader epochs since 2  log of 77 bytes  Kafka's choice")


def test_unclean_is_dry_then_written_for_the_one_named(surveyor: Surveyor, tree: KafkaTree) -> None:
    plan = surveyor("plan", "recover", "--partition", "orders-0", "--partition", "orders-1", "--name", "rescue")
    before = tree.dump()
    assert surveyor.json("commit", "rescue")["due"] == 1
    assert tree.dump() == before

    surveyor.json("commit", "rescue", "--max-hold", "1s", "--apply")

    state = tree.state("orders", 0)
    assert (state.leader, state.isr, state.leader_epoch, state.leader_recovery_state) == (1, [1], 8, 1)
    assert "orders-0  leader 2→1  isr [2]→[1]  broker 2 is not live; unclean election may lose" in plan.stdout
    assert "rejected orders-1  NOT_OFFLINE" in plan.stdout
    *_, warning, review, apply = plan.stdout.splitlines()
    assert warning.strip().startswith("warning: 1 partition may lose data")
    assert review.startswith("review: surveyor show plan rescue --warehouse ")
    assert apply.startswith("apply: surveyor commit rescue --apply --zookeeper ")
    evidence = surveyor.json("show", "evidence", "rescue")["rows"]
    ranked = [(row["rank"], row["broker_id"], row["chosen"], row["log_size"]) for row in evidence]
    assert ranked == [(1, 1, True, None), (2, 0, False, None)]


def test_clean_needs_no_permission(past: Surveyor, tree: KafkaTree) -> None:
    _state(tree, [2, 0], epoch=7)
    past.json("snapshot")
    plan = past("plan", "recover")
    assert "orders-0  leader 2→0  isr [2,0]→[0]  broker 2 is not live; first live in-sync replica is 0" in plan.stdout


def test_state_that_vanished_is_not_new(past: Surveyor, tree: KafkaTree) -> None:
    """Otherwise the first live replica would lead at epoch 0; recover proposes it, and the epoch continues."""
    tree.client.delete(state_path("orders", 1))
    past.json("snapshot")

    reconciled = past("plan", "reconcile")
    offered = past("plan", "recover")
    plan = past.json("plan", "recover", "--partition", "orders-1")["plan_id"]
    named = past("show", "plan", plan)
    done = past.json("commit", plan, "--max-hold", "1s", "--apply")

    gone = "its state znode is gone: snapshot 4 showed leader 1, ISR 1, 2, 0, leader epoch 5"
    assert f"rejected orders-1  STATE_VANISHED: {gone}; `surveyor plan recover` offers leaders" in reconciled.stdout
    assert f"rejected orders-1  STATE_VANISHED: {gone}; unclean election may lose" in offered.stdout
    assert "evidence orders-1  1. broker 1  in sync until snapshot 4 (" in offered.stdout
    assert f"orders-1  isr [1,2,0]→[1]  {gone}" in named.stdout
    state = tree.state("orders", 1)
    assert (state.leader, state.isr, state.leader_epoch, tree.version("orders", 1)) == (1, [1], 6, 0)
    assert (done["applied"], done["status"]) == (1, "committed")
    events = [(row["subject"], row["before"]) for row in past.warehouse.rows("events", ("kind", "=", "StateVanished"))]
    assert events == [("orders-1", "leader 1, ISR [1, 2, 0], leader epoch 5")]
    past.json("snapshot")
    assert "STATE_VANISHED" not in past("plan", "reconcile").stdout


@pytest.mark.parametrize("topic_id", ["AAAAAAAAAAAAAAAAAAAAAQ", TOPIC_ID])
def test_recreated_topic_is_new(past: Surveyor, tree: KafkaTree, topic_id: str) -> None:
    """The topic id shows it; a topic with the same id is not new."""
    tree.client.delete("/brokers/topics/orders", recursive=True)
    tree.client.delete("/config/topics/orders")
    tree.add_topic("orders", ORDERS, topic_id)
    for partition in (0, 1):
        tree.client.delete(state_path("orders", partition))
    past.json("snapshot")

    plan = past.json("plan", "reconcile")

    counts = (2, 0) if topic_id != TOPIC_ID else (0, 2)
    assert (plan["changes"], plan["rejected"]) == counts
