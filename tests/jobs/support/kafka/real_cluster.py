"""Real brokers in tests: their topics in ZooKeeper, and the metadata that they return to clients."""

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self
from uuid import NAMESPACE_DNS, uuid5

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.admin_client import bootstrap
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TRANSACTION_PAUSE, TRANSACTION_SECONDS = 0.5, 60.0
"""Between two transactions, and until one is given up; the brokers abort it then, too."""

PAUSE, AT_ONCE = 0.05, 5
"""A hundred records a second, five at a time: three brokers spend their time on requests, however few are in each."""


class TopicMetadata(dict[int, tuple[int, list[int], list[int]]]):
    """Leader, replicas and ISR by partition; one that the broker does not know yet has no leader and empty lists.

    A broker that is asked between two controllers may know a partition only a moment later, so callers ask again.
    """

    def __missing__(self, partition: int) -> tuple[int, list[int], list[int]]:
        return -2, [], []


def eventually(condition: Callable[[], bool], seconds: float = 180) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@contextmanager
def kafka_tree(cluster: EmbeddedCluster, config: Path | None = None) -> Iterator[KafkaTree]:
    """The tree that real brokers keep."""
    hosts = cluster.zookeeper_server.connect
    with connected(ZooKeeperEndpoint(hosts, config)) as client:
        yield KafkaTree(hosts, client, config=config)


def create_topic(cluster: EmbeddedCluster, kafka: KafkaTree, topic: str, partitions: int) -> None:
    """A topic whose partitions broker 1 leads, and broker 0 follows."""
    new = NewTopic(topic, partitions, replica_assignment=[[1, 0]] * partitions)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[topic].result()
    states = [f"/brokers/topics/{topic}/partitions/{partition}/state" for partition in range(partitions)]
    assert eventually(lambda: all(kafka.client.exists(path) for path in states))
    assert eventually(lambda: all(sorted(kafka.state(topic, number).isr) == [0, 1] for number in range(partitions)))


def create_topics(admin: AdminClient, *topics: NewTopic) -> None:
    for topic in topics:
        _ask_until_done(partial(admin.create_topics, [topic], request_timeout=20), KafkaError.TOPIC_ALREADY_EXISTS)


def throttle(cluster: EmbeddedCluster, topic: str, rate: int) -> None:
    """Throttle the replicas of a topic; return once all brokers apply it: the topic's change first, then their own.

    A follower takes a megabyte each 11 s, however low the rate, and all of it before it has heard of the throttle.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas, rates = {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    brokers = [str(broker) for broker in cluster.brokers]
    changes = [(ResourceType.TOPIC, topic, replicas), *((ResourceType.BROKER, broker, rates) for broker in brokers)]
    for kind, name, values in changes:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(60)

    def applied(broker: str) -> bool:
        resource = ConfigResource(ResourceType.BROKER, broker)
        entries = admin.describe_configs([resource])[resource].result(60)
        return all(name in entries and entries[name].value == value for name, value in rates.items())

    assert all(eventually(partial(applied, broker)) for broker in brokers)


def delete_topic(admin: AdminClient, topic: str) -> None:
    _ask_until_done(partial(admin.delete_topics, [topic], request_timeout=20), KafkaError.UNKNOWN_TOPIC_OR_PART)


def _ask_until_done(request: Callable[[], Mapping[str, Future[None]]], done_before: int) -> None:
    """Ask again where librdkafka gave the request up, as brokers may join, or lead, while it is on its way."""

    def is_done() -> bool:
        (answer,) = request().values()
        try:
            answer.result()
        except KafkaException as error:
            reason = error.args[0]
            if not (reason.retriable() or reason.code() in _ASKED_AGAIN) and reason.code() != done_before:
                raise
            return bool(reason.code() == done_before)
        return True

    assert eventually(is_done)


_ASKED_AGAIN: Final = {
    KafkaError.NOT_CONTROLLER,
    KafkaError._DESTROY_BROKER,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
}
"""Errors after which a request may have been carried out, and that of a controller that has just changed."""


def id_of(topic: str) -> str:
    """A unique id of the topic: Kafka's controllers resign one after another if two topics share one."""
    return base64.urlsafe_b64encode(uuid5(NAMESPACE_DNS, topic).bytes).decode().rstrip("=")


def broker_in_control(tree: KafkaTree) -> bool:
    """Whether a broker is the controller, and all live brokers report it.

    The check of all brokers is needed because librdkafka keeps the first controller that it gets.
    """
    state = read_cluster(tree.client)
    named = {_controller_reported_by(address) for row in state.brokers for address in bootstrap([row], {})}
    return state.controller.broker_id in state.live and named == {state.controller.broker_id}


