"""`surveyor plan ...` takes a snapshot first, in the same process, unless it is told to plan on a stored one."""

import re
from dataclasses import replace
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

    ran = surveyor("plan", "reconcile", "--json", "--detailed-exitcode")

    assert (ran.code, ran.json["snapshot_id"], ran.json["changes"]) == (CHANGES, 2, 2)
    assert "surveyor: snapshot 2 of default: 2 brokers, 1 topic, 2 partitions" in ran.stderr


def test_the_result_has_the_fields_of_any_plan(surveyor: Surveyor) -> None:
    fresh = surveyor.json("plan", "reconcile")

    assert surveyor.json("plan", "reconcile", "--no-refresh") == fresh


def test_nothing_is_written_to_the_cluster(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.unregister(2)
    before = tree.dump()

    surveyor.json("plan", "reconcile")

    assert tree.dump() == before


ON_STORED = {"--no-refresh": ("--no-refresh",), "--snapshot": ("--snapshot", "1"), "without an address": ()}


@pytest.mark.parametrize("options", ON_STORED.values(), ids=ON_STORED)
def test_a_plan_on_a_stored_snapshot_states_its_age(
    surveyor: Surveyor, tree: KafkaTree, options: tuple[str, ...]
) -> None:
    write_first_snapshot(surveyor)
    tree.unregister(2)
    asked = surveyor if options else replace(surveyor, hosts="")

    ran = asked("plan", "reconcile", *options, "--json")

    assert (ran.code, ran.json["snapshot_id"], ran.json["changes"]) == (DONE, 1, 0)
    assert re.search(r"surveyor: snapshot 1 is \d+ s old: --refresh takes a new one", ran.stderr)
    assert surveyor.rows("plans", "command") == [(" ".join(("surveyor plan reconcile", *options)),)]


def test_without_an_address_no_snapshot_is_taken(surveyor: Surveyor) -> None:
    ran = replace(surveyor, hosts="")("plan", "reconcile", "--refresh")

    assert (ran.code, "no ZooKeeper given for cluster 'default'" in ran.stderr) == (USAGE, True)


@pytest.mark.parametrize("place", ["environment", "file"])
def test_an_address_counts_wherever_it_is_given(
    surveyor: Surveyor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    conf = tmp_path / "surveyor.toml"
    conf.write_text(f'[clusters.default]\nzookeeper = "{surveyor.hosts}"\n')
    if place == "environment":
        monkeypatch.setenv("SURVEYOR_ZOOKEEPER", surveyor.hosts)
    options = () if place == "environment" else ("--conf", str(conf))

    assert replace(surveyor, hosts="").json("plan", "reconcile", *options)["snapshot_id"] == 1


def test_a_name_gives_the_same_plan_again(surveyor: Surveyor) -> None:
    first = surveyor.json("plan", "reconcile", "--name", "repair")

    again = surveyor("plan", "reconcile", "--name", "repair", "--json")

    assert again.json == first
    assert "surveyor: repair is this plan already; snapshot 1 is" in again.stderr
    assert "s old, and no new one was taken" in again.stderr
    other = surveyor("plan", "elect", "--name", "repair")
    assert (other.code, "with the parameters" in other.stderr) == (REFUSED, True)
    assert surveyor.rows("snapshots", "snapshot_id") == [(1,)]


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
    assert surveyor.json("plan", *question)["snapshot_id"] == 1


NAMES = {command.callback.__name__ for command in app.registered_commands if command.callback}


@pytest.mark.parametrize("command", sorted(NAMES - {"restarts"}))
def test_every_question_says_what_its_options_are(surveyor: Surveyor, command: str) -> None:
    help_text = " ".join(surveyor("plan", command, "--help").stdout.split())

    assert "--snapshot N Plan on this stored snapshot." in help_text
    assert "--refresh / --no-refresh Take a snapshot first, or plan on the newest stored one" in help_text
    assert "--name NAME An alias for the plan" in help_text


def test_a_given_snapshot_is_not_refreshed(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "reconcile", "--refresh", "--snapshot", "1")

    assert (ran.code, ran.stdout) == (USAGE, "")
    assert ran.stderr.count("\n") == 1
    assert "--refresh plans on a new snapshot, --snapshot 1 on an existing one" in ran.stderr
    assert not surveyor.folder.exists()


def test_a_name_of_an_older_snapshot_is_refused(surveyor: Surveyor) -> None:
    surveyor.json("plan", "reconcile", "--name", "repair")

    again = surveyor("plan", "reconcile", "--refresh", "--name", "repair")

    assert (again.code, "no snapshot was taken, nothing was planned" in again.stderr) == (REFUSED, True)
    moved = surveyor.json("plan", "reconcile", "--name", "repair", "--replace-name")
    assert (moved["name"], moved["snapshot_id"]) == ("repair", 2)


def test_no_snapshot_no_plan(surveyor: Surveyor) -> None:
    write_first_snapshot(surveyor)
    elsewhere = Surveyor(f"{surveyor.hosts}/nowhere", surveyor.folder)

    ran = elsewhere("plan", "reconcile", "--json")

    assert (ran.code, ran.json["exit_code"], "check the chroot" in ran.stderr) == (UNREADABLE, UNREADABLE, True)
    assert "; or plan with --no-refresh: snapshot 1 is" in ran.stderr
    assert surveyor.rows("plans", "plan_id") == []


def test_a_question_that_cannot_be_meant_takes_no_snapshot(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "take_snapshot", lambda *_: pytest.fail("a snapshot was taken"))

    assert surveyor("plan", "drain", "--brokers", "one").code == USAGE


def test_a_migration_is_refused_before_a_snapshot_is_taken(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.write("/migration", b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":4}')

    ran = surveyor("plan", "reconcile")

    assert (ran.code, "migration to KRaft is in progress" in ran.stderr) == (REFUSED, True)
    assert not surveyor.folder.exists()
