"""A plan's id and counts, computed from its rows in Arrow as `schemas.plan_digest` defines them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import AnyRow, columns_of
from schemas.plan_digest import HASHED, LINE_END, NULL, SEPARATOR, plan_id_of
from schemas.rows import Row

_BROKER_BITS: Final = 32


def plan_in_arrow(table: str, rows: Iterable[AnyRow]) -> pa.Table:
    """Convert rows to a table in the schema of `table`; absent columns are null."""
    return pa.Table.from_pylist([columns_of(row) for row in rows], schema=schema_of(table))


def summary(header: str, rows: Mapping[str, pa.Table]) -> Row:
    """Return plan_id, changes, rejected and moves; a missing table counts as empty."""
    return summary_of_parts(header, {table: [whole] for table, whole in rows.items()})


def summary_of_parts(header: str, parts: Mapping[str, Iterable[pa.Table]]) -> Row:
    """Return the same from tables in parts, each of which has all rows of its topics."""
    counts: Counter[str] = Counter()

    def texts(table: str) -> Iterator[tuple[str, str]]:
        for rows in parts[table]:
            counts[table] += rows.num_rows
            counts["moves"] += count_copied_replicas(rows) if table == "changes" else 0
            yield from by_topic(table, rows)

    plan_id = plan_id_of(header, {table: texts(table) for table in parts})
    return {
        "plan_id": plan_id,
        "changes": counts["changes"],
        "rejected": counts["rejections"],
        "moves": counts["moves"],
    }


def by_topic(table: str, rows: pa.Table) -> list[tuple[str, str]]:
    """Return each topic with the text of its rows, as sorted lines.

    >>> row = {"topic": ["t"], "partition": [0], "action": ["elect"], "code": ["DRAINED"], "reason": [None]}
    >>> by_topic("rejections", pa.table(row))
    [('t', 'elect|DRAINED|0|null|t')]
    """
    lined = pa.table({"topic": _cells(rows["topic"]), "line": _lines(table, rows)})
    ordered = lined.sort_by([("topic", "ascending"), ("line", "ascending")])
    grouped = ordered.group_by("topic", use_threads=False).aggregate([("line", "list")])
    texts = pc.binary_join(grouped["line_list"], LINE_END)
    return list(zip(grouped["topic"].to_pylist(), texts.to_pylist(), strict=True))


def count_copied_replicas(changes: pa.Table) -> int:
    """Count the replicas that changes copy: those newly added to existing partitions."""
    existing = changes.select(["adding_before", "adding_after"]).filter(pc.invert(changes["is_new"]))
    return int(np.setdiff1d(_brokers(existing["adding_after"]), _brokers(existing["adding_before"])).size)


def _lines(table: str, rows: pa.Table) -> pa.ChunkedArray:
    """Join the cells of each row; equal columns, such as an unchanged before and after, are formatted once."""
    written: list[tuple[pa.ChunkedArray, pa.ChunkedArray]] = []
    for column in (rows[name] for name in HASHED[table]):
        same = (texts for earlier, texts in written if column.equals(earlier))
        written.append((column, next(same, None) or _cells(column)))
    return pc.binary_join_element_wise(*(texts for _, texts in written), SEPARATOR)


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Format values as `schemas.plan_digest.cell` does."""
    texts = _lists(column) if pa.types.is_list(column.type) else column.cast(pa.string())
    return pc.fill_null(texts, NULL)


def _lists(column: pa.ChunkedArray) -> pa.Array:
    lists = column.combine_chunks()
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
    texts = pa.ListArray.from_arrays(offsets, _cells(pa.chunked_array([pc.list_flatten(lists)])).combine_chunks())
    within = pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")
    return pc.if_else(pc.is_valid(lists), within, None)


def _brokers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the broker ids of all lists, each with its row number in the higher bits."""
    lists = column.combine_chunks()
    row, broker = pc.list_parent_indices(lists), pc.list_flatten(lists)
    joined: npt.NDArray[np.int64] = (row.to_numpy() << _BROKER_BITS) | broker.to_numpy()
    return joined
