"""`surveyor plan ... --apply`: what is shown and asked, what is written, and what a process that ends leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from schemas.columns import TABLE_COLUMNS
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, KilledError
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

DONE, ERROR, USAGE, REFUSED, RUNNING = 0, 1, 2, 23, 25
T = "t"
BEFORE = {0: [0, 1, 2], 1: [0, 1]}
REVERSED = (T, 0, [2, 1, 0])
"""Another order, which copies nothing, so that it is complete at once."""


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic(T, BEFORE)
    ready = Surveyor(tree.hosts, tmp_path / "warehouse")
    write_first_snapshot(ready)
    return ready


@pytest.fixture
def question(tmp_path: Path) -> list[str]:
    """A reassignment of partition 0, without its election."""
    return ["plan", "reassign", "--skip-elections", "--reassignment-json-file", reassignment_file(tmp_path, REVERSED)]


def test_what_is_written_is_what_the_plan_and_its_dry_run_show(
    surveyor: Surveyor, controller: KafkaController, question: list[str]
) -> None:
    plan = surveyor.json(*question, "--name", "reverse")
    dry = surveyor.json("commit", "reverse")
    assert (controller.requests, dry["due"], plan["changes"]) == ([], 1, 1)

    done = surveyor.json(*question, "--name", "reverse", "--apply")

    assert controller.requests == [{(T, 0): [2, 1, 0]}]
    assert {**plan, **done, "next": 0, "status": 0} == {**done, "next": 0, "status": 0}, "every field of the plan"
    assert {name: done[name] for name in ("status", "applied_now", "applied", "is_complete", "complete")} == {
        "status": "committed",
        "applied_now": 1,
        "applied": 1,
        "is_complete": True,
        "complete": 1,
    }
    assert [step["command"].split()[1:4] for step in done["next"]] == [["rollback", "reverse", "--apply"]]
    (row,) = surveyor.warehouse.rows("plans")
    assert (row["plan_id"], "--apply" in row["command"]) == (plan["plan_id"], False)


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize(
    ("stdout_is_terminal", "answer", "code"), [(True, True, DONE), (True, False, ERROR), (False, False, ERROR)]
)
def test_the_review_is_shown_once_before_the_question(  # noqa: PLR0913, PLR0917 - fixtures and a table
    monkeypatch: pytest.MonkeyPatch,
    surveyor: Surveyor,
    controller: KafkaController,
    question: list[str],
    stdout_is_terminal: bool,  # noqa: FBT001 - a row of the table
    answer: bool,  # noqa: FBT001 - as above
    code: int,
) -> None:
    """A file or a pipe on stdout does not show it to the user, so that the commit shows its own."""
    monkeypatch.setattr("jobs.runtime.confirmation.is_terminal_output", lambda: stdout_is_terminal)

    ran = replace(surveyor, answer="y\n" if answer else "n\n")(*question, "--apply")

    assert (ran.code, ran.stdout.count("~ t-0"), ran.stderr.count("~ t-0")) == (code, 1, int(not stdout_is_terminal))
    assert len(controller.requests) == int(answer)
    assert ("plan is complete" in ran.stdout, "undo: surveyor rollback" in ran.stdout) == (answer, answer)


def test_nothing_due_writes_nothing(
    surveyor: Surveyor, tree: KafkaTree, controller: KafkaController, tmp_path: Path
) -> None:
    before, same = tree.dump(), reassignment_file(tmp_path, (T, 0, BEFORE[0]))

    ran = surveyor("plan", "reassign", "--reassignment-json-file", same, "--apply", "--detailed-exitcode")

    assert (ran.code, "nothing is due" in ran.stdout, tree.dump()) == (DONE, True, before)
    assert (controller.requests, surveyor.warehouse.rows("commits")) == ([], [])


def test_a_drain_of_a_broker_that_leads_nothing_marks_it(surveyor: Surveyor, controller: KafkaController) -> None:
    """Its plan has no rows; the mark keeps the broker from leading, and only a commit sets or removes it."""
    drain, undrain = (("plan", question, "--brokers", "2", "--apply") for question in ("drain", "undrain"))

    drained = surveyor(*drain)
    marks = [row["broker_id"] for row in surveyor.warehouse.rows("drained")]
    again = surveyor(*drain)
    undrained = surveyor(*undrain)

    assert (drained.code, marks, "no change but broker 2 marked as drained" in drained.stdout) == (DONE, [2], True)
    assert (again.code, "nothing is due" in again.stdout) == (DONE, True)
    assert (undrained.code, surveyor.warehouse.rows("drained"), controller.requests) == (DONE, [], [])


def test_a_refused_plan_is_not_committed(surveyor: Surveyor, controller: KafkaController, tmp_path: Path) -> None:
    faulty = reassignment_file(tmp_path, (T, 0, [0, 0]))

    ran = surveyor("plan", "reassign", "--reassignment-json-file", faulty, "--apply", "--json")

    assert (ran.code, ran.json["status"], controller.requests) == (REFUSED, "refused", [])


def test_a_refused_commit_leaves_the_plan_and_its_fields(
    surveyor: Surveyor, controller: KafkaController, question: list[str], tree: KafkaTree
) -> None:
    tree.client.set("/cluster/id", b'{"version":"1","id":"another-cluster-0000000"}')

    ran = surveyor(*question, "--no-refresh", "--apply", "--json")

    assert (ran.code, ran.json["status"], ran.json["changes"]) == (REFUSED, "planned", 1)
    assert ("was made for the cluster with id" in ran.json["error"], controller.requests) == (True, [])


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("name", [("--name", "reverse"), ()])
def test_the_same_command_continues_after_a_crash(
    surveyor: Surveyor, controller: KafkaController, question: list[str], name: tuple[str, ...], *, done: bool
) -> None:
    command = [*question, *name, "--apply"]
    controller.crash_at(1, done=done)
    with pytest.raises(KilledError):
        surveyor(*command)
    surveyor.json("snapshot")

    again = surveyor.json(*command)

    assert (again["is_complete"], again["snapshot_id"]) == (True, 2), "the snapshot that the plan had taken"
    assert len(surveyor.warehouse.rows("plans")) == 1
    assert controller.requests == [{(T, 0): [2, 1, 0]}] * (1 if done else 2)
    once_more = surveyor(*command)
    taken = "the name 'reverse' is taken by plan" in once_more.stderr
    assert (once_more.code, taken) == ((REFUSED, True) if name else (DONE, False))


@pytest.mark.parametrize("differently", [("--throttle", "6MB"), ("--name", "again"), ("--name", "again", "--yes")])
def test_the_same_goal_continues_after_a_crash(
    surveyor: Surveyor, controller: KafkaController, question: list[str], differently: tuple[str, ...]
) -> None:
    controller.crash_at(1, done=True)
    with pytest.raises(KilledError):
        surveyor(*question, "--apply", "--throttle", "5MB")
    (begun,) = surveyor.warehouse.rows("plans")

    again = surveyor(*question, *differently, "--apply")

    assert f"plan {begun['plan_id']} of the same goal is {begun['status']}, and is continued" in again.stderr
    assert again.code == DONE
    (plan,) = surveyor.warehouse.rows("plans")
    assert (plan["status"], plan["names"]) == ("committed", ["again"] if "again" in differently else [])
    assert (controller.requests, surveyor.warehouse.rows("throttles")) == ([{(T, 0): [2, 1, 0]}], [])


def test_an_undrain_that_crashed_continues(surveyor: Surveyor, controller: KafkaController) -> None:
    """The mark may be gone already, by which the same goal would plan nothing."""
    command = ("plan", "undrain", "--brokers", "0", "--apply")
    assert surveyor("plan", "drain", "--brokers", "0", "--apply").code == DONE
    drained = controller.assigned(T, 0)[0]
    controller.crash_at(len(controller.requests) + 1, done=False)
    with pytest.raises(KilledError):
        surveyor(*command)
    surveyor.warehouse.delete("drained", "true")

    again = surveyor(*command)

    assert (drained[-1], controller.assigned(T, 0)[0]) == (0, BEFORE[0])
    assert (again.code, "of the same goal is" in again.stderr, len(surveyor.warehouse.rows("plans"))) == (DONE, True, 2)
    assert "plan again for what has changed since: surveyor plan undrain --brokers 0 --apply" in again.stdout


def test_a_rollback_that_crashed_continues(surveyor: Surveyor, controller: KafkaController) -> None:
    fewer = surveyor("plan", "reassign", "--replication-factor", "1", "--skip-elections", "--apply", "--name", "one")
    assert fewer.code == DONE, fewer
    controller.crash_at(len(controller.requests) + 1, done=True)
    with pytest.raises(KilledError):
        surveyor("rollback", "one", "--apply")
    for partition in BEFORE:
        controller.finish((T, partition))

    again = surveyor("rollback", "one", "--apply", "--name", "back")

    assert (again.code, "of the same plan is" in again.stderr) == (DONE, True), again
    assert {row["name"]: row["status"] for row in surveyor.warehouse.rows("plans")} == {
        "one": "rolled_back",
        "back": "committed",
    }


def test_a_file_with_other_content_is_another_goal(
    surveyor: Surveyor, controller: KafkaController, question: list[str], tmp_path: Path
) -> None:
    controller.crash_at(1, done=True)
    with pytest.raises(KilledError):
        surveyor(*question, "--apply")
    reassignment_file(tmp_path, (T, 1, [1, 0]))

    ran = surveyor(*question, "--apply")

    assert (ran.code, "has other parameters, such as those of a file: a new plan is made" in ran.stderr) == (DONE, True)
    assert {row["snapshot_id"] for row in surveyor.warehouse.rows("plans")} == {2, 3}
    assert controller.requests[1:] == [{(T, 1): [1, 0]}]


def test_a_plan_names_the_plan_that_moves_what_it_leaves_alone(
    surveyor: Surveyor, controller: KafkaController, tmp_path: Path
) -> None:
    command = ["plan", "reassign", "--reassignment-json-file", reassignment_file(tmp_path, (T, 1, [0, 2]))]
    assert surveyor(*command, "--apply", "--name", "move", "--max-wait", "0s").code == RUNNING

    refused = surveyor(*command)
    planned = surveyor.json("plan", "reassign", "--replication-factor", "3")

    assert (refused.code, len(controller.requests)) == (REFUSED, 1)
    texts = [refused.stderr, *(f"{step['what']}: `{step['command']}" for step in planned["next"])]
    named = [text for text in texts if "moves t-1" in text and "continue: `surveyor commit move --apply" in text]
    assert len(named) == 2


def test_a_plan_of_which_all_is_rejected_is_not_done(surveyor: Surveyor, tree: KafkaTree, tmp_path: Path) -> None:
    tree.write(f"/brokers/topics/{T}", encode_assignment(Assignment(BEFORE, {0: [2]}, {}, TOPIC_ID)))

    ran = surveyor(
        "plan", "reassign", "--reassignment-json-file", reassignment_file(tmp_path, REVERSED), "--apply", "--json"
    )

    assert (ran.code, ran.json["changes"], ran.json["rejected"]) == (REFUSED, 0, 1)


def test_the_wait_ends_with_how_to_go_on(surveyor: Surveyor, controller: KafkaController, tmp_path: Path) -> None:
    move = reassignment_file(tmp_path, (T, 1, [0, 2]))

    command = ["plan", "reassign", "--reassignment-json-file", move, "--apply", "--max-wait", "0s"]

    ran = surveyor(*command)

    assert ran.code == RUNNING, ran.stderr
    (plan,) = surveyor.warehouse.rows("plans")
    assert f"`surveyor commit {plan['plan_id']} --apply --wait --zookeeper" in ran.stderr
    again = surveyor(*command)
    assert [again.stdout, "--refresh" in again.stderr, "is continued" in again.stderr] == ["", False, True]
    assert len(controller.requests) == 1


@pytest.mark.parametrize("option", [("--yes",), ("--max-wait", "5s")])
def test_options_of_the_commit_need_apply(surveyor: Surveyor, question: list[str], option: tuple[str, ...]) -> None:
    before = {name: surveyor.warehouse.version(name) for name in TABLE_COLUMNS}

    ran = surveyor(*question, *option)

    assert (ran.code, f"{option[0]} is for a plan that is committed" in ran.stderr) == (USAGE, True)
    assert {name: surveyor.warehouse.version(name) for name in TABLE_COLUMNS} == before
