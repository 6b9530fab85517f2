"""SQL that registers the tables by name, for Spark with a Hive metastore, for Unity Catalog and for Trino.

The tables stay where they are: they are registered as external tables, and dropping one drops only its name. Views in
plain SQL show what is asked most. They are replaced with each run, so they follow the release.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from jobs.adapters.delta.warehouse_paths import absolute, is_local, no_warehouse
from jobs.adapters.spark.engine_choice import Engine
from jobs.adapters.spark.session import start_session
from jobs.adapters.spark.submit_environment import is_submitted
from jobs.core.errors import RefusedError, SurveyorError, UsageError
from jobs.runtime.cli_enums import Dialect
from jobs.runtime.console import warn
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.columns import TABLE_COLUMNS
from schemas.text import abbreviate, pluralise

VIEWS: Final = {
    "last_snapshots": """\
SELECT s.* FROM {schema}.snapshots s
JOIN (SELECT cluster, max(snapshot_id) AS snapshot_id FROM {schema}.snapshots GROUP BY cluster) last
ON s.cluster = last.cluster AND s.snapshot_id = last.snapshot_id""",
    "unhealthy_partitions": """\
SELECT p.cluster, p.topic, p.partition, p.leader, p.replicas, p.isr, p.partition_state, p.under_replicated,
p.under_min_isr, p.understood
FROM {schema}.partitions p
LEFT JOIN (SELECT cluster, topic FROM {schema}.topics WHERE deletion_requested) deleting
ON p.cluster = deleting.cluster AND p.topic = deleting.topic
WHERE NOT p.understood OR
(deleting.topic IS NULL AND (p.partition_state = 'Offline' OR p.under_replicated OR p.under_min_isr))""",
    "open_plans": """\
SELECT cluster, plan_id, name, kind, status, created_at, changes, moves, command
FROM {schema}.plans WHERE status IN ('planned', 'committing', 'partial')""",
}
"""Views by name, in SQL that Spark and Trino share. Partitions are unhealthy as the view `partition_health` has it."""


def statements(uri: str, tables: list[str], schema: str, dialect: Dialect) -> Iterator[str]:
    """Yield the statements that register these tables, and then the views, in a schema or CATALOG.SCHEMA."""
    quote = '"' if dialect is Dialect.TRINO else "`"
    parts = schema.split(".")
    name = _quoted(schema, quote)
    folder = absolute(uri).rstrip("/")
    yield f"CREATE SCHEMA IF NOT EXISTS {name}"
    for table in tables:
        if dialect is Dialect.TRINO:
            location = f"file://{folder}/{table}" if is_local(uri) else f"{folder}/{table}"
            arguments = {"schema_name": parts[-1], "table_name": table, "table_location": location}
            given = ", ".join(f"{key} => {_literal(value, dialect)}" for key, value in arguments.items())
            yield f"CALL {quote}{parts[0]}{quote}.system.register_table({given})"
        else:
            location = _literal(f"{folder}/{table}", dialect)
            yield f"CREATE TABLE IF NOT EXISTS {name}.{quote}{table}{quote} USING DELTA LOCATION {location}"
    for view, query in VIEWS.items():
        yield f"CREATE OR REPLACE VIEW {name}.{quote}{view}{quote} AS\n{query.format(schema=name)}"


def _quoted(schema: str, quote: str = "`") -> str:
    return ".".join(f"{quote}{part}{quote}" for part in schema.split("."))


def _literal(text: str, dialect: Dialect) -> str:
    """Format text as a literal; in Spark's SQL a backslash is an escape character."""
    if dialect is Dialect.SPARK:
        text = text.replace("\\", r"\\").replace("'", r"\'")
    return "'" + text.replace("'", "''") + "'" if dialect is Dialect.TRINO else f"'{text}'"


@dataclass(frozen=True, slots=True)
class CatalogStatements:
    """The tables of a warehouse, and the statements that register them."""

    summary: str
    schema: str
    folder: str
    """The warehouse, as the statements name it."""
    tables: list[str]
    statements: list[str]


def make_registration(settings: Settings, schema: str, dialect: Dialect) -> CatalogStatements:
    """Return what registers the tables in a schema."""
    warehouse = settings.warehouse
    if not warehouse.exists():
        raise no_warehouse(warehouse.uri, "take a `surveyor snapshot` first")
    tables = [name for name in TABLE_COLUMNS if warehouse.has(name)]
    counts = f"{pluralise(len(tables), 'table')} and {pluralise(len(VIEWS), 'view')}"
    listed = [*statements(warehouse.uri, tables, schema, dialect)]
    folder = absolute(warehouse.uri).rstrip("/")
    return CatalogStatements(f"{counts} of {warehouse.uri} in {schema}", schema, folder, tables, listed)


