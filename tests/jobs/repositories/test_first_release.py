"""A warehouse that release 0.1.0 wrote: every command reads it, and the next snapshot upgrades it in place."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.compatibility import VERSION_PROPERTY
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.foreign_changes import foreign_changes
from jobs.snapshots.vacuum import vacuum_warehouse
from schemas.columns import SCHEMA_VERSION, TABLE_COLUMNS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.warehouses.first_release import unpacked_in
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

READ = [
    ("show brokers", "127.0.0.1"),
    ("show brokers --snapshot 1", "127.0.0.1"),
    ("show topics", "payments"),
    ("show partitions", "orders"),
    ("show partitions --snapshot 1", "orders"),
    ("show replicas", "orders"),
    ("show imbalance", "preferred_partitions"),
    ("show configs", "min.insync.replicas"),
    ("show requests", ""),
    ("show quarantine", ""),
    ("show snapshots", "3"),
    ("show events", "BrokerFailed"),
    ("show history --topic orders --partition 0", "snapshot"),
    ("show diff 1 3", "orders"),
    ("show plans", "repair"),
    ("show plan repair", "orders-0"),
    ("show rejections repair", ""),
    ("show commits", "applied"),
    ("show commits repair", "applied"),
    ("show drained", ""),
    ("show throttles", ""),
    ("metrics", "surveyor_"),
    ("status --snapshot 3", "snapshot 3"),
]


def files_of(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_in(tmp_path_factory.mktemp("first-release"))


@pytest.mark.parametrize(("command", "shown"), READ, ids=[command for command, _ in READ])
def test_commands_read_it_and_change_nothing(first_release: Path, command: str, shown: str) -> None:
    before = files_of(first_release)

    ran = Surveyor("127.0.0.1:1", first_release)(*command.split())

    assert (ran.code, ran.stderr.count("unexpected")) == (0, 0), ran.stderr
    assert shown in ran.stdout
    assert files_of(first_release) == before


def test_its_columns_have_the_same_names_and_types_today(first_release: Path) -> None:
    tables = [path.name for path in first_release.iterdir()]
    stored = {name: pa.schema(DeltaTable(str(first_release / name)).schema().to_arrow()) for name in tables}

    assert len(tables) > 15
    for name, schema in stored.items():
        assert [field.name for field in schema if not field.type.equals(schema_of(name).field(field.name).type)] == []


def test_reports_are_made_of_it(first_release: Path, tmp_path: Path) -> None:
    surveyor = Surveyor("127.0.0.1:1", first_release)
    for number, more in enumerate(([], ["--plan", "repair"])):
        page = tmp_path / f"{number}.html"
        ran = surveyor("report", "--out", str(page), *more)
        assert ran.code == 0, ran.stderr
        assert "orders" in page.read_text()


def test_vacuum_drops_its_old_snapshots(tmp_path: Path) -> None:
    surveyor = Surveyor("127.0.0.1:1", unpacked_in(tmp_path))
    assert surveyor("vacuum", "--dry-run").code == 0
    later, day = datetime(2026, 12, 31, tzinfo=UTC), timedelta(days=1)

    assert vacuum_warehouse(surveyor.warehouse, later, day, dry_run=True)["snapshots_dropped"] == 2
    assert vacuum_warehouse(surveyor.warehouse, later, day, dry_run=False)["oldest_snapshot"] == 3
    assert [row["snapshot_id"] for row in surveyor.warehouse.rows("snapshots")] == [3]
    assert len(surveyor.warehouse.rows("partitions")) == 4


def test_the_next_snapshot_and_plan_upgrade_it(tree: KafkaTree, tmp_path: Path) -> None:
    surveyor = Surveyor(tree.hosts, unpacked_in(tmp_path))
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    tree.add_topic("payments", {0: [1, 0]})
    tree.unregister(1)

    assert surveyor("status").code == 0
    assert surveyor.json("plan", "reconcile")["snapshot_id"] == 4

    versions = {
        DeltaTable(surveyor.warehouse.path(name)).metadata().configuration[VERSION_PROPERTY] for name in TABLE_COLUMNS
    }
    assert versions == {str(SCHEMA_VERSION)}
    assert [row["snapshot_id"] for row in surveyor.warehouse.rows("snapshots")].count(4) == 1
    assert "payments" in surveyor("show", "partitions", "--snapshot", "2").stdout
    assert {row.split()[0] for row in surveyor("show", "diff", "3", "4").stdout.splitlines() if row}


def forget_versions(warehouse: Warehouse, name: str) -> None:
    """Remove all versions of a table but the newest, as DROP FEATURE ... TRUNCATE HISTORY does, or a VACUUM."""
    warehouse.add_files(name, [])
    rows = DeltaTable(warehouse.path(name), version=warehouse.version(name) - 1).to_pyarrow_table()
    warehouse.append_all(name, rows)
    DeltaTable(warehouse.path(name)).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    table = DeltaTable(warehouse.path(name))
    table.create_checkpoint()
    for entry in Path(warehouse.path(name), "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()


def test_snapshot_is_taken_after_versions_of_the_last_one_are_lost(tree: KafkaTree, tmp_path: Path) -> None:
    surveyor = Surveyor(tree.hosts, unpacked_in(tmp_path))
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2], 2: [2, 0]})
    for name in ("brokers", "topics", "partitions", "requests", "broker_configs"):
        forget_versions(surveyor.warehouse, name)

    assert len(surveyor("show", "brokers", "--json").json["rows"]) == 3
    assert surveyor.json("snapshot")["snapshot_id"] == 4

    assert {row[0] for row in surveyor.rows("partitions", "topic")} == {"orders"}
    assert not [change for change in foreign_changes(surveyor.warehouse) if change.description.startswith("snapshot 4")]
