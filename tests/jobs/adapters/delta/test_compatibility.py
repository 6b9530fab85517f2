"""Tables of other versions, and tables that another program changed: read, upgraded or refused in one line."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.adapters.delta import compatibility, table_properties
from jobs.adapters.delta.compatibility import VERSION_PROPERTY
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.table_properties import changed_properties
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError, UnreadableError
from jobs.repositories.foreign_changes import foreign_changes
from jobs.repositories.snapshots import find_snapshot, table_as_of
from schemas import columns
from schemas.rows import PlanRecord
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.warehouses.first_release import unpacked_in

TABLE = "partitions"


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """A warehouse with rows in every snapshot, upgraded."""
    warehouse = Warehouse(str(unpacked_in(tmp_path)), "default")
    warehouse.ensure_tables()
    yield warehouse
    compatibility._types_of.cache_clear()  # noqa: SLF001 - a test may have changed a table


def partition(number: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"snapshot_id": 9, "topic": "new", "partition": number, "leader": 1, "replicas": [1], "isr": [1]} | more


def keys(warehouse: Warehouse) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["partition"]) for row in warehouse.rows(TABLE))


def write_in_every_way(warehouse: Warehouse) -> None:
    """Write and delete rows of TABLE by each operation of deltalake."""
    key, new = ["topic", "partition"], "topic = 'new'"
    warehouse.append(TABLE, [partition(0)])
    warehouse.replace(TABLE, [partition(1)], new)
    warehouse.update(TABLE, new, leader="2")
    assert warehouse.insert(TABLE, partition(2), ("topic", "=", "new"), ("partition", "=", 2)) is None
    rows = warehouse.arrow(TABLE, [partition(1)])
    warehouse.replace_streaming(TABLE, rows, rows, key)
    warehouse.replace_in_parts(
        TABLE, lambda: warehouse.arrow(TABLE, [partition(3)]).to_batches(), f"{new} AND partition = 3"
    )
    warehouse.transform_rows(TABLE, ("topic", "=", "new"), lambda rows: rows)
    assert keys(warehouse)[:3] == [("new", 1), ("new", 2), ("new", 3)]
    warehouse.delete(TABLE, new)
    warehouse.compact(TABLE)


NEXT = str(columns.SCHEMA_VERSION + 1)
"""The version of a later release."""


def set_version(warehouse: Warehouse, table: str, version: str) -> None:
    DeltaTable(warehouse.path(table)).alter.set_table_properties({VERSION_PROPERTY: version}, raise_if_not_exists=False)


@pytest.mark.parametrize("version", [NEXT, "017", "0", "-1", "1.0", "later"])
def test_tables_of_a_version_that_is_not_known_are_refused(warehouse: Warehouse, version: str) -> None:
    for table in ("snapshots", "plans"):
        set_version(warehouse, table, version)
    before = {table: DeltaTable(warehouse.path(table)).version() for table in columns.TABLE_COLUMNS}
    surveyor = Surveyor("127.0.0.1:1", Path(warehouse.uri))

    for command in (
        "show brokers",
        "show plan repair",
        "plan reconcile --no-refresh",
        "commit repair",
        "export repair",
        "vacuum",
    ):
        ran = surveyor(*command.split())
        assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (22, "", 1), (command, ran.stderr)
        assert f"has schema version {version}, and Surveyor" in ran.stderr
        assert "or name another in --warehouse" in ran.stderr
    assert {table: DeltaTable(warehouse.path(table)).version() for table in columns.TABLE_COLUMNS} == before


class NextPlanRecord(PlanRecord, frozen=True, kw_only=True):
    owner: Annotated[str | None, "a column of the next version"] = None


def test_tables_of_an_older_version_are_read_and_upgraded(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the columns were added, and before the version was set, leaves a table that is upgraded again."""
    monkeypatch.setitem(columns.TABLE_COLUMNS, "plans", columns.Columns(NextPlanRecord))
    monkeypatch.setattr(compatibility, "SCHEMA_VERSION", int(NEXT))
    monkeypatch.setattr(table_properties, "SCHEMA_VERSION", int(NEXT))
    monkeypatch.setattr("jobs.repositories.foreign_changes.SCHEMA_VERSION", int(NEXT))
    compatibility._types_of.cache_clear()  # noqa: SLF001
    assert len(warehouse.rows("plans")) == 2
    assert {change.remedy for change in foreign_changes(warehouse)} == {"`surveyor snapshot`"}

    with monkeypatch.context() as crashing:
        crashing.setattr("jobs.adapters.delta.warehouse.reset_properties", fail)
        with pytest.raises(RuntimeError):
            warehouse.ensure_columns("plans")
    assert "owner" in warehouse.columns("plans")
    warehouse.ensure_tables()

    assert {compatibility.schema_version(warehouse.opened(name)) for name in columns.TABLE_COLUMNS} == {NEXT}
    assert [row["owner"] for row in warehouse.rows("plans")] == [None, None]
    assert not [*foreign_changes(warehouse)]


