"""Producers and readers of known rates, in topics of each kind that load is measured of.

Producers flow between two quiet times, at which all records are acknowledged and all groups have committed them: what
is measured in between can be compared to the byte, however slow the machine is.
"""

import os
import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jobs.support.kafka.real_cluster import create_topics, eventually

NEAR, FAR = "a", "b"
"""The racks of brokers 1 and 2."""

TICK_SECONDS: Final = 0.05
COMMIT_MS: Final = 500

Rates = Sequence[float]
"""Records per second of each partition."""

Flow = Callable[[Event], None]
"""Produces until the event is set, and returns once all records are acknowledged."""


@dataclass(frozen=True)
class TrafficTopic:
    """A topic of as many partitions as rates, with the producer's settings and the topic's own."""

    name: str
    rates: Rates
    record_bytes: Sequence[int]
    producer: Mapping[str, str | int] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    keys: int = 0
    """Keys of its records; with them, records go to the partitions of their keys at the sum of the rates."""
    is_text: bool = False
    """Whether records can be compressed."""
    is_transactional: bool = False
    followers: int = 1


LINGER: Final = {"linger.ms": 100}

SMALL_BATCHES: Final = LINGER | {"batch.size": 20_000}
"""Batches that fit into segments of SMALL_SEGMENTS, however many records wait for a slow broker."""
SMALL_SEGMENTS: Final = {"segment.bytes": "40000"}

TOPICS: Final = (
    TrafficTopic("batches", (10, 20, 80), (500,) * 3, LINGER),
    TrafficTopic("singles", (20, 40, 80), (100,) * 3, {"batch.num.messages": 1}),
    TrafficTopic("sizes", (20, 20, 20), (50, 500, 2_000), LINGER),
    TrafficTopic("lz4", (20, 60, 120), (600,) * 3, LINGER | {"compression.type": "lz4"}, is_text=True),
    TrafficTopic("zstd", (20, 60, 120), (600,) * 3, LINGER | {"compression.type": "zstd"}, is_text=True),
    TrafficTopic("skewed", (40, 40, 40), (300,) * 3, LINGER, keys=20),
    TrafficTopic("unread", (20, 30, 40), (300,) * 3, LINGER),
    TrafficTopic("transactions", (10, 20, 30), (300,) * 3, LINGER, is_transactional=True),
    TrafficTopic("expiring", (20, 30, 60), (500,) * 3, SMALL_BATCHES, SMALL_SEGMENTS | {"retention.bytes": "80000"}),
    TrafficTopic("recompressed", (20, 30, 40), (600,) * 3, LINGER, {"compression.type": "zstd"}, is_text=True),
    TrafficTopic(
        "compacted",
        (30, 30, 30),
        (300,) * 3,
        SMALL_BATCHES,
        SMALL_SEGMENTS | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        keys=20,
        followers=0,
    ),
)

BROKERS: Final = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "log.retention.check.interval.ms": "3000",
    "log.cleaner.backoff.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}
"""Settings of brokers that delete and compact in seconds, not in minutes."""

READERS: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "accounting": (("batches", "singles", "sizes", "lz4"), ""),
    "audit": (("batches",), NEAR),
    "nearby": (("zstd", "skewed"), FAR),
}
"""Topics of groups, and the racks of their members."""

UNCOMMITTED: Final = "unread"
"""The topic whose reader does not commit."""


