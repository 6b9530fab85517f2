"""The forecast of full disks: by log dir where the tables know it, else by broker; a volume counts once."""

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.load import load_steps
from jobs.measurement.load_summary import read_load_findings
from jobs.runtime.settings import ClusterConf, Settings
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

GIB: Final = 2**30
END: Final = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
"""The end of the newest hour with loads."""

DAY: Final = timedelta(days=1)

ORDERS, AUDIT, IDLE = ("orders", 0), ("audit", 0), ("idle", 0)
GROWTH: Final = {ORDERS: 24 * GIB, AUDIT: 12 * GIB, IDLE: 0}
"""Bytes a day by which each partition grows."""

SIZE: Final = 100 * GIB

TWO_DISKS: Final = [("/d1", 200, 48), ("/d2", 200, 96)]
ON_TWO_DISKS: Final = {"/d1": [ORDERS], "/d2": [AUDIT, IDLE]}

Filling = list[tuple[list[str], timedelta]]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A broker that has replicas of three partitions, with loads of a day ago and of the last hour."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10)]
    cluster.topics = [topic(name) for name, _ in GROWTH]
    cluster.partitions = {key: partition([0]) for key in GROWTH}
    cluster.snapshot()
    for hour, days in ((END - HOUR, 0), (END - HOUR - DAY, 1)):
        sizes = {key: SIZE - days * growth for key, growth in GROWTH.items()}
        warehouse.append("broker_load", [broker_row(hour, 0, size_bytes=sum(sizes.values()))])
        warehouse.append(
            "partition_load", [partition_row(hour, *key, 0.0, size_bytes=size) for key, size in sizes.items()]
        )
    return warehouse


def _store_disks(
    warehouse: Warehouse,
    log_dirs: list[tuple[str, int, int]],
    logs: dict[str, list[tuple[str, int]]],
    taken_at: datetime,
    failed: Collection[str] = (),
) -> None:
    """Store log dirs with the GiB of their volumes and those free, as `surveyor sizes` does."""
    warehouse.replace(
        "log_dirs",
        [
            {
                "broker_id": 0,
                "log_dir": path,
                "total_bytes": None if path in failed else total * GIB,
                "usable_bytes": None if path in failed else free * GIB,
                "error": "KAFKA_STORAGE_ERROR" if path in failed else None,
                "taken_at": taken_at,
            }
            for path, total, free in log_dirs
        ],
    )
    warehouse.replace(
        "sizes",
        [
            {"broker_id": 0, "topic": name, "partition": number, "log_dir": path, "bytes": SIZE, "offset_lag": 0}
            | {"is_future": False, "taken_at": taken_at}
            for path, keys in logs.items()
            for name, number in keys
        ],
    )


def _store_capacity(warehouse: Warehouse, source: str, amounts: dict[str | None, int]) -> None:
    rows = [
        {"broker_id": 0, "log_dir": path, "resource": "disk", "capacity": float(amount * GIB), "source": source}
        for path, amount in amounts.items()
    ]
    warehouse.append("broker_capacity", [{**row, "valid_from": END} for row in rows])


def _shown(warehouse: Warehouse) -> dict[str, Any]:
    """The broker in the JSON of `surveyor show load`."""
    row: dict[str, Any] = json.loads(Surveyor(warehouse).run("show", "load", "--json").stdout)["rows"][0]
    return row


def _filling(warehouse: Warehouse) -> Filling:
    return [
        (disk["log_dirs"], datetime.fromisoformat(disk["full_at"]) - END) for disk in _shown(warehouse)["filling_disks"]
    ]


def _due(warehouse: Warehouse) -> list[str]:
    """The lines of `surveyor status`."""
    return [step.what for step in load_steps(read_load_findings(_settings(warehouse), None, END), END)]


def _settings(warehouse: Warehouse) -> Settings:
    return Settings(warehouse.cluster, warehouse.uri, ClusterConf())


def test_each_log_dir_grows_as_the_replicas_in_it(warehouse: Warehouse) -> None:
    """Orders fill 48 GiB in two days, audit 96 GiB in eight."""
    _store_disks(warehouse, TWO_DISKS, ON_TWO_DISKS, END)
    assert _filling(warehouse) == [(["/d1"], 2 * DAY), (["/d2"], 8 * DAY)]
    at = END + 2 * DAY
    assert _due(warehouse) == [
        f"broker 0: /d1 is full on {at:%A, %Y-%m-%d %H:00} UTC; it is 76% full and grows by 1.0 GiB an hour"
    ]
    (soon,) = read_load_findings(_settings(warehouse), None, END).json["full_soon"]
    assert (soon["broker_id"], soon["log_dirs"], soon["full_at"]) == (0, ("/d1",), at)
    assert _shown(warehouse)["disk_share"] == 0.75
    lines = Surveyor(warehouse).run("show", "load").stdout
    assert f"{at:%Y-%m-%d %H:%M} UTC /d1" in " ".join(lines.split())


