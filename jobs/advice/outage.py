"""Which brokers to start when partitions are offline and none of their live replicas may lead them.

The rule is in `planner.leadership.broker_start_order`. The state comes from ZooKeeper or a snapshot; for partitions
whose state names no ISR member, the history of partitions is used. `status`, `reconcile`, `plan recover` and `verify`
print the sentence of `Outage`.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import Bools, Ints, StoredRows
from jobs.repositories.broker_responses import failed_replicas
from jobs.repositories.snapshots import PARTITION, has_vanished, last_snapshot
from jobs.snapshots.cluster_view import ClusterView, view_now, view_of
from jobs.snapshots.health import unclean_only_mask
from planner.leadership.broker_start_order import BrokerStart, StartOrder, start_order
from schemas.enums import NO_LEADER, PartitionState
from schemas.rows import BrokerResponseRow, Key, PlanRecord, Row, Snapshot
from schemas.text import broker_list, pluralise

_OFFLINE: Final = ("partition_state", "=", PartitionState.OFFLINE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Partitions that stay offline until a broker is started."""

    order: StartOrder
    failed_log_dirs: frozenset[int] = frozenset()
    """Brokers that reported a failed log dir for one of these partitions."""

    @property
    def sentence(self) -> str:
        """Next steps for the operator.

        >>> from numpy import array
        >>> outage = Outage(order=start_order(array([[0, 2], [2, 0]]), array([[0], [0]]), []))
        >>> outage.sentence.partition(": ")[2]
        'start broker 0 first (last in sync of both), broker 2 was not'
        """
        order = self.order
        parts = [*_starts(order), *_live_lines(order, self.failed_log_dirs), *_unknown(order)]
        offline = pluralise(order.partitions, "partition")
        return f"{offline} offline, and Surveyor cannot elect a leader: {'; '.join(parts)}"

    @property
    def json(self) -> Row:
        """The fields of the JSON output."""
        order = self.order
        return {
            "partitions": order.partitions,
            "sentence": self.sentence,
            "start": [
                {"brokers": [*step.brokers], "last_in_sync": step.partitions, "brings_back": step.brings_back}
                for step in order.starts
            ],
            "not_in_sync": [*order.not_in_sync],
            "alive": [{"broker_id": broker, "last_in_sync": count} for broker, count in order.live.items()],
            "unknown": order.unknown,
        }


def in_json(outage: Outage | None) -> Row:
    """Return the additional JSON fields of a command if there is an outage."""
    return {"outage": outage.json} if outage else {}


def _starts(order: StartOrder) -> list[str]:
    if not order.starts:
        return []
    first, *later = order.starts
    steps = [f"start {_any_of(first)} first ({_last_in_sync(first, order)})"]
    steps += [f"then {_any_of(step)} ({_last_in_sync(step, order)})" for step in later]
    not_in_sync = order.not_in_sync
    if not_in_sync:
        steps.append(f"{broker_list(not_in_sync)} {'was' if len(not_in_sync) == 1 else 'were'} not")
    return [", ".join(steps)]


def _any_of(step: BrokerStart) -> str:
    *most, last = map(str, step.brokers)
    return f"broker {', '.join(most)} or {last}" if most else f"broker {last}"


def _last_in_sync(step: BrokerStart, order: StartOrder) -> str:
    quantifier = "each " * (len(step.brokers) > 1)
    if step.partitions < order.partitions:
        return f"{quantifier}last in sync of {step.partitions} of {order.partitions}"
    every = {1: "it", 2: "both"}.get(order.partitions, f"all {order.partitions}")
    return f"{quantifier}last in sync of {every}"


def _live_lines(order: StartOrder, failed_log_dirs: Collection[int]) -> list[str]:
    """Name the brokers that are live and in sync but cannot lead."""
    return [
        f"broker {broker} is registered and was last in sync of {count}, but "
        + (
            "the log dir failed there: repair it and restart the broker"
            if broker in failed_log_dirs
            else "cannot be elected: restart it, or see `surveyor show quarantine`"
        )
        for broker, count in order.live.items()
    ]


def _unknown(order: StartOrder) -> list[str]:
    if not order.unknown:
        return []
    start = f": start {broker_list(order.holders)}" if order.holders else ""
    return [f"the last in-sync replica of {order.unknown} is unknown{start}"]


def outage_now(view: ClusterView, warehouse: Warehouse | None, snapshot: Snapshot | None) -> Outage | None:
    """Return the outage now; `warehouse` has the history up to the snapshot, None if it cannot be read."""
    return _outage(view, unclean_only_mask(view), warehouse, snapshot)


