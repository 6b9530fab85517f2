"""How much of the replicas that a plan moves is copied, as the brokers report it.

Brokers report bytes and offsets of their logs; two readings some seconds apart give a rate.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.adapters.brokers.log_dirs import ReplicaSizes, read_replica_sizes
from jobs.adapters.clusters.interface import Cluster
from jobs.console_output.copy_progress import CopyProgress, bytes_text, copy_figures
from jobs.core.errors import SurveyorError
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.reassignment.copy_rate import CopyReading, ReplicaCopy, ReplicaKey
from schemas.current_state import Leadership
from schemas.enums import NO_LEADER, Action
from schemas.rows import Broker, Change

LOG_DIRS_TIMEOUT_SECONDS: Final = 10.0
"""Seconds for all brokers together to answer."""


@dataclass(frozen=True, slots=True)
class _ReceivingReplica:
    """A replica of the target: the leader it is copied from, None without one, and whether it is in sync."""

    leader: int | None
    in_sync: bool


_ReceivingReplicas = Mapping[ReplicaKey, _ReceivingReplica]


def measure(cluster: Cluster, settings: Settings, changes: Sequence[Change], interval: float) -> CopyProgress | None:
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


def copied_text(cluster: Cluster, settings: Settings, changes: Sequence[Change]) -> str:
    """Return how many bytes of `changes`, reassignments in progress, are copied; empty if that is unknown."""
    try:
        copying = measure(cluster, settings, changes, 0.0)
    except SurveyorError:
        return ""
    total = None if copying is None else copy_figures(copying).total
    return "" if total is None or total.unknown == total.replicas else f"{bytes_text(total)} copied"


def _added(changes: Sequence[Change]) -> set[ReplicaKey]:
    return {
        (change.topic, change.partition, broker)
        for change in changes
        for broker in set(change.replicas_after) - set(change.replicas_before or ())
    }


def _replicas(cluster: Cluster, changes: Sequence[Change]) -> tuple[Sequence[Broker], _ReceivingReplicas]:
    """Read the live brokers, and every replica of the changes' targets."""
    cluster.sync()
    brokers = cluster.read_cluster().brokers
    partitions = cluster.read_partitions([change.key for change in changes])
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
