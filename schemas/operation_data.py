"""The JSON in column `data` of OPERATIONS: one struct for each kind of operation.

Fields without a default are always written. A plan's id covers the text, so it is written in one way only: as
`json.dumps` does, with sorted keys.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from schemas.enums import OperationKind
from schemas.rows import Operation

D = TypeVar("D", bound="OperationData")


class OperationData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of an operation of the kind `KIND`, without the topic name."""

    KIND: ClassVar[OperationKind]

    @property
    def columns(self) -> dict[str, Any]:
        """The data as stored, and as a part of a plan's parameters."""
        columns: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return columns

    def operation(self, topic: str, sequence: int = 0) -> Operation:
        """Return the row of OPERATIONS.

        >>> DeletedTopic(topic_id=None).operation("t").data
        '{"topic_id": null}'
        """
        text = json.dumps(self.columns, sort_keys=True)
        return Operation(sequence=sequence, kind=self.KIND.value, topic=topic, data=text)


class CheckedConfig(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """Remarks on configs that an operation sets."""

    unknown: list[str] = []
    """Names that no version of Kafka knows, so that their values were not checked."""
    ignored_before: dict[str, str] = {}
    """The version of Kafka that a name exists since, if it is later than a broker's."""

    @property
    def values(self) -> Mapping[str, str | None]:
        """The configs by name; None deletes an override."""
        return {}


class CreatedTopic(CheckedConfig, frozen=True, kw_only=True, omit_defaults=True):
    """A new topic; its partitions are the plan's changes."""

    KIND = OperationKind.CREATE_TOPIC
    topic_id: str | None
    config: dict[str, str]

    @property
    def values(self) -> Mapping[str, str | None]:
        """The configs by name."""
        return self.config


class ExpandedTopic(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions added to a topic: how many there were, and will be."""

    KIND = OperationKind.EXPAND_TOPIC
    topic_id: str | None
    existing: int
    partitions: int


class AlteredConfig(CheckedConfig, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides of a topic before and after, by name; None for no override."""

    KIND = OperationKind.ALTER_CONFIG
    topic_id: str | None
    before: dict[str, str | None]
    after: dict[str, str | None]
    replication_factor: int | None = None
    """The least number of replicas of a partition, if min.insync.replicas is set."""
    losses: list[str] = []
    """What may be deleted or lost with the values before (`schemas.topic_configs.losses`)."""

    @property
    def values(self) -> Mapping[str, str | None]:
        """The configs by name; None deletes an override."""
        return self.after


class DeletedTopic(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """A topic to be queued for deletion."""

    KIND = OperationKind.DELETE_TOPIC
    topic_id: str | None


class DeletedReplicas(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """The brokers that hold replicas of a queued topic, by partition."""

    KIND = OperationKind.DELETE_REPLICAS
    topic_id: str | None
    replicas: dict[int, list[int]]


class RemovedTopic(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """A queued topic whose replicas are deleted, as confirmed under `controller_epoch`."""

    KIND = OperationKind.REMOVE_TOPIC
    topic_id: str | None
    topic_version: int
    controller_epoch: int


class WithdrawnDeletion(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a deletion that is refused, and whether its topic exists."""

    KIND = OperationKind.WITHDRAW_DELETION
    reason: str | None
    exists: bool


class WithdrawnReassignment(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """Requests for reassignments of a topic: the replicas by partition."""

    KIND = OperationKind.WITHDRAW_REASSIGNMENT
    orders: dict[int, list[int]]


class WithdrawnElection(OperationData, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions of a topic whose preferred election was requested."""

    KIND = OperationKind.WITHDRAW_ELECTION
    partitions: list[int]


def data_of(operation: Operation, kind: type[D]) -> D:
    """Decode the data of an operation of this kind; raise ValueError if it is of another form."""
    return msgspec.json.decode(operation.data, type=kind)
