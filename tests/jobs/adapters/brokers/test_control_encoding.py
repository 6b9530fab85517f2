"""Control requests as bytes are those that kio makes, in every version that is spoken."""

import importlib
import io
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from itertools import groupby
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from msgspec.structs import asdict

from jobs.adapters.brokers import control_encoding
from jobs.adapters.brokers.control_encoding import (
    VERSIONS,
    ControlBatch,
    DeadlineExceededError,
    EncodedRequests,
    as_uuid,
    header,
)
from planner.broker_requests import notices_for
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.registrations import broker_without_endpoints
from tests.typed_rows import typed

NEVER = math.inf
I32 = st.integers(-(2**31), 2**31 - 1)
MODULES = {LEADER_AND_ISR: "leader_and_isr", STOP_REPLICA: "stop_replica", UPDATE_METADATA: "update_metadata"}
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

ids = st.lists(st.integers(0, 9), max_size=5)
endpoints = st.builds(
    Endpoint,
    host=st.text(max_size=200),
    port=I32,
    listener=st.text(max_size=20),
    security_protocol=st.sampled_from([*PROTOCOLS]),
)
brokers = st.lists(
    st.builds(
        Broker,
        broker_id=st.integers(0, 9),
        broker_epoch=st.integers(-1, 2**63 - 1),
        endpoints=st.lists(endpoints, max_size=3),
        rack=st.none() | st.text(max_size=5),
        understood=st.just(True),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda broker: broker.broker_id,
)
TOPIC_IDS = {"a": None, "b": "AAAAAAAAAAAAAAAAAAAAAg", "ü" * 70: "r8iTzkX6SnyvLkbjRRRoow"}


def notice(**values: Any) -> Notice:  # noqa: ANN401 - of a column each
    return Notice(topic_id=TOPIC_IDS[values["topic"]], **values)


notices = st.lists(
    st.builds(
        notice,
        api=st.sampled_from([*MODULES]),
        topic=st.sampled_from([*TOPIC_IDS]),
        partition=st.integers(0, 300),
        brokers=st.sampled_from([(0, 1, 2, 3), (0,)]) | st.sets(st.integers(0, 9), min_size=1).map(sorted).map(tuple),
        delete_partition=st.booleans(),
        leader=I32,
        leader_epoch=I32,
        isr=ids,
        replicas=ids,
        adding_replicas=ids,
        removing_replicas=ids,
        is_new=st.booleans(),
        leader_recovery_state=st.integers(0, 1),
        state_version=I32,
    ),
    max_size=140,
    unique_by=lambda notice: (notice.api, notice.topic, notice.partition),
)


@given(brokers, notices, I32, st.integers(0, 2**31 - 1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_request_is_what_kio_makes(
    live: list[Broker], notices: list[Notice], epoch: int, controller: int
) -> None:
    announcement = ControlBatch(controller, epoch, live, notices)
    messages = EncodedRequests(announcement, NEVER)
    for broker in live:
        for request in messages.requests(broker.broker_id):
            for version in request.versions:
                ours = b"".join(messages.body(request, version, broker.zk_broker_epoch))
                assert ours == written(kio(request.api, version, announcement, broker, request.notices)), request.api


@given(brokers, notices)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_notice_goes_to_its_brokers_once(live: list[Broker], notices: list[Notice]) -> None:
    messages = EncodedRequests(ControlBatch(7, 8, live, notices), NEVER)
    for broker in (row.broker_id for row in live):
        requests = messages.requests(broker)
        sent = [(request.api, notice) for request in requests for notice in request.notices]
        assert sorted(sent, key=str) == sorted(((one.api, one) for one in notices if broker in one.brokers), key=str)
        flags = [
            {one.delete_partition for one in request.notices} for request in requests if request.api == STOP_REPLICA
        ]
        assert flags in ([], [{True}], [{False}], [{True}, {False}])


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
    (notice,) = (one for one in notices_for([typed(leader_epoch_after=1, leader_recovery_state_after=0)], {1}))
    messages = EncodedRequests(ControlBatch(7, 8, [broker_without_endpoints(1)], [notice]), time.monotonic() - 1)

    with pytest.raises(DeadlineExceededError):
        messages.body(messages.requests(1)[1], 4, 1)


def test_metadata_is_encoded_once_for_all_brokers_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    live = [broker_without_endpoints(broker, epoch=broker) for broker in range(8)]
    notices = notices_for([typed(leader_epoch_after=1, leader_recovery_state_after=0)], range(8))
    messages = EncodedRequests(ControlBatch(7, 8, live, notices), NEVER)
    encoded = Mock(wraps=vars(control_encoding)["_live_broker"])
    monkeypatch.setattr(control_encoding, "_live_broker", encoded)

    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda broker: messages.body(messages.requests(broker)[-1], 8, broker), range(8)))

    assert encoded.call_count == len(live)
    assert len({id(body[1]) for body in bodies}) == 1
    assert len({body[0] for body in bodies}) == 8


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


def kio(api: str, version: int, ann: ControlBatch, broker: Broker, rows: Sequence[Notice]) -> Any:  # noqa: ANN401
    of = module(api, version)
    by_name = api == STOP_REPLICA and version == VERSIONS[STOP_REPLICA][0]
    stopped = (
        of.StopReplicaTopicV1(name=topic, partition_indexes=tuple(row.partition for row in some))
        for topic, _, some in topics(rows)
        if by_name
    )
    topic_states = (
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
        broker_epoch=broker.broker_epoch,
        type_=0,
        topic_states=tuple(topic_states),
        live_leaders=tuple(live_leaders(of, ann, rows)),
        live_brokers=tuple(live_broker(of, row) for row in ann.brokers if api == UPDATE_METADATA),
        delete_partitions=any(row.delete_partition for row in rows),
        topics=tuple(stopped),
    )


def topics(rows: Sequence[Notice]) -> Iterator[tuple[str, str | None, list[Notice]]]:
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition))
    for topic, some in groupby(ordered, key=lambda row: row.topic):
        yield topic, TOPIC_IDS[topic], list(some)


