"""Simulated brokers, which handle control requests, lead, follow and change ISRs as Kafka 2.6 to 3.9 with ZooKeeper.

The memory of a process ends with it; its logs remain. A request is checked as in `KafkaApis` and `ReplicaManager`: by
broker epoch, controller epoch, then by partition. A leader writes its ISR by compare-and-set at the state version and
the leader epoch that it was sent, as `ZkAlterPartitionManager` does; or it asks the controller (`leaders`). A follower
catches up between two turns. A follower whose leader is not live by its metadata ignores a LeaderAndIsr.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from schemas.enums import LEADER_DURING_DELETE
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Key
from schemas.znode_codecs import State, TopicPartition, encode_partitions, encode_state
from tests.jobs.controller.model.leaders import (
    GIVES_UP,
    STAYS_PENDING,
    AlterPartitionManager,
    PartitionResponse,
    Proposal,
)
from tests.jobs.controller.model.zookeeper import Tree
from tests.jobs.support.zookeeper.kafka_tree import registration, state_path

if TYPE_CHECKING:
    from concurrent.futures import Future

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
    topic_id: str | None
    stopped: bool = False
    pending: Proposal | None = None
    """The ISR that it has proposed as the leader, until the controller answers."""

    @classmethod
    def of_notice(cls, notice: Notice, controller_epoch: int) -> "Replica":
        return cls(
            notice.leader,
            notice.leader_epoch,
            controller_epoch,
            [*notice.isr],
            notice.state_version,
            [*notice.replicas],
            notice.topic_id,
        )


@dataclass(slots=True)
class Shutdown:
    """A controlled shutdown that a process asks for (`KafkaServer.controlledShutdown`)."""

    attempts: int = 3
    future: "Future[Any] | None" = None
    turns_left: int | None = None
    """Turns until the process ends, once it has nothing to wait for."""


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
    manager: AlterPartitionManager | None = None
    """What it asks the controller; None if it writes ISRs itself."""
    shutdown: Shutdown | None = None
    term: Any = None
    """The term of the controller that it asks: that of the last UpdateMetadata."""


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
    deaf: bool = False
    """It is sent no requests for a while, and does everything else."""
    make_manager: Callable[[int, int], AlterPartitionManager | None] = lambda *_: None
    """Returns what a process with this broker epoch asks the controller with."""
    ask_shutdown: "Callable[[int, int], Future[Any] | None]" = lambda *_: None
    """Asks for a controlled shutdown; None if there is no connection to a controller."""

    def start(self) -> None:
        path = f"/brokers/ids/{self.id}"
        self.tree.put(path, _REGISTRATION, ephemeral=True)
        epoch = self.tree.nodes[path].czxid
        self.process = Process(epoch, manager=self.make_manager(self.id, epoch))
        self.stalled = self.lags = self.deaf = False
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
        """Update the ISRs of the partitions that it leads."""
        if self.process is None:
            return
        if self.process.unreported_isrs:
            changed = [
                TopicPartition(topic, partition) for topic, partition in dict.fromkeys(self.process.unreported_isrs)
            ]
            self.process.unreported_isrs.clear()
            self.tree.put("/isr_change_notification/isr_change_", encode_partitions(changed), sequence=True)
        if self.process.manager is not None:
            self._ask_for_isrs(self.process, self.process.manager, others)
            self._shut_down(self.process)
            return
        for key, replica in self.led():
            self._change_isr(key, replica, others)

    def led(self) -> Iterator[tuple[Key, Replica]]:
        """Yield the partitions that it leads, as it knows."""
        for key, replica in [*self.process.replicas.items()] if self.process else ():
            if replica.leader == self.id and not replica.stopped and self.hosts(key):
                yield key, replica

    def _change_isr(self, key: Key, replica: Replica, others: dict[int, "SimulatedBroker"]) -> None:
        assert self.process is not None
        in_sync = self._in_sync(key, replica, others)
        kept = [broker for broker in replica.isr if broker in in_sync]
        isr = kept + [broker for broker in in_sync if broker not in kept and broker in self.process.alive]
        if isr == replica.isr:
            return
        self.write_isr(key, replica, isr, replica.controller_epoch)

    def write_isr(self, key: Key, replica: Replica, isr: list[int], controller_epoch: int) -> bool:
        """Write an ISR without asking the controller; return whether the state was as the leader knows it."""
        assert self.process is not None
        now = State(controller_epoch, self.id, replica.leader_epoch, isr)
        is_written = self.tree.set_at(state_path(*key), encode_state(now), replica.state_version)
        if is_written:
            replica.isr, replica.state_version = isr, replica.state_version + 1
            self.process.unreported_isrs.append(key)
        return is_written

    def _in_sync(self, key: Key, replica: Replica, others: dict[int, "SimulatedBroker"]) -> list[int]:
        """Return the replicas of a partition that fetch from this leader, and itself."""
        return [
            broker
            for broker in replica.replicas
            if broker == self.id or (broker in others and others[broker].follows(key, self.id, replica.leader_epoch))
        ]

    @property
    def is_stopping(self) -> bool:
        """Whether its controlled shutdown is over and its process is not; leaders that it still fetches from add it."""
        return self.process is not None and self.process.shutdown is not None and bool(self.process.shutdown.turns_left)

    # with AlterPartition
    def _ask_for_isrs(
        self, process: Process, manager: AlterPartitionManager, others: dict[int, "SimulatedBroker"]
    ) -> None:
        for proposal, answer in manager.receive():
            self.receive_isr(proposal, answer)
        for key, replica in self.led():
            if replica.pending is None:
                in_sync = self._in_sync(key, replica, others)
                kept = [broker for broker in replica.isr if broker in in_sync]
                joining = [broker for broker in in_sync if broker not in kept and broker in process.alive]
                joining += [b for b in replica.replicas if b not in in_sync and b in others and others[b].is_stopping]
                # a shrink takes out all, an expansion adds one
                isr = kept if kept != replica.isr else [*kept, *joining[:1]]
                if isr != replica.isr:
                    self.propose(key, isr)
        manager.propose()

    def propose(self, key: Key, isr: list[int]) -> None:
        """Propose an ISR, unless a former proposal of the partition is still in flight."""
        assert self.process is not None and self.process.manager is not None  # noqa: PT018 - for the type checker
        replica = self.process.replicas[key]
        proposal = Proposal(key, replica.topic_id, replica.leader_epoch, replica.state_version, isr)
        if self.process.manager.submit(proposal):
            replica.pending = proposal

    def receive_isr(self, proposal: Proposal, answer: PartitionResponse) -> None:
        """Handle the answer for a partition, as `Partition.submitAlterPartition`."""
        replica = self.process.replicas.get(proposal.key) if self.process else None
        if replica is None or replica.pending is not proposal or answer.code in STAYS_PENDING:
            return
        if answer.code in GIVES_UP:
            replica.pending = None
        elif answer.code != NONE:
            self.add_fault(f"{self.id} gets error {answer.code} for {proposal}, and proposes the same for ever")
        elif answer.leader_epoch == replica.leader_epoch and answer.partition_epoch >= replica.state_version:
            replica.pending, replica.isr, replica.state_version = None, proposal.isr, answer.partition_epoch

    def _shut_down(self, process: Process) -> None:
        shutdown = process.shutdown
        if shutdown is None:
            return
        if shutdown.turns_left is not None:
            shutdown.turns_left -= 1
            if shutdown.turns_left == 0:
                self.stop()
            return
        if shutdown.future is not None and shutdown.future.done():
            response = None if shutdown.future.exception() else shutdown.future.result()
            shutdown.future, shutdown.attempts = None, shutdown.attempts - 1
            is_done = response is not None and not (response.error_code or response.remaining_partitions)
            if is_done or shutdown.attempts == 0:
                shutdown.turns_left = 2
                return
        if shutdown.future is None:
            shutdown.future = self.ask_shutdown(self.id, process.epoch)
            shutdown.attempts -= shutdown.future is None
            if shutdown.attempts == 0:
                shutdown.turns_left = 2
