"""Control requests to brokers: UpdateMetadata, LeaderAndIsr, StopReplica; in order per broker, one in flight, retried.

Corresponds to `ControllerChannelManager` and `AbstractControllerBrokerRequestBatch`. The live brokers are told first:
a follower answers a LeaderAndIsr whose leader it does not know with no error and ignores it. Brokers that stop replicas
are told before all others, as `KafkaController.doControlledShutdown` does: a follower that still fetches from a leader
of the new ISR is taken back into it. kio speaks the protocol; the version of each request is the highest that both
sides know.
"""

import importlib
import io
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from jobs.adapters.control_messages import (
    PLAINTEXT,
    Announcement,
    Row,
    as_uuid,
    fill,
    leader_and_isr,
    plaintext_address,
    stop_replica,
    update_metadata,
)

TIMEOUT: Final = 10.0
"""Seconds a broker may take to answer one request, or what is left until the deadline; it is asked again until then."""

PAUSE: Final = 0.1
"""Seconds between two tries, as Kafka's RequestSendThread waits."""

STOPPING: Final = 3.0
"""Seconds that the others wait at most for brokers that stop replicas: until then nobody leads what those led."""

NOT_TOLD: Final = -1
"""`error` of a broker that gave no answer (Kafka's UNKNOWN_SERVER_ERROR)."""

AT_ONCE: Final = 32
"""Brokers told at a time."""

_KEYS: Final = {"leader_and_isr": 4, "stop_replica": 5, "update_metadata": 6}
_NAMES: Final = {"leader_and_isr": "LeaderAndIsr", "stop_replica": "StopReplica", "update_metadata": "UpdateMetadata"}
_VERSIONS: Final = {"leader_and_isr": range(4, 8), "stop_replica": range(2, 5), "update_metadata": range(6, 9)}
_BUILDERS: Final = {
    "leader_and_isr": leader_and_isr,
    "stop_replica": stop_replica,
    "update_metadata": update_metadata,
}
_NAMES_TOPICS: Final = 4
"""The last version of LeaderAndIsr whose answer names topics; later ones give their ids, which older topics lack."""


class _CannotTellError(Exception):
    """A broker that cannot be told, however often it is asked."""


def announce(announcement: Announcement, deadline: float) -> list[Row]:
    """Tell every live broker, in parallel, until the deadline (of time.monotonic); return rows of `answers`.

    Those that stop replicas come first; the others wait for them, `STOPPING` seconds at most.
    """

    def told(broker: Row) -> list[Row]:
        return _tell(announcement, broker, deadline)

    stop_here = {broker_id for state in announcement.states for broker_id in state["stop"]}
    stopping = [broker for broker in announcement.brokers if broker["broker_id"] in stop_here]
    others = [broker for broker in announcement.brokers if broker["broker_id"] not in stop_here]
    with ThreadPoolExecutor(AT_ONCE) as first, ThreadPoolExecutor(AT_ONCE) as then:
        tellings = [first.submit(told, broker) for broker in stopping]
        wait(tellings, STOPPING)
        tellings += [then.submit(told, broker) for broker in others]
        return [row for telling in tellings for row in telling.result()]


def _tell(announcement: Announcement, broker: Row, deadline: float) -> list[Row]:
    mine = [state for state in announcement.states if broker["broker_id"] in state["to"]]
    requests: list[tuple[str, list[Row]]] = [("update_metadata", [])]
    for named in (True, False):
        some = [state for state in mine if (state["topic_id"] is not None) is named]
        if some:
            requests.append(("leader_and_isr", some))
    if announcement.states:
        requests.append(("update_metadata", list(announcement.states)))
    stopped = [state for state in announcement.states if broker["broker_id"] in state["stop"]]
    if stopped:
        requests.append(("stop_replica", stopped))
    answers: list[Row] = []
    for api, states in requests:
        answers += _ask_until(announcement, broker, api, states, deadline)
    return answers


def _ask_until(announcement: Announcement, broker: Row, api: str, states: list[Row], deadline: float) -> list[Row]:
    """Send one request again and again until it is answered: brokers register before they listen."""
    while True:
        timeout = max(PAUSE, min(TIMEOUT, deadline - time.monotonic()))
        try:
            with _Channel.to(broker, announcement.controller_id, timeout) as channel:
                return _answers(announcement, broker, api, states, channel.ask(api, announcement, broker, states))
        except _CannotTellError:
            return _answers(announcement, broker, api, states, None)
        except (OSError, SerialError, struct.error):
            if time.monotonic() + PAUSE > deadline:
                return _answers(announcement, broker, api, states, None)
            time.sleep(PAUSE)


