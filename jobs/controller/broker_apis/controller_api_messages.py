"""AlterPartition, AllocateProducerIds and ControlledShutdown as messages: kio's entities in and out.

Corresponds to `KafkaApis.handleAlterPartitionRequest`, `handleAllocateProducerIdsRequest` and
`handleControlledShutdownRequest`. The supported versions are the versions of Kafka 2.7 to 3.9: topics have a name in
AlterPartition before version 2 and an id afterwards, members of an ISR have broker epochs from version 3 on.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from jobs.adapters.brokers.control_encoding import topic_id_text
from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.controller.broker_apis.isr_writer import IsrRequest, IsrResponse
from planner.rules.alter_partition import IsrProposal
from schemas.enums import RECOVERED
from schemas.rows import Key

ALTER_PARTITION: Final = 56
ALLOCATE_PRODUCER_IDS: Final = 67
CONTROLLED_SHUTDOWN: Final = 7

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ALTER_PARTITION: (0, 3),
    ALLOCATE_PRODUCER_IDS: (0, 0),
    CONTROLLED_SHUTDOWN: (0, 3),
}

IDS_SINCE: Final = 2
"""First version of AlterPartition with topic ids instead of names."""

_EPOCHS_SINCE: Final = 3
_RECOVERY_SINCE: Final = 1
_UNKNOWN_TOPIC_ID: Final = 100

NameOf = Callable[[str], str | None]
"""Returns the name of the topic with an id (22 characters of base64url), None if there is none."""


def alter_partition_request(
    version: int,
    request: ApiMessage,
    name_of: NameOf,
) -> IsrRequest:
    """Return the proposals of a request; topics whose id is unknown are left out, and the response reports them.

    Of several proposals for one partition the last one counts, as in `KafkaController.alterPartitions`.
    """
    proposals = (
        IsrProposal(
            topic=topic,
            partition=partition.partition_index,
            leader=request.broker_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=[b.broker_id for b in partition.new_isr_with_epochs]
            if version >= _EPOCHS_SINCE
            else [*partition.new_isr],
            broker_epochs=[b.broker_epoch for b in partition.new_isr_with_epochs] if version >= _EPOCHS_SINCE else [],
            leader_recovery_state=partition.leader_recovery_state if version >= _RECOVERY_SINCE else RECOVERED,
        )
        for data in request.topics
        if (topic := _topic(data, version, name_of)) is not None
        for partition in data.partitions
    )
    last = {proposal.key: proposal for proposal in proposals}
    return IsrRequest(request.broker_id, request.broker_epoch, version, [*last.values()])


def alter_partition_response(
    version: int,
    request: ApiMessage,
    response: IsrResponse,
    name_of: NameOf,
) -> ApiMessage:
    """Return the response to a request, in the order of the request; without topics if the whole request failed."""
    topics_data = () if response.error else request.topics
    topics = tuple(_topic_response(version, topic, response, name_of) for topic in topics_data)
    name = "AlterPartitionResponse"
    return response_entity(ALTER_PARTITION, version, name, error_code=ErrorCode(response.error), topics=topics)


def _topic_response(version: int, data: ApiMessage, response: IsrResponse, name_of: NameOf) -> ApiMessage:
    topic = _topic(data, version, name_of)
    topic_field = {"topic_id": data.topic_id} if version >= IDS_SINCE else {"topic_name": data.topic_name}
    partitions = [
        _partition_response(version, topic, partition.partition_index, response) for partition in data.partitions
    ]
    return response_entity(ALTER_PARTITION, version, "TopicData", **topic_field, partitions=tuple(partitions))


def _partition_response(version: int, topic: str | None, number: int, response: IsrResponse) -> ApiMessage:
    result = None if topic is None else response.results.get((topic, number))
    row = None if result is None else result.row
    return response_entity(
        ALTER_PARTITION,
        version,
        "PartitionData",
        partition_index=number,
        error_code=ErrorCode(_UNKNOWN_TOPIC_ID if result is None else result.error),
        leader_id=0 if row is None else row.leader,
        leader_epoch=0 if row is None else row.leader_epoch,
        isr=() if row is None else tuple(row.isr or ()),
        leader_recovery_state=0 if row is None else row.leader_recovery_state or 0,
        partition_epoch=0 if row is None else row.state_version,
    )


def _topic(data: ApiMessage, version: int, name_of: NameOf) -> str | None:
    if version < IDS_SINCE:
        return str(data.topic_name)
    return None if data.topic_id is None else name_of(topic_id_text(data.topic_id))


def producer_ids_response(version: int, error: int, start: int = -1, length: int = 0) -> ApiMessage:
    """Return the response with a block of producer ids, or with an error."""
    values = {"error_code": ErrorCode(error), "producer_id_start": start, "producer_id_len": length}
    return response_entity(ALLOCATE_PRODUCER_IDS, version, "AllocateProducerIdsResponse", **values)


def controlled_shutdown_response(version: int, error: int, remaining: Collection[Key] = ()) -> ApiMessage:
    """Return the response with the partitions that the broker still leads, or with an error."""
    left = tuple(
        response_entity(CONTROLLED_SHUTDOWN, version, "RemainingPartition", topic_name=topic, partition_index=partition)
        for topic, partition in sorted(remaining)
    )
    values = {"error_code": ErrorCode(error), "remaining_partitions": left}
    return response_entity(CONTROLLED_SHUTDOWN, version, "ControlledShutdownResponse", **values)
