"""What an operator reads when partitions are offline and nothing that is alive can lead them: which broker to start.

The rule is `planner.leadership.last_in_sync`. In: the cluster as ZooKeeper or a snapshot shows it, and the history of
partitions for those whose state names no ISR member. Out: `Outage`, with the one sentence that `status`, `reconcile`,
`plan recover` and `verify` print. No JVM.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Row, Warehouse, as_rows
from jobs.repositories.failed_log_dirs import failed_replicas
from jobs.repositories.snapshots import PARTITION, has_vanished, last_snapshot
from jobs.repositories.stored_rows import Bools, Ints, StoredRows
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import ClusterView, view_now, view_of
from jobs.snapshots.health import without_in_sync
from planner.leadership.last_in_sync import Start, StartOrder, start_order
from planner.text import abbreviate, pluralise
from schemas.enums import NO_LEADER, PartitionState, PlanKind
from schemas.rows import Key

_OFFLINE: Final = ("partition_state", "=", PartitionState.OFFLINE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Partitions that stay offline until a broker is started."""

    order: StartOrder
    failed_log_dirs: frozenset[int] = frozenset()
    """Brokers that answered that the log dir of one of these partitions failed."""

    @property
    def sentence(self) -> str:
        """What an operator is to do.

        >>> from numpy import array
        >>> print(Outage(order=start_order(array([[0, 2], [2, 0]]), array([[0], [0]]), [])).sentence)
        2 partitions offline, nothing can be done from here: start broker 0 first (last in sync of both), \
broker 2 was not
        """
        order = self.order
        parts = [*_starts(order), *_alive(order, self.failed_log_dirs), *_unknown(order)]
        return f"{pluralise(order.partitions, 'partition')} offline, nothing can be done from here: {'; '.join(parts)}"

    @property
    def json(self) -> Row:
        """For programs."""
        order = self.order
        return {
            "partitions": order.partitions,
            "sentence": self.sentence,
            "start": [
                {"brokers": [*step.brokers], "last_in_sync": step.partitions, "brings_back": step.brings_back}
                for step in order.starts
            ],
            "not_in_sync": [*order.not_in_sync],
            "alive": [{"broker_id": broker, "last_in_sync": count} for broker, count in order.alive.items()],
            "unknown": order.unknown,
        }


def in_json(outage: Outage | None) -> Row:
    """What the result of a command has besides, where there is an outage."""
    return {"outage": outage.json} if outage else {}


def _starts(order: StartOrder) -> list[str]:
    if not order.starts:
        return []
    first, *later = order.starts
    steps = [f"start {_any_of(first)} first ({_last_in_sync(first, order)})"]
    steps += [f"then {_any_of(step)} ({_last_in_sync(step, order)})" for step in later]
    others = order.not_in_sync
    if others:
        steps.append(f"{_brokers(others)} {'was' if len(others) == 1 else 'were'} not")
    return [", ".join(steps)]


def _any_of(step: Start) -> str:
    *most, last = map(str, step.brokers)
    return f"broker {', '.join(most)} or {last}" if most else f"broker {last}"


def _last_in_sync(step: Start, order: StartOrder) -> str:
    each = "each " * (len(step.brokers) > 1)
    if step.partitions < order.partitions:
        return f"{each}last in sync of {step.partitions} of {order.partitions}"
    every = {1: "it", 2: "both"}.get(order.partitions, f"all {order.partitions}")
    return f"{each}last in sync of {every}"


def _alive(order: StartOrder, failed: Collection[int]) -> list[str]:
    """Say which brokers are in sync and alive, and cannot lead all the same."""
    return [
        f"broker {broker} is registered and was last in sync of {count}, but "
        + (
            "the log dir failed there: repair it and restart the broker"
            if broker in failed
            else "cannot be elected: restart it, or see `surveyor show quarantine`"
        )
        for broker, count in order.alive.items()
    ]


def _unknown(order: StartOrder) -> list[str]:
    if not order.unknown:
        return []
    start = f": start {_brokers(order.holders)}" if order.holders else ""
    return [f"which replica was in sync last is not known of {order.unknown}{start}"]


