"""Simulated brokers, which handle control requests, lead, follow and change ISRs as Kafka 2.6 to 3.9 with ZooKeeper.

The memory of a process ends with it; its logs remain. A request is checked as in `KafkaApis` and `ReplicaManager`: by
broker epoch, controller epoch, then by partition. A leader writes its ISR by compare-and-set at the state version and
the leader epoch that it was sent, as `ZkAlterPartitionManager` does. A follower catches up between two turns. A
follower whose leader is not alive by its metadata ignores a LeaderAndIsr.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from schemas.enums import LEADER_DURING_DELETE
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Key
from schemas.znodes import State, TopicPartition, encode_partitions, encode_state
from tests.jobs.controller.model.zookeeper import Tree
from tests.jobs.support.zookeeper.kafka_tree import registration, state_path

NONE, UNKNOWN, STALE_CONTROLLER, STORAGE, FENCED, STALE_BROKER = 0, 3, 11, 56, 74, 77
FAILED = -1
"""UNKNOWN_SERVER_ERROR: the broker failed to handle a request, or one partition of it."""
_REGISTRATION: Final = registration()


@dataclass(slots=True)
class Replica:
    """The state of a replica in a process."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    state_version: int
    replicas: list[int]
    stopped: bool = False

    @classmethod
    def of_notice(cls, notice: Notice, controller_epoch: int) -> "Replica":
        return cls(
            notice.leader,
            notice.leader_epoch,
            controller_epoch,
            [*notice.isr],
            notice.state_version,
            [*notice.replicas],
        )


@dataclass(slots=True)
class Process:
    """The state of a running broker; another process starts without it."""

    epoch: int
    controller_epoch: int = 0
    replicas: dict[Key, Replica] = field(default_factory=dict)
    offline: set[Key] = field(default_factory=set)
    """Partitions whose log dir failed."""
    lacks_dir: bool = False
    alive: set[int] = field(default_factory=set)
    metadata: dict[Key, tuple[int, int, list[int]]] = field(default_factory=dict)
    """Leader, leader epoch and ISR, as the broker returns them to clients."""
    forgotten: set[Key] = field(default_factory=set)
    """Partitions that were removed from its metadata because of a topic deletion, and not sent since."""
    unreported_isrs: list[Key] = field(default_factory=list)
    """Partitions whose ISR the broker changed without a notification so far."""