def partition(of: Any, api: str, ann: ControlBatch, notice: Notice) -> Any:  # noqa: ANN401
    live = {broker.broker_id for broker in ann.brokers}
    return fill(
        getattr(of, f"{api}PartitionState"),
        partition_index=notice.partition,
        controller_epoch=ann.controller_epoch,
        leader=notice.leader,
        leader_epoch=notice.leader_epoch,
        isr=tuple(notice.isr),
        partition_epoch=notice.state_version,
        zk_version=notice.state_version,
        replicas=tuple(notice.replicas),
        adding_replicas=tuple(notice.adding_replicas),
        removing_replicas=tuple(notice.removing_replicas),
        offline_replicas=tuple(replica for replica in notice.replicas if replica not in live),
        is_new=notice.is_new,
        leader_recovery_state=notice.leader_recovery_state,
        delete_partition=notice.delete_partition,
    )


def live_leaders(of: Any, ann: ControlBatch, rows: Sequence[Notice]) -> Iterator[Any]:  # noqa: ANN401
    leaders = {row.leader for row in rows}
    for broker in ann.brokers:
        if hasattr(of, "LeaderAndIsrLiveLeader") and broker.broker_id in leaders:
            host, port = (broker.endpoints[0].host, broker.endpoints[0].port) if broker.endpoints else ("", -1)
            yield of.LeaderAndIsrLiveLeader(broker_id=broker.broker_id, host_name=host, port=port)


def live_broker(of: Any, broker: Broker) -> Any:  # noqa: ANN401
    addresses = tuple(
        fill(
            of.UpdateMetadataEndpoint,
            **asdict(endpoint) | {"security_protocol": PROTOCOLS[endpoint.security_protocol]},
        )
        for endpoint in broker.endpoints or ()
    )
    return fill(of.UpdateMetadataBroker, id_=broker.broker_id, endpoints=addresses, rack=broker.rack)
