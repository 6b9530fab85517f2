"""The throttles under which replicas are copied, and which plan or tool set them.

A throttle that no plan of the warehouse set belongs to another tool. Bytes are from the last `surveyor sizes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import StoredRows, values_of
from jobs.core.units import format_bytes, format_duration
from jobs.repositories.copy_volume import VOLUME_SCHEMA, volume_rows
from jobs.repositories.log_sizes import stored_volume
from jobs.snapshots.cluster_view import ClusterView
from planner.reassignment.copy_limits import CopyLimit, copy_limits
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.enums import Action
from schemas.rows import Change, Key, Row, ThrottledConfig
from schemas.text import broker_list, pluralise
from schemas.topic_configs import FOLLOWER_RATE

_RESIZE = "`surveyor sizes` finds out how many bytes that are"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyThrottle:
    """Throttles that one plan, or another tool, set, and the copies that they limit."""

    plan_id: str | None
    """None for another tool."""
    limits: Sequence[CopyLimit]
    copies: StoredRows
    """The copies, with the columns of the volume of a plan."""

    @property
    def rate(self) -> int:
        """The lowest rate, in bytes a second."""
        return min(limit.rate for limit in self.limits)

    def text(self, copied_bytes: int | None, busiest_broker_bytes: float) -> str:
        """Describe the throttle, and how long these bytes take; None if they are unknown."""
        brokers = broker_list(sorted({limit.broker for limit in self.limits}))
        setter = "another tool" if self.plan_id is None else f"plan {self.plan_id}"
        duration = _RESIZE
        if copied_bytes is not None:
            seconds = format_duration(busiest_broker_bytes / self.rate)
            duration = f"{format_bytes(copied_bytes)} at that rate take {seconds}"
        are_copied = pluralise(len(self.copies), "partition", "is", "are")
        throttle = f"a throttle of {self.rate} B/s on {brokers} was set by {setter}"
        return f"{throttle}, and {are_copied} copied under it: {duration}"

    def stored_text(self, warehouse: Warehouse) -> str:
        """Return `text` with the bytes that the last `surveyor sizes` stored."""
        volume = stored_volume(warehouse, self.copies)
        return self.text(volume.bytes if volume.is_known else None, volume.seconds(1))


def throttles_of_moves(
    cluster: Cluster, changes: Iterable[Change], rows: Iterable[ThrottledConfig]
) -> list[CopyThrottle]:
    """Return the throttles of plans and tools that limit these reassignments.

    `rows` are the throttles of all plans. Brokers that do not report their configs are left out.
    """
    moves = {change.key: change for change in changes if change.action == Action.REASSIGN and change.moves_replicas}
    if not moves:
        return []
    brokers = {
        str(broker) for move in moves.values() for broker in (*(move.replicas_before or ()), *move.replicas_after)
    }
    resources = {("broker", name) for name in (*brokers, DEFAULT_ENTITY)} | {("topic", topic) for topic, _ in moves}
    current = cluster.read_overrides(resources, allow_silent=True)
    rates = {name: values for (kind, name), values in current.items() if kind == "broker" and values}
    limits: dict[Key, list[CopyLimit]] = {}
    for key, move in moves.items():
        sources = [broker for broker in move.replicas_before or () if broker not in (move.adding_before or ())]
        added = [broker for broker in move.replicas_after if broker not in sources]
        lists = current["topic", move.topic] or {}
        limits[key] = [*copy_limits(move.partition, sources, added, lists, rates)] if added else []
    return [
        CopyThrottle(plan_id=plan_id, limits=limits_set, copies=volume_rows(moves[key] for key in keys))
        for plan_id, (limits_set, keys) in _by_setter(limits, rows).items()
    ]


def receiving_rates(throttles: Iterable[CopyThrottle]) -> dict[int, int]:
    """Return the lowest rate at which each broker may receive copies."""
    rates: dict[int, int] = {}
    for limit in (limit for throttle in throttles for limit in throttle.limits if limit.name == FOLLOWER_RATE):
        rates[limit.broker] = min(limit.rate, rates.get(limit.broker, limit.rate))
    return rates


def count_limited(view: ClusterView, under_replicated: pa.Table) -> int:
    """Count these partitions whose replicas that are not in sync copy, or will copy once live, under a throttle."""
    topics, rates = view.throttled_topics, view.throttled_brokers
    rows = values_of(under_replicated, "topic", "partition", "replicas", "isr", "leader")
    return sum(
        any(copy_limits(partition, [leader], {*replicas}.difference(isr or ()), topics.get(topic, {}), rates))
        for topic, partition, replicas, isr, leader in rows
    )


def throttles_of_view(view: ClusterView, rows: Iterable[ThrottledConfig]) -> list[CopyThrottle]:
    """Return the throttles that limit the copying of live replicas which are not in sync."""
    topics, rates = view.throttled_topics, view.throttled_brokers
    live = {broker.broker_id for broker in view.brokers}
    limits: dict[Key, list[CopyLimit]] = {}
    copies: dict[Key, Row] = {}
    listed = view.partitions.filter(pc.is_in(view.partitions["topic"], pa.array([*topics], pa.string())))
    for topic, partition, replicas, isr, leader in values_of(listed, "topic", "partition", "replicas", "isr", "leader"):
        lagging = [broker for broker in replicas or () if broker not in (isr or ()) and broker in live]
        if leader in live and lagging:
            limits[topic, partition] = [*copy_limits(partition, [leader], lagging, topics[topic], rates)]
            copies[topic, partition] = {
                "wave": 0,
                "action": Action.REASSIGN.value,
                "topic": topic,
                "partition": partition,
                "replicas_before": isr,
                "replicas_after": [*isr, *lagging],
                "leader_before": leader,
            }
    return [
        CopyThrottle(
            plan_id=plan_id,
            limits=limits_set,
            copies=StoredRows(pa.Table.from_pylist([copies[key] for key in keys], schema=VOLUME_SCHEMA)),
        )
        for plan_id, (limits_set, keys) in _by_setter(limits, rows).items()
    ]


def _by_setter(
    limits: Mapping[Key, Sequence[CopyLimit]], rows: Iterable[ThrottledConfig]
) -> dict[str | None, tuple[list[CopyLimit], list[Key]]]:
    """Group limits, and the partitions that they concern, by the plan that set them."""
    setters = {(row.resource, row.name, value): row.plan_id for row in rows for value in row.set_to}
    groups: dict[str | None, tuple[list[CopyLimit], list[Key]]] = {}
    for key, some in limits.items():
        for limit in some:
            of_setter, keys = groups.setdefault(setters.get((limit.resource, limit.name, limit.value)), ([], []))
            of_setter.append(limit)
            if key not in keys[-1:]:
                keys.append(key)
    return groups
