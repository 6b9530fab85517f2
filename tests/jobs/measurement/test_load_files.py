"""Files of loads: what is read, and the line that each fault is reported with."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.core.arrow_rows import as_rows
from jobs.core.errors import UsageError
from jobs.measurement.load_files import LOAD_COLUMNS, read_load_file

TEN: Final = datetime(2026, 11, 20, 10, tzinfo=UTC)

NOW: Final = TEN + timedelta(days=100)

Row = dict[str, Any]


def _rows(path: Path) -> list[Row]:
    return as_rows(read_load_file(path, NOW).rows)


READ: Final[list[tuple[str, str, list[Row]]]] = [
    (
        "every column, in any order",
        "size_bytes,hour,partition,bytes_out,topic,bytes_in\n9,2026-11-20T10:00:00Z,3,2,t,1.5\n",
        [{"topic": "t", "partition": 3, "hour": TEN, "bytes_in": 1.5, "bytes_out": 2.0, "size_bytes": 9}],
    ),
    (
        "the same for every hour",
        "topic,partition,bytes_in\nt,0,1e6\n\nu,1,.5\n",
        [
            {"topic": "t", "partition": 0, "hour": None, "bytes_in": 1e6},
            {"topic": "u", "partition": 1, "hour": None, "bytes_in": 0.5},
        ],
    ),
    (
        "empty values, spaces, and hours of any offset",
        "topic, partition ,hour,size_bytes\n t ,0,2026-11-20 10:00,\nt,0,2026-11-20T17+05:00,+7\nt,0,,1e3\n",
        [
            {"topic": "t", "partition": 0, "hour": TEN, "size_bytes": None},
            {"topic": "t", "partition": 0, "hour": TEN + timedelta(hours=2), "size_bytes": 7},
            {"topic": "t", "partition": 0, "hour": None, "size_bytes": 1000},
        ],
    ),
    (
        "semicolons and quotes",
        'topic;partition;size_bytes\n"a,b";0;1152921504606846976\n',
        [{"topic": "a,b", "partition": 0, "hour": None, "size_bytes": 2**60}],
    ),
]


@pytest.mark.parametrize(("text", "rows"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_a_file(tmp_path: Path, text: str, rows: list[Row]) -> None:
    (plain := tmp_path / "loads.csv").write_text(text)
    (compressed := tmp_path / "loads.csv.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    names = list(rows[0])
    assert [list(map(row.get, names)) for row in _rows(plain)] == [list(row.values()) for row in rows]
    assert _rows(compressed) == _rows(plain)


HEADER: Final = "topic,partition,hour,bytes_in,size_bytes\n"
LINE: Final = "t,0,2026-11-20T10Z,1,2\n"

FAULTS: Final[list[tuple[str, str]]] = [
    # content, message
    ("", "has no header; expected a first line as topic,partition,hour"),
    ("topic,partition,bytes_in\n", "has no rows"),
    ("topic,partition\nt,0\n", "has no column of bytes_in, bytes_out, size_bytes"),
    ("topic,bytes_in\nt,0\n", "has no column partition; expected topic,partition,hour"),
    ("topic,partition,byte_in\nt,0,1\n", "unknown column 'byte_in'; did you mean bytes_in?; known are topic"),
    ("topic,partition,Bytes_In\nt,0,1\n", "unknown column 'Bytes_In'; did you mean bytes_in?"),
    ("topic,partition,x\nt,0,1\n", "unknown column 'x'; known are topic, partition, hour"),
    ("topic,topic,partition,bytes_in\nt,t,0,1\n", "has the column topic twice"),
    (HEADER + LINE + "\n" + "t,0,1\n", "line 4 has 3 fields, expected 5: topic, partition"),
    (HEADER + LINE + "t\n" + LINE, "line 3 has 1 field, expected 5: topic, partition"),
    (HEADER + LINE + '"t,1,,,\n' + LINE, "line 3: a quote is not closed"),
    (HEADER + LINE + 't,1,,,"5\n' + LINE, "line 3: a quote is not closed"),
    (HEADER + '"t",1,,,5\n"t"",2,,,5\n"u",1,,,5\n', "line 3: a quote is not closed"),
    ('"' + HEADER + LINE, "line 1: a quote is not closed"),
    (HEADER + LINE + ",1,,,\n", "line 3: topic has no value, expected the name of a topic"),
    (HEADER + LINE + "t,,,,\n", "line 3: partition has no value, expected an integer from 0 to 2147483647"),
    (HEADER + LINE + "t,-1,,,\n", "line 3: partition has '-1', expected an integer from 0"),
    (HEADER + LINE + "t,1.5,,,\n", "line 3: partition has '1.5', expected an integer from 0"),
    (HEADER + LINE + "t,2147483648,,,\n", "line 3: partition has '2147483648', expected an integer from 0"),
    (HEADER + LINE + "t,99999999999999999999,,,\n", "line 3: partition has '99999999999999999999', expected"),
    (HEADER + LINE + "t,1,,fast,\n", "line 3: bytes_in has 'fast', expected bytes per second from 0 to"),
    (HEADER + LINE + "t,1,,-0.5,\n", "line 3: bytes_in has '-0.5', expected bytes per second"),
    (HEADER + LINE + "t,1,,nan,\n", "line 3: bytes_in has 'nan', expected bytes per second"),
    (HEADER + LINE + "t,1,,inf,\n", "line 3: bytes_in has 'inf', expected bytes per second"),
    (HEADER + LINE + "t,1,,1e999,\n", "line 3: bytes_in has '1e999', expected bytes per second"),
    (HEADER + LINE + "t,1,,,-3\n", "line 3: size_bytes has '-3', expected whole bytes"),
    (HEADER + LINE + "t,1,,,1.5\n", "line 3: size_bytes has '1.5', expected whole bytes"),
    (HEADER + LINE + "t,1,,,1e30\n", "line 3: size_bytes has '1e30', expected whole bytes"),
    (HEADER + LINE + "t,1,yesterday,1,\n", "line 3: hour has 'yesterday', expected the start of an hour in UTC"),
    (HEADER + LINE + "t,1,2026-11-20T10:05Z,1,\n", "line 3: hour has '2026-11-20T10:05Z', expected the start"),
    (HEADER + LINE + "t,1,2026-11-20T10:00+05:30,1,\n", "line 3: hour has '2026-11-20T10:00+05:30', expected"),
    (
        HEADER + LINE + "t,1,2027-11-20T10:00Z,1,\n",
        "line 3: hour has '2027-11-20T10:00Z', expected an hour that has begun",
    ),
    (HEADER + LINE + "t,1,x,,\n\nu,1,y,,\n", "or nothing (2 rows have such a fault)"),
    (HEADER + LINE + "u,0,,,\n" + LINE, "line 4: t-0 has a second row for 2026-11-20 10:00 UTC, the first is line 2"),
    (HEADER + "t,0,,,\nt,0,,,\n", "line 3: t-0 has a second row for every hour, the first is line 2"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault(tmp_path: Path, text: str, message: str) -> None:
    (path := tmp_path / "loads.csv").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_load_file(path, NOW)
    assert message in str(raised.value)


def _parquet(path: Path, **columns: Any) -> Path:  # noqa: ANN401 - arrays or lists
    pq.write_table(pa.table(columns), path)
    return path


def test_a_parquet_file_with_other_types(tmp_path: Path) -> None:
    path = _parquet(
        tmp_path / "loads.parquet",
        topic=pa.array(["t", "t"]).dictionary_encode(),
        partition=pa.array([0, 1], pa.uint8()),
        hour=pa.array([datetime(2026, 11, 20, 10), None], pa.timestamp("ns")),  # noqa: DTZ001 - without a zone
        bytes_in=pa.array([1, None], pa.decimal128(9, 2)),
        size_bytes=pa.array([3.0, 4.0]),
    )
    assert [tuple(row.values()) for row in _rows(path)] == [("t", 0, TEN, 1.0, 3), ("t", 1, None, None, 4)]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York", "Asia/Kathmandu", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_hours_of_parquet_are_those_of_utc_in_any_zone(tmp_path: Path, zone: str, unit: str) -> None:
    hours = pa.array([TEN], pa.timestamp(unit, zone))
    path = _parquet(tmp_path / "loads.parquet", topic=["t"], partition=[0], hour=hours, bytes_in=[1.0])
    assert [row["hour"] for row in _rows(path)] == [TEN]
    path = _parquet(
        path, topic=["t"], partition=[0], hour=pc.add(hours, pa.scalar(timedelta(minutes=30))), bytes_in=[1.0]
    )
    with pytest.raises(UsageError, match="expected the start of an hour in UTC"):
        read_load_file(path, NOW)


PARQUET_FAULTS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"bytes_in": [1.0, float("nan")]}, "row 2: bytes_in has nan, expected bytes per second"),
    ({"bytes_in": [1.0, float("-inf")]}, "row 2: bytes_in has -inf, expected bytes per second"),
    ({"size_bytes": [1.0, float("-inf")]}, "row 2: size_bytes has -inf, expected whole bytes"),
    ({"size_bytes": pa.array([1, 2**63], pa.uint64())}, "row 2: size_bytes has 9223372036854775808, expected whole"),
    ({"bytes_in": [True, False]}, "bytes_in of type bool, expected numbers"),
    ({"bytes_in": [1, 2], "hour": [TEN, TEN + timedelta(seconds=1)]}, "row 2: hour has 2026-11-20 10:00:01"),
    ({"bytes_in": [1, 2], "hour": [TEN, TEN + timedelta(days=365)]}, "row 2: hour has 2027-11-20 10:00:00"),
    ({"bytes_in": [1, 2], "hour": [1, 2]}, "hour of type int64, expected a time"),
    ({"bytes_in": [1, 2], "topic": [1, 2]}, "topic of type int64, expected text"),
    ({"bytes_in": [1, 2], "partition": [0, None]}, "row 2: partition has no value"),
]


@pytest.mark.parametrize(("columns", "message"), PARQUET_FAULTS)
def test_a_fault_in_parquet(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = _parquet(tmp_path / "loads.parquet", **{"topic": ["t", "t"], "partition": [0, 1], **columns})
    with pytest.raises(UsageError, match=message):
        read_load_file(path, NOW)


UNREADABLE: Final[list[tuple[bytes | None, str]]] = [
    (None, "No such file"),
    (b"PAR1 is not enough", "as Parquet: "),
    (b"\x1f\x8b no gzip", "cannot read"),
    (b"topic,partition,bytes_in\n\xff\xfe\xff,0,1\n\xe9", "neither CSV in UTF-8 or UTF-16, nor Parquet"),
]


@pytest.mark.parametrize(("content", "message"), UNREADABLE)
def test_an_unreadable_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "loads"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_load_file(path, NOW)


NAMES: Final = st.text(st.characters(categories=("Ll", "Lu", "Nd"), include_characters="._-"), min_size=1, max_size=8)
NUMBERS: Final = st.one_of(st.none(), st.floats(0, 1e15, allow_nan=False))
LOADS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "topic": NAMES,
            "partition": st.integers(0, 2**31 - 1),
            "hour": st.one_of(st.none(), st.integers(0, 500).map(lambda hours: TEN + timedelta(hours=hours))),
            "bytes_in": NUMBERS,
            "bytes_out": NUMBERS,
            "size_bytes": st.one_of(st.none(), st.integers(0, 2**53)),
        }
    ),
    min_size=1,
    unique_by=lambda row: (row["topic"], row["partition"], row["hour"]),
)


@given(
    rows=LOADS,
    loads=st.lists(st.sampled_from(LOAD_COLUMNS), min_size=1, unique=True),
    offset=st.integers(-12, 14),
    as_csv=st.booleans(),
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_written_is_read(tmp_path: Path, rows: list[Row], loads: list[str], offset: int, as_csv: bool) -> None:  # noqa: FBT001 - drawn
    names = ["hour", *loads, "partition", "topic"]
    path = tmp_path / "loads"
    if as_csv:
        zone = timedelta(hours=offset)
        texts = [
            [
                ""
                if value is None
                else (value + zone).strftime(f"%Y-%m-%dT%H:00{offset:+03}:00")
                if name == "hour"
                else repr(value)
                for name in names[:-1]
                for value in [row[name]]
            ]
            for row in rows
        ]
        lines = [",".join([*text, row["topic"]]) for text, row in zip(texts, rows, strict=True)]
        path.write_text("\n".join([",".join(names), *lines]))
    else:
        schema = {"hour": pa.timestamp("ms", "UTC"), "bytes_in": pa.float64(), "bytes_out": pa.float64()}
        schema |= {"size_bytes": pa.int64()}
        columns = {name: pa.array([row[name] for row in rows], schema.get(name)) for name in names}
        _parquet(path, **columns)
    assert _rows(path) == [
        {name: row[name] for name in ("topic", "partition", "hour", *loads_of(loads))} for row in rows
    ]


def loads_of(loads: list[str]) -> list[str]:
    """In the order of the tables."""
    return [name for name in LOAD_COLUMNS if name in loads]
