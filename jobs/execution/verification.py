"""Verification of a plan: how far it has come, change by change and byte by byte, as the cluster shows it now.

A plan that is found complete is recorded as complete. So verification writes to the warehouse, but never to the
cluster. Brokers report the copied bytes and offsets; two readings some seconds apart give an estimate of the remaining
time. Figures that brokers do not report are shown as unknown. They do not change the status, which follows from the
cluster's metadata.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jobs.adapters.brokers.log_dirs import ReplicaSizes, read_replica_sizes
from jobs.adapters.cluster_connections.interface import ClusterConnection
from jobs.advice.outage import outage_after
from jobs.console_output.copy_progress import CopyProgress
from jobs.console_output.verification import Verification
from jobs.core.errors import SurveyorError
from jobs.execution.admin.running_waves import blocked_text
from jobs.execution.ended_plans import close_ended
from jobs.execution.rollback import close_rolled_back
from jobs.preconditions.change_status import current_evenness, verify_plan
from jobs.preconditions.limits import refuse_other_id
from jobs.repositories.plans.commit_log import record_completion
from jobs.repositories.plans.repository import find_plan, read_plan
from jobs.repositories.snapshots import last_snapshot, table_as_of
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.copy_throttles import throttles_of_moves
from planner.placement.plan_figures import Figures, figures_in
from planner.reassignment.copy_rate import CopyReading, ReplicaCopy, ReplicaKey, by_broker
from schemas.current_state import Leadership
from schemas.enums import NO_LEADER, Action, PlanStatus
from schemas.plan import Plan
from schemas.rows import Broker, Change, ThrottledConfig

LOG_DIRS_TIMEOUT_SECONDS: Final = 10.0
"""Seconds for all brokers together to answer."""

EVENNESS_COLUMNS: Final = ("topic", "partition", "replicas", "leader")
"""Columns of a snapshot's partitions that the balance of brokers is computed from."""


@dataclass(frozen=True, slots=True)
class _ReceivingReplica:
    """A replica of the target: the leader it is copied from, None without one, and whether it is in sync."""

    leader: int | None
    in_sync: bool


_ReceivingReplicas = Mapping[ReplicaKey, _ReceivingReplica]


def verify_stored(settings: Settings, name: str, interval: float, *, in_full: bool) -> Verification:
    """Read how far a stored plan has come, and record it as complete if it is.

    `in_full` also measures what is being copied, in two readings `interval` seconds apart, and how evenly brokers are
    used.
    """
    plan = read_plan(settings.warehouse, name)
    with settings.connection as cluster:
        with cluster.reading() as reader:
            reader.sync()
            refuse_other_id(plan, reader.read_cluster(), settings.address, settings.address_option)
            current, operations = reader.read_current(plan.changes), reader.read_operations(plan.operations)
            verification = Verification(plan, verify_plan(plan, current, operations), current.partitions)
            moves = [change for change in verification.moving if change.action == Action.REASSIGN]
            verification.blocked = blocked_text(moves, current)
            holder = reader.read_lease_holder()
            verification.holder = holder if holder is not None and holder.plan == plan.plan_id else None
            if verification.is_complete:
                record_completion(settings.warehouse, plan)
                if unmarked := close_rolled_back(reader, settings, plan):
                    verification.warnings.append(unmarked)
            if plan.row.status == PlanStatus.PARTIAL:
                close_ended(settings.warehouse, reader, plan, current, operations)
                verification.plan = replace(plan, row=find_plan(settings.warehouse, plan.plan_id))
        verification.throttled = plan.plan_id in throttled_plans(settings.warehouse)
        if in_full:
            try:
                verification.copying = measure(cluster, settings, verification.moving, interval)
                verification.warnings += _throttle_texts(settings, cluster, verification)
            except SurveyorError as error:
                verification.warnings.append(f"how much is copied is unknown: {error}")
            verification.evenness = _evenness_now(settings, cluster, plan)
        verification.outage = outage_after(cluster.source, settings.warehouse, plan.row)
    return verification


def _throttle_texts(settings: Settings, cluster: ClusterConnection, verification: Verification) -> list[str]:
    """Describe the throttles of other tools and plans under which the plan's replicas are copied now."""
    rows = settings.warehouse.typed_rows(ThrottledConfig) if settings.warehouse.has("throttles") else []
    with cluster.reading() as reader:
        throttles = throttles_of_moves(reader, verification.moving, rows, verification.plan.plan_id)
    if verification.copying is None:
        return []
    brokers = by_broker(None, verification.copying.current, 0.0).values()
    left = [rate.bytes_total - rate.bytes_done for rate in brokers]
    is_known = not any(rate.unknown for rate in brokers)
    return [throttle.text(sum(left) if is_known else None, max(left, default=0)) for throttle in throttles]


