"""The tables as one snapshot left them, for Spark.

In: a row of `snapshots`, which names the version of each table. Out: frames of these versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Row
from jobs.repositories.brokers_last_seen import TABLE as LAST_SEEN
from jobs.repositories.brokers_last_seen import brokers_last_seen
from schemas.tables import TABLES

SMALL: Final = frozenset({"brokers", "broker_configs"})
"""Tables that grow with the brokers only."""


@dataclass(frozen=True, slots=True)
class SnapshotTables:
    """Frames of the versions that a snapshot names, by table."""

    tables: SparkWarehouse
    snapshot: Row

    def __getitem__(self, table: str) -> DataFrame:
        """Read a table at the version that the snapshot names; shapes as in `schemas.tables`."""
        if table == LAST_SEEN:
            rows = brokers_last_seen(self.tables.warehouse, self.snapshot)
            return self.tables.frame(table, list(rows.values())).coalesce(1)
        if table in SMALL:
            # what is in one part needs no exchange to be summed up
            return self.tables.arrow(self._small(table), TABLES[table]).coalesce(1)
        return self.tables.read(table, self.snapshot["versions"][table])

    def _small(self, table: str) -> pa.Table:
        """Read by the driver: for Spark to find a version of a Delta table takes longer than to read a small one."""
        rows = self.tables.warehouse.read(table, version=self.snapshot["versions"][table])
        return rows.select(TABLES[table].names)

    def targets(self, rows: Sequence[Row]) -> DataFrame:
        """Make a frame of partitions asked for: topic, partition and, where said, replicas."""
        return self.tables.frame("partitions", rows).select("topic", "partition", "replicas")
