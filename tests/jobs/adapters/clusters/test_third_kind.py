"""A third kind of cluster, which is one class: commands read it, plan on it, and check its plans, as any other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from jobs.adapters.clusters.interface import (
    Cluster,
    ClusterMetadata,
    ConfigDefaults,
    CurrentOverrides,
    DriverReading,
    Lease,
    LiveReading,
    ReadingEnd,
    ResourceName,
    Rows,
    TopicReading,
)
from jobs.adapters.delta.table_schemas import schema_of
from jobs.execution.admin.commit_lease import NoLease
from jobs.runtime.settings import Settings
from schemas.broker_config_defaults import KRAFT_DEFAULTS
from schemas.current_state import (
    CurrentPartition,
    CurrentReassignments,
    CurrentState,
    CurrentTopic,
    Decoded,
    LeaderAndIsr,
    OperationState,
    Targets,
    TopicSettings,
)
from schemas.lease_holder import LeaseHolder
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Broker, Change, Key, Operation
from schemas.security_digests import SecurityReading
from schemas.znode_codecs import Assignment
from tests.jobs.support.commands.commands import Surveyor

pytestmark = pytest.mark.usefixtures("spark")

ADDRESS: Final = "dict:1"

LEADER_EPOCH: Final = 3


class DictCluster(Cluster):
    """Brokers, and by topic the replicas of each partition, of which the first one in `leaders` leads."""

    def __init__(self, brokers: Sequence[int], topics: dict[str, list[list[int]]], leaders: Mapping[Key, int]) -> None:
        self.brokers = brokers
        self.topics = topics
        self.leaders = leaders

    def __str__(self) -> str:
        return ADDRESS

    @property
    def medium(self) -> str:
        return "the dict"

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        del small_partitions
        return DriverReading(
            metadata=self.read_cluster(), is_small=True, settings=ConfigDefaults(defaults=KRAFT_DEFAULTS)
        )

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        metadata = self.read_cluster()
        return metadata.cluster_id, metadata.brokers

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        return self.read_cluster().brokers, ConfigDefaults(defaults=KRAFT_DEFAULTS)

    def read_rows(self) -> list[Rows]:
        topics = [
            {"topic": name, "understood": True, "assignment_understood": True, "config": {}} for name in self.topics
        ]
        return [
            Rows(
                topics=pa.Table.from_pylist(topics, schema_of("topics", *topics[0])),
                partitions=self._partitions(None, PartitionInfo.__struct_fields__),
                quarantine=[],
                read_seconds=0.1,
                decode_seconds=0.0,
            )
        ]

    def read_end(self) -> ReadingEnd:
        return ReadingEnd(position=1, security=SecurityReading(None, None, None))

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        return LiveReading(
            metadata=self.read_cluster(),
            configs={name: {} for name in self.topics},
            partitions=self._partitions(topic, columns),
            quarantine=[],
            throttle_rates={},
            unread_broker_configs={},
        )

    def sync(self) -> None:
        """A dict is always current."""

    def read_cluster(self) -> ClusterMetadata:
        return ClusterMetadata(
            controller_id=0,
            controller_epoch=1,
            position=1,
            cluster_id="dict",
            brokers=[Broker(broker_id=number, understood=True) for number in self.brokers],
            controller_broker=0,
        )

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        return CurrentState(self.read_partitions(change.key for change in changes), {}, frozenset(self.brokers))

    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        return {key: self._partition(*key) for key in keys}

    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        config: dict[str, str] = {}
        return OperationState(
            {
                operation.topic: TopicSettings(self._topic(operation.topic), Decoded(config), None, is_queued=False)
                for operation in operations
            },
            Decoded([]),
            Decoded([]),
            Decoded(None, "there is none"),
        )

    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        return CurrentReassignments(moving or {}, {}, {}, dict.fromkeys(self.brokers), frozenset(), None, [])

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        del allow_silent
        return {resource: {} for resource in resources}

    def read_topics(self, names: Sequence[str]) -> TopicReading:
        rows = [PartitionInfo(**row) for name in names for row in self._rows(name)]
        return TopicReading(rows, [TopicInfo(topic=name, topic_version=None) for name in names])

    def read_lease_holder(self) -> LeaseHolder | None:
        return None

    @contextmanager
    def lease(self, *_: object) -> Iterator[Lease]:
        yield NoLease()

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        return [
            {
                "topic": topic,
                "topic_version": None,
                "partition": number,
                "replicas": replicas,
                "adding_replicas": [],
                "removing_replicas": [],
                "understood": True,
                "leader": self.leaders.get((topic, number), replicas[0]),
                "isr": replicas,
                "leader_epoch": LEADER_EPOCH,
            }
            for number, replicas in enumerate(self.topics[topic])
        ]

    def _partitions(self, topic: str | None, columns: Sequence[str]) -> pa.Table:
        rows = [row for name in self.topics if topic in {None, name} for row in self._rows(name)]
        return pa.Table.from_pylist(rows, schema_of("partitions", *columns))

    def _topic(self, name: str) -> CurrentTopic:
        assignment = Assignment(dict(enumerate(self.topics[name])), {}, {}, None)
        return CurrentTopic(f"topic {name}", None, Decoded(assignment), is_unversioned=True)

    def _partition(self, topic: str, number: int) -> CurrentPartition:
        row = self._rows(topic)[number]
        state = LeaderAndIsr(row["leader"], LEADER_EPOCH, row["isr"])
        return CurrentPartition(self._topic(topic), number, f"{topic}-{number}", None, Decoded(state))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DictCluster:
    cluster = DictCluster([0, 1, 2], {"orders": [[0, 1], [1, 2], [2, 0]]}, {("orders", 0): 1})
    monkeypatch.setattr(Settings, "connect", lambda *_: cluster)
    return cluster


@pytest.fixture
def surveyor(tmp_path: Path) -> Surveyor:
    return Surveyor(ADDRESS, tmp_path / "warehouse", "--bootstrap-server")


@pytest.mark.usefixtures("cluster")
def test_commands_work_on_it(surveyor: Surveyor) -> None:
    status = surveyor("status")
    assert status.code == 0, status.stderr
    assert f"cluster default, {ADDRESS}, " in status.stdout
    counts = surveyor.json("snapshot")
    assert (counts["brokers"], counts["topics"], counts["partitions"]) == (3, 1, 3)

    plan = surveyor.json("plan", "elect", "--preferred", "--name", "balance")
    assert plan["changes"] == 1
    commit = surveyor.json("commit", "balance")
    assert (commit["dry_run"], commit["mode"], commit["due"]) == (True, "admin", 1)
    refused = surveyor("commit", "balance", "--mode", "batch")
    assert refused.code != 0
    assert "no controllership in ZooKeeper" in refused.stderr


def test_a_change_since_the_plan_makes_it_stale(cluster: DictCluster, surveyor: Surveyor) -> None:
    surveyor.json("plan", "elect", "--preferred", "--name", "balance")
    cluster.topics = {"orders": [[1, 0], [1, 2], [2, 0]]}
    ran = surveyor("commit", "balance", "--json")
    assert (ran.json["due"], ran.json["stale"]) == (0, 1)
