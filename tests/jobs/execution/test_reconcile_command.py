"""`surveyor reconcile`: snapshot, plan and commit in one process; dry unless --apply, and resumable after a kill."""

import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.execution.preflight import Preflight, check_before_commit
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.plans_reader import read_plan
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.commands.interrupted_commit import interrupted_program
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.usefixtures("spark")

DONE, ERROR, CHANGES, STALE, UNREADABLE, REFUSED = 0, 1, 10, 21, 22, 23
REPLICAS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}
BATCH = ("--mode", "batch")


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic("orders", REPLICAS)
    return Surveyor(tree.hosts, tmp_path / "warehouse", pace=NO_TAKEOVER)


@pytest.fixture
def incident(tree: KafkaTree) -> None:
    """Broker 2 dies: it led one partition and is in the ISR of all three."""
    tree.unregister(2)


def reconcile(surveyor: Surveyor, *arguments: str) -> Ran:
    return surveyor("reconcile", *BATCH, *arguments)


def repaired(tree: KafkaTree) -> bool:
    return all(2 not in tree.state("orders", partition).isr for partition in REPLICAS)


@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize("flags", [(), ("--yes",), ("--detailed-exitcode",), ("--allow-majority-dead",)])
def test_dry_run_changes_nothing(surveyor: Surveyor, tree: KafkaTree, flags: tuple[str, ...]) -> None:
    before = tree.dump()

    ran = reconcile(surveyor, *flags)

    assert ran.code == (CHANGES if "--detailed-exitcode" in flags else DONE)
    assert "dry run: nothing was written" in ran.stdout
    assert "would be written: ~ orders-2  leader 2→0" in ran.stdout
    assert tree.dump() == before
    assert surveyor.rows("commits", "plan_id") == []


@pytest.mark.usefixtures("incident")
def test_apply_writes_pending_changes(surveyor: Surveyor, tree: KafkaTree) -> None:
    before = tree.dump()

    ran = reconcile(surveyor, "--apply")

    after = tree.dump()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert (ran.code, repaired(tree), tree.state("orders", 2).leader) == (DONE, True, 0)
    # a multi makes sure that a broker is dead by creating its znode and deleting it again
    others = {"/", "/controller", "/controller_epoch", "/brokers/ids"}
    assert changed - others == {state_path("orders", partition) for partition in REPLICAS}
    assert "committed; 3 applied" in ran.stdout


def test_epoch_set_back_is_repaired_if_nothing_else_is_due(surveyor: Surveyor, tree: KafkaTree) -> None:
    state = State(controller_epoch=57, leader=0, leader_epoch=5, isr=[0, 1, 2])
    tree.client.set(state_path("orders", 0), encode_state(state))
    before = tree.dump()

    dry = reconcile(surveyor, "--detailed-exitcode")
    unwritten = tree.dump()
    done = reconcile(surveyor, "--apply")
    again = reconcile(surveyor, "--apply")

    assert (dry.code, unwritten) == (CHANGES, before)
    assert "/controller_epoch is 7, earlier than controller epoch 57" in dry.stdout
    assert (done.code, tree.client.get("/controller_epoch")[0]) == (DONE, b"58")
    assert "the controllership was taken with a later epoch" in done.stdout
    assert "taken over" not in again.stdout
    assert tree.state("orders", 0) == state
    steps = [row for row in surveyor.rows("commits", "action", "outcome", "controller_epoch") if row[1] == "applied"]
    assert steps == [("hand_back", "applied", 58), ("take_over", "applied", 58)]


@pytest.mark.usefixtures("incident")
def test_cycles_that_change_nothing_come_to_an_end(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jobs.execution.reconcile.apply_plan",
        lambda settings, _, plan, *__, **___: CommitLog.open(settings.warehouse, plan),
    )

    ran = reconcile(surveyor, "--apply", "--until-quiet")

    assert "not quiet after 3 cycles" in ran.stdout


