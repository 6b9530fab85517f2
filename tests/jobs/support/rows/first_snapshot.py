"""A cluster's first snapshot written without Spark: the rows of `surveyor snapshot`, in a fraction of its time.

It is for tests of later commands; tests/jobs/snapshots/test_snapshot.py compares the two. All znodes of the
cluster must be understood. Written again, it is the first snapshot of the cluster's new state.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.clusters.interface import ReadingEnd
from jobs.core.arrow_rows import as_rows
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.cluster_view import ClusterView
from jobs.snapshots.health import arrays_of
from jobs.snapshots.reader import DriverMetadata, read_driver_metadata
from jobs.snapshots.topic_reading import read_table
from planner.columns.partition_masks import PartitionArrays, imbalance, partition_masks
from planner.rules.effective_min_isr import default_min_isr
from schemas.columns import TABLE_COLUMNS
from schemas.enums import PartitionState
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

SNAPSHOT_ID: Final = 1


def first_snapshot_of(tree: KafkaTree, folder: Path, topics: Mapping[str, Mapping[int, list[int]]]) -> Surveyor:
    """Lay out three brokers with these topics, and return the command line on their first snapshot."""
    tree.lay_out()
    tree.elect(0, epoch=7)
    for topic, replicas in topics.items():
        tree.add_topic(topic, replicas)
    surveyor = Surveyor(tree.hosts, folder / "warehouse", plans_on_stored=True)
    write_first_snapshot(surveyor)
    return surveyor


def write_first_snapshot(surveyor: Surveyor, **conf: Any) -> None:  # noqa: ANN401 - fields of ClusterConf
    """Write the rows of `surveyor snapshot`; `conf` are settings as in the cluster's section of a --conf file."""
    warehouse = surveyor.warehouse
    settings = Settings(warehouse.cluster, warehouse.uri, ClusterConf(zookeeper=surveyor.hosts, **conf))
    with settings.connect() as cluster:
        small, read = read_driver_metadata(settings, cluster), pa.concat_tables(map(read_table, cluster.read_rows()))
        end = cluster.read_end()
    lay_tables(warehouse)
    rows = _rows(small, read, settings.conf.imbalance_threshold)
    rows["security"] = [row.columns() for row in end.security.entries]
    for table, some in rows.items():
        warehouse.replace(table, [{**_of(table, row), "snapshot_id": SNAPSHOT_ID} for row in some])
    assert {row["snapshot_id"] for row in warehouse.rows("snapshots")} <= {SNAPSHOT_ID}, "there are later snapshots"
    warehouse.replace(
        "snapshots", [_snapshot(small, end, rows, {name: warehouse.version(name) for name in TABLE_COLUMNS})]
    )


def _rows(small: DriverMetadata, read: pa.Table, threshold: float) -> dict[str, list[Row]]:
    state, configs = small.metadata, small.configs.result()
    assert not state.quarantine, state.quarantine
    assert "quarantine" not in read["kind"].unique().to_pylist()
    queued = state.deleting
    topics = [{**row, "deletion_requested": row["topic"] in queued} for row in as_rows(_of_kind(read, "topic"))]
    view = ClusterView(
        controller_id=None,
        controller_epoch=None,
        migration=None,
        brokers=state.brokers,
        configs={row["topic"]: row["config"] for row in topics},
        deleting=queued,
        requested={},
        partitions=_of_kind(read, "partition"),
        quarantined=0,
        blocking=[],
    )
    arrays = arrays_of(view, default_min_isr(configs))
    partitions = _partitions(view, arrays)
    return {
        "brokers": [row.columns() for row in state.brokers],
        "broker_configs": [row.columns() for row in configs],
        "requests": [row.columns() for row in state.requests],
        "topics": topics,
        "partitions": partitions,
        "partition_history": partitions,
        "imbalance": [msgspec.structs.asdict(row) for row in imbalance(arrays, threshold)],
    }


def _of_kind(read: pa.Table, kind: str) -> pa.Table:
    return read.filter(pc.field("kind") == kind)


def _of(table: str, row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in TABLE_COLUMNS[table].names if name in row}


def _partitions(view: ClusterView, arrays: PartitionArrays) -> list[Row]:
    """Return the rows as read, with the derived columns."""
    registered = {row.broker_id for row in view.brokers}
    marks = partition_masks(arrays, registered)
    states = {
        PartitionState.NON_EXISTENT: marks.non_existent,
        PartitionState.NEW: marks.new,
        PartitionState.ONLINE: marks.online,
        PartitionState.OFFLINE: marks.offline,
    }
    return [
        row
        | {
            "partition_state": next(state.value for state, are in states.items() if are[number]),
            "offline_replicas": [replica for replica in row["replicas"] if replica not in registered],
            "under_replicated": bool(marks.under_replicated[number]),
            "under_min_isr": bool(marks.under_min_isr[number]),
            "vanished": False,
        }
        for number, row in enumerate(as_rows(view.partitions))
    ]


def _snapshot(small: DriverMetadata, end: ReadingEnd, rows: Mapping[str, list[Row]], versions: dict[str, int]) -> Row:
    state = small.metadata
    return {
        "snapshot_id": SNAPSHOT_ID,
        "taken_at": datetime.now(UTC),
        **state.control,
        "controller_epoch_version": state.controller_epoch_version,
        "zxid_before": state.position,
        "zxid_after": end.position,
        **end.security.counts,
        "cluster_id": state.cluster_id,
        "migration": state.migration,
        "seconds": 0.1,
        "versions": versions,
        "brokers": len(state.brokers),
        "topics": len(rows["topics"]),
        "partitions": len(rows["partitions"]),
        "quarantined": 0,
    }
