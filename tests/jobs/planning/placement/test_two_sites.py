"""Replicas of two sites on the command line: two of four in each, kept, restored, and with a warning if crowded.

Brokers 1, 2, 3 and 7 are in rack a, 4, 5 and 6 in rack b; 36 partitions have two replicas in each; 7 holds none.
"""

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic
from tests.planner.placement.clusters import PARTITIONS, RACK_OF, two_in_each_rack

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def surveyor(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Snapshot 1: all alive. Snapshot 2: 6 is dead, last seen in b; so is 9, which no snapshot has as registered."""
    ready = Surveyor("", tmp_path_factory.mktemp("sites") / "warehouse")
    warehouse = ready.warehouse
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(id_, id_, rack=rack) for id_, rack in RACK_OF.items()]
    cluster.topics = [topic("even"), topic("crowded"), topic("unknown")]
    for number in range(PARTITIONS):
        cluster.partitions["even", number] = partition(two_in_each_rack(number))
        cluster.partitions["crowded", number] = partition([1, 2, 3, 4 + number % 3])
    cluster.snapshot()
    cluster.brokers = [row for row in cluster.brokers if row["broker_id"] != 6]
    for key, row in cluster.partitions.items():
        isr = [replica for replica in row["replicas"] if replica != 6]
        cluster.partitions[key] = {**row, "isr": isr, "leader": isr[0]}
    cluster.partitions["unknown", 0] = partition([1, 9], isr=[1])
    last_seen = {"broker_id": 6, "rack": "b", "host": "h", "port": 9098, "broker_epoch": 6, "snapshot_id": 1}
    warehouse.replace("brokers_last_seen", [{**last_seen, "last_seen_at": NOW}])
    cluster.snapshot()
    return ready


def _spreads(surveyor: Surveyor, plan: Row) -> dict[tuple[int, ...], int]:
    """Count the partitions by their final replicas in the two racks, the larger number first."""
    rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]), ("action", "=", "reassign"))
    counts = (Counter(RACK_OF[broker] for broker in row["replicas_after"]) for row in rows)
    return Counter(tuple(sorted(count.values(), reverse=True)) for count in counts)


def _warnings(surveyor: Surveyor, plan: Row) -> list[str]:
    warnings: list[str] = surveyor.json("show", "plan", plan["plan_id"])["warnings"]
    return [warning for warning in warnings if "rack" in warning]


RACK_GIVEN_UP: Final = (
    "rack b is given up: 36 partitions are in fewer racks than now; most replicas of a partition in one rack 3 → 4"
)

# question, snapshot, topics, spreads of what changes, warnings
QUESTIONS: Final[list[tuple[list[str], str, str, dict[tuple[int, ...], int], list[str]]]] = [
    (["--remove-brokers", "6"], "1", "even", {(2, 2): 24}, []),
    (["--add-brokers", "7"], "1", "even", {(2, 2): 36}, []),
    (["--replace", "6=7"], "2", "even", {(2, 2): 24}, []),
    (["--fix-racks"], "1", "crowded", {(2, 2): 36}, []),
    (
        ["--remove-brokers", "5,6"],
        "1",
        "even",
        {(3, 1): 36},
        ["36 partitions get more replicas in one rack than now: the brokers left in other racks are too few"],
    ),
    (
        ["--remove-brokers", "4,5,6"],
        "1",
        "even",
        {(4,): 36},
        [RACK_GIVEN_UP],
    ),
    (["--replication-factor", "5"], "1", "even", {(3, 2): 36}, []),
    (
        ["--remove-brokers", "9"],
        "2",
        "unknown",
        {(1, 1): 1},
        [
            (
                "broker 9: its rack is unknown, because no snapshot contains its registration; "
                "its replicas count as in no rack"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", QUESTIONS, ids=[" ".join([*case[0], case[2], case[1]]) for case in QUESTIONS])
def test_two_of_four_stay_in_each_rack(
    surveyor: Surveyor, case: tuple[list[str], str, str, dict[tuple[int, ...], int], list[str]]
) -> None:
    question, snapshot, topics, spreads, warnings = case
    plan = surveyor.json("plan", "reassign", *question, "--topics", topics, "--snapshot", snapshot)
    assert (plan["status"], _spreads(surveyor, plan)) == ("planned", spreads)
    assert [warning for warning in plan["warnings"] if "rack" in warning] == warnings


def test_a_rebalance_crowds_no_rack(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--rebalance", "--topics", "even", "--snapshot", "1")
    assert _spreads(surveyor, plan).keys() == {(2, 2)}
    assert plan["most_in_one_rack"] == {"most": [3, 3], "worse": 0, "uneven": 0, "avoidable": 0, "fixable": [36, 36]}
    shown = surveyor("show", "plan", plan["plan_id"]).stdout
    assert (
        "36 partitions have more in one rack than necessary (now 36): `plan reassign --fix-racks` spreads them" in shown
    )


def test_a_file_that_crowds_a_rack_is_refused(surveyor: Surveyor, tmp_path: Path) -> None:
    """The dead broker 6 counts in the rack in which it was last seen."""
    row = next(number for number in range(PARTITIONS) if 6 in two_in_each_rack(number))
    before = two_in_each_rack(row)
    target = [broker for broker in before if broker != 6] + [7]
    file = reassignment_file(tmp_path, ("even", row, target))
    question = ("plan", "reassign", "--reassignment-json-file", file, "--snapshot", "2")
    ran = surveyor(*question)
    assert ran.code == 23
    assert f"even-{row}: most replicas in one rack 2 → 3: [" in ran.stderr
    assert surveyor.json(*question, "--disable-rack-aware")["status"] == "planned"


def test_new_topics_are_kafkas_with_a_warning_or_balanced(surveyor: Surveyor) -> None:
    question = (
        "plan",
        "assign",
        "--topic",
        "new",
        "--partitions",
        "42",
        "--replication-factor",
        "4",
        "--snapshot",
        "1",
    )
    crowded = []
    for strategy in ("kafka", "balanced"):
        plan = surveyor.json(*question, "--strategy", strategy)
        rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
        most = Counter(max(Counter(RACK_OF[broker] for broker in row["replicas_after"]).values()) for row in rows)
        crowded.append(most[3])
        expected = (
            f"{most[3]} new partitions have up to 3 replicas in one rack; the minimum is 2: --strategy balanced "
            "spreads them; `surveyor plan reassign --fix-racks` spreads them once they are there"
        )
        assert _warnings(surveyor, plan) == ([expected] if most[3] else [])
    assert crowded[0] > 0 == crowded[1]


def test_explicit_replicas_that_crowd_a_rack_are_warned_of(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "assign", "--topic", "new", "--replica-assignment", "1:2,1:4", "--snapshot", "1")
    (warning,) = _warnings(surveyor, plan)
    assert warning.startswith("1 new partition has up to 2 replicas in one rack; the minimum is 1: `surveyor plan")
    added = ("plan", "expand", "--topic", "even", "--partitions", "37", "--replica-assignment", "1:2:3:4")
    (warning,) = _warnings(surveyor, surveyor.json(*added, "--snapshot", "1"))
    assert warning.startswith("1 new partition has up to 3 replicas in one rack; the minimum is 2: `surveyor plan")
