"""The latest controller epoch that the warehouse knows of a cluster: of snapshots, states, commits and answers.

/controller_epoch can be deleted or set back, for instance by a clean-up script; brokers keep the latest epoch that they
heard in memory and refuse a controller of an earlier one. What was recorded before says what they have heard. No JVM.
"""

from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse

_COLUMN: Final = "controller_epoch"

_CONSEQUENCE: Final = "brokers refuse the controller"

RECORDS: Final = ("snapshots", "partition_history", "answers", "commits")
"""Tables whose column is one that a controller of the cluster had."""


def latest_recorded_epoch(lake: Warehouse, cluster_id: str | None) -> int:
    """Return it, 0 where nothing is recorded; of a warehouse that knows another cluster by this name, nothing counts.

    `cluster_id` is what ZooKeeper says now, None where that is not known.
    """
    if not lake.exists() or not _is_of(lake, cluster_id):
        return 0
    return max(_latest(lake, table) for table in RECORDS)


def _latest(lake: Warehouse, table: str) -> int:
    if not lake.has(table) or _COLUMN not in lake.columns(table):
        return 0
    return pc.max(lake.read(table, columns=[_COLUMN])[_COLUMN]).as_py() or 0


def _is_of(lake: Warehouse, cluster_id: str | None) -> bool:
    """Whether all snapshots are of this cluster: one that was made again under its name begins its epochs again."""
    if "cluster_id" not in lake.columns("snapshots"):
        return True
    ids = {*lake.read("snapshots", columns=["cluster_id"])["cluster_id"].to_pylist()} - {None}
    return cluster_id is None or ids <= {cluster_id}


def set_back(epoch: int | None, latest: int) -> str | None:
    """Say that /controller_epoch is earlier than the latest epoch that is known, None where it is not.

    `epoch` is None where the znode is illegible, 0 where there is none.

    >>> set_back(57, 57), set_back(None, 57), set_back(0, 0)
    (None, None, None)
    >>> set_back(3, 57)
    '/controller_epoch is 3, earlier than controller epoch 57, which is known: brokers refuse the controller'
    >>> set_back(0, 57)
    '/controller_epoch does not exist, and controller epoch 57 is known: brokers refuse the controller'
    """
    if epoch is None or epoch >= latest:
        return None
    if not epoch:
        return f"/controller_epoch does not exist, and controller epoch {latest} is known: {_CONSEQUENCE}"
    return f"/controller_epoch is {epoch}, earlier than controller epoch {latest}, which is known: {_CONSEQUENCE}"
