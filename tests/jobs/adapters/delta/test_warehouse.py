"""Tables written without Spark's help: newer columns, rows superseded in a stream, files copied from table to table."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.core.errors import SurveyorError, UnreadableError
from schemas.columns import TABLE_COLUMNS
from schemas.rows import Row
from schemas.tables import BROKERS, PARTITION_KEY, SPARK_SCHEMAS

ODD = "prod eu/é%=1"
"""A name that is written otherwise in a path, and again otherwise in Delta's log."""


def _partition(topic: str, partition: int, leader: int = 1, **columns: object) -> Row:
    common = {"snapshot_id": 1, "replicas": [1, 2], "isr": [1, 2], "leader": leader}
    return {"topic": topic, "partition": partition, **common, **columns}


def _led(warehouse: Warehouse, table: str = "partitions") -> set[tuple[str, int, int]]:
    return {(row["topic"], row["partition"], row["leader"]) for row in warehouse.rows(table)}


def test_a_table_of_an_older_version_accepts_new_rows(tmp_path: Path) -> None:
    """Older versions refused an empty ISR, which Kafka reads."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    DeltaTable(warehouse.path("partitions")).alter.add_constraint(
        {"isr_never_empty": "isr IS NULL OR cardinality(isr) > 0"}
    )
    row = {"topic": "t", "partition": 0, "leader": -1, "isr": []}
    with pytest.raises(DeltaError):
        warehouse.append("partitions", [row])

    warehouse.ensure_tables()
    warehouse.append("partitions", [row])

    assert [found["isr"] for found in warehouse.rows("partitions")] == [[]]


def test_a_table_of_an_older_version_has_other_comments(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    older = StructType([StructField(f.name, f.dataType, metadata={"comment": "once"}) for f in BROKERS])
    DeltaTable.create(warehouse.path("brokers"), Schema.from_json(older.json()), partition_by=["cluster"])
    warehouse.ensure_tables()
    endpoint = {"listener": "PLAINTEXT", "security_protocol": "PLAINTEXT", "host": "h", "port": 1}
    for write in (warehouse.append, warehouse.replace):
        write("brokers", [{"broker_id": 1, "endpoints": [endpoint]}])
    assert [row["endpoints"] for row in warehouse.rows("brokers")] == [[endpoint]]


@pytest.mark.parametrize("column", ["topic", "partition", "leader", "log_end"])
def test_samples_are_found_by_each_column(tmp_path: Path, column: str) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    times = dict.fromkeys(("sampled_at", "stored_at"), datetime(2026, 11, 30, tzinfo=UTC))
    row: Row = {"topic": "orders", "partition": 1, "leader": 2, "log_end": 30, **times}
    schema = schema_of("partition_offsets")
    warehouse.replace_by("partition_offsets", pa.Table.from_pylist([{"cluster": "default", **row}], schema))
    assert [found["topic"] for found in warehouse.rows("partition_offsets", (column, "=", row[column]))] == ["orders"]


@pytest.mark.parametrize("cluster", ["default", ODD])
def test_superseded_rows_go_and_others_stay(tmp_path: Path, cluster: str) -> None:
    """The key is topic and partition together: `a` with 11 is not `a1` with 1."""
    warehouse, other = Warehouse(str(tmp_path), cluster), Warehouse(str(tmp_path), "other")
    warehouse.ensure_tables()
    other.append("partitions", [_partition("a", 11)])
    warehouse.append("partitions", [_partition("a", 11), _partition("a1", 1), _partition("gone", 0)])
    changed = warehouse.read("partitions").slice(0, 0)
    rows = [_partition("a", 11, leader=2), _partition("new", 0), _partition("gone", 0)]
    changed = changed.from_pylist([row | {"cluster": cluster} for row in rows], changed.schema)
    warehouse.replace_streaming("partitions", changed, changed.slice(0, 2), PARTITION_KEY)
    assert _led(warehouse) == {("a", 11, 2), ("a1", 1, 1), ("new", 0, 1)}
    assert _led(other) == {("a", 11, 1)}


@pytest.mark.parametrize("cluster", ["default", ODD])
def test_copied_files_are_all_of_the_clusters_rows(spark: SparkSession, tmp_path: Path, cluster: str) -> None:
    tables, other = SparkWarehouse(spark, Warehouse(str(tmp_path), cluster)), Warehouse(str(tmp_path), "other")
    tables.warehouse.ensure_tables()
    other.append("partition_history", [_partition("theirs", 0)])
    tables.warehouse.append("partition_history", [_partition("crashed", 0)])
    tables.replace("partitions", tables.frame("partitions", [_partition("t", number) for number in range(3)]))
    for _ in range(2):  # a second copy replaces the first
        tables.copy("partitions", tables.warehouse.version("partitions"), "partition_history")
    expected = {("t", number, 1) for number in range(3)}
    assert (_led(tables.warehouse, "partition_history"), tables.read("partition_history").count()) == (expected, 3)
    assert _led(other, "partition_history") == {("theirs", 0, 1)}


def test_collected_rows_have_the_tables_schema(spark: SparkSession, tmp_path: Path) -> None:
    tables = SparkWarehouse(spark, Warehouse(str(tmp_path), "default"))
    tables.warehouse.ensure_tables()
    row = {"topic": "t", "topic_id": "i", "config": {"k": "v"}, "deletion_requested": False, "understood": True}
    frame = tables.collect_arrow("topics", tables.frame("topics", [row]))
    assert frame.schema.names == SPARK_SCHEMAS["topics"].names
    tables.replace_counted("topics", tables.frame("topics", [row]), 1)
    assert as_rows(frame) == tables.warehouse.rows("topics")


def test_every_column_of_every_table_says_what_it_is(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    for name, table in TABLE_COLUMNS.items():
        stored = {field.name: field.metadata for field in DeltaTable(warehouse.path(name)).schema().fields}
        assert stored == {field["name"]: field["metadata"] for field in table.json["fields"]}


def test_rows_are_found_by_text_that_an_update_has_copied(tmp_path: Path) -> None:
    """Other rows in the file of an updated row are rewritten too, with another Arrow text type."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    warehouse.append("plans", [{"plan_id": plan, "status": "planned"} for plan in ("a", "b", "c")])
    warehouse.update("plans", "plan_id = 'b'", status="'committed'")
    warehouse.append("plans", [{"plan_id": "d", "status": "planned"}])
    statuses = [[row["status"] for row in warehouse.rows("plans", ("plan_id", "=", plan))] for plan in "abcde"]
    assert statuses == [["planned"], ["committed"], ["planned"], ["planned"], []]
    assert warehouse.rows("plans", ("snapshot_id", "in", [])) == []


