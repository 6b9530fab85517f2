"""The demo's traffic: a producer that writes throughout, and a consumer that reads all records back."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from jobs.core.errors import SurveyorError
from jobs.core.polling import poll_until

FLUSH_TIMEOUT_SECONDS: Final = 60.0
"""Time limit for the first acknowledgement, the last ones, and the end of each partition."""

BURST_RECORDS: Final = 150
"""Records of each topic in a burst."""

_PAUSE_SECONDS: Final = 0.1
"""Seconds between two bursts; replicating the same records one at a time would be half of the demo's work."""

MAX_UNSENT_RECORDS: Final = 1_000_000
"""Records that wait while partitions have too few replicas in sync."""


@dataclass(slots=True)
class Traffic:
    """Writes numbered records to topics, acks=all and idempotent, from `start` to `stop`."""

    bootstrap: str
    topics: tuple[str, ...]
    details: Callable[[str, int], dict[str, Any]] = lambda _topic, _number: {}
    """Returns the key and the headers of a record, by its topic and number."""
    acked: set[bytes] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start writing; return when the first record is acknowledged."""
        self._thread = threading.Thread(target=self._write, name="producer", daemon=True)
        self._thread.start()
        if not poll_until(lambda: self.acked, bool, FLUSH_TIMEOUT_SECONDS):
            raise SurveyorError(f"no record was acknowledged within {FLUSH_TIMEOUT_SECONDS:g} s at {self.bootstrap}")

    def stop(self) -> None:
        """Stop writing and wait for the last acknowledgements."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": MAX_UNSENT_RECORDS,
                "log_level": 0,
                "error_cb": _ignore,  # connection errors; delivery reports have the relevant ones
            },
        )
        numbers = count()
        while not self._done.is_set():
            for topic in self.topics:
                for number in islice(numbers, BURST_RECORDS):
                    details = self.details(topic, number)
                    producer.produce(topic, value=b"%d" % number, on_delivery=self._delivered, **details)
            producer.poll(0)
            time.sleep(_PAUSE_SECONDS)
        producer.flush(FLUSH_TIMEOUT_SECONDS)

    def _delivered(self, error: object, message: Message) -> None:
        value = message.value()
        if error is None and isinstance(value, bytes):
            self.acked.add(value)
        else:
            self.failed.append(str(error))


def _ignore(_: object) -> None:
    pass


def write_record(bootstrap: str, topic: str) -> None:
    """Write one record to a topic, and wait for its acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, "error_cb": _ignore})
    producer.produce(topic, value=b"newest")
    if producer.flush(FLUSH_TIMEOUT_SECONDS):
        raise SurveyorError(f"no record of {topic} was acknowledged within {FLUSH_TIMEOUT_SECONDS:g} s at {bootstrap}")


def read_everything(bootstrap: str, topics: tuple[str, ...]) -> set[bytes]:
    """Read all records of the topics up to their current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"surveyor-demo-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 0,
            "error_cb": _ignore,
        },
    )
    try:
        return _drain(consumer, _ends(consumer, topics))
    finally:
        consumer.close()


def _ends(consumer: Consumer, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
    ends = {}
    for topic in topics:
        for partition in consumer.list_topics(topic, timeout=FLUSH_TIMEOUT_SECONDS).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=FLUSH_TIMEOUT_SECONDS)
            ends[topic, partition] = end
    return ends


def _drain(consumer: Consumer, ends: dict[tuple[str, int], int]) -> set[bytes]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in ends])
    read: set[bytes] = set()
    reached = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + FLUSH_TIMEOUT_SECONDS
    while any(reached[key] < end for key, end in ends.items()):
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() > deadline:
                raise SurveyorError("the consumer did not reach the end of every partition")
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        if topic is not None and partition is not None and offset is not None and isinstance(value, bytes):
            read.add(value)
            reached[topic, partition] = offset + 1
    return read