def outage_after(cluster: Cluster, warehouse: Warehouse, plan: PlanRecord) -> Outage | None:
    """Return the outage that is left after the commit of a plan to elect leaders."""
    if not elects_leaders(plan):
        return None
    return outage_now(view_now(cluster), warehouse, last_snapshot(warehouse))


def outage_left_by(warehouse: Warehouse, plan: PlanRecord) -> Outage | None:
    """Return the outage in a plan's snapshot that its elections leave; None for other plans."""
    if not elects_leaders(plan):
        return None
    snapshots = warehouse.typed_rows(Snapshot, ("snapshot_id", "=", plan.snapshot_id))
    if not snapshots:  # dropped by `surveyor vacuum`, which keeps the plan
        return None
    snapshot = snapshots[0]
    view = view_of(warehouse, snapshot, _OFFLINE)
    changes = warehouse.read("changes", ("plan_id", "=", plan.plan_id), columns=[*PARTITION, "leader_after"])
    elected = set(_keys(changes.filter(pc.greater(changes["leader_after"], NO_LEADER))))
    stays_offline = [key not in elected and understood is not False for key, understood in _keys_understood(view)]
    return _outage(view, np.array(stays_offline, dtype=np.bool_), warehouse, snapshot)


def elects_leaders(plan: PlanRecord) -> bool:
    """Return whether a plan was made to elect leaders of offline partitions."""
    return plan.traits.elects_leaders or plan.options.get("election") in {"offline", "unclean"}


def _keys(rows: pa.Table) -> Iterator[Key]:
    return zip(*(rows[name].to_pylist() for name in PARTITION), strict=True)


def _keys_understood(view: ClusterView) -> Iterator[tuple[Key, bool | None]]:
    return zip(_keys(view.partitions), view.partitions["understood"].to_pylist(), strict=True)


def _outage(view: ClusterView, offline: Bools, warehouse: Warehouse | None, snapshot: Snapshot | None) -> Outage | None:
    if not offline.any():
        return None
    rows = view.partitions.filter(pa.array(offline)).combine_chunks()
    last_isr = _last_isr(warehouse, rows, snapshot)
    registered = [row.broker_id for row in view.brokers]
    order = start_order(StoredRows(rows).brokers("replicas"), last_isr, registered)
    failed: list[BrokerResponseRow] = []
    if warehouse is not None and snapshot is not None and order.live and warehouse.has("answers"):
        failed = failed_replicas(warehouse, snapshot)
    return Outage(order=order, failed_log_dirs=frozenset(row.broker_id for row in failed))


def _last_isr(warehouse: Warehouse | None, rows: pa.Table, snapshot: Snapshot | None) -> Ints:
    """The ISR of each row or, if its state names none, the last one in a snapshot up to this one."""
    isr = [members or [] for members in rows["isr"].to_pylist()]
    if warehouse is not None and snapshot is not None and not all(isr):
        keys = list(_keys(rows))
        topics = sorted({topic for (topic, _), members in zip(keys, isr, strict=True) if not members})
        up_to_snapshot = ("snapshot_id", "<=", snapshot.snapshot_id)
        last_seen = last_seen_isr(warehouse.read("partition_history", ("topic", "in", topics), up_to_snapshot))
        isr = [members or last_seen.get(key, []) for key, members in zip(keys, isr, strict=True)]
    return StoredRows(pa.table({"isr": pa.array(isr, pa.list_(pa.int32()))})).brokers("isr")


def last_seen_isr(history: pa.Table) -> dict[Key, list[int]]:
    """Return the last known ISR of each partition; none for partitions that have vanished with their topic.

    >>> rows = [("a", 0, 1, [1, 2], False), ("a", 0, 2, None, False), ("b", 0, 1, [3], False), ("b", 0, 2, [3], True)]
    >>> names = ("topic", "partition", "snapshot_id", "isr", "vanished")
    >>> extra = {"understood": True, "partition_state": None}
    >>> last_seen_isr(pa.Table.from_pylist([dict(zip(names, row)) | extra for row in rows]))
    {('a', 0): [1, 2]}
    """
    last: dict[Key, list[int]] = {}
    rows = history.sort_by("snapshot_id")
    columns = (rows[name].to_pylist() for name in ("topic", "partition", "isr", "understood", "partition_state"))
    vanishes = rows["vanished"].to_pylist() if "vanished" in rows.column_names else repeat(None, rows.num_rows)
    for topic, partition, isr, understood, state, vanished in zip(*columns, vanishes, strict=True):
        if has_vanished(state, vanished):
            last.pop((topic, partition), None)
        elif isr and understood is not False:
            last[topic, partition] = isr
    return last
