"""How far the replicas that a plan moves have been copied, in bytes and offsets, asked of the brokers concerned.

Twice, some seconds apart, for an estimate of the rest. What brokers do not tell is unknown and said to be so: it
changes nothing about what ZooKeeper says of the plan. Nothing is written anywhere.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.adapters.brokers.log_dirs import ReplicaSizes, read_replica_sizes
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected, sync
from jobs.core.errors import SurveyorError
from jobs.preconditions.changes import read_changed, understood
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.reassignment.copy_rate import CopyReading, ReplicaCopy, ReplicaKey
from schemas.enums import NO_LEADER, Action
from schemas.rows import Change
from schemas.znodes import State

LOG_DIRS_TIMEOUT_SECONDS: Final = 10.0
"""Seconds that brokers have to tell, all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """What is being copied: the last reading, the one before if there was one, and who was silent at the last."""

    current: CopyReading
    previous: CopyReading | None
    seconds: float
    silent: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _ReceivingReplica:
    """A replica that is to be in sync: where it is copied from, None if nobody leads, and whether it is there."""

    leader: int | None
    in_sync: bool


_ReceivingReplicas = Mapping[ReplicaKey, _ReceivingReplica]


def measure(settings: Settings, changes: Sequence[Change], interval: float) -> CopyProgress | None:
    """Read what the receiving replicas of `changes`, reassignments in progress, hold; None if there are none.

    A second reading is made `apart` seconds after the first if something is left to be copied; 0 makes none.
    """
    moving = [change for change in changes if change.action == Action.REASSIGN]
    if not moving:
        return None
    try:
        brokers, replicas = _replicas(settings, moving)
        added = _added(moving)
        receiving = {key: where for key, where in replicas.items() if key in added or not where.in_sync}
        first, silent = _read(settings, brokers, receiving)
        began = time.monotonic()
        if not interval or not any(copy.known and copy.left for copy in first.values()):
            return CopyProgress(current=first, previous=None, seconds=0.0, silent=silent)
        with progress("measuring how quickly replicas are copied"):
            time.sleep(interval)
            brokers, replicas = _replicas(settings, moving)
            second, silent = _read(settings, brokers, {key: replicas[key] for key in receiving})
        return CopyProgress(current=second, previous=first, seconds=time.monotonic() - began, silent=silent)
    except SurveyorError as error:
        log(f"surveyor: how much is copied is unknown: {error}")
        return None


def _added(changes: Sequence[Change]) -> set[ReplicaKey]:
    return {
        (change.topic, change.partition, broker)
        for change in changes
        for broker in set(change.replicas_after) - set(change.replicas_before or ())
    }


def _replicas(settings: Settings, changes: Sequence[Change]) -> tuple[list[Row], _ReceivingReplicas]:
    """The live brokers, and every replica that the changes lead to."""
    with connected(settings.zookeeper) as client:
        sync(client)
        brokers = read_cluster(client, settings.zookeeper).brokers
        states = [(change, understood(state)) for change, _, state in read_changed(client, changes)]
    return brokers, {
        (change.topic, change.partition, broker): _receiving_replica(broker, state)
        for change, state in states
        for broker in change.replicas_after
    }


def _receiving_replica(broker: int, state: State | None) -> _ReceivingReplica:
    if state is None:
        return _ReceivingReplica(None, in_sync=False)
    return _ReceivingReplica(None if state.leader == NO_LEADER else state.leader, broker in state.isr)


def _read(
    settings: Settings, brokers: Sequence[Row], receiving: _ReceivingReplicas
) -> tuple[CopyReading, Mapping[int, str]]:
    """One reading, and which brokers that it needs were silent, and why."""
    needed = _needed(receiving)
    registered = [broker for broker in brokers if broker["broker_id"] in needed]
    copies, silent = read_replica_sizes(registered, settings.conf.command_config, needed, LOG_DIRS_TIMEOUT_SECONDS)
    gone = dict.fromkeys(needed.keys() - {broker["broker_id"] for broker in registered}, "it is not registered")
    return {key: _copy(key, where, copies) for key, where in receiving.items()}, {**silent, **gone}


def _needed(receiving: _ReceivingReplicas) -> dict[int, dict[str, list[int]]]:
    """What each broker is asked for: replicas that it receives, and those that others receive from it."""
    needed: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for (topic, partition, broker), where in receiving.items():
        needed[broker][topic].add(partition)
        if where.leader is not None:
            needed[where.leader][topic].add(partition)
    return {
        broker: {topic: sorted(partitions) for topic, partitions in sorted(topics.items())}
        for broker, topics in sorted(needed.items())
    }


def _copy(key: ReplicaKey, where: _ReceivingReplica, copies: Mapping[int, ReplicaSizes]) -> ReplicaCopy:
    """One replica: 0 bytes if its broker tells of no such log yet."""
    topic, partition, broker = key
    named = topic, partition
    mine, leaders = copies.get(broker), None if where.leader is None else copies.get(where.leader)
    whole = None if leaders is None else leaders.sizes.get(named)
    end = None if leaders is None else leaders.ends.get(named)
    held = None if mine is None else mine.sizes.get(named, 0)
    reached = None if mine is None else mine.ends.get(named, None if held else 0)
    lag = None if end is None or reached is None else max(end - reached, 0)
    return ReplicaCopy(held=held, whole=whole, lag=0 if where.in_sync else lag, in_sync=where.in_sync)