def _controller_reported_by(broker: str) -> int | None:
    try:
        return int(AdminClient({"bootstrap.servers": broker, "log_level": 0}).list_topics(timeout=10).controller_id)
    except KafkaException:
        return None


def topic_metadata(broker: str, topic: str) -> TopicMetadata:
    """A topic in the metadata of this one broker."""
    metadata = AdminClient({"bootstrap.servers": broker}).list_topics(topic, timeout=60).topics[topic]
    return TopicMetadata({p.id: (p.leader, list(p.replicas), list(p.isrs)) for p in metadata.partitions.values()})


class Traffic:
    """A producer with acks=all that never stops, and the records that were acknowledged."""

    pause = PAUSE

    def __init__(self, bootstrap: str, topic: str, first: int = 0) -> None:
        self.topic = topic
        self._first = first
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2})
        self._over = Event()
        self._thread = Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        if not eventually(lambda: len(self.acknowledged) > 100):
            self._over.set()
        assert not self._over.is_set(), self.failed
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for a few more records; the thread ends in any case, or the whole run would wait for it."""
        already = len(self.acknowledged)
        try:
            assert eventually(lambda: len(self.acknowledged) > already + 100)
        finally:
            self._over.set()
            self._thread.join()

    def _produce(self) -> None:
        number = self._first
        while not self._over.is_set():
            for value in range(number, number + AT_ONCE):
                self._producer.produce(self.topic, str(value).encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            number += AT_ONCE
            time.sleep(self.pause)
        self._producer.flush(20)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is None:
            self.acknowledged.add(int(value))
        else:
            self.failed.append(str(error))

    def stored(self, partitions: int) -> set[int]:
        """The records that a consumer finds in the topic, from its beginning."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "g", "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(partitions)])
        numbers: set[int] = set()
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(20)
            assert message is not None
            error = message.error()
            if error is None:
                numbers.add(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name there; any other error passes
                ended.add(message.partition())
        consumer.close()
        return numbers


class Transactions:
    """A transactional producer that never stops; a quarter of its transactions are aborted.

    Values are negative. Those of a transaction that failed are neither committed nor aborted, as far as one knows.
    """

    def __init__(self, bootstrap: str, topic: str, over: Event) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._topic = topic
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"flow-{topic}",
            "log_level": 0,
        }
        self._over = over
        self._numbers = count(1)
        self.thread = Thread(target=self._run)

    def _run(self) -> None:
        producer: Producer | None = None
        while not self._over.wait(TRANSACTION_PAUSE):
            try:
                if producer is None:  # also ends the transaction that failed before
                    producer = Producer(self._settings)
                    producer.init_transactions(TRANSACTION_SECONDS)
                self._transact(producer)
            except KafkaException:
                producer = None

    def _transact(self, producer: Producer) -> None:
        values = {-next(self._numbers) for _ in range(3)}
        producer.begin_transaction()
        for value in values:
            producer.produce(self._topic, str(value).encode())
        if min(values) % 4:
            producer.commit_transaction(TRANSACTION_SECONDS)
            self.committed |= values
        else:
            producer.flush(TRANSACTION_SECONDS)
            producer.abort_transaction(TRANSACTION_SECONDS)
            self.aborted |= values


class Flow(Traffic):
    """Traffic with a transactional producer, and with a consumer that reads all the time.

    In the end the consumer has read what was acknowledged or committed, and nothing that was aborted.
    """

    pause = 4 * PAUSE  # minutes on end

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic)
        self.consumed: set[int] = set()
        self._partitions = partitions
        self._all_read = Event()
        self._reading = Thread(target=self._consume)
        self.transactions = Transactions(bootstrap, topic, self._over)

    def __enter__(self) -> Self:
        super().__enter__()
        self._reading.start()
        self.transactions.thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        committed = len(self.transactions.committed)
        try:
            if failure[0] is None:
                assert eventually(lambda: len(self.transactions.committed) > committed, 120), "no transaction ends"
            super().__exit__(*failure)
            self.transactions.thread.join()
            assert eventually(lambda: self.kept <= self.consumed), self.kept - self.consumed
            assert self.consumed.isdisjoint(self.transactions.aborted)
        finally:
            self._over.set()
            self._all_read.set()
            self._reading.join()

    @property
    def kept(self) -> set[int]:
        """The records that must not be lost."""
        return self.acknowledged | self.transactions.committed

    def _consume(self) -> None:
        settings = {
            "group.id": "flow",
            "enable.auto.commit": False,
            "log_level": 0,
            "isolation.level": "read_committed",
        }
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self._partitions)])
        while not self._all_read.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:  # librdkafka finds a new leader by itself
                self.consumed.add(int(message.value() or b""))
        consumer.close()
