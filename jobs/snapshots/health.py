"""Health figures of a cluster: live and missing brokers, and partitions that need attention.

They correspond to the metrics `OfflinePartitionsCount`, `UnderReplicatedPartitions`, `UnderMinIsrPartitionCount` and
`PreferredReplicaImbalanceCount`, for the whole cluster. Topics queued for deletion and partitions that cannot be
decoded are counted separately and in no other figure. `with_derived_columns` gives live partitions the columns of a
snapshot.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.clusters.interface import TopicOverrides
from jobs.adapters.zookeeper.cluster_state import CONFIGS, DELETE_TOPICS, TOPICS
from jobs.core.arrow_rows import Bools, Ints, StoredRows, values_of
from jobs.repositories.controller_epochs import latest_epoch
from jobs.repositories.racks import mixed_racks
from jobs.snapshots.cluster_view import ClusterView
from jobs.snapshots.copy_throttles import count_limited
from planner.columns.broker_skew import Skew, skew_of
from planner.columns.partition_masks import (
    PartitionArrays,
    PartitionMasks,
    has_broker,
    imbalance,
    partition_masks,
    repair_masks,
    slot_mask,
)
from planner.reassignment.stalled_reassignments import BlockedReassignment, describe_reassignment
from planner.rules.effective_min_isr import min_isr_of
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.enums import NO_LEADER, PartitionState
from schemas.kafka_decode_failures import KafkaImpact
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import BrokerImbalance, Key, QuarantinedZnode, Row
from schemas.topic_configs import DEFAULT_MIN_ISR, unparsable_values

MAX_PARTITIONS_NAMED: Final = 5
"""Partitions listed by name in each category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health figures; counts are numbers of partitions unless stated otherwise."""

    controller_id: int | None
    controller_epoch: int | None
    latest_epoch: int
    """The latest controller epoch in any partition state; the controller's must not be earlier."""
    migration: str | None
    live: list[int]
    """Ids of registered brokers, whether or not their registration could be decoded."""
    not_understood_brokers: list[int]
    gone: dict[int, int]
    """Unregistered brokers that partitions refer to as replica, ISR member or leader, with the number of partitions."""
    able_brokers: int
    """Number of brokers that may receive replicas: registered, decoded and not drained."""
    most_replicas: int
    """The largest replication factor of partitions that can be moved."""
    topics: int
    deleting_topics: int
    deletion_waits_for: list[int] = field(default_factory=list)
    """Unregistered brokers with replicas of topics queued for deletion; the deletion waits for them."""
    partitions: int
    offline: int
    without_state: int
    under_replicated: int
    under_min_isr: int
    moving: int
    stalled: list[BlockedReassignment]
    """Running or requested reassignments that cannot proceed: a target broker is down, or nothing is left to do."""
    not_understood: int
    leader_outside_isr: int
    """Partitions led by a live broker outside the ISR; neither Kafka nor Surveyor changes them."""
    named: Mapping[str, list[str]]
    """The first few partitions of `leader_outside_isr` and `not_understood`, by name."""
    configs_not_understood: int
    """Number of topics whose config cannot be decoded in part or as a whole."""
    repairable: int
    """Partitions that `plan reconcile` can repair without data loss."""
    offline_without_isr: int
    """Offline partitions without an in-sync replica that can lead."""
    led_by_drained: int
    """Partitions led by a drained broker, because no other replica was in sync."""
    imbalance: list[BrokerImbalance]
    """By broker."""
    electable_imbalance: list[int] = field(default_factory=list)
    """Brokers above the threshold without the partitions that move: a target is not elected before it is in sync."""
    quarantined: int
    """Number of znodes in quarantine."""
    blocking: list[QuarantinedZnode]
    """Znodes that prevent a part of Kafka from starting."""
    throttled_brokers: list[str]
    """Brokers, or `<default>`, with a throttle rate. Snapshots do not record these."""
    throttled_topics: list[str]
    """Topics with throttled replicas."""
    throttled_lagging: int = 0
    """Partitions with replicas that are not in sync and whose copying a throttle limits.

    If the throttles cannot be read, the partitions of all throttled topics and brokers count.
    """
    mixed_racks: str | None = None
    """Warning of live brokers without a rack while others have one, None if there are none."""
    skew: list[Skew] = field(default_factory=list)
    """What is far from even on the live brokers."""
    moving_under_replicated: int = 0
    """Under-replicated partitions that are being moved: their new replicas are not in sync yet."""
    sizes_taken_at: datetime | None = None
    """Time of the sizes that `skew` of bytes is computed from."""

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object; mappings with numeric keys become lists."""
        gone = [{"broker_id": broker, "partitions": count} for broker, count in self.gone.items()]
        blocking = [
            {name: getattr(row, name) for name in ("path", "blocks", "reason", "mend")} for row in self.blocking
        ]
        stalled = [_stalled_row(entry) for entry in self.stalled]
        imbalanced = [msgspec.structs.asdict(row) for row in self.imbalance]
        skew = [msgspec.structs.asdict(row) for row in self.skew]
        return asdict(self) | {
            "gone": gone,
            "skew": skew,
            "stalled": stalled,
            "imbalance": imbalanced,
            "blocking": blocking,
        }


def health_of(view: ClusterView, *, default_min_isr: int, threshold: float, drained: Collection[int] = ()) -> Health:
    """Compute the figures; `threshold` is the tolerated share of a broker's preferred partitions led by others."""
    rows = arrays_of(view, default_min_isr)
    live, understood = _brokers_of(view)
    not_understood = sorted(set(live) - understood)
    marks, due = partition_masks(rows, live), repair_masks(rows, live, understood)
    reassigned = reassignments_in(view, live)
    void = {(entry.topic, entry.partition) for entry in reassigned if entry.is_empty}
    moving = being_reassigned_or_requested(view.partitions, view.requested.keys() - void)
    cannot_get_state = ~rows.has_state & (rows.deleting | ~slot_mask(rows.replicas, live).any(axis=1))
    cannot_get_state &= StoredRows(view.partitions).is_being_reassigned()
    unhealthy = unhealthy_masks(rows, marks)
    return Health(
        controller_id=view.controller_id,
        controller_epoch=view.controller_epoch,
        latest_epoch=latest_epoch(view.partitions["controller_epoch"]),
        migration=view.migration,
        live=live,
        not_understood_brokers=not_understood,
        gone=_unregistered_brokers(rows, live),
        mixed_racks=mixed_racks({row.broker_id: row.rack for row in view.brokers if row.understood}, view.names),
        skew=skew_of(rows, comparable_brokers(view, drained)),
        able_brokers=len(understood.difference(drained)),
        led_by_drained=_count(rows.judged & slot_mask(rows.leader, understood.intersection(drained))),
        most_replicas=int(has_broker(rows.replicas[rows.judged & ~moving]).sum(axis=1).max(initial=0)),
        topics=len(view.configs),
        deleting_topics=len(view.deleting),
        deletion_waits_for=_absent_from_deletion(rows, live),
        partitions=view.partitions.num_rows,
        **{name: _count(some) for name, some in unhealthy.items()},
        named={name: _names(view.partitions, unhealthy[name]) for name in ("leader_outside_isr", "not_understood")},
        configs_not_understood=sum(config is None or None in config.values() for config in view.configs.values()),
        moving=_count(moving),
        stalled=[entry for entry in reassigned if entry.obstacle is not None],
        repairable=_count(due.repairable),
        offline_without_isr=_count(due.leaderless),
        imbalance=imbalance(rows, threshold),
        electable_imbalance=[
            row.broker_id for row in imbalance(replace(rows, deleting=rows.deleting | moving), threshold) if row.exceeds
        ],
        quarantined=view.quarantined,
        blocking=[
            *view.blocking,
            *_unparsable(view),
            *_stateless_reassignments(view, cannot_get_state),
        ],
        throttled_brokers=sorted(view.throttled_brokers),
        throttled_topics=sorted(view.throttled_topics),
        throttled_lagging=_throttled_lagging(view, unhealthy["under_replicated"] & _is_throttled(view, rows)),
        moving_under_replicated=_count(unhealthy["under_replicated"] & moving),
        sizes_taken_at=None,
    )


