"""Rows of a Delta table that pass conditions, read by Arrow whoever wrote the files.

deltalake's UPDATE and DELETE write text as Arrow's string_view and say so in the files, which Arrow then compares with
no string. So files are left out by the table's statistics, and rows by text that is cast first.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs
from pyarrow.dataset import FileSystemDataset

Filter = tuple[str, str, Any]
"""Column, comparison, value."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(list(values)),
}


def read_where(
    table: DeltaTable, files: fs.FileSystem | None, filters: Sequence[Filter], columns: list[str] | None
) -> pa.Table:
    """Read the rows that pass all filters, of which there is one at least."""
    dataset = table.to_pyarrow_dataset(filesystem=files)
    needed = list(dataset.get_fragments(_all(filters, _plain_column)))
    pruned = FileSystemDataset(needed, dataset.schema, dataset.format, dataset.filesystem)
    return pruned.to_table(columns=columns, filter=_all(filters, _text_column))


def _all(filters: Sequence[Filter], column: Callable[[str, Any], pc.Expression]) -> pc.Expression:
    conditions = (_COMPARISONS[comparison](column(name, value), value) for name, comparison, value in filters)
    return reduce(operator.and_, conditions)


def _plain_column(name: str, _: Any) -> pc.Expression:  # noqa: ANN401 - whatever a column holds
    return pc.field(name)


def _text_column(name: str, value: Any) -> pc.Expression:  # noqa: ANN401 - whatever a column holds
    is_text = isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(v, str) for v in value))
    return pc.field(name).cast(pa.string()) if is_text else pc.field(name)


def native_files(path: str) -> fs.FileSystem | None:
    """Arrow's own access to a local table's files, None for others.

    deltalake's is written in Python: Arrow's threads may still let go of it while the interpreter ends, which aborts
    the process with exit code 134 after everything has gone well.
    """
    return None if "://" in path else fs.SubTreeFileSystem(str(Path(path).absolute()), fs.LocalFileSystem())