@dataclass(slots=True)
class SimulatedBroker:
    """One broker, running or not."""

    id: int
    tree: Tree
    add_fault: Callable[[str], None]
    """Called with each violation."""
    process: Process | None = None
    logs: set[Key] = field(default_factory=set)
    stalled: bool = False
    """It handles no requests for a while."""
    lags: bool = False
    """Its followers do not catch up for a while."""
    fails: int = 0
    """The number of requests that it will fail to handle."""
    fails_in_part: bool = False
    """It fails for single partitions, if the API has errors by partition, and handles the others."""

    def start(self) -> None:
        path = f"/brokers/ids/{self.id}"
        self.tree.put(path, _REGISTRATION, ephemeral=True)
        self.process = Process(self.tree.nodes[path].czxid)
        self.stalled = self.lags = False
        self.fails = 0

    def stop(self) -> None:
        self.process = None
        self.tree.remove(f"/brokers/ids/{self.id}")

    def fail_dir(self, keys: Iterable[Key]) -> None:
        """Lose the log dir of some partitions, and notify of it."""
        assert self.process is not None
        self.process.offline |= self.logs & set(keys)
        self.process.lacks_dir = True
        event = json.dumps({"version": 1, "broker": self.id, "event": 1}).encode()
        self.tree.put("/log_dir_event_notification/log_dir_event_", event, sequence=True)

    def hosts(self, key: Key) -> bool:
        """Whether the process has a replica that it could lead or follow."""
        return self.process is not None and key in self.process.replicas and key not in self.process.offline

    def check_epochs(self, broker_epoch: int, controller_epoch: int) -> int:
        """Return the error code for a request with these epochs."""
        assert self.process is not None
        if self.fails and not self.fails_in_part:
            self.fails -= 1
            return FAILED
        if broker_epoch < self.process.epoch:
            return STALE_BROKER
        if controller_epoch < self.process.controller_epoch:
            return STALE_CONTROLLER
        self.process.controller_epoch = controller_epoch
        return NONE

    def apply(self, api: str, notice: Notice) -> int:
        """Handle one partition of a request; return an error code."""
        if self.fails and api != UPDATE_METADATA:
            self.fails -= 1
            return FAILED
        accepts = {
            LEADER_AND_ISR: self._lead_or_follow,
            STOP_REPLICA: self._stop,
            UPDATE_METADATA: self._update_metadata,
        }
        return accepts[api](notice)

    def _update_metadata(self, notice: Notice) -> int:
        assert self.process is not None
        key = notice.topic, notice.partition
        if notice.leader == LEADER_DURING_DELETE:
            self.process.metadata.pop(key, None)
            self.process.forgotten.add(key)
            return NONE
        self.process.metadata[key] = notice.leader, notice.leader_epoch, [*notice.isr]
        if f"/admin/delete_topics/{key[0]}" not in self.tree.nodes:
            self.process.forgotten.discard(key)
        return NONE

    def _lead_or_follow(self, notice: Notice) -> int:
        assert self.process is not None
        key = notice.topic, notice.partition
        if key in self.process.offline:
            return STORAGE
        before = self.process.replicas.get(key)
        if before is not None and notice.leader_epoch <= before.leader_epoch:
            return STALE_CONTROLLER
        if self.id not in notice.replicas:
            return UNKNOWN
        if key not in self.logs and not notice.is_new and self.process.lacks_dir:
            self.process.offline.add(key)
            return STORAGE
        self.logs.add(key)
        if before is not None and notice.state_version < before.state_version:
            return NONE
        if notice.leader == self.id or notice.leader in self.process.alive:
            self.process.replicas[key] = Replica.of_notice(notice, self.process.controller_epoch)
        return NONE

    def _stop(self, notice: Notice) -> int:
        assert self.process is not None
        key = notice.topic, notice.partition
        if key in self.process.offline:
            return STORAGE
        replica = self.process.replicas.get(key)
        if replica is not None and 0 <= notice.leader_epoch < replica.leader_epoch:
            return FENCED
        if notice.delete_partition:
            self.process.replicas.pop(key, None)
            self.logs.discard(key)
        elif replica is not None:
            replica.stopped = True
        return NONE

    def follows(self, key: Key, leader: int, leader_epoch: int) -> bool:
        """Whether it fetches from this leader at this leader epoch, and keeps up."""
        if not self.hosts(key) or self.lags or self.process is None:
            return False
        replica = self.process.replicas[key]
        return (replica.leader, replica.leader_epoch, replica.stopped) == (leader, leader_epoch, False)

    def update_isrs(self, others: dict[int, "SimulatedBroker"]) -> None:
        """Update the ISRs of the partitions that it leads, and notify of earlier changes."""
        if self.process is None:
            return
        if self.process.unreported_isrs:
            changed = [
                TopicPartition(topic, partition) for topic, partition in dict.fromkeys(self.process.unreported_isrs)
            ]
            self.process.unreported_isrs.clear()
            self.tree.put("/isr_change_notification/isr_change_", encode_partitions(changed), sequence=True)
        for key, replica in self.process.replicas.items():
            if replica.leader == self.id and not replica.stopped and self.hosts(key):
                self._change_isr(key, replica, others)

    def _change_isr(self, key: Key, replica: Replica, others: dict[int, "SimulatedBroker"]) -> None:
        assert self.process is not None
        fetching = [
            broker
            for broker in replica.replicas
            if broker == self.id or (broker in others and others[broker].follows(key, self.id, replica.leader_epoch))
        ]
        kept = [broker for broker in replica.isr if broker in fetching]
        isr = kept + [broker for broker in fetching if broker not in kept and broker in self.process.alive]
        if isr == replica.isr:
            return
        now = State(replica.controller_epoch, self.id, replica.leader_epoch, isr)
        if self.tree.set_at(state_path(*key), encode_state(now), replica.state_version):
            replica.isr, replica.state_version = isr, replica.state_version + 1
            self.process.unreported_isrs.append(key)
