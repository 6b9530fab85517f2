"""What is due to be told of changes, on typed rows: the rule of `planner.broker_requests.spark` for who runs without
Spark.

And of topics that are deleted, as `planner.reconciliation.topic_deletion` has it. Tests hold them equal. In: changes or
replicas, and the ids of the brokers that are registered and can be told. Out: notices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from planner.reassignment.replica_assignment import target
from schemas.enums import LEADER_DURING_DELETE, Action
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Change


def notices_for(changes: Iterable[Change], live: Collection[int]) -> list[Notice]:
    """What is to be told once these changes are written; changes that Kafka's controller decides it tells itself."""
    everybody = tuple(sorted(live))
    known = frozenset(live)
    return [notice for change in changes for notice in _notices(change, everybody, known)]


def notices_for_deletion(
    topic: str, topic_id: str | None, replicas: Mapping[int, Collection[int]], live: Collection[int], *, delete: bool
) -> list[Notice]:
    """What is to be told of a topic that goes: first that nobody leads and that replicas stop, then `delete`.

    `replicas`: who is to delete theirs, by partition.
    """
    everybody = tuple(sorted(live))
    told: dict[str, Any] = {
        "topic": topic,
        "topic_id": topic_id,
        "leader": LEADER_DURING_DELETE,
        "leader_epoch": LEADER_DURING_DELETE,
        "isr": [],
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": False,
        "leader_recovery_state": 0,
        "state_version": 0,
    }
    return [
        Notice(api=api, partition=partition, brokers=brokers, delete_partition=gone, replicas=sorted(on), **told)
        for partition, on in replicas.items()
        for api, brokers, gone in (
            (UPDATE_METADATA, () if delete else everybody, False),
            (STOP_REPLICA, tuple(broker for broker in sorted(on) if broker in everybody), delete),
        )
        if brokers
    ]


def _notices(change: Change, everybody: tuple[int, ...], known: frozenset[int]) -> Iterator[Notice]:
    if change.leader_epoch_after is None or change.leader_recovery_state_after is None:
        return
    narrows = change.action == Action.NARROW_TO_TARGET
    leaving = change.removing_after if narrows else []
    told: dict[str, Any] = {
        "topic": change.topic,
        "topic_id": change.topic_id,
        "partition": change.partition,
        "leader": change.leader_after,
        "leader_epoch": change.leader_epoch_after,
        "isr": change.isr_after,
        # who leaves is assigned until it has stopped, and must not be taken back into the ISR meanwhile
        "replicas": target(change.replicas_after, leaving) if leaving else change.replicas_after,
        "adding_replicas": [] if narrows else change.adding_after,
        "removing_replicas": [] if narrows else change.removing_after,
        "leader_recovery_state": change.leader_recovery_state_after,
        "state_version": change.state_version + 1,  # which the write at `state_version` makes
    }
    yield from (
        # a replica that a reassignment leaves behind goes with its log, one that a drain stops stays
        Notice(api=api, brokers=brokers, is_new=is_new, delete_partition=narrows and api == STOP_REPLICA, **told)
        for api, brokers, is_new in _recipients(change, everybody, known)
        if brokers
    )


def _recipients(
    change: Change, everybody: tuple[int, ...], known: frozenset[int]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Who is told by which API, and whether as new: of a reassignment that starts, those that it adds are."""
    newcomers = change.adding_after if change.action == Action.START_REASSIGNMENT else []
    led = tuple(broker for broker in change.leader_and_isr_to if broker in known)
    if newcomers:
        yield LEADER_AND_ISR, tuple(broker for broker in led if broker in newcomers), True
        led = tuple(broker for broker in led if broker not in newcomers)
    yield LEADER_AND_ISR, led, change.is_new
    yield UPDATE_METADATA, everybody, change.is_new
    yield STOP_REPLICA, tuple(broker for broker in change.stop_replica_to or () if broker in known), change.is_new
