"""Requests that no broker sends are answered, and change nothing; the next request of a leader is answered as ever."""

import importlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.adapters.brokers.control_encoding import as_uuid
from jobs.adapters.request_server.messages import Header, encode_response
from jobs.controller.broker_apis.controller_api_messages import ALTER_PARTITION
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from tests.jobs.controller.broker_apis.asking import CALLER, SECONDS, AskingBrokers, Proposed
from tests.jobs.support.controllers.resident import initialize
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-2, 9)
TOPICS = st.sampled_from(["orders", "", ".", "..", "a/../b", "orders/partitions", "a\0b", "t" * 10_000, "ä"])
TOPIC_IDS = st.sampled_from([TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "_____________________w"])


@st.composite
def requests(draw: st.DrawFn, epoch: int) -> tuple[int, Any]:
    """An AlterPartition request of any version, with broker 0's epoch or another one."""
    version = draw(st.integers(0, 3))
    module = importlib.import_module(f"kio.schema.alter_partition.v{version}.request")

    def partition() -> Any:  # noqa: ANN401 - of kio
        members = draw(st.lists(SMALL | INT32, max_size=6))
        isr: dict[str, Any] = {"new_isr": tuple(members)}
        if version >= 3:
            states = (module.BrokerState(broker_id=b, broker_epoch=draw(st.just(-1) | INT64)) for b in members)
            isr = {"new_isr_with_epochs": tuple(states)}
        recovery = {"leader_recovery_state": draw(st.integers(-128, 127))} if version else {}
        return module.PartitionData(
            partition_index=draw(SMALL | INT32),
            leader_epoch=draw(st.just(5) | INT32),
            partition_epoch=draw(st.just(0) | INT32),
            **isr,
            **recovery,
        )

    def topic() -> Any:  # noqa: ANN401 - of kio
        name = {"topic_id": as_uuid(draw(TOPIC_IDS))} if version >= 2 else {"topic_name": draw(TOPICS)}
        return module.TopicData(**name, partitions=tuple(partition() for _ in range(draw(st.integers(0, 4)))))

    topics = tuple(topic() for _ in range(draw(st.integers(0, 3))))
    return version, module.AlterPartitionRequest(
        broker_id=draw(st.sampled_from([0, 1, 7, -1, 2**31 - 1])),
        broker_epoch=draw(st.just(epoch) | INT64),
        topics=topics,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_request_is_answered(
    tree: KafkaTree,
    controller: ResidentController,
    request_handler: RequestHandler,
    asking: AskingBrokers,
    data: st.DataObject,
) -> None:
    if not controller.context.partitions:
        tree.add_topic("orders", {0: [0, 1, 2], 1: [0, 1, 2]})
        tree.add_topic("payments", {0: [2, 1]}, topic_id=None)
        initialize(controller)
    version, request = data.draw(requests(asking.epoch(0)))

    response = request_handler.submit(CALLER, ALTER_PARTITION, version, request).result(SECONDS)

    encoded = encode_response(Header(ALTER_PARTITION, version, 1, None, 0), response)
    assert encoded
    controller.cycle()
    for number in (0, 1):
        assert 0 in tree.state("orders", number).isr
        assert {*tree.state("orders", number).isr} <= {0, 1, 2}
    state = tree.state("payments")
    wanted = [2] if len(state.isr) > 1 else [2, 1]
    asked = Proposed(wanted, partition_epoch=tree.version("payments"))
    assert asking.alter(2, asked, topic="payments", version=1) == [(0, wanted, tree.version("payments"))]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_request_about_nothing_is_answered(
    controller: ResidentController, asking: AskingBrokers, version: int
) -> None:
    initialize(controller)

    assert asking.alter(0, version=version) == []
