"""The forms of one condition: in Python, in Spark's SQL, on Arrow, and as the view `health` counts it.

With requests it has two forms, in Spark's SQL and on Arrow.
"""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.replicas_and_commits import NO_SNAPSHOT
from jobs.core.arrow_rows import StoredRows
from jobs.snapshots.health import being_reassigned_or_requested
from jobs.sql_views.database import Summaries
from planner.reassignment.pending_requests import is_being_reassigned_or_requested, with_requests
from schemas.replica_assignment import IS_BEING_REASSIGNED, is_being_reassigned

Lists = tuple[list[int], list[int]]
BROKERS = st.lists(st.integers(0, 3), max_size=2)
LISTS = st.lists(st.one_of(st.none(), st.tuples(BROKERS, BROKERS)), min_size=1, max_size=30)


@settings(max_examples=10)
@given(pairs=LISTS)
def test_all_forms_mark_the_same_partitions(
    spark: SparkSession, pairs: list[tuple[list[int], list[int]] | None]
) -> None:
    rows = [
        {"topic": "t", "partition": number, "adding_replicas": pair and pair[0], "removing_replicas": pair and pair[1]}
        for number, pair in enumerate(pairs)
    ]
    table = pa.Table.from_pylist(rows, schema=schema_of("partitions"))
    columns = ["partition", "adding_replicas", "removing_replicas"]
    frame = spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows],
        "partition int, adding_replicas array<int>, removing_replicas array<int>",
    )
    at = Summaries(Warehouse("unused", "default"), NO_SNAPSHOT)
    at.add("partitions", table)
    for name in ("topics", "brokers"):
        at.add(name, schema_of(name).empty_table())
    snapshot = [{"snapshot_id": 1}]
    at.add("snapshots", pa.Table.from_pylist(snapshot, schema=schema_of("snapshots")))

    marked = [is_being_reassigned(*(pair or (None, None))) for pair in pairs]
    assert StoredRows(table).is_being_reassigned().tolist() == marked
    by_spark = {row["partition"] for row in frame.where(IS_BEING_REASSIGNED).collect()}
    assert by_spark == {number for number, mark in enumerate(marked) if mark}
    assert at.rows("health")[0]["reassigning"] == sum(marked)

    requested = {("t", number) for number, row in enumerate(rows) if number % 3 == len(rows) % 3}
    by_arrow = being_reassigned_or_requested(table, requested).tolist()
    requests = spark.createDataFrame(
        [(*key, [1, 2]) for key in sorted(requested)], "topic string, partition int, replicas array<int>"
    )
    with_topic = frame.selectExpr("'t' AS topic", "*").transform(with_requests, requests)
    by_spark = {row["partition"] for row in with_topic.where(is_being_reassigned_or_requested()).collect()}
    assert by_spark == {number for number, mark in enumerate(by_arrow) if mark}
