"""Loads of partitions in a CSV or Parquet file, read by columns and checked as a whole.

Each row names a topic and a partition, and any subset of the rates and the size. `hour` is the hour that the rates are
the means of, empty for a load of every hour. A fault is reported with the line of the file, and the file is then not
used at all.
"""

import csv
import gzip
import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.arrow_rows import partition_numbers
from jobs.core.errors import UsageError, first_line
from jobs.core.text_decoding import decoded, refuse_open_quote
from jobs.core.units import hour_of
from schemas.text import partition_name, pluralise

LOAD_COLUMNS: Final = ("bytes_in", "bytes_out", "size_bytes")
"""Columns of loads: bytes per second from producers, bytes per second to readers, and bytes of the log."""

COLUMNS: Final = ("topic", "partition", "hour", *LOAD_COLUMNS)

HOUR: Final = pa.timestamp("us", "UTC")

HOUR_MICROSECONDS: Final = 3_600_000_000

_MAX_PARTITION: Final = 2**31 - 1
_MAX_BYTES: Final = 2**60
"""Bytes of a partition, or per second, above which a typing error is assumed: an exbibyte."""

_DELIMITERS: Final = ",;\t"
_NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_INTEGER: Final = r"^[+-]?\d+$"

_EXAMPLE: Final = "topic,partition,hour,bytes_in,bytes_out,size_bytes"

_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
"""First bytes of files."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadFile:
    """The rows of a file: `topic`, `partition`, `hour`, and those of LOAD_COLUMNS that the file has."""

    path: Path
    rows: pa.Table
    line_of: Callable[[int], str]
    """Names the line, or the row of a Parquet file, of a row for messages."""

    @property
    def columns(self) -> list[str]:
        """The columns of loads that the file has."""
        return [name for name in LOAD_COLUMNS if name in self.rows.column_names]


def read_load_file(path: Path, now: datetime) -> LoadFile:
    """Read a file of loads, CSV (also compressed by gzip) or Parquet; raise UsageError for the first fault."""
    raw, line_of = _read(path)
    file = _Checked(path, raw, line_of, now)
    refuse_unknown_columns(str(path), raw.column_names, COLUMNS)
    loads = [name for name in LOAD_COLUMNS if name in raw.column_names]
    missing = [name for name in ("topic", "partition") if name not in raw.column_names]
    if missing or not loads:
        lacks = missing[0] if missing else f"of {', '.join(LOAD_COLUMNS)}"
        raise UsageError(f"{path} has no column {lacks}; expected {_EXAMPLE}, or part of it")
    if not raw.num_rows:
        raise UsageError(f"{path} has no rows; expected a row for each partition, or partition and hour")
    columns = {"topic": file.topics(), "partition": file.integers("partition", _MAX_PARTITION, pa.int32())}
    columns["hour"] = file.hours() if "hour" in raw.column_names else pa.nulls(raw.num_rows, HOUR)
    for name in loads:
        columns[name] = file.bytes(name) if name == "size_bytes" else file.rates(name)
    rows = pa.table(columns)
    _refuse_repeated(path, rows, line_of)
    return LoadFile(path, rows, line_of)


def refuse_unknown_columns(file: str, columns: Sequence[str], known: Collection[str]) -> None:
    """Raise UsageError for a column that is not known, or that occurs twice."""
    for name in columns:
        if name not in known:
            near = get_close_matches(name.strip().lower(), known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{file} has an unknown column {name!r}{hint}; known are {', '.join(known)}")
        if columns.count(name) > 1:
            raise UsageError(f"{file} has the column {name} twice; name each column once")


def _read(path: Path) -> tuple[pa.Table, Callable[[int], str]]:
    """Return the columns of a file as they are, those of CSV as texts, and what names a row."""
    try:
        if path.is_dir() or _begins_with(path, _PARQUET):
            return _read_parquet(path), lambda row: f"row {row + 1}"
        content = path.read_bytes()
        text = decoded(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except OSError as error:  # also what gzip cannot decompress
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, UnicodeDecodeError):
        raise UsageError(f"cannot read {path}: it is neither CSV in UTF-8 or UTF-16, nor Parquet") from None
    return _read_csv(path, text)


def _begins_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet  # noqa: PLC0415 - slow, and only this kind of file needs it

    try:
        rows = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"cannot read {path} as Parquet: {first_line(error)}") from None
    plain = [column.cast(column.type.value_type) if _is_encoded(column) else column for column in rows.columns]
    return pa.table(plain, names=rows.column_names)


def _is_encoded(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _read_csv(path: Path, text: str) -> tuple[pa.Table, Callable[[int], str]]:
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - as above

    header = io.StringIO(text).readline()
    delimiter = max(_DELIMITERS, key=header.count)
    refuse_open_quote(path, text, delimiter)
    names = next(csv.reader([header], delimiter=delimiter), [])
    if not any(names):
        raise UsageError(f"{path} has no header; expected a first line as {_EXAMPLE}, or part of it")
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(text.encode()),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid as error:
        for number, row in _numbered_rows(text, delimiter):
            if len(row) != len(names):
                fields = pluralise(len(row), "field")
                expected = f"{len(names)}: {', '.join(names)}"
                raise UsageError(f"{path} line {number} has {fields}, expected {expected}") from None
        raise UsageError(f"cannot read {path} as CSV: {first_line(error)}") from None

    def line_of(row: int) -> str:
        number, _ = next(islice(_numbered_rows(text, delimiter), row, None))
        return f"line {number}"

    trimmed = [pc.utf8_trim_whitespace(column) for column in table.columns]
    empty_as_null = [pc.if_else(pc.equal(column, ""), None, column) for column in trimmed]
    return pa.table(empty_as_null, names=[name.strip() for name in table.column_names]), line_of


def _numbered_rows(text: str, delimiter: str) -> "islice[tuple[int, list[str]]]":
    """Iterate over the rows after the header with their last lines; empty lines are none."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    return islice(((reader.line_num, row) for row in reader if row), 1, None)


