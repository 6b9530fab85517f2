"""`surveyor plan elect` on the command line, on snapshots stored without a cluster."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

pytestmark = pytest.mark.usefixtures("spark")

STATE: Final[Row] = {"state_version": 4, "topic_version": 2, "leader_recovery_state": 0, "understood": True}
LED_BY_0: Final[Row] = {"leader": 0, "isr": [0, 1, 2], **STATE}


@pytest.fixture(scope="module")
def surveyor(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Four snapshots: 60, 50, 20 and 0 minutes ago; brokers 0 to 2 live, 9 dead, 2 bounced before the third.

    Topic bad: broker 1 leads none of its 2, broker 2 one of its 3. Topic down: partitions that a dead leader led.
    """
    folder = tmp_path_factory.mktemp("elect") / "warehouse"
    cluster = Cluster(Warehouse(str(folder), "default"))
    cluster.brokers = [broker(0, 100), broker(1, 101), broker(2, 102)]
    cluster.topics = [topic("bad"), topic("down"), topic("queued", deletion_requested=True)]
    cluster.partitions = {
        ("bad", 0): partition([1, 0, 2], **LED_BY_0),
        ("bad", 1): partition([1, 0, 2], **LED_BY_0 | {"isr": [0]}),
        ("bad", 2): partition([2, 0, 1], **LED_BY_0),
        ("bad", 3): partition([2, 0, 1], **LED_BY_0),
        ("bad", 4): partition([2, 0, 1], **STATE),
        ("down", 0): partition([9, 1, 2], **STATE),
        ("down", 1): partition([9, 1], **STATE | {"isr": [9]}),
        ("down", 2): partition([8, 9], **STATE),
        ("down", 3): partition([0, 1], leader=None, isr=None, leader_epoch=None, understood=True),
        ("queued", 0): partition([9, 1], **STATE),
    }
    cluster.snapshot(timedelta(minutes=60))
    cluster.snapshot(timedelta(minutes=50))
    cluster.partitions["bad", 1] = partition([1, 0, 2], **LED_BY_0)
    cluster.brokers[2] = broker(2, 202)
    third = cluster.snapshot(timedelta(minutes=20))
    bounced = {"kind": "BrokerBounced", "subject": "broker 2", "before": "102", "after": "202"}
    cluster.warehouse.append("events", [{"snapshot_id": third, **bounced}])
    cluster.snapshot()
    return Surveyor("", folder)


def _plan(surveyor: Surveyor, *question: str) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return leader and ISR of each election, and the code of each rejection."""
    plan = read_plan(surveyor.warehouse, surveyor.json("plan", *question)["plan_id"])
    refuse_edited(plan)
    return (
        {c.name: [c.leader_after, *c.isr_after] for c in plan.changes},
        {row.name: row.code for row in plan.rejections},
    )


def _file(tmp_path: Path, *named: tuple[str, int]) -> tuple[str, str]:
    path = tmp_path / "election.json"
    path.write_text(json.dumps({"partitions": [{"topic": name, "partition": number} for name, number in named]}))
    return "--path-to-json-file", str(path)


def test_recover_takes_what_has_no_live_leader(surveyor: Surveyor) -> None:
    rejected = {"down-2": "NO_ELIGIBLE_LEADER"}
    clean = {"down-0": [1, 1, 2]}
    assert _plan(surveyor, "recover") == (clean, rejected | {"down-1": "UNCLEAN_NOT_ALLOWED"})
    assert _plan(surveyor, "recover", "--allow-unclean") == (clean | {"down-1": [1, 1]}, rejected)


def test_a_file_says_which(surveyor: Surveyor, tmp_path: Path) -> None:
    named = _file(tmp_path, ("down", 0), ("down", 3), ("bad", 4), ("nowhere", 0))
    assert _plan(surveyor, "recover", "--allow-unclean", *named) == (
        {"down-0": [1, 1, 2]},
        {"down-3": "NOT_OFFLINE", "bad-4": "NOT_OFFLINE", "nowhere-0": "UNKNOWN_PARTITION"},
    )


OLD_SPELLINGS: Final = {"--offline": (), "--unclean": ("--allow-unclean",)}


@pytest.mark.parametrize(("flag", "named"), [("--offline", ()), ("--unclean", (("down", 1),))])
def test_an_old_spelling_plans_as_recover_and_names_it(
    surveyor: Surveyor, tmp_path: Path, flag: str, named: tuple[tuple[str, int], ...]
) -> None:
    only = _file(tmp_path, *named) if named else ()
    ran = surveyor("plan", "elect", flag, *only, "--json")
    new = ("plan", "recover", *OLD_SPELLINGS[flag], *only)
    assert ran.json["plan_id"] == surveyor.json(*new)["plan_id"]
    assert f"`plan elect {flag}` is an old spelling, which the next release removes" in ran.stderr
    assert all(word in ran.stderr for word in new)
    assert flag not in surveyor("plan", "elect", "--help").stdout


ISR: Final = [0, 1, 2]
ALL: Final = {"bad-0": [1, *ISR], "bad-1": [1, *ISR], "bad-2": [2, *ISR], "bad-3": [2, *ISR]}


def test_elect_is_of_preferred_replicas(surveyor: Surveyor) -> None:
    assert _plan(surveyor, "elect") == _plan(surveyor, "elect", "--preferred") == (ALL, {})


def test_elections_over_the_cap_wait(surveyor: Surveyor) -> None:
    elected, rejected = _plan(surveyor, "elect", "--preferred", "--max-elections", "3")
    assert ({*elected}, rejected) == ({*ALL} - {"bad-3"}, {"bad-3": "CAPPED"})


def test_the_cap_counts_what_would_go_on_only(surveyor: Surveyor) -> None:
    elected, rejected = _plan(
        surveyor, "elect", "--preferred", "--max-elections", "1", "--stable-for", "3", "--settle", "30m"
    )
    assert (elected, rejected) == (
        {"bad-0": ALL["bad-0"]},
        {"bad-1": "NOT_STABLE", "bad-2": "NOT_SETTLED", "bad-3": "NOT_SETTLED"},
    )


USAGE: Final = [
    (
        ("--offline", "--settle", "1h", "--max-elections", "2"),
        "--max-elections, --settle: only for elections of preferred",
    ),
    (("--preferred", "--unclean"), "--preferred: only for elections of preferred"),
    (("--preferred", "--settle", "soon"), "'soon' is no duration"),
    (("--path-to-json-file", "/no/such/file"), "No such file"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_usage(surveyor: Surveyor, arguments: tuple[str, ...], message: str) -> None:
    ran = surveyor("plan", "elect", *arguments)
    assert (ran.code, ran.stdout, message in ran.stderr) == (2, "", True), ran.stderr
