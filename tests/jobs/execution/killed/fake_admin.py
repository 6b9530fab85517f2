"""A fake of Kafka's controller inside a process that crashes: each request passes a kill point before and after it.

A request is carried out before it is answered, so its effect is in ZooKeeper no matter how the process ends.
Reassignments complete while the command waits for them, unless the controller is stuck. Requests in /admin are found
during waits, too.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import Creation
from jobs.execution.admin import (
    admin_commit,
    connections,
    controller_client,
    running_waves,
)
from schemas.rows import Key
from schemas.znode_codecs import Assignment, State, decode_partitions, encode_assignment, encode_state
from tests.jobs.support.controllers.cancelling_controller import CancellingController
from tests.jobs.support.controllers.throttled_tree import override
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

Reach = Callable[[str], None]

ITS_ID: Final = "KafkaGivesItThisTopicA"
"""The topic id of all topics that it creates."""


class FakeAdmin(CancellingController):
    """A fake of `Admin`."""

    def __init__(self, tree: KafkaTree, reach: Reach, *, stuck: bool) -> None:
        super().__init__(tree)
        self.reach = reach
        self.stuck = stuck

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        with self._points("reassign"):
            return super().reassign(targets)

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        with self._points("elect"):
            self._elect(partitions)
        return dict.fromkeys(partitions, 0)

    def alter_override(self, kind: str, resource: str, entries: Mapping[str, str | None]) -> int:
        with self._points(f"override of {kind}"):
            override(self.tree, kind, resource, entries)
        return 0

    def alter_config(self, topic: str, entries: Mapping[str, str | None]) -> int:
        with self._points("alteration"):
            override(self.tree, "topic", topic, entries)
            change = f'{{"version":2,"entity_path":"topics/{topic}"}}'.encode()
            self.tree.client.create("/config/changes/config_change_", change, sequence=True, makepath=True)
        return 0

    def create_topics(self, topics: Mapping[str, Creation]) -> dict[str, int]:
        with self._points("creation"):
            for topic, (replicas, config) in topics.items():
                override(self.tree, "topic", topic, config)
                self._assign(topic, Assignment(dict(replicas), {}, {}, ITS_ID), replicas)
        return dict.fromkeys(topics, 0)

    def create_partitions(self, topic: str, total: int, added: list[list[int]]) -> int:
        with self._points("expansion"):
            assignment = self.tree.assignment(topic)
            more = dict(enumerate(added, len(assignment.partitions)))
            assert len(assignment.partitions) + len(more) == total
            self._assign(topic, Assignment({**assignment.partitions, **more}, {}, {}, assignment.topic_id), more)
        return 0

    def delete_topics(self, topics: Mapping[str, str | None]) -> dict[str, int]:
        with self._points("deletion"):
            for topic in topics:
                self.tree.write(f"/admin/delete_topics/{topic}", b"")
                for path in (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"):
                    self.tree.client.delete(path, recursive=True)
        return dict.fromkeys(topics, 0)

    def pass_time(self, _seconds: float = 0) -> None:
        self._obey()
        for topic, partition in self.reassignments():
            if not self.stuck:
                self.finish(topic, partition)

    def _obey(self) -> None:
        """Carry out the requests in /admin, and remove a request once it is complete."""
        if elections := self._ordered("preferred_replica_election"):
            self._elect(list(elections))
            self.tree.client.delete("/admin/preferred_replica_election")
        orders = self._ordered("reassign_partitions")
        going = self.reassignments()
        for key, replicas in orders.items():
            if key not in going and self.assigned(*key)[0] != replicas:
                self.begin(key, replicas)
        if orders and all(self.assigned(*key) == (replicas, [], []) for key, replicas in orders.items()):
            self.tree.client.delete("/admin/reassign_partitions")

    def _ordered(self, name: str) -> dict[Key, list[int]]:
        client, path = self.tree.client, f"/admin/{name}"
        orders = decode_partitions(client.get(path)[0]) if client.exists(path) else []
        return {(order.topic, order.partition): order.replicas or [] for order in orders}

    def _elect(self, partitions: Sequence[Key]) -> None:
        for topic, partition in partitions:
            (first, *_), _, _ = self.assigned(topic, partition)
            state = self.tree.state(topic, partition)
            if state.leader != first:
                self.put_state(topic, partition, first, state.isr)

    def _assign(self, topic: str, assignment: Assignment, new: Mapping[int, list[int]]) -> None:
        """Write a topic, and the first states of its new partitions."""
        self.tree.write(f"/brokers/topics/{topic}", encode_assignment(assignment))
        for partition, replicas in new.items():
            state = State(controller_epoch=7, leader=replicas[0], leader_epoch=0, isr=replicas)
            self.tree.write(state_path(topic, partition), encode_state(state))

    @contextmanager
    def _points(self, request: str) -> Iterator[None]:
        self.reach(f"before {request}")
        yield
        self.reach(f"after {request}")


def install(hosts: str, reach: Reach, *, stuck: bool) -> None:
    """Let commands use the fake, and let time pass for it while they wait.

    To be called before the commands' writes are marked.
    """
    client = KazooClient(hosts)
    vars(client)["_call"] = client._call  # noqa: SLF001 - its writes are Kafka's and pass no kill points
    client.start()
    controller = FakeAdmin(KafkaTree(hosts, client), reach, stuck=stuck)

    @contextmanager
    def connected(*_: object) -> Iterator[FakeAdmin]:
        yield controller

    def read_later(received: Callable[[], list[Key]], *_: object) -> list[Key]:
        controller.pass_time()
        return received()

    clock = SimpleNamespace(sleep=controller.pass_time, monotonic=time.monotonic)
    changed: dict[Any, dict[str, Any]] = {
        connections: {"connected_admin": connected},
        running_waves: {"time": clock, "PREVIOUS_WAVE_SECONDS": 0.0},
        admin_commit: {"PREVIOUS_WAVE_SECONDS": 0.0, "CANCELLATION_TIMEOUT_SECONDS": 0.0},
        controller_client: {"_wait_until_seen": read_later},
    }
    for module, names in changed.items():
        for name, value in names.items():
            setattr(module, name, value)
