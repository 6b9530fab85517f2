"""What Kafka's controller does to ZooKeeper when the Admin API requests reassignments; there is no data to move.

Written from KIP-455 independently, so that it shares no code with what is tested. A reassignment that adds replicas
runs until the test calls `finish`; the response or the whole caller can be lost, before or after the request is done.
"""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from schemas.enums import NO_LEADER
from schemas.rows import Key
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state
from tests.jobs.support.controllers.throttled_tree import answer_as_admin
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

NOTHING_RUNS = 85
INVALID = 39


class CrashError(BaseException):
    """Ends the process: no code catches it."""


class CancellingController:
    """Replaces `Admin`; `requests` contains what each call requested.

    `before_request` and `after_request` are called with each.
    """

    def __init__(self, tree: KafkaTree) -> None:
        self.tree = tree
        self.requests: list[dict[Key, list[int] | None]] = []
        self.refuses: set[Key] = set()
        self.loses: dict[int, tuple[type[BaseException], bool]] = {}
        """By number of the call, from 1: what is raised, and whether what was asked is done before."""
        self.before_request: Callable[[], object] = lambda: None
        self.after_request: Callable[[], object] = lambda: None

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        self.before_request()
        self.requests.append(dict(targets))
        error, done = self.loses.pop(len(self.requests), (None, True))
        codes = {key: self.begin(key, replicas) for key, replicas in targets.items()} if done else {}
        self.after_request()
        if error is not None:
            raise error
        return codes

    def elect_preferred(self, keys: Sequence[Key]) -> dict[Key, int]:
        for key in keys:
            self.put_state(*key, self.assigned(*key)[0][0], self.tree.state(*key).isr)
        return dict.fromkeys(keys, 0)

    def unresponsive_reason(self) -> None:
        """It responds."""

    def reassignments(self) -> dict[Key, list[int]]:
        """The target of each moving partition."""
        moving = {}
        for topic in self.tree.client.get_children("/brokers/topics"):
            assignment = self.tree.assignment(topic)
            for partition, replicas in assignment.partitions.items():
                removing = assignment.removing_replicas.get(partition, [])
                if removing or assignment.adding_replicas.get(partition):
                    moving[topic, partition] = [replica for replica in replicas if replica not in removing]
        return moving

    def crash_at(self, call: int, *, done: bool) -> None:
        self.loses[call] = (CrashError, done)

    def lose_answer_of(self, call: int, *, done: bool) -> None:
        self.loses[call] = (KafkaTimeoutError, done)

    def finish(self, topic: str, partition: int = 0) -> None:
        """The new replicas are in sync: the reassignment is complete."""
        replicas, _adding, removing = self.assigned(topic, partition)
        target = [replica for replica in replicas if replica not in removing]
        self._write(topic, partition, target, [], [])
        leader = self.tree.state(topic, partition).leader
        self.put_state(topic, partition, leader if leader in target else target[0], target)

    def assigned(self, topic: str, partition: int = 0) -> tuple[list[int], list[int], list[int]]:
        assignment = self.tree.assignment(topic)
        adding, removing = (
            lists.get(partition, []) for lists in (assignment.adding_replicas, assignment.removing_replicas)
        )
        return assignment.partitions[partition], adding, removing

    def put_state(self, topic: str, partition: int, leader: int, isr: list[int]) -> None:
        epoch = self.tree.state(topic, partition).leader_epoch
        state = State(controller_epoch=7, leader=leader, leader_epoch=epoch + 1, isr=isr)
        self.tree.write(state_path(topic, partition), encode_state(state))

    def begin(self, key: Key, order: list[int] | None) -> int:
        """Begin a reassignment, or cancel it with None; return the error code."""
        if order is None and not self.tree.client.exists(f"/brokers/topics/{key[0]}"):
            return NOTHING_RUNS
        replicas, adding, removing = self.assigned(*key)
        if key in self.refuses:
            return INVALID
        if order is None and not adding and not removing:
            return NOTHING_RUNS
        origin = [replica for replica in replicas if replica not in adding]
        target = origin if order is None else order
        full = target + [replica for replica in origin if replica not in target]
        more, less = sorted(set(full) - set(origin)), sorted(set(full) - set(target))
        self._write(*key, full, more, less)
        state = self.tree.state(*key)
        isr = [replica for replica in state.isr if replica in full] or state.isr  # an ISR is never empty
        leader = state.leader if state.leader in full else next((b for b in target if b in isr), NO_LEADER)
        self.put_state(*key, leader, isr)
        if less and not more:
            self.finish(*key)
        return 0

    def _write(self, topic: str, partition: int, replicas: list[int], adding: list[int], removing: list[int]) -> None:
        assignment = self.tree.assignment(topic)
        lists: list[dict[int, list[int]]] = [
            assignment.partitions,
            assignment.adding_replicas,
            assignment.removing_replicas,
        ]
        for its_list, brokers in zip(lists, (replicas, adding, removing), strict=True):
            its_list.pop(partition, None)
            if brokers:
                its_list[partition] = brokers
        written = Assignment(lists[0], lists[1], lists[2], assignment.topic_id)
        self.tree.write(f"/brokers/topics/{topic}", encode_assignment(written))


def installed(monkeypatch: pytest.MonkeyPatch, tree: KafkaTree) -> CancellingController:
    """Let all commands use this controller."""
    controller = CancellingController(tree)
    answer_as_admin(controller, monkeypatch)
    monkeypatch.setattr("jobs.execution.admin.admin_commit.CANCELLATION_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr("jobs.execution.admin.controller_client.READ_BACK_SECONDS", 0.0)
    return controller


def delay_once(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, happens: Callable[[], object]
) -> SimpleNamespace:
    """Let the first call of a method take ten minutes, in which this happens; return the clock that shows it."""
    original, seconds = getattr(owner, method), [0.0]

    def delayed(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        result = original(*arguments)
        if seconds[0] == 0.0:
            seconds[0] = 600.0
            happens()
        return result

    monkeypatch.setattr(owner, method, delayed)
    return SimpleNamespace(monotonic=lambda: seconds[0], time=lambda: seconds[0])
