"""`surveyor catalog`: the SQL it prints, and that Spark finds the tables by name in a Hive metastore in Derby."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.adapters.spark.spark_settings import conf_dir
from jobs.sql_views.catalog import VIEWS
from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.warehouses.first_release import unpacked_in

HIVE_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={}/metastore;create=true</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{}/schemas</value></property>
</configuration>"""

TWICE = """
from jobs.entry import main
for _ in range(2):
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
"""
"""Registers what is registered already, in the JVM of the first time."""

BY_NAME = """
from jobs.adapters.spark.session import start_session
spark = start_session("test", {"spark.sql.catalogImplementation": "hive"})
tables = [row.tableName for row in spark.sql("SHOW TABLES IN surveyor").collect()]
counts = [spark.table(f"surveyor.{name}").count() for name in ("partitions", "last_snapshots", "unhealthy_partitions")]
print(sorted(tables), counts, spark.table("surveyor.last_snapshots").first().snapshot_id)
spark.sql("DROP TABLE surveyor.plans")
"""


@pytest.fixture
def surveyor(tmp_path: Path) -> Surveyor:
    """A warehouse of the first release, with the tables that were added since."""
    found = Surveyor("127.0.0.1:1", unpacked_in(tmp_path))
    found.warehouse.ensure_tables()
    return found


def versions(surveyor: Surveyor) -> dict[str, int]:
    return {name: DeltaTable(surveyor.warehouse.path(name)).version() for name in TABLE_COLUMNS}


def test_the_sql_is_printed_and_nothing_is_registered(surveyor: Surveyor) -> None:
    ran = surveyor("catalog", "--schema", "main.surveyor")

    lines, folder = ran.stdout.splitlines(), surveyor.folder
    assert ran.code == 0
    assert lines[:2] == [
        "CREATE SCHEMA IF NOT EXISTS `main`.`surveyor`;",
        f"CREATE TABLE IF NOT EXISTS `main`.`surveyor`.`snapshots` USING DELTA LOCATION '{folder}/snapshots';",
    ]
    assert sum(line.startswith("CREATE TABLE") for line in lines) == len(TABLE_COLUMNS)
    assert [line.split("`")[5] for line in lines if line.startswith("CREATE OR REPLACE VIEW")] == [*VIEWS]
    assert "dry run: nothing was registered" in ran.stderr
    assert surveyor.json("catalog")["applied"] is False


def test_trino_registers_tables_by_a_procedure(surveyor: Surveyor) -> None:
    [schema, first, *_] = surveyor.json("catalog", "--dialect", "trino", "--schema", "delta.surveyor")["statements"]

    assert schema == 'CREATE SCHEMA IF NOT EXISTS "delta"."surveyor"'
    assert first == (
        "CALL \"delta\".system.register_table(schema_name => 'surveyor', table_name => 'snapshots', "
        f"table_location => 'file://{surveyor.folder}/snapshots')"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--apply", "no metastore is given"),
        ("--schema a.b.c", "expected SCHEMA or CATALOG.SCHEMA"),
        ("--schema a`b", "expected SCHEMA or CATALOG.SCHEMA"),
        ("--dialect trino", "expected CATALOG.SCHEMA, as delta.surveyor"),
        ("--dialect trino --schema delta.surveyor --apply", "run it by Trino's client"),
    ],
)
def test_what_cannot_be_registered(
    surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)

    ran = surveyor("catalog", *arguments.split())

    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert message in ran.stderr


def test_a_folder_that_is_no_warehouse(tmp_path: Path) -> None:
    ran = Surveyor("127.0.0.1:1", tmp_path / "nowhere")("catalog")
    assert (ran.code, len(ran.stderr.splitlines())) == (22, 1)


@pytest.mark.spark
def test_spark_finds_the_tables_by_name(surveyor: Surveyor, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for file in conf_dir().iterdir():
        (tmp_path / "conf" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "conf" / "hive-site.xml").write_text(HIVE_SITE.format(tmp_path, tmp_path))
    before = versions(surveyor)
    variables = os.environ | {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYTHONPATH": str(Path(__file__).parents[3])}
    variables.pop("SPARK_REMOTE", None)
    catalog = ["catalog", "--warehouse", str(surveyor.folder), "--apply", "--yes"]

    for code in ([TWICE, *catalog], [BY_NAME]):
        python = [sys.executable, "-c", *code]
        ran = subprocess.run(python, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)
        assert ran.returncode == 0, ran.stderr

    assert ran.stdout.strip() == f"{sorted([*TABLE_COLUMNS, *VIEWS])} [4, 1, 3] 3"
    assert versions(surveyor) == before