def fail(*_: object) -> None:
    raise RuntimeError("killed")


def overwritten(table: DeltaTable, rows: pa.Table, by: str = "cluster") -> None:
    write_deltalake(table.table_uri, rows, mode="overwrite", schema_mode="overwrite", partition_by=[by])


def with_text(table: DeltaTable) -> pa.Table:
    rows = table.to_pyarrow_table()
    return rows.set_column(rows.schema.get_field_index("leader"), "leader", rows["leader"].cast(pa.string()))


def optimized_and_vacuumed(table: DeltaTable) -> None:
    table.optimize.compact()
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)


def cleaned(table: DeltaTable) -> None:
    table.create_checkpoint()
    table.cleanup_metadata()


HARMLESS: dict[str, Callable[[DeltaTable], object]] = {
    "OPTIMIZE": lambda table: table.optimize.compact(),
    "OPTIMIZE ZORDER": lambda table: table.optimize.z_order(["topic"]),
    "VACUUM": lambda table: table.vacuum(dry_run=False),
    "OPTIMIZE, VACUUM RETAIN 0 HOURS": optimized_and_vacuumed,
    "checkpoint, log cleaned": cleaned,
    "column added": lambda table: table.alter.add_columns([Field("team", PrimitiveType("string"))]),
    "TIMESTAMP_NTZ added": lambda table: table.alter.add_columns([Field("at", PrimitiveType("timestamp_ntz"))]),
    "change data feed": lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_changes_that_do_no_harm(warehouse: Warehouse, change: str) -> None:
    before = keys(warehouse)
    HARMLESS[change](DeltaTable(warehouse.path(TABLE)))

    assert keys(warehouse) == before
    assert table_as_of(warehouse, find_snapshot(warehouse, 3), TABLE).num_rows == 4
    assert {change.description for change in foreign_changes(warehouse)} <= {f"snapshot 1 has lost files of {TABLE}"}
    write_in_every_way(warehouse)
    assert keys(warehouse) == before


REVERSED: dict[str, Callable[[DeltaTable], object]] = {
    "appendOnly": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "log retention": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"}),
    "constraint": lambda table: table.alter.add_constraint({"no_new": "topic <> 'new'"}),
}


@pytest.mark.parametrize("change", REVERSED)
def test_settings_that_the_next_snapshot_sets_back(warehouse: Warehouse, change: str) -> None:
    before = keys(warehouse)
    REVERSED[change](DeltaTable(warehouse.path(TABLE)))
    assert {found.remedy for found in foreign_changes(warehouse)} <= {"`surveyor snapshot`"}

    warehouse.ensure_tables()

    assert not changed_properties(TABLE, warehouse.opened(TABLE))
    write_in_every_way(warehouse)
    assert keys(warehouse) == before


def test_a_write_that_a_changed_property_refuses_names_the_command(warehouse: Warehouse) -> None:
    REVERSED["appendOnly"](DeltaTable(warehouse.path(TABLE)))

    with pytest.raises(
        SurveyorError, match=r"append-only.*changed delta.appendOnly, which `surveyor snapshot` restores"
    ) as error:
        warehouse.replace(TABLE, [partition(1)])
    assert "\n" not in str(error.value)


REFUSED: dict[str, tuple[Callable[[DeltaTable], object], str]] = {
    "deletion vectors": (
        lambda table: table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}),
        "needs Delta's feature deletionVectors, which another program turned on; turn it off",
    ),
    "another type": (
        lambda table: overwritten(table, with_text(table)),
        "has column leader of type string, expected integer; restore the table",
    ),
    "a lost column": (
        lambda table: overwritten(table, table.to_pyarrow_table().drop_columns(["leader"])),
        "has lost column leader; restore the table",
    ),
    "another partition column": (
        lambda table: overwritten(table, table.to_pyarrow_table(), "topic"),
        "is partitioned by topic, expected cluster; restore the table",
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_changes_that_would_be_misread_are_refused(warehouse: Warehouse, change: str) -> None:
    do, message = REFUSED[change]
    do(DeltaTable(warehouse.path(TABLE)))

    for use in (
        lambda: warehouse.rows(TABLE),
        lambda: warehouse.paths(TABLE),
        warehouse.ensure_tables,
        lambda: warehouse.append(TABLE, [partition(1)]),
    ):
        with pytest.raises(UnreadableError, match=f"^table {TABLE} at {warehouse.uri}/{TABLE} {message}") as error:
            use()
        assert "\n" not in str(error.value)
    [found] = [*foreign_changes(warehouse)]
    assert found.is_fault
    assert re.search(message, f"{found.description}; {found.remedy}")


def test_the_doctor_names_snapshots_lost_by_a_foreign_vacuum(warehouse: Warehouse) -> None:
    for table in ("brokers", TABLE):
        DeltaTable(warehouse.path(table)).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)

    assert table_as_of(warehouse, find_snapshot(warehouse, 1), TABLE).num_rows == 4  # from the history
    with pytest.raises(UnreadableError, match=r"table brokers at .* has lost a file of version"):
        table_as_of(warehouse, find_snapshot(warehouse, 1), "brokers")
    assert table_as_of(warehouse, find_snapshot(warehouse, 3), "brokers").num_rows == 2
    [found] = [*foreign_changes(warehouse)]
    assert found.description == "snapshot 1 has lost files of brokers"  # its partitions are in the history
    assert not found.is_fault


