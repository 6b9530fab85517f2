"""The warehouse without a JVM: Delta tables created, read and written by deltalake.

Used for small tables (snapshots, brokers, plans, commits) and for the commit, which must start within a second. All
tables are created here from `schemas.columns`, so they exist from the first use.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from jobs.adapters.delta.arrow_reads import Filter, count_where, missing_files, native_files, read_where
from jobs.adapters.delta.compatibility import incompatibility, write_incompatibility
from jobs.adapters.delta.lock_files import MAX_WRITE_ATTEMPTS, write_locked
from jobs.adapters.delta.table_properties import changed_properties
from jobs.adapters.delta.table_schemas import (
    add_columns,
    checks_of,
    create_all,
    existing_columns,
    reset_properties,
    schema_of,
    update_checks,
)
from jobs.adapters.delta.warehouse_paths import (
    absolute,
    make_all,
    refuse_unwritable,
    refuse_without_log,
    store_error_reason,
)
from jobs.core.arrow_rows import StoredRows, as_rows, values_of
from jobs.core.errors import SurveyorError, UnreadableError, first_line
from jobs.core.option_sources import WAREHOUSE, option_name
from schemas.columns import CHECKS, TABLE_COLUMNS
from schemas.rows import Change, Row, TableRow

T = TypeVar("T")
R = TypeVar("R", bound=TableRow)

COMMIT_BACKOFF_SECONDS: Final = 0.1
"""Seconds to wait after the first conflict of a commit of deltalake."""

TARGET_FILE_BYTES: Final = 1 << 19
"""Target size of files in a rewritten table; small enough that a later MERGE does not rewrite the whole table."""

MAX_FILE_ROWS: Final = 100_000
"""Rows of a compacted file at most, by the average size of a row.

