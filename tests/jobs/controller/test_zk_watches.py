"""Watches that are lost with a connection, and a ZooKeeper that stays unreachable."""

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError

from jobs.controller.controller import ResidentController
from jobs.controller.zk_watches import ZkWatches
from tests.jobs.support.controllers.resident import drain_watches, initialize, put_assignment, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TOPIC = "/brokers/topics/orders"


class _Answer:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def get(self, timeout: float | None = None) -> object:
        assert timeout is not None, "a wait without a timeout"
        if self.error is not None:
            raise self.error
        return None


class _Client:
    """Returns the given errors, one after the other."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = [*errors]

    def exists_async(self, _path: str, watch: object) -> _Answer:
        assert watch is not None
        return _Answer(self.errors.pop(0))


def test_watches_that_cannot_be_set_count_as_fired() -> None:
    watches = ZkWatches(_Client(None, ConnectionLoss(), None))
    with pytest.raises(ConnectionLoss):
        watches.watch(["/a", "/b", "/c"])

    watches.client = _Client(None, NoNodeError(), None)
    assert watches.drain() == {"/a", "/b", "/c"}
    assert watches.drain() == set()


def test_waiting_for_zookeeper_is_bounded() -> None:
    watches = ZkWatches(_Client(OperationTimeoutError()))
    with pytest.raises(OperationTimeoutError):
        watches.watch(["/a"])


def test_lost_watch_of_a_topic_is_set_again(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost a second time, while all watches are set again after the first."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    arm, losses = KazooClient.exists_async, [ConnectionLoss()]

    def lose_once(client: KazooClient, path: str, watch: object = None) -> object:
        if watch is None or path != TOPIC or not losses:
            return arm(client, path, watch)
        pending = client.handler.async_result()
        pending.set_exception(losses.pop())
        return pending

    monkeypatch.setattr(KazooClient, "exists_async", lose_once)
    tree.touch(TOPIC)
    drain_watches(controller)
    controller.run(until_quiet=True)
    assert not losses

    put_assignment(tree, "orders", {0: [0, 1], 1: [1, 2]})
    run_until_quiet(controller)
    assert tree.state("orders", 1).leader == 1