@dataclass(frozen=True, slots=True, eq=False)
class _Checked:
    """The columns of a file, converted; each method raises UsageError with the first line that is not as expected."""

    path: Path
    raw: pa.Table
    line_of: Callable[[int], str]
    now: datetime

    def topics(self) -> pa.ChunkedArray:
        topics = self.raw["topic"]
        self._refuse_type("topic", _is_text(topics.type), "text")
        topics = topics.cast(pa.string())
        self._refuse("topic", pc.fill_null(pc.equal(topics, ""), True), "the name of a topic")  # noqa: FBT003 - Arrow's
        return topics

    def integers(self, name: str, limit: int, kind: pa.DataType) -> pa.ChunkedArray:
        """Convert a column without nulls to integers of at least 0."""
        values = self._numbers(name, f"an integer from 0 to {limit}", _INTEGER)
        self._refuse(name, pc.is_null(values), f"an integer from 0 to {limit}")
        return self._limited(name, values, limit, f"an integer from 0 to {limit}").cast(kind)

    def bytes(self, name: str) -> pa.ChunkedArray:
        expected = "whole bytes from 0 to an exbibyte, or nothing"
        return self._limited(name, self._numbers(name, expected), _MAX_BYTES, expected).cast(pa.int64())

    def rates(self, name: str) -> pa.ChunkedArray:
        expected = "bytes per second from 0 to an exbibyte, or nothing"
        values = self._numbers(name, expected).cast(pa.float64(), safe=False)
        self._refuse(name, pc.invert(_is_within(values, float(_MAX_BYTES))), expected)
        return values

    def hours(self) -> pa.ChunkedArray:
        """Convert times, in UTC unless they name another zone, to the hours that begin then."""
        column = self.raw["hour"]
        if pa.types.is_null(column.type):
            return column.cast(HOUR)
        if pa.types.is_timestamp(column.type):
            times = column.cast(pa.timestamp(column.type.unit, "UTC"))  # as floors follow the zone of a column
            hours = times.cast(HOUR, safe=False)
            is_between = pc.not_equal(pc.floor_temporal(times, unit="hour"), times)
        else:
            self._refuse_type("hour", _is_text(column.type), "a time")
            hours, is_between = self._parsed_hours(column.cast(pa.string()).combine_chunks())
        self._refuse("hour", is_between, "the start of an hour in UTC, as 2026-11-20T10:00Z, or nothing")
        until = f"an hour that has begun by {self.now:%Y-%m-%d %H:%M} UTC"
        self._refuse("hour", pc.greater(hours, pa.scalar(self.now, HOUR)), until)
        return hours

    def _parsed_hours(self, texts: pa.Array) -> tuple[pa.ChunkedArray, pa.Array]:
        """Return the hours of texts, and whether a text is none; each text is parsed once."""
        encoded = texts.dictionary_encode()
        parsed = [_parsed_hour(text) for text in encoded.dictionary.to_pylist()]
        of_row = pa.array(parsed, HOUR).take(encoded.indices)
        is_fault = pa.array([moment is None for moment in parsed], pa.bool_()).take(encoded.indices)
        return pa.chunked_array([of_row]), is_fault

    def _numbers(self, name: str, expected: str, form: str = _NUMBER) -> pa.ChunkedArray:
        """Return a column as int64 if all its values are integers, else as float64."""
        column = self.raw[name]
        if pa.types.is_null(column.type):
            return column.cast(pa.int64())
        if _is_text(column.type):
            self._refuse(name, pc.invert(pc.match_substring_regex(column, form)), expected)
            if pc.all(pc.match_substring_regex(column, r"^\+?\d{1,18}$")).as_py() in {True, None}:
                return pc.ascii_ltrim(column, "+").cast(pa.int64())
            return pc.ascii_ltrim(column, "+").cast(pa.float64())
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        self._refuse_type(name, is_number or pa.types.is_decimal(column.type), "numbers")
        return column.cast(pa.int64(), safe=False) if pa.types.is_integer(column.type) else column.cast(pa.float64())

    def _limited(self, name: str, values: pa.ChunkedArray, limit: int, expected: str) -> pa.ChunkedArray:
        """Return values that are all integers from 0 to `limit`."""
        if pa.types.is_floating(values.type):
            is_whole = pc.equal(pc.floor(values), values)
            self._refuse(name, pc.invert(pc.and_(is_whole, _is_within(values, float(limit)))), expected)
            return values.cast(pa.int64())
        self._refuse(name, pc.invert(_is_within(values, limit)), expected)
        return values

    def _refuse_type(self, name: str, is_expected: bool, expected: str) -> None:  # noqa: FBT001 - a finding
        if not is_expected:
            raise UsageError(f"{self.path} has {name} of type {self.raw[name].type}, expected {expected}")

    def _refuse(self, name: str, is_fault: pa.ChunkedArray, expected: str) -> None:
        """Raise UsageError for the first marked row; null marks none."""
        count = pc.sum(is_fault).as_py() or 0
        if count:
            row = pc.index(is_fault, value=True).as_py()
            more = f" ({count} rows have such a fault)" if count > 1 else ""
            value = self.raw[name][row].as_py()
            shown = "no value" if value is None else repr(value) if isinstance(value, str) else str(value)
            raise UsageError(f"{self.path} {self.line_of(row)}: {name} has {shown}, expected {expected}{more}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_within(values: pa.ChunkedArray, limit: float) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(values, type(limit)(0)), pc.less_equal(values, limit))


def _parsed_hour(text: str) -> datetime | None:
    """Return the hour that begins at a time in ISO form; None if none does.

    >>> [str(_parsed_hour(text)) for text in ("2026-11-20 10:00", "2026-11-20T12+02:00", "2026-11-20T10:30Z")]
    ['2026-11-20 10:00:00+00:00', '2026-11-20 10:00:00+00:00', 'None']
    """
    try:
        moment = datetime.fromisoformat(text)
        utc = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return utc if utc == hour_of(utc) else None


def row_numbers(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each topic, partition and hour, the same for rows of the same partition and hour."""
    _, partitions = np.unique(partition_numbers(rows, pc.unique(rows["topic"])).to_numpy(), return_inverse=True)
    _, hours = np.unique(pc.fill_null(rows["hour"].cast(pa.int64()), -1).to_numpy(), return_inverse=True)
    numbers: npt.NDArray[np.int64] = partitions * (int(hours.max(initial=0)) + 1) + hours
    return numbers


def _refuse_repeated(path: Path, rows: pa.Table, line_of: Callable[[int], str]) -> None:
    """Raise UsageError for the first row that repeats a partition and hour."""
    _, first_rows, of_row = np.unique(row_numbers(rows), return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first_rows[of_row] != np.arange(rows.num_rows))
    if len(repeated):
        row = int(repeated[0])
        first = int(first_rows[of_row[row]])
        name = partition_name(rows["topic"][row].as_py(), rows["partition"][row].as_py())
        hour = rows["hour"][row].as_py()
        at = "every hour" if hour is None else f"{hour:%Y-%m-%d %H:00} UTC"
        raise UsageError(
            f"{path} {line_of(row)}: {name} has a second row for {at}, the first is {line_of(first)}; expected one row "
            "for each partition and hour"
        )
