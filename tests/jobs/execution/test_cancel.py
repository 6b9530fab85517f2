"""`surveyor cancel`: dry unless --apply, safe or refused, the same result after a crash; its output and records."""

import json
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import ZnodeLease
from jobs.repositories.actor import Actor
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.plans_writer import apply_transition
from schemas.enums import Outcome, PlanStatus, Step
from schemas.stored_plan import Plan, Transition
from schemas.znode_codecs import encode_config
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, KilledError, delay_once
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"
DONE, ERROR, USAGE, REFUSED, RUNNING = 0, 1, 2, 23, 25
BEFORE = {0: [0, 1], 1: [0, 1, 2], 2: [0, 1], 3: [0, 1]}
AFTER = {0: [0, 1, 2], 1: [2, 3, 1], 2: [0, 2], 3: [1, 2]}
"""A pure addition, a move that reorders, and two plain moves."""


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse, controller: KafkaController) -> Plan:
    """0 and 1 are in progress, 2 is complete, 3 has not been requested yet."""
    tree.register(3)
    tree.add_topic(T, BEFORE)
    changes = [reassignment(tree, T, partition, after) for partition, after in AFTER.items()]
    stored = store_plan(warehouse, tree, changes, kind="reassign", name="moves", moves=4)
    controller.reassign({(T, partition): AFTER[partition] for partition in (0, 1, 2)})
    controller.finish((T, 2))
    controller.requests.clear()
    warehouse.update("plans", "true", status="'partial'")
    return stored


def cancel(surveyor: Surveyor, tree: KafkaTree, *arguments: str) -> Any:  # noqa: ANN401 - a Result of typer
    return surveyor.run("cancel", "moves", "--zookeeper", tree.hosts, *arguments)


def assignments(controller: KafkaController) -> dict[int, tuple[list[int], list[int], list[int]]]:
    return {partition: controller.assigned(T, partition) for partition in BEFORE}


CANCELLED: dict[int, tuple[list[int], list[int], list[int]]] = {
    partition: (AFTER[partition] if partition == 2 else before, [], []) for partition, before in BEFORE.items()
}


