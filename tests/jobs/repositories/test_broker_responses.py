"""`answers` holds the last word of each broker: against a loop over rows, and in a table that others share."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.repositories.broker_responses import RESPONSE_KEY, latest_responses, record
from schemas.rows import Row
from tests.jobs.support.rows.warehouse_rows import NOW

COLUMNS = (*RESPONSE_KEY, "broker_epoch", "error", "at")


def response(at: int, error: int, **columns: Any) -> Row:  # noqa: ANN401 - of a column each
    key = {"broker_id": 1, "api": "LeaderAndIsr", "topic": "t", "partition": 0, "broker_epoch": 101}
    return {"cluster": "default", **key, "at": NOW + timedelta(seconds=at), "error": error, **columns}


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema_of("answers"))


def key_of(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in RESPONSE_KEY)


def by_hand(rows: list[Row]) -> list[Row]:
    """One word after another: each takes the last one's place, unless it says nothing after a failed log dir."""
    last: dict[tuple[object, ...], Row] = {}
    latest: dict[tuple[object, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        last[key_of(row)] = row
        if row["api"] == "LeaderAndIsr" and row["error"] in {0, 56}:
            latest[key_of(row)] = row
    for key, row in latest.items():
        if row["error"] == 56 and row["broker_epoch"] == last[key]["broker_epoch"]:
            last[key] = row
    return list(last.values())


def in_order(rows: list[Row]) -> list[tuple[object, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=str)


answers = st.lists(
    st.builds(
        response,
        at=st.integers(0, 5),
        error=st.sampled_from([0, -1, 11, 56, 77]),
        broker_id=st.integers(1, 2),
        api=st.sampled_from(["LeaderAndIsr", "StopReplica"]),
        topic=st.sampled_from(["t", "u", None]),
        partition=st.integers(0, 1),
        broker_epoch=st.integers(101, 102),
    ),
    max_size=40,
)


@given(answers)
def test_the_newest_stays(rows: list[Row]) -> None:
    assert in_order(as_rows(latest_responses(table(rows)))) == in_order(by_hand(rows))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((56, 101), (-1, 101), 56),  # silence says nothing of the log dir
        ((56, 101), (11, 101), 56),
        ((56, 101), (77, 101), 56),
        ((56, 101), (0, 101), 0),
        ((56, 101), (-1, 102), -1),  # restarted, with its log dirs
        ((0, 101), (-1, 101), -1),
        ((0, 101), (56, 101), 56),
    ],
)
def test_what_is_known_of_a_log_dir_outlasts_silence(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], kept: int
) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()

    for at, (error, epoch) in enumerate((before, after)):
        record(warehouse, table([response(at, error, broker_epoch=epoch)]))

    assert [row["error"] for row in warehouse.rows("answers")] == [kept]


def test_a_row_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Of an UpdateMetadata, which names no topic, there is one a broker; other clusters' rows are their own."""
    warehouse, other = Warehouse(str(tmp_path), "default"), Warehouse(str(tmp_path), "other")
    warehouse.ensure_tables()
    other.append("answers", [response(0, 31)])
    metadata = {"api": "UpdateMetadata", "topic": None, "partition": None}
    record(
        warehouse,
        table([response(0, 3, **metadata), response(0, 3, **metadata), response(0, 3), response(0, 3, partition=1)]),
    )

    record(warehouse, table([response(1, 0, **metadata), response(2, 0), response(2, 0, broker_id=2, **metadata)]))
    record(warehouse, table([]))

    stored = sorted((row["broker_id"], row["api"], row["error"]) for row in warehouse.rows("answers"))
    assert stored == [
        (1, "LeaderAndIsr", 0),
        (1, "LeaderAndIsr", 3),
        (1, "UpdateMetadata", 0),
        (2, "UpdateMetadata", 0),
    ]
    assert [row["error"] for row in other.rows("answers")] == [31]
