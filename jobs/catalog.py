"""`surveyor catalog`: register the tables in a catalogue, or print the SQL for it."""

from typing import Annotated

import typer

from jobs.runtime.cli_enums import Dialect
from jobs.runtime.console import CommandResult
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def catalog(
    settings: Settings,
    *,
    schema: Annotated[
        str, typer.Option(help="Schema of the names; for Unity Catalog and Trino CATALOG.SCHEMA.")
    ] = "surveyor",
    dialect: Annotated[
        Dialect, typer.Option(help="spark: for Spark SQL with a Hive metastore or Unity Catalog; trino: for Trino.")
    ] = Dialect.SPARK,
    metastore: Annotated[
        str | None,
        typer.Option(help="Hive metastore, as thrift://HOST:9083 [default: that of hive-site.xml in SPARK_CONF_DIR]."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the SQL on Spark; without it the SQL is printed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> CommandResult:
    """Register the tables by name in a catalogue, or print the SQL for it."""
    from jobs.sql_views.catalog import register

    return register(settings, schema, dialect, metastore, apply=apply, is_confirmed=yes)


if __name__ == "__main__":
    run_as_script(catalog)
