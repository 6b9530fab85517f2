"""A cluster of real brokers under `surveyor control`, with the operations of the test stories."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.core.addresses import LOOPBACK
from schemas.znode_codecs import (
    Assignment,
    State,
    TopicPartition,
    decode_partitions,
    encode_assignment,
    encode_partitions,
)
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.control_process import ControllerProcess, running_controller
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

TOPIC, PARTITIONS = "orders", range(6)
"""The topic that is written to and read all the time; its replicas are on the brokers 0 to 2 at first."""

REASSIGN, ELECTION, DELETIONS = (
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics",
)


@dataclass
class ControlledCluster:
    """One cluster, and its controllers."""

    cluster: EmbeddedCluster
    kafka: KafkaTree
    folder: Path
    listens: bool = False
    """Whether the controllers receive what brokers ask; brokers at their default settings need that."""
    controllers: list[ControllerProcess] = field(default_factory=list)

    @property
    def controller(self) -> ControllerProcess:
        return self.controllers[-1]

    @property
    def warehouse(self) -> Path:
        return self.folder / "w"

    @contextmanager
    def running_controller(self, *options: str) -> Iterator[ControllerProcess]:
        """Run another controller of this cluster."""
        listen = ("--listen", f"{LOOPBACK}:{free_port()}") if self.listens else ()
        with running_controller(self.kafka, self.warehouse, *listen, *options) as controller:
            self.controllers.append(controller)
            yield controller

    def wait_until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        """Wait until a condition holds; otherwise fail with the states and the controller's output."""
        assert eventually(holds, seconds), (self.states(), self.controller.output[-3000:])

    def states(self, topic: str = TOPIC) -> list[State]:
        return [self.kafka.state(topic, partition) for partition in sorted(self.assigned(topic).partitions)]

    def has_state(self, topic: str, partition: int = 0) -> bool:
        return self.kafka.client.exists(state_path(topic, partition)) is not None

    def is_whole(self, topic: str = TOPIC) -> bool:
        """Whether all replicas of a topic are in sync."""
        replicas = self.assigned(topic).partitions
        return all({*state.isr} == {*replicas[p]} for p, state in enumerate(self.states(topic)))

    # topics and requests
    def write_topic(self, topic: str, replicas: dict[int, list[int]]) -> None:
        """Write a topic as any client can."""
        settings = b'{"version":1,"config":{"min.insync.replicas":"%d"}}' % min(2, *map(len, replicas.values()))
        self.kafka.write(f"/config/topics/{topic}", settings)
        self.kafka.write(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))

    def create(self, topic: str, replicas: dict[int, list[int]]) -> None:
        """Write a topic, and wait until it is led and all its replicas exist."""
        self.write_topic(topic, replicas)
        holders = [(broker, f"{topic}-{p}") for p, brokers in replicas.items() for broker in brokers]
        self.wait_until(lambda: all(name in self.log_names(broker, topic) for broker, name in holders), 60)
        if self.listens:  # it gets its id once every broker has said that it knows ids, also one that has just joined
            self.wait_until(lambda: self.assigned(topic).topic_id is not None)

    def assigned(self, topic: str) -> Assignment:
        return self.kafka.assignment(topic)

    def ask_to_move(self, topic: str, targets: Mapping[int, list[int]]) -> None:
        """Request all of these at once, in place of earlier requests."""
        orders = [TopicPartition(topic, partition, target) for partition, target in targets.items()]
        self.kafka.write(REASSIGN, encode_partitions(orders))

    def asked_to_move(self) -> set[int]:
        """Partitions that a request still names."""
        exists = self.kafka.client.exists(REASSIGN)
        return {order.partition for order in decode_partitions(self.kafka.client.get(REASSIGN)[0])} if exists else set()

    def delete(self, topic: str) -> None:
        self.kafka.client.create(f"{DELETIONS}/{topic}")

    def is_deleted(self, topic: str) -> bool:
        """Whether nothing of a topic remains: neither znodes, nor the request, nor a log."""
        znodes = f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"{DELETIONS}/{topic}"
        left = any(self.kafka.client.exists(path) for path in znodes)
        return not left and not any(self.logs(broker, topic) for broker in self.cluster.brokers)

    def logs(self, broker: int, topic: str) -> list[Path]:
        """Folders of a topic's partitions on a broker; those marked for deletion disappear a minute later."""
        paths = (self.cluster.folder / f"broker-{broker}").rglob(f"{topic}-*")
        return [path for path in paths if path.is_dir() and not path.name.endswith("-delete")]

    def log_names(self, broker: int, topic: str) -> list[str]:
        return [path.name for path in self.logs(broker, topic)]

    def takes_records(self, topic: str) -> bool:
        """Whether a record is acknowledged by the whole ISR; also the first one of a topic that does not exist yet."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
        producer.produce(topic, b"1", on_delivery=lambda error, _: failed.append(error))
        return producer.flush(60) == 0 and failed == [None]

    # brokers
    def kill(self, broker: int) -> None:
        """SIGKILL, and the end of its session, as after the session timeout."""
        self.cluster.brokers[broker].kill()
        self.cluster.brokers[broker].expire()

    def restart(self, *brokers: int) -> None:
        restart(*(self.cluster.brokers[broker] for broker in brokers))

    @contextmanager
    def silent(self, broker: int) -> Iterator[None]:
        """The broker is registered and does not respond. If it is killed in the meantime, it stays dead."""
        pid = self.cluster.brokers[broker].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.cluster.brokers[broker].pid == pid:
                os.kill(pid, signal.SIGCONT)

    # other commands, while the controller runs
    def drain(self, broker: int) -> None:
        """Plan that a broker leads and follows no partitions, and submit the plan."""
        surveyor = Surveyor(self.kafka.hosts, self.warehouse)
        surveyor.json("plan", "drain", "--brokers", str(broker), "--mode", "resident", "--name", "out")
        surveyor.json("commit", "out", "--apply")


def restart(*brokers: EmbeddedKafka) -> None:
    for broker in brokers:
        broker.kill()
        broker.expire()
        broker.start()
    for broker in brokers:
        broker.wait_ready()