Rows that repeat each other take less than a byte, and a file of TARGET_FILE_BYTES would have millions of them. The
deletion of one of them writes all the others again.
"""

_PACKED: Final = ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
"""Offsets and sizes, which hardly repeat: packed bits take a fifth less, in space and in the time of a write."""

_DENSE: Final = WriterProperties(
    compression="ZSTD", column_properties=dict.fromkeys(("log_start", "log_end", "bytes", "committed"), _PACKED)
)
_DENSE_TABLES: Final = frozenset({"partition_offsets", "group_offsets"})
"""Tables of samples, with a row for each partition and time; in ZSTD they take a quarter less than in Snappy."""


class StoreError(UnreadableError):
    """The store of the warehouse, such as S3 or HDFS, refuses to return a table."""


_SAME_ROWS: Final = frozenset(
    {
        *("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG"),
        *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD CONSTRAINT", "DROP CONSTRAINT", "ADD COLUMN", "ADD COLUMNS"),
    }
)
"""Operations in the log of a table, by deltalake and by Spark, after which it has the rows that it had before."""

AnyRow = Mapping[str, Any] | TableRow | Change


def _permit() -> None:
    """Permit a write."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """All tables at `warehouse`, as one cluster sees them."""

    uri: str
    cluster: str
    refuse_write: Callable[[], None] = field(default=_permit, repr=False, compare=False)
    """Called in each attempt at a write, after its table was opened; raises an error to refuse it.

    A process that was suspended may have lost its lease between two attempts. Commits of other processes after the
    table was opened conflict with the attempt.
    """

    def path(self, table: str) -> str:
        return f"{self.uri.rstrip('/')}/{table}"

    def ensure_tables(self) -> None:
        """Create missing tables, and add missing columns and constraints to tables of older versions."""
        refuse_unwritable(self.uri)
        with ThreadPoolExecutor() as pool:  # opening a table mostly waits for files
            existing = dict(zip(TABLE_COLUMNS, pool.map(self.has, TABLE_COLUMNS), strict=True))
            list(pool.map(self.ensure_columns, [name for name in TABLE_COLUMNS if existing[name]]))
            missing = [name for name in TABLE_COLUMNS if not existing[name]]
            if missing:
                make_all(self.uri, missing, lambda tables: create_all(pool, tables))
                list(pool.map(self.ensure_columns, missing))

    def ensure_columns(self, name: str) -> None:
        """Upgrade a table of an older version, and undo what other programs changed of its settings.

        The version is set after all columns were added, so a crash in between leaves a table that is upgraded again.
        """
        table, checks = self._open(name), CHECKS.get(name, {})
        if mismatch := write_incompatibility(table):
            raise SurveyorError(f"table {name} at {absolute(self.path(name))} {mismatch.fault}; {mismatch.remedy}")
        if {*TABLE_COLUMNS[name].names} - existing_columns(table):
            self._commit(name, lambda delta: add_columns(delta, TABLE_COLUMNS[name]))
        if checks_of(table) != checks.keys():
            self._commit(name, lambda delta: update_checks(delta, checks))
        if changed_properties(name, table):
            self._commit(name, lambda delta: reset_properties(name, delta))

    def exists(self) -> bool:
        """Return whether the warehouse has been used, that is, whether table `snapshots` exists."""
        return self.has("snapshots")

    def has(self, table: str) -> bool:
        """Return whether a table exists; a warehouse of an older version lacks new tables until the next snapshot.

        Raise UnreadableError for a table without its log, which determines the valid files.
        """
        with self._store_errors(table):
            if DeltaTable.is_deltatable(self.path(table)):
                return True
        refuse_without_log(table, self.path(table))
        return False

    def opened(self, table: str) -> DeltaTable:
        """Open a table at its newest version; raise UnreadableError if it cannot be read."""
        return self._open(table)

    def version(self, table: str) -> int:
        return self._open(table).version()

    def clusters(self) -> list[str]:
        """Return the names of all clusters that have snapshots in the warehouse, sorted."""
        added = pa.table(self._open("snapshots").get_add_actions())
        return sorted({file["partition"]["cluster"] for file in as_rows(added)})

    def columns(self, table: str, version: int | None = None) -> set[str]:
        """Return a table's columns, at a version or now; tables of older Surveyor versions lack new columns."""
        return existing_columns(self._open(table, version))

    def read(
        self,
        table: str,
        *filters: Filter,
        version: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read the cluster's rows of a table that pass all `filters`, at a version or now.

        Raise UnreadableError if there is no such table or version, or if its files were removed.
        """
        delta = self._open(table, version)
        try:
            with self._store_errors(table):
                return self._own_rows(table, delta, *filters, columns=columns)
        except FileNotFoundError as error:
            if version is not None and self._has_same_rows_since(table, version):
                return self.read(table, *filters, columns=columns)
            raise self._lost(table, delta.version(), first_line(error)) from None

    @contextmanager
    def _store_errors(self, table: str) -> Iterator[None]:
        """Raise UnreadableError, in one line, for what the store of a table refuses."""
        try:
            yield
        except (OSError, DeltaError) as error:
            if reason := store_error_reason(error):
                raise StoreError(
                    f"table {table} at {absolute(self.path(table))} cannot be read: {reason}",
                    advice="`surveyor doctor` examines the warehouse",
                ) from None
            raise

    def _has_same_rows_since(self, table: str, version: int) -> bool:
        """Return whether no commit after `version` changed a row, so that the newest version has the same rows.

        An OPTIMIZE rewrites the files, and a VACUUM without retention then removes the files of earlier versions.
        """
        delta = self._open(table)
        commits = delta.history(delta.version() - version)
        return len(commits) == delta.version() - version and all(
            commit.get("operation") in _SAME_ROWS for commit in commits
        )

    def _lost(self, table: str, version: int, state: str) -> UnreadableError:
        return UnreadableError(
            f"table {table} at {self.path(table)} has lost a file of version {version} ({state})",
            advice="something other than `surveyor vacuum` removed it",
        )

    def rows(self, table: str, *filters: Filter, version: int | None = None) -> list[Row]:
        """Read rows as dictionaries."""
        return as_rows(self.read(table, *filters, version=version))

    def rows_in_order(
        self, table: str, order: Sequence[str], *filters: Filter, columns: Sequence[str] | None = None
    ) -> StoredRows:
        """Read the rows that pass all `filters`, ascending by the columns of `order`."""
        rows = self.read(table, *filters, columns=columns)
        return StoredRows(rows.sort_by([(column, "ascending") for column in order]).combine_chunks())

    def typed_rows(self, row: type[R], *filters: Filter, version: int | None = None) -> list[R]:
        """Read rows as structs."""
        return decode_rows(row, self.read(row.TABLE, *filters, version=version))

    def append(self, table: str, rows: Iterable[AnyRow]) -> None:
        """Append rows; column `cluster` is filled in."""
        self.append_all(table, self.arrow(table, rows))

    def append_all(self, table: str, rows: pa.Table) -> None:
        """Append rows that already have all columns of the table, including `cluster`."""
        if rows.num_rows:
            self._commit(table, lambda delta: _append(delta, rows), shared=True)

    def replace(self, table: str, rows: Iterable[AnyRow], where: str = "true") -> int:
        """Replace the cluster's rows that satisfy `where` by these rows; column `cluster` is filled in.

        Return the version of the table that has them, as the other methods that replace rows do.
        """
        return self.replace_by(table, self.arrow(table, rows), where)

    def replace_by(self, table: str, rows: pa.Table, where: str = "true") -> int:
        """Replace the cluster's rows that satisfy `where` by rows that already have all columns of the table."""
        data = rows.cast(schema_of(table))
        predicate = self._own(where)

        def write(delta: DeltaTable) -> int:
            if data.num_rows:
                rows, form = _with_other_columns(delta, data), _form(table)
                write_deltalake(delta, rows, mode="overwrite", predicate=predicate, **form)
            else:
                delta.delete(predicate)
            return delta.version()

        return self._commit(table, write)

    def replace_in_parts(self, table: str, batches: Callable[[], Iterable[pa.RecordBatch]], where: str) -> int:
        """Replace the cluster's rows that satisfy `where` by batches, which a repeated attempt requests again."""
        predicate = self._own(where)

        def write(delta: DeltaTable) -> int:
            schema = _with_other_columns(delta, schema_of(table).empty_table()).schema
            rows = (_with_other_columns(delta, pa.table(batch)) for batch in batches() if batch.num_rows)
            parts = chain.from_iterable(part.to_batches() for part in rows)
            reader = pa.RecordBatchReader.from_batches(schema, parts)
            write_deltalake(delta, reader, mode="overwrite", predicate=predicate)
            return delta.version()

        return self._commit(table, write)

    def delete_where(self, table: str, *filters: Filter) -> None:
        """Delete the cluster's rows that pass all filters."""
        self.delete(table, " AND ".join(map(_condition, filters)))

    def delete(self, table: str, where: str) -> None:
        """Delete the cluster's rows that satisfy `where`."""
        predicate = self._own(where)
        self._commit(table, lambda delta: delta.delete(predicate))

    def transform_rows(
        self,
        table: str,
        limit: Filter,
        make: Callable[[pa.Table], pa.Table],
        *limits: Filter,
        lock_seconds: float | None = None,
    ) -> None:
        """Replace the rows that pass `limit`, and all `limits`, by the result of `make`.

        If another process changes those rows in between, they are read again and `make` is called again. Nothing is
        written if it returns the same table. `lock_seconds` is how long to wait for the table's lock, as in `locked`.
        """
        predicate = self._own(" AND ".join(map(_condition, (limit, *limits))))

        def write(delta: DeltaTable) -> None:
            stored = self._own_rows(table, delta, limit, *limits)
            rows = make(stored)
            if rows is stored:
                return
            if rows.num_rows:
                write_deltalake(delta, rows, mode="overwrite", predicate=predicate)
            else:
                delta.delete(predicate)

        self._commit(table, write, lock_seconds=lock_seconds)

    def insert(self, table: str, row: Mapping[str, Any], *filters: Filter) -> Row | None:
        """Append a row, unless the cluster has a row that passes all `filters`, which is returned then.

        A row that another process adds in between is detected, so of two concurrent inserts one returns the other's
        row.
        """
        rows = self.arrow(table, [row])
        predicate = self._own(" AND ".join(map(_condition, filters)))

        def write(delta: DeltaTable) -> Row | None:
            existing = as_rows(self._own_rows(table, delta, *filters))
            if not existing:
                added = _with_other_columns(delta, rows)
                write_deltalake(delta, added, mode="overwrite", predicate=predicate)
            return existing[0] if existing else None

        return self._commit(table, write)

    def replace_streaming(self, table: str, changed: pa.Table, kept: pa.Table, key: Sequence[str]) -> int:
        """Replace the rows whose key is in `changed` by the rows `kept`, streaming, so that memory does not grow.

        All files are rewritten, which is faster than a search for the files with changes and takes more space.
        """
        taken = _joined_keys(changed, key)

        def write(delta: DeltaTable) -> int:
            dataset = delta.to_pyarrow_dataset(filesystem=native_files(self.path(table)))
            stored = dataset.scanner(filter=pc.field("cluster") == self.cluster).to_batches()
            rest = (batch.filter(pc.invert(pc.is_in(_joined_keys(batch, key), taken))) for batch in stored)
            added = _with_other_columns(delta, kept)
            batches = (batch.select(added.schema.names).cast(added.schema) for batch in rest)
            rows = pa.RecordBatchReader.from_batches(added.schema, chain(batches, added.to_batches()))
            predicate = f"cluster = {quote_literal(self.cluster)}"
            write_deltalake(delta, rows, mode="overwrite", predicate=predicate, target_file_size=TARGET_FILE_BYTES)
            return delta.version()

        return self._commit(table, write)

    def referenced_versions(self, oldest: int) -> pa.Table:
        """Return the versions of tables that snapshots refer to.

        Columns: `table`, `version`, `taken_at` of the last such snapshot, and `is_newest`, whether the newest snapshot
        of any cluster refers to it. Of this cluster only snapshots from `oldest` on count, of other clusters all.
        """
        ours: list[Filter] = [("cluster", "=", self.cluster), ("snapshot_id", ">=", oldest)]
        others: list[Filter] = [("cluster", "!=", self.cluster)]
        snapshots, files = self._open("snapshots"), native_files(self.path("snapshots"))
        columns = ["cluster", "snapshot_id", "versions", "taken_at"]
        rows = pa.concat_tables(
            read_where(snapshots, files, filters, columns, encoded_maps=["versions"]) for filters in (others, ours)
        )
        newest = rows.group_by("cluster").aggregate([("snapshot_id", "max")])
        places = pc.index_in(rows["cluster"].cast(pa.string()), newest["cluster"].cast(pa.string()).combine_chunks())
        is_newest = pc.equal(rows["snapshot_id"], newest["snapshot_id_max"].take(places))
        marked = rows.append_column("is_newest", is_newest)
        batches = marked.to_batches() or [pa.RecordBatch.from_pylist([], marked.schema)]
        named = pa.concat_tables(map(_named_versions, batches)).unify_dictionaries()
        of_version = named.group_by(["table", "version"]).aggregate([("taken_at", "max"), ("is_newest", "max")])
        return of_version.rename_columns(named.column_names)

    def version_if_unchanged(self, table: str, version: int) -> int | None:
        """Return the newest version if the cluster's rows are in the same files as at `version`, else None.

        The rows are then the same, too.
        """
        try:
            current, earlier = self._open(table), self._open(table, version)
        except UnreadableError:  # the version or the table is lost; the caller's next read reports it
            return None
        files, earlier_files = (
            set(opened.file_uris(file_pruning_predicate=[("cluster", "=", self.cluster)]))
            for opened in (current, earlier)
        )
        return current.version() if files == earlier_files else None

    def paths(self, table: str, version: int | None = None, *filters: Filter) -> list[str]:
        """Return the paths of the files with the cluster's rows, at a version or now.

        Files whose statistics show that no row passes the `filters` are left out. Raise UnreadableError if another
        program has removed files of the version.
        """
        names = [unquote(file["path"]) for file in self._add_actions(table, version)]
        if filters:
            uris = self._open(table, version).file_uris(file_pruning_predicate=list(filters))
            files = {uri.rpartition("/")[2] for uri in uris}
            names = [name for name in names if name.rpartition("/")[2] in files]
        if version is not None and (lost := missing_files(self.path(table), names)):
            if not self._has_same_rows_since(table, version):
                raise self._lost(table, version, lost[0])
            return self.paths(table, None, *filters)
        return [f"{self.path(table)}/{name}" for name in names]

    def count_where(self, table: str, *filters: Filter) -> int:
        """Count the cluster's rows of a table that pass all filters."""
        with self._store_errors(table):
            own = [("cluster", "=", self.cluster), *filters]
            return count_where(self._open(table), native_files(self.path(table)), own)

    def count(self, table: str) -> int | None:
        """Count the cluster's rows by the statistics of the table's files, None if a file has none."""
        counts = [row["num_records"] for row in self._add_actions(table)]
        return None if None in counts else sum(counts)

    def latest(self, table: str, column: str) -> datetime | None:
        """Return the latest time in a column of the cluster's rows, None if they have none.

        It is in the statistics of the table's files. The column is read if a file has none.
        """
        added = pa.table(self._open(table).get_add_actions(flatten=True))
        maximum, nulls = f"max.{column}", f"null_count.{column}"
        if not {maximum, nulls}.difference(added.column_names):
            own = added.filter(pc.equal(added["partition.cluster"], self.cluster))
            is_stated = pc.or_(pc.is_valid(own[maximum]), pc.equal(own[nulls], own["num_records"]))
            if pc.all(pc.fill_null(is_stated, False), min_count=0).as_py():  # noqa: FBT003 - Arrow's
                return pc.max(own[maximum]).as_py()  # type: ignore[no-any-return]
        return pc.max(self.read(table, columns=[column])[column]).as_py()  # type: ignore[no-any-return]

    def distinct(self, table: str, *columns: str) -> set[tuple[Any, ...]]:
        """Return the distinct values of columns that are never null, among the cluster's rows.

        They are in the statistics of the table's files, if no file has several. Otherwise the columns are read.
        """
        files = self.statistics(table, *columns)
        least, most = ([*values_of(files, *(f"{end}.{column}" for column in columns))] for end in ("min", "max"))
        if least == most and not any(None in values for values in least):
            return set(least)
        return set(values_of(self.read(table, columns=columns).group_by(list(columns)).aggregate([]), *columns))

    def statistics(self, table: str, *columns: str) -> pa.Table:
        """Return `num_records` and, as `min.COLUMN` and `max.COLUMN`, the statistics of the cluster's files.

        A value is null if a file states none.
        """
        added = pa.table(self._open(table).get_add_actions(flatten=True))
        own = added.filter(pc.equal(added["partition.cluster"], self.cluster))
        schema = schema_of(table)
        for name in (f"{end}.{column}" for column in columns for end in ("min", "max")):
            if name not in own.column_names:
                own = own.append_column(name, pa.nulls(own.num_rows, schema.field(name.partition(".")[2]).type))
        return own.select(["num_records", *(f"{end}.{column}" for column in columns for end in ("min", "max"))])

    def files(self, table: str, version: int) -> list[AddAction]:
        """Return the add actions of the files with the cluster's rows at a version."""
        return [_add_action(file) for file in self._add_actions(table, version)]

    def _add_actions(self, table: str, version: int | None = None) -> list[Row]:
        added = as_rows(pa.table(self._open(table, version).get_add_actions()))
        return [file for file in added if file["partition"]["cluster"] == self.cluster]

    def add_files(self, table: str, files: Sequence[AddAction]) -> None:
        """Replace all rows of the cluster by files that already exist below the table; reads no row.

        `SparkWarehouse.copy` writes the files, and its docstring states how much time this saves.
        """
        own_partition = [("cluster", "=", self.cluster)]

        def write(delta: DeltaTable) -> None:
            delta.create_write_transaction(list(files), "overwrite", delta.schema(), ["cluster"], own_partition)

        self._commit(table, write)

    def compact(self, table: str, file_bytes: int = TARGET_FILE_BYTES, max_rows: int = MAX_FILE_ROWS) -> None:
        """Merge the cluster's small files up to `file_bytes`; no row changes.

        If another process removes the log entry of the version that is merged, as a vacuum on a store without locks
        does, they are merged again.
        """
        own_partition = [("cluster", "=", self.cluster)]

        def merge(delta: DeltaTable) -> None:
            try:
                target = _target_file_bytes(delta, self.cluster, file_bytes, max_rows)
                delta.optimize.compact(own_partition, target, **_form(table))
            except DeltaError as error:
                if _LOST_VERSION not in str(error):
                    raise
                raise CommitFailedError(str(error)) from None

        self._commit(table, merge)

    def update(self, table: str, where: str, **updates: str) -> None:
        """Set columns to SQL expressions in the cluster's rows that satisfy `where`."""
        predicate = self._own(where)
        self._commit(table, lambda delta: delta.update(predicate=predicate, updates=updates))

    def _own(self, where: str) -> str:
        """Return the condition `where`, restricted to the cluster's rows."""
        return f"cluster = {quote_literal(self.cluster)} AND ({where})"

    def _commit(
        self, table: str, write: Callable[[DeltaTable], T], *, shared: bool = False, lock_seconds: float | None = None
    ) -> T:
        """Write under the table's lock, exclusive or `shared` with other appends; open it again after a conflict."""

        def attempt() -> T:
            delta = self._open(table)
            self.refuse_write()
            return write(delta)

        try:
            return write_locked(
                self.uri,
                table,
                attempt,
                _is_conflict,
                backoff_seconds=COMMIT_BACKOFF_SECONDS,
                shared=shared,
                lock_seconds=lock_seconds,
            )
        except CommitFailedError as error:
            raise self._uncommitted(table, error) from None
        except DeltaError as error:
            if _LOST_VERSION not in str(error):
                raise
            raise SurveyorError(
                f"table {table} at {absolute(self.path(table))} was not written: its log was cleaned by another "
                f"process in the meantime ({first_line(error)}); run the same command again",
            ) from None

    def _uncommitted(self, table: str, error: CommitFailedError) -> SurveyorError:
        """Return the error for a commit that Delta did not accept, with the reason that another program made."""
        delta, where = self._open(table), f"table {table} at {absolute(self.path(table))}"
        if mismatch := write_incompatibility(delta):
            return SurveyorError(f"{where} {mismatch.fault}; {mismatch.remedy}")
        if changed := changed_properties(table, delta):
            return SurveyorError(
                f"{where} was not written ({first_line(error)}); another program changed {', '.join(changed)}, which "
                "`surveyor snapshot` restores",
            )
        return SurveyorError(
            f"{where} was not written: other processes committed first, {MAX_WRITE_ATTEMPTS} times "
            f"({first_line(error)}); run the same command again",
        )

    def _open(self, table: str, version: int | None = None) -> DeltaTable:
        """Open a table; raise UnreadableError if it does not exist, or is not one that this Surveyor can read."""
        try:
            with self._store_errors(table):
                delta = DeltaTable(self.path(table), version=version)
        except TableNotFoundError:
            if version is not None and self.has(table):
                raise UnreadableError(
                    f"table {table} at {absolute(self.path(table))} has lost version {version} of its log",
                    advice="something other than `surveyor vacuum` removed it",
                ) from None
            refuse_without_log(table, self.path(table))
            raise UnreadableError(
                f"no table {table} at {absolute(self.path(table))}",
                advice=f"check {option_name(WAREHOUSE)}, or run `surveyor snapshot`, which creates missing tables",
            ) from None
        except DeltaError as error:
            raise UnreadableError(
                f"table {table} at {absolute(self.path(table))} cannot be opened ({first_line(error)})",
                advice=f"check {option_name(WAREHOUSE)}, and whether its files are complete",
            ) from None
        if mismatch := incompatibility(table, delta):
            raise UnreadableError(
                f"table {table} at {absolute(self.path(table))} {mismatch.fault}", advice=mismatch.remedy
            )
        return delta

    def _own_rows(
        self, table: str, delta: DeltaTable, *filters: Filter, columns: Sequence[str] | None = None
    ) -> pa.Table:
        chosen = None if columns is None else list(columns)
        return read_where(delta, native_files(self.path(table)), [("cluster", "=", self.cluster), *filters], chosen)

    def arrow(self, table: str, rows: Iterable[AnyRow]) -> pa.Table:
        """Convert rows into an Arrow table; column `cluster` is filled in, and absent columns are null."""
        filled = [{**columns_of(row), "cluster": self.cluster} for row in rows]
        return pa.Table.from_pylist(filled, schema=schema_of(table))


def columns_of(row: AnyRow) -> Mapping[str, Any]:
    """Return the values of a row by column."""
    return row if isinstance(row, Mapping) else row.columns()


def _form(table: str) -> dict[str, Any]:
    """Return the arguments of deltalake for the form of a table's files."""
    return {"writer_properties": _DENSE} if table in _DENSE_TABLES else {}


def _append(delta: DeltaTable, rows: pa.Table) -> None:
    write_deltalake(delta, _with_other_columns(delta, rows), mode="append")


def _condition(condition: Filter) -> str:
    """Format a comparison as SQL.

    >>> _condition(("plan_id", "=", "5f")), _condition(("snapshot_id", ">=", 4)), _condition(("hour", "is", None))
    ("plan_id = '5f'", 'snapshot_id >= 4', 'hour is NULL')
    >>> from datetime import UTC
    >>> _condition(("hour", "<", datetime(2026, 11, 20, 10, tzinfo=UTC)))
    "hour < '2026-11-20T10:00:00+00:00'"
    """
    column, comparison, value = condition
    if value is None:
        return f"{column} {comparison} NULL"
    text = value.isoformat() if isinstance(value, datetime) else value
    return f"{column} {comparison} {quote_literal(text) if isinstance(text, str) else text}"


def _with_other_columns(delta: DeltaTable, rows: pa.Table) -> pa.Table:
    """Add the columns that another program added to a table, as nulls; deltalake takes no rows without them."""
    for column in delta.schema().fields:
        if column.name not in rows.schema.names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows, pa.field(column.to_arrow()).type))
    return rows


