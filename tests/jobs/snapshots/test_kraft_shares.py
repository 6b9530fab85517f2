"""A large KRaft cluster is read in shares by Spark's executors, from all its brokers, as by the driver alone.

The brokers are simulated, as real ones hold no such cluster on a test machine.
"""

from collections import Counter
from pathlib import Path

import pytest

from jobs.runtime.pace import Pace
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.paged_brokers import LISTED, NOT_PAGED, PAGED, Move, PagedCluster, topic_id

pytestmark = pytest.mark.usefixtures("spark")

TOPICS, PARTITIONS = 40, 7
BY_EXECUTORS = Pace(small_cluster=-1)


def _running(newest: str = LISTED, **more: object) -> PagedCluster:
    cluster = PagedCluster(TOPICS, PARTITIONS, newest=newest, **more)  # type: ignore[arg-type]
    cluster.start()
    return cluster


def _snapshot(cluster: PagedCluster, folder: Path) -> tuple[Row, Surveyor]:
    surveyor = Surveyor(cluster.bootstrap, folder / "warehouse", "--bootstrap-server", pace=BY_EXECUTORS)
    return surveyor.json("snapshot"), surveyor


def _partitions(surveyor: Surveyor) -> dict[tuple[str, int], Row]:
    return {(row["topic"], row["partition"]): row for row in surveyor.warehouse.rows("partitions")}


@pytest.mark.parametrize("newest", [LISTED, PAGED, NOT_PAGED])
def test_all_brokers_are_asked_for_shares(newest: str, tmp_path: Path) -> None:
    cluster = _running(newest)
    result, surveyor = _snapshot(cluster, tmp_path)
    assert (result["topics"], result["partitions"], result["quarantined"]) == (TOPICS, TOPICS * PARTITIONS, 0)
    rows = _partitions(surveyor)
    assert {key: (row["replicas"], row["leader"], row["isr"]) for key, row in rows.items()} == {
        (name, number): (replicas, replicas[0], replicas)
        for topic, name in enumerate(cluster.names)
        for number in range(PARTITIONS)
        for replicas in [cluster.replicas(topic, number)]
    }
    assert {row["eligible_leader_replicas"] is None for row in rows.values()} == {newest == NOT_PAGED}
    assert all(row["understood"] for row in rows.values())
    requests = {request for _, request in cluster.asked}
    assert (NOT_PAGED in requests) == (newest != LISTED), "names alone are listed where brokers can"
    pages = Counter(port for port, request in cluster.asked if request == (NOT_PAGED if newest == NOT_PAGED else PAGED))
    assert set(pages) == set(cluster.ports)
    topics = surveyor.warehouse.rows("topics")
    assert {len(row["config"]) for row in topics} == {1}
    assert len({row["topic_id"] for row in topics}) == TOPICS == len({topic_id(number) for number in range(TOPICS)})


def test_a_broker_that_does_not_catch_up_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is the only address, nothing would be known, and no snapshot is taken."""
    monkeypatch.setattr("jobs.adapters.kraft.fresh_reads.CATCH_UP_SECONDS", 0.2)
    cluster = _running(behind=frozenset({2}))
    result, surveyor = _snapshot(cluster, tmp_path)
    assert (result["partitions"], result["quarantined"]) == (TOPICS * PARTITIONS, 0)
    assert {port for port, request in cluster.asked if request == PAGED} == {*cluster.ports[:2]}
    assert all(row["understood"] for row in _partitions(surveyor).values())
    behind = Surveyor(f"127.0.0.1:{cluster.ports[2]}", tmp_path / "warehouse", "--bootstrap-server")
    ran = behind("snapshot")
    assert ran.code == 22
    assert "it does not catch up with the metadata log of the quorum in 0.2 s: " in ran.stderr
    assert len(behind.warehouse.rows("snapshots")) == 1


def test_topics_that_are_hidden_are_in_quarantine(tmp_path: Path) -> None:
    cluster = _running(LISTED, hidden=frozenset({"topic-00005", "topic-00017"}))
    result, surveyor = _snapshot(cluster, tmp_path)
    assert (result["topics"], result["quarantined"]) == (TOPICS, 2)
    assert {row["path"] for row in surveyor.warehouse.rows("quarantine")} == {
        "DescribeTopicPartitions/topic-00005",
        "DescribeTopicPartitions/topic-00017",
    }


def _move(cluster: PagedCluster, topic: int, partition: int, added: int) -> Move:
    replicas = cluster.replicas(topic, partition)
    return Move(cluster.names[topic], partition, [*replicas, added], [added], [])


def test_a_reassignment_that_ended_meanwhile_is_read_again(tmp_path: Path) -> None:
    """It is listed for the metadata and before the reading, and not after it."""
    cluster = _running()
    replicas = cluster.replicas(3, 2)
    moving = [Move(cluster.names[3], 2, replicas, [replicas[1]], [replicas[2]])]
    cluster.moves = [moving, moving, []]
    result, surveyor = _snapshot(cluster, tmp_path)
    assert (result["partitions"], result["quarantined"]) == (TOPICS * PARTITIONS, 0)
    assert not any(row["adding_replicas"] for row in _partitions(surveyor).values())
    assert len(surveyor.warehouse.rows("topics")) == TOPICS


def test_replicas_that_do_not_fit_are_read_again_and_not_understood(tmp_path: Path) -> None:
    """The share leaves the topic out; the driver finds the same once more, and the partition is in quarantine."""
    cluster = _running()
    cluster.moves = [[_move(cluster, 9, 1, added=77)]]
    result, surveyor = _snapshot(cluster, tmp_path)
    assert (result["partitions"], result["quarantined"]) == (TOPICS * PARTITIONS, 1)
    unread = {key for key, row in _partitions(surveyor).items() if not row["understood"]}
    assert unread == {(cluster.names[9], 1)}


def test_a_broker_that_is_down_is_passed_over(tmp_path: Path) -> None:
    cluster = _running()
    up = cluster.bootstrap.split(",")[0]
    cluster.ports[2] = 1  # of the registration; nothing listens there
    surveyor = Surveyor(up, tmp_path / "warehouse", "--bootstrap-server")
    assert surveyor.json("snapshot")["partitions"] == TOPICS * PARTITIONS


def test_brokers_lost_meanwhile_are_named_in_short(tmp_path: Path) -> None:
    """The driver gets its first page; then no broker answers another one."""
    cluster = _running(pages_before_loss=1)
    ran = Surveyor(cluster.bootstrap, tmp_path / "warehouse", "--bootstrap-server")("snapshot")
    assert ran.code == 22
    assert "no broker answered" in ran.stderr
    assert "Traceback" not in ran.stderr
