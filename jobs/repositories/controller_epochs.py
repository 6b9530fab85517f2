"""The latest controller epoch of a cluster recorded in the warehouse: in snapshots, states, commits and responses.

/controller_epoch can be deleted or set back, for instance by a clean-up script. Brokers keep the latest epoch that they
received in memory and refuse requests of a controller with an earlier epoch. The recorded epochs show what the brokers
have received.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from schemas.text import abbreviate, partition_name, pluralise

_COLUMN: Final = "controller_epoch"

_CONSEQUENCE: Final = "brokers refuse the controller"

RECORDS: Final = ("snapshots", "partition_history", "answers", "commits")
"""Tables with a column of epochs that a controller of the cluster had."""


def latest_recorded_epoch(warehouse: Warehouse, cluster_id: str | None) -> int:
    """Return the latest recorded controller epoch, or 0 if there is none.

    `cluster_id` is the id in ZooKeeper, None if unknown. Records of another cluster with the same name are ignored.
    """
    if not warehouse.exists() or not _is_of_cluster(warehouse, cluster_id):
        return 0
    return max(_latest(warehouse, table) for table in RECORDS)


def _latest(warehouse: Warehouse, table: str) -> int:
    if not warehouse.has(table) or _COLUMN not in warehouse.columns(table):
        return 0
    epochs = warehouse.read(table, columns=[_COLUMN])[_COLUMN]
    return latest_epoch(epochs)


def latest_epoch(epochs: pa.ChunkedArray) -> int:
    """Return the latest of these epochs, or 0 if there is none."""
    return pc.max(epochs).as_py() or 0


def _is_of_cluster(warehouse: Warehouse, cluster_id: str | None) -> bool:
    """Return whether all snapshots are of this cluster; a recreated cluster of the same name restarts its epochs."""
    if "cluster_id" not in warehouse.columns("snapshots"):
        return True
    ids = {*warehouse.read("snapshots", columns=["cluster_id"])["cluster_id"].to_pylist()} - {None}
    return cluster_id is None or ids <= {cluster_id}


def epoch_regression_message(epoch: int | None, latest: int) -> str | None:
    """Return a message if /controller_epoch is earlier than the latest recorded epoch, else None.

    `epoch` is None if the znode cannot be decoded, 0 if it does not exist.

    >>> epoch_regression_message(57, 57), epoch_regression_message(None, 57), epoch_regression_message(0, 0)
    (None, None, None)
    >>> epoch_regression_message(3, 57)
    '/controller_epoch is 3, earlier than controller epoch 57, the latest recorded one: brokers refuse the controller'
    >>> epoch_regression_message(0, 57)
    '/controller_epoch does not exist, but controller epoch 57 is recorded: brokers refuse the controller'
    """
    if epoch is None or epoch >= latest:
        return None
    if not epoch:
        return f"/controller_epoch does not exist, but controller epoch {latest} is recorded: {_CONSEQUENCE}"
    earlier = f"/controller_epoch is {epoch}, earlier than controller epoch {latest}"
    return f"{earlier}, the latest recorded one: {_CONSEQUENCE}"


def later_states_message(epoch: int, states: Sequence[tuple[str, int, int]]) -> str:
    """Return the message that elections fail; `states` are partitions with the later epochs of their states.

    `epoch` is 0 if /controller_epoch does not exist.

    >>> later_states_message(7, [("orders", 0, 12)]).partition(". ")[0]
    '/controller_epoch is 7, and 1 partition has a later controller epoch: orders-0 (12)'
    """
    named = abbreviate([f"{partition_name(topic, number)} ({of_state})" for topic, number, of_state in sorted(states)])
    count = pluralise(len(states), "partition", "has", "have")
    return (
        f"/controller_epoch is {epoch or 'missing'}, and {count} a later controller epoch: {named}. No leader can be "
        "elected there; a take-over with a later epoch repairs it"
    )
