"""`surveyor load rollup`: hours in the tables, whenever samples arrive and wherever an earlier run ended.

`orders` has 10 records of 100 bytes in a second, which a group reads at once, and `audit` 5 of 40 bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count, groupby
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.measurement.rollup import roll_up
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.vacuum import SAMPLES_KEPT, vacuum_warehouse
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic
from tests.planner.load.samples import at, position, sample

pytestmark = pytest.mark.usefixtures("spark")

RECORDS: Final = {"orders": 10, "audit": 5}
"""Records per second."""
BYTES: Final = {"orders": 100, "audit": 40}
"""Bytes of a record."""
LEADERS: Final = {"orders": 1, "audit": 2}

MINUTES: Final = range(0, 361, 10)
"""Times of samples, of six hours."""

TABLES: Final = ("partition_load", "group_load", "broker_load")

Rows = dict[str, list[Row]]


def sampled(name: str, minute: float, **columns: object) -> Row:
    records = round(RECORDS[name] * 60 * minute)
    common = {"topic": name, "topic_id": f"{name}-id", "leader": LEADERS[name]}
    return sample(minute, records, records * BYTES[name], **{**common, **columns})


def committed(minute: float, **columns: object) -> Row:
    """The position of the only group."""
    return position(
        minute, round(RECORDS["orders"] * 60 * minute), **{"topic": "orders", "topic_id": "orders-id", **columns}
    )


def samples(minutes: Iterable[float] = MINUTES) -> list[Row]:
    return [sampled(name, minute) for minute in minutes for name in RECORDS]


POSITIONS: Final = [committed(minute) for minute in MINUTES]


def store(warehouse: Warehouse, rows: Iterable[Row], positions: Iterable[Row] = ()) -> None:
    """Store samples in a commit for each hour, by when they were stored."""
    for table, some in (("group_offsets", positions), ("partition_offsets", rows)):
        for _, of_hour in groupby(sorted(some, key=_stored_at), key=lambda row: _stored_at(row).hour):
            warehouse.append(table, list(of_hour))


def _stored_at(row: Row) -> datetime:
    stored_at: datetime = row["stored_at"]
    return stored_at


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """The snapshot of two brokers, with a follower of `orders` on broker 2."""
    surveyor = Surveyor("", tmp_path_factory.mktemp("rollup") / "warehouse")
    cluster = Cluster(surveyor.warehouse)
    cluster.brokers = [broker(1, 11), broker(2, 12)]
    cluster.topics = [topic("orders"), topic("audit")]
    cluster.partitions = {("orders", 0): partition([1, 2]), ("audit", 0): partition([2])}
    cluster.snapshot()
    return surveyor


@pytest.fixture
def surveyor(template: Surveyor, tmp_path: Path) -> Surveyor:
    return template.copied_to(tmp_path / "warehouse")


def rolled_up(surveyor: Surveyor, *options: str) -> Rows:
    """Run a rollup and return the rows of all tables."""
    surveyor.json("load", "rollup", *options)
    return stored(surveyor)


def stored(surveyor: Surveyor) -> Rows:
    """The rows of all tables, without when they were computed."""
    rows = {table: surveyor.warehouse.rows(table) for table in TABLES}
    return {table: sorted((_plain(row) for row in some), key=str) for table, some in rows.items()}


def _plain(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name != "stored_until"}


def loads(rows: Rows, *columns: str) -> dict[tuple[int, str], tuple[Any, ...]]:
    """The loads of partitions by hour and topic id."""
    return {(row["hour"].hour, row["topic_id"]): tuple(row[name] for name in columns) for row in rows["partition_load"]}


def test_hours_of_partitions_groups_and_brokers(surveyor: Surveyor) -> None:
    store(surveyor.warehouse, samples(), POSITIONS)
    rows = rolled_up(surveyor)
    names = ("records_in", "bytes_in", "bytes_out", "covered_seconds", "samples", "method", "flags", "size_bytes")
    assert loads(rows, *names) == {
        (10 + hour, f"{name}-id"): (
            *(RECORDS[name], RECORDS[name] * BYTES[name], 1000.0 if name == "orders" else 0.0),
            *(3600.0, 6, "delta_size", None, RECORDS[name] * BYTES[name] * 3600 * (hour + 1)),
        )
        for hour in range(6)
        for name in RECORDS
    }
    groups = [(row["hour"].hour, row["records_out"], row["bytes_out"], row["lag"]) for row in rows["group_load"]]
    assert groups == [(10 + hour, 10.0, 1000.0, 0) for hour in range(6)]
    sums = ("leaders", "replicas", "bytes_in", "replication_in", "bytes_out", "replication_out")
    brokers = {(row["hour"].hour, row["broker_id"]): tuple(row[name] for name in sums) for row in rows["broker_load"]}
    assert brokers == {
        (10 + hour, broker_id): load
        for hour in range(6)
        for broker_id, load in {
            1: (1, 1, 1000.0, 0.0, 1000.0, 1000.0),
            2: (1, 2, 200.0, 1000.0, 0.0, 0.0),
        }.items()
    }


def test_a_second_run_changes_nothing(surveyor: Surveyor) -> None:
    store(surveyor.warehouse, samples(), POSITIONS)
    first = rolled_up(surveyor)
    assert rolled_up(surveyor) == first
    assert rolled_up(surveyor, "--since", "2026-11-01T10:00") == first


def test_a_start_in_the_future_is_refused(surveyor: Surveyor) -> None:
    store(surveyor.warehouse, samples(), POSITIONS)
    ran = surveyor("load", "rollup", "--since", "2099-01-01")
    assert (ran.code, "--since 2099-01-01 is in the future; expected an earlier time" in ran.stderr) == (2, True)
    assert stored(surveyor)[TABLES[0]] == []


def test_a_run_after_each_sample_gives_what_one_run_gives(template: Surveyor, tmp_path: Path) -> None:
    """Hours are replaced as a whole, also the newest one, which has few samples at first."""
    often, once = (template.copied_to(tmp_path / name) for name in ("often", "once"))
    for minute in MINUTES[:13:2]:
        store(often.warehouse, samples([minute]), [committed(minute)])
        rolled_up(often)
    store(once.warehouse, samples(MINUTES[:13:2]), POSITIONS[:13:2])
    assert stored(often) == rolled_up(once)


def test_a_late_sample_changes_its_hours(surveyor: Surveyor) -> None:
    """Without it, what came in between 110 and 130 minutes is one half in each hour; all of it came before 120."""
    late = sampled("orders", 130) | {"sampled_at": at(120), "stored_at": at(500)}
    on_time = [row for row in samples() if (row["topic"], row["sampled_at"]) != ("orders", at(120))]
    store(surveyor.warehouse, on_time, POSITIONS)
    before = rolled_up(surveyor)
    assert {rate for rate, _ in loads(before, "bytes_in", "topic").values()} == {1000.0, 200.0}
    store(surveyor.warehouse, [late])
    after = rolled_up(surveyor)
    rates = {key: rate for key, (rate,) in loads(after, "bytes_in").items()}
    assert rates == {key: rate for key, (rate,) in loads(before, "bytes_in").items()} | {
        (11, "orders-id"): pytest.approx(1000 + 600_000 / 3600),
        (12, "orders-id"): pytest.approx(1000 - 600_000 / 3600),
    }
    assert outside(after, 11, 12) == outside(before, 11, 12)


def outside(rows: Rows, *hours: int) -> Rows:
    """The rows of other hours."""
    return {table: [row for row in some if row["hour"].hour not in hours] for table, some in rows.items()}


class Crash(Exception):  # noqa: N818 - no error of the rollup
    """The process ends."""


class SettingsOfCrash(Settings):
    """Settings with a warehouse that ends the process before a write."""

    writes: int

    @property
    def warehouse(self) -> Warehouse:
        return replace(super().warehouse, refuse_write=self.refuse_write)

    def refuse_write(self) -> None:
        if not self.writes:
            raise Crash
        self.writes -= 1


def crashed(surveyor: Surveyor, writes: int) -> bool:
    """Run a rollup that ends before a write, and return whether it did."""
    warehouse = surveyor.warehouse
    settings = SettingsOfCrash(warehouse.cluster, warehouse.uri, ClusterConf())
    object.__setattr__(settings, "writes", writes)
    try:
        roll_up(settings)
    except Crash:
        return True
    return False


def test_a_run_that_ends_between_two_writes_is_made_up_for(template: Surveyor, tmp_path: Path) -> None:
    """Hours that were stored before, and samples that came in between, do not matter."""
    early, late = MINUTES[:19], MINUTES[19:]
    begun, once = (template.copied_to(tmp_path / name) for name in ("begun", "once"))
    store(once.warehouse, samples(), POSITIONS)
    expected = rolled_up(once)
    store(begun.warehouse, samples(early), POSITIONS[:19])
    rolled_up(begun)
    store(begun.warehouse, samples(late[:9]), POSITIONS[19:28])
    for writes in count():
        surveyor = begun.copied_to(tmp_path / f"crashed-{writes}")
        has_crashed = crashed(surveyor, writes)
        store(surveyor.warehouse, samples(late[9:]), POSITIONS[28:])
        assert rolled_up(surveyor) == expected, f"after {writes} writes"
        if not has_crashed:
            break
    assert writes == len(TABLES)


def test_a_first_run_that_ends_between_two_writes_is_made_up_for(template: Surveyor, tmp_path: Path) -> None:
    begun, once = (template.copied_to(tmp_path / name) for name in ("begun", "once"))
    for warehouse in (begun.warehouse, once.warehouse):
        store(warehouse, samples(), POSITIONS)
    expected = rolled_up(once)
    for writes in range(len(TABLES)):
        surveyor = begun.copied_to(tmp_path / f"crashed-{writes}")
        assert crashed(surveyor, writes)
        assert rolled_up(surveyor) == expected, f"after {writes} writes"


@pytest.mark.parametrize("options", [(), ("--since", "2026-11-01T10:00")])
@pytest.mark.parametrize("minute", [25, 90, 145])
def test_hours_whose_samples_were_deleted_stay(surveyor: Surveyor, minute: int, options: tuple[str, ...]) -> None:
    """A vacuum in the middle of an hour does not leave a part of an hour's samples, by which it would be computed."""
    store(surveyor.warehouse, samples(MINUTES[:31]), POSITIONS[:31])
    before = rolled_up(surveyor)
    vacuum_warehouse(surveyor.warehouse, at(minute) + SAMPLES_KEPT, timedelta(days=400), dry_run=False)
    late = [sampled("orders", number) | {"stored_at": at(500)} for number in (minute + 2, minute + 3, 303)]
    store(surveyor.warehouse, samples(MINUTES[31:]) + late, POSITIONS[31:])
    after = rolled_up(surveyor, *options)
    assert loads(after, "bytes_in", "covered_seconds") == {
        (10 + hour, f"{name}-id"): (RECORDS[name] * BYTES[name], 3600.0) for hour in range(6) for name in RECORDS
    }
    deleted = range(10, 10 + minute // 60)
    assert [row for row in after["partition_load"] if row["hour"].hour in deleted] == [
        row for row in before["partition_load"] if row["hour"].hour in deleted
    ]


def test_a_sampler_that_ends_in_the_middle_of_a_sample(surveyor: Surveyor) -> None:
    """It stores the offsets of partitions last, so that those of groups may be all that there is."""
    broken = {at(60), at(180), at(360)}
    complete = [row for row in samples() if row["sampled_at"] not in broken]
    store(surveyor.warehouse, complete, POSITIONS)
    found = loads(rolled_up(surveyor), "bytes_in", "bytes_out", "covered_seconds")
    rates = {"orders-id": (1000.0, 1000.0), "audit-id": (200.0, 0.0)}
    assert found == {
        (10 + hour, name): (*rates[name], 3000.0 if hour == 5 else 3600.0) for hour in range(6) for name in rates
    }
    groups = {row["hour"].hour: (row["records_out"], row["bytes_out"]) for row in surveyor.warehouse.rows("group_load")}
    assert groups == {10 + hour: (10.0, 1000.0) for hour in range(6)}


ALL_HOURS: Final = dict.fromkeys(range(10, 16), 3600.0)


def _moved(row: Row) -> Row:
    return {**row, "leader": 2, "leader_epoch": 6} if row["sampled_at"] >= at(130) else row


def _restarted(row: Row) -> Row:
    """The same broker leads with a new epoch after two samples without it."""
    return {**row, "leader_epoch": 7} if row["sampled_at"] >= at(150) else row


def _created_again(row: Row) -> Row:
    """The topic was deleted after 120 minutes, and one with its name has had records since then."""
    if row["sampled_at"] < at(130):
        return row
    lost = RECORDS["orders"] * 60 * 120
    return {**row, "topic_id": "new-id", "log_end": row["log_end"] - lost, "bytes": row["bytes"] - lost * 100}


@pytest.mark.parametrize(
    ("change", "silent", "hours"),
    [
        (_moved, (), {"orders-id": ALL_HOURS}),
        (_restarted, (130, 140), {"orders-id": ALL_HOURS}),
        (dict, range(70, 220, 10), {"orders-id": {10: 3600.0, 13: 1200.0, 14: 3600.0, 15: 3600.0}}),
        (
            _created_again,
            (),
            {"orders-id": {10: 3600.0, 11: 3600.0}, "new-id": {12: 3000.0, 13: 3600.0, 14: 3600.0, 15: 3600.0}},
        ),
    ],
    ids=["another leader", "a restart", "a broker that is down", "a topic that is created again"],
)
def test_no_hour_is_wrong(
    surveyor: Surveyor, change: Callable[[Row], Row], silent: Iterable[int], hours: dict[str, dict[int, float]]
) -> None:
    """At most it is missing, or less of it is covered."""
    missing = {at(minute) for minute in silent}
    rows = [sampled("orders", minute) for minute in MINUTES if at(minute) not in missing]
    others = [sampled("audit", minute) for minute in MINUTES]
    store(surveyor.warehouse, [*map(change, rows), *others])
    found = loads(rolled_up(surveyor), "bytes_in", "covered_seconds")
    expected = {(hour, name): (1000.0, seconds) for name, by_hour in hours.items() for hour, seconds in by_hour.items()}
    assert found == expected | {(hour, "audit-id"): (200.0, 3600.0) for hour in ALL_HOURS}
