"""Rows in Arrow: sorted, filtered, counted and grouped without a Python object per row.

A plan of a million changes is reviewed in the memory of its columns. Rows become Python objects a slice at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.enums import NO_LEADER
from schemas.rows import Row

ROWS_PER_SLICE: Final = 5_000
"""Rows converted to Python objects at a time."""

MAX_GROUPS: Final = 1_000
"""Topics and reasons in a result at most; the most frequent ones are kept."""

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]


class ValueCount(NamedTuple):
    """A value of a column, and the number of rows with it."""

    value: Any
    rows: int


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one plan in one table, in order."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), ROWS_PER_SLICE):
            yield from as_rows(self.table.slice(start, ROWS_PER_SLICE))

    def first(self, count: int) -> list[Row]:
        return as_rows(self.table.slice(0, count))

    def last(self, count: int) -> list[Row]:
        return as_rows(self.table.slice(max(0, len(self) - count)))

    def where(self, holds: Bools) -> "StoredRows":
        return StoredRows(self.table.filter(pa.array(holds)).combine_chunks())

    def equal(self, column: str, value: object) -> Bools:
        """Mark the rows with this value in a column."""
        marks: Bools = pc.fill_null(pc.equal(self.table[column], value), False).to_numpy()  # noqa: FBT003 - Arrow's
        return marks

    def contains(self, column: str, text: str) -> Bools:
        """Mark the rows with this substring in a column."""
        marks = pc.match_substring(self.table[column], text)
        found: Bools = pc.fill_null(marks, False).to_numpy()  # noqa: FBT003 - Arrow's
        return found

    def with_same_key(self, marked: Bools, *key: str) -> Bools:
        """Mark the rows whose key equals a marked row's key."""
        keys = pc.binary_join_element_wise(*(self.table[column].cast(pa.string()) for column in key), "\0")
        marks: Bools = pc.is_in(keys, keys.filter(pa.array(marked))).to_numpy()
        return marks

    def first_of_each_length(self, column: str, key: str) -> Bools:
        """Mark the first row for each value of `key` and each number of brokers in a column."""
        lengths = self.lengths(column)
        codes = self.table[key].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        _, first = np.unique((codes << 32) | lengths, return_index=True)
        marks = np.zeros(len(self), dtype=bool)
        marks[first] = True
        return marks

    def lengths(self, column: str) -> Ints:
        """Count the brokers in each row's list; 0 for null."""
        lengths: Ints = (self.brokers(column) != NO_LEADER).sum(axis=1)
        return lengths

    def shrinks(self, column: str, before: str) -> Bools:
        """Mark the rows with fewer brokers in `column` than in `before`, or with none in `before`."""
        had = self.lengths(before)
        marks: Bools = (had == 0) | (self.lengths(column) < had)
        return marks

    def is_being_reassigned(self) -> Bools:
        """Mark the partitions that are being reassigned, as `schemas.replica_assignment` does."""
        adding, removing = (
            pc.fill_null(pc.list_value_length(self.table[name]), 0).to_numpy()
            for name in ("adding_replicas", "removing_replicas")
        )
        marks: Bools = adding + removing > 0
        return marks

    def values(self, column: str) -> list[str]:
        """Return the distinct values of a column."""
        return list(pc.unique(self.table[column]).to_pylist())

    def counts(self, column: str) -> list[ValueCount]:
        """Count equal values of a column, the most frequent first."""
        grouped = self.table.group_by(column).aggregate([([], "count_all")])
        ordered = grouped.sort_by([("count_all", "descending"), (column, "ascending")]).slice(0, MAX_GROUPS)
        return [ValueCount(*counted) for counted in values_of(ordered, column, "count_all")]

    def distinct(self, column: str) -> int:
        return int(pc.count_distinct(self.table[column], mode="all").as_py())

    def brokers(self, column: str) -> Ints:
        """Return the brokers of a list or scalar column as a matrix with a row each, padded with NO_LEADER."""
        values = pa.concat_arrays([pa.array([], self.table[column].type), *self.table[column].chunks])
        if not pa.types.is_list(values.type):
            return pc.fill_null(values, NO_LEADER).to_numpy().reshape(-1, 1)  # type: ignore[no-any-return]
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        laid_out = np.full((len(values), max(lengths.max(initial=0), 1)), NO_LEADER, dtype=np.int32)
        laid_out[np.arange(laid_out.shape[1]) < lengths[:, None]] = pc.list_flatten(values).to_numpy()
        return laid_out

    def gained(self, column: str, other: str) -> Ints:
        """Return the brokers in `column` that are not in `other`, else NO_LEADER."""
        gained = self.brokers(column)
        for taken in self.brokers(other).T:
            gained = np.where(gained == taken[:, None], NO_LEADER, gained)
        return gained

    def gains(self, column: str, other: str) -> Bools:
        """Mark the rows with brokers in `column` that are not in `other`."""
        marks: Bools = (self.gained(column, other) != NO_LEADER).any(axis=1)
        return marks


def as_rows(rows: pa.Table) -> list[Row]:
    """Convert an Arrow table into dictionaries."""
    dictionaries: list[Row] = rows.to_pylist(maps_as_pydicts="strict")
    return dictionaries


def values_of(rows: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns for each row of an Arrow table, maps as dictionaries."""
    return zip(*(rows[column].to_pylist(maps_as_pydicts="strict") for column in columns), strict=True)


def places_of(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Return the place in `others` of each row, by topic and partition; null if there is none.

    >>> others = pa.table({"topic": ["b", "a", "a"], "partition": [0, 0, 1]})
    >>> places_of(pa.table({"topic": ["a", "b", "c", "b"], "partition": [1, 0, 0, 1]}), others).to_pylist()
    [2, 0, None, None]
    """
    topics = pc.unique(others["topic"])
    return pc.index_in(partition_numbers(rows, topics), partition_numbers(others, topics))


def rows_of(rows: pa.Table, others: pa.Table) -> npt.NDArray[np.int64]:
    """Return `places_of` as numbers, NO_LEADER (-1) instead of null."""
    places: npt.NDArray[np.int64] = pc.fill_null(places_of(rows, others), NO_LEADER).to_numpy().astype(np.int64)
    return places


def partition_numbers(rows: pa.Table, topics: pa.Array) -> pa.Array:
    """Return a number for each topic and partition, by which rows of several tables are matched.

    The number is negative for a topic that is not among `topics`.
    """
    codes = pc.fill_null(pc.index_in(rows["topic"].cast(pa.string()), topics.cast(pa.string())), -1).to_numpy()
    return pa.array((codes.astype(np.int64) << 32) | rows["partition"].to_numpy())