def _answers(announcement: Announcement, broker: Row, api: str, states: list[Row], response: Any) -> list[Row]:  # noqa: ANN401 - kio's classes differ by version
    """Lay an answer out as rows: one a partition for LeaderAndIsr and StopReplica, one for all of UpdateMetadata."""
    common: Row = {
        "broker_id": broker["broker_id"],
        "api": _NAMES[api],
        "broker_epoch": broker["broker_epoch"],
        "controller_epoch": announcement.controller_epoch,
        "at": datetime.now(UTC),
    }
    top = NOT_TOLD if response is None else int(response.error_code)
    if api == "update_metadata":
        return [common | {"error": top}]
    errors = {} if response is None else dict(_partition_errors(response, states))
    return [
        common
        | {
            "topic": state["topic"],
            "partition": state["partition"],
            "leader_epoch": state["leader_epoch"],
            "error": errors.get((state["topic"], state["partition"]), top),
        }
        for state in states
    ]


def _partition_errors(response: Any, states: list[Row]) -> Iterator[tuple[tuple[str, int], int]]:  # noqa: ANN401
    """Errors by topic and partition; from version 5 on the answer names topics by id."""
    if not hasattr(response, "topics"):
        for error in response.partition_errors:
            yield (error.topic_name, error.partition_index), int(error.error_code)
        return
    names = {as_uuid(state["topic_id"]): state["topic"] for state in states}
    for topic in response.topics:
        for error in topic.partition_errors:
            yield (names.get(topic.topic_id, ""), error.partition_index), int(error.error_code)


@dataclass(slots=True)
class _Channel:
    """A connection to one broker that knows which versions it speaks."""

    stream: Any
    client_id: str
    versions: dict[int, int]
    correlation: int = 0

    @classmethod
    @contextmanager
    def to(cls, broker: Row, controller_id: int, timeout: float) -> "Iterator[_Channel]":
        address = plaintext_address(broker)
        if address is None:
            raise _CannotTellError(f"broker {broker['broker_id']} has no {PLAINTEXT} endpoint")
        with socket.create_connection(address, timeout=timeout) as connection:
            channel = cls(connection.makefile("rwb"), str(controller_id), {})
            asked = importlib.import_module("kio.schema.api_versions.v0.request").ApiVersionsRequest()
            found = channel._exchange(asked)
            channel.versions = {int(api.api_key): int(api.max_version) for api in found.api_keys}
            yield channel

    def ask(self, api: str, announcement: Announcement, broker: Row, states: list[Row]) -> Any:  # noqa: ANN401
        known = _VERSIONS[api]
        if api == "leader_and_isr" and any(state["topic_id"] is None for state in states):
            known = range(known[0], _NAMES_TOPICS + 1)
        version = min(self.versions.get(_KEYS[api], 0), known[-1])
        if version < known[0]:
            raise _CannotTellError(f"broker {broker['broker_id']} speaks {_NAMES[api]} up to version {version} only")
        module = importlib.import_module(f"kio.schema.{api}.v{version}.request")
        return self._exchange(_BUILDERS[api](module, announcement, broker, states))

    def _exchange(self, request: Any) -> Any:  # noqa: ANN401
        self.correlation += 1
        header = fill(
            request.__header_schema__,
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self.correlation,
            client_id=self.client_id,
        )
        frame = io.BytesIO()
        entity_writer(type(header))(frame, header)
        entity_writer(type(request))(frame, request)
        self.stream.write(struct.pack(">i", frame.tell()) + frame.getvalue())
        self.stream.flush()
        (size,) = struct.unpack(">i", self._receive(4))
        return _read_response(type(request), self._receive(size))

    def _receive(self, size: int) -> bytes:
        data: bytes = self.stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


def _read_response(request: type[Any], data: bytes) -> Any:  # noqa: ANN401
    module = importlib.import_module(request.__module__.replace(".request", ".response"))
    response = getattr(module, request.__name__.replace("Request", "Response"))
    _, start = entity_reader(response.__header_schema__)(data, 0)
    entity, _ = entity_reader(response)(data, start)
    return entity
