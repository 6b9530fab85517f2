"""Loads of a file in `partition_load` and `broker_load`: checked against the newest snapshot, then stored.

A row of the file replaces the columns that the file has, of the same partition and hour; an empty value removes what
was imported before. Columns, partitions and hours that the file lacks keep what an earlier import stored, so a repeated
import changes nothing.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import partition_numbers
from jobs.core.errors import RefusedError
from jobs.measurement.due_hours import hours_condition
from jobs.measurement.load_files import LOAD_COLUMNS, LoadFile, row_numbers
from jobs.repositories.loads import partitions_of, read_assignment, with_assignment
from jobs.repositories.snapshots import table_as_of, with_age
from jobs.runtime.console import Summary
from planner.load.broker_sums import loads_of_brokers
from schemas.enums import IMPORTED
from schemas.rows import BrokerLoad, PartitionLoad, Snapshot
from schemas.text import MAX_PARTITIONS_NAMED, partition_name, pluralise


class ImportedLoads(Summary, frozen=True, kw_only=True):
    """Counts of the stored rows, fields as in the JSON; `skipped` are rows of unknown partitions."""

    file: str
    columns: list[str]
    rows: int
    topics: int
    partitions: int
    hours: int
    """Hours with rows; loads of every hour count as none."""
    rows_for_every_hour: int
    first_hour: datetime | None
    last_hour: datetime | None
    skipped: int
    unknown: list[str]
    """Topics and partitions of the skipped rows, MAX_PARTITIONS_NAMED at most."""

    @property
    def line(self) -> str:
        """The line for people."""
        of = f"of {pluralise(self.partitions, 'partition')} in {pluralise(self.topics, 'topic')}"
        return f"{self.file}: {pluralise(self.rows, 'row')} {of}, {self._period}: {', '.join(self.columns)}"

    @property
    def _period(self) -> str:
        if self.first_hour is None:
            return "for every hour"
        hours = pluralise(self.hours, "hour")
        others = f" and {pluralise(self.rows_for_every_hour, 'row')} for every hour" if self.rows_for_every_hour else ""
        return f"{hours} from {self.first_hour:%Y-%m-%d %H:00} to {self.last_hour:%Y-%m-%d %H:00} UTC{others}"


def known_loads(
    warehouse: Warehouse, snapshot: Snapshot, file: LoadFile, *, skip_unknown: bool
) -> tuple[pa.Table, ImportedLoads]:
    """Return the rows of a file whose partitions a snapshot has, with topic ids, and their counts.

    Raise RefusedError for the other rows, unless they are to be skipped and some rows remain.
    """
    partitions = table_as_of(warehouse, snapshot, "partitions", columns=["topic", "partition"])
    topics = pc.unique(partitions["topic"].cast(pa.string()))
    keys, known = (partition_numbers(rows, topics).to_numpy() for rows in (file.rows, partitions))
    is_known = np.isin(keys, known)
    rows, others = file.rows.filter(pa.array(is_known)), file.rows.filter(pa.array(~is_known))
    unknown = _names_of(others.append_column("is_topic", pa.array(keys[~is_known] < 0)))
    if others.num_rows and not (skip_unknown and rows.num_rows):
        raise RefusedError(_unknown_message(file, snapshot, others.num_rows, unknown))
    hours = pc.min_max(rows["hour"]).as_py()
    return _with_topic_ids(warehouse, snapshot, rows), ImportedLoads(
        file=str(file.path),
        columns=file.columns,
        rows=rows.num_rows,
        topics=pc.count_distinct(rows["topic"]).as_py(),
        partitions=len(np.unique(keys[is_known])),
        hours=pc.count_distinct(rows["hour"]).as_py(),
        rows_for_every_hour=rows["hour"].null_count,
        first_hour=hours["min"],
        last_hour=hours["max"],
        skipped=others.num_rows,
        unknown=unknown[:MAX_PARTITIONS_NAMED],
    )


def _names_of(rows: pa.Table) -> list[str]:
    """Return the names of topics, and of partitions of other topics, in the order of the file."""
    marked = rows.set_column(1, "partition", pc.if_else(rows["is_topic"], -1, rows["partition"]))
    distinct = marked.group_by(["topic", "partition", "is_topic"], use_threads=False).aggregate([])
    return [
        row["topic"] if row["is_topic"] else partition_name(row["topic"], row["partition"])
        for row in distinct.to_pylist()
    ]


def _unknown_message(file: LoadFile, snapshot: Snapshot, rows: int, unknown: Sequence[str]) -> str:
    named = ", ".join(unknown[:MAX_PARTITIONS_NAMED])
    more = f" and {len(unknown) - MAX_PARTITIONS_NAMED} more" if len(unknown) > MAX_PARTITIONS_NAMED else ""
    return (
        f"{file.path} has {pluralise(rows, 'row')} of topics or partitions that the newest snapshot lacks: "
        f"{named}{more}; nothing was imported. {with_age(snapshot).capitalize()}: take a new `surveyor snapshot`, "
        "correct the file, or import its other rows with --skip-unknown"
    )


def _with_topic_ids(warehouse: Warehouse, snapshot: Snapshot, rows: pa.Table) -> pa.Table:
    topics = table_as_of(warehouse, snapshot, "topics", columns=["topic", "topic_id"])
    of_row = pc.index_in(rows["topic"], topics["topic"].cast(pa.string()).combine_chunks())
    return rows.append_column("topic_id", topics["topic_id"].cast(pa.string()).take(of_row))


def store_loads(warehouse: Warehouse, snapshot: Snapshot, rows: pa.Table, columns: Sequence[str]) -> None:
    """Store rows of `known_loads`; `columns` are those that the file has. Idempotent.

    Loads of every hour, loads of hours, and those of brokers are a commit each. If a later one fails, a repeated import
    stores it.
    """
    warehouse.ensure_tables()
    imported = ("method", "=", IMPORTED)
    is_of_every_hour = pc.is_null(rows["hour"])
    for part in (rows.filter(is_of_every_hour), rows.filter(pc.invert(is_of_every_hour))):
        if not part.num_rows:
            continue
        first, last = pc.min_max(part["hour"]).as_py().values()
        limits = [("hour", "is", None)] if first is None else [("hour", ">=", first), ("hour", "<=", last)]
        filled = _filled(warehouse.cluster, part)
        warehouse.transform_rows(
            PartitionLoad.TABLE,
            imported,
            lambda stored, filled=filled: _merged(stored, filled, columns),  # type: ignore[misc]
            *limits,
        )
    _store_broker_loads(warehouse, snapshot, pc.unique(rows["hour"]).drop_null().to_pylist())


def _store_broker_loads(warehouse: Warehouse, snapshot: Snapshot, hours: Sequence[datetime]) -> None:
    """Add up the loads of brokers in hours without a sampled load, by the replicas of a snapshot."""
    assignment = read_assignment(warehouse, snapshot)
    loads: list[BrokerLoad] = []
    imported: list[datetime] = []
    for hour in hours:
        rows = partitions_of(warehouse, hour)
        if pc.all(pc.equal(rows["method"], IMPORTED)).as_py():
            imported.append(hour)
            loads += [replace(load, hour=hour) for load in loads_of_brokers(with_assignment(rows, assignment))]
    if imported:
        warehouse.replace(BrokerLoad.TABLE, loads, hours_condition(sorted(imported)))


def _filled(cluster: str, rows: pa.Table) -> pa.Table:
    """Return rows with all columns of the table."""
    constants = {"cluster": cluster, "samples": 0, "method": IMPORTED}
    schema = schema_of(PartitionLoad.TABLE)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(constants.get(field.name), field.type), rows.num_rows)
        for field in schema
    ]
    return pa.table(columns, schema)


def _merged(stored: pa.Table, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Replace the stored rows of the same partitions and hours, and keep their columns that a file lacks."""
    key = ["topic", "partition", "hour"]
    numbers = row_numbers(
        pa.concat_tables([table.select(key).cast(rows.select(key).schema) for table in (stored, rows)])
    )
    before, after = pa.array(numbers[: stored.num_rows]), pa.array(numbers[stored.num_rows :])
    at = pc.index_in(after, before)
    for name in LOAD_COLUMNS:
        if name not in columns:
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), stored[name].take(at))
    kept = stored.filter(pc.invert(pc.is_in(before, after)))
    return pa.concat_tables([kept, rows], promote_options="default")
