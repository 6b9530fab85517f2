"""An in-memory DuckDB database with the tables of one cluster at one snapshot, and the views over them.

A table is read from the warehouse by Surveyor's own reader when a view first needs it. DuckDB itself reads no file and
loads no extension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from threading import RLock
from typing import Any, Final, TypeVar

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.core.errors import UnreadableError
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.snapshots import table_as_of
from jobs.sql_views.views import VIEWS, ViewRow
from schemas.enums import PlanStatus
from schemas.rows import LastSeenBroker, Row, Snapshot

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V", bound=ViewRow)

_AS_OF: Final = frozenset({"partitions", "brokers", "topics"})
"""Tables of the cluster's state, which are read at the version that the snapshot names."""

_TABLES_OF_SNAPSHOTS: Final = frozenset({"snapshots", "imbalance", "partition_history", "events"})
"""Tables with rows of every snapshot; rows of later snapshots are excluded."""

_TABLES_OF_ACTIONS: Final = {"plans": "created_at", "commits": "committed_at"}
"""Tables of actions, and their time column."""

_SETTINGS: Final[dict[str, Any]] = {
    "threads": 2,  # the queries are small, and more threads would not help
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

_MACROS: Final = """
CREATE MACRO named(topic_name, number) AS if(number < 0, topic_name, topic_name || '-' || number);
CREATE MACRO at_second(time) AS coalesce(strftime(time, '%Y-%m-%d %H:%M:%S'), '');
CREATE MACRO listed(brokers) AS coalesce('[' || array_to_string(brokers, ',') || ']', '');
CREATE MACRO led_by(broker) AS
    CASE WHEN broker IS NULL THEN 'not there' WHEN broker < 0 THEN 'none' ELSE broker::VARCHAR END;
CREATE MACRO moved(was, becomes, was_text, text) AS
    CASE WHEN was IS NULL OR was = becomes THEN text ELSE was_text || ' → ' || text END;
CREATE MACRO yes_or_no(holds) AS if(holds, 'yes', 'no');
"""
"""Macros that format cells: a partition, a time in UTC, brokers, a leader, values before and after, a boolean."""


def structs_of(row: type[T], rows: pa.Table) -> list[T]:
    """Convert the result of a query into structs; raise ValidationError if a row does not fit."""
    return msgspec.convert(as_rows(rows), list[row])  # type: ignore[valid-type]


def new_database() -> duckdb.DuckDBPyConnection:
    """Return a connection with its own tables and temporary views.

    All connections share one database of the process, because creating a database takes 14 ms and a connection 0.3 ms.
    """
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@cache
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = {value!r}")
    connection.execute(_MACROS)
    return connection


@cache
def _columns_read() -> dict[str, list[str]]:
    """Return the columns of each table that some view may read."""
    read: dict[str, set[str]] = {}
    for view in VIEWS.values():
        for table, columns in view.reads.items():
            read.setdefault(table, set()).update(columns)
    return {table: sorted(columns) for table, columns in read.items()}


@dataclass(slots=True)
class Summaries:
    """The views of one cluster at one snapshot; `only` are additional filters by table."""

    warehouse: Warehouse
    snapshot: Snapshot
    only: Mapping[str, Filter] = field(default_factory=dict)
    until: datetime | None = None
    """Time of the next snapshot; plans and commits from then on are excluded."""
    imbalance_of: int | None = None
    """How many of the newest snapshots have their imbalance read; None for all.

    The table has a row for each snapshot and broker, a hundred million in a year of 1,000 brokers.
    """
    _connection: duckdb.DuckDBPyConnection = field(default_factory=new_database)
    _registered: set[str] = field(default_factory=set)
    _turn: RLock = field(default_factory=RLock)

    def table(self, view: str) -> pa.Table:
        """Return the rows of a view in its order."""
        return self.query(f"SELECT * FROM {view}", view)  # noqa: S608 - the name of a view

    def newest_rows(self, view: str, snapshots: int) -> pa.Table:
        """Return the rows of a view about the newest `snapshots` snapshots, in its order."""
        first = self._first_of_newest(snapshots)
        return self.query(f"SELECT * FROM {view} WHERE snapshot_id >= {first}", view)  # noqa: S608 - a name, a number

    def rows(self, view: str) -> list[Row]:
        """Return the rows of a view as dictionaries, with times in UTC."""
        return as_rows(self.table(view))

    def typed_rows(self, row: type[V]) -> list[V]:
        """Return the rows of a view in its order, with times in UTC."""
        return structs_of(row, self.table(row.VIEW))

    def query(self, sql: str, *views: str) -> pa.Table:
        """Run a query over these views; queries of several threads run one at a time."""
        with self._turn:
            for view in views:
                self._add_view(view)
            return self._connection.sql(sql).to_arrow_table()

    def add(self, name: str, rows: pa.Table) -> None:
        """Register a table for queries."""
        with self._turn:
            self._connection.register(name, rows)
            self._registered.add(name)

    def _add_view(self, name: str) -> None:
        if name in self._registered:
            return
        view = VIEWS[name]
        for table in view.reads:
            self._add_table(table)
        for other in view.views:
            self._add_view(other)
        self._connection.execute(f"CREATE TEMP VIEW {name} AS {view.sql}")
        self._registered.add(name)

    def _add_table(self, name: str) -> None:
        if name not in self._registered:
            self.add(name, self._read(name, _columns_read()[name]))

    def _read(self, name: str, columns: list[str]) -> pa.Table:
        """Read columns of a table; columns that an older version did not have are null."""
        if name == LastSeenBroker.TABLE:
            last_seen = brokers_last_seen(self.warehouse, self.snapshot).values()
            return self.warehouse.arrow(name, last_seen).select(columns)
        filters = [self.only[name]] if name in self.only else []
        stored = self._columns(name)
        existing = [column for column in columns if column in stored]
        if name in _AS_OF:
            rows = table_as_of(self.warehouse, self.snapshot, name, *filters, columns=existing)
        else:
            rows = self.warehouse.read(name, *filters, *self._limits(name), columns=existing)
        types = schema_of(name)
        for column in set(columns).difference(existing):
            rows = rows.append_column(column, pa.nulls(rows.num_rows, types.field(column).type))
        return self._restore_status(rows) if name == "plans" and self.until is not None else rows

    def _restore_status(self, plans: pa.Table) -> pa.Table:
        """Restore the plans' state at `until`: planned if no commit had started, and not verified if verified later."""
        begun = self.warehouse.read("commits", ("committed_at", "<", self.until), columns=["plan_id"])["plan_id"]
        is_begun = pc.is_in(plans["plan_id"].cast(pa.string()), value_set=begun.cast(pa.string()))
        stays = pc.or_(is_begun, pc.equal(plans["status"], PlanStatus.REFUSED.value))
        status = pc.if_else(stays, plans["status"], PlanStatus.PLANNED.value)
        known = pc.less(plans["verified_at"], pa.scalar(self.until, plans["verified_at"].type))
        verified = pc.if_else(pc.fill_null(known, False), plans["verified_at"], None)  # noqa: FBT003 - Arrow's
        places = [plans.column_names.index(column) for column in ("status", "verified_at")]
        return plans.set_column(places[0], "status", status).set_column(places[1], "verified_at", verified)

    def _limits(self, name: str) -> list[Filter]:
        """Return the filters that exclude rows later than the snapshot."""
        up_to: Filter = ("snapshot_id", "<=", self.snapshot.snapshot_id)
        if self.until is not None and name in _TABLES_OF_ACTIONS:
            return [(_TABLES_OF_ACTIONS[name], "<", self.until), *[up_to] * (name == "plans")]
        if name == "imbalance" and self.imbalance_of is not None:
            return [up_to, ("snapshot_id", ">=", self._first_of_newest(self.imbalance_of))]
        return [up_to] if name in _TABLES_OF_SNAPSHOTS else []

    def _first_of_newest(self, count: int) -> int:
        """Return the id of the oldest of the newest `count` snapshots; 0 if there are no more."""
        up_to = ("snapshot_id", "<=", self.snapshot.snapshot_id)
        ids = self.warehouse.read("snapshots", up_to, columns=["snapshot_id"])["snapshot_id"].to_numpy()
        return int(np.partition(ids, -count)[-count]) if len(ids) > count else 0

    def _columns(self, name: str) -> set[str]:
        if name not in _AS_OF:
            return self.warehouse.columns(name)
        try:
            return self.warehouse.columns(name, self.snapshot.versions[name])
        except UnreadableError:
            if name != "partitions":
                raise
            return self.warehouse.columns("partition_history")  # from which partitions are rebuilt
