"""`surveyor catalog --apply`: Spark finds the tables by name in a Hive metastore, which is in Derby."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.spark_settings import conf_dir
from jobs.sql_views.catalog import VIEWS
from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.warehouses.first_release import unpacked_in

HIVE_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={}/metastore;create=true</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{}/schemas</value></property>
</configuration>"""

TWICE = """
import shutil, sys
from jobs.entry import main
def register():
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0
codes = [register(), register()]
if "://" not in sys.argv[3]:
    sys.argv[3] = shutil.copytree(sys.argv[3], sys.argv[3] + "-2")
    codes.append(register())
assert codes in ([0, 0], [0, 0, 23]), codes
"""
"""Registers what is registered already, in the JVM of the first time, and then a copy under the same names."""

BY_NAME = """
import sys
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.session import start_session
hive, place = {"spark.sql.catalogImplementation": "hive"}, Place(Engine.SPARK, warehouse=sys.argv[1])
spark = start_session("test", hive, place=place)
tables = [row.tableName for row in spark.sql("SHOW TABLES IN surveyor").collect()]
counts = [spark.table(f"surveyor.{name}").count() for name in ("partitions", "last_snapshots", "unhealthy_partitions")]
print(sorted(tables), counts, spark.table("surveyor.last_snapshots").first().snapshot_id)
spark.sql("DROP TABLE surveyor.plans")
"""


def versions(warehouse: Warehouse) -> dict[str, int]:
    return {name: warehouse.opened(name).version() for name in TABLE_COLUMNS}


@pytest.mark.spark
def test_spark_finds_the_tables_by_name(tmp_path: Path) -> None:
    """The warehouse is one of the first release, with the tables that were added since."""
    warehouse = Warehouse(str(unpacked_in(tmp_path)), "default")
    warehouse.ensure_tables()
    (tmp_path / "conf").mkdir()
    for file in conf_dir().iterdir():
        (tmp_path / "conf" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "conf" / "hive-site.xml").write_text(HIVE_SITE.format(tmp_path, tmp_path))
    before = versions(warehouse)
    variables = os.environ | {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYTHONPATH": str(Path(__file__).parents[3])}
    variables.pop("SPARK_REMOTE", None)
    catalog = ["catalog", "--warehouse", warehouse.uri, "--apply", "--yes"]

    for code in ([TWICE, *catalog], [BY_NAME, warehouse.uri]):
        python = [sys.executable, "-c", *code]
        ran = subprocess.run(python, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)
        assert ran.returncode == 0, ran.stderr
        if code[0] is TWICE:
            assert f"is file:{warehouse.uri}/snapshots, and this warehouse has {warehouse.uri}-2/snap" in ran.stderr

    assert ran.stdout.strip() == f"{sorted([*TABLE_COLUMNS, *VIEWS])} [4, 1, 3] 3"
    assert versions(warehouse) == before
