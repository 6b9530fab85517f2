"""`surveyor rollback`: a new plan that moves back; dry unless --apply, refused where necessary, nothing twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import Outcome, PlanStatus
from schemas.rows import Row
from schemas.stored_plan import Plan, RowOutcome
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.commands import Surveyor as SurveyorOnTree
from tests.jobs.support.controllers.kafka_controller import KafkaController, KilledError
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.rows.warehouse_rows import Cluster, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

T = "t"
DONE, ERROR, USAGE, CHANGES, STALE, REFUSED, RUNNING = 0, 1, 2, 10, 21, 23, 25
APPLY = ("--apply", "--max-wait", "0s")
BEFORE = {0: [0, 1], 1: [0, 1, 2], 2: [0, 1]}
AFTER = {0: [0, 1, 2], 1: [2, 1, 0], 2: [1, 2]}
"""An addition, another order, and a move that leaves the former preferred replica, 0, without the leadership."""


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse, controller: KafkaController) -> Plan:
    """A plan that is committed and complete."""
    tree.add_topic(T, BEFORE)
    changes = [reassignment(tree, T, number, after) for number, after in AFTER.items()]
    stored = store_plan(warehouse, tree, changes, kind="reassign", name="moves")
    committed(warehouse, stored)
    carry_out(controller, AFTER)
    controller.requests.clear()
    return stored


def committed(warehouse: Warehouse, plan: Plan) -> None:
    """The commit log of a commit that requested all of it."""
    commit_log = CommitLog.open(warehouse, plan)
    commit_log.append_intents(plan.changes)
    commit_log.add_outcomes(RowOutcome(change, Outcome.APPLIED, "asked and accepted") for change in plan.changes)
    commit_log.close()


def carry_out(controller: KafkaController, targets: dict[int, list[int]]) -> None:
    controller.reassign({(T, number): after for number, after in targets.items()})
    for number in targets:
        controller.finish((T, number))


def rollback(surveyor: Surveyor, tree: KafkaTree, *arguments: str) -> Any:  # noqa: ANN401 - a Result of typer
    return surveyor.run("rollback", "moves", "--zookeeper", tree.hosts, *arguments)


def result(surveyor: Surveyor, tree: KafkaTree, *arguments: str, code: int = DONE) -> Row:
    done = rollback(surveyor, tree, "--json", *arguments)
    assert done.exit_code == code, done.stderr
    parsed: Row = json.loads(done.stdout)
    return parsed


def changes(warehouse: Warehouse, plan_id: str) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    rows = warehouse.rows("changes", ("plan_id", "=", plan_id))
    return {(row["wave"], row["partition"]): (row["replicas_before"], row["replicas_after"]) for row in rows}


def rejected(warehouse: Warehouse, plan_id: str) -> dict[int, str]:
    return {row["partition"]: row["code"] for row in warehouse.rows("rejections", ("plan_id", "=", plan_id))}


def test_without_apply_the_plan_is_only_stored(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController, plan: Plan
) -> None:
    before, commit_log = tree.dump(), warehouse.rows("commits")

    summary = result(surveyor, tree)

    assert (tree.dump(), controller.requests, warehouse.rows("commits")) == (before, [], commit_log)
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert changes(warehouse, summary["plan_id"]) == {
        **{(0, p): (AFTER[p], BEFORE[p]) for p in BEFORE},
        (1, 2): (BEFORE[2], BEFORE[2]),
    }
    assert {name: summary[name] for name in ("status", "changes", "moves", "rejected", "rollback_of")} == {
        "status": "planned",
        "changes": 4,
        "moves": 1,
        "rejected": 0,
        "rollback_of": plan.plan_id,
    }
    assert result(surveyor, tree) == summary


@pytest.mark.usefixtures("plan", "controller")
def test_as_people_read_it(tree: KafkaTree, surveyor: Surveyor) -> None:
    stdout = rollback(surveyor, tree).stdout

    assert "t-2  replicas [1,2]→[0,1]  back to snapshot 1: adds [0], removes [2]" in stdout
    *_, review, apply = stdout.splitlines()
    assert review.startswith("review: surveyor show plan ")
    assert apply.startswith("apply: surveyor commit ")


@pytest.mark.usefixtures("plan", "controller")
def test_load_before_and_after(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    """Into the brokers flow 20, 30 and 30 B/s, and after the rollback 30, 30 and 10."""
    write_first_snapshot(SurveyorOnTree(tree.hosts, Path(warehouse.uri)))
    loads = [{"topic": T, "partition": number, "bytes_in": 10.0, "method": "imported"} for number in BEFORE]
    warehouse.append("partition_load", loads)

    stdout = rollback(surveyor, tree).stdout

    assert "  bytes in per broker 0.75..1.12 (30 B/s) → 0.43..1.29 (30 B/s) times the mean\n" in stdout
    assert "  load from imported loads\n" in stdout


@pytest.mark.usefixtures("plan", "controller")
def test_detailed_exitcode(tree: KafkaTree, surveyor: Surveyor) -> None:
    assert rollback(surveyor, tree, "--detailed-exitcode").exit_code == CHANGES


def test_commit_and_verify_finish_it(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController, plan: Plan
) -> None:
    undoing = result(surveyor, tree)["plan_id"]

    committed = surveyor.run("commit", undoing, "--zookeeper", tree.hosts, *APPLY)
    surveyor.run("verify", undoing, "--zookeeper", tree.hosts)
    meanwhile = surveyor.status(plan.plan_id)
    controller.finish((T, 2))
    surveyor.run("commit", undoing, "--zookeeper", tree.hosts, "--apply")
    surveyor.run("verify", undoing, "--zookeeper", tree.hosts)

    assert (committed.exit_code, meanwhile) == (RUNNING, PlanStatus.COMMITTED), committed.stderr
    assert {p: controller.assigned(T, p) for p in BEFORE} == {p: (BEFORE[p], [], []) for p in BEFORE}
    assert surveyor.status(plan.plan_id) == PlanStatus.ROLLED_BACK
    steps = [row for row in warehouse.rows("commits", ("plan_id", "=", plan.plan_id)) if row["partition"] is None]
    assert [row["action"] for row in steps] == ["roll_back"]


def test_apply_commits_at_once_and_only_once(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, plan: Plan
) -> None:
    first = result(surveyor, tree, *APPLY, code=RUNNING)
    again = result(surveyor, tree, *APPLY, code=RUNNING)
    controller.finish((T, 2))
    last = result(surveyor, tree, "--apply")

    assert controller.requests == [{(T, p): BEFORE[p] for p in BEFORE}]
    assert tree.state(T, 2).leader == BEFORE[2][0]
    assert (first["status"], first["applied"], again["plan_id"]) == ("partial", 3, first["plan_id"])
    assert (last["rolled_back"], surveyor.status(plan.plan_id)) == (True, PlanStatus.ROLLED_BACK)


@pytest.mark.usefixtures("plan")
def test_stale_rows_decide_the_detailed_exit_code(
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController
) -> None:
    back = result(surveyor, tree, "--name", "back")
    carry_out(controller, {0: [2, 1]})
    assert rollback(surveyor, tree, "--name", "back", *APPLY).exit_code == RUNNING
    controller.finish((T, 2))

    done = rollback(surveyor, tree, "--name", "back", *APPLY, "--detailed-exitcode", "--json")
    summary = json.loads(done.stdout)

    assert (done.exit_code, summary["plan_id"]) == (STALE, back["plan_id"])
    assert {outcome: summary[outcome] for outcome in ("applied_now", "applied", "stale", "failed")} == {
        "applied_now": 1,
        "applied": 3,
        "stale": 1,
        "failed": 0,
    }


def test_what_another_plan_moved_stays(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    """Both plans wanted partition 0 there: the other one moved it, and this one found it done."""
    tree.add_topic(T, BEFORE)
    changes = [reassignment(tree, T, number, AFTER[number]) for number in (0, 2)]
    stored = store_plan(warehouse, tree, changes, kind="reassign", name="moves")
    commit_log = CommitLog.open(warehouse, stored)
    commit_log.append_intents([change for change in stored.changes if change.partition == 2])
    commit_log.add_outcomes(
        RowOutcome(change, Outcome.APPLIED, "found applied or asked for") for change in stored.changes
    )
    commit_log.close()
    carry_out(controller, {0: AFTER[0], 2: AFTER[2]})

    summary = result(surveyor, tree)

    planned = warehouse.rows("changes", ("plan_id", "=", summary["plan_id"]))
    assert [(row["partition"], row["replicas_after"]) for row in planned] == [(2, BEFORE[2])] * 2
    assert rejected(warehouse, summary["plan_id"]) == {0: "NOT_REQUESTED"}


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_crash_or_lost_answer_and_again(  # noqa: PLR0913 - a table
    tree: KafkaTree, surveyor: Surveyor, controller: KafkaController, plan: Plan, *, crash: bool, done: bool
) -> None:
    if crash:
        controller.crash_at(1, done=done)
        with pytest.raises(KilledError):
            rollback(surveyor, tree, *APPLY)
    else:
        controller.lose_answer_of(1, done=done)
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("SURVEYOR_DEBUG", raising=False)
            assert rollback(surveyor, tree, *APPLY).exit_code == (RUNNING if done else ERROR)

    again = result(surveyor, tree, *APPLY, code=RUNNING)
    controller.finish((T, 2))
    last = result(surveyor, tree, "--apply")

    assert len(controller.requests) == (1 if done else 2)
    assert (again.get("rolled_back", False), last["rolled_back"]) == (False, True)
    assert {p: controller.assigned(T, p) for p in BEFORE} == {p: (BEFORE[p], [], []) for p in BEFORE}
    assert surveyor.status(plan.plan_id) == PlanStatus.ROLLED_BACK


def test_waves_are_reversed(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    """Partition 0 was moved in the waves 0 and 2, partition 2 in wave 1."""
    tree.add_topic(T, BEFORE)
    rows = [
        reassignment(tree, T, 0, [2, 1]),
        reassignment(tree, T, 2, [1, 2], wave=1),
        reassignment(tree, T, 0, [1, 2], wave=2, before=[2, 1]),
    ]
    committed(warehouse, store_plan(warehouse, tree, rows, kind="reassign", name="moves"))
    carry_out(controller, {0: [1, 2], 2: [1, 2]})

    summary = result(surveyor, tree)

    assert changes(warehouse, summary["plan_id"]) == {
        (0, 0): ([1, 2], [2, 1]),
        (1, 2): ([1, 2], [0, 1]),
        (2, 0): ([2, 1], [0, 1]),
        **{(3, p): ([0, 1], [0, 1]) for p in (0, 2)},
    }


@pytest.mark.usefixtures("plan")
def test_complete_part_of_a_cancelled_plan_goes_back(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController
) -> None:
    controller.reassign({(T, 2): BEFORE[2]})
    controller.finish((T, 2))
    warehouse.update("plans", "true", status="'cancelled'")

    summary = result(surveyor, tree)

    assert changes(warehouse, summary["plan_id"]).keys() == {(0, 0), (0, 1), (1, 2)}
    assert (tree.state(T, 2).leader, rejected(warehouse, summary["plan_id"])) == (1, {})


def test_irreversible_partitions_are_rejected_and_the_rest_moved(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, controller: KafkaController, plan: Plan
) -> None:
    """Broker 0, a former replica of 2, died; another client moved 0.

    Partition 1 keeps its dead replica and has another leader.
    """
    tree.unregister(0)
    controller.set_state((T, 1), leader=1, isr=[2, 1])
    controller.reassign({(T, 0): [1, 2]})

    summary = result(surveyor, tree, *APPLY)

    assert rejected(warehouse, summary["plan_id"]) == {0: "REASSIGNED_SINCE", 2: "BROKER_NOT_ALIVE"}
    assert controller.assigned(T, 1)[0] == BEFORE[1]
    assert (summary["rolled_back"], surveyor.status(plan.plan_id)) == (False, PlanStatus.COMMITTED)


def snapshots(warehouse: Warehouse, shown: dict[int, Row], topic_id: str = TOPIC_ID) -> int:
    """The second snapshot; the plan was made on the first."""
    cluster = Cluster(warehouse)
    cluster.snapshot()
    cluster.topics = [topic(T, topic_id=topic_id)]
    cluster.partitions = {(T, number): row for number, row in shown.items()}
    return cluster.snapshot()


@pytest.mark.usefixtures("plan", "controller")
def test_back_to_another_snapshot(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    moving = partition([0, 1, 2], adding_replicas=[2])
    snapshot = snapshots(warehouse, {0: partition([2, 0]), 1: moving})

    summary = result(surveyor, tree, "--to-snapshot", str(snapshot))

    assert changes(warehouse, summary["plan_id"]) == {(0, 0): (AFTER[0], [2, 0]), (1, 0): ([2, 0], [2, 0])}
    assert rejected(warehouse, summary["plan_id"]) == {1: "REASSIGNMENT_IN_PROGRESS", 2: "UNKNOWN_PARTITION"}
    assert (
        json.loads(warehouse.rows("plans", ("plan_id", "=", summary["plan_id"]))[0]["parameters"])["to_snapshot"]
        == snapshot
    )


@pytest.mark.usefixtures("plan", "controller")
def test_snapshot_of_another_topic_of_that_name(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    snapshot = snapshots(warehouse, {0: partition([2, 0])}, topic_id="AAAAAAAAAAAAAAAAAAAAAg")

    summary = result(surveyor, tree, "--to-snapshot", str(snapshot))

    assert rejected(warehouse, summary["plan_id"]) == dict.fromkeys(BEFORE, "UNKNOWN_TOPIC")


@pytest.mark.usefixtures("plan", "controller")
def test_a_name_belongs_to_its_parameters(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    snapshot = snapshots(warehouse, {0: partition([2, 0])})
    first = result(surveyor, tree, "--name", "undo")
    tree.touch(f"/brokers/topics/{T}")

    assert result(surveyor, tree, "--name", "undo") == first
    other = rollback(surveyor, tree, "--name", "undo", "--to-snapshot", str(snapshot))
    assert (other.exit_code, "the name 'undo' is taken by plan" in other.stderr) == (REFUSED, True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"status": "planned"}, "is planned: nothing of it was committed"),
        ({"status": "refused"}, "is refused: nothing of it was committed"),
        ({"status": "partial"}, "is partial: run `surveyor cancel` first"),
        ({"status": "committing"}, "is committing: run `surveyor cancel` first"),
        ({"kind": "drain", "status": "committed"}, "is of kind drain: only reassignments are rolled back"),
    ],
)
def test_plans_that_are_not_rolled_back(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, columns: Row, message: str
) -> None:
    tree.add_topic(T, BEFORE)
    store_plan(
        warehouse, tree, [reassignment(tree, T, 0, AFTER[0])], **{"kind": "reassign", "name": "moves", **columns}
    )

    done = rollback(surveyor, tree, "--apply")

    assert (done.exit_code, message in done.stderr) == (REFUSED, True), done.stderr


@pytest.mark.usefixtures("plan")
def test_limits_are_those_of_commit(tree: KafkaTree, surveyor: Surveyor, controller: KafkaController) -> None:
    done = rollback(surveyor, tree, "--apply", "--max-changes", "1")

    assert (done.exit_code, controller.requests) == (REFUSED, [])
    assert "more than --max-changes 1" in done.stderr


@pytest.mark.usefixtures("plan")
def test_unknown_snapshot(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    snapshots(warehouse, {0: partition([2, 0])})

    assert rollback(surveyor, tree, "--to-snapshot", "99").exit_code == USAGE
