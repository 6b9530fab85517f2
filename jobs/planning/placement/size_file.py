"""The file of `plan reassign --sizes`: bytes of one replica of each partition, as CSV or JSON, read strictly.

CSV has the header `topic,partition,bytes`. JSON looks like Kafka's own files:
`{"version":1,"partitions":[{"topic":"t","partition":0,"bytes":1024}]}`.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
from msgspec import Meta, Struct

from jobs.core.errors import UsageError
from jobs.core.text_files import read_text_file
from jobs.runtime.input_files import Number, Version, read_json, refuse_repeated
from schemas.rows import Row

HEADER: Final = ["topic", "partition", "bytes"]
MAX_PARTITION_BYTES: Final = 2**60
"""Bytes of a partition above which a typing error is assumed: an exbibyte."""

EXAMPLE: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"bytes":1024}]}'

SIZE_SCHEMA: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("bytes", pa.int64())])


class _Size(Struct):
    topic: str
    partition: Number
    bytes: Annotated[int, Meta(ge=0, le=MAX_PARTITION_BYTES)]


class _Sizes(Struct):
    """A file of sizes."""

    partitions: list[_Size]
    version: Version = 1


def read_size_file(path: Path) -> pa.Table:
    """Return topic, partition and bytes, in the order of the file.

    Text that begins with `{` is JSON, anything else CSV. Raise UsageError with the place for values that are malformed,
    negative or beyond Kafka's limits, and RefusedError for a partition that is named twice.
    """
    text = read_text_file(path)
    rows = _json(path) if text.lstrip().startswith("{") else list(_csv(path, text))
    refuse_repeated(path, rows)
    if not rows:
        raise UsageError(f"{path} has no sizes: expected a line {','.join(HEADER)} and one for each partition, or JSON")
    return pa.Table.from_pylist(rows, schema=SIZE_SCHEMA)


def _json(path: Path) -> list[Row]:
    return [{name: getattr(size, name) for name in HEADER} for size in read_json(path, _Sizes, EXAMPLE).partitions]


def _csv(path: Path, text: str) -> Iterator[Row]:
    try:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = next(lines, [])
        if header != HEADER:
            raise UsageError(f"{path} begins with {','.join(header)!r}; expected {','.join(HEADER)}, or JSON")
        for line in lines:
            if line:
                yield _row(path, lines.line_num, line)
    except csv.Error as error:
        raise UsageError(f"{path} is neither CSV nor JSON: {error}") from None


def _row(path: Path, number: int, line: Sequence[str]) -> Row:
    if len(line) != len(HEADER) or not line[0]:
        raise UsageError(f"{path}, line {number}: {','.join(line)!r}; expected {','.join(HEADER)}, as in orders,0,1024")
    topic, partition, size = line
    return {
        "topic": topic,
        "partition": _number(path, number, "partition", partition, 2**31 - 1),
        "bytes": _number(path, number, "bytes", size, MAX_PARTITION_BYTES),
    }


def _number(path: Path, line: int, name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > most or len(text) > 20:  # noqa: PLR2004
        raise UsageError(f"{path}, line {line}: {name} {text[:40]!r}; expected a whole number from 0 to {most}")
    return int(text)