def test_a_table_without_its_log_is_refused(tmp_path: Path) -> None:
    """Nothing is made in its place; an empty folder is one that nothing was made in yet."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    warehouse.append("plans", [{"plan_id": "a", "status": "planned"}])
    (tmp_path / "plans" / "_delta_log").rename(tmp_path / "log")

    for look in (lambda: warehouse.rows("plans"), warehouse.ensure_tables):
        with pytest.raises(UnreadableError, match=f"table plans has no _delta_log at {tmp_path}/plans, .* restore"):
            look()

    (tmp_path / "log").rename(tmp_path / "plans" / "_delta_log")
    assert len(warehouse.rows("plans")) == 1


def test_rows_of_commits_cannot_be_changed(tmp_path: Path) -> None:
    """Delta refuses it for any writer; merging small files changes no row."""
    warehouse = Warehouse(str(tmp_path), "c")
    warehouse.ensure_tables()
    warehouse.append("commits", [{"plan_id": "p", "attempt": 1, "action": "elect", "outcome": "applied"}])
    warehouse.append("commits", [{"plan_id": "p", "attempt": 2, "action": "elect", "outcome": "applied"}])
    table = DeltaTable(warehouse.path("commits"))

    with pytest.raises(DeltaError, match=r"append.?only"):
        table.delete("attempt = 1")
    assert table.optimize.compact()["numFilesRemoved"] == 2
    assert sorted(row["attempt"] for row in warehouse.rows("commits")) == [1, 2]


def test_compacted_files_have_few_rows_however_small_these_are(tmp_path: Path) -> None:
    """A deletion writes all rows of a file again; equal rows take a fraction of a byte."""
    warehouse = Warehouse(str(tmp_path), "c")
    warehouse.ensure_tables()
    for number in (1, 2, 3):
        row = {"snapshot_id": number, "kind": "LeaderChanged", "subject": "t-0"}
        warehouse.append("events", [row] * 800)
    Warehouse(str(tmp_path), "other").append("events", [{**row, "snapshot_id": 1}])
    warehouse.compact("events", max_rows=1_000)
    added = pa.table(DeltaTable(warehouse.path("events")).get_add_actions())
    assert sorted(added["num_records"].to_pylist()) == [1, 800, 800, 800]
    warehouse.delete("events", "snapshot_id > 1")
    warehouse.append("events", [row])
    warehouse.compact("events", max_rows=1_000)
    assert [pq.read_metadata(path).num_rows for path in warehouse.paths("events")] == [801]


def test_a_log_that_another_process_cleans_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store without locks a vacuum may remove the entry of the version that a write has read."""
    warehouse = Warehouse(str(tmp_path), "c")
    warehouse.ensure_tables()
    for plan in "ab":
        warehouse.append("plans", [{"plan_id": plan, "status": "planned"}])
    overtaken: list[DeltaTable] = []

    class Overtaken(Warehouse):
        def _open(self, table: str, version: int | None = None) -> DeltaTable:
            delta = super()._open(table, version)
            if not overtaken:
                overtaken.append(delta)
                other = Warehouse(str(tmp_path), "c")
                other.append("plans", [{"plan_id": f"other {delta.version()}", "status": "planned"}])
                DeltaTable(other.path(table)).create_checkpoint()
                for version_read in range(delta.version() + 1):
                    (tmp_path / table / "_delta_log" / f"{version_read:020}.json").unlink(missing_ok=True)
            return delta

    warehouse = Overtaken(str(tmp_path), "c")
    monkeypatch.setattr("jobs.adapters.delta.lock_files.locked", lambda *_, **__: nullcontext())

    with pytest.raises(SurveyorError, match=r"table plans .* its log was cleaned by another process .* run the same"):
        warehouse.update("plans", "plan_id = 'a'", status="'committed'")
    overtaken.clear()
    warehouse.compact("plans")
    statuses = {row["plan_id"]: row["status"] for row in warehouse.rows("plans")}
    assert (len(overtaken), len(statuses), set(statuses.values())) == (1, 4, {"planned"})