@pytest.mark.usefixtures("plan")
def test_dry_run_changes_nothing(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    before = tree.dump()

    done = cancel(surveyor, tree)

    assert done.exit_code == DONE
    assert "dry run: nothing was written" in done.stdout
    assert (tree.dump(), controller.requests) == (before, [])
    assert (warehouse.rows("commits"), warehouse.rows("plans")[0]["status"]) == ([], PlanStatus.PARTIAL)


@pytest.mark.usefixtures("plan", "controller")
def test_dry_run_shows_each_partition(tree: KafkaTree, surveyor: Surveyor) -> None:
    stdout = cancel(surveyor, tree).stdout

    assert "t-0  to be cancelled: replicas [0, 1, 2], adding [2], removing [] → [0,1]" in stdout
    assert "t-1  to be cancelled: replicas [2, 3, 1, 0], adding [3], removing [0] → [0,1,2]" in stdout
    assert "t-2  complete, not undone: replicas [0, 2]" in stdout
    assert "\nroll back what is complete: surveyor rollback moves --zookeeper " in stdout


@pytest.mark.usefixtures("plan", "controller")
@pytest.mark.parametrize("named", [["moves"], ["--partitions", "t-0,t-1"]], ids=["plan", "partitions"])
def test_partitions_left_below_min_isr_are_named_before_anything_is_written(
    tree: KafkaTree, surveyor: Surveyor, named: list[str]
) -> None:
    tree.write(f"/config/topics/{T}", encode_config({"min.insync.replicas": "3"}))
    warned = "1 partition is left with fewer in sync than min.insync.replicas, so acks=all writes fail there: t-0"
    dry = surveyor.run("cancel", *named, "--zookeeper", tree.hosts, "--json")
    assert (dry.exit_code, json.loads(dry.stdout)["warnings"]) == (DONE, [warned]), dry.stderr
    assert f"  warning: {warned}" in surveyor.run("cancel", *named, "--zookeeper", tree.hosts).stdout
    done = surveyor.run("cancel", *named, "--zookeeper", tree.hosts, "--apply")
    assert (done.exit_code, f"warning: {warned}" in done.stderr) == (DONE, True), done.stderr


@pytest.mark.usefixtures("plan")
def test_running_partitions_are_back_and_in_order(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    done = cancel(surveyor, tree, "--apply", "--json")

    assert done.exit_code == DONE, done.stderr
    assert controller.requests == [{(T, 0): None, (T, 1): None}, {(T, 1): [0, 1, 2]}]
    assert assignments(controller) == CANCELLED
    result = json.loads(done.stdout)
    assert {name: result[name] for name in ("status", "cancelled_now", "reordered_now", "failed", "complete")} == {
        "status": "cancelled",
        "cancelled_now": 2,
        "reordered_now": 1,
        "failed": 0,
        "complete": 1,
    }


@pytest.mark.usefixtures("plan")
def test_an_order_that_another_client_set_is_left_alone(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    """No commit of the plan has requested the partition, so its order is not what a cancellation left."""
    order = BEFORE[3][::-1]
    controller.reassign({(T, 3): order})

    done = cancel(surveyor, tree, "--apply")

    assert (done.exit_code, controller.assigned(T, 3)) == (DONE, (order, [], []))
    assert "t-3  left alone, another client changed it" in done.stdout


@pytest.mark.usefixtures("plan")
@pytest.mark.usefixtures("single_requests")
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_large_cancellation_is_sent_in_requests_of_bounded_size(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, *, is_lost: bool
) -> None:
    """Here of one partition; after a lost answer none follows, and the next cancellation sends the rest."""
    requests = [{(T, 0): None}, {(T, 1): None}, {(T, 1): [0, 1, 2]}]
    if is_lost:
        controller.lose_answer_of(1, done=True)
        assert (cancel(surveyor, tree, "--apply").exit_code, controller.requests) == (ERROR, requests[:1])

    assert cancel(surveyor, tree, "--apply").exit_code == DONE
    assert controller.requests == requests
    assert assignments(controller) == CANCELLED


@pytest.mark.usefixtures("controller")
def test_history_records_it(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    cancel(surveyor, tree, "--apply")

    rows = sorted(surveyor.warehouse.rows("commits"), key=lambda row: row["committed_at"])
    (made,) = (row for row in surveyor.warehouse.rows("plans") if row["kind"] == "cancel")
    assert (made["status"], json.loads(made["parameters"])["cancel_of"]) == ("committed", plan.plan_id)
    recorded = [(row["plan_id"], row["action"], row["partition"], row["outcome"]) for row in rows]
    assert recorded[0] == (plan.plan_id, "cancel", None, "applied")
    assert {*recorded[1:]} == {
        (made["plan_id"], action, partition, outcome)
        for action, partition in (("cancel", 0), ("cancel", 1), ("reassign", 1))
        for outcome in ("pending", "applied")
    }


@pytest.mark.usefixtures("plan")
def test_no_commit_continues_it(tree: KafkaTree, surveyor: Surveyor, controller: KafkaController) -> None:
    cancel(surveyor, tree, "--apply")
    controller.requests.clear()

    done = surveyor.run("commit", "moves", "--zookeeper", tree.hosts, "--mode", "admin", "--apply")

    assert (done.exit_code, controller.requests) == (REFUSED, [])
    assert "is cancelled; plan again" in done.stderr


def test_running_commit_stops_and_leaves_it_cancelled(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    """The first wave is requested, the plan is cancelled, and the second wave is not requested."""
    tree.add_topic(T, BEFORE)
    waves = [reassignment(tree, T, 2, [1, 0]), reassignment(tree, T, 3, [1, 0], wave=1)]
    plan = store_plan(warehouse, tree, waves, kind="reassign", name="moves")

    def cancel_elsewhere() -> None:
        apply_transition(warehouse, plan.plan_id, Transition.CANCEL)
        CommitLog.open(warehouse, plan, Actor("olga@desk")).step(
            Step.CANCEL, Outcome.APPLIED, "closed; it was committing"
        )

    controller.after_request = cancel_elsewhere

    done = surveyor.run("commit", "moves", "--zookeeper", tree.hosts, "--mode", "admin", "--apply")

    assert (done.exit_code, len(controller.requests)) == (REFUSED, 1), done.stderr
    assert warehouse.rows("plans")[0]["status"] == PlanStatus.CANCELLED
    assert "was cancelled by olga@desk at 20" in done.stderr
    assert "nothing more of it is submitted; plan again" in done.stderr


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(("call", "done"), [(1, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("crash", [True, False])
def test_crash_or_lost_answer_anywhere_and_again(  # noqa: PLR0913 - a table
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, *, call: int, done: bool, crash: bool
) -> None:
    if crash:
        controller.crash_at(call, done=done)
        with pytest.raises(KilledError):
            cancel(surveyor, tree, "--apply")
    else:
        controller.lose_answer_of(call, done=done)
        assert cancel(surveyor, tree, "--apply").exit_code == (DONE if done else ERROR)

    again = cancel(surveyor, tree, "--apply", "--json")
    requests_before = len(controller.requests)
    once_more = cancel(surveyor, tree, "--apply", "--json")

    assert (again.exit_code, once_more.exit_code) == (DONE, DONE)
    assert assignments(controller) == CANCELLED
    assert json.loads(once_more.stdout)["status"] == "cancelled"
    assert len(controller.requests) == requests_before, "nothing twice"


def cancelling(surveyor: Surveyor) -> dict[str, str]:
    """The status of each plan that cancels, by id."""
    return {row["plan_id"]: row["status"] for row in surveyor.warehouse.rows("plans") if row["kind"] == "cancel"}


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("call", [1, 2])
def test_a_killed_cancellation_is_committed_like_any_plan(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, call: int
) -> None:
    controller.crash_at(call, done=False)
    with pytest.raises(KilledError):
        cancel(surveyor, tree, "--apply")
    ((plan_id, status),) = cancelling(surveyor).items()
    shown = surveyor.run("show", "plan", plan_id).stdout
    done = surveyor.run("commit", plan_id, "--zookeeper", tree.hosts, "--apply")
    verified = surveyor.run("verify", plan_id, "--zookeeper", tree.hosts)

    assert status == PlanStatus.PARTIAL
    assert "t-1  replicas [2,3,1,0]→[0,1,2]  cancels the reassignment to [2, 3, 1]" in shown
    assert (done.exit_code, cancelling(surveyor)) == (DONE, {plan_id: PlanStatus.COMMITTED}), done.stderr
    assert (assignments(controller), "3 complete" in verified.stdout) == (CANCELLED, True), verified.stdout


@pytest.mark.usefixtures("plan")
def test_a_killed_cancellation_is_planned_again_with_other_options(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    controller.crash_at(1, done=False)
    with pytest.raises(KilledError):
        cancel(surveyor, tree, "--apply")
    (killed,) = cancelling(surveyor)
    out_of_sync(tree, controller)
    refused = surveyor.run("commit", killed, "--zookeeper", tree.hosts, "--apply")
    done = cancel(surveyor, tree, "--apply", "--skip-unsafe", "--json")

    assert (refused.exit_code, "t-0: continues: NO_ELIGIBLE_LEADER" in refused.stderr) == (REFUSED, True)
    assert (done.exit_code, controller.assigned(T, 0)[1], controller.assigned(T, 1)) == (DONE, [2], ([0, 1, 2], [], []))
    assert sorted(cancelling(surveyor).values()) == [PlanStatus.CANCELLED, PlanStatus.COMMITTED]
    assert sorted(json.loads(done.stdout)["cancelled_by"]) == sorted(cancelling(surveyor))


def out_of_sync(_: KafkaTree, controller: KafkaController) -> None:
    """The original replicas of 0 fell behind: only the copy has the data; 1 is unchanged."""
    controller.set_state((T, 0), leader=2, isr=[2])


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("flags", [[], ["--apply"]])
def test_a_refused_cancellation_as_programs_read_it(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, flags: list[str]
) -> None:
    out_of_sync(tree, controller)

    done = cancel(surveyor, tree, "--json", *flags)

    result = json.loads(done.stdout)
    assert (done.exit_code, result["exit_code"], result["status"]) == (REFUSED, REFUSED, "partial")
    assert [row["partition"] for row in result["rejections"]] == [0]
    assert controller.requests == []


@pytest.mark.usefixtures("plan")
def test_partition_moved_by_another_client_meanwhile_is_left_alone(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the other client may be the last one in sync."""
    delay_once(monkeypatch, CommitLog, "append_intents", lambda: controller.reassign({(T, 0): [0, 3]}))

    done = cancel(surveyor, tree, "--apply")

    assert (done.exit_code, controller.assigned(T, 0)[1]) == (DONE, [3]), done.stderr
    assert {(T, 1): None} in controller.requests
    rows = surveyor.warehouse.rows("commits")
    outcomes = {(row["partition"], row["outcome"]): row["message"] for row in rows if row["action"] == "cancel"}
    assert outcomes[0, "stale"].startswith("another client changed it: replicas [0, 3, 1]")


@pytest.mark.usefixtures("plan")
def test_order_is_not_restored_on_an_old_judgement(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is checked for long before the second request, and another client moves the partition meanwhile."""
    move = {(T, 1): [0, 1, 3]}
    place = (ZnodeLease, "refuse_lost")
    clock = delay_once(monkeypatch, *place, lambda: controller.reassign(move), when=lambda: controller.requests)

    done = cancel(surveyor.paced(clock=clock), tree, "--apply")

    assert (done.exit_code, controller.assigned(T, 1)[1]) == (DONE, [3]), done.stderr
    rows = surveyor.warehouse.rows("commits")
    assert ("reassign", "stale") in [(row["action"], row["outcome"]) for row in rows if row["partition"] == 1]


def test_running_wave_returns_to_its_start(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    tree.register(3)
    tree.add_topic(T, {0: [0, 1]})
    waves = [reassignment(tree, T, 0, [0, 2]), reassignment(tree, T, 0, [3, 2], wave=1, before=[0, 2])]
    store_plan(warehouse, tree, waves, kind="reassign", name="moves", status="partial")
    controller.reassign({(T, 0): [0, 2]})
    controller.finish((T, 0))
    controller.reassign({(T, 0): [3, 2]})

    assert cancel(surveyor, tree, "--apply").exit_code == DONE
    assert controller.assigned(T, 0) == ([0, 2], [], [])


def test_finished_plan_stays_committed(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    tree.add_topic(T, {0: [0, 1]})
    plan = store_plan(
        warehouse, tree, [reassignment(tree, T, 0, [0, 2])], kind="reassign", name="moves", status="committed"
    )
    controller.reassign({(T, 0): [0, 2]})
    controller.finish((T, 0))

    done = cancel(surveyor, tree, "--apply")

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (DONE, PlanStatus.COMMITTED)
    assert "nothing is left to cancel" in done.stdout


def test_plan_of_elections_is_closed(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    tree.add_topic(T, {0: [0, 1, 2]})
    plan = store_plan(warehouse, tree, [election(tree, T, 0, leader=1)], name="moves")
    before = tree.dump()

    done = cancel(surveyor, tree, "--apply")
    commit = surveyor.apply(tree.hosts, "moves")

    assert (done.exit_code, commit.exit_code, surveyor.status(plan.plan_id)) == (DONE, REFUSED, PlanStatus.CANCELLED)
    assert (tree.dump(), controller.requests) == (before, [])


@pytest.mark.parametrize(("status", "message"), [("refused", "is refused"), ("rolled_back", "is rolled_back")])
def test_nothing_to_cancel(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, status: str, message: str
) -> None:
    tree.add_topic(T, {0: [0, 1, 2]})
    store_plan(warehouse, tree, [reassignment(tree, T, 0, [0, 2])], kind="reassign", name="moves", status=status)

    done = cancel(surveyor, tree, "--apply")

    assert (done.exit_code, message in done.stderr) == (REFUSED, True)


def test_wrong_plans(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan) -> None:
    unknown = surveyor.run("cancel", "nowhere", "--zookeeper", tree.hosts)
    warehouse.update("changes", f"plan_id = '{plan.plan_id}' AND partition = 0", reason="'edited'")
    edited = cancel(surveyor, tree, "--apply")
    warehouse.update("changes", f"plan_id = '{plan.plan_id}' AND partition = 0", reason="'a test'")
    tree.client.set("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    elsewhere = cancel(surveyor, tree, "--apply")

    assert (unknown.exit_code, edited.exit_code, elsewhere.exit_code) == (USAGE, REFUSED, REFUSED)
    assert "is not what was planned" in edited.stderr
    assert "was made for the cluster with id" in elsewhere.stderr
