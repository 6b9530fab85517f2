"""`surveyor cancel --partitions`: foreign reassignments are turned back, and leftover requests are removed."""

import json
from itertools import count
from operator import itemgetter
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper import znode_reads
from jobs.adapters.zookeeper.lease_znode import LEASE
from jobs.console_output.replicas_and_commits import NO_SNAPSHOT
from jobs.execution.admin.resident_controller_client import MAX_CHECK_SECONDS
from jobs.repositories.actor import this_process
from jobs.sql_views.database import Summaries
from schemas.lease_holder import encode_holder
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, KilledError, delay_once
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat

T = "web-logs"
REASSIGN = "/admin/reassign_partitions"
DONE, ERROR, USAGE, REFUSED, RUNNING = 0, 1, 2, 23, 25


@pytest.fixture
def controller(controller: KafkaController, tree: KafkaTree) -> KafkaController:
    """Partition 0 moves to 9, which is down.

    Requests exist for 1, which is complete, for a deleted topic, and for 2.
    """
    tree.add_topic(T, {0: [0, 1], 1: [0, 1], 2: [1, 2]})
    controller.reassign({(T, 0): [0, 9]})
    controller.requests.clear()
    request(tree, {(T, 1): [0, 1], ("ghost", 3): [1], (T, 2): [2, 1]})
    return controller


def request(tree: KafkaTree, wanted: dict[tuple[str, int], list[int]]) -> None:
    rows = [{"topic": topic, "partition": number, "replicas": to} for (topic, number), to in wanted.items()]
    tree.write(REASSIGN, json.dumps({"version": 1, "partitions": rows}).encode())


def requested(tree: KafkaTree) -> list[str] | None:
    if not tree.client.exists(REASSIGN):
        return None
    return [f"{row['topic']}-{row['partition']}" for row in json.loads(tree.client.get(REASSIGN)[0])["partitions"]]


def cancel(surveyor: Surveyor, tree: KafkaTree, names: str, *more: str) -> Any:  # noqa: ANN401 - a Result of typer
    return surveyor.run("cancel", "--partitions", names, "--zookeeper", tree.hosts, *more)