def refuse_invalid_name(schema: str, dialect: Dialect) -> None:
    """Raise UsageError if a schema cannot have this name."""
    expected = 2 if dialect is Dialect.TRINO else 1
    parts = schema.split(".")
    if not all(part.isidentifier() for part in parts) or not expected <= len(parts) <= 2:  # noqa: PLR2004 - CATALOG.SCHEMA
        form = "CATALOG.SCHEMA, as delta.surveyor" if dialect is Dialect.TRINO else "SCHEMA or CATALOG.SCHEMA"
        raise UsageError(f"--schema {schema!r}: expected {form}, of letters, digits and underscores")


def refuse_no_metastore(settings: Settings, metastore: str | None) -> None:
    """Raise UsageError if Spark would keep the names in its own memory, or in a database in the current folder."""
    conf_dir = os.environ.get("SPARK_CONF_DIR")
    if metastore or settings.remote or is_submitted() or (conf_dir and Path(conf_dir, "hive-site.xml").is_file()):
        return
    raise UsageError(
        "no metastore is given: expected --metastore thrift://HOST:9083, a hive-site.xml in SPARK_CONF_DIR, --remote "
        "or spark-submit; without --apply the statements are printed, to be run elsewhere"
    )


def register(settings: Settings, registration: CatalogStatements, metastore: str | None) -> None:
    """Run the statements on Spark; raise SurveyorError for the first one that it refuses.

    Raise RefusedError if a name is that of a table elsewhere: CREATE TABLE IF NOT EXISTS would keep it silently.
    """
    hive = {"spark.sql.catalogImplementation": "hive"}
    uris = {"spark.hadoop.hive.metastore.uris": metastore} if metastore else {}
    session = start_session(
        "surveyor catalog",
        {} if settings.remote else hive | uris,
        place=replace(settings.place, engine=Engine.SPARK),
    )

    def run(statement: str) -> Any:  # noqa: ANN401 - a DataFrame of Spark or Spark Connect
        try:
            return session.sql(statement)
        except (PySparkException, Py4JError) as error:
            refused, reason = (text.partition("\n")[0] for text in (statement, str(error)))
            raise SurveyorError(
                f"Spark refused {refused}: {reason}; what precedes it is registered, and the same command continues"
            ) from error

    with progress(f"registering {registration.summary}"):
        schema, *others = registration.statements
        run(schema)
        try:
            listed = session.sql(f"SHOW TABLE EXTENDED IN {_quoted(registration.schema)} LIKE '*'").collect()
        except (PySparkException, Py4JError) as error:
            reason = str(error).partition("\n")[0]
            warn(f"it is unknown whether names in {registration.schema} are those of another warehouse: {reason}")
        else:
            _refuse_other_locations(registration, {row["tableName"]: row["information"] for row in listed})
        for statement in others:
            run(statement)


_LOCATION: Final = re.compile(r"^Location: (.*)$", re.MULTILINE)


def _refuse_other_locations(registration: CatalogStatements, registered: Mapping[str, str]) -> None:
    """Raise RefusedError if tables are registered at other locations; `registered` describes the tables by name."""
    locations = {
        name: found[1] for name in registration.tables if (found := _LOCATION.search(registered.get(name, "")))
    }
    other = [name for name, at in locations.items() if not is_same_location(at, f"{registration.folder}/{name}")]
    if other:
        first = other[0]
        raise RefusedError(
            f"{pluralise(len(other), 'name')} in schema {registration.schema} {'is' if len(other) == 1 else 'are'} "
            f"registered with another location ({abbreviate(other)}): {registration.schema}.{first} is "
            f"{locations[first]}, and this warehouse has {registration.folder}/{first}; nothing was registered. Drop "
            f"these names (DROP TABLE {registration.schema}.{first} keeps the files), or give another --schema"
        )


def is_same_location(one: str, other: str) -> bool:
    """Return whether two locations are the same folder; one without a server or a bucket has that of the other.

    >>> is_same_location("file:/data/w/plans", "/data/w/plans"), is_same_location("s3a://b/w/plans/", "s3://b/w/plans")
    (True, True)
    >>> is_same_location("hdfs://nn:8020/w/plans", "hdfs:///w/plans"), is_same_location("s3://a/w", "s3://b/w")
    (True, False)
    """
    (scheme, server, path), (other_scheme, other_server, other_path) = map(_location_parts, (one, other))
    is_same_server = server == other_server or not server or not other_server
    return (scheme, path) == (other_scheme, other_path) and is_same_server


def _location_parts(location: str) -> tuple[str, str, str]:
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        scheme, rest = "file", location
    server, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest.removeprefix("/"))
    return scheme.replace("s3a", "s3"), server, f"{slash}{path}".rstrip("/")