def _named_versions(snapshots: pa.RecordBatch) -> pa.Table:
    """Return a row for each table that snapshots name: `table`, `version`, and the snapshot's time and rank."""
    versions = snapshots["versions"]
    offsets = versions.offsets.to_numpy()
    entries = slice(offsets[0], offsets[-1])
    of_row = np.repeat(np.arange(snapshots.num_rows), np.diff(offsets))
    of_snapshot = snapshots.select(["taken_at", "is_newest"]).take(pa.array(of_row))
    columns = versions.keys[entries], versions.items[entries], *of_snapshot.columns
    return pa.table([*columns], ["table", "version", "taken_at", "is_newest"])


def _joined_keys(rows: pa.Table | pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    return pc.binary_join_element_wise(*(rows[name].cast(pa.string()) for name in key), "\0")


def _target_file_bytes(delta: DeltaTable, cluster: str, file_bytes: int, max_rows: int) -> int:
    """Return the size of a file that compaction of a cluster's rows aims at: `file_bytes`, or that of `max_rows`."""
    files = pa.table(delta.get_add_actions()).select(["partition", "num_records", "size_bytes"])
    own = [file for file in as_rows(files) if file["partition"]["cluster"] == cluster]
    rows, size = (sum(file[column] or 0 for file in own) for column in ("num_records", "size_bytes"))
    return min(file_bytes, size * max_rows // rows) if rows > max_rows else file_bytes


def _add_action(file: Row) -> AddAction:
    stats = {
        "numRecords": file["num_records"],
        "minValues": _without_nulls(file["min"]),
        "maxValues": _without_nulls(file["max"]),
        "nullCount": _without_nulls(file["null_count"]),
    }
    return AddAction(
        path=unquote(file["path"]),  # the name on disk; a transaction encodes it again
        size=file["size_bytes"],
        partition_values=file["partition"],
        modification_time=file["modification_time"],
        data_change=True,
        stats=json.dumps(stats),
    )


def _without_nulls(values: Row) -> Row:
    return {name: value for name, value in values.items() if value is not None}


def decode_rows(row: type[R], rows: pa.Table) -> list[R]:
    """Convert an Arrow table into structs, with defaults for nulls; raise UnreadableError if a row does not fit."""
    never_null = {field.name for field in msgspec.structs.fields(row) if field.default is not None}
    values = as_rows(rows)
    if any(rows[name].null_count for name in never_null.intersection(rows.column_names)):
        values = [_without_nulls(row_values) for row_values in values]
    try:
        return msgspec.convert(values, list[row])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise UnreadableError(f"table {row.TABLE} has a row that Surveyor did not write: {error}") from None


def quote_literal(text: str) -> str:
    """Format text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


_LOST_VERSION: Final = "Invalid table version"
"""How deltalake's error begins if a log entry that it needs is no longer there."""


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, CommitFailedError)
