"""Control requests for changes and for topics that are being deleted.

Corresponds to `ControllerBrokerRequestBatch.addLeaderAndIsrRequestForBrokers`, which sends the state to the named
brokers and the metadata to all live brokers, to `addStopReplicaRequestForBrokers`, and to
`TopicDeletionManager.onTopicDeletion`. In: changes and registered brokers. Out: notices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from schemas.enums import LEADER_DURING_DELETE, Action
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.replica_assignment import target
from schemas.rows import Change


def notices_for(changes: Iterable[Change], live: Collection[int]) -> list[Notice]:
    """Return the notices to send once these changes are written.

    Changes without a leader epoch are skipped: Kafka's controller decides these, and sends the requests itself.
    """
    live_brokers = tuple(sorted(live))
    live_set = frozenset(live)
    return [notice for change in changes for notice in _notices(change, live_brokers, live_set)]


def notices_for_deletion(
    topic: str, topic_id: str | None, replicas: Mapping[int, Collection[int]], live: Collection[int], *, delete: bool
) -> list[Notice]:
    """Return the notices of a topic that is being deleted.

    Without `delete` these set the leader to -2 (being deleted) and stop replicas; with it they delete the logs.
    `replicas`: by partition, the brokers that must delete their replica.
    """
    live_brokers = tuple(sorted(live))
    common: dict[str, Any] = {
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
        Notice(
            api=api,
            partition=partition,
            brokers=brokers,
            delete_partition=deletes_partition,
            replicas=sorted(brokers_with_log),
            **common,
        )
        for partition, brokers_with_log in replicas.items()
        for api, brokers, deletes_partition in (
            (UPDATE_METADATA, () if delete else live_brokers, False),
            (STOP_REPLICA, tuple(broker for broker in sorted(brokers_with_log) if broker in live_brokers), delete),
        )
        if brokers
    ]


def _notices(change: Change, live_brokers: tuple[int, ...], live_set: frozenset[int]) -> Iterator[Notice]:
    if change.leader_epoch_after is None or change.leader_recovery_state_after is None:
        return
    narrows = change.action == Action.NARROW_TO_TARGET
    leaving = change.removing_after if narrows else []
    common: dict[str, Any] = {
        "topic": change.topic,
        "topic_id": change.topic_id,
        "partition": change.partition,
        "leader": change.leader_after,
        "leader_epoch": change.leader_epoch_after,
        "isr": change.isr_after,
        # a leaving replica stays assigned until it has stopped, and must not rejoin the ISR in the meantime
        "replicas": target(change.replicas_after, leaving) if leaving else change.replicas_after,
        "adding_replicas": [] if narrows else change.adding_after,
        "removing_replicas": [] if narrows else change.removing_after,
        "leader_recovery_state": change.leader_recovery_state_after,
        "state_version": change.state_znode_version + 1,  # the version after the write
    }
    yield from (
        # the log of a replica that a reassignment removes is deleted; the log of a drained replica is kept
        Notice(api=api, brokers=brokers, is_new=is_new, delete_partition=narrows and api == STOP_REPLICA, **common)
        for api, brokers, is_new in _recipients(change, live_brokers, live_set)
        if brokers
    )


def _recipients(
    change: Change, live_brokers: tuple[int, ...], live_set: frozenset[int]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yield API, brokers and whether the replica is new; replicas that a reassignment adds are new to their brokers."""
    added = change.adding_after if change.action == Action.START_REASSIGNMENT else []
    state_recipients = tuple(broker for broker in change.leader_and_isr_to if broker in live_set)
    if added:
        yield LEADER_AND_ISR, tuple(broker for broker in state_recipients if broker in added), True
        state_recipients = tuple(broker for broker in state_recipients if broker not in added)
    yield LEADER_AND_ISR, state_recipients, change.is_new
    yield UPDATE_METADATA, live_brokers, change.is_new
    yield STOP_REPLICA, tuple(broker for broker in change.stop_replica_to or () if broker in live_set), change.is_new