def _brokers(brokers: Collection[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {abbreviate([*brokers])}"


def outage_now(seen: ClusterView, lake: Warehouse | None, snapshot: Row | None) -> Outage | None:
    """Judge what was observed; `lake` has its history up to a snapshot, None where that cannot be read."""
    return _outage(seen, without_in_sync(seen), lake, snapshot)


def outage_after(settings: Settings, plan: Row) -> Outage | None:
    """Judge the cluster as it is now where a plan was to elect leaders."""
    if not elects_leaders(plan):
        return None
    lake, seen = settings.lake, view_now(settings.zookeeper)
    return outage_now(seen, lake, last_snapshot(lake))


def outage_left_by(lake: Warehouse, plan: Row) -> Outage | None:
    """Judge the snapshot of a plan that was to elect leaders: what stays offline once it is committed."""
    if not elects_leaders(plan):
        return None
    snapshots = lake.rows("snapshots", ("snapshot_id", "=", plan["snapshot_id"]))
    if not snapshots:  # dropped by `surveyor vacuum`; the plan stays
        return None
    snapshot = snapshots[0]
    seen = view_of(lake, snapshot, _OFFLINE)
    changes = lake.read("changes", ("plan_id", "=", plan["plan_id"]), columns=[*PARTITION, "leader_after"])
    elected = set(_keys(changes.filter(pc.greater(changes["leader_after"], NO_LEADER))))
    left = [key not in elected and understood is not False for key, understood in _keys_understood(seen)]
    return _outage(seen, np.array(left, dtype=np.bool_), lake, snapshot)


def elects_leaders(plan: Row) -> bool:
    """Whether a plan was asked for leaders of offline partitions: what it leaves offline is said with it."""
    if plan["kind"] == PlanKind.ELECT:
        return json.loads(plan["parameters"] or "{}").get("election") in {"offline", "unclean"}
    return plan["kind"] in {PlanKind.RECONCILE, PlanKind.RECOVER}


def _keys(rows: pa.Table) -> Iterator[Key]:
    return zip(*(rows[name].to_pylist() for name in PARTITION), strict=True)


def _keys_understood(seen: ClusterView) -> Iterator[tuple[Key, bool | None]]:
    return zip(_keys(seen.partitions), seen.partitions["understood"].to_pylist(), strict=True)


def _outage(seen: ClusterView, offline: Bools, lake: Warehouse | None, snapshot: Row | None) -> Outage | None:
    if not offline.any():
        return None
    rows = seen.partitions.filter(pa.array(offline)).combine_chunks()
    last_isr = _last_isr(lake, rows, snapshot)
    registered = [row["broker_id"] for row in seen.brokers]
    order = start_order(StoredRows(rows).brokers("replicas"), last_isr, registered)
    failed: list[Row] = []
    if lake is not None and snapshot is not None and order.alive and lake.has("answers"):
        failed = failed_replicas(lake, snapshot)
    return Outage(order=order, failed_log_dirs=frozenset(row["broker_id"] for row in failed))


def _last_isr(lake: Warehouse | None, rows: pa.Table, snapshot: Row | None) -> Ints:
    """The ISR of each row, or, where its state names none, the last that a snapshot up to this one saw."""
    isr = [members or [] for members in rows["isr"].to_pylist()]
    if lake is not None and snapshot is not None and not all(isr):
        keys = list(_keys(rows))
        topics = sorted({topic for (topic, _), members in zip(keys, isr, strict=True) if not members})
        until = ("snapshot_id", "<=", snapshot["snapshot_id"])
        seen = last_seen_isr(lake.read("partition_history", ("topic", "in", topics), until))
        isr = [members or seen.get(key, []) for key, members in zip(keys, isr, strict=True)]
    return StoredRows(pa.table({"isr": pa.array(isr, pa.list_(pa.int32()))})).brokers("isr")


def last_seen_isr(history: pa.Table) -> dict[Key, list[int]]:
    """The last ISR that history has of each partition; none of a partition that vanished before, with its topic.

    >>> rows = [("a", 0, 1, [1, 2], False), ("a", 0, 2, None, False), ("b", 0, 1, [3], False), ("b", 0, 2, [3], True)]
    >>> names = ("topic", "partition", "snapshot_id", "isr", "vanished")
    >>> extra = {"understood": True, "partition_state": None}
    >>> last_seen_isr(pa.Table.from_pylist([dict(zip(names, row)) | extra for row in rows]))
    {('a', 0): [1, 2]}
    """
    last: dict[Key, list[int]] = {}
    for row in as_rows(history.sort_by("snapshot_id")):
        key = (row["topic"], row["partition"])
        if has_vanished(row):
            last.pop(key, None)
        elif row["isr"] and row["understood"] is not False:
            last[key] = row["isr"]
    return last
