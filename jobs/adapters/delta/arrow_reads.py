"""Filtered reads of a Delta table by Arrow, for files of any writer.

deltalake's UPDATE and DELETE write text as Arrow's string_view and record that type in the files, and Arrow cannot
compare it with strings. So files are pruned by the table's statistics, and rows are filtered after a cast of text.
"""

import operator
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from jobs.adapters.delta.warehouse_paths import is_local

Filter = tuple[str, str, Any]
"""Column, comparison, value."""

_ARROW_STORES: Final = frozenset({"s3", "s3a"})

_NONE: Final = pc.scalar(False)  # noqa: FBT003 - a value

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(list(values)) if len(values) else _NONE,
    "is": lambda column, _: column.is_null(),  # of None, the only value
}


def read_where(
    table: DeltaTable,
    files: fs.FileSystem | None,
    filters: Sequence[Filter],
    columns: list[str] | None,
    *,
    encoded_maps: Sequence[str] = (),
) -> pa.Table:
    """Read the rows that pass all filters; there must be at least one filter.

    Keys of the maps `encoded_maps` stay dictionary-encoded, which takes a third of the time for millions of rows.
    """
    rows = _dataset(table, files, filters, encoded_maps)
    return rows.to_table(columns=columns, filter=_all(filters, _text_column))


def count_where(table: DeltaTable, files: fs.FileSystem | None, filters: Sequence[Filter]) -> int:
    """Count the rows that pass all filters, without reading those of files whose statistics decide it."""
    return int(_dataset(table, files, filters).scanner(filter=_all(filters, _text_column)).count_rows())


def _dataset(
    table: DeltaTable, files: fs.FileSystem | None, filters: Sequence[Filter], encoded_maps: Sequence[str] = ()
) -> Any:  # noqa: ANN401 - pyarrow.dataset is not imported here
    """Return a dataset of the files that may have rows that pass all filters."""
    # the import includes pandas and takes a quarter of a command's start
    from pyarrow.dataset import FileSystemDataset, ParquetReadOptions  # noqa: PLC0415

    options = ParquetReadOptions(dictionary_columns=[f"{name}.key_value.key" for name in encoded_maps])
    dataset = table.to_pyarrow_dataset(
        filesystem=files, parquet_read_options=options, file_pruning_predicate=_of_times(filters)
    )
    schema = reduce(_with_encoded_keys, encoded_maps, dataset.schema)
    needed = list(dataset.get_fragments(_all(filters, _plain_column)))
    system = dataset.filesystem
    if files is None:
        needed, system = [_in_memory(fragment) for fragment in needed], fs.LocalFileSystem()  # which none of them uses
    return FileSystemDataset(needed, schema, dataset.format, system)


def _of_times(filters: Sequence[Filter]) -> list[Filter] | None:
    """Return the filters by time, None if there are none.

    deltalake prunes files by them before Arrow sees any: a table with a file for each hour of a year is opened in
    hundredths of a second then, and in a second by Arrow alone.
    """
    return [limit for limit in filters if _is_of_times(limit[2])] or None


def _is_of_times(value: Any) -> bool:  # noqa: ANN401 - a value of any column
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(isinstance(time, datetime) for time in values)


def _with_encoded_keys(schema: pa.Schema, name: str) -> pa.Schema:
    place = schema.get_field_index(name)
    kind = schema.field(place).type
    return schema.set(place, pa.field(name, pa.map_(pa.dictionary(pa.int32(), kind.key_type), kind.item_type)))


def rows_where(rows: pa.Table, filters: Sequence[Filter]) -> pa.Table:
    """Return the rows in memory that pass all filters."""
    return rows.filter(_all(filters, _text_column)) if filters else rows


def _in_memory(fragment: Any) -> Any:  # noqa: ANN401 - pyarrow.dataset is not imported here
    """Return a fragment whose file has been read in this thread."""
    with fragment.filesystem.open_input_file(fragment.path) as file:
        content = pa.BufferReader(file.read_buffer())
    return fragment.format.make_fragment(content, partition_expression=fragment.partition_expression)


def _all(filters: Sequence[Filter], column: Callable[[str, Any], pc.Expression]) -> pc.Expression:
    conditions = (_COMPARISONS[comparison](column(name, value), value) for name, comparison, value in filters)
    return reduce(operator.and_, conditions)


def _plain_column(name: str, _: Any) -> pc.Expression:  # noqa: ANN401 - a value of any column
    return pc.field(name)


def _text_column(name: str, value: Any) -> pc.Expression:  # noqa: ANN401 - a value of any column
    is_text = isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(v, str) for v in value))
    return pc.field(name).cast(pa.string()) if is_text else pc.field(name)


def native_files(path: str) -> fs.FileSystem | None:
    """Return Arrow's own file system of a table's folder, None for a store that only deltalake's client can read.

    deltalake's file system is written in Python. Arrow's threads may release it, or a file of it, while the interpreter
    shuts down, which aborts a successful process with exit code 134. So `read_where` reads files of such a store
    itself, and gives Arrow's threads another file system.
    """
    if not _is_read_by_arrow(path):
        return None
    system, root = file_system(path)
    return fs.SubTreeFileSystem(root, system)


def missing_files(path: str, names: Sequence[str]) -> list[str]:
    """Return the files of a table that do not exist."""
    system, root = file_system(path)
    infos = system.get_file_info([f"{root}/{name}" if root else name for name in names])
    return [name for name, info in zip(names, infos, strict=True) if info.type == fs.FileType.NotFound]


class _BytesWriter:
    """A stream of deltalake that takes bytes only, for Arrow, which writes buffers."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - deltalake's
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
        written: int = self._stream.write(bytes(data))
        return written


class _StorageHandler(DeltaStorageHandler):
    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(_BytesWriter(self._handler.open_output_stream(path, metadata)), "w")


def delta_files(folder: str) -> fs.FileSystem:
    """Return a folder of a store as a file system of Arrow, by deltalake's client."""
    return fs.PyFileSystem(_StorageHandler(folder))


def _is_read_by_arrow(path: str) -> bool:
    """Return whether Arrow reads a table with the settings of the environment that deltalake writes it with.

    For HDFS Arrow needs a separate Hadoop. For ADLS and GCS it takes other credentials than deltalake, no keys of an
    account for instance, and without any it aborts the process.
    """
    return is_local(path) or urlsplit(path).scheme in _ARROW_STORES


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system of a table, and the table's folder in it."""
    if is_local(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    if not _is_read_by_arrow(path):
        return delta_files(path), ""
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(re.sub("^s3a:", "s3:", path))
    return found
