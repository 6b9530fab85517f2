"""Live partitions from ZooKeeper in the schema of a snapshot's partitions. It needs no JVM.

The derived columns are those of `planner.columns.derived_columns`, computed by its numpy implementation. They are null
for partitions that cannot be parsed, which count as neither healthy nor unhealthy.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from jobs.adapters.delta.warehouse import schema_of
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.repositories.stored_rows import Bools, Ints
from jobs.snapshots.cluster_view import ClusterView, view_now
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import PartitionMasks, has_broker, is_in, partition_masks
from schemas.enums import PartitionState

_DERIVED_COLUMNS: Final = ("partition_state", "offline_replicas", "under_replicated", "under_min_isr")
_SNAPSHOT_COLUMNS: Final = {"cluster", "snapshot_id", "vanished", *_DERIVED_COLUMNS}

ZNODE_COLUMNS: Final = [name for name in schema_of("partitions").names if name not in _SNAPSHOT_COLUMNS]
"""Columns read from znodes."""


def read_all_columns(endpoint: ZooKeeperEndpoint, topic: str | None = None) -> ClusterView:
    """Read the live state from ZooKeeper with all partition columns, for all topics or one."""
    return view_now(endpoint, topic=topic, columns=ZNODE_COLUMNS)


def with_derived_columns(view: ClusterView, default_min_isr: int) -> pa.Table:
    """Return the partitions with the derived columns and `deletion_requested`."""
    rows = arrays_of(view, default_min_isr)
    live = [row["broker_id"] for row in view.brokers]
    marks = partition_masks(rows, live)
    columns = {
        "partition_state": pa.array(_states(marks), pa.string()),
        "offline_replicas": _offline(rows.replicas, live),
        "under_replicated": pa.array(marks.under_replicated),
        "under_min_isr": pa.array(marks.under_min_isr),
    }
    understood = pa.array(rows.understood)
    nothing = {name: pa.nulls(len(rows.leader), column.type) for name, column in columns.items()}
    table = view.partitions.combine_chunks()
    for name, column in columns.items():
        table = table.append_column(name, pa.compute.if_else(understood, column, nothing[name]))
    return table.append_column("deletion_requested", pa.array(rows.deleting))


def _states(marks: PartitionMasks) -> list[str]:
    by_state = {
        PartitionState.NON_EXISTENT: marks.non_existent,
        PartitionState.NEW: marks.new,
        PartitionState.ONLINE: marks.online,
        PartitionState.OFFLINE: marks.offline,
    }
    states: list[str] = np.select(list(by_state.values()), [state.value for state in by_state], "").tolist()
    return states


def _offline(replicas: Ints, live: list[int]) -> pa.Array:
    absent: Bools = has_broker(replicas) & ~is_in(replicas, live)
    offsets = np.concatenate([[0], np.cumsum(absent.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(replicas[absent], pa.int32()))
