"""What Kafka's controller does to the tree on a reassignment: it moves first, and is complete one step later."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.rows import Key
from schemas.znode_codecs import Assignment, State, decode_partitions, encode_assignment, encode_state
from tests.jobs.support.controllers.throttled_tree import ConfigBrokers, answer_as_admin
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

REASSIGN = "/admin/reassign_partitions"
PREFERRED = "/admin/preferred_replica_election"


class MovingController(ConfigBrokers):
    """Replaces the Admin API; `events` are called, one for each wait of the caller, before anything moves.

    `before_request` and `after_request` are called with each reassignment that is requested.
    """

    def __init__(self, tree: KafkaTree) -> None:
        super().__init__(tree)
        self.waves: list[list[Key]] = []
        self.elected: list[Key] = []
        self.moving: dict[Key, list[int]] = {}
        self.events: list[Callable[[], object]] = []
        self.lagging: set[Key] = set()
        self.stuck = False
        self.before_request: Callable[[], object] = lambda: None
        self.after_request: Callable[[], object] = lambda: None

    def reassignments(self) -> dict[Key, list[int]]:
        return dict(self.moving)

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        self.before_request()
        self.waves.append(sorted(targets))
        for key, replicas in targets.items():
            if replicas is None:
                assignment = self.assignment(key[0])
                self.cancel(
                    key,
                    [
                        broker
                        for broker in assignment.partitions[key[1]]
                        if broker not in assignment.adding_replicas[key[1]]
                    ],
                )
            else:
                self.begin(key, replicas)
        self.after_request()
        return dict.fromkeys(targets, 0)

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        self.elected += partitions
        for key in partitions:
            self.set_state(key, leader=self.assignment(key[0]).partitions[key[1]][0])
        return dict.fromkeys(partitions, 0)

    def begin(self, key: Key, replicas: list[int]) -> None:
        """U1 of KIP-455: assign the full set of replicas, with the added and the removed ones."""
        origin = self.assignment(key[0]).partitions[key[1]]
        adding = [broker for broker in replicas if broker not in origin]
        removing = [broker for broker in origin if broker not in replicas]
        self._assign(key, [*replicas, *removing], adding, removing)
        if adding or removing:
            self.moving[key] = replicas

    def finish(self, key: Key) -> None:
        """The target is in sync and assigned alone; a lagging partition is out of sync again."""
        replicas = self.moving.pop(key)
        self._assign(key, replicas, [], [])
        self.set_state(key, isr=replicas[:1] if key in self.lagging else replicas, leader=replicas[0])

    def cancel(self, key: Key, replicas: list[int]) -> None:
        self.moving.pop(key)
        self._assign(key, replicas, [], [])

    def step(self, _seconds: float = 0) -> None:
        """Let some time pass."""
        if self.events:
            self.events.pop(0)()
        elif not self.stuck:
            self._obey()
            self.finish_all()

    def finish_all(self, topic: str | None = None) -> None:
        for key in list(self.moving):
            if topic in {None, key[0]}:
                self.finish(key)

    def catch_up(self) -> None:
        for topic, partition in self.lagging:
            self.set_state((topic, partition), isr=self.assignment(topic).partitions[partition])

    def assignment(self, topic: str) -> Assignment:
        return self.tree.assignment(topic)

    def replicas(self, topic: str) -> dict[int, list[int]]:
        return self.assignment(topic).partitions

    def _obey(self) -> None:
        """Requests in /admin start at one step, and are removed at the next."""
        client = self.tree.client
        if client.exists(PREFERRED):
            elections = decode_partitions(client.get(PREFERRED)[0])
            self.elect_preferred([(election.topic, election.partition) for election in elections])
            client.delete(PREFERRED)
        if client.exists(REASSIGN):
            orders = {
                (order.topic, order.partition): order.replicas or []
                for order in decode_partitions(client.get(REASSIGN)[0])
            }
            for key, replicas in orders.items():
                if key not in self.moving and self.replicas(key[0])[key[1]] != replicas:
                    self.begin(key, replicas)
            if all(self.replicas(topic)[partition] == replicas for (topic, partition), replicas in orders.items()):
                client.delete(REASSIGN)
                self.waves.append(sorted(orders))

    def _assign(self, key: Key, replicas: list[int], adding: list[int], removing: list[int]) -> None:
        topic, partition = key
        assignment = self.assignment(topic)
        changed = Assignment(
            assignment.partitions | {partition: replicas},
            assignment.adding_replicas | {partition: adding},
            assignment.removing_replicas | {partition: removing},
            assignment.topic_id,
        )
        self.tree.client.set(f"/brokers/topics/{topic}", encode_assignment(changed))

    def set_state(self, key: Key, **changes: Any) -> None:  # noqa: ANN401 - fields of a state
        state = self.tree.state(*key)
        fields = {"leader": state.leader, "isr": state.isr, **changes}
        data = encode_state(State(state.controller_epoch, leader_epoch=state.leader_epoch + 1, **fields))
        self.tree.client.set(state_path(*key), data)


def install(controller: MovingController, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits use this controller, and let its time pass while they wait."""
    answer_as_admin(controller, monkeypatch)
    clock = SimpleNamespace(sleep=controller.step, monotonic=time.monotonic)
    monkeypatch.setattr("jobs.execution.admin.running_waves.time", clock)
    monkeypatch.setattr("jobs.execution.admin.running_waves.PREVIOUS_WAVE_SECONDS", 0.0)
    monkeypatch.setattr("jobs.execution.admin.admin_commit.PREVIOUS_WAVE_SECONDS", 0.0)