def test_a_cleaned_log_is_named(warehouse: Warehouse) -> None:
    table = DeltaTable(warehouse.path(TABLE))
    table.create_checkpoint()
    for entry in Path(warehouse.path(TABLE), "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()

    with pytest.raises(UnreadableError, match="has lost version 1 of its log"):
        warehouse.rows(TABLE, version=1)


@pytest.mark.parametrize(
    ("read", "error", "subject"),
    [
        ("deltalake.DeltaTable.history", DeltaError, "table brokers"),
        ("deltalake.DeltaTable.is_deltatable", OSError, "table brokers"),
        ("jobs.repositories.foreign_changes.is_whole", OSError, "the last or the first snapshot"),
    ],
)
def test_what_the_store_does_not_return_is_named(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, read: str, error: type[Exception], subject: str
) -> None:
    def fail(*_: object) -> None:
        raise error("connection reset")

    monkeypatch.setattr("jobs.repositories.foreign_changes.S3", {""})  # as the scheme of a folder
    monkeypatch.setattr(read, fail)

    found = {change.description: change.is_fault for change in foreign_changes(warehouse)}

    assert found[f"{subject} cannot be read: connection reset"]


BY_SPARK = {
    "brokers": ["ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
    "topics": [
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {} WHERE topic = 'payments'",
    ],
    "requests": ["ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"],
    "plans": ["ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"],
    "events": ["ALTER TABLE {} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"],
    "changes": ["ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"],
}
"""Statements for a table, each of which turns on a feature of Delta that deltalake lacks."""


@pytest.mark.jvm
def test_the_doctor_names_the_features_that_spark_turned_on(spark: SparkSession, warehouse: Warehouse) -> None:
    for table, statements in BY_SPARK.items():
        for statement in statements:
            spark.sql(statement.format(f"delta.`{warehouse.path(table)}`"))

    changes = [*foreign_changes(warehouse)]
    assert len(changes) == len(BY_SPARK)
    assert all("needs Delta's feature" in change.description and change.is_fault for change in changes)


@pytest.mark.jvm
def test_spark_merges_into_a_table_with_a_column_of_another_program(spark: SparkSession, warehouse: Warehouse) -> None:
    spark.sql(f"ALTER TABLE delta.`{warehouse.path(TABLE)}` ADD COLUMN (team STRING)")
    spark.sql(f"UPDATE delta.`{warehouse.path(TABLE)}` SET team = 'a'")  # noqa: S608
    spark.sql(f"OPTIMIZE delta.`{warehouse.path(TABLE)}` ZORDER BY (topic)")
    tables = SparkWarehouse(spark, warehouse)

    changed = tables.frame(TABLE, [partition(1), partition(2)]).withColumn("vanished", F.lit(False))
    tables.merge(TABLE, changed, ["topic", "partition"], "vanished")
    tables.replace(TABLE, tables.frame(TABLE, [partition(3)]), "topic = 'new'")

    teams = {(row["topic"], row["team"]) for row in warehouse.rows(TABLE)}
    assert teams == {("new", None), ("orders", "a"), ("payments", "a")}
    assert tables.read(TABLE).count() == 5