def _evenness_now(settings: Settings, cluster: ClusterConnection, plan: Plan) -> Figures | None:
    figures = figures_in(plan.row.options)
    counted = None if figures is None else figures.brokers_counted
    if counted is None or (snapshot := last_snapshot(settings.warehouse)) is None:
        return None
    with cluster.reading() as reader:
        reader.sync()
        current = reader.read_partitions([change.key for change in plan.changes])
    partitions = table_as_of(settings.warehouse, snapshot, "partitions", columns=EVENNESS_COLUMNS)
    return current_evenness(counted, current, partitions)


def measure(
    cluster: ClusterConnection, settings: Settings, changes: Sequence[Change], interval: float
) -> CopyProgress | None:
    """Read how much the receiving replicas of `changes`, reassignments in progress, hold; None if there are none.

    If something is left to be copied, a second reading is made `interval` seconds after the first; 0 makes none.
    """
    moving = [change for change in changes if change.action == Action.REASSIGN]
    if not moving:
        return None
    brokers, replicas = _replicas(cluster, moving)
    added = _added(moving)
    receiving = {key: replica for key, replica in replicas.items() if key in added or not replica.in_sync}
    first_reading, unanswered = _read(settings, brokers, receiving)
    started = time.monotonic()
    if not interval or not any(copy.known and copy.left for copy in first_reading.values()):
        return CopyProgress(current=first_reading, previous=None, seconds=0.0, silent=unanswered)
    with progress("measuring how quickly replicas are copied"):
        time.sleep(interval)
        brokers, replicas = _replicas(cluster, moving)
        second_reading, unanswered = _read(settings, brokers, {key: replicas[key] for key in receiving})
    return CopyProgress(
        current=second_reading, previous=first_reading, seconds=time.monotonic() - started, silent=unanswered
    )


def _added(changes: Sequence[Change]) -> set[ReplicaKey]:
    return {
        (change.topic, change.partition, broker)
        for change in changes
        for broker in set(change.replicas_after) - set(change.replicas_before or ())
    }


def _replicas(cluster: ClusterConnection, changes: Sequence[Change]) -> tuple[Sequence[Broker], _ReceivingReplicas]:
    """Read the live brokers, and every replica of the changes' targets."""
    with cluster.reading() as reader:
        reader.sync()
        brokers = reader.read_cluster().brokers
        partitions = reader.read_partitions([change.key for change in changes])
    return brokers, {
        (change.topic, change.partition, broker): _receiving_replica(broker, partitions[change.key].state)
        for change in changes
        for broker in change.replicas_after
    }


def _receiving_replica(broker: int, state: Leadership | None) -> _ReceivingReplica:
    if state is None:
        return _ReceivingReplica(None, in_sync=False)
    return _ReceivingReplica(None if state.leader == NO_LEADER else state.leader, broker in state.isr)


def _read(
    settings: Settings, brokers: Sequence[Broker], receiving: _ReceivingReplicas
) -> tuple[CopyReading, Mapping[int, str]]:
    """Make one reading; return it, and the brokers that did not answer, with the reason."""
    partitions_by_broker = _needed(receiving)
    registered = [broker for broker in brokers if broker.broker_id in partitions_by_broker]
    copies, unanswered = read_replica_sizes(
        registered, settings.conf.command_config, partitions_by_broker, LOG_DIRS_TIMEOUT_SECONDS
    )
    unregistered = dict.fromkeys(
        partitions_by_broker.keys() - {broker.broker_id for broker in registered}, "it is not registered"
    )
    return {key: _copy(key, replica, copies) for key, replica in receiving.items()}, {**unanswered, **unregistered}


def _needed(receiving: _ReceivingReplicas) -> dict[int, dict[str, list[int]]]:
    """The partitions to ask each broker for: those that it receives, and those that are copied from it."""
    partitions_by_broker: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for (topic, partition, broker), replica in receiving.items():
        partitions_by_broker[broker][topic].add(partition)
        if replica.leader is not None:
            partitions_by_broker[replica.leader][topic].add(partition)
    return {
        broker: {topic: sorted(partitions) for topic, partitions in sorted(topics.items())}
        for broker, topics in sorted(partitions_by_broker.items())
    }


def _copy(key: ReplicaKey, replica: _ReceivingReplica, copies: Mapping[int, ReplicaSizes]) -> ReplicaCopy:
    """The progress of one replica; 0 bytes if its broker reports no such log yet."""
    topic, partition, broker = key
    key_of_log = topic, partition
    own_sizes, leader_sizes = copies.get(broker), None if replica.leader is None else copies.get(replica.leader)
    leader_bytes = None if leader_sizes is None else leader_sizes.sizes.get(key_of_log)
    leader_end = None if leader_sizes is None else leader_sizes.ends.get(key_of_log)
    own_bytes = None if own_sizes is None else own_sizes.sizes.get(key_of_log, 0)
    own_end = None if own_sizes is None else own_sizes.ends.get(key_of_log, None if own_bytes else 0)
    lag = None if leader_end is None or own_end is None else max(leader_end - own_end, 0)
    return ReplicaCopy(held=own_bytes, whole=leader_bytes, lag=0 if replica.in_sync else lag, in_sync=replica.in_sync)
