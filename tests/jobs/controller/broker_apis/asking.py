"""Brokers that ask the controller, with the entities of kio."""

import importlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from jobs.adapters.brokers.control_encoding import as_uuid
from jobs.adapters.request_server.api_handler import Caller
from jobs.controller.broker_apis.controller_api_messages import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
)
from jobs.controller.request_handler import RequestHandler
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

CALLER = Caller("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1", "broker")
SECONDS = 10.0


@dataclass(slots=True)
class Proposed:
    """An ISR that a leader proposes."""

    isr: Sequence[int]
    leader_epoch: int = 5
    partition_epoch: int = 0
    recovery: int = 0
    partition: int = 0


@dataclass(slots=True)
class AskingBrokers:
    """The brokers of a tree."""

    tree: KafkaTree
    request_handler: RequestHandler

    def epoch(self, broker: int) -> int:
        return int(self.tree.client.get(f"/brokers/ids/{broker}")[1].czxid)

    def alter_partition(
        self,
        broker: int,
        *proposed: Proposed,
        topic: str = "orders",
        topic_id: str = TOPIC_ID,
        version: int = 3,
        epoch: int | None = None,
    ) -> Future[Any]:
        """Ask for these ISRs of one topic; the future gets the response."""
        request = alter_partition_request(
            version,
            broker,
            self.epoch(broker) if epoch is None else epoch,
            {topic_id if version >= 2 else topic: proposed},
        )
        return self.request_handler.submit(CALLER, ALTER_PARTITION, version, request)

    def alter(self, broker: int, *proposed: Proposed, **options: Any) -> list[tuple[int, list[int], int]]:  # noqa: ANN401
        """Ask for ISRs; return for each partition error code, ISR and partition epoch, or the error of the request."""
        response = self.alter_partition(broker, *proposed, **options).result(SECONDS)
        if response.error_code:
            return [(int(response.error_code), [], 0)]
        return [
            (int(partition.error_code), [*partition.isr], partition.partition_epoch)
            for topic in response.topics
            for partition in topic.partitions
        ]

    def producer_ids(self, broker: int, epoch: int | None = None) -> tuple[int, int, int]:
        """Ask for a block of producer ids; return error code, start and length."""
        module = importlib.import_module("kio.schema.allocate_producer_ids.v0.request")
        epoch = self.epoch(broker) if epoch is None else epoch
        request = module.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        response = self.request_handler.submit(CALLER, ALLOCATE_PRODUCER_IDS, 0, request).result(SECONDS)
        return int(response.error_code), response.producer_id_start, response.producer_id_len

    def controlled_shutdown(self, broker: int, epoch: int | None = None, version: int = 3) -> Future[Any]:
        """Ask for a controlled shutdown; the next cycle answers."""
        request = controlled_shutdown_request(version, broker, self.epoch(broker) if epoch is None else epoch)
        return self.request_handler.submit(CALLER, CONTROLLED_SHUTDOWN, version, request)


def controlled_shutdown_request(version: int, broker: int, epoch: int) -> Any:  # noqa: ANN401
    """Return the entity of a request; the broker epoch is sent from version 2 on."""
    module = importlib.import_module(f"kio.schema.controlled_shutdown.v{version}.request")
    known = {} if version < 2 else {"broker_epoch": epoch}
    return module.ControlledShutdownRequest(broker_id=broker, **known)


def alter_partition_request(version: int, broker: int, epoch: int, topics: Mapping[str, Sequence[Proposed]]) -> Any:  # noqa: ANN401
    """Return the entity of a request; topics are named by their ids from version 2 on."""
    module = importlib.import_module(f"kio.schema.alter_partition.v{version}.request")
    data = tuple(
        module.TopicData(
            **({"topic_id": as_uuid(topic)} if version >= 2 else {"topic_name": topic}),
            partitions=tuple(_partition(module, version, proposal) for proposal in proposed),
        )
        for topic, proposed in topics.items()
    )
    return module.AlterPartitionRequest(broker_id=broker, broker_epoch=epoch, topics=data)


def _partition(module: Any, version: int, proposed: Proposed) -> Any:  # noqa: ANN401
    members = (
        {"new_isr_with_epochs": tuple(module.BrokerState(broker_id=broker) for broker in proposed.isr)}
        if version >= 3
        else {"new_isr": tuple(proposed.isr)}
    )
    recovery = {"leader_recovery_state": proposed.recovery} if version >= 1 else {}
    return module.PartitionData(
        partition_index=proposed.partition,
        leader_epoch=proposed.leader_epoch,
        partition_epoch=proposed.partition_epoch,
        **members,
        **recovery,
    )
