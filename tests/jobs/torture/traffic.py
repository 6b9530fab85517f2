"""Clients that write and read during the rounds: an idempotent producer, a transactional one, a group of one
consumer.

A record is a number. It counts once it is acknowledged (acks=all), or once its transaction is committed. A record of an
aborted transaction must never be read. Any other record may or may not be read.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ORDERS, MOVED, PAYMENTS = "orders", "moved", "payments"
"""Topics: ORDERS has three replicas, MOVED has two so that they can move, PAYMENTS is written in transactions."""

_PAUSE: Final = 0.1
_AT_ONCE: Final = 3
_PADDING: Final = b"." * 500
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "error_cb": lambda _: None}
_TIMEOUT_SECONDS: Final = 180.0


class Traffic:
    """Runs inside its `with` block."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acked: set[tuple[str, int]] = set()
        self.aborted: set[tuple[str, int]] = set()
        self.consumed: set[tuple[str, int]] = set()
        self.failed: Counter[str] = Counter()
        """Number of records that were not acknowledged, by reason; reported with the result."""
        self._number = 0
        self._over = Event()
        self._threads = [Thread(target=work) for work in (self._produce, self._transact, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _produce(self) -> None:
        while not self._over.is_set():
            producer = Producer(self._settings() | {"enable.idempotence": True})
            with suppress(KafkaException):  # a fatal error: start a new producer, as a user would
                while not self._over.is_set():
                    for _ in range(_AT_ONCE):
                        for topic in (ORDERS, MOVED):
                            producer.produce(topic, _record(self._next()), on_delivery=self._delivered)
                    producer.poll(0)
                    time.sleep(_PAUSE)
            producer.flush(30)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked.add(_read(message))
        else:
            self.failed[error.name()] += 1

    def _transact(self) -> None:
        while not self._over.is_set():
            producer = Producer(self._settings() | {"transactional.id": "torture", "transaction.timeout.ms": 30_000})
            with suppress(KafkaException):
                producer.init_transactions(30)
                while not self._over.is_set():
                    self._transaction(producer)
                    time.sleep(_PAUSE)

    def _transaction(self, producer: Producer) -> None:
        """One in four is aborted; one with an unknown end counts neither as committed nor as aborted."""
        producer.begin_transaction()
        records = {(PAYMENTS, self._next()) for _ in range(_AT_ONCE)}
        for _, number in records:
            producer.produce(PAYMENTS, _record(number))
        if self._number % 4:
            producer.commit_transaction(30)
            self.acked |= records
        else:
            producer.abort_transaction(30)
            self.aborted |= records

    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "acks": "all", "message.timeout.ms": 30_000, **_QUIET}

    def _consume(self) -> None:
        settings = {"group.id": "torture", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, **_QUIET})
        consumer.subscribe([ORDERS, MOVED, PAYMENTS])
        while not self._over.is_set():
            with suppress(KafkaException):
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    self.consumed.add(_read(message))
        consumer.close()

    def wrong(self) -> list[str]:
        """Return what is wrong with the records that can be read now, from the beginning and by the group."""
        due, aborted = self.acked.copy(), self.aborted.copy()
        read = self._everything()
        lost, twice = due - read.keys(), {record for record, times in read.items() if times > 1}
        wrong = [
            *_some("acknowledged and lost", lost),
            *_some("written once and read twice", twice),
            *_some("aborted and read", aborted & read.keys()),
        ]
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while due - self.consumed and time.monotonic() < deadline:
            time.sleep(0.5)
        return wrong + _some("never consumed by the group", due - self.consumed)

    def _everything(self) -> Counter[tuple[str, int]]:
        """All records up to the current end of each partition."""
        settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, **_QUIET})
        read: Counter[tuple[str, int]] = Counter()
        try:
            topics = consumer.list_topics(timeout=30).topics
            left = {(topic, number) for topic in (ORDERS, MOVED, PAYMENTS) for number in topics[topic].partitions}
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
            deadline = time.monotonic() + _TIMEOUT_SECONDS
            while left and time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    read[_read(message)] += 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name there
                    left.discard((str(message.topic()), int(message.partition() or 0)))
        finally:
            consumer.close()
        return read


def _record(number: int) -> bytes:
    return b"%d %b" % (number, _PADDING)


def _read(message: Message) -> tuple[str, int]:
    value = message.value()
    assert isinstance(value, bytes)
    return str(message.topic()), int(value.partition(b" ")[0])


def _some(title: str, records: "set[tuple[str, int]]") -> list[str]:
    return [f"{len(records)} records {title}: {sorted(records)[:5]}"] if records else []


def flowing(traffic: Traffic, eventually: Callable[[Callable[[], bool], float], bool], seconds: float) -> bool:
    """Whether records of each kind are acknowledged again."""
    before = {topic: _count(traffic, topic) for topic in (ORDERS, MOVED, PAYMENTS)}
    return eventually(lambda: all(_count(traffic, topic) > count for topic, count in before.items()), seconds)


def _count(traffic: Traffic, topic: str) -> int:
    return sum(1 for name, _ in traffic.acked.copy() if name == topic)