@dataclass
class LoadTraffic:
    """The producers and readers of TOPICS, and what was acknowledged."""

    bootstrap: str
    topics: Sequence[TrafficTopic] = TOPICS
    acknowledged: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Records by topic and partition."""
    failed: list[str] = field(default_factory=list)

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        create_topics(admin, *(self._new(topic) for topic in self.topics))

        def is_in_sync() -> bool:
            known = admin.list_topics(timeout=60).topics
            return all(
                topic.name in known
                and len(known[topic.name].partitions) == len(topic.rates)
                and all(
                    len(row.isrs) == len(row.replicas) and row.leader > 0
                    for row in known[topic.name].partitions.values()
                )
                for topic in self.topics
            )

        assert eventually(is_in_sync)

    @staticmethod
    def _new(topic: TrafficTopic) -> NewTopic:
        """Leaders alternate between brokers 1 and 2."""
        orders = ([1, 2] if number % 2 == 0 else [2, 1] for number in range(len(topic.rates)))
        replicas = [order[: 1 + topic.followers] for order in orders]
        return NewTopic(topic.name, len(topic.rates), replica_assignment=replicas, config=dict(topic.config))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Produce within the block; afterwards all records are acknowledged."""
        over = Event()
        threads = [Thread(target=self._flow, args=(topic, over)) for topic in self.topics]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert not self.failed, self.failed[:5]

    def _flow(self, topic: TrafficTopic, over: Event) -> None:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": self.bootstrap, "acks": "all"}
        settings |= dict(topic.producer) | {"log_level": 0}
        if topic.is_transactional:
            settings["transactional.id"] = topic.name
        try:
            producer = Producer(settings)
            if topic.is_transactional:
                producer.init_transactions(60)
            self._produce(producer, topic, over)
            if not topic.is_transactional:
                assert producer.flush(60) == 0
        except Exception as error:  # noqa: BLE001 - the block that flows reports it
            self.failed.append(f"{topic.name}: {error}")

    def _produce(self, producer: Producer, topic: TrafficTopic, over: Event) -> None:
        begun, sent = time.monotonic(), [0] * len(topic.rates)
        chosen = random.Random(0)  # noqa: S311 - a skew that is the same each time
        rounds = 0
        while not over.wait(TICK_SECONDS * (10 if topic.is_transactional else 1)):
            seconds = time.monotonic() - begun
            if topic.is_transactional:
                producer.begin_transaction()
            for partition, rate in enumerate(topic.rates):
                due = int(rate * seconds) - sent[partition]
                for _ in range(due):
                    self._send(producer, topic, partition, chosen)
                sent[partition] += due
            rounds += 1
            if topic.is_transactional:
                producer.flush(60)
                (producer.abort_transaction if rounds % 4 == 0 else producer.commit_transaction)(60)
            producer.poll(0)

    def _send(self, producer: Producer, topic: TrafficTopic, partition: int, chosen: random.Random) -> None:
        size = topic.record_bytes[partition]
        value = _text(size, chosen) if topic.is_text else os.urandom(size)
        if topic.keys:
            key = str(int(chosen.paretovariate(1)) % topic.keys).encode()
            producer.produce(topic.name, value, key, on_delivery=self._delivered)
        else:
            producer.produce(topic.name, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[str(message.topic()), int(message.partition() or 0)] += 1
        else:
            self.failed.append(str(error))

    @contextmanager
    def readers(self) -> Iterator["Readers"]:
        """Read within the block."""
        over = Event()
        with ExitStack() as stack:
            readers = Readers(self.bootstrap, {topic.name: len(topic.rates) for topic in self.topics})
            for group, (topics, rack) in READERS.items():
                stack.enter_context(_running(partial(readers.read_group, group, topics, rack, over)))
            stack.enter_context(_running(partial(readers.read_uncommitted, over)))
            stack.callback(over.set)
            yield readers


@contextmanager
def _running(work: Callable[[], None]) -> Iterator[None]:
    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _text(size: int, chosen: random.Random) -> bytes:
    words = " ".join(f'"field{number}": "{chosen.randrange(1000)}"' for number in range(size // 16))
    return words.encode()[:size].ljust(size)


@dataclass
class Readers:
    """The groups of READERS, and a reader without commits."""

    bootstrap: str
    partitions: Mapping[str, int]
    uncommitted: dict[int, int] = field(default_factory=dict)
    """Next offsets by partition of the reader without commits."""

    def _settings(self, group: str, rack: str) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "log_level": 0,
        }

    def read_group(self, group: str, topics: Sequence[str], rack: str, over: Event) -> None:
        consumer = Consumer(self._settings(group, rack))
        consumer.subscribe(list(topics))
        while not over.is_set():
            consumer.consume(1_000, 0.1)
        consumer.close()

    def read_uncommitted(self, over: Event) -> None:
        consumer = Consumer(self._settings("uncommitted", "") | {"enable.auto.commit": False})
        consumer.assign([TopicPartition(UNCOMMITTED, number, 0) for number in range(self.partitions[UNCOMMITTED])])
        while not over.is_set():
            for message in consumer.consume(1_000, 0.1):
                if message.error() is None:
                    self.uncommitted[int(message.partition() or 0)] = int(message.offset() or 0) + 1
        consumer.close()

    def await_committed(self) -> None:
        """Wait until all that can be read was read and committed."""
        assert eventually(self._have_read_all, 60)

    def _have_read_all(self) -> bool:
        for group, (topics, _) in READERS.items():
            observer = Consumer(self._settings(group, ""))
            asked = [TopicPartition(topic, number) for topic in topics for number in range(self.partitions[topic])]
            committed = observer.committed(asked, 30)
            is_behind = any(row.offset != observer.get_watermark_offsets(row, 30)[1] for row in committed)
            observer.close()
            if is_behind:
                return False
        observer = Consumer(self._settings("observer", ""))
        ends = [
            observer.get_watermark_offsets(TopicPartition(UNCOMMITTED, number), 30)[1]
            for number in range(self.partitions[UNCOMMITTED])
        ]
        observer.close()
        return ends == [self.uncommitted.get(number, 0) for number in range(len(ends))]


def batch_sizes(log: Path) -> dict[int, int]:
    """Return the bytes of each batch in a partition's folder by its first offset."""
    sizes: dict[int, int] = {}
    for segment in sorted(log.glob("*.log")):
        with segment.open("rb") as file:
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                offset, length = _HEADER.unpack(header)
                sizes[offset] = _HEADER.size + length
                file.seek(length, os.SEEK_CUR)
    return sizes


_HEADER: Final = struct.Struct(">qi")
"""First offset of a batch, and the bytes that follow."""
