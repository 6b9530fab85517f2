"""What Kafka's controller does to ZooKeeper when the Admin API or a request in /admin asks it; no data moves.

Written from KIP-455 independently, so that it shares no code with what is tested. A reassignment that adds replicas
runs until `finish`, or until time passes. The response or the whole caller can be lost, before or after the request is
done.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kafka.errors import KafkaTimeoutError

from jobs.adapters.brokers.admin_client import Creation
from jobs.runtime.pace import Pace
from schemas.enums import NO_LEADER
from schemas.rows import Key
from schemas.znode_codecs import Assignment, State, decode_partitions, encode_assignment, encode_state
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.controllers.throttled_tree import ConfigBrokers, override
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

NOTHING_RUNS: Final = 85
INVALID: Final = 39
REASSIGN: Final = "/admin/reassign_partitions"
PREFERRED: Final = "/admin/preferred_replica_election"
ITS_ID: Final = "KafkaGivesItThisTopicA"
"""The topic id of all topics that it creates."""


class KilledError(BaseException):
    """Ends the process: no code catches it."""


class KafkaController(ConfigBrokers):
    """Replaces `Admin`; `requests` contains what each reassignment requested.

    `events` are called, one for each wait of the caller, before anything moves. `before_request` and `after_request`
    are called with each reassignment that is requested.
    """

    def __init__(self, tree: KafkaTree) -> None:
        super().__init__(tree)
        self.requests: list[dict[Key, list[int] | None]] = []
        self.elected: list[Key] = []
        self.events: list[Callable[[], object]] = []
        self.lagging: set[Key] = set()
        self.stuck = False
        self.refused_moves: set[Key] = set()
        self.loses: dict[int, tuple[type[BaseException], bool]] = {}
        """By number of the call, from 1: what is raised, and whether what was asked is done before."""
        self.before_request: Callable[[], object] = lambda: None
        self.after_request: Callable[[], object] = lambda: None

    @property
    def pace(self) -> Pace:
        """The pace of commands that let the controller's time pass while they wait."""
        clock = SimpleNamespace(sleep=self.step, monotonic=time.monotonic, time=time.time)
        return replace(NO_TAKEOVER, clock=clock, previous_wave=0.0)

    @property
    def waves(self) -> list[list[Key]]:
        """The partitions of each request."""
        return [sorted(request) for request in self.requests]

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        self.before_request()
        self.requests.append(dict(targets))
        error, done = self.loses.pop(len(self.requests), (None, True))
        codes = {key: self.begin(key, replicas) for key, replicas in targets.items()} if done else {}
        self.after_request()
        if error is not None:
            raise error
        return codes

    def crash_at(self, call: int, *, done: bool) -> None:
        self.loses[call] = (KilledError, done)

    def lose_answer_of(self, call: int, *, done: bool) -> None:
        self.loses[call] = (KafkaTimeoutError, done)

    def unresponsive_reason(self) -> None:
        """It responds."""

    def reassignments(self) -> dict[Key, list[int]]:
        """The target of each moving partition."""
        moving = {}
        for topic in self.tree.client.get_children("/brokers/topics"):
            for partition in self.replicas(topic):
                replicas, adding, removing = self.assigned(topic, partition)
                if adding or removing:
                    moving[topic, partition] = [replica for replica in replicas if replica not in removing]
        return moving

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        self._elect(partitions)
        return dict.fromkeys(partitions, 0)

    def create_topics(self, topics: Mapping[str, Creation]) -> dict[str, int]:
        for topic, (replicas, config) in topics.items():
            override(self.tree, "topic", topic, config)
            self._create(topic, Assignment(dict(replicas), {}, {}, ITS_ID), replicas)
        return dict.fromkeys(topics, 0)

    def create_partitions(self, topic: str, total: int, added: list[list[int]]) -> int:
        assignment = self.tree.assignment(topic)
        more = dict(enumerate(added, len(assignment.partitions)))
        assert len(assignment.partitions) + len(more) == total
        self._create(topic, Assignment({**assignment.partitions, **more}, {}, {}, assignment.topic_id), more)
        return 0

    def alter_config(self, topic: str, entries: Mapping[str, str | None]) -> int:
        override(self.tree, "topic", topic, entries)
        change = f'{{"version":2,"entity_path":"topics/{topic}"}}'.encode()
        self.tree.client.create("/config/changes/config_change_", change, sequence=True, makepath=True)
        return 0

    def delete_topics(self, topics: Mapping[str, str | None]) -> dict[str, int]:
        for topic in topics:
            self.tree.write(f"/admin/delete_topics/{topic}", b"")
            for path in (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"):
                self.tree.client.delete(path, recursive=True)
        return dict.fromkeys(topics, 0)

    def begin(self, key: Key, order: list[int] | None) -> int:
        """Begin a reassignment, or cancel it with None; return the error code."""
        if order is None and not self.tree.client.exists(f"/brokers/topics/{key[0]}"):
            return NOTHING_RUNS
        replicas, adding, removing = self.assigned(*key)
        if key in self.refused_moves:
            return INVALID
        if order is None and not adding and not removing:
            return NOTHING_RUNS
        origin = [replica for replica in replicas if replica not in adding]
        target = origin if order is None else order
        full = target + [replica for replica in origin if replica not in target]
        more, less = sorted(set(full) - set(origin)), sorted(set(full) - set(target))
        self._assign(key, full, more, less)
        state = self.tree.state(*key)
        isr = [replica for replica in state.isr if replica in full] or state.isr  # an ISR is never empty
        leader = state.leader if state.leader in full else next((b for b in target if b in isr), NO_LEADER)
        self.set_state(key, leader=leader, isr=isr)
        if less and not more:
            self.finish(key)
        return 0

    def finish(self, key: Key) -> None:
        """The target is in sync and assigned alone; of a lagging partition only its first replica is in sync."""
        replicas, _adding, removing = self.assigned(*key)
        target = [replica for replica in replicas if replica not in removing]
        self._assign(key, target, [], [])
        leader = self.tree.state(*key).leader
        isr = target[:1] if key in self.lagging else target
        self.set_state(key, leader=leader if leader in isr else isr[0], isr=isr)

    def finish_all(self, topic: str | None = None) -> None:
        for key in self.reassignments():
            if topic in {None, key[0]}:
                self.finish(key)

    def catch_up(self) -> None:
        for topic, partition in self.lagging:
            self.set_state((topic, partition), isr=self.replicas(topic)[partition])

    def step(self, _seconds: float = 0) -> None:
        """Let some time pass."""
        if self.events:
            self.events.pop(0)()
            return
        self._obey()
        if not self.stuck:
            self.finish_all()

    def replicas(self, topic: str) -> dict[int, list[int]]:
        return self.tree.assignment(topic).partitions

    def assigned(self, topic: str, partition: int = 0) -> tuple[list[int], list[int], list[int]]:
        """The replicas of a partition, and those that are being added and removed."""
        assignment = self.tree.assignment(topic)
        adding, removing = (
            lists.get(partition, []) for lists in (assignment.adding_replicas, assignment.removing_replicas)
        )
        return assignment.partitions[partition], adding, removing

    def set_state(self, key: Key, **changes: Any) -> None:  # noqa: ANN401 - fields of a state
        state = self.tree.state(*key)
        fields = {"leader": state.leader, "isr": state.isr, **changes}
        written = State(controller_epoch=7, leader_epoch=state.leader_epoch + 1, **fields)
        self.tree.write(state_path(*key), encode_state(written))

    def _elect(self, partitions: Sequence[Key]) -> None:
        self.elected += partitions
        for key in partitions:
            first = self.assigned(*key)[0][0]
            if self.tree.state(*key).leader != first:
                self.set_state(key, leader=first)

    def _obey(self) -> None:
        """Carry out the requests in /admin, and remove a request once it is complete."""
        if elections := self._ordered(PREFERRED):
            self._elect([*elections])
            self.tree.client.delete(PREFERRED)
        orders, moving = self._ordered(REASSIGN), self.reassignments()
        for key, replicas in orders.items():
            if key not in moving and self.assigned(*key)[0] != replicas:
                self.begin(key, replicas)
        if orders and all(self.assigned(*key) == (replicas, [], []) for key, replicas in orders.items()):
            self.tree.client.delete(REASSIGN)
            self.requests.append({**orders})

    def _ordered(self, path: str) -> dict[Key, list[int]]:
        client = self.tree.client
        orders = decode_partitions(client.get(path)[0]) if client.exists(path) else []
        return {(order.topic, order.partition): order.replicas or [] for order in orders}

    def _assign(self, key: Key, replicas: list[int], adding: list[int], removing: list[int]) -> None:
        topic, partition = key
        now = self.tree.assignment(topic)
        lists = [now.partitions, now.adding_replicas, now.removing_replicas]
        for brokers_of, brokers in zip(lists, (replicas, adding, removing), strict=True):
            brokers_of.pop(partition, None)
            if brokers:
                brokers_of[partition] = brokers
        self.tree.write(
            f"/brokers/topics/{topic}", encode_assignment(Assignment(lists[0], lists[1], lists[2], now.topic_id))
        )

    def _create(self, topic: str, assignment: Assignment, new: Mapping[int, list[int]]) -> None:
        """Write a topic, and the first states of its new partitions."""
        self.tree.write(f"/brokers/topics/{topic}", encode_assignment(assignment))
        for partition, replicas in new.items():
            state = State(controller_epoch=7, leader=replicas[0], leader_epoch=0, isr=replicas)
            self.tree.write(state_path(topic, partition), encode_state(state))


def delay_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,  # noqa: ANN401 - a class or a module
    method: str,
    happens: Callable[[], object],
    when: Callable[[], object] = lambda: True,
) -> SimpleNamespace:
    """Let the first call of a method, once `when` is true, take ten minutes, in which this happens.

    Return the clock that shows it.
    """
    original, seconds = getattr(owner, method), [0.0]

    def delayed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the original
        result = original(*arguments, **options)
        if seconds[0] == 0.0 and when():
            seconds[0] = 600.0
            happens()
        return result

    monkeypatch.setattr(owner, method, delayed)
    return SimpleNamespace(monotonic=lambda: seconds[0], time=lambda: seconds[0], sleep=time.sleep)
