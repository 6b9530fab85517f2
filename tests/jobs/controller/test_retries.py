"""Brokers that answer with an error: requests are sent again after a delay, until accepted or no longer due."""

from collections.abc import Callable

import pytest

from jobs.controller.broker_requests.retries import MAX_DELAY_SECONDS, MAX_RETRIES, RetryBatch, RetryQueue
from jobs.controller.controller import ResidentController
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.znode_codecs import TopicPartition, encode_partitions
from tests.jobs.controller.model.network import ModelResponse
from tests.jobs.controller.test_auto_rebalance import context_of
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import initialize, requests_to, run_until_quiet
from tests.jobs.support.kafka.registrations import broker_without_endpoints
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

FAILED = -1
"""UNKNOWN_SERVER_ERROR."""

Wait = Callable[[float], None]


@pytest.fixture
def wait(controller: ResidentController) -> Wait:
    """Let time pass for the retries."""
    now = [1000.0]
    controller.retries.monotonic = lambda: now[0]

    def pass_(seconds: float) -> None:
        now[0] += seconds

    return pass_


@pytest.mark.parametrize("is_whole_request", [True, False])
def test_failed_leader_and_isr_is_retried(
    tree: KafkaTree, controller: ResidentController, wait: Wait, log: list[str], *, is_whole_request: bool
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    one = tree.brokers[1]
    one.refuses, one.errors = (FAILED, {}) if is_whole_request else (0, {("orders", 0): FAILED})
    tree.unregister(0)
    run_until_quiet(controller)
    assert one.leader_epochs["orders", 0] == 5
    one.refuses, one.errors = 0, {}
    before = len(one.received)
    run_until_quiet(controller)
    assert len(one.received) == before  # not before the delay
    assert not controller._is_quiet  # noqa: SLF001 - read by --until-quiet

    wait(1.0)
    run_until_quiet(controller)
    run_until_quiet(controller)

    assert one.leader_epochs["orders", 0] == 6
    assert requests_to(tree, 1, "update_metadata")["orders", 0].leader == 1
    assert controller._is_quiet  # noqa: SLF001
    assert len([line for line in log if "broker 1 responded to" in line]) == 1


def test_states_are_sent_again_after_a_refused_update_metadata(
    tree: KafkaTree, controller: ResidentController, wait: Wait
) -> None:
    """A follower ignores a LeaderAndIsr whose leader it does not know, and answers without an error."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[1].refuses = FAILED
    tree.bounce(1)
    run_until_quiet(controller)
    tree.brokers[1].refuses = 0
    before = len(tree.brokers[1].received)

    wait(1.0)
    run_until_quiet(controller)

    apis = [request.api for request in tree.brokers[1].received[before:]]
    assert (apis[0], apis.count("leader_and_isr")) == ("update_metadata", 1)


def test_deletion_continues_after_a_retry(tree: KafkaTree, controller: ResidentController, wait: Wait) -> None:
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[1].refuses = FAILED
    tree.client.create("/admin/delete_topics/old")
    run_until_quiet(controller)
    assert tree.client.exists("/brokers/topics/old")
    tree.brokers[1].refuses = 0

    wait(1.0)
    run_until_quiet(controller)

    assert tree.client.exists("/brokers/topics/old") is None
    assert tree.client.get_children("/admin/delete_topics") == []


def test_move_continues_after_a_retried_stop(tree: KafkaTree, controller: ResidentController, wait: Wait) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[0].refuses = FAILED
    tree.client.create("/admin/reassign_partitions", encode_partitions([TopicPartition("orders", 0, [1])]))
    run_until_quiet(controller)
    assert tree.assignment("orders").removing_replicas == {0: [0]}
    tree.brokers[0].refuses = 0

    wait(1.0)
    run_until_quiet(controller)

    assert tree.assignment("orders").partitions == {0: [1]}


def test_exhausted_retries_are_not_waited_for(
    tree: KafkaTree, controller: ResidentController, wait: Wait, log: list[str]
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[1].refuses = FAILED
    tree.unregister(0)
    run_until_quiet(controller)
    quiet = []
    for _ in range(MAX_RETRIES):
        quiet.append(controller._is_quiet)  # noqa: SLF001
        wait(MAX_DELAY_SECONDS)
        run_until_quiet(controller)

    assert quiet == [False] * (MAX_RETRIES - 1) + [True]
    (last_line,) = [line for line in log if "broker 1 responded to" in line][1:]
    assert last_line.endswith("with UnknownError (-1), 6 times so far: check its log; retrying")
    tree.brokers[1].refuses = 0
    wait(MAX_DELAY_SECONDS)
    run_until_quiet(controller)
    assert tree.brokers[1].leader_epochs["orders", 0] == 6


def notice(api: str = LEADER_AND_ISR, partition: int = 0, *, is_new: bool = False) -> Notice:
    return Notice(
        api=api, topic="orders", topic_id=None, partition=partition, brokers=(1,), delete_partition=False, leader=1,
        leader_epoch=1, isr=[1], replicas=[1], adding_replicas=[], removing_replicas=[], is_new=is_new,
        leader_recovery_state=0, state_version=0,
    )  # fmt: skip


class RetryHarness:
    """Responses of broker 1, and the requests that are sent again."""

    def __init__(self) -> None:
        self.context = context_of()
        self.context.brokers[1] = broker_without_endpoints(1, epoch=7)
        self.now = 1000.0
        self.queue = RetryQueue(self.context, RecordedLog(), lambda: self.now)

    def respond(self, codes: list[int], *notices: Notice, api: str = LEADER_AND_ISR, top: int = 0) -> None:
        answer = ModelResponse(self.context.brokers[1], 1, api, notices, b"", 0, top=top, codes=tuple(codes))
        self.queue.on_response(answer, answer.errors())

    def due_batches(self, idle: tuple[int, ...] = (1,)) -> list[RetryBatch]:
        return [*self.queue.due_retries(idle)]


@pytest.mark.parametrize(
    ("api", "error", "top", "is_retried"),
    [
        (LEADER_AND_ISR, 0, 0, False),
        (LEADER_AND_ISR, 11, 0, False),  # the broker has it already
        (LEADER_AND_ISR, 11, 11, True),
        (LEADER_AND_ISR, 56, 0, False),  # its log dir failed, which a retry cannot change
        (LEADER_AND_ISR, 3, 0, True),
        (LEADER_AND_ISR, -1, -1, True),
        (LEADER_AND_ISR, 31, 31, True),
        (STOP_REPLICA, 56, 0, False),
        (STOP_REPLICA, 74, 0, True),
        (STOP_REPLICA, -1, -1, True),
        (UPDATE_METADATA, -1, -1, True),
        (UPDATE_METADATA, 0, 0, False),
    ],
)
def test_which_errors_are_retried(api: str, error: int, top: int, *, is_retried: bool) -> None:
    harness = RetryHarness()
    harness.respond([error], notice(api), api=api, top=top)
    harness.now += 1.0

    # a broker without metadata ignores states whose leader it does not know
    batch = RetryBatch(1, [notice(api)], needs_full_state=api == UPDATE_METADATA)
    assert harness.due_batches() == ([batch] if is_retried else [])


def test_delay_doubles_up_to_the_maximum_and_resets() -> None:
    harness = RetryHarness()
    pauses = []
    for _ in range(7):
        harness.respond([-1], notice())
        pauses.append(harness.queue.next_delay(60.0))
        harness.now += pauses[-1]
        assert len(harness.due_batches()) == 1
        assert harness.due_batches(idle=()) == []
    harness.respond([0], notice())
    assert harness.due_batches() == []
    harness.respond([-1], notice())

    assert [*pauses, harness.queue.next_delay(60.0)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 1.0]


def test_accepted_or_outdated_notices_are_not_retried() -> None:
    harness = RetryHarness()
    harness.respond([-1, -1], notice(is_new=True), notice(partition=1))
    harness.respond([0, -1], notice(partition=1), notice())
    harness.now += 1.0
    assert harness.due_batches() == [
        RetryBatch(1, [notice(is_new=True)], needs_full_state=False)
    ]  # the replica is still new

    harness.respond([-1], notice())
    harness.context.brokers[1] = broker_without_endpoints(1, epoch=8)
    harness.now += MAX_DELAY_SECONDS
    assert harness.due_batches() == []
    assert harness.queue.is_quiet


def test_refused_live_brokers_require_full_state() -> None:
    harness = RetryHarness()
    harness.respond([], api=UPDATE_METADATA, top=-1)
    harness.now += 1.0

    assert harness.due_batches() == [RetryBatch(1, [], needs_full_state=True)]
