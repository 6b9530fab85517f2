"""A cluster of real brokers that ask `surveyor control --listen`, with a topic whose replicas are on all of them."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.support.kafka.controlled_cluster import PARTITIONS, TOPIC, ControlledCluster
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree


class AskedCluster(ControlledCluster):
    """A cluster whose brokers ask the controller."""

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
        self.wait_until(self.is_whole)


@contextmanager
def asked(cluster: EmbeddedCluster, folder: Path, *options: str) -> Iterator[AskedCluster]:
    """A topic with six partitions, and `surveyor control --listen`."""
    with kafka_tree(cluster) as kafka:
        assert eventually(lambda: broker_in_control(kafka))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, len(PARTITIONS), 3)])[TOPIC].result(30)
        story = AskedCluster(cluster, kafka, folder, listens=True)
        with story.running_controller(*options):
            yield story
