"""`plan reassign --to-snapshot`: back to the replicas of an earlier snapshot, as a normal plan of reassignments."""

from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

pytestmark = pytest.mark.usefixtures("spark")

USAGE, REFUSED = 2, 23


def held(replicas: list[int]) -> Row:
    state = {"state_version": 0, "topic_version": 0, "controller_epoch": 1, "leader_recovery_state": 0}
    return partition(replicas, understood=True, **state)


@pytest.fixture
def surveyor(tmp_path: Path, warehouse: Warehouse) -> Surveyor:
    """After snapshot 1 broker 3 dies; orders moves, partly off broker 3; others move too; one topic is new."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, epoch=100 + number) for number in range(4)]
    cluster.topics = [topic("orders"), topic("others")]
    cluster.partitions = {
        ("orders", 0): held([0, 1]),
        ("orders", 1): held([3, 1]),
        ("orders", 2): held([0, 1]),
        ("others", 0): held([0, 1]),
    }
    cluster.snapshot()
    del cluster.brokers[3]
    cluster.topics.append(topic("orders.new"))
    cluster.partitions |= {
        ("orders", 0): held([2, 1]),
        ("orders", 1): held([2, 1]),
        ("others", 0): held([1, 0]),
        ("orders.new", 0): held([0, 1]),
    }
    cluster.snapshot()
    return Surveyor("", tmp_path / "warehouse")


def test_back_to_a_snapshot(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--to-snapshot", "1", "--topics", "orders.*")

    assert (plan["status"], plan["moves"]) == ("planned", 1)
    changes = surveyor.rows("changes", "topic", "partition", "replicas_before", "replicas_after")
    assert changes == [("orders", 0, [2, 1], [0, 1])]
    assert surveyor.rows("rejections", "topic", "partition", "code") == [
        ("orders", 1, "BROKER_NOT_ALIVE"),
        ("orders.new", 0, "UNKNOWN_PARTITION"),
    ]


WRONG: list[tuple[list[str], int, str]] = [
    (["1", "--max-moves", "1"], USAGE, "leave out --max-moves"),
    (["1", "--topics", "none"], REFUSED, "no topic of snapshots 1 and 2 is requested"),
    (["9"], USAGE, "no snapshot 9"),
    (["1", "--rebalance"], USAGE, "not --rebalance and --to-snapshot"),
]


def test_wrong_input_is_one_message(surveyor: Surveyor) -> None:
    for arguments, code, message in WRONG:
        ran = surveyor("plan", "reassign", "--to-snapshot", *arguments)
        assert (ran.code, message in ran.stderr) == (code, True), ran.stderr
