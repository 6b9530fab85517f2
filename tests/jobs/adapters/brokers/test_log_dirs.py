"""What is made of brokers' answers about their disks; real brokers answer in test_sizes_brokers."""

import numpy as np
import pyarrow as pa

from jobs.adapters.brokers.fanout import NOT_UNDERSTOOD, Ask, ask_brokers
from jobs.adapters.brokers.log_dirs import LOG, LOG_COLUMNS, ReportedLogDir, log_dirs_of, read_log_dirs
from jobs.adapters.brokers.topic_entries import TopicEntries
from jobs.adapters.embedded.ports import free_port
from schemas.rows import Broker
from tests.jobs.support.kafka.paged_brokers import PagedCluster
from tests.jobs.support.kafka.registrations import broker_at
from tests.jobs.support.rows.warehouse_rows import NOW


def _log_dir(path: str, *logs: tuple[str, int, int, int, bool], error: int = 0) -> ReportedLogDir:
    entries = np.array([log[1:] for log in logs], np.dtype([*LOG]))
    topics = TopicEntries(
        pa.array([log[0].encode() for log in logs], pa.binary()), np.ones(len(logs), np.int64), entries
    )
    return ReportedLogDir(error, path, topics, total_bytes=1000, usable_bytes=-1, is_cordoned=None)


def test_logs_of_all_log_dirs_and_those_that_failed() -> None:
    read = log_dirs_of(
        7,
        [
            _log_dir("/a", ("orders", 3, 100, 0, False), ("bills", 0, 5, 0, False)),
            _log_dir("/b", ("orders", 3, 40, 6, True)),
            _log_dir("/c", error=56),
        ],
        NOW,
    )
    assert read.logs.to_pylist() == [
        dict(zip(LOG_COLUMNS.names, (7, topic, partition, path, size, lag, future, NOW), strict=True))
        for topic, partition, path, size, lag, future in (
            ("orders", 3, "/a", 100, 0, False),
            ("bills", 0, "/a", 5, 0, False),
            ("orders", 3, "/b", 40, 6, True),
        )
    ]
    assert read.failed == {"/c": "KafkaStorageError (56)"}
    assert [(row.log_dir, row.total_bytes, row.usable_bytes) for row in read.dirs] == [
        (path, 1000, None) for path in ("/a", "/b", "/c")
    ]


def test_broker_that_holds_nothing() -> None:
    read = log_dirs_of(7, [_log_dir("/a")], NOW)
    assert (read.logs.num_rows, read.logs.schema, read.failed) == (0, LOG_COLUMNS, {})


def test_reasons_without_answers() -> None:
    brokers = [broker_at(free_port(), 2), broker_at(free_port(), 1, "SSL"), broker_at(free_port(), 0, understood=False)]
    read, silent = read_log_dirs(brokers, None, lambda _: None, timeout_seconds=5.0)
    assert (read, list(silent)) == ({}, [0, 1, 2])
    assert (silent[0], silent[1]) == (NOT_UNDERSTOOD, "it has no PLAINTEXT endpoint")
    assert "ECONNREFUSED" in silent[2]


def test_question_that_fails_is_the_reason() -> None:
    def question(_ask: Ask, broker: Broker) -> int:
        if broker.broker_id == 1:
            raise ValueError
        return broker.broker_id

    cluster = PagedCluster(topics=1, partitions=1, brokers=2)
    cluster.start()
    brokers = [broker_at(port, broker_id) for broker_id, port in enumerate(cluster.ports, start=1)]
    assert ask_brokers(brokers, {}, 5.0, question) == ({2: 2}, {1: "ValueError"})


def test_no_brokers_to_ask() -> None:
    assert read_log_dirs([], None, lambda _: None) == ({}, {})
