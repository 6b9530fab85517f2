"""`surveyor catalog`: the SQL it prints, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from jobs.sql_views.catalog import VIEWS
from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.warehouses.first_release import unpacked_in


@pytest.fixture
def surveyor(tmp_path: Path) -> Surveyor:
    """A warehouse of the first release, with the tables that were added since."""
    found = Surveyor("127.0.0.1:1", unpacked_in(tmp_path))
    found.warehouse.ensure_tables()
    return found


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
        ("--dialect trino --schema delta.surveyor --apply", "run it with Trino's client"),
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


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The session of the command; a test gives it a function `sql`."""
    made = SimpleNamespace()
    monkeypatch.setattr("jobs.sql_views.catalog.start_session", lambda *_, **__: made)
    return made


def test_what_spark_refuses_is_one_line(surveyor: Surveyor, session: SimpleNamespace) -> None:
    """As where the metastore may not read the bucket."""

    def refuse(statement: str) -> SimpleNamespace:
        if "`plans`" in statement:
            raise PySparkException("[DENIED] no access to the bucket\n\tat org.apache.hadoop")
        return SimpleNamespace(collect=list)

    session.sql = refuse

    ran = surveyor("catalog", "--metastore", "thrift://127.0.0.1:9083", "--apply", "--yes")

    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)
    statement = f"CREATE TABLE IF NOT EXISTS `surveyor`.`plans` USING DELTA LOCATION '{surveyor.folder}/plans'"
    assert f"Spark refused {statement}: [DENIED] no access to the bucket; what precedes it is registered" in ran.stderr


def test_a_name_of_another_warehouse_is_refused(surveyor: Surveyor, session: SimpleNamespace) -> None:
    """CREATE TABLE IF NOT EXISTS would keep it, and queries would read the other warehouse."""
    own, other = f"file:{surveyor.folder}/snapshots", "s3://elsewhere/surveyor/plans"
    rows = [
        {"tableName": table, "information": f"Type: EXTERNAL\nLocation: {location}\nProvider: delta\n"}
        for table, location in {"snapshots": own, "plans": other}.items()
    ]
    ran_statements = list[str]()

    def run(statement: str) -> SimpleNamespace:
        ran_statements.append(statement)
        return SimpleNamespace(collect=lambda: rows)

    session.sql = run

    ran = surveyor("catalog", "--metastore", "thrift://127.0.0.1:9083", "--apply", "--yes")

    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (23, "", 1)
    assert f"surveyor.plans is {other}, and this warehouse has {surveyor.folder}/plans; nothing was reg" in ran.stderr
    assert not [statement for statement in ran_statements if statement.startswith("CREATE TABLE")]
