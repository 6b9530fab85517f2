"""Which snapshot a command works on, and the tables as that snapshot left them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from jobs.adapters.delta import Tables
from jobs.adapters.lake import Filter, Lake, Row
from jobs.errors import UnreadableError, UsageError


def last_snapshot(lake: Lake) -> Row | None:
    """Return the newest complete snapshot, None before the first."""
    ids = lake.read("snapshots")["snapshot_id"]
    if not len(ids):
        return None
    return lake.rows("snapshots", ("snapshot_id", "=", pc.max(ids).as_py()))[0]


def find_snapshot(lake: Lake, snapshot_id: int | None = None) -> Row:
    """Return the snapshot asked for, or the newest; raise where there is none."""
    if not lake.exists():
        raise UnreadableError(
            f"no warehouse at {lake.warehouse}; check --warehouse, or take a `surveyor snapshot` first",
        )
    newest = last_snapshot(lake)
    if newest is None:
        raise UnreadableError(
            f"no snapshot of cluster {lake.cluster!r} in {lake.warehouse}; "
            f"take one with `surveyor snapshot --cluster {lake.cluster}`, or check --cluster",
        )
    if snapshot_id is None or snapshot_id == newest["snapshot_id"]:
        return newest
    found = lake.rows("snapshots", ("snapshot_id", "=", snapshot_id))
    if not found:
        raise UsageError(
            f"no snapshot {snapshot_id} of cluster {lake.cluster!r}; the newest is {newest['snapshot_id']}",
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class SnapshotTables:
    """The tables as one snapshot left them, for Spark."""

    tables: Tables
    snapshot: Row

    def __getitem__(self, table: str) -> DataFrame:
        return self.tables.read(table, self.snapshot["versions"][table])

    def targets(self, rows: Sequence[Row]) -> DataFrame:
        """Make a frame of partitions asked for: topic, partition and, where said, replicas."""
        return self.tables.frame("partitions", rows).select("topic", "partition", "replicas")


def as_of(lake: Lake, snapshot: Row, table: str, *filters: Filter) -> list[dict[str, Any]]:
    """Read a table as one snapshot left it, without a JVM."""
    return lake.rows(table, *filters, version=snapshot["versions"][table])
