"""Waves of plans by counts and by sizes: no disk is filled beyond its limit where an order of waves keeps it."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from jobs.adapters.brokers.log_dirs import LOG_COLUMNS
from jobs.snapshots.sizes import store_sizes
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic

pytestmark = pytest.mark.usefixtures("spark")

REPLICAS: Final = {0: [0, 1], 1: [2, 3]}
"""Each partition is in one rack: one replica of each must move to the other rack, and four brokers hold one each."""

SIZE: Final = 40
COPIED: Final = 2


@pytest.fixture
def surveyor(tmp_path: Path) -> Surveyor:
    ready = Surveyor("", tmp_path / "warehouse")
    cluster = Cluster(ready.warehouse)
    cluster.brokers = [broker(number, number, rack="aabb"[number]) for number in range(4)]
    cluster.topics = [topic("orders")]
    cluster.partitions = {("orders", number): partition(brokers) for number, brokers in REPLICAS.items()}
    cluster.snapshot()
    return ready


def _store_sizes(surveyor: Surveyor) -> None:
    common = {"topic": "orders", "log_dir": "/a", "bytes": SIZE, "offset_lag": 0, "is_future": False, "taken_at": NOW}
    rows = [
        {**common, "broker_id": broker, "partition": number}
        for number, brokers in REPLICAS.items()
        for broker in brokers
    ]
    store_sizes(surveyor.warehouse, range(4), pa.Table.from_pylist(rows, schema=LOG_COLUMNS))


def _store_limits(surveyor: Surveyor, of_a: float, of_b: float) -> None:
    """Store disks of which the default share, 0.8, may be used."""
    common = {"resource": "disk", "source": "file", "valid_from": NOW}
    limits = {0: of_a, 1: of_a, 2: of_b, 3: of_b}
    rows = [{**common, "broker_id": broker, "capacity": limit / 0.8} for broker, limit in limits.items()]
    surveyor.warehouse.append("broker_capacity", rows)


def _waves(surveyor: Surveyor, *options: str) -> tuple[dict[int, int], list[str]]:
    """Plan; return the wave in which each partition is copied, and the warnings."""
    plan = surveyor.json("plan", "reassign", "--fix-racks", *options)
    rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    waves = {row["partition"]: row["wave"] for row in rows if row["adding_after"]}
    assert len(waves) == COPIED
    assert surveyor.json("show", "plan", plan["plan_id"])["warnings"] == plan["warnings"]
    return waves, [text for text in plan["warnings"] if "order of waves" in text]


@pytest.mark.parametrize("options", [(), ("--by-size",)])
def test_a_replica_is_copied_once_another_one_has_left(surveyor: Surveyor, options: tuple[str, ...]) -> None:
    """Brokers in rack a have room for one partition, and those in rack b for two."""
    _store_sizes(surveyor)
    _store_limits(surveyor, 60, 80)
    assert _waves(surveyor, *options) == ({0: 0, 1: 1}, [])


@pytest.mark.parametrize("options", [(), ("--by-size",)])
def test_disks_with_room_need_one_wave(surveyor: Surveyor, options: tuple[str, ...]) -> None:
    _store_sizes(surveyor)
    _store_limits(surveyor, 80, 80)
    assert _waves(surveyor, *options) == ({0: 0, 1: 0}, [])


@pytest.mark.parametrize("options", [(), ("--by-size",)])
def test_disks_that_no_order_keeps_below_their_limits_are_a_warning(
    surveyor: Surveyor, options: tuple[str, ...]
) -> None:
    _store_sizes(surveyor)
    _store_limits(surveyor, 60, 60)
    waves, (warning,) = _waves(surveyor, *options)
    assert waves == {0: 0, 1: 0}
    assert warning.startswith(
        "no order of waves was found that keeps disks below their limits: 2 steps of 80 bytes have no room before "
        "others leave (orders-0, orders-1): free or add space"
    )


def test_without_known_sizes_or_capacities_there_is_one_wave(surveyor: Surveyor) -> None:
    _store_limits(surveyor, 60, 60)
    assert _waves(surveyor) == ({0: 0, 1: 0}, [])
    surveyor.warehouse.replace("broker_capacity", [])
    _store_sizes(surveyor)
    assert _waves(surveyor, "--by-size") == ({0: 0, 1: 0}, [])


def test_a_replica_that_must_change_its_rack_is_placed_by_load(tmp_path: Path) -> None:
    """By counts it goes to broker 2, which holds one large partition, by load to broker 3, which holds two small ones.

    No other partition gets another leader.
    """
    surveyor = Surveyor("", tmp_path / "warehouse")
    cluster = Cluster(surveyor.warehouse)
    cluster.brokers = [broker(number, number, rack="aabb"[number]) for number in range(4)]
    lists = {("orders", 0): [0, 1], ("large", 0): [2], ("small", 0): [3], ("small", 1): [3]}
    cluster.topics = [topic(name) for name in ("orders", "large", "small")]
    cluster.partitions = {key: partition(brokers) for key, brokers in lists.items()}
    cluster.snapshot()
    loads = [
        {"topic": name, "partition": number, "method": "imported", "bytes_in": rate, "bytes_out": rate, "size_bytes": 1}
        for (name, number), rate in zip(lists, (10.0, 90.0, 10.0, 10.0), strict=True)
    ]
    surveyor.warehouse.append("partition_load", loads)
    received = {}
    for options in ((), ("--by-load",)):
        plan = surveyor.json("plan", "reassign", "--fix-racks", *options)
        rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
        assert {row["topic"] for row in rows} == {"orders"}
        received[options] = {*rows[0]["adding_after"]}
    assert received == {(): {2}, ("--by-load",): {3}}
