"""The records of a KRaft cluster's metadata log, as Kafka's DumpLogSegments decodes them, and what they mean.

The log has every change of every partition in order, so violations are searched for in all of it.
"""

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from schemas.enums import NO_LEADER, RECOVERING
from tests.jobs.support.kafka.kraft_cluster import kafka_tool

_RECORD: Final = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .*payload: (\{.*\})\s*$")
_TOPIC_CONFIG: Final = 2

_LISTS: Final = {"isr": "isr", "replicas": "replicas", "addingReplicas": "adding", "removingReplicas": "removing"}
"""Fields of PartitionChangeRecord, which are left out where nothing changes, and attributes of PartitionState."""

Place = tuple[str, int]


class LogRecord(NamedTuple):
    """`at` in seconds since 1970."""

    offset: int
    at: float
    kind: str
    data: dict[str, Any]


def read_log(log_dir: Path) -> list[LogRecord]:
    """Decode the segments of a node's metadata log; the node may run."""
    with tempfile.TemporaryDirectory() as copy:
        segments = [shutil.copy(segment, copy) for segment in sorted((log_dir / "__cluster_metadata-0").glob("*.log"))]
        dump = kafka_tool("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", ",".join(segments))
    return list(decoded(dump.splitlines()))


def decoded(lines: Iterable[str]) -> Iterator[LogRecord]:
    for line in lines:
        if match := _RECORD.search(line):
            payload = json.loads(match[3])
            yield LogRecord(int(match[1]), int(match[2]) / 1000, payload["type"], payload["data"])


@dataclass
class PartitionState:
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    @property
    def target(self) -> list[int]:
        """The replicas once a running reassignment is complete."""
        return [broker for broker in self.replicas if broker not in self.removing]


class Retargeted(NamedTuple):
    """A request that gave a partition another target."""

    at: float
    topic: str
    partition: int
    before: list[int]
    target: list[int]


@dataclass
class MetadataHistory:
    """The states of all partitions, replayed from the log, and what happened on the way."""

    since: int = 0
    """The first offset that counts: violations and events before it are another test's."""
    partitions: dict[Place, PartitionState] = field(default_factory=dict)
    """The partitions that exist at the end."""
    retargeted: list[Retargeted] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    configured: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)
    """Topic, name and value of each written config."""
    wrong: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[LogRecord], since: int = 0) -> "MetadataHistory":
        history = cls(since)
        for record in records:
            history._take(record)
        return history

    def _take(self, record: LogRecord) -> None:
        data, counts = record.data, record.offset >= self.since
        match record.kind:
            case "TOPIC_RECORD":
                self._names[data["topicId"]] = data["name"]
                self.created[data["name"]] += counts
            case "REMOVE_TOPIC_RECORD":
                name = self._names.pop(data["topicId"])
                self.deleted[name] += counts
                self.partitions = {place: state for place, state in self.partitions.items() if place[0] != name}
            case "PARTITION_RECORD":
                place = self._names[data["topicId"]], data["partitionId"]
                self.partitions[place] = PartitionState(
                    data["replicas"], data["isr"], data["leader"], data["leaderEpoch"]
                )
                self._check(record, place)
            case "PARTITION_CHANGE_RECORD":
                self._change(record)
            case "CONFIG_RECORD" if data["resourceType"] == _TOPIC_CONFIG:
                self.configured[data["resourceName"], data["name"], data["value"]] += counts

    def _change(self, record: LogRecord) -> None:
        data = record.data
        place = self._names[data["topicId"]], data["partitionId"]
        state = self.partitions[place]
        before = state.target
        if data.get("leaderRecoveryState") == RECOVERING and record.offset >= self.since:
            self.wrong.append(f"{place} at offset {record.offset}: {data['leader']} was elected uncleanly")
        if (leader := data.get("leader")) is not None:
            state.leader, state.leader_epoch = leader, state.leader_epoch + 1
        for name, attribute in _LISTS.items():
            if data.get(name) is not None:
                setattr(state, attribute, data[name])
        if state.target != before and record.offset >= self.since:
            self.retargeted.append(Retargeted(record.at, *place, before, state.target))
        self._check(record, place)

    def _check(self, record: LogRecord, place: Place) -> None:
        state = self.partitions[place]
        if record.offset < self.since:
            return
        if state.leader not in {NO_LEADER, *state.isr}:
            self.wrong.append(f"{place} at offset {record.offset}: leader {state.leader} is not in {state.isr}")
        if not set(state.isr) <= set(state.replicas):
            self.wrong.append(f"{place} at offset {record.offset}: {state.isr} is not part of {state.replicas}")
