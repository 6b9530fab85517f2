"""Brokers' responses to control requests, decoded by kio, and as rows of `answers`."""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, Final

import pyarrow as pa
from kio.serial import entity_reader

from jobs.adapters.brokers.connection import error_of
from jobs.adapters.brokers.control_encoding import as_uuid
from jobs.adapters.delta.table_schemas import schema_of
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.response_codes import NOT_SENT, STALE_CONTROLLER_EPOCH, ResponseMeaning, meaning
from schemas.rows import Broker

_ABOUT_PARTITIONS: Final = (ResponseMeaning.ACCEPTED, ResponseMeaning.UNKNOWN)
"""Meanings of a request-level error that concern the partitions of the request, not its sender."""


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """The response of one broker to one request; `data` is None if there was no response."""

    broker: Broker
    controller_epoch: int
    api: str
    notices: Sequence[Notice]
    data: bytes | None
    version: int = -1
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def broker_id(self) -> int:
        return self.broker.broker_id

    @property
    def broker_epoch(self) -> int:
        return self.broker.zk_broker_epoch

    @property
    def error(self) -> int:
        """The error code for the request as a whole."""
        return NOT_SENT if self.data is None else error_of(self.data)

    @property
    def refuses_controller_epoch(self) -> bool:
        """Whether the broker refused the whole request because it knows a later controller epoch than ours.

        As a partition-level error the same code has another meaning: the broker already has that state.
        """
        return self.error == STALE_CONTROLLER_EPOCH

    @property
    def refuses_broker_epoch(self) -> bool:
        """Whether the broker has registered again since, and so has lost the state sent to it."""
        return self.request_meaning is ResponseMeaning.STALE_BROKER_EPOCH

    @property
    def request_meaning(self) -> ResponseMeaning:
        """The meaning of the request-level error code."""
        return meaning(self.api, self.error, self.error)

    def meaning(self, error: int) -> ResponseMeaning:
        """Return the meaning of one of `errors`."""
        return meaning(self.api, error, self.error)

    def errors(self) -> list[int]:
        """Return one error code per row of `answers`.

        That is one per partition for LeaderAndIsr and StopReplica, and a single one for UpdateMetadata.
        """
        top = self.error
        if self.api == UPDATE_METADATA:
            return [top]
        if self.data is None:
            return [top] * len(self.notices)
        try:
            by_partition = dict(self._partition_errors(_decode_response(self.api, self.version, self.data)))
        except Exception:  # noqa: BLE001 - an undecodable response counts as none, whatever is wrong with it
            return [top or NOT_SENT] * len(self.notices)
        return [by_partition.get((notice.topic, notice.partition), top) for notice in self.notices]

    def _partition_errors(self, response: Any) -> Iterator[tuple[tuple[str, int], int]]:  # noqa: ANN401 - kio's
        """Yield errors by topic and partition; from version 5 on the response has topic ids instead of names."""
        if not hasattr(response, "topics"):
            for error in response.partition_errors:
                yield (error.topic_name, error.partition_index), int(error.error_code)
            return
        names = {
            as_uuid(topic_id): topic for topic, topic_id in {(notice.topic, notice.topic_id) for notice in self.notices}
        }
        for topic in response.topics:
            name = names.get(topic.topic_id, "")
            for error in topic.partition_errors:
                yield (name, error.partition_index), int(error.error_code)


def _decode_response(api: str, version: int, data: bytes) -> Any:  # noqa: ANN401 - kio's classes differ by version
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).lstrip("_")
    response = getattr(importlib.import_module(f"kio.schema.{module}.v{version}.response"), f"{api}Response")
    _, start = entity_reader(response.__header_schema__)(data, 0)
    return entity_reader(response)(data, start)[0]


@dataclass(frozen=True, slots=True)
class BrokerResponses:
    """All responses of a commit, decoded."""

    responses: Sequence[BrokerResponse]
    errors: Sequence[Sequence[int]]

    @classmethod
    def of(cls, responses: Sequence[BrokerResponse]) -> "BrokerResponses":
        return cls(responses, [response.errors() for response in responses])

    @property
    def silent(self) -> list[int]:
        """Brokers that did not answer one or more requests."""
        return sorted({response.broker_id for response in self.responses if response.data is None})

    @property
    def accepted(self) -> list[int]:
        """Brokers that accepted every request and every partition."""
        accepted: dict[int, bool] = {}
        for response, errors in zip(self.responses, self.errors, strict=True):
            broker = response.broker_id
            is_delivered = response.request_meaning.is_delivered
            is_accepted = is_delivered and all(response.meaning(error).is_delivered for error in errors)
            accepted[broker] = accepted.get(broker, True) and is_accepted
        return sorted(broker for broker, is_accepted in accepted.items() if is_accepted)

    @property
    def of_later_epoch(self) -> list[int]:
        """Brokers that know a later controller epoch than ours."""
        return sorted({response.broker_id for response in self.responses if response.refuses_controller_epoch})

    @property
    def is_partial(self) -> bool:
        """Whether a broker accepted some partitions of a request and refused others."""
        return any(0 in errors and any(errors) for errors in self.errors)

    @property
    def leaderless_partitions(self) -> dict[tuple[str, int], int]:
        """Error codes of partitions that have no leader because the elected leader refused to become leader.

        Kafka's controller would get the same errors. Request-level errors about the sender or its epoch are excluded,
        since they would be different for Kafka's controller. A request that the broker failed to handle is included.
        """
        errors_of: dict[tuple[str, int], int] = {}
        for response, errors in zip(self.responses, self.errors, strict=True):
            if (
                response.api != LEADER_AND_ISR
                or response.data is None
                or response.request_meaning not in _ABOUT_PARTITIONS
            ):
                continue
            for notice, error in zip(response.notices, errors, strict=True):
                if notice.leader == response.broker_id:
                    errors_of[notice.topic, notice.partition] = 0 if response.meaning(error).is_delivered else error
        return {key: error for key, error in errors_of.items() if error}

    def table(self, cluster: str) -> pa.Table:
        """Return rows of `answers`, built by columns since there may be millions."""
        schema = schema_of("answers")
        counts = [len(errors) for errors in self.errors]
        by_response: dict[str, Sequence[Any]] = {
            "cluster": [cluster] * len(counts),
            "broker_id": [response.broker_id for response in self.responses],
            "api": [response.api for response in self.responses],
            "broker_epoch": [response.broker_epoch for response in self.responses],
            "controller_epoch": [response.controller_epoch for response in self.responses],
            "at": [response.at for response in self.responses],
        }
        positions = pa.array(list(chain.from_iterable(repeat(n, count) for n, count in enumerate(counts))), pa.int64())
        columns = {
            name: pa.array(values, schema.field(name).type).take(positions) for name, values in by_response.items()
        }
        for name in ("topic", "partition", "leader_epoch", "delete_partition"):
            values = chain.from_iterable(_column(response, name) for response in self.responses)
            columns[name] = pa.array(list(values), schema.field(name).type)
        columns["error"] = pa.array(list(chain.from_iterable(self.errors)), schema.field("error").type)
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _column(response: BrokerResponse, name: str) -> list[Any]:
    if response.api == UPDATE_METADATA:
        return [None]
    if name == "delete_partition" and response.api != STOP_REPLICA:
        return [None] * len(response.notices)
    return [getattr(notice, name) for notice in response.notices]
