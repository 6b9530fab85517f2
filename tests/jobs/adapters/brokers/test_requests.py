"""Control requests to real brokers: every version we speak is understood, and every answer is laid out by partition."""

import socket
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jobs.adapters.brokers import control_encoding
from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.controllership import Controllership, controllership
from jobs.core.arrow_rows import as_rows
from jobs.execution.batch.fenced_writer import FencedWriter
from planner.broker_requests import notices_for
from schemas.enums import Outcome
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from schemas.response_codes import NOT_SENT
from schemas.rows import Row, changes_among
from schemas.stored_plan import RowOutcome
from tests.jobs.support.kafka.real_cluster import id_of, kafka_tree, topic_metadata
from tests.jobs.support.kafka.registrations import broker_at
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

OURS = 2147483647
TOPIC_IDS = {"with-id": id_of("with-id"), "without-1": None, "without-2": None}


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as tree:
        yield tree


@pytest.fixture
def control(kafka: KafkaTree) -> Iterator[Controllership]:
    with controllership(kafka.endpoint, OURS) as held:
        yield held


def write(
    kafka: KafkaTree, control: Controllership, warehouse: Warehouse, changes: list[Row], *operations: Row
) -> list[RowOutcome]:
    plan = store_plan(warehouse, kafka, changes, operations)
    return [v for outcomes in FencedWriter(control, 60, plan).write(plan.changes, plan.broker_epochs) for v in outcomes]


def create(
    kafka: KafkaTree, control: Controllership, warehouse: Warehouse, topic: str, replicas: list[int]
) -> list[RowOutcome]:
    topic_id = id_of(topic)
    return write(
        kafka, control, warehouse, [creation(topic, 0, replicas, topic_id)], topic_creation(topic, {}, topic_id)
    )


def announcement(kafka: KafkaTree, control: Controllership, written: list[RowOutcome]) -> ControlBatch:
    brokers = read_cluster(kafka.client).brokers
    notices = notices_for(
        changes_among(row.change for row in written if row.outcome is Outcome.APPLIED),
        {row.broker_id for row in brokers},
    )
    return ControlBatch(control.controller_id, control.epoch, brokers, notices)


def send_and_wait(batch: ControlBatch, seconds: float = 20) -> list[Row]:
    with ChannelManager(str(OURS)) as channels:
        return as_rows(BrokerResponses.of(deliver(channels, batch, time.monotonic() + seconds)).table("default"))


def errors(answers: list[Row], topic: str | None = None) -> set[int]:
    return {row["error"] for row in answers if topic in (None, row.get("topic"))}


@pytest.mark.parametrize(("leader_and_isr", "update_metadata"), [(4, 6), (5, 7), (6, 7), (7, 8)])
def test_every_version_is_accepted(  # noqa: PLR0913, PLR0917 - fixtures
    cluster: EmbeddedCluster,
    kafka: KafkaTree,
    control: Controllership,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    leader_and_isr: int,
    update_metadata: int,
) -> None:
    """A topic is created, then its leader moved, in these versions; every broker shows it."""
    versions = {
        LEADER_AND_ISR: range(4, leader_and_isr + 1),
        UPDATE_METADATA: range(6, update_metadata + 1),
        STOP_REPLICA: range(2, 3),
    }
    monkeypatch.setattr(control_encoding, "VERSIONS", versions)
    topic = f"v{leader_and_isr}"
    created = create(kafka, control, warehouse, topic, [0, 1, 2])
    first = send_and_wait(announcement(kafka, control, created))

    second = send_and_wait(
        announcement(kafka, control, write(kafka, control, warehouse, [election(kafka, topic, 0, leader=1)]))
    )

    assert errors(first) == errors(second) == {0}
    for broker in cluster.brokers.values():
        assert topic_metadata(broker.address, topic) == {0: (1, [0, 1, 2], [0, 1, 2])}


def test_a_repeated_request_is_answered_11(kafka: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    topic = "told-twice"
    written = create(kafka, control, warehouse, topic, [0, 1])
    batch = announcement(kafka, control, written)

    first, second = send_and_wait(batch), send_and_wait(batch)

    assert errors(first) == {0}
    assert {(row["api"], row["error"]) for row in second} == {("UpdateMetadata", 0), ("LeaderAndIsr", 11)}


def test_answers_name_their_topic_with_and_without_id(
    kafka: KafkaTree, control: Controllership, warehouse: Warehouse
) -> None:
    """From version 5 on brokers answer by topic id: topics that have none would be taken for one another."""
    written = [
        outcome
        for topic, topic_id in TOPIC_IDS.items()
        for outcome in write(
            kafka, control, warehouse, [creation(topic, 0, [0], topic_id)], topic_creation(topic, {}, topic_id)
        )
    ]
    send_and_wait(announcement(kafka, control, written[1:2]))

    answers = [row for row in send_and_wait(announcement(kafka, control, written)) if row["api"] == "LeaderAndIsr"]

    assert {row["topic"]: row["error"] for row in answers} == {"with-id": 0, "without-1": 11, "without-2": 0}


def test_older_controller_epoch_is_refused(kafka: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    topic = "stale-controller"
    written = create(kafka, control, warehouse, topic, [0, 1])
    now = announcement(kafka, control, written)
    send_and_wait(now)

    answers = send_and_wait(ControlBatch(now.controller_id, now.controller_epoch - 1, now.brokers, now.notices))

    assert errors(answers) == {11}


def test_older_broker_epoch_is_refused(kafka: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    topic = "stale-broker"
    written = create(kafka, control, warehouse, topic, [0, 1])
    now = announcement(kafka, control, written)
    bounced = [replace(broker, broker_epoch=broker.zk_broker_epoch - 1) for broker in now.brokers]

    answers = send_and_wait(ControlBatch(now.controller_id, now.controller_epoch, bounced, now.notices))

    assert errors(answers) == {77}


def test_only_those_named_get_leader_and_isr(kafka: KafkaTree, control: Controllership, warehouse: Warehouse) -> None:
    topic = "two-of-three"
    written = create(kafka, control, warehouse, topic, [2, 0])

    answers = send_and_wait(announcement(kafka, control, written))

    assert {row["broker_id"] for row in answers if row["api"] == "LeaderAndIsr"} == {0, 2}
    assert {row["broker_id"] for row in answers if row["api"] == "UpdateMetadata"} == {0, 1, 2}


def test_a_broker_that_does_not_listen_is_tried_until_the_deadline() -> None:
    started = time.monotonic()

    answers = send_and_wait(ControlBatch(OURS, 1, [broker_at(free_port(), 0)], []), seconds=0.5)

    assert errors(answers) == {NOT_SENT}
    assert 0.3 < time.monotonic() - started < 12


def test_silent_broker_does_not_keep_us_past_the_deadline() -> None:
    """It takes the connection and never answers, as one that is stopped does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        answers = send_and_wait(ControlBatch(OURS, 1, [broker_at(silent.getsockname()[1], 0)], []), seconds=1)

    assert errors(answers) == {NOT_SENT}
    assert time.monotonic() - started < 12


def test_no_brokers_to_notify() -> None:
    assert send_and_wait(ControlBatch(OURS, 1, [], [])) == []
