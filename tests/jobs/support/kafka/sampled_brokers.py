"""Simulated brokers as in `paged_brokers`, which also report offsets, log dirs and groups.

    python -m tests.jobs.support.kafka.sampled_brokers TOPICS PARTITIONS BROKERS GROUPS

An answer is encoded once and kept, as real brokers take little time for it.
"""

import sys
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from kafka.protocol.admin import ListGroupsResponse

from jobs.adapters.brokers.group_offsets import COMMITTED
from jobs.adapters.brokers.log_dirs import LOG
from jobs.adapters.brokers.partition_offsets import ANSWERED, LATEST, REQUESTED
from jobs.adapters.brokers.topic_entries import Fields, ResponseReader, TopicLayout
from tests.jobs.support.kafka.paged_brokers import PagedCluster, print_ports

LIST_OFFSETS, OFFSET_FETCH, LIST_GROUPS, DESCRIBE_LOG_DIRS = 2, 9, 16, 35

RECORD_BYTES: Final = 100
DISK_BYTES: Final = 2**40


@dataclass
class SampledCluster(PagedCluster):
    """A cluster whose partitions have `records(topic, partition)` records of RECORD_BYTES, all from offset 0 on."""

    groups: int = 0
    """Groups of each broker; each has read everything that this broker leads."""
    kept: dict[tuple[int, int, bytes], bytes] = field(default_factory=dict)
    """Answers by port, API key and request."""

    @staticmethod
    def records(topic: Any, partition: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        return (topic * 1_000 + partition * 7) * 1_000

    @property
    def spoken(self) -> dict[int, int]:
        return super().spoken | {LIST_OFFSETS: 8, OFFSET_FETCH: 7, LIST_GROUPS: 5, DESCRIBE_LOG_DIRS: 4}

    def response(self, port: int, key: int, version: int, body: bytes) -> Any:  # noqa: ANN401 - as there
        if key not in {LIST_OFFSETS, OFFSET_FETCH, LIST_GROUPS, DESCRIBE_LOG_DIRS}:
            return super().response(port, key, version, body)
        if key == LIST_GROUPS:
            return self._groups(self.ports.index(port))
        if (port, key, body) not in self.kept:
            broker = self.ports.index(port)
            answers = {LIST_OFFSETS: self._offsets, OFFSET_FETCH: self._committed, DESCRIBE_LOG_DIRS: self._log_dirs}
            self.kept[port, key, body] = answers[key](broker, body)
        return self.kept[port, key, body]

    def _offsets(self, broker: int, body: bytes) -> bytes:
        reader = ResponseReader(body)
        reader.number(6)  # the header's tags, the replica and the isolation level
        names, counts, requested = reader.topics(REQUESTED)
        topics = np.repeat([self._numbers[name.decode()] for name in names], counts)
        entries = np.zeros(len(requested), np.dtype([*ANSWERED]))
        entries["partition_index"] = requested["partition_index"]
        entries["error_code"] = np.where(self._leader(topics, requested["partition_index"]) == broker, 0, 6)
        entries["timestamp"] = -1
        ends = self.records(topics, requested["partition_index"])
        entries["offset"] = np.where(requested["timestamp"] == LATEST, ends, 0)
        return bytes(4) + TopicLayout(names, counts, ANSWERED).encode(entries) + b"\0"

    def _leader(self, topics: Any, partitions: Any) -> Any:  # noqa: ANN401 - arrays
        return (topics + partitions) % self.brokers

    def _hosted(self, broker: int, replicas: int, fields: Fields) -> tuple[Any, Any, Any]:
        """Topics of the broker's first `replicas` replicas by partition, the topics' entries, and those' counts."""
        topics, partitions = np.meshgrid(np.arange(self.topics), np.arange(self.partitions), indexing="ij")
        behind = (broker - self._leader(topics, partitions)) % self.brokers
        marked = behind < replicas
        entries = np.zeros(int(marked.sum()), np.dtype([*fields]))
        entries["partition_index"] = partitions[marked]
        return topics[marked], marked.sum(axis=1), entries

    def _log_dirs(self, broker: int, _: bytes) -> bytes:
        topics, counts, entries = self._hosted(broker, min(3, self.brokers), LOG)
        entries["partition_size"] = self.records(topics, entries["partition_index"]) * RECORD_BYTES
        logs = self._encoded_hosted(counts, entries, LOG)
        volume = DISK_BYTES.to_bytes(8, "big") + (DISK_BYTES // 2).to_bytes(8, "big")
        return bytes(4) + bytes(2) + b"\2" + bytes(2) + b"\6/logs" + logs + volume + b"\0" + b"\0"

    def _groups(self, broker: int) -> Any:  # noqa: ANN401 - kafka-python is untyped
        row = ListGroupsResponse.ListedGroup
        groups = [
            row(group_id=f"group-{broker}-{n}", protocol_type="consumer", group_state="Empty", group_type="classic")
            for n in range(self.groups)
        ]
        return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)

    def _committed(self, broker: int, _: bytes) -> bytes:
        topics, counts, entries = self._hosted(broker, 1, COMMITTED)
        entries["committed_offset"] = self.records(topics, entries["partition_index"])
        entries["metadata_length"] = 1
        return bytes(4) + self._encoded_hosted(counts, entries, COMMITTED) + bytes(2) + b"\0"

    def _encoded_hosted(self, counts: Any, entries: Any, fields: Fields) -> bytes:  # noqa: ANN401 - arrays
        names = [name.encode() for name, count in zip(self.names, counts, strict=True) if count]
        return TopicLayout(names, counts[counts > 0], fields).encode(entries)


def main(topics: int, partitions: int, brokers: int, groups: int) -> None:
    print_ports(SampledCluster(topics, partitions, brokers, groups=groups))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