def test_dry_run_changes_nothing_and_shows_its_work(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    before = tree.dump()

    done = cancel(surveyor, tree, f"{T}-0,{T}-1,ghost-3,ghost-4")

    assert (done.exit_code, tree.dump(), controller.requests) == (DONE, before, [])
    expected = (
        "3 partitions to be cancelled",
        f"{T}-0  to be cancelled: replicas [0, 9, 1], adding [9], removing [1] → [0,1]",
        "ghost-3  its request for [1] to be removed from /admin/reassign_partitions",
        "ghost-4  no such partition",
        f"\napply: surveyor cancel --apply --partitions {T}-0,{T}-1,ghost-3,ghost-4",
    )
    assert [text for text in expected if text not in done.stdout] == []


def test_reassignments_turn_back_and_requests_are_removed(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    done = cancel(surveyor, tree, f"{T}-0,{T}-1,ghost-3,ghost-4", "--apply", "--json")

    assert done.exit_code == DONE, done.stderr
    assert controller.assigned(T, 0) == ([0, 1], [], [])
    assert requested(tree) == [f"{T}-2"]
    assert controller.requests == [{(T, 0): None, (T, 1): None, ("ghost", 3): None}]
    assert {name: json.loads(done.stdout)[name] for name in ("cancelled_now", "failed")} == {
        "cancelled_now": 3,
        "failed": 0,
    }


@pytest.mark.parametrize("arguments", [f"--partitions {T}-1", "--throttles"])
def test_a_warehouse_that_cannot_be_read_prevents_no_cancellation(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, arguments: str
) -> None:
    """Its table `snapshots` has files, but no log."""
    lost = Path(surveyor.warehouse.uri) / "snapshots" / "part-0.parquet"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"")
    cancelled = cancel(surveyor, tree, f"{T}-0,{T}-1,{T}-2,ghost-3", "--apply")
    done = surveyor.run("cancel", *arguments.split(), "--zookeeper", tree.hosts, "--json")

    assert (cancelled.exit_code, controller.assigned(T, 0)) == (DONE, ([0, 1], [], []))
    assert done.exit_code == DONE, done.stderr
    (warning,) = json.loads(done.stdout)["warnings"]
    assert warning.startswith("could not check whether --warehouse has another cluster under this name: ")


def test_cancellations_are_recorded_as_plans(tree: KafkaTree, surveyor: Surveyor, controller: KafkaController) -> None:
    lay_tables(surveyor.warehouse)
    controller.refused_moves = {(T, 0)}
    failed = cancel(surveyor, tree, f"{T}-0,ghost-3", "--apply")
    controller.refused_moves = set()
    done = cancel(surveyor, tree, f"{T}-0", "--apply")

    assert (failed.exit_code, done.exit_code) == (ERROR, DONE)
    plans = {row["plan_id"]: row for row in surveyor.warehouse.rows("plans")}
    columns = itemgetter("action", "topic", "outcome")
    of_plan = {plans[plan_id]["status"]: sorted(map(columns, surveyor.commits(plan_id))) for plan_id in plans}
    assert of_plan == {
        "partial": [
            ("cancel", "ghost", "applied"),
            ("cancel", "ghost", "pending"),
            ("cancel", T, "failed"),
            ("cancel", T, "pending"),
            ("withdraw_reassignment", "ghost", "applied"),
            ("withdraw_reassignment", "ghost", "pending"),
        ],
        "committed": [("cancel", T, "applied"), ("cancel", T, "pending")],
    }
    at = Summaries(surveyor.warehouse, NO_SNAPSHOT)
    assert [(row["kind"], row["outcome"], row["applied"]) for row in at.rows("commit_log")] == [
        ("cancel", "applied", 1),
        ("cancel", "failed", 2),
    ]


def test_a_killed_cancellation_is_committed_like_any_plan(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    lay_tables(surveyor.warehouse)
    controller.crash_at(1, done=False)
    with pytest.raises(KilledError):
        cancel(surveyor, tree, f"{T}-0,ghost-3", "--apply")
    (plan,) = surveyor.warehouse.rows("plans")
    done = surveyor.run("commit", plan["plan_id"], "--zookeeper", tree.hosts, "--apply")

    assert (done.exit_code, surveyor.status(plan["plan_id"])) == (DONE, "committed"), done.stderr
    assert (controller.assigned(T, 0), requested(tree)) == (([0, 1], [], []), [f"{T}-1", f"{T}-2"])


def test_znode_is_deleted_with_the_last_request(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    del controller
    done = cancel(surveyor, tree, f"ghost-3,{T}-1,{T}-2", "--apply")

    assert (done.exit_code, requested(tree)) == (DONE, None), done.stderr
    again = cancel(surveyor, tree, f"ghost-3,{T}-1,{T}-2", "--apply")
    assert (again.exit_code, "nothing is left to cancel" in again.stdout) == (DONE, True)


REQUESTED = [f"{T}-1", "ghost-3", f"{T}-2"]


@pytest.mark.parametrize(("flags", "code"), [((), REFUSED), (("--skip-unsafe",), DONE)])
def test_judged_again_after_a_request_was_removed(  # noqa: PLR0913, PLR0917 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    controller: KafkaController,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    code: int,
) -> None:
    """The original replicas fell behind meanwhile."""
    place = (ZooKeeperCluster, "withdraw_requests")
    clock = delay_once(monkeypatch, *place, lambda: controller.set_state((T, 0), leader=9, isr=[9]))
    lay_tables(surveyor.warehouse)

    done = cancel(surveyor.paced(clock=clock), tree, f"{T}-0,{T}-2", "--apply", *flags)

    assert (done.exit_code, controller.assigned(T, 0)[1]) == (code, [9]), done.stderr
    assert controller.requests == ([{(T, 2): None}] if flags else [])
    of_moving = [row["outcome"] for row in surveyor.warehouse.rows("commits") if row["partition"] == 0]
    assert sorted(of_moving) == ["pending", "skipped"]
    assert (f"{T}-0  continues: NO_ELIGIBLE_LEADER" in done.stdout) == bool(flags)


@pytest.mark.parametrize(
    "successor", [None, encode_holder(this_process("commit", "of another"))], ids=["none", "a commit"]
)
def test_no_request_is_removed_without_the_lease(
    tree: KafkaTree,
    surveyor: Surveyor,
    controller: KafkaController,
    monkeypatch: pytest.MonkeyPatch,
    successor: bytes | None,
) -> None:
    """ZooKeeper ended the session meanwhile: what is requested now may be that of another process with the lease."""
    withdraw = ZooKeeperCluster.withdraw_requests

    def connected_again(*arguments: Any) -> None:  # noqa: ANN401 - those of the original
        tree.client.delete(LEASE)
        if successor is not None:
            tree.write(LEASE, successor)
        withdraw(*arguments)

    monkeypatch.setattr(ZooKeeperCluster, "withdraw_requests", connected_again)

    done = cancel(surveyor, tree, f"{T}-0,{T}-2", "--apply")

    assert (done.exit_code, controller.requests, requested(tree)) == (RUNNING, [], REQUESTED), done.stderr


def test_nothing_is_requested_if_each_check_of_the_lease_takes_long(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    clock = SimpleNamespace(monotonic=count(0, MAX_CHECK_SECONDS).__next__, time=time)

    done = cancel(surveyor.paced(clock=clock), tree, f"{T}-0,ghost-3", "--apply")

    assert (done.exit_code, controller.requests, requested(tree)) == (ERROR, [], REQUESTED)
    assert "not requested: each check of the lease took more than 5 s" in done.stdout


def test_what_cannot_be_decoded_is_not_cancelled(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    """Whether a partition of it moves is unknown; its request is removed."""
    tree.add_topic("odd", {0: [0, 1]})
    request(tree, {("odd", 0): [1, 0], ("ghost", 3): [1]})
    tree.write("/brokers/topics/odd", b'{"partitions":{"0":[1,1]}}')

    done = cancel(surveyor, tree, "odd-0,ghost-3", "--apply")

    assert (done.exit_code, requested(tree), controller.requests) == (DONE, None, [{("ghost", 3): None}]), done.stderr


@pytest.mark.parametrize(("isr", "code", "outcome"), [([0, 1], DONE, "applied"), ([9], ERROR, "failed")])
def test_a_broker_that_is_added_and_removed_at_once(  # noqa: PLR0913, PLR0917 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    controller: KafkaController,
    isr: list[int],
    code: int,
    outcome: str,
) -> None:
    """Kafka's controller does not write this; a cancellation and a completion leave the same replicas."""
    lay_tables(surveyor.warehouse)
    tree.write(f"/brokers/topics/{T}", encode_assignment(Assignment({0: [0, 1, 9]}, {0: [9]}, {0: [9]}, TOPIC_ID)))
    controller.after_request = lambda: controller.set_state((T, 0), leader=isr[0], isr=isr)

    done = cancel(surveyor, tree, f"{T}-0", "--apply", "--json")

    assert done.exit_code == code, done.stderr
    assert (controller.assigned(T), json.loads(done.stdout)["failed"]) == (([0, 1], [], []), int(outcome == "failed"))
    (row,) = (row for row in surveyor.warehouse.rows("commits") if row["outcome"] != "pending")
    assert row["outcome"] == outcome, row


def test_concurrently_changed_request_is_read_again(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, monkeypatch: pytest.MonkeyPatch
) -> None:
    del controller
    read = znode_reads.read_latest
    stats: list[ZnodeStat] = []

    def changed_after(client: Any, path: str) -> Any:  # noqa: ANN401 - kazoo is untyped
        znode = read(client, path)
        if not stats:
            stats.append(znode.stat)
            request(tree, {("ghost", 3): [1], ("newer", 0): [2]})
        return znode

    monkeypatch.setattr("jobs.adapters.zookeeper.admin_requests.read_latest", changed_after)

    done = cancel(surveyor, tree, "ghost-3", "--apply")

    assert (done.exit_code, requested(tree)) == (DONE, ["newer-0"]), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--partitions", "orders"], "expected TOPIC-NUMBER[,TOPIC-NUMBER...], as in orders-0,orders-1"),
        (["moves", "--partitions", "t-0"], "given: PLAN and --partitions"),
        ([], "give the plan to cancel (`surveyor show plans --"),
    ],
)
def test_usage(tree: KafkaTree, surveyor: Surveyor, arguments: list[str], words: str) -> None:
    done = surveyor.run("cancel", *arguments, "--zookeeper", tree.hosts)

    assert (done.exit_code, words in done.stderr) == (USAGE, True), done.stderr
