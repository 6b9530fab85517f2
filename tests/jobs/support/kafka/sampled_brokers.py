"""Simulated brokers as in `paged_brokers`, which also report offsets, log dirs and groups.

    python -m tests.jobs.support.kafka.sampled_brokers TOPICS PARTITIONS BROKERS GROUPS

An answer is encoded once and kept, as real brokers take little time for it.
"""

import sys
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from kafka.protocol.admin import DescribeLogDirsResponse, ListGroupsResponse

from jobs.adapters.brokers.group_offsets import COMMITTED
from jobs.adapters.brokers.log_dirs import LOG
from jobs.adapters.brokers.partition_offsets import ANSWERED, LATEST, REQUESTED
from jobs.adapters.brokers.topic_entries import Fields, ResponseReader, TopicLayout
from tests.jobs.support.kafka.paged_brokers import PagedCluster, print_ports

LIST_OFFSETS, OFFSET_FETCH, LIST_GROUPS, DESCRIBE_LOG_DIRS = 2, 9, 16, 35
NOT_LEADER, CLUSTER_AUTHORIZATION_FAILED = 6, 31

DISK_BYTES: Final = 2**40


@dataclass
class SampledCluster(PagedCluster):
    """A cluster whose partitions have some millions of records, of which the first third was deleted."""

    groups: int = 0
    """Groups of each broker; each has read everything that this broker leads."""
    errors: dict[tuple[int, int], int] = field(default_factory=dict)
    """Error codes of offsets by the numbers of topic and partition."""
    refused: frozenset[int] = frozenset()
    """API keys of requests that the client may not make."""
    is_hashed: bool = False
    """Whether topics are answered in another order than that of the request, as by Kafka 4."""
    kept: dict[tuple[int, int, bytes], bytes] = field(default_factory=dict)
    """Answers by port, API key and request."""

    @staticmethod
    def end(topic: Any, partition: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        """The high watermark: as good as random, so that files have the size of real ones."""
        numbers = np.asarray(topic, np.int64) * 2_654_435_761 + np.asarray(partition, np.int64) * 40_503_001
        mixed = (numbers ^ (numbers >> 15)) % 2**32 * 0x2C1B3D
        return (mixed ^ (mixed >> 12)) % 2**34

    @classmethod
    def first(cls, topic: Any, partition: Any) -> Any:  # noqa: ANN401 - as above
        return cls.end(topic, partition) // 3

    @classmethod
    def size(cls, topic: Any, partition: Any) -> Any:  # noqa: ANN401 - as above
        return (cls.end(topic, partition) - cls.first(topic, partition)) * 100 + topic * 31 % 97

    @property
    def spoken(self) -> dict[int, int]:
        return super().spoken | {LIST_OFFSETS: 8, OFFSET_FETCH: 7, LIST_GROUPS: 5, DESCRIBE_LOG_DIRS: 4}

    def response(self, port: int, key: int, version: int, body: bytes) -> Any:  # noqa: ANN401 - as there
        broker = self.ports.index(port)
        if key == LIST_GROUPS:
            return self._groups(broker)
        if key == DESCRIBE_LOG_DIRS and key in self.refused:
            return DescribeLogDirsResponse(throttle_time_ms=0, error_code=CLUSTER_AUTHORIZATION_FAILED, results=[])
        answers = {LIST_OFFSETS: self._offsets, OFFSET_FETCH: self._committed, DESCRIBE_LOG_DIRS: self._log_dirs}
        if key not in answers:
            return super().response(port, key, version, body)
        if (port, key, body) not in self.kept:
            self.kept[port, key, body] = answers[key](broker, body)
        return self.kept[port, key, body]

    def _offsets(self, broker: int, body: bytes) -> bytes:
        reader = ResponseReader(body)
        reader.number(6)  # the header's tags, the replica and the isolation level
        names, counts, requested = reader.topics(REQUESTED)
        topics, partitions = (
            np.repeat([self._numbers[name.decode()] for name in names.to_pylist()], counts),
            requested["partition_index"],
        )
        entries = np.zeros(len(requested), np.dtype([*ANSWERED]))
        entries["partition_index"] = partitions
        entries["error_code"] = np.where(self.leaders(topics, partitions) == broker, 0, NOT_LEADER)
        for (topic, partition), error in self.errors.items():
            entries["error_code"][(topics == topic) & (partitions == partition)] = error
        entries["timestamp"] = -1
        offsets = np.where(
            requested["timestamp"] == LATEST, self.end(topics, partitions), self.first(topics, partitions)
        )
        entries["offset"] = np.where(entries["error_code"] == 0, offsets, -1)
        entries["leader_epoch"] = np.where(entries["error_code"] == 0, 0, -1)
        if self.is_hashed:
            names, counts, entries = (
                names.take(pa.array(np.arange(len(names))[::-1])),
                counts[::-1],
                np.concatenate(np.split(entries, np.cumsum(counts)[:-1])[::-1]),
            )
        return bytes(4) + TopicLayout(names, counts).encode(entries, ANSWERED) + b"\0"

    def leaders(self, topics: Any, partitions: Any) -> Any:  # noqa: ANN401 - arrays
        """Return the leaders of partitions, also of those that moved."""
        leaders = (topics + partitions) % self.brokers
        for name, moves in self.requested.items():
            for partition, move in moves.items():
                leaders[(topics == self._numbers[name]) & (partitions == partition)] = move.replicas[0]
        return leaders

    def _hosted(self, broker: int, replicas: int, fields: Fields) -> tuple[Any, Any, Any]:
        """The topics of a broker's replicas, up to the `replicas`th, the number of each topic, and their entries."""
        topics, partitions = np.meshgrid(np.arange(self.topics), np.arange(self.partitions), indexing="ij")
        behind = (broker - self.leaders(topics, partitions)) % self.brokers
        marked = behind < replicas
        entries = np.zeros(int(marked.sum()), np.dtype([*fields]))
        entries["partition_index"] = partitions[marked]
        return topics[marked], marked.sum(axis=1), entries

    def _log_dirs(self, broker: int, _: bytes) -> bytes:
        topics, counts, entries = self._hosted(broker, min(3, self.brokers), LOG)
        entries["partition_size"] = self.size(topics, entries["partition_index"])
        volume = DISK_BYTES.to_bytes(8, "big") + (DISK_BYTES // 2).to_bytes(8, "big")
        return (
            bytes(4)
            + bytes(2)
            + b"\2"
            + bytes(2)
            + b"\6/logs"
            + self._topic_list(counts, entries, LOG)
            + volume
            + bytes(2)
        )

    def _groups(self, broker: int) -> Any:  # noqa: ANN401 - kafka-python is untyped
        row = ListGroupsResponse.ListedGroup
        groups = [
            row(group_id=f"group-{broker}-{n}", protocol_type="consumer", group_state="Empty", group_type="classic")
            for n in range(self.groups)
        ]
        error = CLUSTER_AUTHORIZATION_FAILED if LIST_GROUPS in self.refused else 0
        return ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=groups)

    def _committed(self, broker: int, _: bytes) -> bytes:
        topics, counts, entries = self._hosted(broker, 1, COMMITTED)
        entries["committed_offset"] = self.end(topics, entries["partition_index"])
        entries["metadata_length"] = 1
        error = CLUSTER_AUTHORIZATION_FAILED if OFFSET_FETCH in self.refused else 0
        return bytes(4) + self._topic_list(counts, entries, COMMITTED) + error.to_bytes(2, "big") + b"\0"

    def _topic_list(self, counts: Any, entries: Any, fields: Fields) -> bytes:  # noqa: ANN401 - arrays
        names = pa.array([name.encode() for name, count in zip(self.names, counts, strict=True) if count], pa.binary())
        return TopicLayout(names, counts[counts > 0]).encode(entries, fields)


def main(topics: int, partitions: int, brokers: int, groups: int) -> None:
    print_ports(SampledCluster(topics, partitions, brokers, groups=groups))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
