"""A DuckDB database in memory with the tables of one cluster as one snapshot left them, and the views over them.

A table is read from the warehouse when a view first needs it, by the same reader as everything else here, and no file
or extension is fetched by DuckDB itself. In: a warehouse and a row of `snapshots`. Out: rows of a view, or of a query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from threading import RLock
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.filtered_reads import Filter
from jobs.adapters.delta.warehouse import Row, Warehouse, as_rows, schema_of
from jobs.core.errors import UnreadableError
from jobs.repositories.brokers_last_seen import TABLE as LAST_SEEN
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.snapshots import table_as_of
from jobs.sql_views.views import VIEWS
from schemas.enums import PlanStatus

_AS_OF: Final = frozenset({"partitions", "brokers", "topics"})
"""Tables that hold the cluster as a snapshot left it, and are read at the version that the snapshot names."""

_UP_TO: Final = frozenset({"snapshots", "imbalance", "partition_history", "events"})
"""Tables with rows of every snapshot, of which later ones are left out."""

_LATER: Final = {"plans": "created_at", "commits": "committed_at"}
"""Tables of what was done, and the column that says when."""

_SETTINGS: Final[dict[str, Any]] = {
    "threads": 2,  # small queries: more of them only take turns
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


_MACROS: Final = """
CREATE MACRO named(topic_name, number) AS if(number < 0, topic_name, topic_name || '-' || number);
CREATE MACRO at_second(time) AS coalesce(strftime(time, '%Y-%m-%d %H:%M:%S'), '');
CREATE MACRO listed(brokers) AS coalesce('[' || array_to_string(brokers, ',') || ']', '');
CREATE MACRO led_by(broker) AS
    CASE WHEN broker IS NULL THEN 'not there' WHEN broker < 0 THEN 'nobody' ELSE broker::VARCHAR END;
CREATE MACRO moved(was, becomes, was_text, text) AS
    CASE WHEN was IS NULL OR was = becomes THEN text ELSE was_text || ' → ' || text END;
CREATE MACRO yes_or_no(holds) AS if(holds, 'yes', 'no');
"""
"""How queries write cells for people: a partition, a time in UTC, brokers, a leader, what was and what becomes."""


def new_database() -> duckdb.DuckDBPyConnection:
    """One of its own for who asks: tables and temporary views are those that are given to it.

    It is a connection to one database of the process, as to make another takes 14 ms of processor time, this 0.3.
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


@dataclass(slots=True)
class Summaries:
    """The views of one cluster as of one snapshot; `only` says more of which rows of a table are of interest."""

    lake: Warehouse
    snapshot: Row
    only: Mapping[str, Filter] = field(default_factory=dict)
    until: datetime | None = None
    """When the snapshot was not the newest any more: what was planned or committed from then on is left out."""
    _connection: duckdb.DuckDBPyConnection = field(default_factory=new_database)
    _known: set[str] = field(default_factory=set)
    _turn: RLock = field(default_factory=RLock)

    def table(self, view: str) -> pa.Table:
        """Return a view's rows, in its order."""
        return self.query(f"SELECT * FROM {view}", view)  # noqa: S608 - a name of ours

    def rows(self, view: str) -> list[Row]:
        """The same as dictionaries; times in UTC."""
        return as_rows(self.table(view))

    def query(self, sql: str, *views: str) -> pa.Table:
        """Run a query over these views; several threads take turns."""
        with self._turn:
            for view in views:
                self._add_view(view)
            return self._connection.sql(sql).to_arrow_table()

    def add(self, name: str, rows: pa.Table) -> None:
        """Let queries know rows that come from elsewhere."""
        with self._turn:
            self._connection.register(name, rows)
            self._known.add(name)

    def _add_view(self, name: str) -> None:
        if name in self._known:
            return
        view = VIEWS[name]
        for table in view.reads:
            self._add_table(table)
        for other in view.views:
            self._add_view(other)
        self._connection.execute(f"CREATE TEMP VIEW {name} AS {view.sql}")
        self._known.add(name)

    def _add_table(self, name: str) -> None:
        if name not in self._known:
            columns = sorted({column for view in VIEWS.values() for column in view.reads.get(name, ())})
            self.add(name, self._read(name, columns))

    def _read(self, name: str, columns: list[str]) -> pa.Table:
        """Read columns of a table; one that an older version did not know is null."""
        if name == LAST_SEEN:
            seen = brokers_last_seen(self.lake, self.snapshot).values()
            rows = [{column: row[column] for column in columns} for row in seen]
            return pa.Table.from_pylist(rows, schema=pa.schema([schema_of(name).field(column) for column in columns]))
        filters = [self.only[name]] if name in self.only else []
        there = self._columns(name)
        known = [column for column in columns if column in there]
        if name in _AS_OF:
            rows = table_as_of(self.lake, self.snapshot, name, *filters, columns=known)
        else:
            rows = self.lake.read(name, *filters, *self._limits(name), columns=known)
        types = schema_of(name)
        for column in set(columns).difference(known):
            rows = rows.append_column(column, pa.nulls(rows.num_rows, types.field(column).type))
        return self._as_then(rows) if name == "plans" and self.until is not None else rows

    def _as_then(self, plans: pa.Table) -> pa.Table:
        """Put plans back to what they were: planned where no commit had begun, and not verified yet."""
        begun = self.lake.read("commits", ("committed_at", "<", self.until), columns=["plan_id"])["plan_id"]
        is_begun = pc.is_in(plans["plan_id"].cast(pa.string()), value_set=begun.cast(pa.string()))
        stays = pc.or_(is_begun, pc.equal(plans["status"], PlanStatus.REFUSED.value))
        status = pc.if_else(stays, plans["status"], PlanStatus.PLANNED.value)
        known = pc.less(plans["verified_at"], pa.scalar(self.until, plans["verified_at"].type))
        verified = pc.if_else(pc.fill_null(known, False), plans["verified_at"], None)  # noqa: FBT003 - Arrow's
        places = [plans.column_names.index(column) for column in ("status", "verified_at")]
        return plans.set_column(places[0], "status", status).set_column(places[1], "verified_at", verified)

    def _limits(self, name: str) -> list[Filter]:
        """Leave out what is later than the snapshot."""
        up_to: Filter = ("snapshot_id", "<=", self.snapshot["snapshot_id"])
        if self.until is not None and name in _LATER:
            return [(_LATER[name], "<", self.until), *[up_to] * (name == "plans")]
        return [up_to] if name in _UP_TO else []

    def _columns(self, name: str) -> set[str]:
        if name not in _AS_OF:
            return self.lake.columns(name)
        try:
            return self.lake.columns(name, self.snapshot["versions"][name])
        except UnreadableError:
            if name != "partitions":
                raise
            return self.lake.columns("partition_history")  # which then stands in for it
