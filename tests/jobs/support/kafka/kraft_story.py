"""A KRaft cluster in which a broker is killed, with a snapshot before that and one after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.errors import KafkaError

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.repositories.snapshots import as_of, find_snapshot
from schemas.rows import Row, Snapshot
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.kraft_cluster import Described, described
from tests.jobs.support.kafka.real_cluster import create_topics, eventually

RACKS = {1: "a", 2: "b", 3: "c"}
CONFIG = {"min.insync.replicas": "2", "retention.ms": "3600000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A cluster with a killed broker and a running reassignment to it, with two snapshots: before it, and now."""

    cluster: EmbeddedKRaftCluster
    surveyor: Surveyor
    killed: int
    survivor: int
    before: Described
    now: Described
    level: int
    """The level of metadata.version."""
    doctor: dict[str, Any]
    """What the doctor found between the snapshots, with the broker killed."""

    def snapshot(self, snapshot_id: int) -> Snapshot:
        return find_snapshot(self.surveyor.warehouse, snapshot_id)

    def rows(self, table: str, snapshot_id: int) -> list[Row]:
        return as_of(self.surveyor.warehouse, self.snapshot(snapshot_id), table)

    def partitions(self, snapshot_id: int) -> dict[tuple[str, int], Row]:
        return {(row["topic"], row["partition"]): row for row in self.rows("partitions", snapshot_id)}


def _assignments(killed: int, survivor: int, other: int) -> dict[str, tuple[list[list[int]], dict[str, str]]]:
    """Replicas of each topic, and its config."""
    return {
        "orders": ([[killed, survivor], [survivor, killed], [other, survivor]], CONFIG),
        "moving": ([[survivor]], {}),
        "lone": ([[killed]], {}),
    }


def _is_being_reassigned(address: str, broker: int) -> bool:
    """Whether `moving` was asked to move; kafka-python asks any broker that it knows of, also one that was killed."""
    try:
        with connected_admin([address], {}) as asked:
            return asked.reassign({("moving", 0): [broker]}) == {("moving", 0): 0}
    except KafkaError:
        return False


@contextmanager
def killed_broker_story(cluster: EmbeddedKRaftCluster, folder: Path, level: int) -> Iterator[Story]:
    """Start the cluster, kill a broker that does not lead the quorum, and take both snapshots."""
    with cluster:
        surveyor = Surveyor(cluster.bootstrap, folder / "warehouse", "--bootstrap-server")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        leader = int(described(cluster, 1).quorum["LeaderId"])
        survivor = leader
        killed, other = (node for node in cluster.nodes if node != leader)
        topics = _assignments(killed, survivor, other)
        new = [
            NewTopic(name, len(replicas), replica_assignment=replicas, config=config)
            for name, (replicas, config) in topics.items()
        ]
        create_topics(admin, *new)
        assert eventually(lambda: set(admin.list_topics(timeout=90).topics) == set(topics))
        surveyor.json("snapshot")
        before = described(cluster, survivor)
        cluster.nodes[killed].kill()
        settled = AdminClient({"bootstrap.servers": cluster.nodes[survivor].address, "log_level": 0})
        assert eventually(lambda: killed not in settled.list_topics(timeout=90).brokers)
        assert eventually(lambda: _is_being_reassigned(cluster.nodes[survivor].address, killed))
        assert eventually(lambda: described(cluster, survivor).partitions["moving", 0][1] == [killed, survivor])
        doctor = surveyor.json("doctor")
        surveyor.json("snapshot")
        yield Story(
            cluster=cluster,
            surveyor=surveyor,
            killed=killed,
            survivor=survivor,
            before=before,
            now=described(cluster, survivor),
            level=level,
            doctor=doctor,
        )
