"""`surveyor plan ... --refresh`: a snapshot first, in the same process, and the plan on it."""

from pathlib import Path

import pytest

from jobs.plan import app
from jobs.planning import plan_draft as planning
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

DONE, USAGE, CHANGES, UNREADABLE, REFUSED = 0, 2, 10, 22, 23


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 2, 0]})
    return Surveyor(tree.hosts, tmp_path / "warehouse")


def test_the_plan_is_on_the_snapshot_that_was_taken(surveyor: Surveyor, tree: KafkaTree) -> None:
    write_first_snapshot(surveyor)
    tree.unregister(2)

    ran = surveyor("plan", "reconcile", "--refresh", "--json", "--detailed-exitcode")

    assert (ran.code, ran.json["snapshot_id"], ran.json["changes"]) == (CHANGES, 2, 2)
    assert "surveyor: snapshot 2 of default: 2 brokers, 1 topic, 2 partitions" in ran.stderr


def test_the_result_has_the_fields_of_any_plan(surveyor: Surveyor) -> None:
    fresh = surveyor.json("plan", "reconcile", "--refresh")

    assert surveyor.json("plan", "reconcile") == fresh


def test_nothing_is_written_to_the_cluster(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.unregister(2)
    before = tree.dump()

    surveyor.json("plan", "reconcile", "--refresh")

    assert tree.dump() == before


@pytest.mark.parametrize(
    "question",
    [
        ("assign", "--topic", "t", "--partitions", "1", "--replication-factor", "1"),
        ("elect", "--preferred"),
        ("drain", "--brokers", "1"),
        ("config", "--topic", "orders", "--set", "retention.ms=1"),
        ("recover",),
    ],
    ids=lambda question: question[0],
)
def test_every_question_can_be_asked_so(surveyor: Surveyor, question: tuple[str, ...]) -> None:
    assert surveyor.json("plan", *question, "--refresh")["snapshot_id"] == 1


NAMES = {command.callback.__name__ for command in app.registered_commands if command.callback}
STORES_NO_PLAN = {"restarts"}


@pytest.mark.parametrize("command", sorted(NAMES - STORES_NO_PLAN))
def test_every_question_says_what_its_options_are(surveyor: Surveyor, command: str) -> None:
    help_text = " ".join(surveyor("plan", command, "--help").stdout.split())

    assert "--snapshot <int> Plan on this snapshot [default: the newest]." in help_text
    assert "--refresh Take a snapshot first, and plan on it." in help_text
    assert "--name <str> An alias for the plan" in help_text


def test_a_given_snapshot_is_not_refreshed(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "reconcile", "--refresh", "--snapshot", "1")

    assert (ran.code, ran.stdout) == (USAGE, "")
    assert ran.stderr.count("\n") == 1
    assert "--refresh plans on a new snapshot, --snapshot 1 on an existing one" in ran.stderr
    assert not surveyor.folder.exists()


def test_a_name_of_an_older_snapshot_is_refused(surveyor: Surveyor) -> None:
    surveyor.json("plan", "reconcile", "--refresh", "--name", "repair")

    again = surveyor("plan", "reconcile", "--refresh", "--name", "repair")

    assert (again.code, "no snapshot was taken, nothing was planned" in again.stderr) == (REFUSED, True)
    moved = surveyor.json("plan", "reconcile", "--refresh", "--name", "repair", "--replace-name")
    assert (moved["name"], moved["snapshot_id"]) == ("repair", 2)


def test_no_snapshot_no_plan(surveyor: Surveyor) -> None:
    write_first_snapshot(surveyor)
    elsewhere = Surveyor(f"{surveyor.hosts}/nowhere", surveyor.folder)

    ran = elsewhere("plan", "reconcile", "--refresh", "--json")

    assert (ran.code, ran.json["exit_code"], "check the chroot" in ran.stderr) == (UNREADABLE, UNREADABLE, True)
    assert surveyor.rows("plans", "plan_id") == []


def test_a_question_that_cannot_be_meant_takes_no_snapshot(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "take_snapshot", lambda *_: pytest.fail("a snapshot was taken"))

    assert surveyor("plan", "drain", "--brokers", "one", "--refresh").code == USAGE


def test_a_migration_is_refused_before_a_snapshot_is_taken(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.write("/migration", b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":4}')

    ran = surveyor("plan", "reconcile", "--refresh")

    assert (ran.code, "migration to KRaft is in progress" in ran.stderr) == (REFUSED, True)
    assert not surveyor.folder.exists()