def _throttled_lagging(view: ClusterView, lagging: Bools) -> int:
    """Count partitions that are copied under a throttle; a rate limits only replicas that their topic lists."""
    return _count(lagging) if view.throttle_warnings else count_limited(view, view.partitions.filter(pa.array(lagging)))


def _is_throttled(view: ClusterView, rows: PartitionArrays) -> Bools:
    """Mark the partitions of throttled topics, and those on brokers with a throttle rate."""
    brokers = [int(name) for name in view.throttled_brokers if name.isdecimal()]
    of_topic: Bools = pc.is_in(view.partitions["topic"], pa.array([*view.throttled_topics], pa.string())).to_numpy()
    on_brokers: Bools = np.asarray(slot_mask(rows.replicas, brokers).any(axis=1))
    return of_topic | on_brokers | (DEFAULT_ENTITY in view.throttled_brokers)


def unhealthy_masks(rows: PartitionArrays, marks: PartitionMasks) -> dict[str, Bools]:
    """Return the masks of the partitions that are not healthy, by the figure of `Health` that counts them."""
    return {
        "not_understood": ~rows.understood,
        "offline": rows.judged & marks.offline,
        "without_state": rows.judged & marks.new,
        "under_replicated": rows.judged & marks.under_replicated,
        "under_min_isr": rows.judged & marks.under_min_isr,
        "leader_outside_isr": rows.judged & marks.leader_outside_isr,
    }


