"""Loads of brokers, added up from the loads of partitions and the assignment of their replicas.

A leader receives what producers write, and sends it to readers and to each follower; a follower receives it once.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from schemas.enums import NO_LEADER
from schemas.rows import BrokerLoad

_SUMS_OF: Final = {
    "bytes_in": ("bytes_in", "replication_in", "replication_out"),
    "bytes_out": ("bytes_out",),
    "size_bytes": ("size_bytes",),
}
"""The columns of brokers that each column of partitions is summed to."""


def loads_of_brokers(partitions: pa.Table) -> list[BrokerLoad]:
    """Return the load of each broker with a replica, by broker.

    `partitions` has `leader`, `replicas`, `bytes_in`, `bytes_out` and `size_bytes`. Null counts as none, unless it is
    null in all rows; then the loads of brokers are unknown, too. Rows without replicas are of no broker, and those
    without a leader have no traffic.

    >>> row = {"leader": 2, "replicas": [1, 2, 3], "bytes_in": 10.0, "bytes_out": 4.0, "size_bytes": 7}
    >>> for load in loads_of_brokers(pa.Table.from_pylist([row, {**row, "leader": 1, "replicas": [1, 2]}])):
    ...     print(load.broker_id, load.leaders, load.replicas, load.bytes_in, load.replication_in, load.replication_out)
    1 1 2 10.0 10.0 10.0
    2 1 2 10.0 10.0 20.0
    3 0 1 0.0 10.0 0.0
    """
    known = partitions.filter(pc.is_valid(partitions["replicas"]))
    replicas = known["replicas"].combine_chunks()
    row, broker = pc.list_parent_indices(replicas), pc.list_flatten(replicas)
    bytes_in, bytes_out, size = (
        pc.fill_null(known[name], 0).take(row) for name in ("bytes_in", "bytes_out", "size_bytes")
    )
    is_leader = pc.equal(broker, pc.fill_null(known["leader"], NO_LEADER).take(row)).combine_chunks()
    written = pc.if_else(pc.is_in(row, row.filter(is_leader)), bytes_in, 0.0)
    followers = pc.subtract(pc.list_value_length(replicas), 1).take(row)
    parts = {
        "leaders": is_leader.cast(pa.int64()),
        "replicas": pa.repeat(1, len(row)),
        "bytes_in": pc.if_else(is_leader, written, 0.0),
        "replication_in": pc.if_else(is_leader, 0.0, written),
        "bytes_out": pc.if_else(is_leader, bytes_out, 0.0),
        "replication_out": pc.if_else(is_leader, pc.multiply(written, followers), 0.0),
        "size_bytes": size,
    }
    unknown = [name for column, names in _SUMS_OF.items() if not pc.count(known[column]).as_py() for name in names]
    parts |= {name: pa.nulls(len(row), parts[name].type) for name in unknown}
    by_broker = (
        pa.table({"broker_id": broker, **parts}).group_by("broker_id").aggregate([(name, "sum") for name in parts])
    )
    sums = by_broker.rename_columns(["broker_id", *parts]).sort_by("broker_id")
    return [BrokerLoad(**load) for load in sums.to_pylist()]
