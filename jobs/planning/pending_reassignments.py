"""Orders that wait in /admin/reassign_partitions, as a snapshot read them: nobody else may move these partitions.

A commit refuses while a move runs or waits that is not its plan's, and so a plan leaves what waits alone, as what runs.
"""

from pyspark.sql import DataFrame

from jobs.adapters.delta.lake import Row
from jobs.records.snapshots import SnapshotTables, as_of
from planner.reassignment.pending import with_orders
from schemas.names import RequestKind


def orders_of(at: SnapshotTables) -> list[Row]:
    """Return the orders of a snapshot, rows of REQUESTS."""
    return as_of(at.tables.lake, at.snapshot, "requests", ("kind", "=", RequestKind.REASSIGN.value))


def partitions_with_orders(at: SnapshotTables) -> DataFrame:
    """Return the partitions of a snapshot with what is ordered for each."""
    orders = orders_of(at)
    found = at["partitions"]
    return found.transform(with_orders, at.tables.frame("requests", orders)) if orders else found
