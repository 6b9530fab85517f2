"""`surveyor catalog`: register the tables in a catalogue, or print the SQL for it."""

from typing import Annotated

import typer

from jobs.core.errors import SurveyorError, UsageError
from jobs.runtime.approval import Review
from jobs.runtime.cli_enums import Dialect
from jobs.runtime.confirmation import approval
from jobs.runtime.console import CommandResult, log
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion


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
        typer.Option(help="Hive metastore, as thrift://HOST:9083 [default: from hive-site.xml in SPARK_CONF_DIR]."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the SQL on Spark; without it the SQL is printed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> CommandResult:
    """Register the tables by name in a catalogue, or print the SQL for it."""
    from jobs.sql_views.catalog import VIEWS, make_registration, refuse_invalid_name, refuse_no_metastore, register

    refuse_invalid_name(schema, dialect)
    if apply and dialect is Dialect.TRINO:
        raise UsageError(
            "--apply runs the SQL on Spark: save the SQL of --dialect trino in a file, and run it with Trino's client "
            "(trino -f)"
        )
    registration = make_registration(settings, schema, dialect)
    result = {
        "schema": schema,
        "dialect": dialect.value,
        "tables": registration.tables,
        "views": [*VIEWS],
        "statements": registration.statements,
        "applied": apply,
    }
    if not apply:
        if dialect is Dialect.SPARK and settings.for_people:
            log("dry run: nothing was registered; --apply runs this on Spark")  # stdout has only the SQL, for a file
        return CommandResult(result, *(f"{statement};" for statement in registration.statements))
    refuse_no_metastore(settings, metastore)
    approve = approval(yes=yes)
    if approve is not None and not approve(Review(f"register {registration.summary}?")):
        raise SurveyorError("nothing was registered: the question was not answered with yes")
    register(settings, registration, metastore)
    return CommandResult(
        result, f"registered {registration.summary}", steps=[suggestion(settings, "see what is due", "status")]
    )


if __name__ == "__main__":
    run_as_script(catalog)