def test_request_waits_for_the_controller(surveyor: Surveyor, tree: KafkaTree) -> None:
    """The request is shown with the reason; it is part of the plan only with --requests."""
    tree.add_topic("going", {0: [0, 1]})
    tree.write("/admin/delete_topics/going", b"")
    order = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[1,2]}]}'
    tree.write("/admin/reassign_partitions", order)

    ran = reconcile(surveyor)
    planned = surveyor("plan", "reconcile", "--requests")

    assert (ran.code, "nothing is due" in ran.stdout) == (DONE, True)
    assert "  waiting for broker 0, the controller: going: delete topic: queued for deletion" in ran.stderr
    assert "orders-1: start_reassignment: requested replicas: 1, 2" in ran.stderr
    assert "delete_replicas going" in planned.stdout
    assert "requested replicas: 1, 2" in planned.stdout


@pytest.mark.usefixtures("incident")
def test_json_of_both(surveyor: Surveyor) -> None:
    dry = reconcile(surveyor, "--json").json
    applied = reconcile(surveyor, "--apply", "--json").json

    assert {name: dry[name] for name in ("snapshot_id", "status", "dry_run", "due", "applied", "rejected")} == {
        "snapshot_id": 1,
        "status": "planned",
        "dry_run": True,
        "due": 3,
        "applied": 0,
        "rejected": 0,
    }
    counts = {"applied": 3, "stale": 0, "fenced": 0, "failed": 0, "unknown": 0, "skipped": 0}
    assert applied == {
        "snapshot_id": 2,
        "plan_id": applied["plan_id"],
        "rejected": 0,
        "status": "committed",
        "applied_now": 3,
        **counts,
        "next": applied["next"],
        "warnings": [],
    }
    dry_next, applied_next = (result["next"][0]["command"] for result in (dry, applied))
    assert dry_next.startswith(f"surveyor commit {dry['plan_id']} --apply --mode batch ")
    assert applied_next.startswith(f"surveyor verify {applied['plan_id']} ")
    assert applied["plan_id"] != dry["plan_id"]


@pytest.mark.parametrize("flags", [(), ("--apply",), ("--apply", "--detailed-exitcode")])
def test_nothing_due(surveyor: Surveyor, tree: KafkaTree, flags: tuple[str, ...]) -> None:
    before = tree.dump()

    ran = reconcile(surveyor, *flags, "--json")

    assert (ran.code, ran.json["due"], ran.json["applied"], ran.json["snapshot_id"]) == (DONE, 0, 0, 1)
    assert tree.dump() == before


