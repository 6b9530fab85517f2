"""How much a plan copies and how long that takes. Oracle: replica by replica, in plain Python."""

from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import StoredRows
from jobs.repositories.copy_volume import VOLUME_COLUMNS, Volume, WaveVolume, space_warnings, volume
from jobs.repositories.log_dirs import usable_bytes
from jobs.repositories.log_sizes import stored_volume
from planner.load.throttle_rates import ThrottleRate
from tests.jobs.support.rows.empty_tables import lay_tables

NOW: Final = datetime(2026, 11, 25, tzinfo=UTC)
Move = tuple[int, str, int, list[int], list[int], int]
"""Wave, topic, partition, replicas before and after, leader before."""


def changes(moves: list[Move], action: str = "reassign") -> StoredRows:
    columns = [(wave, action, *rest) for wave, *rest in moves]
    fields = [schema_of("changes").field(name) for name in VOLUME_COLUMNS]
    lists = zip(*columns, strict=True) if columns else [[] for _ in VOLUME_COLUMNS]
    arrays = [pa.array(column, field.type) for column, field in zip(lists, fields, strict=True)]
    return StoredRows(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def logs(*logs: tuple[int, str, int, int]) -> pa.Table:
    """Logs of brokers: broker, topic, partition, bytes."""
    fields = ("broker_id", "topic", "partition", "bytes")
    rows = [dict(zip(fields, log, strict=True)) for log in logs]
    return pa.Table.from_pylist(rows, schema=pa.schema([schema_of("sizes").field(name) for name in fields]))


@pytest.fixture
def warehouse(warehouse: Warehouse) -> Warehouse:
    lay_tables(warehouse)
    return warehouse


def stored(warehouse: Warehouse, *logs: tuple[int, str, int, int, bool]) -> None:
    """Logs of a broker: topic, partition, bytes, and whether it is a future log."""
    warehouse.replace(
        "sizes",
        [
            {"broker_id": broker, "topic": topic, "partition": number, "log_dir": f"/{future}", "bytes": size}
            | {"offset_lag": 0, "is_future": future, "taken_at": NOW}
            for broker, topic, number, size, future in logs
        ],
    )


MOVES: Final[list[Move]] = [
    (0, "a", 0, [1, 2], [3, 2], 1),  # 100 bytes from 1 to 3
    (0, "a", 1, [1, 2], [3, 4], 2),  # 40 bytes from 2 to 3 and to 4
    (1, "a", 0, [3, 2], [3, 4], 3),  # 100 bytes from 3 to 4
    (1, "b", 0, [1], [2], 1),  # of unknown size
    (1, "b", 1, [1, 2], [2, 1], 1),  # copies nothing
]

COPIED: Final = Volume(
    waves=[
        WaveVolume(wave=0, replicas=3, bytes=180, unknown=0, received={3: 140, 4: 40}, sent={1: 100, 2: 80}),
        WaveVolume(wave=1, replicas=2, bytes=90, unknown=1, received={2: 0, 4: 90}, sent={1: 0, 3: 90}),
    ],
    received={2: 0, 3: 140, 4: 130},
)
"""What `MOVES` copy."""


def test_bytes_of_each_wave(warehouse: Warehouse) -> None:
    """The largest log of the current replicas counts: no future log, and none on a former replica."""
    stored(
        warehouse,
        (1, "a", 0, 100, False),
        (2, "a", 0, 90, False),
        (9, "a", 0, 999, False),
        (1, "a", 1, 40, False),
        (2, "a", 1, 999, True),
        (1, "b", 1, 7, False),
    )

    assert stored_volume(warehouse, changes(MOVES)) == COPIED


def test_time_of_each_wave() -> None:
    assert [*COPIED.lines(10)] == [
        "copies 5 replicas, 270 B, and 1 replica of unknown size; at least 23 s at 10 B/s a broker",
        "bytes copied by wave 180 B in 14 s, 90 B in 9 s",
    ]
    assert COPIED.json(10)["seconds"] == 23.0


def test_time_of_each_wave_at_the_rates_of_brokers() -> None:
    """In the first wave broker 2 sends 80 bytes at 2 B/s, in the second broker 4 receives 90 at 3 B/s."""
    rates = {1: ThrottleRate(1, 9), 2: ThrottleRate(1, 2), 3: ThrottleRate(10, 10), 4: ThrottleRate(3, 1)}
    assert [*COPIED.lines(rates)] == [
        "copies 5 replicas, 270 B, and 1 replica of unknown size; at least 70 s at the rates of this hour",
        "bytes copied by wave 180 B in 40 s, 90 B in 30 s",
    ]
    assert COPIED.seconds(rates) == 70.0


def test_rates_that_follow_the_load_need_no_advice() -> None:
    assert next(COPIED.lines(None, is_auto=True)) == "copies 5 replicas, 270 B, and 1 replica of unknown size"


def test_time_is_unknown_without_a_throttle() -> None:
    assert "--throttle, for instance 50MB/s, limits each broker" in next(COPIED.lines(None))
    assert [wave["seconds"] for wave in COPIED.json(None)["waves"]] == [None, None]


@pytest.mark.parametrize(
    ("moves", "action", "rate", "lines"),
    [
        ([], "reassign", 5, []),
        (MOVES, "elect", 5, []),
        (MOVES[4:], "reassign", 5, []),
        (MOVES[3:4], "reassign", None, []),
        (MOVES[3:4], "reassign", 5, ["copies 1 replica; run `surveyor sizes` to find out how many bytes"]),
    ],
)
def test_no_lines_without_known_sizes(moves: list[Move], action: str, rate: int | None, lines: list[str]) -> None:
    assert [*volume(changes(moves, action), logs()).lines(rate)] == lines


def test_bytes_of_a_plan_by_other_sizes_are_named_where_none_is_recorded() -> None:
    """As of an import of loads, which does not tell which logs are where."""
    [line] = volume(changes(MOVES[3:4], "reassign"), logs()).lines(5, planned=2048)
    size = "copies 1 replica, 2.0 KiB by the sizes that the plan was made with"
    assert line == f"{size}; run `surveyor sizes` to find out how long that takes"


def test_brokers_with_too_little_disk_space(warehouse: Warehouse) -> None:
    """Two log dirs on one volume count once; brokers that do not report their disks are not warned of."""
    dirs = [(3, "/a", 500, 60), (3, "/b", 500, 60), (4, "/a", 500, 60), (4, "/b", 700, 80), (2, "/a", None, None)]
    names = ("broker_id", "log_dir", "total_bytes", "usable_bytes")
    warehouse.replace(
        "log_dirs", [dict(zip(names, row, strict=True)) | {"error": None, "taken_at": NOW} for row in dirs]
    )

    warned = list(space_warnings(Volume([], {2: 9_000, 3: 140, 4: 130}), usable_bytes(warehouse)))

    assert warned == ["1 broker receives more bytes than the disks have left: 3 (140 B, 60 B left)"]


REPLICAS: Final = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(st.integers(0, 2), REPLICAS, REPLICAS), max_size=6), st.lists(st.integers(0, 9), min_size=6))
def test_as_copied_one_by_one(
    drawn: list[tuple[int, list[int], list[int]]],
    sizes: list[int],
) -> None:
    moves = [(wave, "t", number, before, after, before[0]) for number, (wave, before, after) in enumerate(drawn)]
    sized = [(move[3][0], "t", move[2], size) for move, size in zip(moves, sizes, strict=False)]
    sent: dict[tuple[int, int], int] = {}
    received: dict[tuple[int, int], int] = {}
    for wave, _, number, before, after, leader in moves:
        for broker in set(after) - set(before):
            received[wave, broker] = received.get((wave, broker), 0) + sizes[number]
            sent[wave, leader] = sent.get((wave, leader), 0) + sizes[number]

    copied = volume(changes(moves), logs(*sized))

    busiest = {wave.wave: wave.seconds(1) for wave in copied.waves}
    assert copied.bytes == sum(received.values())
    for wave, most in busiest.items():
        assert most == max(count for (of, _), count in [*sent.items(), *received.items()] if of == wave)
