"""What control requests say: rows written and brokers alive, as kio's entities of whichever version is spoken.

Corresponds to `LeaderAndIsrRequest.json`, `UpdateMetadataRequest.json` and `StopReplicaRequest.json`. kio has a class
for each version; a field that a version lacks is left out.
"""

import base64
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

Row = dict[str, Any]

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is to be told: rows just written, the brokers alive, and on whose authority.

    `states` are rows of topic, topic_id, partition, leader, leader_epoch, isr, replicas, adding, removing, is_new,
    leader_recovery_state, state_version, `to`, the brokers that LeaderAndIsr goes to, and `stop`, those that
    StopReplica goes to.
    """

    controller_id: int
    controller_epoch: int
    brokers: Sequence[Row]
    states: Sequence[Row]

    @property
    def live(self) -> set[int]:
        return {broker["broker_id"] for broker in self.brokers}


def plaintext_address(broker: Row) -> tuple[str, int] | None:
    """Where a broker takes control requests in plain text, None if nowhere."""
    for endpoint in broker["endpoints"] or ():
        if endpoint["security_protocol"] == PLAINTEXT:
            return endpoint["host"], endpoint["port"]
    return None


def fill(entity: type[Any], **values: Any) -> Any:  # noqa: ANN401
    """Make an entity of those values that its version has."""
    names = {field.name for field in fields(entity)}
    return entity(**{name: value for name, value in values.items() if name in names})


def leader_and_isr(module: Any, announcement: Announcement, broker: Row, states: list[Row]) -> Any:  # noqa: ANN401
    """Make a LeaderAndIsrRequest of the version that `module` is."""

    def partition(state: Row) -> Any:  # noqa: ANN401
        return fill(
            module.LeaderAndIsrPartitionState,
            partition_index=state["partition"],
            controller_epoch=announcement.controller_epoch,
            leader=state["leader"],
            leader_epoch=state["leader_epoch"],
            isr=tuple(state["isr"]),
            partition_epoch=state["state_version"],
            replicas=tuple(state["replicas"]),
            adding_replicas=tuple(state["adding"]),
            removing_replicas=tuple(state["removing"]),
            is_new=state["is_new"],
            leader_recovery_state=state["leader_recovery_state"],
        )

    leaders = {state["leader"] for state in states}
    return fill(
        module.LeaderAndIsrRequest,
        controller_id=announcement.controller_id,
        controller_epoch=announcement.controller_epoch,
        broker_epoch=broker["broker_epoch"],
        type_=0,
        topic_states=_topics(module.LeaderAndIsrTopicState, states, partition),
        live_leaders=tuple(
            fill(module.LeaderAndIsrLiveLeader, broker_id=row["broker_id"], host_name=host, port=port)
            for row in announcement.brokers
            if row["broker_id"] in leaders
            for host, port in [plaintext_address(row) or ("", -1)]
        ),
    )


def update_metadata(module: Any, announcement: Announcement, broker: Row, states: list[Row]) -> Any:  # noqa: ANN401
    """Make an UpdateMetadataRequest: all live brokers, and these partitions."""

    def partition(state: Row) -> Any:  # noqa: ANN401
        return fill(
            module.UpdateMetadataPartitionState,
            partition_index=state["partition"],
            controller_epoch=announcement.controller_epoch,
            leader=state["leader"],
            leader_epoch=state["leader_epoch"],
            isr=tuple(state["isr"]),
            zk_version=state["state_version"],
            replicas=tuple(state["replicas"]),
            offline_replicas=tuple(replica for replica in state["replicas"] if replica not in announcement.live),
        )

    return fill(
        module.UpdateMetadataRequest,
        controller_id=announcement.controller_id,
        controller_epoch=announcement.controller_epoch,
        broker_epoch=broker["broker_epoch"],
        topic_states=_topics(module.UpdateMetadataTopicState, states, partition),
        live_brokers=tuple(_live_broker(module, row) for row in announcement.brokers),
    )


def stop_replica(module: Any, announcement: Announcement, broker: Row, states: list[Row]) -> Any:  # noqa: ANN401
    """Make a StopReplicaRequest that deletes nothing; until version 2 it names partitions only."""

    def partition(state: Row) -> Any:  # noqa: ANN401
        return fill(
            module.StopReplicaPartitionState,
            partition_index=state["partition"],
            leader_epoch=state["leader_epoch"],
            delete_partition=False,
        )

    names_only = not hasattr(module, "StopReplicaPartitionState")
    return fill(
        module.StopReplicaRequest,
        controller_id=announcement.controller_id,
        controller_epoch=announcement.controller_epoch,
        broker_epoch=broker["broker_epoch"],
        delete_partitions=False,
        topics=_partitions_by_topic(module.StopReplicaTopicV1, states) if names_only else (),
        topic_states=() if names_only else _topics(module.StopReplicaTopicState, states, partition),
    )


def _partitions_by_topic(entity: type[Any], states: list[Row]) -> tuple[Any, ...]:
    ordered = sorted(states, key=lambda state: (state["topic"], state["partition"]))
    return tuple(
        entity(name=topic, partition_indexes=tuple(row["partition"] for row in rows))
        for topic, rows in groupby(ordered, key=lambda state: state["topic"])
    )


def _live_broker(module: Any, broker: Row) -> Any:  # noqa: ANN401
    endpoints = tuple(
        fill(
            module.UpdateMetadataEndpoint,
            port=endpoint["port"],
            host=endpoint["host"],
            listener=endpoint["listener"],
            security_protocol=_PROTOCOLS[endpoint["security_protocol"]],
        )
        for endpoint in broker["endpoints"]
    )
    return fill(module.UpdateMetadataBroker, id_=broker["broker_id"], endpoints=endpoints, rack=broker["rack"])


def _topics(entity: type[Any], states: list[Row], partition: Callable[[Row], Any]) -> tuple[Any, ...]:
    ordered = sorted(states, key=lambda state: (state["topic"], state["partition"]))
    return tuple(
        fill(entity, topic_name=topic, topic_id=as_uuid(topic_id), partition_states=tuple(map(partition, rows)))
        for (topic, topic_id), rows in groupby(ordered, key=lambda state: (state["topic"], state["topic_id"]))
    )


def as_uuid(topic_id: str | None) -> uuid.UUID | None:
    """Read Kafka's 22 characters of base64url.

    >>> as_uuid("AAAAAAAAAAAAAAAAAAAAAg")
    UUID('00000000-0000-0000-0000-000000000002')
    """
    return None if topic_id is None else uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
