"""`plan reassign --by-load` and `plan elect --by-load`: loads even out with few copied bytes, within limits."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from schemas.rows import PlanRecord
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

REPLICAS: Final = {
    "hot": {0: [0, 1], 1: [0, 1], 2: [0, 2]},
    "cold": {0: [1, 2], 1: [2, 1], 2: [2, 0]},
}
NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def template(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    module_tree.lay_out()
    module_tree.elect(0, epoch=7)
    for topic, replicas in REPLICAS.items():
        module_tree.add_topic(topic, replicas)
    ready = Surveyor(module_tree.hosts, tmp_path_factory.mktemp("load") / "warehouse", plans_on_stored=True)
    write_first_snapshot(ready)
    return ready


@pytest.fixture
def surveyor(template: Surveyor, tmp_path: Path) -> Surveyor:
    return template.copied_to(tmp_path / "warehouse")


def _load(surveyor: Surveyor, hot: dict[str, float], cold: dict[str, float]) -> None:
    """Store imported loads of every hour."""
    surveyor.warehouse.append(
        "partition_load",
        [
            {"topic": topic, "partition": number, "method": "imported", "samples": 0, **load}
            for topic, load in (("hot", hot), ("cold", cold))
            for number in REPLICAS[topic]
        ],
    )


def _changes(surveyor: Surveyor) -> dict[str, list[int]]:
    rows = surveyor.warehouse.rows("changes", ("action", "=", "reassign"))
    return {f"{row['topic']}-{row['partition']}": row["replicas_after"] for row in rows}


def _balance(surveyor: Surveyor) -> Any:  # noqa: ANN401 - JSON
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    return plan.options["figures"]["load_balance"]


def test_leaders_of_hot_partitions_spread_without_a_copy(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 0.0, "bytes_out": 90.0, "size_bytes": 10}, {"bytes_out": 9.0, "size_bytes": 10})
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--resources", "out")
    assert sorted(lists[0] for name, lists in _changes(surveyor).items() if name.startswith("hot")) == [1, 2]
    assert _balance(surveyor)["bytes"] == 0


def test_an_election_plan_by_load_copies_nothing(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 1000}, {"bytes_out": 9.0, "size_bytes": 10})
    surveyor("plan", "elect", "--by-load")
    moved = {name: set(lists) for name, lists in _changes(surveyor).items()}
    assert moved
    assert all(lists == set(REPLICAS[name[:-2]][int(name[-1])]) for name, lists in moved.items())


def test_bytes_stay_within_the_budget(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 9.0, "bytes_out": 0.0, "size_bytes": 1000}, {"bytes_in": 1.0, "size_bytes": 100})
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--budget", "999", "--within", "1%")
    balance = _balance(surveyor)
    assert balance["bytes"] <= 999
    assert balance["worst_after"]["multiple"] <= balance["worst_before"]["multiple"]


def test_the_same_loads_give_the_same_plan(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_in": 9.0, "bytes_out": 30.0, "size_bytes": 1000}, {"bytes_in": 1.0, "size_bytes": 100})
    first, second = (
        json.loads(surveyor("plan", "reassign", "--rebalance", "--by-load", "--json").stdout)["plan_id"]
        for _ in range(2)
    )
    assert first == second


def test_relief_moves_only_what_exceeds_the_share(surveyor: Surveyor) -> None:
    _load(surveyor, {"bytes_out": 90.0, "size_bytes": 100}, {"bytes_out": 1.0, "size_bytes": 10})
    capacity = {"resource": "disk", "source": "file", "valid_from": NOW, "limit_share": 1.0}
    sizes = {0: 300.0, 1: 1000.0, 2: 1000.0}  # broker 0 holds 310, broker 1 220, broker 2 130
    rows = [{"broker_id": broker, "capacity": size, **capacity} for broker, size in sizes.items()]
    surveyor.warehouse.append("broker_capacity", rows)
    surveyor("plan", "reassign", "--rebalance", "--by-load", "--relieve", "85%")
    assert _balance(surveyor)["bytes"] == 100
    assert len(_changes(surveyor)) == 1


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--budget", "1TB"], "--budget: only with --by-load"),
        (["--by-load", "--by-size"], "--by-size and --by-load exclude each other"),
        (["--by-load", "--resources", "network"], "expected some of disk, in, out, cpu"),
        (["--by-load", "--profile", "a", "--window", "24h"], "exclude each other"),
    ],
)
def test_contradictory_options_are_refused(surveyor: Surveyor, options: list[str], fault: str) -> None:
    ran = surveyor("plan", "reassign", "--rebalance", *options)
    assert (ran.code, fault in ran.stderr) == (2, True)