HOUR = datetime(2026, 11, 30, 9, tzinfo=UTC)
OF_TIMES: list[Filter] = [
    *(("hour", ">=", HOUR), ("hour", "=", HOUR), ("hour", ">", HOUR)),
    *(("hour", "in", [HOUR, HOUR - timedelta(hours=1)]), ("hour", "in", []), ("hour", "is", None)),
]


def _load(hour: datetime | None, broker: int = 1) -> Row:
    rates = dict.fromkeys(("bytes_in", "replication_in", "bytes_out", "replication_out"), 1.0)
    return {"hour": hour, "broker_id": broker, "leaders": 1, "replicas": 1, **rates}


@pytest.mark.parametrize("cluster", ["default", ODD])
def test_rows_are_found_by_time_in_the_files_that_can_have_them(tmp_path: Path, cluster: str) -> None:
    """Of other clusters none, nor rows without a time unless these are asked for."""
    warehouse, other = Warehouse(str(tmp_path), cluster), Warehouse(str(tmp_path), "other")
    warehouse.ensure_tables()
    for rows in ([_load(HOUR), _load(None, 7)], [_load(HOUR + timedelta(hours=1), 2)], [_load(None, 8)]):
        warehouse.append("broker_load", rows)
    other.append("broker_load", [_load(HOUR + timedelta(hours=5), 3)])

    read = [sorted(warehouse.read("broker_load", limit)["broker_id"].to_pylist()) for limit in OF_TIMES]
    assert read == [[1, 2], [1], [2], [1], [], [7, 8]]
    assert (warehouse.latest("broker_load", "hour"), warehouse.latest("group_load", "hour")) == (
        HOUR + timedelta(hours=1),
        None,
    )


def test_the_latest_time_is_read_where_no_statistics_state_it(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    warehouse.append("broker_load", [_load(None)])
    warehouse.opened("broker_load").alter.set_table_properties({"delta.dataSkippingStatsColumns": "broker_id"})
    assert warehouse.latest("broker_load", "hour") is None
    warehouse.append("broker_load", [_load(HOUR)])
    assert warehouse.latest("broker_load", "hour") == HOUR
