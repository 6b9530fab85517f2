"""Control requests as bytes are those that kio makes, in every version that is spoken."""

import importlib
import io
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from jobs.adapters.brokers.control_messages import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    VERSIONS,
    Announcement,
    Messages,
    Row,
    TooLateError,
    as_uuid,
    header,
    plaintext_address,
)

NEVER = math.inf
I32 = st.integers(-(2**31), 2**31 - 1)
MODULES = {LEADER_AND_ISR: "leader_and_isr", STOP_REPLICA: "stop_replica", UPDATE_METADATA: "update_metadata"}
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

ids = st.lists(st.integers(0, 9), max_size=5)
endpoints = st.fixed_dictionaries(
    {
        "host": st.text(max_size=200),
        "port": I32,
        "listener": st.text(max_size=20),
        "security_protocol": st.sampled_from([*PROTOCOLS]),
    }
)
brokers = st.lists(
    st.fixed_dictionaries(
        {
            "broker_id": st.integers(0, 9),
            "broker_epoch": st.integers(-1, 2**63 - 1),
            "endpoints": st.lists(endpoints, max_size=3),
            "rack": st.none() | st.text(max_size=5),
        }
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda broker: broker["broker_id"],
)
TOPIC_IDS = {"a": None, "b": "AAAAAAAAAAAAAAAAAAAAAg", "ü" * 70: "r8iTzkX6SnyvLkbjRRRoow"}


def with_topic_id(state: Row) -> Row:
    return state | {"topic_id": TOPIC_IDS[state["topic"]]}


states = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from([*TOPIC_IDS]),
            "partition": st.integers(0, 300),
            "leader": I32,
            "leader_epoch": I32,
            "isr": ids,
            "replicas": ids,
            "adding": ids,
            "removing": ids,
            "is_new": st.booleans(),
            "leader_recovery_state": st.integers(0, 1),
            "state_version": I32,
            "to": st.sets(st.integers(0, 9)).map(sorted),
            "stop": st.sets(st.integers(0, 9)).map(sorted),
        }
    ).map(with_topic_id),
    max_size=140,
    unique_by=lambda state: (state["topic"], state["partition"]),
)


@given(brokers, states, I32, st.integers(0, 2**31 - 1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_request_is_what_kio_makes(live: list[Row], told: list[Row], epoch: int, controller: int) -> None:
    announcement = Announcement(controller, epoch, live, told)
    messages = Messages(announcement, NEVER)
    for broker in live:
        for request in messages.requests(broker["broker_id"]):
            for version in request.versions:
                ours = b"".join(messages.body(request, version, broker))
                assert ours == written(kio(request.api, version, announcement, broker, request.states)), request.api


@given(st.sampled_from([(api, version) for api, known in VERSIONS.items() for version in known]), I32, st.text())
def test_header_is_what_kio_makes(request: tuple[str, int], correlation: int, client_id: str) -> None:
    api, version = request
    entity = getattr(module(api, version), f"{api}Request")
    made = entity.__header_schema__(
        request_api_key=entity.__api_key__,
        request_api_version=version,
        correlation_id=correlation,
        client_id=client_id,
    )

    assert header(api, version, correlation, client_id) == written(made)


def test_nothing_is_encoded_after_the_deadline() -> None:
    broker = {"broker_id": 1, "broker_epoch": 1, "endpoints": [], "rack": None}
    state = {"topic": "t", "topic_id": None, "partition": 0, "to": [1], "stop": []}
    messages = Messages(Announcement(7, 8, [broker], [state]), time.monotonic() - 1)

    with pytest.raises(TooLateError):
        messages.body(messages.requests(1)[1], 4, broker)


def written(entity: Any) -> bytes:  # noqa: ANN401 - kio's classes differ by version
    frame = io.BytesIO()
    entity_writer(type(entity))(frame, entity)
    return frame.getvalue()


def module(api: str, version: int) -> Any:  # noqa: ANN401
    return importlib.import_module(f"kio.schema.{MODULES[api]}.v{version}.request")


def fill(entity: type[Any], **values: Any) -> Any:  # noqa: ANN401
    """Make an entity of those values that its version has."""
    names = {field.name for field in fields(entity)}
    return entity(**{name: value for name, value in values.items() if name in names})


def kio(api: str, version: int, ann: Announcement, broker: Row, rows: Sequence[Row]) -> Any:  # noqa: ANN401
    of = module(api, version)
    by_name = api == STOP_REPLICA and version == VERSIONS[STOP_REPLICA][0]
    stopped = (
        of.StopReplicaTopicV1(name=topic, partition_indexes=tuple(row["partition"] for row in some))
        for topic, _, some in topics(rows)
        if by_name
    )
    told = (
        fill(
            getattr(of, f"{api}TopicState"),
            topic_name=topic,
            topic_id=as_uuid(topic_id),
            partition_states=tuple(partition(of, api, ann, row) for row in some),
        )
        for topic, topic_id, some in topics(rows)
        if not by_name
    )
    return fill(
        getattr(of, f"{api}Request"),
        controller_id=ann.controller_id,
        controller_epoch=ann.controller_epoch,
        broker_epoch=broker["broker_epoch"],
        type_=0,
        topic_states=tuple(told),
        live_leaders=tuple(live_leaders(of, ann, rows)),
        live_brokers=tuple(live_broker(of, row) for row in ann.brokers if api == UPDATE_METADATA),
        delete_partitions=False,
        topics=tuple(stopped),
    )


def topics(rows: Sequence[Row]) -> Iterator[tuple[str, str | None, list[Row]]]:
    ordered = sorted(rows, key=lambda row: (row["topic"], row["partition"]))
    for topic, some in groupby(ordered, key=lambda row: row["topic"]):
        yield topic, TOPIC_IDS[topic], list(some)


def partition(of: Any, api: str, ann: Announcement, state: Row) -> Any:  # noqa: ANN401
    live = {broker["broker_id"] for broker in ann.brokers}
    return fill(
        getattr(of, f"{api}PartitionState"),
        partition_index=state["partition"],
        controller_epoch=ann.controller_epoch,
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        isr=tuple(state["isr"]),
        partition_epoch=state["state_version"],
        zk_version=state["state_version"],
        replicas=tuple(state["replicas"]),
        adding_replicas=tuple(state["adding"]),
        removing_replicas=tuple(state["removing"]),
        offline_replicas=tuple(replica for replica in state["replicas"] if replica not in live),
        is_new=state["is_new"],
        leader_recovery_state=state["leader_recovery_state"],
        delete_partition=False,
    )


def live_leaders(of: Any, ann: Announcement, rows: Sequence[Row]) -> Iterator[Any]:  # noqa: ANN401
    leaders = {row["leader"] for row in rows}
    for broker in ann.brokers:
        if hasattr(of, "LeaderAndIsrLiveLeader") and broker["broker_id"] in leaders:
            host, port = plaintext_address(broker) or ("", -1)
            yield of.LeaderAndIsrLiveLeader(broker_id=broker["broker_id"], host_name=host, port=port)


def live_broker(of: Any, broker: Row) -> Any:  # noqa: ANN401
    found = tuple(
        fill(of.UpdateMetadataEndpoint, **endpoint | {"security_protocol": PROTOCOLS[endpoint["security_protocol"]]})
        for endpoint in broker["endpoints"]
    )
    return fill(of.UpdateMetadataBroker, id_=broker["broker_id"], endpoints=found, rack=broker["rack"])