def test_log_dirs_on_one_volume_fill_it_together(warehouse: Warehouse) -> None:
    """72 GiB in two days, by 36 GiB a day; the capacity is that of one volume."""
    _store_disks(warehouse, [("/d1", 400, 72), ("/d2", 400, 72), ("/d3", 500, 499)], {**ON_TWO_DISKS, "/d3": []}, END)
    assert _filling(warehouse) == [(["/d1", "/d2"], 2 * DAY)]
    assert _due(warehouse)[0].startswith("broker 0: the volume of /d1, /d2 is full on ")
    assert _shown(warehouse)["disk_share"] == pytest.approx(300 / 900)


def test_the_only_volume_of_a_broker_grows_as_the_broker(warehouse: Warehouse) -> None:
    _store_disks(warehouse, [("/d1", 400, 72), ("/d2", 400, 72)], {}, END)
    assert _filling(warehouse) == [(["/d1", "/d2"], 2 * DAY)]


def test_free_bytes_count_from_the_time_at_which_they_were_reported(warehouse: Warehouse) -> None:
    _store_disks(warehouse, TWO_DISKS, ON_TWO_DISKS, END - DAY / 2)
    assert _filling(warehouse) == [(["/d1"], 1.5 * DAY), (["/d2"], 7.5 * DAY)]


@pytest.mark.parametrize("taken_at", [END - DAY - HOUR, END + DAY + HOUR])
def test_the_whole_broker_counts_if_its_log_dirs_are_old(warehouse: Warehouse, taken_at: datetime) -> None:
    """300 of 400 GiB are used, and 36 GiB a day are added."""
    _store_disks(warehouse, TWO_DISKS, ON_TWO_DISKS, taken_at)
    assert [(paths, round(after / DAY, 3)) for paths, after in _filling(warehouse)] == [([], 2.778)]
    assert _due(warehouse)[0].startswith("broker 0: its disk is full on ")


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"/d1": 148, "/d2": 224}, [(["/d1"], 2 * DAY), (["/d2"], 2 * DAY)]),
        ({"/d1": 100, "/d2": 500}, [(["/d1"], timedelta(0)), (["/d2"], 25 * DAY)]),
        ({"/d1": 100, "/d9": 50}, [(["/d1"], 2 * DAY), (["/d2"], 8 * DAY)]),
        ({None: 336}, [([], DAY)]),
    ],
)
def test_capacities_of_a_file_precede(warehouse: Warehouse, amounts: dict[str | None, int], expected: Filling) -> None:
    """Disks of the whole broker are not divided; other log dirs than those of the broker do not count."""
    _store_disks(warehouse, TWO_DISKS, ON_TWO_DISKS, END)
    _store_capacity(warehouse, "file", amounts)
    assert _filling(warehouse) == expected


@pytest.mark.parametrize(
    ("log_dirs", "logs", "expected"),
    [
        ([("/d1", 200, 48), ("/d2", 0, 0)], {"/d1": [ORDERS]}, [(["/d1"], 2 * DAY)]),
        ([("/d2", 0, 0)], {}, []),
        ([("/d1", 200, 48), ("/d2", 0, 0)], {"/d1": []}, []),
    ],
)
@pytest.mark.parametrize("amounts", [{}, {None: 400}, {"/d1": 200, "/d2": 200}])
def test_a_failed_log_dir_leaves_the_share_unknown_and_the_forecast_of_others(
    warehouse: Warehouse,
    log_dirs: list[tuple[str, int, int]],
    logs: dict[str, list[tuple[str, int]]],
    expected: Filling,
    amounts: dict[str | None, int],
) -> None:
    """All of the broker's replicas would be more than the log dirs that are left."""
    _store_disks(warehouse, log_dirs, logs, END, failed={"/d2"})
    _store_capacity(warehouse, "file", amounts)
    note = "broker 0: the capacity of its disk is unknown, because /d2 failed"
    assert (_shown(warehouse)["disk_share"], _filling(warehouse)) == (None, expected)
    assert note in " ".join(Surveyor(warehouse).run("show", "load").stdout.split())
    assert read_load_findings(_settings(warehouse), None, END).above_limits == []
    assert "surveyor_broker_disk_used_ratio{" not in Surveyor(warehouse).run("metrics").stdout


def test_metrics_have_each_log_dir(warehouse: Warehouse) -> None:
    _store_disks(warehouse, [*TWO_DISKS, ("/d0", 200, 48)], ON_TWO_DISKS, END)
    text = Surveyor(warehouse).run("metrics").stdout
    name = "surveyor_broker_disk_full_timestamp_seconds"
    found = {line.split("} ")[0]: float(line.split("} ")[1]) for line in text.splitlines() if line.startswith(name)}
    labels = '{broker="0",cluster="default",log_dir="'
    assert found == {
        f'{name}{labels}{path}"': (END + days * DAY).timestamp() for path, days in (("/d0", 2), ("/d1", 2), ("/d2", 8))
    }
