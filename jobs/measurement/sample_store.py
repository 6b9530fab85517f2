"""What is stored of a sample: rows of PARTITION_OFFSETS, GROUP_OFFSETS, BROKER_METRICS and BROKER_CAPACITY.

All rows of a sample have one `stored_at`, by which a repeated write replaces them. Each table is written in one commit,
the offsets of partitions last: the samples of groups and disks that a killed process leaves without them are valid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.adapters.brokers.admin_client import NO_ERROR
from jobs.adapters.brokers.group_offsets import NO_POSITION, GroupPositions
from jobs.adapters.brokers.log_dirs import dir_rows
from jobs.adapters.brokers.topic_entries import Array, as_native
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.measurement.partition_samples import SampledCluster
from schemas.rows import BrokerCapacity, BrokerMetric, LogDir

GROUP_COLUMNS: Final = pa.schema(
    [row for row in schema_of("group_offsets") if row.name not in {"cluster", "stored_at"}]
)
"""Columns of GROUP_OFFSETS that are known before it is stored."""

SOURCE: Final = "log_dirs"
DISK: Final = "disk"
NO_CAPACITY: Final = 0.0
"""The capacity of a log dir that its broker has no longer."""


def store_sample(warehouse: Warehouse, sampled: SampledCluster, groups: pa.Table, stored_at: datetime) -> None:
    """Store a sample; `groups` are rows of GROUP_COLUMNS."""
    warehouse.ensure_tables()
    disks = {
        broker_id: dir_rows(broker_id, answer.log_dirs, answer.log_dirs_at)
        for broker_id, answer in sampled.answers.items()
        if answer.log_dirs
    }
    capacity = changed_capacity(warehouse, [row for rows in disks.values() for row in rows], stored_at)
    warehouse.append("broker_capacity", capacity)
    metrics = [
        metric
        for broker_id, rows in disks.items()
        for metric in disk_metrics(broker_id, rows, sampled.answers[broker_id].log_bytes)
    ]
    warehouse.append("broker_metrics", metrics)
    same_sample = f"stored_at = '{stored_at.isoformat()}'"
    for table, rows in (("group_offsets", groups), ("partition_offsets", sampled.rows)):
        warehouse.replace_by(table, _complete(table, rows, warehouse.cluster, stored_at), same_sample)


def _complete(table: str, rows: pa.Table, cluster: str, stored_at: datetime) -> pa.Table:
    schema = schema_of(table)
    for name, value in (("cluster", cluster), ("stored_at", stored_at)):
        column = schema.field(name)
        rows = rows.append_column(column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return rows.select(schema.names)


def group_table(groups: Sequence[GroupPositions], topic_ids: Mapping[bytes, str | None]) -> pa.Table:
    """Return rows of GROUP_COLUMNS; partitions in which a group has no position are left out."""
    codes: dict[bytes, int] = {}
    topics = [np.array([codes.setdefault(name, len(codes)) for name in row.topics.names], int) for row in groups]
    topic = _joined(of_group[row.topics.topic_of_entry] for of_group, row in zip(topics, groups, strict=True))
    error, partition, committed = (
        _joined(row.topics.entries[name] for row in groups)
        for name in ("error_code", "partition_index", "committed_offset")
    )
    group = np.repeat(np.arange(len(groups)), [len(row.topics.entries) for row in groups])
    is_known = pa.array((error == NO_ERROR) & (committed > NO_POSITION))
    names = pa.array(codes, pa.binary()).cast(pa.string())
    columns = {
        **{name: pa.array([getattr(row, name) for row in groups]).take(group) for name in _OF_GROUP},
        "topic": names.take(topic),
        "topic_id": pa.array([topic_ids.get(name) for name in codes], pa.string()).take(topic),
        "partition": as_native(partition),
        "committed": as_native(committed),
        "member_rack": pa.concat_arrays([pa.array([], pa.string()), *map(_racks, groups)]),
    }
    rows = pa.table([columns[column.name] for column in GROUP_COLUMNS], GROUP_COLUMNS.names).cast(GROUP_COLUMNS)
    return rows.filter(is_known)


_OF_GROUP: Final = ("sampled_at", "group_id", "group_type")
"""Columns with one value for each group."""


def _joined(arrays: Iterable[Array]) -> Array:
    return np.concatenate([np.empty(0, int), *arrays])


def _racks(group: GroupPositions) -> pa.Array:
    """Return the rack for each entry of a group."""
    entries = group.topics.entries
    if not group.racks:
        return pa.nulls(len(entries), pa.string())
    names = [name.decode() for name in group.topics.names]
    keys = zip(group.topics.topic_of_entry.tolist(), entries["partition_index"].tolist(), strict=True)
    return pa.array([group.racks.get((names[topic], partition)) for topic, partition in keys], pa.string())


def disk_metrics(broker_id: int, log_dirs: Sequence[LogDir], log_bytes: int) -> Iterator[BrokerMetric]:
    """Return what is used of a broker's disks, and their size.

    Log dirs with the same size and free space count as one volume. Brokers before Kafka 3.3 do not report volumes; then
    the bytes of the logs are what is used.
    """
    volumes = {(row.total_bytes, row.usable_bytes) for row in log_dirs}
    known = [(total, free) for total, free in volumes if total is not None and free is not None]
    sampled_at = max(row.taken_at for row in log_dirs)

    def metric(name: str, value: float) -> BrokerMetric:
        return BrokerMetric(sampled_at=sampled_at, broker_id=broker_id, metric=name, value=value, source=SOURCE)

    yield metric("disk_used", sum(total - free for total, free in known) if known else log_bytes)
    if known:
        yield metric("disk_total", sum(total for total, _ in known))


def changed_capacity(warehouse: Warehouse, log_dirs: Iterable[LogDir], now: datetime) -> list[BrokerCapacity]:
    """Return rows for log dirs whose size differs from the newest row, and for those that are no longer there.

    Only log dirs of brokers that responded are given. The size of a log dir that cannot be read is unknown, and stays.
    """
    sizes = {(row.broker_id, row.log_dir): row.total_bytes for row in log_dirs}
    rows = warehouse.read("broker_capacity", ("source", "=", SOURCE), ("resource", "=", DISK))
    columns = ("broker_id", "log_dir", "capacity")
    stored = {(broker, path): size for broker, path, size in values_of(rows.sort_by("valid_from"), *columns)}
    responding = {broker for broker, _ in sizes}
    gone = {key: NO_CAPACITY for key in stored if key[0] in responding and key not in sizes}
    current = {key: float(size) for key, size in sizes.items() if size is not None} | gone
    return [
        BrokerCapacity(broker_id=broker, log_dir=path, resource=DISK, capacity=size, source=SOURCE, valid_from=now)
        for (broker, path), size in sorted(current.items())
        if stored.get((broker, path)) != size
    ]
