"""`surveyor whatif` on stored snapshots: what is shown, kept and refused; the cluster stays as it is."""

import json
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.warehouse_rows import NOW
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration

pytestmark = pytest.mark.usefixtures("spark")

RACKS = {0: "a", 1: "a", 2: "b", 3: None}


@pytest.fixture(scope="module")
def untouched(module_tree: KafkaTree) -> KafkaTree:
    """Broker 3 alone has orders-3; the others share the rest. No test changes anything here."""
    _fill(module_tree)
    return module_tree


@pytest.fixture(scope="module")
def first(untouched: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    ready = Surveyor(untouched.hosts, tmp_path_factory.mktemp("whatif") / "warehouse")
    write_first_snapshot(ready)
    return ready


@pytest.fixture
def surveyor(first: Surveyor, tmp_path: Path) -> Surveyor:
    """A copy of its warehouse."""
    return first.copied_to(tmp_path / "warehouse")


def _fill(tree: KafkaTree) -> None:
    tree.lay_out(brokers=())
    for broker, rack in RACKS.items():
        tree.register(broker, registration(rack=rack))
    tree.elect(0, epoch=7)
    tree.add_topic("orders", {0: [0, 1], 1: [1, 0], 2: [2, 1], 3: [3]})


def test_each_kind_of_loss(surveyor: Surveyor, untouched: KafkaTree) -> None:
    before = untouched.dump()
    scenarios = {}
    for lose in ("brokers=1", "racks=1", "brokers=2"):
        result = surveyor.json("whatif", "--lose", lose)
        assert (result["scenarios"], result["crowded"]) == (len(result["rows"]), 2)
        scenarios[result["lose"]] = [(row["scenario"], row["offline"], row["leaders_moved"]) for row in result["rows"]]
    assert scenarios == {
        "brokers=1": [("broker 3", 1, 0), ("broker 0", 0, 1), ("broker 1", 0, 1), ("broker 2", 0, 1)],
        "racks=1": [("rack a", 2, 0), ("broker 3", 1, 0), ("rack b", 0, 1)],
        "pairs": [
            ("brokers 0+1", 2, 0),
            ("brokers 0+3", 1, 1),
            ("brokers 1+2", 1, 1),
            ("brokers 1+3", 1, 1),
            ("brokers 2+3", 1, 1),
            ("brokers 0+2", 0, 2),
        ],
    }
    assert untouched.dump() == before


LOST_TOGETHER: Final = {
    "0": ("broker 0", 0, 1),
    "1,0": ("brokers 0+1", 2, 0),
    "0,3": ("brokers 0+3", 1, 1),
    "0,1,3": ("brokers 0+1+3", 3, 0),
    "rack=a": ("rack a", 2, 0),
    "0,9": ("broker 0", 0, 1),
}
"""What is lost together: its name, partitions that go offline, and leaders that move."""


def test_brokers_lost_together(surveyor: Surveyor) -> None:
    results = {lose: surveyor.json("whatif", "--lose", lose) for lose in LOST_TOGETHER}
    columns = ("scenario", "newly_offline", "leaders_moved")
    assert {
        lose: tuple(result["rows"][0][name] for name in columns) for lose, result in results.items()
    } == LOST_TOGETHER
    assert {result["scenarios"] for result in results.values()} == {1}
    assert (results["1,0"]["lose"], results["rack=a"]["lose"]) == ("0,1", "0,1")
    assert results["0,9"]["warnings"] == ["broker 9 not live in snapshot 1: lost already"]
    assert surveyor.rows("whatif", "lose") == []


@pytest.mark.parametrize("lose", ["9", "8,9", "rack=x"])
def test_nothing_to_lose_together(surveyor: Surveyor, lose: str) -> None:
    ran = surveyor("whatif", "--lose", lose)
    assert ran.code == 23
    said = (
        f"--lose {lose.replace(',', ', ')}: no such broker is live in snapshot 1; live are 0, 1, 2, 3, racks are a, b"
    )
    assert said in ran.stderr


def test_a_drained_broker_leads_where_no_other_can(surveyor: Surveyor) -> None:
    surveyor.warehouse.replace("drained", [{"broker_id": 1, "mode": "admin", "plan_id": "p", "since": NOW}])
    rows = {row["scenario"]: row for row in surveyor.json("whatif", "--lose", "brokers=1")["rows"]}
    assert (rows["broker 0"]["offline"], rows["broker 0"]["leaders_moved"]) == (0, 1)


def test_as_people_read_it(surveyor: Surveyor) -> None:
    shown = surveyor("whatif", "--lose", "pairs", "--limit", "2")
    assert shown.code == 0, shown.stderr
    assert "default, snapshot 1, losing pairs" in shown.stdout
    assert [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("brokers ")] == ["0+1", "0+3"]
    assert "... and 4 more; --limit shows more, --json gives all" in shown.stdout
    assert "5 of 6 scenarios take partitions offline" in shown.stdout
    assert "brokers 0+1: 2 partitions offline: orders-0, orders-1\n" in shown.stdout
    held = f"surveyor show partitions --broker 0 --warehouse {surveyor.folder}"
    assert shown.stdout.endswith(f"\nshow its partitions: {held}\n")


def test_asked_again_is_kept_once(surveyor: Surveyor) -> None:
    for lose in ("brokers=1", "racks=1", "brokers=1"):
        surveyor.json("whatif", "--lose", lose)
    surveyor.json("snapshot")
    surveyor.json("whatif", "--lose", "racks=1", "--snapshot", "1")
    surveyor.json("whatif", "--lose", "racks=1")
    kept = [(snapshot, lose) for snapshot, lose, _ in surveyor.rows("whatif", "snapshot_id", "lose", "scenario")]
    assert kept == [*[(1, "brokers=1")] * 4, *[(1, "racks=1")] * 3, *[(2, "racks=1")] * 3]


@pytest.mark.parametrize("lose", ["brokers=3", "racks=2", "pairs=1", "broker", "", "brokers", "rack"])
def test_what_cannot_be_lost(lose: str, tmp_path: Path) -> None:
    refused = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("whatif", "--lose", lose, "--json")
    assert refused.code == 2
    assert json.loads(refused.stdout)["error"] == (
        f"--lose {lose!r}: expected brokers=1, racks=1, pairs (the same as brokers=2), or what is lost together: "
        "brokers as in 2,5, or a rack as in rack=a"
    )


def test_a_snapshot_is_needed(surveyor: Surveyor, tmp_path: Path) -> None:
    command = ("whatif", "--lose", "pairs")
    assert Surveyor("127.0.0.1:1", tmp_path / "nowhere")(*command).code == 22
    Warehouse(str(tmp_path / "empty"), "default").ensure_tables()
    empty = Surveyor("127.0.0.1:1", tmp_path / "empty")(*command)
    assert (empty.code, "take one with `surveyor snapshot" in empty.stderr) == (22, True)
    unknown = surveyor(*command, "--snapshot", "9")
    assert (unknown.code, "no snapshot 9" in unknown.stderr) == (2, True)


def test_what_is_not_judged_is_said(bare_tree: KafkaTree, tmp_path: Path) -> None:
    _fill(bare_tree)
    surveyor = Surveyor(bare_tree.hosts, tmp_path / "warehouse")
    surveyor.json("snapshot")
    bare_tree.write("/brokers/topics/orders/partitions/3/state", b"?")
    surveyor.json("snapshot")
    shown = surveyor("whatif", "--lose", "brokers=1")
    assert "0 of 4 scenarios take partitions offline" in shown.stdout
    assert "warning: 1 partition not judged: not understood, or without a state" in shown.stdout


def test_partitions_behind_the_counts_are_named(surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them, and of the scenarios that are shown; all with --all-partitions."""
    monkeypatch.setattr("jobs.console_output.losses.MAX_PARTITIONS_NAMED", 1)
    rows = surveyor.json("whatif", "--lose", "pairs", "--limit", "1")["rows"]
    options = ("whatif", "--lose", "pairs", "--limit", "1")
    cut, whole = (surveyor(*options, *more).stdout for more in ((), ("--all-partitions",)))

    assert rows[0]["partitions"] == {
        "newly_offline": ["orders-0", "orders-1"],
        "unclean_only": [],
        "newly_under_min_isr": rows[0]["partitions"]["newly_under_min_isr"],
        "leaders_moved": [],
    }
    assert "partitions" not in rows[1]
    assert "brokers 0+1: 2 partitions offline: orders-0 and 1 more (--all-partitions)" in cut
    assert "brokers 0+1: 2 partitions offline: orders-0, orders-1\n" in whole
    assert "brokers 0+3: 1 partition offline: orders-3" in whole
