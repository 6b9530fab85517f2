"""A cluster of real brokers that ask `surveyor control --listen`, with a topic whose replicas are on all of them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.processes import LOOPBACK, free_port
from schemas.znode_codecs import State
from tests.jobs.support.commands.control_process import ControllerProcess, running_controller
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TOPIC, PARTITIONS = "orders", 6


@dataclass
class Asked:
    """A cluster whose brokers ask the controller."""

    cluster: EmbeddedCluster
    kafka: KafkaTree
    controller: ControllerProcess

    def states(self) -> list[State]:
        return [self.kafka.state(TOPIC, partition) for partition in range(PARTITIONS)]

    def wait_until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        assert eventually(holds, seconds), (self.states(), self.controller.output[-3000:])

    def wait_until_whole(self) -> None:
        replicas = self.kafka.assignment(TOPIC).partitions
        self.wait_until(lambda: all({*state.isr} == {*replicas[p]} for p, state in enumerate(self.states())))

    def kill(self, broker: int) -> None:
        """Kill a broker; its session ends at once."""
        self.cluster.brokers[broker].kill()
        self.cluster.brokers[broker].expire()

    def shut_down(self, broker: int) -> None:
        """Stop a broker as systemd does; it moves its leaders away first."""
        running = self.cluster.brokers[broker]
        assert running._process is not None  # noqa: SLF001 - the test's own broker
        running._process.send_signal(signal.SIGTERM)  # noqa: SLF001
        running._process.wait(60)  # noqa: SLF001

    def lose_and_shut_down(self) -> None:
        """Kill broker 1, and shut broker 2 down; each leaves all ISRs, and is in all of them after its start."""
        self.kill(1)
        self.wait_until(lambda: all(s.leader != 1 and 1 not in s.isr for s in self.states()))
        self.start(1)
        self.shut_down(2)
        assert all(state.leader != 2 and 2 not in state.isr for state in self.states())
        self.start(2)

    def start(self, broker: int) -> None:
        self.cluster.brokers[broker].start()
        self.cluster.brokers[broker].wait_ready()
        self.wait_until_whole()


@contextmanager
def asked(cluster: EmbeddedCluster, warehouse: Path, *options: str) -> Iterator[Asked]:
    """A topic with six partitions, and `surveyor control --listen`."""
    with kafka_tree(cluster) as kafka:
        assert eventually(lambda: broker_in_control(kafka))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        address = f"{LOOPBACK}:{free_port()}"
        with running_controller(kafka, warehouse, "--listen", address, *options) as controller:
            yield Asked(cluster, kafka, controller)