def unclean_only_mask(view: ClusterView) -> Bools:
    """Mark the `offline_without_isr` partitions: offline, without an electable in-sync replica."""
    return repair_masks(arrays_of(view, DEFAULT_MIN_ISR), *_brokers_of(view)).leaderless


def _brokers_of(view: ClusterView) -> tuple[list[int], set[int]]:
    """Return the registered brokers, and the brokers with a decoded registration, which may be elected."""
    live = sorted(row.broker_id for row in view.brokers)
    return live, {row.broker_id for row in view.brokers if row.understood}


def arrays_of(view: ClusterView, default_min_isr: int) -> PartitionArrays:
    """Convert the partitions to arrays for the numpy rules."""
    return arrays_of_table(view.partitions, view.configs, view.deleting, default_min_isr)


def arrays_of_table(
    partitions: pa.Table, configs: Mapping[str, TopicOverrides], deleting: Collection[str], default_min_isr: int
) -> PartitionArrays:
    """Convert a table with the columns topic, replicas, isr, leader and understood, and the topics' configs."""
    stored = StoredRows(partitions)
    topics = partitions["topic"].combine_chunks().dictionary_encode()
    number = topics.indices.to_numpy()
    names = topics.dictionary.to_pylist()
    minima = [min_isr_of(configs.get(name), default_min_isr) for name in names]
    return PartitionArrays(
        replicas=stored.brokers("replicas"),
        isr=stored.brokers("isr"),
        leader=stored.brokers("leader")[:, 0],
        has_state=np.asarray(pc.is_valid(partitions["leader"])),
        understood=_true_or_null(partitions["understood"]),
        deleting=np.array([name in deleting for name in names], dtype=bool)[number],
        min_isr=np.array(minima, dtype=np.int32)[number],
    )


def with_derived_columns(view: ClusterView, default_min_isr: int) -> pa.Table:
    """Return the partitions with the columns of `planner.columns.derived_columns`, and `deletion_requested`.

    The derived columns are null for partitions that cannot be decoded, which are neither healthy nor unhealthy.
    """
    rows = arrays_of(view, default_min_isr)
    live = [row.broker_id for row in view.brokers]
    marks = partition_masks(rows, live)
    columns = {
        "partition_state": pa.array(_states(marks), pa.string()),
        "offline_replicas": _offline(rows.replicas, live),
        "under_replicated": pa.array(marks.under_replicated),
        "under_min_isr": pa.array(marks.under_min_isr),
    }
    understood = pa.array(rows.understood)
    nothing = {name: pa.nulls(len(rows.leader), column.type) for name, column in columns.items()}
    table = view.partitions.combine_chunks()
    for name, column in columns.items():
        table = table.append_column(name, pc.if_else(understood, column, nothing[name]))
    return table.append_column("deletion_requested", pa.array(rows.deleting))


def _states(marks: PartitionMasks) -> list[str]:
    by_state = {
        PartitionState.NON_EXISTENT: marks.non_existent,
        PartitionState.NEW: marks.new,
        PartitionState.ONLINE: marks.online,
        PartitionState.OFFLINE: marks.offline,
    }
    states: list[str] = np.select(list(by_state.values()), [state.value for state in by_state], "").tolist()
    return states


