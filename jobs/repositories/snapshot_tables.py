"""The tables of one snapshot as Spark DataFrames, at the versions that its row in `snapshots` names."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict
from pyspark.sql import DataFrame

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import UnreadableError
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.snapshots import last_snapshot, refresh_hint, table_as_of
from schemas.replica_assignment import PartitionTarget
from schemas.rows import Broker, Key, LastSeenBroker, Snapshot
from schemas.tables import SPARK_SCHEMAS

DRIVER_READ_TABLES: Final = frozenset({"brokers", "broker_configs"})
"""Small tables, whose size depends on the number of brokers only."""

MIN_AGE_OF_REMOVABLE: Final = timedelta(minutes=30)
"""The age of a snapshot up to which no vacuum removes its files soon: it keeps those replaced within the last hour."""


@dataclass(frozen=True, slots=True)
class SnapshotTables:
    """DataFrames of the table versions that a snapshot names, by table name."""

    spark_warehouse: SparkWarehouse
    snapshot: Snapshot
    is_new: bool = False
    """Whether the command that reads the tables has taken the snapshot."""

    @property
    def age_hint(self) -> str:
        """The age of a snapshot that lacks what was requested, and how to plan on a newer one."""
        return refresh_hint(self.snapshot, is_new=self.is_new)

    @property
    def warehouse(self) -> Warehouse:
        return self.spark_warehouse.warehouse

    def __getitem__(self, table: str) -> DataFrame:
        """Read a table at the version that the snapshot names; shapes as in `schemas.tables`.

        `brokers` are the live ones, without the fenced brokers of a KRaft cluster.
        """
        if table == LastSeenBroker.TABLE:
            rows = brokers_last_seen(self.warehouse, self.snapshot)
            return self.spark_warehouse.frame(table, list(rows.values())).coalesce(1)
        if table in DRIVER_READ_TABLES:
            # a single partition can be aggregated without a shuffle
            return self.spark_warehouse.arrow(self._small(table), SPARK_SCHEMAS[table]).coalesce(1)
        if not self._is_removable:
            with suppress(UnreadableError):  # another program removed that version
                return self.spark_warehouse.read(table, self.snapshot.versions[table])
        return self.spark_warehouse.arrow(self._small(table), SPARK_SCHEMAS[table])

    @property
    def _is_removable(self) -> bool:
        """Whether a vacuum may remove files of the snapshot at any moment, also after Spark has planned to read them.

        A vacuum keeps the files of the newest snapshot. The others are read at once, on the driver.
        """
        if datetime.now(UTC) - self.snapshot.taken_at < MIN_AGE_OF_REMOVABLE:
            return False
        newest = last_snapshot(self.warehouse)
        return newest is None or newest.snapshot_id != self.snapshot.snapshot_id

    def _small(self, table: str) -> pa.Table:
        """Read a table at once on the driver, which for small tables is faster than Spark's lookup of a version."""
        rows = table_as_of(self.warehouse, self.snapshot, table)
        missing = [field for field in schema_of(table) if field.name not in rows.column_names]
        for field in missing:  # a warehouse of an older version
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        if table == Broker.TABLE:
            rows = rows.filter(pc.invert(pc.fill_null(rows["fenced"], False)))  # noqa: FBT003 - Arrow's
        return rows.select(SPARK_SCHEMAS[table].names)

    def targets(self, targets: Iterable[PartitionTarget]) -> DataFrame:
        """Return a DataFrame of target replicas: topic, partition and replicas."""
        rows = [asdict(target) for target in targets]
        return self.spark_warehouse.frame("partitions", rows).select("topic", "partition", "replicas")

    def requested(self, partitions: Iterable[Key]) -> DataFrame:
        """Return a DataFrame of requested partitions: topic and partition."""
        rows = [{"topic": topic, "partition": partition} for topic, partition in partitions]
        return self.spark_warehouse.frame("partitions", rows).select("topic", "partition")
