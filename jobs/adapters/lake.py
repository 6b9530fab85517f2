"""The warehouse without a JVM: Delta tables created, read and appended to by deltalake.

For what is small (snapshots, brokers, plans, commits) and for the committer, which must start in a second. Tables
are created here, from `schemas.tables`, so that all of them exist from first use.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql.types import StructType

from jobs.errors import UnreadableError
from schemas.tables import CHECKS, KEYS, TABLES

RETRIES: Final = 5
"""Attempts at a write that another writer came in between of."""

_READABLE_BY_ALL: Final = {"delta.enableDeletionVectors": "false"}

Row = dict[str, Any]
Filter = tuple[str, str, Any]


@dataclass(frozen=True, slots=True)
class Lake:
    """All tables at `warehouse`, as one cluster sees them."""

    warehouse: str
    cluster: str

    def path(self, table: str) -> str:
        return f"{self.warehouse.rstrip('/')}/{table}"

    def ensure_tables(self) -> None:
        """Create the tables that do not exist yet, empty."""
        for name, schema in TABLES.items():
            if not DeltaTable.is_deltatable(self.path(name)):
                _create(self.path(name), name, schema)

    def exists(self) -> bool:
        """Tell whether the warehouse has been used: `snapshots` is there."""
        return DeltaTable.is_deltatable(self.path("snapshots"))

    def version(self, table: str) -> int:
        return self._open(table).version()

    def read(self, table: str, *filters: Filter, version: int | None = None) -> pa.Table:
        """Read the cluster's rows of a table that pass all `filters`, at a version or now."""
        delta = self._open(table, version)
        return delta.to_pyarrow_table(filters=[("cluster", "=", self.cluster), *filters])

    def rows(self, table: str, *filters: Filter, version: int | None = None) -> list[Row]:
        """Read rows as dictionaries."""
        rows: list[Row] = self.read(table, *filters, version=version).to_pylist(maps_as_pydicts="strict")
        return rows

    def append(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows; their `cluster` is filled in."""
        data = self._arrow(table, rows)
        if data.num_rows:
            _retried(lambda: write_deltalake(self.path(table), data, mode="append"))

    def replace(self, table: str, rows: Iterable[Mapping[str, Any]], where: str = "true") -> None:
        """Replace the cluster's rows that satisfy `where` by these."""
        data = self._arrow(table, rows)
        predicate = f"cluster = {quoted(self.cluster)} AND ({where})"
        if data.num_rows:
            _retried(lambda: write_deltalake(self.path(table), data, mode="overwrite", predicate=predicate))
        else:
            _retried(lambda: self._open(table).delete(predicate))

    def update(self, table: str, where: str, **updates: str) -> None:
        """Set columns to SQL expressions where `where` holds."""
        predicate = f"cluster = {quoted(self.cluster)} AND ({where})"
        _retried(lambda: self._open(table).update(predicate=predicate, updates=updates))

    def _open(self, table: str, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.path(table), version=version)
        except (TableNotFoundError, DeltaError) as error:
            raise UnreadableError(
                f"no table {table} at {self.path(table)} ({_first_line(error)}); "
                "check --warehouse, or take a `surveyor snapshot` first",
            ) from None

    def _arrow(self, table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        filled = [{**row, "cluster": self.cluster} for row in rows]
        return pa.Table.from_pylist(filled, schema=arrow_schema(TABLES[table]))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Translate a table's schema for pyarrow, through Delta's own."""
    return pa.schema(Schema.from_json(schema.json()).to_arrow())


def quoted(text: str) -> str:
    """Write text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _create(path: str, name: str, schema: StructType) -> None:
    required = {"cluster", *KEYS[name]}
    columns = StructType.fromJson(schema.jsonValue())
    for field in columns:
        field.nullable = field.name not in required
    table = DeltaTable.create(
        path,
        schema=Schema.from_json(columns.json()),
        mode="ignore",
        partition_by=["cluster"],
        configuration=_READABLE_BY_ALL,
    )
    for constraint, expression in CHECKS.get(name, {}).items():
        table.alter.add_constraint({constraint: expression})


def _retried(write: Any) -> None:  # noqa: ANN401 - a callable of no argument, whatever it returns
    for attempt in range(RETRIES):
        try:
            write()
        except CommitFailedError:
            if attempt == RETRIES - 1:
                raise
            time.sleep(0.1 * 2**attempt)
        else:
            return


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