def _offline(replicas: Ints, live: list[int]) -> pa.Array:
    absent: Bools = has_broker(replicas) & ~slot_mask(replicas, live)
    offsets = np.concatenate([[0], np.cumsum(absent.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(replicas[absent], pa.int32()))


def _true_or_null(column: pa.ChunkedArray) -> Bools:
    return np.asarray(pc.fill_null(column, True))  # noqa: FBT003 - the rules treat null as true


def comparable_brokers(view: ClusterView, drained: Collection[int]) -> dict[int, str | None]:
    """Return the racks of the brokers that should hold even shares.

    These are the live ones that are not drained. Plans move few replicas to one without a rack while others have one.
    """
    able = {row.broker_id: row.rack for row in view.brokers if row.understood and row.broker_id not in drained}
    return {broker: rack for broker, rack in able.items() if rack is not None} or able


def _unregistered_brokers(rows: PartitionArrays, live: Collection[int]) -> dict[int, int]:
    """Count the partitions that refer to each unregistered broker."""
    brokers = np.hstack([rows.replicas, rows.isr, rows.leader[:, None]])
    absent = np.where(has_broker(brokers) & ~slot_mask(brokers, live), brokers, NO_LEADER)
    return {broker: _count((absent == broker).any(axis=1)) for broker in _distinct(absent)}


def _absent_from_deletion(rows: PartitionArrays, live: Collection[int]) -> list[int]:
    """Return the unregistered brokers whose replicas of topics queued for deletion cannot be deleted now."""
    replicas = rows.replicas[rows.deleting]
    return _distinct(np.where(has_broker(replicas) & ~slot_mask(replicas, live), replicas, NO_LEADER))


def _distinct(brokers: Ints) -> list[int]:
    ids: list[int] = np.unique(brokers[has_broker(brokers)]).tolist()
    return ids


def _stalled_row(stalled: BlockedReassignment) -> Row:
    row: Row = {"topic": stalled.topic, "partition": stalled.partition, "target": list(stalled.goal)}
    if stalled.obstacle is not None:
        reason = stalled.obstacle
        row |= {"code": reason.code.value, "reason": reason.reason, "waits_for": list(reason.waits_for)}
    return row


def reassignments_in(view: ClusterView, live: Collection[int], at_most: int | None = None) -> list[BlockedReassignment]:
    """Return running and requested reassignments, except of partitions that cannot be decoded; the first `at_most`."""
    concerned = view.partitions.filter(being_reassigned_or_requested(view.partitions, view.requested.keys()))
    keys = values_of(concerned, "topic", "partition")
    rows = dict(zip(keys, values_of(concerned, "understood", "isr", *_ASSIGNMENT), strict=True))
    ignored = view.ignored_request if view.controller_id in live else None
    found = []
    for key in sorted({*rows, *view.requested})[:at_most]:
        understood, isr, *assignment = rows.get(key, (None, None))
        if understood is False:
            continue
        now = ReplicaAssignment(*(brokers or [] for brokers in assignment)) if assignment else None
        found.append(
            describe_reassignment(
                key, now, view.requested.get(key), isr or [], live, deleting=key[0] in view.deleting, ignored=ignored
            ),
        )
    return found


_ASSIGNMENT: Final = ("replicas", "adding_replicas", "removing_replicas")


def being_reassigned_or_requested(partitions: pa.Table, requested: Collection[Key]) -> Bools:
    """Mark partitions with a running or requested reassignment, as `pending.is_being_reassigned_or_requested`."""
    moving = StoredRows(partitions).is_being_reassigned()
    return moving | _requested(partitions, requested) if requested else moving


def _requested(partitions: pa.Table, requested: Collection[Key]) -> Bools:
    keys = zip(partitions["topic"].to_pylist(), partitions["partition"].to_pylist(), strict=True)
    return np.array([key in requested for key in keys], dtype=bool)


def _unparsable(view: ClusterView) -> Iterator[QuarantinedZnode]:
    """Return topic configs with a value that Kafka cannot parse, on which a broker fails when it starts.

    The quorum of a KRaft cluster accepts no such value.
    """
    for topic in sorted(view.configs) if view.names.has_znodes else ():
        faults = [*unparsable_values(view.configs[topic] or {})]
        if faults:
            path, reason = f"{CONFIGS}/{topic}", "; ".join(faults)
            yield QuarantinedZnode(path=path, blocks=KafkaImpact.START.value, reason=reason)


def _stateless_reassignments(view: ClusterView, cannot_get_state: Bools) -> Iterator[QuarantinedZnode]:
    """Return topics with a reassigned partition that has no state and cannot get one; Kafka's controller fails on it.

    A state is not created if the topic is queued for deletion or if no replica is live. In KRaft no state is missing.
    """
    if not view.names.has_znodes:
        return
    for topic in sorted(set(view.partitions["topic"].take(np.flatnonzero(cannot_get_state)).to_pylist())):
        path, reason = f"{TOPICS}/{topic}", "it has a partition that is being reassigned and has no state"
        if topic in view.deleting:
            path, reason = f"{DELETE_TOPICS}/{topic}", f"the topic is queued for deletion, and {reason}"
        else:
            reason += " and no live replica; start one of its brokers"
        yield QuarantinedZnode(path=path, blocks=KafkaImpact.FAIL_OVER.value, reason=reason)


def _names(partitions: pa.Table, marked: Bools) -> list[str]:
    """Return the names of the first few marked partitions."""
    rows = partitions.select(["topic", "partition"]).take(np.flatnonzero(marked))
    first = rows.sort_by([("topic", "ascending"), ("partition", "ascending")]).slice(0, MAX_PARTITIONS_NAMED)
    return [f"{row['topic']}-{row['partition']}" for row in first.to_pylist()]


def _count(marks: Bools) -> int:
    return int(marks.sum())
