"""What is stored of a sample: rows of PARTITION_OFFSETS, GROUP_OFFSETS, BROKER_METRICS and BROKER_CAPACITY.

All rows of a sample have one `stored_at`, by which a repeated write replaces them. Each table is written in one commit,
the offsets of partitions last: the samples of groups and disks that a killed process leaves without them are valid.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.adapters.brokers.group_offsets import NO_POSITION, GroupPositions
from jobs.adapters.brokers.log_dirs import dir_rows
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.measurement.partition_samples import SampledCluster
from jobs.repositories.capacities import LOG_DIRS
from planner.load.disk_forecast import volumes_of
from planner.load.resources import DISK
from schemas.response_codes import NO_ERROR
from schemas.rows import BrokerCapacity, BrokerMetric, LogDir

GROUP_COLUMNS: Final = pa.schema(
    [row for row in schema_of("group_offsets") if row.name not in {"cluster", "stored_at"}]
)
"""Columns of GROUP_OFFSETS that are known before it is stored."""

NO_CAPACITY: Final = 0.0
"""The capacity of a log dir that its broker has no longer, or that is on the volume of another one."""


def store_sample(warehouse: Warehouse, sampled: SampledCluster, stored_at: datetime) -> int:
    """Store a sample; return the number of positions of groups.

    The rows of partitions are made while the others are written.
    """
    warehouse.ensure_tables()
    same_sample = f"stored_at = '{stored_at.isoformat()}'"

    def write(table: str, rows: pa.Table) -> None:
        warehouse.replace_by(table, _complete(table, rows, warehouse.cluster, stored_at), same_sample)

    def write_groups() -> int:
        groups = [group for answer in sampled.answers.values() for group in answer.groups.groups]
        rows = group_table(groups, sampled.ids_of)
        write("group_offsets", rows)
        return len(rows)

    with ThreadPoolExecutor(1) as pool:
        positions = pool.submit(write_groups)
        _store_disks(warehouse, sampled, stored_at)
        partitions = sampled.table()
        count = positions.result()
    write("partition_offsets", partitions)
    return count


def _store_disks(warehouse: Warehouse, sampled: SampledCluster, stored_at: datetime) -> None:
    """Store how much of the brokers' disks is used, and capacities that have changed."""
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


def _complete(table: str, rows: pa.Table, cluster: str, stored_at: datetime) -> pa.Table:
    schema = schema_of(table)
    for name, value in (("cluster", cluster), ("stored_at", stored_at)):
        column = schema.field(name)
        rows = rows.append_column(column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return rows.select(schema.names)


def group_table(groups: Sequence[GroupPositions], ids_of: Callable[[pa.Array], pa.Array]) -> pa.Table:
    """Return rows of GROUP_COLUMNS; partitions in which a group has no position are left out.

    `ids_of` returns the ids of topics by their names as bytes.
    """
    entries = [row.topics.entries for row in groups]
    error, partition, committed = (
        np.concatenate([np.empty(0, kind), *(of_group[name] for of_group in entries)])
        for name, kind in (("error_code", np.int16), ("partition_index", np.int32), ("committed_offset", np.int64))
    )
    kept = np.flatnonzero((error == NO_ERROR) & (committed > NO_POSITION))
    group = pa.array(np.repeat(np.arange(len(groups)), [len(of_group) for of_group in entries])[kept])
    names = pa.concat_arrays([pa.array([], pa.binary()), *(row.topics.names for row in groups)]).dictionary_encode()
    counts = np.concatenate([np.empty(0, np.int64), *(row.topics.counts for row in groups)])
    topic = pa.array(np.repeat(names.indices.to_numpy(), counts)[kept])
    racks = pa.concat_arrays([pa.array([], pa.string()), *map(_racks, groups)])
    columns = {
        **{name: pa.array([getattr(row, name) for row in groups]).take(group) for name in _OF_GROUP},
        "topic": names.dictionary.cast(pa.string()).take(topic),
        "topic_id": ids_of(names.dictionary).take(topic),
        "partition": partition[kept],
        "committed": committed[kept],
        "member_rack": racks if len(kept) == len(racks) else racks.take(pa.array(kept)),
    }
    return pa.table([columns[column.name] for column in GROUP_COLUMNS], GROUP_COLUMNS.names).cast(GROUP_COLUMNS)


_OF_GROUP: Final = ("sampled_at", "group_id", "group_type")
"""Columns with one value for each group."""


def _racks(group: GroupPositions) -> pa.Array:
    """Return the rack for each entry of a group."""
    entries = group.topics.entries
    if not group.racks:
        return pa.nulls(len(entries), pa.string())
    names = group.topics.names.cast(pa.string()).to_pylist()
    keys = zip(group.topics.topic_of_entry.tolist(), entries["partition_index"].tolist(), strict=True)
    return pa.array([group.racks.get((names[topic], partition)) for topic, partition in keys], pa.string())


def disk_metrics(broker_id: int, log_dirs: Sequence[LogDir], log_bytes: int) -> Iterator[BrokerMetric]:
    """Return what is used of a broker's disks, and their size.

    Brokers before Kafka 3.3 do not report volumes; then the bytes of the logs are what is used.
    """
    volumes = [(row.total_bytes, row.usable_bytes) for row in volumes_of(log_dirs)]
    known = [(total, free) for total, free in volumes if free is not None]
    sampled_at = max(row.taken_at for row in log_dirs)

    def metric(name: str, value: float) -> BrokerMetric:
        return BrokerMetric(sampled_at=sampled_at, broker_id=broker_id, metric=name, value=value, source=LOG_DIRS)

    yield metric("disk_used", sum(total - free for total, free in known) if known else log_bytes)
    if known:
        yield metric("disk_total", sum(total for total, _ in known))


def changed_capacity(warehouse: Warehouse, log_dirs: Iterable[LogDir], now: datetime) -> list[BrokerCapacity]:
    """Return rows for log dirs whose size differs from the newest row, and for those that are no longer there.

    Only log dirs of brokers that responded are given. The size of a log dir that cannot be read is null.
    Of log dirs on one volume the first has its size, so that the sum is the capacity of the broker.
    """
    rows_given = list(log_dirs)
    sizes: dict[tuple[int, str], float | None] = {(row.broker_id, row.log_dir): row.total_bytes for row in rows_given}
    sizes |= {
        (volume.broker_id, path): NO_CAPACITY for volume in volumes_of(rows_given) for path in volume.log_dirs[1:]
    }
    rows = warehouse.read("broker_capacity", ("source", "=", LOG_DIRS), ("resource", "=", DISK))
    columns = ("broker_id", "log_dir", "capacity")
    stored = {(broker, path): size for broker, path, size in values_of(rows.sort_by("valid_from"), *columns)}
    responding = {broker for broker, _ in sizes}
    gone = {key: NO_CAPACITY for key in stored if key[0] in responding and key not in sizes}
    current = {key: None if size is None else float(size) for key, size in sizes.items()} | gone
    return [
        BrokerCapacity(broker_id=broker, log_dir=path, resource=DISK, capacity=size, source=LOG_DIRS, valid_from=now)
        for (broker, path), size in sorted(current.items())
        if stored.get((broker, path)) != size
    ]
