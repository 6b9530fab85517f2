"""Loads of brokers, added up from the loads of partitions and the assignment of their replicas.

A leader receives what producers write, and sends it to readers and to each follower; a follower receives it once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.enums import NO_LEADER
from schemas.rows import BrokerLoad


def loads_of_brokers(partitions: pa.Table) -> list[BrokerLoad]:
    """Return the load of each broker with a replica, by broker.

    `partitions` has `leader`, `replicas`, `bytes_in`, `bytes_out` and `size_bytes`, of which null counts as none. Rows
    without replicas are of no broker, and those without a leader have no traffic.

    >>> row = {"leader": 2, "replicas": [1, 2, 3], "bytes_in": 10.0, "bytes_out": 4.0, "size_bytes": 7}
    >>> for load in loads_of_brokers(pa.Table.from_pylist([row, {**row, "leader": 1, "replicas": [1, 2]}])):
    ...     print(load.broker_id, load.leaders, load.replicas, load.bytes_in, load.replication_in, load.replication_out)
    1 1 2 10.0 10.0 10.0
    2 1 2 10.0 10.0 20.0
    3 0 1 0.0 10.0 0.0
    """
    known = partitions.filter(pc.is_valid(partitions["replicas"]))
    replicas = known["replicas"].combine_chunks()
    of_row = pc.list_parent_indices(replicas).to_numpy()
    brokers, at = np.unique(pc.list_flatten(replicas).to_numpy(), return_inverse=True)
    is_leader = brokers[at] == pc.fill_null(known["leader"], NO_LEADER).to_numpy()[of_row]
    has_leader = np.bincount(of_row, weights=is_leader, minlength=known.num_rows) > 0
    followers = (np.bincount(of_row, minlength=known.num_rows) - 1).clip(min=0)
    bytes_in, bytes_out, size = (
        pc.fill_null(known[name], 0).to_numpy().astype(float) for name in ("bytes_in", "bytes_out", "size_bytes")
    )
    written = np.where(has_leader, bytes_in, 0.0)
    sums = {
        "leaders": is_leader,
        "replicas": np.ones(len(at)),
        "bytes_in": written[of_row] * is_leader,
        "replication_in": written[of_row] * ~is_leader,
        "bytes_out": bytes_out[of_row] * is_leader,
        "replication_out": (written * followers)[of_row] * is_leader,
        "size_bytes": size[of_row],
    }
    by_broker = {name: np.bincount(at, weights=part, minlength=len(brokers)) for name, part in sums.items()}
    whole = {name: by_broker[name].astype(np.int64).tolist() for name in ("leaders", "replicas", "size_bytes")}
    columns = {name: part.tolist() for name, part in by_broker.items()} | whole
    if not pc.count(known["size_bytes"]).as_py():
        columns["size_bytes"] = [None] * len(brokers)
    rows = zip(brokers.tolist(), *columns.values(), strict=True)
    return [BrokerLoad(broker_id=broker, **dict(zip(columns, row, strict=True))) for broker, *row in rows]