@pytest.mark.usefixtures("incident")
def test_unrepairable_partitions_are_reported(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.add_topic("lonely", {0: [2]})

    ran = reconcile(surveyor, "--apply")

    assert ran.code == DONE
    assert "rejected lonely-0" in ran.stdout


@pytest.mark.usefixtures("incident")
def test_limits_refuse_the_plan_that_was_made(surveyor: Surveyor, tree: KafkaTree) -> None:
    before = tree.dump()

    ran = reconcile(surveyor, "--apply", "--max-changes", "2", "--json")

    assert (ran.code, ran.json["snapshot_id"], ran.json["status"]) == (REFUSED, 1, "planned")
    assert "has 3 changes, more than --max-changes 2" in ran.stderr
    assert surveyor.rows("plans", "plan_id") == [(ran.json["plan_id"],)]
    assert tree.dump() == before


@pytest.mark.usefixtures("incident")
def test_without_a_snapshot_nothing_is_planned(surveyor: Surveyor) -> None:
    ran = Surveyor(f"{surveyor.hosts}/nowhere", surveyor.folder)("reconcile", "--apply")

    assert (ran.code, "check the chroot" in ran.stderr) == (UNREADABLE, True)


@pytest.mark.usefixtures("incident", "on_terminal")
def test_no_on_the_terminal_changes_nothing(surveyor: Surveyor, tree: KafkaTree) -> None:
    before = tree.dump()

    ran = reconcile(replace(surveyor, answer="n\n"), "--apply")

    assert (ran.code, "was not answered with yes; plan" in ran.stderr) == (ERROR, True)
    assert "would be written: ~ orders-2  leader 2→0" in ran.stderr, "the question follows what it is about"
    assert tree.dump() == before


@pytest.mark.usefixtures("incident", "on_terminal")
def test_a_cycle_in_which_nothing_was_asked_approves_no_later_one(
    surveyor: Surveyor, tree: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cycles = tree.dump(), count()

    def check(*arguments: Any) -> Preflight:  # noqa: ANN401 - those of check_before_commit
        preflight = check_before_commit(*arguments)
        return preflight if next(cycles) else replace(preflight, pending=[])

    monkeypatch.setattr("jobs.execution.reconcile.check_before_commit", check)

    ran = reconcile(replace(surveyor, answer="n\n"), "--apply", "--until-quiet")

    assert (ran.code, "was not answered with yes; plan" in ran.stderr) == (ERROR, True)
    assert tree.dump() == before


def test_admin_mode_cannot_repair_and_is_refused_before_anything(surveyor: Surveyor) -> None:
    ran = surveyor("reconcile", "--mode", "admin")

    assert (ran.code, "omit the option" in ran.stderr, surveyor.folder.exists()) == (2, True, False)


@pytest.mark.usefixtures("incident")
def test_killed_before_the_commit_it_is_run_again(
    surveyor: Surveyor, tree: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("jobs.execution.reconcile.apply_plan", _killed)
        with pytest.raises(_Kill):
            reconcile(surveyor, "--apply")
    assert not repaired(tree)

    assert reconcile(surveyor, "--apply").code == DONE
    assert repaired(tree)
    assert surveyor.rows("plans", "snapshot_id", "status") == [(1, "planned"), (2, "committed")]


@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize(("signal_name", "code", "written"), [("SIGKILL", -9, 1), ("SIGINT", 130, 2)])
def test_interrupted_run_plans_only_the_rest(  # noqa: PLR0913, PLR0917 - fixtures
    surveyor: Surveyor, tree: KafkaTree, tmp_path: Path, signal_name: str, code: int, written: int
) -> None:
    """Each batch has one change; the signal arrives before the second is sent, and Ctrl-C lets that one finish."""
    where = ("--zookeeper", surveyor.hosts, "--warehouse", str(surveyor.folder))
    program = interrupted_program(signal_name, batch_changes=1, multis=2)
    stopped = subprocess.run(
        [sys.executable, "-c", program, "reconcile", *BATCH, "--apply", *where],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (stopped.returncode, "Traceback" in stopped.stderr) == (code, False), stopped.stderr
    assert sum(2 not in tree.state("orders", partition).isr for partition in REPLICAS) == written

    # with another id, because the killed process's session lasts a few more seconds
    conf = tmp_path / "surveyor.toml"
    conf.write_text("[clusters.default]\ncontroller_id = 2147483646\n")
    again = reconcile(surveyor, "--apply", "--json", "--conf", str(conf))

    assert (again.code, again.json["applied"], repaired(tree)) == (DONE, len(REPLICAS) - written, True)


@pytest.mark.usefixtures("incident")
def test_change_between_plan_and_commit_is_stale(
    surveyor: Surveyor, tree: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: object) -> object:
        for partition in REPLICAS:
            tree.touch(state_path("orders", partition))
        return check_before_commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("jobs.execution.reconcile.check_before_commit", late)

    ran = reconcile(surveyor, "--apply", "--json")

    assert (ran.code, ran.json["stale"], ran.json["snapshot_id"]) == (STALE, 3, 1)


@pytest.mark.usefixtures("incident")
def test_a_plan_that_lost_rows_is_refused(surveyor: Surveyor, tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree.dump()

    def robbed(*arguments: object) -> object:
        DeltaTable(surveyor.warehouse.path("changes")).delete("partition = 0")
        return read_plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("jobs.planning.reconcile.read_plan", robbed)

    assert reconcile(surveyor, "--apply").code == REFUSED
    assert tree.dump() == before


def test_a_plan_that_another_run_deletes_is_made_again(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find nothing due, and the other one plans on the later snapshot."""
    others: list[Ran] = []
    runs = iter([lambda: others.append(reconcile(surveyor, "--apply"))])

    def reads_late(*arguments: object) -> object:
        next(runs, lambda: None)()
        return read_plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("jobs.planning.reconcile.read_plan", reads_late)

    ran = reconcile(surveyor, "--apply")

    assert (ran.code, others[0].code) == (DONE, DONE), ran.stderr
    assert "another run has planned on a later snapshot" in ran.stderr
    assert len(surveyor.warehouse.rows("plans")) == 1


class _Kill(BaseException):
    """Raised where the process would end."""


def _killed(*_: object, **__: object) -> None:
    raise _Kill
