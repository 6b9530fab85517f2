"""What is due to be told of changes, on typed rows: the rule of `planner.telling.due` for who runs without Spark.

A test holds the two equal. In: changes, and the ids of the brokers that are registered and can be told. Out: notices.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Change


def due(changes: Iterable[Change], live: Collection[int]) -> list[Notice]:
    """What is to be told once these changes are written; changes that Kafka's controller decides it tells itself."""
    everybody = tuple(sorted(live))
    known = frozenset(live)
    return [notice for change in changes for notice in _notices(change, everybody, known)]


def _notices(change: Change, everybody: tuple[int, ...], known: frozenset[int]) -> Iterator[Notice]:
    if change.leader_epoch_after is None or change.leader_recovery_state_after is None:
        return
    to = {
        LEADER_AND_ISR: tuple(broker for broker in change.leader_and_isr_to if broker in known),
        UPDATE_METADATA: everybody,
        STOP_REPLICA: tuple(broker for broker in change.stop_replica_to or () if broker in known),
    }
    told: dict[str, Any] = {
        "topic": change.topic,
        "topic_id": change.topic_id,
        "partition": change.partition,
        "delete_partition": False,
        "leader": change.leader_after,
        "leader_epoch": change.leader_epoch_after,
        "isr": change.isr_after,
        "replicas": change.replicas_after,
        "adding_replicas": change.adding_after,
        "removing_replicas": change.removing_after,
        "is_new": change.is_new,
        "leader_recovery_state": change.leader_recovery_state_after,
        "state_version": change.state_version + 1,  # which the write at `state_version` makes
    }
    yield from (Notice(api=api, brokers=brokers, **told) for api, brokers in to.items() if brokers)
