"""Creates the Delta tables of `schemas.columns`, and adds columns and constraints that older tables lack."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from jobs.adapters.delta.table_properties import changed_properties, properties_of
from schemas.columns import KEY_COLUMNS, TABLE_COLUMNS, Columns, uncommented


@cache
def schema_of(table: str, *columns: str) -> pa.Schema:
    """Return the schema of a table, or of some of its columns, for pyarrow; cached, as a snapshot needs nineteen.

    Comments are left out, because an older table with other comments would refuse the rows.
    """
    if columns:
        return pa.schema([schema_of(table).field(name) for name in columns])
    return pa.schema(Schema.from_json(json.dumps(uncommented(TABLE_COLUMNS[table].json))).to_arrow())


def create_all(pool: ThreadPoolExecutor, paths: Sequence[str]) -> None:
    """Create tables without constraints in parallel; raise the first error after all have ended.

    `Warehouse.ensure_columns` adds the constraints, also those that are missing because a process was killed. deltalake
    cannot create a table with constraints in one commit.
    """
    made = [pool.submit(_create, path) for path in paths]
    wait(made)
    for creation in made:
        creation.result()


def _create(path: str) -> None:
    name = path.rpartition("/")[2]
    required = {"cluster", *KEY_COLUMNS[name]}
    columns = TABLE_COLUMNS[name].json
    for column in columns["fields"]:
        column["nullable"] = column["name"] not in required
    try:
        DeltaTable.create(
            path,
            schema=Schema.from_json(json.dumps(columns)),
            mode="ignore",
            partition_by=["cluster"],
            configuration=properties_of(name),
            raise_if_key_not_exists=False,  # the schema's version is not a key of Delta's
        )
    except CommitFailedError:
        if not DeltaTable.is_deltatable(path):  # otherwise another process has created it at the same time
            raise


def existing_columns(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def reset_properties(name: str, table: DeltaTable) -> None:
    table.alter.set_table_properties(changed_properties(name, table), raise_if_not_exists=False)


def add_columns(table: DeltaTable, schema: Columns) -> None:
    missing = {*schema.names}.difference(field.name for field in table.schema().fields)
    if missing:
        fields = Schema.from_json(json.dumps(schema.json)).fields
        table.alter.add_columns([field for field in fields if field.name in missing])


def checks_of(table: DeltaTable) -> set[str]:
    prefix = "delta.constraints."
    return {name.removeprefix(prefix) for name in table.metadata().configuration if name.startswith(prefix)}


def update_checks(table: DeltaTable, checks: Mapping[str, str]) -> None:
    existing = checks_of(table)
    for name in existing - checks.keys():
        table.alter.drop_constraint(name, raise_if_not_exists=False)
    for name in checks.keys() - existing:
        table.alter.add_constraint({name: checks[name]})
